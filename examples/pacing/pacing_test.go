package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write docs/pacing.svg instead of comparing with it")

// The committed picture is what the limiters do in virtual time, where no timer is late, and so the same on every machine.
func TestPicture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results, err := record(t.Context(), standard, defaults())
		if err != nil {
			t.Fatal(err)
		}
		got := draw(standard, defaults(), results, "in virtual time, where no timer is late")
		wellFormed(t, got)
		name := filepath.Join("..", "..", "docs", "pacing.svg")
		if *update {
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o777), os.WriteFile(name, got, 0o666)); err != nil {
				t.Fatal(err)
			}
			return
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))) {
			t.Error("docs/pacing.svg is not what the limiters do now; if that is as it should be, run\n" +
				"\tgo test ./examples/pacing -run TestPicture -update\nand look at it")
		}
	})
}

// What the picture shows is what the limiters promise.
func TestLanes(t *testing.T) {
	for _, s := range []settings{
		defaults(),
		{rate: 5, burst: 1, pause: 0, cost: 1},
		{rate: 5, burst: 20, pause: 3 * time.Second, cost: 8},
		{rate: 40, burst: 20, pause: 300 * time.Millisecond, cost: 2},
	} {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				results, err := record(t.Context(), standard, s)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range results {
					for _, e := range r.events {
						if e.kind == refused {
							t.Errorf("%s refused a request: %v", r.lane.name, e.err)
						}
						if e.at > standard.horizon {
							t.Errorf("%s: an event at %v", r.lane.name, e.at)
						}
					}
					check, ok := promises[r.lane.id]
					if !ok {
						t.Fatalf("nothing is known of lane %q", r.lane.id)
					}
					if err := check(r, s); err != nil {
						t.Errorf("%s: %v", r.lane.name, err)
					}
				}
			})
		})
	}
}

var promises = map[string]func(result, settings) error{
	"spaced": func(r result, s settings) error {
		return errors.Join(inTime(r, s), apart(r.grants(-1), time.Second/time.Duration(s.rate)))
	},
	"burst": func(r result, s settings) error {
		all := r.grants(-1)
		if together := mostIn(1, all); together != min(s.burst, 24) {
			return fmt.Errorf("%d at one instant, not %d", together, s.burst)
		}
		if most := mostIn(time.Second, all); most > s.rate+s.burst {
			return fmt.Errorf("%d in a second", most)
		}
		return inTime(r, s)
	},
	"window": func(r result, s settings) error {
		if most := mostIn(time.Second, r.grants(-1)); most != min(s.rate, 24) {
			return fmt.Errorf("%d in a second", most)
		}
		return inTime(r, s)
	},
	"pausable": func(r result, s settings) error {
		pauses := 0
		for _, e := range r.events {
			if e.kind != paused {
				continue
			}
			pauses++
			for _, at := range r.grants(-1) {
				if at >= e.at && at < e.until {
					return fmt.Errorf("a grant at %v, in the pause from %v to %v", at, e.at, e.until)
				}
			}
			if e.until-e.at != s.pause {
				return fmt.Errorf("a pause of %v", e.until-e.at)
			}
		}
		if want := min(s.pause, 1); pauses != int(want) {
			return fmt.Errorf("%d pauses", pauses)
		}
		return apart(r.grants(-1), time.Second/time.Duration(s.rate))
	},
	"all": func(r result, s settings) error {
		// Tokens: a full bucket of 2 s.rate, and as many every second.
		for i, at := range r.grants(-1) {
			if have := float64(2*s.rate) * (1 + at.Seconds()); float64((i+1)*s.cost) > have+1e-6 {
				return fmt.Errorf("%d tokens by %v", (i+1)*s.cost, at)
			}
		}
		return apart(r.grants(-1), time.Second/time.Duration(s.rate))
	},
	"worker": func(r result, s settings) error {
		var errs []error
		for g := range r.lane.groups {
			errs = append(errs, apart(r.grants(g), 3*time.Second/time.Duration(s.rate)))
		}
		return errors.Join(append(errs, inTime(r, s))...)
	},
	"key": func(r result, s settings) error {
		return errors.Join(
			apart(r.grants(0), 2*time.Second/time.Duration(s.rate)),
			apart(r.grants(1), 4*time.Second/time.Duration(s.rate)),
			apart(r.grants(2), 4*time.Second/time.Duration(s.rate)))
	},
	"random": func(r result, s settings) error {
		all := r.grants(-1)
		if most := mostIn(time.Second, all); most > s.rate {
			return fmt.Errorf("%d in a second", most)
		}
		gaps := map[time.Duration]bool{}
		for i := range all[1:] {
			gaps[all[i+1]-all[i]] = true
		}
		if len(gaps) < len(all)/2 {
			return fmt.Errorf("only %d different gaps", len(gaps))
		}
		return nil
	},
	"adaptive": func(r result, s settings) error {
		throttled := 0
		for _, e := range r.events {
			if e.err != nil {
				throttled++
			}
		}
		if throttled == 0 || throttled > 8 {
			return fmt.Errorf("%d were throttled", throttled)
		}
		return apart(r.grants(-1), time.Second/time.Duration(s.rate))
	},
}

