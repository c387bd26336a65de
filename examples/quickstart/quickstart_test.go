package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The demo.

func TestDemo(t *testing.T) {
	const n = 40 // fewer than the server allows in a second, so that the rate may be high
	code, stdout, stderr := call(t.Context(), "", "-n", strconv.Itoa(n), "-rate", "200/s")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	got := table(t, stdout)
	if got["items"] != n || got["succeeded"]+got["failed"] != n || got["unfinished"] != 0 {
		t.Errorf("%d items went in:\n%s", n, stdout)
	}
	if got["attempts"] != n+got["retries"] || got["retries"] < got["500s seen by the server"]-got["failed"] {
		t.Errorf("the attempts do not add up:\n%s", stdout)
	}
	if got["429s seen by the server"] != 0 {
		t.Errorf("the server was overrun:\n%s", stdout)
	}
}

// The demo as it is started by default, and one that overruns the server, in virtual time and without a network.
func TestDemoKeepsToTheServersLimit(t *testing.T) {
	for _, test := range []struct {
		name      string
		args      []string
		throttled bool
		min, max  time.Duration
	}{
		{"by default", nil, false, 11600 * time.Millisecond, 13 * time.Second},
		{"four times too fast", []string{"-rate", "200/s", "-workers", "32"}, true, 9 * time.Second, 20 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, err := parse(test.args)
				if err != nil {
					t.Fatal(err)
				}
				srv := newServer()
				engine, err := newEngine(cfg, &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					w := httptest.NewRecorder()
					srv.ServeHTTP(w, r)
					return w.Result(), nil
				})})
				if err != nil {
					t.Fatal(err)
				}
				sum, runErr, lost := send(t.Context(), engine, "http://127.0.0.1", cfg.n)
				if err := errors.Join(runErr, lost); err != nil {
					t.Fatal(err)
				}
				ok, failed, throttled := srv.answered.ok.Load(), srv.answered.failed.Load(), srv.answered.throttled.Load()
				if sum.items != 500 || sum.succeeded != int(ok) || sum.succeeded+sum.failed != 500 {
					t.Errorf("the server answered %d requests: %+v", ok, sum)
				}
				if sum.attempts != int(ok+failed+throttled) || sum.retries != sum.attempts-500 {
					t.Errorf("the server saw %d, %d and %d requests: %+v", ok, failed, throttled, sum)
				}
				if (throttled > 0) != test.throttled {
					t.Errorf("the server saw %d requests too many", throttled)
				}
				if sum.wall < test.min || sum.wall > test.max {
					t.Errorf("took %v", sum.wall)
				}
			})
		})
	}
}

func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, stdout, stderr := call(ctx, "", "-n", "25")
	if n := table(t, stdout); code != exitInterrupted || n["items"] != 25 || n["unfinished"] != 25 {
		t.Errorf("exit code %d, stderr %q:\n%s", code, stderr, stdout)
	}
}

func TestAccountFindsWhatIsMissing(t *testing.T) {
	done := func(index int) task { return task{Data: &job{index: index}, Outcome: penstock.Succeeded} }
	for name, tasks := range map[string][]task{
		"too few":      {done(0)},
		"twice":        {done(0), done(0)},
		"out of order": {done(1), done(0)},
		"no outcome":   {done(0), {Data: &job{index: 1}}},
	} {
		if account(tasks, 2) == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
	if err := account([]task{done(0), done(1)}, 2); err != nil {
		t.Error(err)
	}
	if code, err := verdict(t.Context(), nil, errors.New("one is missing")); code != exitFailed || err == nil {
		t.Errorf("a lost item gives exit code %d, %v", code, err)
	}
}

// The demo's server.

func TestWindowSlides(t *testing.T) {
	w := window{recent: make([]time.Time, 3)}
	start := time.Now()
	for _, step := range []struct {
		at   time.Duration
		want bool
	}{
		{0, true}, {0, true}, {400 * time.Millisecond, true}, {400 * time.Millisecond, false},
		{serverWindow - 1, false}, {serverWindow, true}, {serverWindow, true}, {serverWindow, false},
		{serverWindow + 400*time.Millisecond, true},
	} {
		if got := w.admit(start.Add(step.at)); got != step.want {
			t.Errorf("at %v: admitted %v", step.at, got)
		}
	}
}

func TestServerAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		broken := false
		srv.fails = func() bool { return broken }
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/item/1", nil))
			return w
		}
		if w := ask(); w.Code != http.StatusOK {
			t.Errorf("answered %d", w.Code)
		}
		broken = true
		if w := ask(); w.Code != http.StatusInternalServerError {
			t.Errorf("answered %d", w.Code)
		}
		for srv.window.admit(time.Now()) {
		}
		if w := ask(); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("answered %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		if a := &srv.answered; a.ok.Load() != 1 || a.failed.Load() != 1 || a.throttled.Load() != 1 {
			t.Errorf("counted %d, %d, %d", a.ok.Load(), a.failed.Load(), a.throttled.Load())
		}
	})
}

