package casetest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
)

// Bursts after idle time: what nobody used is not saved up, except as much as was asked for.

// idleTimes are quiet spells on both sides of everything that could be stored.
var idleTimes = []time.Duration{0, ms, 99 * ms, 100 * ms, 101 * ms, 199 * ms, 250 * ms, 500 * ms, time.Minute, 10 * time.Hour, 365 * 24 * time.Hour}

// B03, uber-go/ratelimit#119: after a long quiet spell every call went through without a delay.
func TestB03NoBurstAfterIdle(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		for _, idle := range idleTimes {
			l := make(every(100 * ms))
			clock := startWatch(t)
			take(t, l, 1)
			time.Sleep(idle)
			first := max(idle, 100*ms)
			equalSlices(t, fmt.Sprint("20 in a row after ", idle), clock.grants(l, 20), steps(first, 100*ms, 20))
			time.Sleep(idle)
			first = max(clock.now(), first+20*100*ms)
			equalSlices(t, fmt.Sprint("a crowd after ", idle), clock.crowdGrants(l, 20), steps(first, 100*ms, 20))
		}
	})
}

// With a burst of n: at most n at once after any idle time, then paced.
func TestB03BurstAfterIdleIsCapped(t *testing.T) {
	for _, n := range []int{2, 5, 50} {
		t.Run(fmt.Sprint("burst ", n), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for name, l := range map[string]ratelimiter.Limiter{
					"TokenBucket": newBucket(every(100*ms), ratelimiter.WithBurst(n)),
					"Pausable":    ratelimiter.NewPausable(newBucket(every(100*ms), ratelimiter.WithBurst(n))),
					"All": newAll(newBucket(every(100*ms), ratelimiter.WithBurst(n)),
						newBucket(every(time.Microsecond), ratelimiter.WithBurst(1000))),
				} {
					for range 3 {
						clock := startWatch(t)
						want := append(make([]time.Duration, n), steps(100*ms, 100*ms, 20)...)
						equalSlices(t, name, clock.grants(l, n+20), want)
						time.Sleep(time.Duration(n)*100*ms + time.Hour)
					}
				}
			})
		})
	}
}

// B47, golang/go#25397: a ticker keeps one tick, and after a pause two callers ran half an interval apart.
func TestB47NoStoredTick(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		for _, idle := range idleTimes {
			for _, callers := range []int{2, 3, 17} {
				l := make(every(100 * ms))
				clock := startWatch(t)
				take(t, l, 1)
				time.Sleep(idle)
				equalSlices(t, fmt.Sprintf("%d callers after %v", callers, idle),
					clock.crowdGrants(l, callers), steps(max(idle, 100*ms), 100*ms, callers))
			}
		}
	})
}

// The same for what the handlers of an engine see, with idle time between the items.
func TestB47StartsAreSpacedAfterIdle(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		clock := startWatch(t)
		var mu sync.Mutex
		var starts []time.Duration
		l := make(every(100 * ms))
		run := newEngine(func(context.Context, int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, clock.now())
			return 0, nil
		}, workersFor(l), penstock.WithLimiter(l), penstock.WithResultCapacity(penstock.Unlimited)).Start(t.Context())
		for i, idle := range idleTimes {
			time.Sleep(idle)
			for range 1 + i%4 {
				must(run.Submit(t.Context(), i))
			}
		}
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		neverMore(t, starts, 1, 100*ms)
	})
}

// B85, agronholm/anyio#992: a fresh limiter starts full, and unused credit may pile up without a cap.
func TestB85FreshAndIdleLimiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var window []time.Duration
		for i := range 20 {
			window = append(window, time.Duration(i/10)*time.Second)
		}
		for name, c := range map[string]struct {
			l    ratelimiter.Limiter
			want []time.Duration
		}{
			"burst off":     {newBucket(ratelimiter.PerSecond(10)), steps(0, 100*ms, 20)},
			"burst 5":       {newBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(5)), append(make([]time.Duration, 5), steps(100*ms, 100*ms, 15)...)},
			"SlidingWindow": {newWindow(ratelimiter.PerSecond(10)), window},
		} {
			for _, idle := range []time.Duration{10 * time.Second, time.Hour, 10000 * time.Hour} {
				clock := startWatch(t)
				equalSlices(t, name, clock.grants(c.l, 20), c.want)
				time.Sleep(idle)
			}
		}
	})
}
