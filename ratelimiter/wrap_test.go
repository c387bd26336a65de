package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
)

// Texts, and what a wrapper passes on.

func TestTexts(t *testing.T) {
	b, w := bucket(10, time.Second), window(5, 200*ms)
	p := ratelimiter.NewPausable(w)
	for _, tt := range []struct{ got, want string }{
		{b.String(), "token bucket 10/s"},
		{bucket(10, time.Second, ratelimiter.WithBurst(3)).String(), "token bucket 10/s, burst 3"},
		{w.String(), "sliding window 5/200ms"},
		{p.String(), "pausable sliding window 5/200ms"},
		{must(ratelimiter.NewAll(b, p)).String(), "all of token bucket 10/s and pausable sliding window 5/200ms"},
		{fmt.Sprint(ratelimiter.CountRequests(b)), "token bucket 10/s"},
		{ratelimiter.NewPausable(foreign(b)).String(), "pausable ratelimiter.Func"},
		{(&ratelimiter.KeyError{Key: "a"}).Error(), `ratelimiter: no limit for key "a"`},
		{(&ratelimiter.KeyError{}).Error(), `ratelimiter: no limit for key "", which is that of every request whose key nobody has set`},
		{(&ratelimiter.ExcessError{Limit: "token bucket 1/s", Scope: `key "a"`, RetryAfter: time.Second}).Error(),
			`rate_limit: token bucket 1/s for key "a": next grant in 1s`},
		{(&ratelimiter.ExcessError{Limit: "token bucket 1/s", RetryAfter: ratelimiter.Never}).Error(),
			"rate_limit: token bucket 1/s for all requests: nothing is granted at present"},
		{(&ratelimiter.CostError{Limit: "x", Cost: -3}).Error(), "ratelimiter: x: cost -3 is negative"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
	if !errors.Is(&ratelimiter.KeyError{}, ratelimiter.ErrNeverGranted) || errors.Is(&ratelimiter.ExcessError{},
		ratelimiter.ErrNeverGranted) {
		t.Error("ErrNeverGranted")
	}
}

func TestCountRequestsAlone(t *testing.T) {
	virtual(t, func(s *stage) {
		w := window(2, time.Second)
		o := &observer{Limiter: w}
		c := ratelimiter.CountRequests(w).(interface {
			ratelimiter.Limiter
			ratelimiter.TryAcquirer
			ratelimiter.Adjuster
			ratelimiter.Observer
		})
		s.acquire(c, cost(1000), 0)
		if ok, in := c.TryAcquire(cost(1000)); !ok {
			s.t.Error(ok, in)
		}
		if ok, in := c.TryAcquire(cost(7)); ok || in != time.Second {
			s.t.Error(ok, in)
		}
		var excess *ratelimiter.ExcessError
		if err := c.AcquireWithin(s.t.Context(), cost(7), ms); !errors.As(err, &excess) {
			s.t.Error(err)
		}
		var dear *ratelimiter.CostError
		if err := c.Acquire(s.t.Context(), cost(-1)); !errors.As(err, &dear) {
			s.t.Error(err)
		}
		c.Adjust(cost(1000), 300)
		c.Adjust(cost(1000), 0)
		if got := w.Stats().Available; got != 1 {
			s.t.Error(got)
		}
		c.Observe(any1, nil) // nobody to tell
		ratelimiter.CountRequests(o).(ratelimiter.Observer).Observe(any1, nil)
		if o.seen != 1 {
			s.t.Error(o.seen)
		}
		f := ratelimiter.CountRequests(foreign(w))
		for _, tt := range []struct {
			l    ratelimiter.Limiter
			want bool
		}{
			{w, true}, {c, true}, {f, false}, {foreign(w), false},
			{ratelimiter.NewPausable(w), true}, {ratelimiter.NewPausable(f), false},
			{must(ratelimiter.NewAll(w, adjustable{foreign(o), w})), true}, {must(ratelimiter.NewAll(w, foreign(o))), false},
			{ratelimiter.FromRate(rate.NewLimiter(1, 1)), false},
		} {
			if a, ok := ratelimiter.AsAdjuster(tt.l); ok != tt.want || ok && a == nil {
				s.t.Errorf("%v: an Adjuster: %v, want %v", tt.l, ok, tt.want)
			}
		}
		if _, ok := ratelimiter.AsTryAcquirer(f); ok {
			s.t.Error("a TryAcquirer around none")
		}
		if ok, in := f.(ratelimiter.TryAcquirer).TryAcquire(any1); ok || in != ratelimiter.Never {
			s.t.Error(ok, in)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("CountRequests(nil) was accepted")
		}
	}()
	ratelimiter.CountRequests(nil)
}

func TestForeignErrorsPassThrough(t *testing.T) {
	virtual(t, func(s *stage) {
		failure := errors.New("broken")
		broken := ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return failure })
		p := ratelimiter.NewPausable(broken)
		if err := p.Acquire(s.t.Context(), any1); err != failure {
			s.t.Error(err)
		}
		if err := p.AcquireWithin(s.t.Context(), any1, ratelimiter.Never); err != failure {
			s.t.Error(err)
		}
		p.Adjust(any1, 0) // nobody to tell
		pause(s.t, p, time.Second)
		ctx, cancel := context.WithTimeout(s.t.Context(), 500*ms)
		defer cancel()
		if err := p.Acquire(ctx, any1); !errors.Is(err, context.DeadlineExceeded) || s.at() != 0 {
			s.t.Error(err, s.at())
		}
		if ok, in := p.TryAcquire(any1); ok || in != time.Second {
			s.t.Error(ok, in)
		}
		all := must(ratelimiter.NewAll(window(3, time.Hour), broken))
		if err := all.AcquireWithin(s.t.Context(), any1, time.Second); err != failure {
			s.t.Error(err)
		}
		w := window(1, time.Hour)
		all = must(ratelimiter.NewAll(w, ratelimiter.NewPausable(try{bucket(1, time.Second)})))
		s.acquire(all, any1, 0)
		all.Adjust(any1, 0)
		if got := w.Stats().Available; got != 1 {
			s.t.Error(got)
		}
		if ok, in := all.TryAcquire(any1); !ok {
			s.t.Error(ok, in)
		}
		if ok, in := all.TryAcquire(any1); ok || in != time.Hour {
			s.t.Error(ok, in)
		}
	})
}

// TestHeldBurst: a request that will need the whole burst when another limit
// lets it go finds it there; what is more than that is for others.
func TestHeldBurst(t *testing.T) {
	virtual(t, func(s *stage) {
		shared := bucket(10, time.Second, ratelimiter.WithBurst(10))
		other := bucket(1, time.Second)
		both := must(ratelimiter.NewAll(shared, other))
		s.acquire(other, any1, 0)
		c := s.call(both, cost(10))                     // at 1 s
		s.wantGrants(s.calls(2, shared, cost(5)), 0, 0) // back by then
		late := s.call(shared, any1)
		s.wantGrants([]*call{c}, time.Second)
		s.wantGrants([]*call{late}, 1100*ms)
	})
	virtual(t, func(s *stage) {
		shared := bucket(10, time.Second)
		stopped := bucket(1, time.Second)
		_ = stopped.SetRate(ratelimiter.Rate{})
		c := s.call(must(ratelimiter.NewAll(shared, stopped)), any1)
		s.wantGrants(s.calls(3, shared, any1), 0, 100*ms, 200*ms)
		_ = stopped.SetRate(ratelimiter.PerSecond(1))
		s.wantGrants([]*call{c}, 300*ms)
	})
}
