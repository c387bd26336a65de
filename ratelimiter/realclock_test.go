package ratelimiter_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// The few tests on the real clock. They fail for what is early; how late things
// are depends on the machine, so that is only reported, unless PENSTOCK_REALCLOCK
// is set: then they run for longer and insist on the figures that a quiet machine
// reaches.

var realClock = os.Getenv("PENSTOCK_REALCLOCK") != ""

// TestB59B88RateReached: a saturated bucket reaches its rate, although timers are
// late, and never exceeds it by more than the lateness it makes up for.
func TestB59B88RateReached(t *testing.T) {
	rates := []int{1e3, 1e4}
	if realClock {
		rates = []int{10, 1e3, 1e4, 1e5, 1e6}
	}
	for _, perSecond := range rates {
		for _, callers := range []int{1, 64, 1000} {
			t.Run(fmt.Sprintf("rate=%d/callers=%d", perSecond, callers), func(t *testing.T) {
				n := perSecond / 4
				if realClock {
					n = max(2*perSecond, 20)
				}
				best := 0.0
				for range 3 {
					share := reached(t, bucket(perSecond, time.Second), perSecond, n, callers)
					best = max(best, share)
					if realClock && share < 0.97 {
						continue // the machine may have been busy
					}
					break
				}
				t.Logf("%.1f %%", 100*best)
				if realClock && best < 0.97 {
					t.Errorf("only %.1f %% of the rate", 100*best)
				}
			})
		}
	}
}

// BenchmarkRateReached shows which share of the asked rate a saturated bucket
// reaches with 1, 64 and 1,000 callers.
func BenchmarkRateReached(b *testing.B) {
	for _, perSecond := range []int{10, 1e3, 1e4, 1e5, 1e6} {
		for _, callers := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("rate=%d/callers=%d", perSecond, callers), func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(100*reached(b, bucket(perSecond, time.Second), perSecond, max(perSecond, 20), callers), "%rate")
				}
			})
		}
	}
}

// reached runs callers that acquire without a break until n grants have been
// made, and returns the rate reached as a share of perSecond. The first grant is
// free, so the others measure the rate. It fails if the rate is exceeded.
func reached(tb testing.TB, l ratelimiter.Limiter, perSecond, n, callers int) float64 {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var granted atomic.Int64
	var took time.Duration // written by the caller with the last grant, before the others end
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for {
				if err := l.Acquire(ctx, any1); err != nil {
					if ctx.Err() == nil {
						tb.Error(err)
					}
					return
				}
				if granted.Add(1) == int64(n) {
					took = time.Since(start)
					cancel()
				}
			}
		})
	}
	wg.Wait()
	ideal := time.Duration(n-1) * time.Second / time.Duration(perSecond)
	if took < ideal-5*ms {
		tb.Errorf("%d grants at %d/s took only %v", n, perSecond, took)
	}
	return float64(ideal) / float64(took)
}

// TestSlidingWindowOnTheCallersSide checks the window where it counts: at the
// instants at which its callers go on, with both cores busy.
func TestSlidingWindowOnTheCallersSide(t *testing.T) {
	length := 300 * ms
	if realClock {
		length = 60 * time.Second
	}
	var stopped atomic.Bool
	var load sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		load.Go(func() {
			for !stopped.Load() { // this loop is the load: it keeps a core busy
			}
		})
	}
	t.Cleanup(func() { // after the parallel subtests, as no deferred call would be
		stopped.Store(true)
		load.Wait()
	})
	for _, n := range []int{5, 100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			if realClock {
				t.Parallel()
			}
			const span = 50 * ms
			l := window(n, span)
			type grant struct{ asked, back time.Duration }
			var mu sync.Mutex
			var grants []grant
			var wg sync.WaitGroup
			start := time.Now()
			for range 2 * n {
				wg.Go(func() {
					for time.Since(start) < length {
						asked := time.Since(start)
						if err := l.Acquire(context.Background(), any1); err != nil {
							t.Error(err)
						}
						back := time.Since(start)
						mu.Lock()
						grants = append(grants, grant{asked, back})
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			slices.SortFunc(grants, func(a, b grant) int { return int(a.back - b.back) })
			early, worst := 0, time.Duration(0)
			for i := range grants[:max(len(grants)-n, 0)] {
				if gap := grants[i+n].back - grants[i].back; gap < span {
					early++
					worst = max(worst, span-gap)
				}
			}
			t.Logf("%d grants, %d closer than %v, by %v at most", len(grants), early, span, worst)
			// A caller that loses its processor between its grant and its look at the
			// clock looks late, and the grant a period later early. What cannot be
			// explained so is an error: n+1 that had asked and were back in a period.
			slices.SortFunc(grants, func(a, b grant) int { return int(a.asked - b.asked) })
			for i := range grants {
				inside := 0
				for _, g := range grants[i:] {
					if g.asked >= grants[i].asked+span {
						break
					}
					if g.back < grants[i].asked+span {
						inside++
					}
				}
				if inside > n {
					t.Errorf("%d grants within %v", inside, span)
				}
			}
			if realClock && early > 0 && worst > ms {
				t.Errorf("a residual of %v", worst)
			}
		})
	}
}

// TestB57MonotonicClock: instants are counted on the monotonic clock, which no
// step of the wall clock moves.
func TestB57MonotonicClock(t *testing.T) {
	if base := ratelimiter.Base(bucket(1, time.Second)); !strings.Contains(base, " m=") {
		t.Errorf("the base %q has no monotonic reading", base)
	}
}

// TestB72B73Writers: 64 goroutines on one full limiter get exactly what is there.
func TestB72B73Writers(t *testing.T) {
	for _, l := range []ratelimiter.TryAcquirer{bucket(1, 24*time.Hour, ratelimiter.WithBurst(1000)), window(1000, 24*time.Hour)} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		n := 0
		for range 64 {
			wg.Go(func() {
				for range 100 {
					if ok, _ := l.TryAcquire(any1); ok {
						mu.Lock()
						n++
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if n != 1000 {
			t.Errorf("%v: %d granted of 1000", l, n)
		}
	}
}

// TestB22WakeUps: a timer goes off once per batch of grants, and each caller is
// woken once, by its grant.
func TestB22WakeUps(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		cs := s.calls(1001, l, any1)
		<-cs[1000].done
		if n := ratelimiter.Fired(l); n != 1000 {
			s.t.Errorf("the timer went off %d times for 1000 grants", n)
		}
	})
	virtual(t, func(s *stage) {
		l := window(100, time.Second)
		cs := s.calls(1000, l, any1)
		<-cs[999].done
		s.wg.Wait()
		if n := ratelimiter.Fired(l); n != 9 {
			s.t.Errorf("the timer went off %d times for 9 batches", n)
		}
	})
}