// A list.

func TestListWritesOneLinePerURLInOrder(t *testing.T) {
	var flaky, busy atomic.Int64
	lateAnswered := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) { // completes after a later one
		select {
		case <-lateAnswered:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/late", func(http.ResponseWriter, *http.Request) { close(lateAnswered) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/flaky", func(w http.ResponseWriter, _ *http.Request) {
		if flaky.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) {
		if busy.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	url := serve(t, mux)

	in := writeList(t,
		"# what to fetch", "",
		url+"/early", "  "+url+"/late  ", url+"/missing", "", url+"/broken", url+"/flaky", "nonsense", "ftp://127.0.0.1/x",
		"http://", "http://a b/", url+"/ok?a=1&b=2", url+"/busy")
	out := filepath.Join(t.TempDir(), "results.jsonl")
	code, stdout, stderr := call(t.Context(), "", "-in", in, "-out", out, "-rate", "1000/s", "-workers", "4", "-retries", "1")
	if code != exitOK || stdout != "" {
		t.Fatalf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	written, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	got := lines(t, string(written))
	want := []line{
		{Line: 3, URL: url + "/early", Outcome: "succeeded", Status: 200, Attempts: 1},
		{Line: 4, URL: url + "/late", Outcome: "succeeded", Status: 200, Attempts: 1},
		{Line: 5, URL: url + "/missing", Outcome: "failed", Status: 404, Attempts: 1, Error: "404 Not Found"},
		{Line: 7, URL: url + "/broken", Outcome: "failed", Status: 502, Attempts: 2, Error: "502 Bad Gateway"},
		{Line: 8, URL: url + "/flaky", Outcome: "succeeded", Status: 200, Attempts: 2},
		{Line: 9, URL: "nonsense", Outcome: "failed", Attempts: 1, Error: "http://"},
		{Line: 10, URL: "ftp://127.0.0.1/x", Outcome: "failed", Attempts: 1, Error: "http://"},
		{Line: 11, URL: "http://", Outcome: "failed", Attempts: 1, Error: "host"},
		{Line: 12, URL: "http://a b/", Outcome: "failed", Attempts: 1, Error: "invalid"},
		{Line: 13, URL: url + "/ok?a=1&b=2", Outcome: "succeeded", Status: 200, Attempts: 1},
		{Line: 14, URL: url + "/busy", Outcome: "succeeded", Status: 200, Attempts: 2},
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines, not %d:\n%s", len(got), len(want), written)
	}
	for i, g := range got {
		w := want[i]
		if !strings.Contains(g.Error, w.Error) || (g.Error == "") != (w.Error == "") {
			t.Errorf("line %d: error %q does not say %q", i, g.Error, w.Error)
		}
		if (g.Elapsed < 0) || (w.URL == url+"/busy" && g.Elapsed < 1) {
			t.Errorf("line %d: elapsed %v", i, g.Elapsed)
		}
		g.Error, w.Error, g.Elapsed = "", "", 0
		if g != w {
			t.Errorf("line %d:\n%+v, not\n%+v", i, g, w)
		}
	}
	if n := table(t, stderr); n["items"] != len(want) || n["succeeded"] != 5 || n["failed"] != 6 || n["retries"] != 3 {
		t.Errorf("the table is wrong:\n%s", stderr)
	}
	if !strings.Contains(string(written), "a=1&b=2") {
		t.Error("a URL was escaped")
	}
}

func TestListTimeout(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	code, stdout, stderr := call(t.Context(), url+"\n", "-in", "-", "-timeout", "30ms", "-retries", "1")
	got := lines(t, stdout)
	if code != exitOK || len(got) != 1 {
		t.Fatalf("exit code %d, stderr %q, stdout %q", code, stderr, stdout)
	}
	g := got[0]
	if g.Outcome != "failed" || g.Attempts != 2 || g.Status != 0 || g.Elapsed < 0.06 || !strings.Contains(g.Error, "30ms") {
		t.Errorf("%+v", g)
	}
}

func TestListInterrupted(t *testing.T) {
	// One worker: when the third URL holds it, the first two are done and the others have not begun.
	const n = 50
	for _, test := range []struct {
		name string
		in   func(t *testing.T, urls []string) (name string, stdin io.Reader)
		all  bool // the URLs that nobody has taken get a line too
	}{
		{"a file", func(t *testing.T, urls []string) (string, io.Reader) { return writeList(t, urls...), nil }, true},
		{"standard input that does not end", func(t *testing.T, urls []string) (string, io.Reader) {
			r, w := io.Pipe()
			t.Cleanup(func() { w.Close() })
			go io.WriteString(w, strings.Join(urls, "\n")+"\n")
			return "-", r
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			mux := http.NewServeMux()
			mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
			mux.HandleFunc("/hold", func(_ http.ResponseWriter, r *http.Request) {
				cancel()
				<-r.Context().Done()
			})
			url := serve(t, mux)
			urls := slices.Repeat([]string{url + "/ok"}, n)
			urls[2] = url + "/hold"

			name, stdin := test.in(t, urls)
			var stdout, stderr bytes.Buffer
			code := run(ctx, []string{"-in", name, "-workers", "1", "-rate", "1000/s"}, stdin, &stdout, &stderr)
			if code != exitInterrupted || !strings.Contains(stderr.String(), "interrupted") {
				t.Fatalf("exit code %d, stderr %q", code, stderr.String())
			}
			got := lines(t, stdout.String())
			if len(got) < 3 || len(got) > n || test.all && len(got) != n {
				t.Fatalf("%d lines for %d URLs", len(got), n)
			}
			for i, g := range got {
				want := line{Line: i + 1, URL: urls[i], Outcome: "unfinished"}
				switch {
				case i < 2:
					want.Outcome, want.Status, want.Attempts = "succeeded", 200, 1
				case i == 2:
					want.Attempts = 1
				}
				if (g.Error == "") != (i < 2) {
					t.Errorf("line %d: error %q", i, g.Error)
				}
				g.Error, g.Elapsed = "", 0
				if g != want {
					t.Errorf("line %d:\n%+v, not\n%+v", i, g, want)
				}
			}
		})
	}
}

func TestListInterruptedBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	code, stdout, _ := call(ctx, "", "-in", writeList(t, "http://127.0.0.1/1", "http://127.0.0.1/2"))
	got := lines(t, stdout)
	if code != exitInterrupted || len(got) != 2 || got[0].Outcome != "unfinished" || got[1].Attempts != 0 {
		t.Errorf("exit code %d, %+v", code, got)
	}
}

// A list of any length takes a small, constant amount of memory, however slow the first answer is.
func TestListIsReadNoFasterThanItIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/0" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})}
		const workers = 4
		engine, err := newEngine(config{workers: workers, rate: ratelimiter.PerSecond(1000), timeout: time.Hour}, client)
		if err != nil {
			t.Fatal(err)
		}
		src := newFeed(&endlessList{})
		defer src.close()
		var out bytes.Buffer
		ended := make(chan error)
		go func() {
			_, runErr, _ := drive(ctx, engine, src, false, &out)
			ended <- runErr
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		// As the README has it: workers and result capacity, which is as many, between the oldest not yet written
		// and the newest started; and whatever the input queue holds.
		if taken := src.last.index + 1; taken < workers || taken > 4*workers+3 {
			t.Errorf("%d URLs were taken while the first one was held", taken)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the run ended with %v", err)
		}
		if got := lines(t, out.String()); len(got) == 0 || len(got) != src.last.index+1 {
			t.Errorf("%d of %d URLs have a line", len(got), src.last.index+1)
		}
	})
}