// inTime says that nothing was held back longer than the rate demands.
func inTime(r result, s settings) error {
	all := r.grants(-1)
	if want := min(standard.requests(), s.rate*7); len(all) < want {
		return fmt.Errorf("%d granted, not %d", len(all), want)
	}
	return nil
}

// apart says that no two times are closer than a gap, but for what a nanosecond's fraction may come to.
func apart(times []time.Duration, gap time.Duration) error {
	if len(times) < 2 {
		return fmt.Errorf("only %d grants", len(times))
	}
	for i := range times[1:] {
		if d := times[i+1] - times[i]; d < gap {
			return fmt.Errorf("%v and %v are %v apart, less than %v", times[i], times[i+1], d, gap)
		}
	}
	return nil
}

func TestMostIn(t *testing.T) {
	for _, test := range []struct {
		times []time.Duration
		want  int
	}{
		{nil, 0},
		{[]time.Duration{5}, 1},
		{[]time.Duration{0, 10, 20}, 1},
		{[]time.Duration{0, 9, 10, 18, 19}, 3},
	} {
		if got := mostIn(10, test.times); got != test.want {
			t.Errorf("%v: %d, not %d", test.times, got, test.want)
		}
	}
}

// An interrupted flood leaves nothing behind, and goleak and the bubble would say so.
func TestFloodInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := record(ctx, standard, defaults()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the flood ended with %v", err)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// The picture also says what went wrong, and keeps what it is told from being read as markup.
func TestPictureOfTrouble(t *testing.T) {
	r := result{lane: lane{id: "x", name: `<b> & "c"`, about: "]]>"}, events: []event{
		{kind: refused, at: time.Second, err: errors.New("no")},
		{kind: paused, at: 7 * time.Second, until: time.Hour},
	}}
	got := draw(standard, defaults(), []result{r}, "")
	wellFormed(t, got)
	for _, want := range []string{"refused", "36 still wait", "&lt;b&gt;"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("the picture does not have %q", want)
		}
	}
}

func wellFormed(t *testing.T, picture []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(picture))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The page.

// brief is a plan for tests that run on the real clock.
var brief = plan{
	waves:   []wave{{0, 24}, {1200 * time.Millisecond, 12}},
	pauseAt: 450 * time.Millisecond,
	horizon: 2400 * time.Millisecond,
}

// Whatever has become of the requests, each has its event, and the stream has an end.
func TestStream(t *testing.T) {
	srv := httptest.NewServer(newServer(brief, defaults()))
	defer srv.Close()
	resp, err := http.Get(srv.URL + "/flood?rate=40&burst=20&pause=0.3&cost=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("status %d, content type %q", resp.StatusCode, got)
	}
	var start startMessage
	var last string
	grants := map[int]int{}
	pauses := 0
	for name, data := range events(t, resp.Body) {
		var e eventMessage
		if name == "start" {
			err = json.Unmarshal([]byte(data), &start)
		} else {
			err = json.Unmarshal([]byte(data), &e)
		}
		if err != nil {
			t.Fatalf("%v in %q", err, data)
		}
		switch last = name; name {
		case "grant":
			grants[e.Lane]++
		case "pause":
			pauses++
			if start.Lanes[e.Lane].ID != "pausable" || math.Abs(e.Until-e.At-300) > 0.01 {
				t.Errorf("a pause: %+v", e)
			}
		case "refusal":
			t.Errorf("%s refused: %s", start.Lanes[e.Lane].Name, e.Error)
		}
	}
	if last != "end" || pauses != 1 || start.Horizon != 2400 || len(start.Lanes) != len(promises) {
		t.Errorf("%d pauses, the last event is %q, start is %+v", pauses, last, start)
	}
	for i, l := range start.Lanes {
		if grants[i] == 0 || grants[i] > brief.requests() {
			t.Errorf("%s: %d grants", l.Name, grants[i])
		}
	}
}

// A page that is closed ends its flood, and so makes room for others.
func TestStreamsAreLimited(t *testing.T) {
	srv := httptest.NewServer(newServer(standard, defaults()))
	defer srv.Close()
	client := srv.Client()
	open := func(ctx context.Context) *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/flood", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range mostFloods {
		if resp := open(ctx); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	if resp := open(t.Context()); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one too many: %s", resp.Status)
	}
	cancel()
	srv.Close() // waits for the floods; goleak sees whether they have ended
}

