package ratelimiter_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

type throttled struct{ after time.Duration }

func (throttled) Error() string               { return "429" }
func (t throttled) RetryAfter() time.Duration { return t.after }

func newAdaptive(t *testing.T, floor, ceiling ratelimiter.Rate, opts ...ratelimiter.AdaptiveOption) *ratelimiter.Adaptive {
	t.Helper()
	a, err := ratelimiter.NewAdaptive(floor, ceiling, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var errSlow = errors.New("slow down")

func isSlow(err error) bool { return errors.Is(err, errSlow) }

// grant acquires the i-th request and returns when it was granted.
func grant(t *testing.T, a *ratelimiter.Adaptive, i int) time.Time {
	t.Helper()
	if err := a.Acquire(context.Background(), ratelimiter.Request{Index: i, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

func TestAdaptive(t *testing.T) {
	per := ratelimiter.PerSecond
	t.Run("it starts at its ceiling, spaced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(1), per(10))
			start := grant(t, a, 0)
			for i := 1; i < 20; i++ {
				if got := grant(t, a, i).Sub(start); got != time.Duration(i)*100*time.Millisecond {
					t.Fatalf("grant %d after %v", i, got)
				}
			}
			if a.PerSecond() != 10 {
				t.Error(a.PerSecond())
			}
		})
	})
	t.Run("a burst of throttling answers slows down once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(1), per(100), ratelimiter.WithThrottle(isSlow), ratelimiter.WithIncrease(1e-6))
			for i := range 10 {
				grant(t, a, i)
			}
			for i := range 10 { // in any order
				a.Observe(ratelimiter.Request{Index: 9 - i, Attempt: 1}, errSlow)
			}
			if !near(a.PerSecond(), 50) {
				t.Errorf("%v a second after one burst", a.PerSecond())
			}
			grant(t, a, 10)
			a.Observe(ratelimiter.Request{Index: 10, Attempt: 1}, errSlow)
			if math.Abs(a.PerSecond()-25) > 0.01 {
				t.Errorf("%v a second after an answer to the new rate", a.PerSecond())
			}
		})
	})
	t.Run("it never leaves floor and ceiling", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(3), per(10), ratelimiter.WithThrottle(isSlow), ratelimiter.WithIncrease(1000))
			for i := range 20 {
				grant(t, a, i)
				a.Observe(ratelimiter.Request{Index: i, Attempt: 1}, errSlow)
				if s := a.PerSecond(); s < 3 || s > 10 {
					t.Fatal(s)
				}
			}
			if a.PerSecond() >= 10 {
				t.Fatal("it does not slow down")
			}
			for i := range 20 {
				grant(t, a, 100+i)
			}
			if a.PerSecond() != 10 {
				t.Errorf("%v, it does not get back to its ceiling", a.PerSecond())
			}
		})
	})
	t.Run("it slows down multiplicatively to the floor and the waiting are re-timed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(1), per(10), ratelimiter.WithThrottle(isSlow), ratelimiter.WithDecrease(0.2),
				ratelimiter.WithIncrease(1e-6))
			start := grant(t, a, 0)
			var granted time.Duration
			go func() { granted = grant(t, a, 1).Sub(start) }()
			synctest.Wait()
			a.Observe(ratelimiter.Request{Index: 0, Attempt: 1}, errSlow) // 10 -> 2 a second
			time.Sleep(time.Second)
			synctest.Wait()
			if granted < 499*time.Millisecond || granted > 501*time.Millisecond {
				t.Errorf("granted after %v", granted)
			}
		})
	})
	t.Run("Retry-After pauses everybody, and grants after it are spaced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(10), per(10))
			start := grant(t, a, 0)
			a.Observe(ratelimiter.Request{Index: 0, Attempt: 1}, throttled{5 * time.Second})
			a.Observe(ratelimiter.Request{Index: 7, Attempt: 1}, throttled{time.Second}) // never shortens
			for i, want := range []time.Duration{5000, 5100, 5200} {
				if got := grant(t, a, 1+i).Sub(start); got != want*time.Millisecond {
					t.Errorf("granted after %v, want %vms", got, int(want))
				}
			}
		})
	})
	t.Run("successes and other errors change nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(1), per(10))
			for i := range 5 {
				grant(t, a, i)
				a.Observe(ratelimiter.Request{Index: i, Attempt: 1}, []error{nil, errors.New("x"), throttled{0}}[i%3])
			}
			if a.PerSecond() != 10 {
				t.Error(a.PerSecond())
			}
		})
	})
	t.Run("slow rates keep their value", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, ratelimiter.PerHour(1), ratelimiter.PerHour(4), ratelimiter.WithThrottle(isSlow),
				ratelimiter.WithIncrease(1e-12))
			start := grant(t, a, 0)
			a.Observe(ratelimiter.Request{Index: 0, Attempt: 1}, errSlow)
			if got := grant(t, a, 1).Sub(start); got < 30*time.Minute || got > 30*time.Minute+time.Second {
				t.Errorf("2/h came after %v", got)
			}
		})
	})
	t.Run("grants nobody reports on do not pile up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAdaptive(t, per(1000), per(1_000_000))
			for i := range 70_000 {
				grant(t, a, i)
			}
		})
	})
}

