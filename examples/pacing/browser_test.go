package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var screenshots = flag.String("screenshots", "", "the directory to which TestBrowser writes what it has seen")

// browserPath is where Debian's chromium is, or whatever PENSTOCK_CHROMIUM names. Without one the test is skipped, but
// not in CI: there it would be skipped for ever and nobody would notice.
func browserPath(t *testing.T) string {
	t.Helper()
	name, how := os.Getenv("PENSTOCK_CHROMIUM"), "PENSTOCK_CHROMIUM"
	if name == "" {
		name, how = "chromium", "PATH"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	message := fmt.Sprintf("no browser to look at the page with: %v (%s); install it with apt-get install chromium, "+
		"or set PENSTOCK_CHROMIUM to the path of one", err, how)
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
	return ""
}

// The page in a real browser: every limiter's grants are drawn, and a slider changes the picture.
func TestBrowser(t *testing.T) {
	path := browserPath(t)
	srv := httptest.NewServer(newServer(brief, defaults()))
	defer srv.Close()
	b := openBrowser(t, path, srv.URL)

	b.do(chromedp.EmulateViewport(1100, 900), chromedp.Navigate(srv.URL))
	b.wait(`document.body.dataset.run === "1" && document.body.dataset.state === "done"`)
	before := b.lanes()
	for id := range promises {
		switch l := before[id]; {
		case l.Drawn == 0 || l.Drawn != l.Counted:
			t.Errorf("%s: %d grants are drawn, and the text says %d", id, l.Drawn, l.Counted)
		case l.Outside > 0:
			t.Errorf("%s: %d marks are outside of the lane", id, l.Outside)
		}
	}
	if len(before) != len(promises) {
		t.Errorf("there are %d lanes", len(before))
	}
	if burst, spaced := before["burst"].Drawn, before["spaced"].Drawn; burst <= spaced {
		t.Errorf("%d grants are drawn with a burst, and %d without", burst, spaced)
	}
	b.screenshot("light.png")

	// The keyboard moves a slider as well as a finger does. At four times the rate there are
	// grants that had no time before, when the limit was the reason: so this holds on a slow machine too.
	b.do(chromedp.Focus("#rate"), chromedp.KeyEvent(kb.End))
	b.wait(`document.body.dataset.run === "2" && document.body.dataset.state === "done"`)
	after := b.lanes()
	for _, id := range []string{"spaced", "worker", "key"} {
		if after[id].Picture == before[id].Picture || after[id].Drawn <= before[id].Drawn {
			t.Errorf("%s: the rate went up, and the grants that are drawn went from %d to %d", id, before[id].Drawn, after[id].Drawn)
		}
	}
	if got := after["spaced"].About; !strings.Contains(got, "40/s") {
		t.Errorf("the lane says %q", got)
	}

	// The other sliders, on a phone and in the dark. What they were set to is in the address, which brings it back.
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	b.dark()
	for _, name := range []string{"#burst", "#pause", "#cost"} {
		b.do(chromedp.Focus(name), chromedp.KeyEvent(kb.Home))
	}
	b.wait(`location.search === "?rate=40&burst=1&pause=0&cost=1" && document.body.dataset.state === "done"`)
	phone := b.lanes()
	for id, says := range map[string]string{"burst": "1 at once", "pausable": "no pause", "all": "costs 1"} {
		if !strings.Contains(phone[id].About, says) {
			t.Errorf("%s does not say %q: %q", id, says, phone[id].About)
		}
	}
	if after["pausable"].Paused != 1 || phone["pausable"].Paused != 0 {
		t.Errorf("%d pauses are drawn, and %d without one", after["pausable"].Paused, phone["pausable"].Paused)
	}
	if wide := eval[float64](b, `document.documentElement.scrollWidth`); wide > 360 {
		t.Errorf("on a phone the page is %v wide", wide)
	}
	b.screenshot("phone-dark.png")

	run := eval[string](b, `document.body.dataset.run`)
	b.do(chromedp.Click("button[type=submit]"))
	b.wait(fmt.Sprintf(`+document.body.dataset.run > %s && document.querySelectorAll("#lane-spaced .mark").length > 2`, run))

	if b.requests.Load() < 4 {
		t.Errorf("the browser told of %d requests", b.requests.Load())
	}
	for _, problem := range b.problems() {
		t.Error(problem)
	}
}

type browser struct {
	t   *testing.T
	ctx context.Context

	requests atomic.Int32 // that the page made
	mu       sync.Mutex
	troubles []string
}

func openBrowser(t *testing.T, path, home string) *browser {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir())}
	for _, name := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
		"disable-background-networking", "disable-component-update", "disable-sync", "hide-scrollbars"} {
		options = append(options, chromedp.Flag(name, true))
	}
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(ctx)
	t.Cleanup(closeTab)
	b := &browser{t: t}
	if err := chromedp.Do(ctx); err != nil { // starts the browser, which must not have the timeout that the rest has
		t.Fatal("the browser does not start: ", err)
	}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Error("closing the browser: ", err)
		}
	})
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(ctx, 25*time.Second)
	t.Cleanup(cancel)
	b.watch(home)
	return b
}