func TestRequests(t *testing.T) {
	h := newServer(brief, defaults())
	for _, test := range []struct {
		target string
		code   int
		says   []string
	}{
		{"/", 200, []string{`id="rate"`, `value="10"`, `max="3" step="0.1" value="1"`, "every limiter"}},
		{"/page/app.js", 200, []string{"EventSource"}},
		{"/page/style.css", 200, []string{"prefers-reduced-motion", "light-dark"}[1:]},
		{"/nothing", 404, nil},
		{"/flood?rate=4", 400, []string{`rate is "4"`, "from 5 to 40"}},
		{"/flood?rate=NaN&burst=x&pause=-1&cost=9", 400, []string{"rate is", "burst is", "pause is", "cost is"}},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", test.target, nil))
		if w.Code != test.code {
			t.Errorf("%s: %d", test.target, w.Code)
		}
		for _, says := range test.says {
			if !strings.Contains(w.Body.String(), says) {
				t.Errorf("%s does not say %q: %s", test.target, says, w.Body)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	got, err := parseSettings(defaults(), map[string][]string{"rate": {"40"}, "pause": {"2.3"}})
	if want := (settings{rate: 40, burst: 5, pause: 2300 * time.Millisecond, cost: 4}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for v := 0; v <= 30; v++ {
		s, err := parseSettings(defaults(), map[string][]string{"pause": {fmt.Sprintf("%g", float64(v)*0.1)}})
		if err != nil || s.pause != time.Duration(v)*100*time.Millisecond {
			t.Errorf("%d tenths: %v, %v", v, s.pause, err)
		}
	}
}

// The program.

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		says []string
	}{
		{"-rate 4 -burst 0 -pause 4s -cost 9", []string{"-rate is 4", "from 5 to 40", "-burst is 0", "-pause is 4", "-cost is 9"}},
		{"-pause 1ms", []string{"-pause is 1ms", "multiple of 100ms"}},
		{"-rate fast", []string{"-rate", "fast"}},
		{"-addr 127.0.0.1", []string{"-addr", "host:port"}},
		{"-addr 127.0.0.1:http", []string{"-addr", "host:port"}},
		{"-addr 127.0.0.1:65536", []string{"-addr", "65535"}},
		{"-svg=", []string{"-svg is empty"}},
		{"-svg x -addr 127.0.0.1:0", []string{"-addr is for the page"}},
		{"x.svg", []string{"x.svg", "not a flag"}},
		{"-wrong 3", []string{"-wrong", "-h"}},
	} {
		code, stdout, stderr := call(t.Context(), strings.Fields(test.args)...)
		if code != exitUsage || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q", test.args, code, stdout)
		}
		for _, says := range test.says {
			if !strings.Contains(stderr, says) {
				t.Errorf("%s: %q does not say %q", test.args, stderr, says)
			}
		}
	}
	code, stdout, _ := call(t.Context(), "-h")
	if code != exitOK {
		t.Errorf("-h: exit code %d", code)
	}
	for _, c := range controls {
		if !strings.Contains(stdout, "-"+c.Name) || !strings.Contains(stdout, fmt.Sprintf("%v to %v", c.Min, c.Max)) {
			t.Errorf("the usage does not say that -%s is from %v to %v", c.Name, c.Min, c.Max)
		}
	}
}

// Ctrl-C ends the program with the page open and a flood under way.
func TestServeInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout, w := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, nil, w, &stderr)
		w.Close()
	}()
	out := bufio.NewReader(stdout)
	address, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	go io.Copy(io.Discard, out)
	address = strings.TrimSpace(address)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Fatalf("the address is %q", address)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(address + "flood")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for name := range events(t, resp.Body) {
		if name == "grant" {
			cancel()
		}
		if name == "end" {
			t.Error("the flood went on to its end")
		}
	}
	if code := <-ended; code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

func TestSVGInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	name := filepath.Join(t.TempDir(), "x.svg")
	code, _, stderr := call(ctx, "-svg", name)
	if _, err := os.Stat(name); code != exitInterrupted || !strings.Contains(stderr, "interrupted") || err == nil {
		t.Errorf("exit code %d, stderr %q, %v", code, stderr, err)
	}
}

func TestSVG(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the file is written at once, in eight seconds of this clock
		name := filepath.Join(t.TempDir(), "x.svg")
		if code, _, stderr := call(t.Context(), "-svg", name, "-rate", "20"); code != exitOK {
			t.Fatalf("exit code %d, stderr %q", code, stderr)
		}
		picture, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		wellFormed(t, picture)
		if !bytes.Contains(picture, []byte("20 requests/s")) {
			t.Errorf("%s", picture)
		}
		if code, _, _ := call(t.Context(), "-svg", filepath.Join(name, "none", "x.svg")); code != exitFailed {
			t.Errorf("no place for the picture: exit code %d", code)
		}
	})
}

func call(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// events reads server-sent events until there are no more.
func events(t *testing.T, r io.Reader) func(yield func(name, data string) bool) {
	return func(yield func(name, data string) bool) {
		lines := bufio.NewScanner(r)
		var name string
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case field == "event":
				name = value
			case field == "data" && !yield(name, value):
				return
			case !slices.Contains([]string{"", "event", "data"}, field):
				t.Errorf("not an event: %q", lines.Text())
			}
		}
	}
}
