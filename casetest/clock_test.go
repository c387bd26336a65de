package casetest_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
)

// Clocks that jump. All arithmetic is on Go's monotonic clock, which neither steps back nor forward with the wall clock;
// the only wall times that come in are an absolute PauseUntil and the date of a Retry-After.

// B61, sethvargo/go-limiter#41: a step of the wall clock made elapsed time negative, or gave an unearned refill. A limiter
// can only be struck by that if it takes the monotonic reading off its instants, so nothing in these packages does.
func TestB61NothingStripsTheMonotonicReading(t *testing.T) {
	strips := map[string]bool{
		"Unix": true, "UnixMilli": true, "UnixMicro": true, "UnixNano": true, "Round": true, "Truncate": true, "UTC": true, "Local": true,
		"In": true, "AddDate": true, "Date": true, "GobEncode": true, "MarshalBinary": true, "MarshalText": true, "MarshalJSON": true,
	}
	files := 0
	for _, dir := range []string{"../ratelimiter", "../foreman", "../buffering", ".."} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if entry.IsDir() || !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
				continue
			}
			name := filepath.Join(dir, entry.Name())
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				if _, gone := err.(*fs.PathError); gone {
					continue
				}
				t.Fatal(err)
			}
			files++
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !strips[method.Sel.Name] {
					return true
				}
				if method.Sel.Name == "Round" && isDurationRound(method) {
					return true
				}
				t.Errorf("%v calls %s: does that take the monotonic reading off?", set.Position(call.Pos()), method.Sel.Name)
				return true
			})
		}
	}
	if files < 10 {
		t.Fatalf("only %d files were looked at", files)
	}
}

// isDurationRound knows the roundings of durations that are printed.
func isDurationRound(method *ast.SelectorExpr) bool {
	field, ok := method.X.(*ast.SelectorExpr)
	return ok && field.Sel.Name == "For"
}

// A pause until a wall time without a monotonic reading is a distance from now, taken once: what the wall clock does
// afterwards is no matter, and a wall time of long ago, as after a step forward, holds nobody up.
func TestB61PauseUntilAWallTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for ahead, want := range map[time.Duration]time.Duration{
			300 * ms: 300 * ms, 0: 0, -time.Hour: 0, -200 * 365 * 24 * time.Hour: 0,
		} {
			p := ratelimiter.NewPausable(newBucket(every(ms)))
			clock := startWatch(t)
			if err := p.PauseUntil(time.Now().Add(ahead).Round(0)); err != nil {
				t.Error(err)
			}
			equalSlices(t, fmt.Sprint("grants after a pause until ", ahead), clock.grants(p, 3), steps(want, ms, 3))
		}
	})
}

// B61's forward step, as far as one can be made: time passes in jumps of every size, and neither a bucket nor a window
// ever holds more than it can.
func TestB61JumpsForwardGiveNoMoreThanTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(61, 1))
		for name, c := range map[string]struct {
			l    ratelimiter.TryAcquirer
			most int
		}{
			"TokenBucket":         {newBucket(ratelimiter.PerSecond(10)), 1},
			"TokenBucket burst 5": {newBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(5)), 5},
			"SlidingWindow":       {newWindow(ratelimiter.PerSecond(10)), 10},
			"Pausable":            {ratelimiter.NewPausable(newBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(5))), 5},
		} {
			for range 200 {
				time.Sleep(time.Duration(random.Int64N(int64(1) << (10 + random.IntN(45)))))
				granted := 0
				for range 50 {
					if ok, after := c.l.TryAcquire(ratelimiter.Request{}); ok {
						granted++
					} else if after <= 0 || after > time.Second {
						t.Fatalf("%s: the next grant in %v", name, after)
					}
				}
				if granted > c.most {
					t.Fatalf("%s granted %d at one instant, want at most %d", name, granted, c.most)
				}
			}
		}
	})
}