func TestListThatCannotBeReadOrWritten(t *testing.T) {
	dir := t.TempDir()
	in := writeList(t, "http://127.0.0.1:1/")
	long := writeList(t, "# fine", strings.Repeat("x", longestLine+1))
	for _, test := range []struct {
		name string
		args []string
		says string
	}{
		{"no list", []string{"-in", filepath.Join(dir, "none")}, "no such file"},
		{"a directory", []string{"-in", dir}, "is a directory"},
		{"no place for the output", []string{"-in", in, "-out", filepath.Join(dir, "none", "out")}, "no such file"},
		{"the list as output", []string{"-in", in, "-out", in}, "would be overwritten"},
		{"a line without end", []string{"-in", long}, "after line 1"},
	} {
		code, _, stderr := call(t.Context(), "", test.args...)
		if code != exitFailed || !strings.Contains(stderr, test.says) {
			t.Errorf("%s: exit code %d, stderr %q", test.name, code, stderr)
		}
	}
	if left, err := os.ReadFile(in); err != nil || len(left) == 0 {
		t.Errorf("the list was touched: %q, %v", left, err)
	}
}

func TestListWithFullDisk(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	in := writeList(t, slices.Repeat([]string{url}, 20)...)
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"-in", in, "-rate", "1000/s"}, nil, &fullDisk{room: 2}, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "line 3") || !strings.Contains(stderr.String(), "disk is full") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
}

// What both jobs use.