// watch collects what must not happen: a script's fault, and a request to anywhere but home.
func (b *browser) watch(home string) {
	err := chromedp.Listen(b.ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.trouble("a script failed: %s %s", e.ExceptionDetails.Text, e.ExceptionDetails.URL)
		case *network.EventRequestWillBeSent:
			b.requests.Add(1)
			if url := e.Request.URL; !strings.HasPrefix(url, home+"/") && !strings.HasPrefix(url, "data:") {
				b.trouble("the page asked for %s", url)
			}
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) trouble(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.troubles = append(b.troubles, fmt.Sprintf(format, args...))
}

func (b *browser) problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.troubles
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.fail(err)
	}
}

// wait waits until the page says that a condition holds.
func (b *browser) wait(condition string) {
	b.t.Helper()
	b.do(chromedp.Poll[chromedp.Void](condition))
}

func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.fail(err)
	}
	return v
}

func (b *browser) fail(err error) {
	b.t.Helper()
	for _, p := range b.problems() {
		b.t.Error(p)
	}
	b.t.Fatal(err)
}

// dark makes the page believe that its reader prefers that.
func (b *browser) dark() {
	b.do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
		})
		return chromedp.Void{}, err
	})
}

func (b *browser) screenshot(name string) {
	if *screenshots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name), picture, 0o666)
	}
	if err != nil {
		b.t.Error(err)
	}
}

// A drawnLane is what is to be seen of a lane.
type drawnLane struct {
	About   string
	Drawn   int // grants, however many a mark stands for
	Counted int // grants, as the text has it
	Paused  int // pauses
	Outside int // marks that are not within the strip
	Picture string
}

func (b *browser) lanes() map[string]drawnLane {
	b.t.Helper()
	return eval[map[string]drawnLane](b, `Object.fromEntries([...document.querySelectorAll("#lanes > .lane")].map(lane => {
		const strip = lane.querySelector("svg"), box = strip.getBoundingClientRect();
		const marks = [...strip.querySelectorAll(".mark")];
		return [lane.id.replace("lane-", ""), {
			About: lane.querySelector("p").textContent,
			Drawn: marks.reduce((sum, m) => sum + +m.dataset.n, 0),
			Counted: parseInt(lane.querySelector(".count").textContent),
			Outside: marks.map(m => m.getBoundingClientRect()).filter(m =>
				m.left < box.left || m.right > box.right || m.top < box.top || m.bottom > box.bottom || m.height < 4).length,
			Paused: strip.querySelectorAll("rect.pause").length,
			Picture: strip.innerHTML,
		}];
	}))`)
}