func TestAdaptiveValidation(t *testing.T) {
	per := ratelimiter.PerSecond
	for _, c := range []struct {
		floor, ceiling ratelimiter.Rate
		opt            ratelimiter.AdaptiveOption
		want           string
	}{
		{per(0), per(1), nil, "floor.Count is 0"},
		{per(1), per(-1), nil, "ceiling.Count is -1"},
		{per(2), per(1), nil, "floor is 2/s, must be at most the ceiling of 1/s"},
		{per(1), per(2), ratelimiter.WithDecrease(1), "WithDecrease is 1,"},
		{per(1), per(2), ratelimiter.WithDecrease(0), "WithDecrease is 0,"},
		{per(1), per(2), ratelimiter.WithDecrease(math.NaN()), "WithDecrease is NaN"},
		{per(1), per(2), ratelimiter.WithIncrease(0), "WithIncrease is 0,"},
		{per(1), per(2), ratelimiter.WithIncrease(math.Inf(1)), "WithIncrease is +Inf"},
		{per(1), per(2), ratelimiter.WithThrottle(nil), "WithThrottle is nil"},
	} {
		var opts []ratelimiter.AdaptiveOption
		if c.opt != nil {
			opts = append(opts, c.opt)
		}
		if _, err := ratelimiter.NewAdaptive(c.floor, c.ceiling, opts...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v: %v, want %q", c.floor, c.ceiling, err, c.want)
		}
	}
	if _, err := ratelimiter.NewAdaptive(per(1), per(1)); err != nil {
		t.Error(err)
	}
}

// TestB84RecoversWhileSaturated: additively, and only while it is the limit that holds callers up.
func TestB84RecoversWhileSaturated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		per := ratelimiter.PerSecond
		a := newAdaptive(t, per(1), per(100), ratelimiter.WithThrottle(isSlow), ratelimiter.WithDecrease(0.1),
			ratelimiter.WithIncrease(2))
		grant(t, a, 0)
		a.Observe(ratelimiter.Request{Index: 0, Attempt: 1}, errSlow)
		if !near(a.PerSecond(), 10) {
			t.Fatal(a.PerSecond())
		}
		time.Sleep(time.Hour) // idle time proves nothing
		grant(t, a, 1)
		for i := range 10 { // neither does a slow trickle
			time.Sleep(10 * time.Second)
			grant(t, a, 2+i)
		}
		if !near(a.PerSecond(), 10) {
			t.Errorf("%v a second without being saturated", a.PerSecond())
		}
		start := time.Now()
		for i := 0; time.Since(start) < 10*time.Second; i++ {
			grant(t, a, 100+i)
		}
		if got := a.PerSecond(); got < 29 || got > 31 {
			t.Errorf("%v a second after 10 s of saturation at +2/s²", got)
		}
		for i := 0; time.Since(start) < time.Minute; i++ {
			grant(t, a, 10000+i)
		}
		if a.PerSecond() != 100 {
			t.Errorf("%v a second, not the ceiling", a.PerSecond())
		}
	})
}

// TestB85CeilingInBoundedTime: after a storm the rate is back at its ceiling after the distance divided by the increase, and
// nothing drifts: a hundred storms later it still is.
func TestB85CeilingInBoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const floor, ceiling, increase = 5, 50, 3
		per := ratelimiter.PerSecond
		a := newAdaptive(t, per(floor), per(ceiling), ratelimiter.WithThrottle(isSlow), ratelimiter.WithIncrease(increase))
		id := 0
		for storm := range 100 {
			for a.PerSecond() > floor {
				grant(t, a, id)
				a.Observe(ratelimiter.Request{Index: id, Attempt: 1}, errSlow)
				id++
			}
			grant(t, a, id) // from here on, saturated
			start := time.Now()
			for a.PerSecond() < ceiling {
				id++
				grant(t, a, id)
			}
			// The time up to a grant counts when it is made, so an interval of the floor may be missing.
			if took := time.Since(start); took > (ceiling-floor)*time.Second/increase+time.Second/floor || took < 14*time.Second {
				t.Fatalf("storm %d: back at the ceiling after %v", storm, took)
			}
			id++
		}
	})
}

// An adaptive limiter may be paused by hand, tried, asked within a time, and named, as any of ours.
func TestAdaptiveByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdaptive(t, ratelimiter.PerSecond(1), ratelimiter.PerSecond(10))
		if s := a.String(); s != "adaptive 1/s to 10/s" {
			t.Errorf("it is named %q", s)
		}
		start := time.Now()
		if err := a.PauseUntil(start.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := a.PauseFor(time.Second); err != nil { // the later end counts
			t.Fatal(err)
		}
		if ok, in := a.TryAcquire(ratelimiter.Request{}); ok || in != time.Minute {
			t.Errorf("TryAcquire says %v, and a grant in %v", ok, in)
		}
		var excess *ratelimiter.ExcessError
		if err := a.AcquireWithin(t.Context(), ratelimiter.Request{}, time.Minute-1); !errors.As(err, &excess) || time.Since(start) != 0 {
			t.Errorf("it waited %v for %v", time.Since(start), err)
		}
		if err := a.AcquireWithin(t.Context(), ratelimiter.Request{}, time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("granted after %v: %v", time.Since(start), err)
		}
		if ok, in := a.TryAcquire(ratelimiter.Request{}); ok || in != 100*time.Millisecond {
			t.Errorf("after the pause TryAcquire says %v, and a grant in %v", ok, in)
		}
		if err := a.PauseUntil(start); err != nil {
			t.Errorf("a pause that is over: %v", err)
		}
		for what, err := range map[string]error{
			"PauseFor is -1ns": a.PauseFor(-1),
			"must be from 0":   a.PauseFor(math.MaxInt64),
			"PauseUntil is ":   a.PauseUntil(start.Add(200 * 365 * 24 * time.Hour)),
		} {
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("want an error with %q, have %v", what, err)
			}
		}
	})
}
