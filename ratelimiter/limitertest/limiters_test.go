package limitertest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/ratelimiter/limitertest"
	"golang.org/x/time/rate"
)

// What the kit must find in order.

func TestEvery(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return NewEvery(time.Second) })
}

func TestTokenBucket(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return bucket(10, time.Second) })
}

func TestTokenBucketWithBurst(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return bucket(5, 200*ms, ratelimiter.WithBurst(5)) })
}

func TestSlidingWindow(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return window(5, 200*ms) })
}

func TestPausable(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return ratelimiter.NewPausable(window(5, 200*ms)) })
}

func TestAll(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter {
		return must(ratelimiter.NewAll(window(5, 200*ms), bucket(1000, time.Minute)))
	})
}

// TestForeign: what package ratelimiter can do around a limiter that it only knows
// by its Acquire.
func TestForeign(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return ratelimiter.NewPausable(NewEvery(time.Second)) })
}

// TestWhateverTheRate: the kit adapts to what it finds.
func TestWhateverTheRate(t *testing.T) {
	for _, l := range []func() ratelimiter.Limiter{
		func() ratelimiter.Limiter { return bucket(1e9, time.Second) },
		func() ratelimiter.Limiter { return bucket(1, 30*24*time.Hour) },
		func() ratelimiter.Limiter { return bucket(1, 60*24*time.Hour) },
		func() ratelimiter.Limiter { return bucket(7, time.Second, ratelimiter.WithBurst(3)) },
		func() ratelimiter.Limiter { return window(1, 1) },
		func() ratelimiter.Limiter { return window(100, time.Minute) },
		func() ratelimiter.Limiter { return ratelimiter.CountRequests(window(5, time.Second)) },
		func() ratelimiter.Limiter { return NewEvery(time.Microsecond) },
	} {
		t.Run(fmt.Sprint(l()), func(t *testing.T) { limitertest.Run(t, l) })
	}
}

// TestNothingGranted: a limiter that lets nobody go at present.
func TestNothingGranted(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter {
		l := window(3, time.Second)
		if err := l.SetRate(ratelimiter.Rate{}); err != nil {
			t.Error(err)
		}
		return l
	})
}

// calendar grants so many in each period of the clock, which all grants of a period
// come at the start of.
type calendar struct {
	count int
	per   time.Duration
	used  chan struct{ period, count int64 }
}

func newCalendar(count int, per time.Duration) *calendar {
	c := &calendar{count: count, per: per, used: make(chan struct{ period, count int64 }, 1)}
	c.used <- struct{ period, count int64 }{}
	return c
}

func (c *calendar) Acquire(ctx context.Context, req ratelimiter.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if req.Cost < 0 || req.Cost > c.count {
		return &ratelimiter.CostError{Limit: "calendar", Cost: req.Cost, Max: c.count}
	}
	used := struct{ period, count int64 }{}
	select {
	case used = <-c.used:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { c.used <- used }()
	for cost := int64(max(req.Cost, 1)); ; {
		now := time.Now().UnixNano()
		if period := now / int64(c.per); period != used.period {
			used.period, used.count = period, 0
		}
		if used.count+cost <= int64(c.count) {
			used.count += cost
			return nil
		}
		next := time.NewTimer(c.per - time.Duration(now%int64(c.per)))
		defer next.Stop()
		select {
		case <-next.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestCalendar(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return newCalendar(5, time.Minute) })
	limitertest.Run(t, func() ratelimiter.Limiter { return newCalendar(30, time.Second) })
}

// TestFromRate: what a limiter is known to fall short of is left out, the rest is
// checked.
func TestFromRate(t *testing.T) {
	const why = "a caller that gives up gives back only what nobody behind it has booked: golang/go#56924"
	limitertest.Run(t, func() ratelimiter.Limiter { return ratelimiter.FromRate(rate.NewLimiter(10, 5)) },
		limitertest.Without("CancelHead", why), limitertest.Without("CancelMiddle", why),
		limitertest.Without("CancelAll", why), limitertest.Without("CancelAtGrant", why),
		limitertest.Without("Deadline", "it takes for certain that those ahead stay"),
		limitertest.Without("RetryAfter", "tokens are floating-point numbers: it grants a nanosecond early"))
}

func TestPerKey(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter {
		return must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"a": per(5, time.Second)}, ratelimiter.Rate{}))
	}, limitertest.WithRequest(func(i int) ratelimiter.Request { return ratelimiter.Request{Key: "a", Index: i} }))
}

func TestPerWorker(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter { return must(ratelimiter.NewPerWorker(per(5, time.Second))) })
}

func TestRandomizedInterval(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter {
		return must(ratelimiter.NewRandomizedInterval(per(5, time.Second)))
	}, limitertest.Random())
}

func TestAdaptive(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter {
		return must(ratelimiter.NewAdaptive(per(1, time.Second), per(10, time.Second)))
	})
}

func TestUnlimited(t *testing.T) {
	limitertest.Run(t, func() ratelimiter.Limiter {
		return ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error { return ctx.Err() })
	})
}
