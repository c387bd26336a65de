package ratelimiter_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const ms = time.Millisecond

// per is n in d.
func per(n int, d time.Duration) ratelimiter.Rate { return ratelimiter.Rate{Count: n, Per: d} }

func bucket(n int, d time.Duration, opts ...ratelimiter.BucketOption) *ratelimiter.TokenBucket {
	return must(ratelimiter.NewTokenBucket(per(n, d), opts...))
}

func window(n int, d time.Duration) *ratelimiter.SlidingWindow {
	return must(ratelimiter.NewSlidingWindow(per(n, d)))
}

// A stage is a bubble's stage for callers of one or more limiters: it starts
// them in order, so that the order of arrival is known, and notes when each came
// back.
type stage struct {
	t     *testing.T
	start time.Time
	wg    sync.WaitGroup
}

// virtual runs f in a bubble in which all callers have come back at the end.
func virtual(t *testing.T, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, start: time.Now()}
		f(s)
		s.wg.Wait()
	})
}

// at is how much time has passed.
func (s *stage) at() time.Duration { return time.Since(s.start) }

// A call is an Acquire on its way. Its result is there after done or after the
// bubble has come to rest.
type call struct {
	cancel context.CancelFunc
	done   chan struct{}
	when   time.Duration // set before done is closed, like err
	err    error
}

// back reports whether the caller has come back.
func (c *call) back() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// call starts an Acquire and lets it get as far as it gets without time passing.
func (s *stage) call(l ratelimiter.Limiter, req ratelimiter.Request) *call {
	return s.callCtx(s.t.Context(), l, req)
}

func (s *stage) callCtx(ctx context.Context, l ratelimiter.Limiter, req ratelimiter.Request) *call {
	return s.run(ctx, func(ctx context.Context) error { return l.Acquire(ctx, req) })
}

// within starts an AcquireWithin.
func (s *stage) within(l ratelimiter.TryAcquirer, req ratelimiter.Request, most time.Duration) *call {
	return s.run(s.t.Context(), func(ctx context.Context) error { return l.AcquireWithin(ctx, req, most) })
}

func (s *stage) run(ctx context.Context, f func(context.Context) error) *call {
	ctx, cancel := context.WithCancel(ctx)
	c := &call{cancel: cancel, done: make(chan struct{})}
	s.wg.Go(func() {
		defer cancel()
		c.err = f(ctx)
		c.when = s.at()
		close(c.done)
	})
	synctest.Wait()
	return c
}

// calls starts n equal Acquires.
func (s *stage) calls(n int, l ratelimiter.Limiter, req ratelimiter.Request) []*call {
	cs := make([]*call, n)
	for i := range cs {
		cs[i] = s.call(l, req)
	}
	return cs
}

// wantGrants waits for the calls and checks the instants of their grants.
func (s *stage) wantGrants(cs []*call, want ...time.Duration) {
	s.t.Helper()
	if len(cs) != len(want) {
		s.t.Fatalf("%d calls, %d instants wanted", len(cs), len(want))
	}
	for i, c := range cs {
		<-c.done
		if c.err != nil || c.when != want[i] {
			s.t.Errorf("call %d: %v at %v, want a grant at %v", i, c.err, c.when, want[i])
		}
	}
}

// acquire is an Acquire in the test's own goroutine that must succeed at want.
func (s *stage) acquire(l ratelimiter.Limiter, req ratelimiter.Request, want time.Duration) {
	s.t.Helper()
	if err := l.Acquire(s.t.Context(), req); err != nil || s.at() != want {
		s.t.Fatalf("%v at %v, want a grant at %v", err, s.at(), want)
	}
}

func cost(n int) ratelimiter.Request { return ratelimiter.Request{Cost: n} }

var any1 ratelimiter.Request // any request of cost 1
