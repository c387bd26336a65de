package casetest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// limiterFunc is a limiter that knows the item only.
func limiterFunc(f func(ctx context.Context, index int) error) ratelimiter.Limiter {
	return ratelimiter.Func(func(ctx context.Context, req ratelimiter.Request) error { return f(ctx, req.Index) })
}

func acquire(ctx context.Context, l ratelimiter.Limiter) error {
	return l.Acquire(ctx, ratelimiter.Request{})
}

func every(d time.Duration) ratelimiter.Rate { return ratelimiter.Rate{Count: 1, Per: d} }

func newBucket(r ratelimiter.Rate, opts ...ratelimiter.BucketOption) *ratelimiter.TokenBucket {
	return must(ratelimiter.NewTokenBucket(r, opts...))
}

func newWindow(r ratelimiter.Rate) *ratelimiter.SlidingWindow {
	return must(ratelimiter.NewSlidingWindow(r))
}

func newAll(limiters ...ratelimiter.Limiter) *ratelimiter.All {
	return must(ratelimiter.NewAll(limiters...))
}

// A limiterKind is one way to limit to so many per period.
type limiterKind struct {
	name string
	make func(ratelimiter.Rate) ratelimiter.Limiter
}

// spacedKinds are the limiters that grant exactly one per period when they are asked for one per period, whatever they
// are made of: for a rate with a Count of 1 a bucket and a window are the same.
var spacedKinds = []limiterKind{
	{"TokenBucket", func(r ratelimiter.Rate) ratelimiter.Limiter { return newBucket(r) }},
	{"SlidingWindow", func(r ratelimiter.Rate) ratelimiter.Limiter { return newWindow(r) }},
	{"Pausable(TokenBucket)", func(r ratelimiter.Rate) ratelimiter.Limiter { return ratelimiter.NewPausable(newBucket(r)) }},
	{"Pausable(SlidingWindow)", func(r ratelimiter.Rate) ratelimiter.Limiter { return ratelimiter.NewPausable(newWindow(r)) }},
	{"All(TokenBucket, SlidingWindow)", func(r ratelimiter.Rate) ratelimiter.Limiter {
		return newAll(newBucket(r), newWindow(ratelimiter.Rate{Count: 1000, Per: 1000 * r.Per}))
	}},
	{"All(SlidingWindow, SlidingWindow)", func(r ratelimiter.Rate) ratelimiter.Limiter {
		return newAll(newWindow(ratelimiter.Rate{Count: 1000, Per: r.Per}), newWindow(r))
	}},
	{"Adaptive", func(r ratelimiter.Rate) ratelimiter.Limiter { return must(ratelimiter.NewAdaptive(r, r)) }},
	{"PerKey", func(r ratelimiter.Rate) ratelimiter.Limiter { return must(ratelimiter.NewPerKey(nil, r)) }},
	{"PerKey by name", func(r ratelimiter.Rate) ratelimiter.Limiter {
		return must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"": r, "other": every(1)}, ratelimiter.Rate{}))
	}},
	{"PerWorker", func(r ratelimiter.Rate) ratelimiter.Limiter { return must(ratelimiter.NewPerWorker(r)) }},
	{"RandomizedInterval without a delay", func(r ratelimiter.Rate) ratelimiter.Limiter {
		return must(ratelimiter.NewRandomizedInterval(r, ratelimiter.WithMultiplier(0, 0), ratelimiter.WithBounds(0, 0), ratelimiter.WithFluctuation(0)))
	}},
	{"All(PerKey, PerWorker, Adaptive)", func(r ratelimiter.Rate) ratelimiter.Limiter {
		return newAll(must(ratelimiter.NewPerKey(nil, r)), must(ratelimiter.NewPerWorker(every(1))), must(ratelimiter.NewAdaptive(every(time.Hour), every(1))))
	}},
	{"Pausable(All)", func(r ratelimiter.Rate) ratelimiter.Limiter {
		return ratelimiter.NewPausable(newAll(newBucket(r), newWindow(r)))
	}},
}

// eachSpaced runs f in a bubble for each of them.
func eachSpaced(t *testing.T, f func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter)) {
	t.Helper()
	for _, kind := range spacedKinds {
		t.Run(kind.name, func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, kind.make) }) })
	}
}

// workersFor is how many workers an engine may have whose attempts l spaces: one, if each would have a limit of its own.
func workersFor(l ratelimiter.Limiter) int {
	if _, each := l.(*ratelimiter.PerWorker); each {
		return 1
	}
	return 4
}

// take takes what can be had at once.
func take(t *testing.T, l ratelimiter.Limiter, n int) {
	t.Helper()
	before := time.Now()
	for range n {
		if err := acquire(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if waited := time.Since(before); waited != 0 {
		t.Fatalf("the first %d grants took %v", n, waited)
	}
}

// A caller asks a limiter on a goroutine of its own.
type caller struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error
	at     time.Duration // when the answer came
}

// call starts a caller and returns when it waits, or has its answer: callers queue in the order of their calls.
func (s stopwatch) call(l ratelimiter.Limiter) *caller {
	ctx, cancel := context.WithCancelCause(s.t.Context())
	c := &caller{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = acquire(ctx, l)
		c.at = s.now()
	}()
	synctest.Wait()
	return c
}

// grantedAt checks when a caller was granted.
func (c *caller) grantedAt(t *testing.T, what string, want time.Duration) {
	t.Helper()
	<-c.done
	if c.err != nil || c.at != want {
		t.Errorf("%s: %v at %v, want a grant at %v", what, c.err, c.at, want)
	}
}

// grants asks n times, one after the other, and returns when each was granted.
func (s stopwatch) grants(l ratelimiter.Limiter, n int) []time.Duration {
	var at []time.Duration
	for range n {
		if err := acquire(s.t.Context(), l); err != nil {
			s.t.Fatal(err)
		}
		at = append(at, s.now())
	}
	return at
}

// crowdGrants has n callers ask at the same instant, and returns when each was granted, in order.
func (s stopwatch) crowdGrants(l ratelimiter.Limiter, n int) []time.Duration {
	var mu sync.Mutex
	var at []time.Duration
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			if err := acquire(s.t.Context(), l); err != nil {
				s.t.Error(err)
			}
			mu.Lock()
			at = append(at, s.now())
			mu.Unlock()
		})
	}
	callers.Wait()
	return at
}

// steps is n instants from first, each step later than the one before.
func steps(first, step time.Duration, n int) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = first + time.Duration(i)*step
	}
	return at
}

// neverMore checks that no period of that length holds more than so many grants.
func neverMore(t *testing.T, at []time.Duration, count int, per time.Duration) {
	t.Helper()
	for i := count; i < len(at); i++ {
		if within := at[i] - at[i-count]; within < per {
			t.Fatalf("grants %d to %d, %d of them, within %v; want at most %d in any %v", i-count, i, count+1, within, count, per)
		}
	}
}

func rateName(r ratelimiter.Rate) string { return fmt.Sprintf("%d per %v", r.Count, r.Per) }