func TestJudge(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		code       int
		retryAfter string
		permanent  bool
		wait       time.Duration
	}{
		{301, "", true, 0},
		{400, "", true, 0},
		{404, "5", true, 0},
		{429, "", false, 0},
		{429, "2", false, 2 * time.Second},
		{429, "soon", false, 0},
		{429, now.Add(-time.Hour).UTC().Format(http.TimeFormat), false, 0},
		{500, "", false, 0},
		{503, "3", false, 3 * time.Second},
	} {
		resp := &http.Response{StatusCode: test.code, Header: http.Header{"Retry-After": {test.retryAfter}}}
		err := judge(resp, now)
		wait, _ := retry.RetryAfter(err)
		if retry.IsPermanent(err) != test.permanent || wait != test.wait {
			t.Errorf("%d, Retry-After %q: %v, permanent %v, wait %v", test.code, test.retryAfter, err, retry.IsPermanent(err), wait)
		}
		if got := status(task{Err: err}); got != test.code {
			t.Errorf("the status of %d is %d", test.code, got)
		}
	}
	if err := judge(&http.Response{StatusCode: 204}, now); err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		says []string
	}{
		{"-n 0 -workers 0 -retries -1 -timeout -1s", []string{"-n is 0", "-workers is 0", "-retries is -1", "-timeout is -1s"}},
		{"-rate fast", []string{"-rate", "fast"}},
		{"-rate 0/s", []string{"-rate", "0/s"}},
		{"-workers many", []string{"-workers", "many"}},
		{"-out results.jsonl", []string{"-out needs -in"}},
		{"-in - -n 3", []string{"-n is for the demo"}},
		{"-in=", []string{"-in is empty"}},
		{"-in - -out=", []string{"-out is empty"}},
		{"urls.txt", []string{"urls.txt", "-in FILE"}},
		{"-wrokers 3", []string{"-wrokers", "-h"}},
	} {
		code, stdout, stderr := call(t.Context(), "", strings.Fields(test.args)...)
		if code != exitUsage || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q", test.args, code, stdout)
		}
		for _, says := range test.says {
			if !strings.Contains(stderr, says) {
				t.Errorf("%s: %q does not say %q", test.args, stderr, says)
			}
		}
	}
	if code, stdout, _ := call(t.Context(), "", "-h"); code != exitOK || !strings.Contains(stdout, "-timeout") {
		t.Errorf("-h: exit code %d, %q", code, stdout)
	}
	if cfg, err := parse([]string{"-in", "x"}); err != nil || cfg.rate != ratelimiter.PerSecond(10) || cfg.out != "-" {
		t.Errorf("the defaults for a list are %+v, %v", cfg, err)
	}
	if cfg, err := parse(nil); err != nil || cfg.n != 500 || cfg.rate != ratelimiter.PerSecond(43) {
		t.Errorf("the defaults for the demo are %+v, %v", cfg, err)
	}
}

func TestProgress(t *testing.T) {
	counters := func() penstock.Counters { return penstock.Counters{Succeeded: 6, Failed: 1, Retries: 2, Running: 3} }
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		stop := showProgress(&out, counters, 20)
		time.Sleep(11 * time.Second)
		stop()
		if want := strings.Repeat("7 of 20 done, 1 failed, 2 retries\n", 2); out.String() != want {
			t.Errorf("%q", out.String())
		}
	})
	for total, want := range map[int]string{20: "7/20", 0: "(7"} {
		var out bytes.Buffer
		show := liveLine(&out, total)
		show(counters())
		show(counters())
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "1 failed, 2 retries") {
			t.Errorf("of %d: %q", total, out.String())
		}
	}
}

// Helpers.

func call(ctx context.Context, stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(ctx, args, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// table reads the numbers of the table back.
func table(t *testing.T, text string) map[string]int {
	t.Helper()
	numbers := map[string]int{}
	for row := range strings.Lines(text) {
		words := strings.Fields(row)
		if len(words) < 2 {
			continue
		}
		if n, err := strconv.Atoi(words[len(words)-1]); err == nil {
			numbers[strings.Join(words[:len(words)-1], " ")] = n
		}
	}
	return numbers
}

func lines(t *testing.T, text string) []line {
	t.Helper()
	var all []line
	for row := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(row), &l); err != nil {
			t.Fatalf("%v in %q", err, row)
		}
		all = append(all, l)
	}
	return all
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

func writeList(t *testing.T, urls ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "urls.txt")
	if err := os.WriteFile(name, []byte(strings.Join(urls, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An endlessList has one more URL for each read.
type endlessList struct{ n int }

func (l *endlessList) Read(p []byte) (int, error) {
	n := copy(p, fmt.Sprintf("http://127.0.0.1/%d\n", l.n))
	l.n++
	return n, nil
}

// A fullDisk takes the first few lines.
type fullDisk struct{ room int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.room--; d.room < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}