// B81, golang/go#56287: feeding older and newer times in turn made tokens out of nothing. No caller passes a time in, so
// what can disorder them is callers that race from reading the clock to the lock: many at once, on the real clock, get no
// more than burst and rate allow, measured from before the first to after the last.
func TestB81RacingCallersMakeNoTokens(t *testing.T) {
	for name, c := range map[string]struct {
		l     ratelimiter.TryAcquirer
		burst float64
	}{
		"TokenBucket":         {newBucket(ratelimiter.PerSecond(2000)), 1},
		"TokenBucket burst 5": {newBucket(ratelimiter.PerSecond(2000), ratelimiter.WithBurst(5)), 5},
		"SlidingWindow":       {newWindow(ratelimiter.Rate{Count: 20, Per: 10 * ms}), 20},
		"Pausable":            {ratelimiter.NewPausable(newBucket(ratelimiter.PerSecond(2000))), 1},
		"All":                 {newAll(newBucket(ratelimiter.PerSecond(2000)), newWindow(ratelimiter.Rate{Count: 200, Per: 10 * ms})), 1},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			before := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			defer cancel()
			var granted atomic.Int64
			var callers sync.WaitGroup
			for i := range 8 {
				callers.Go(func() {
					for ctx.Err() == nil {
						if i%2 == 0 {
							if c.l.AcquireWithin(ctx, ratelimiter.Request{}, time.Second) == nil {
								granted.Add(1)
							}
						} else if ok, _ := c.l.TryAcquire(ratelimiter.Request{}); ok {
							granted.Add(1)
						}
					}
				})
			}
			callers.Wait()
			if most := c.burst + time.Since(before).Seconds()*2000; float64(granted.Load()) > most {
				t.Errorf("%d grants, want at most %.1f", granted.Load(), most)
			}
		})
	}
}

// B103, systemd/systemd#42912: a long sleep of the machine, in which limits looked fresh or gave a free refill. Ten hours
// pass between two grants: one at once without a burst, five with one of five, and what ended in between is over, once.
func TestB103TenHoursAsleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			l    ratelimiter.Limiter
			want []time.Duration
		}{
			"burst off":     {newBucket(ratelimiter.PerSecond(10)), steps(0, 100*ms, 8)},
			"burst 5":       {newBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(5)), append(make([]time.Duration, 5), steps(100*ms, 100*ms, 3)...)},
			"SlidingWindow": {newWindow(ratelimiter.PerSecond(6)), append(make([]time.Duration, 6), time.Second, time.Second)},
		} {
			p := ratelimiter.NewPausable(c.l)
			for range 2 {
				if err := p.PauseFor(time.Minute); err != nil { // over, long before
					t.Error(err)
				}
				time.Sleep(10 * time.Hour)
				clock := startWatch(t)
				equalSlices(t, name, clock.grants(p, 8), c.want)
			}
		}
	})
}

// A handler that sleeps through its deadline by ten hours: the timeout strikes once, and no timer is left to strike later.
func TestB103DeadlineSleptThroughStrikesOnce(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		ended := 0
		out := w.run(t.Context(), func(ctx context.Context, _ int) (int, error) {
			time.Sleep(10 * time.Hour)
			return 0, ctx.Err()
		}, 1, numbers(1), penstock.WithAttemptTimeout(time.Minute), penstock.WithTaskTimeout(2*time.Minute),
			penstock.WithStartTimeout(time.Hour), penstock.WithHooks(penstock.Hooks{
				AttemptEnded: func(context.Context, penstock.Attempt, error) { ended++ },
			}))
		clock.is(10*time.Hour, "the end")
		time.Sleep(10 * time.Hour)
		out.account(t, numbers(1))
		equal(t, "timeout", as[*penstock.TimeoutError](t, out.tasks[0].Err).Limit, time.Minute)
		equal(t, "attempts ended", ended, 1)
		equal(t, "counters", out.count, counters{Failed: 1})
	})
}
