package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

func TestB79NothingOfOneWithoutTheOther(t *testing.T) {
	virtual(t, func(s *stage) {
		rpm, tpm := window(10, time.Minute), window(1000, time.Minute)
		all := must(ratelimiter.NewAll(ratelimiter.CountRequests(rpm), tpm))
		s.acquire(all, cost(1000), 0)
		c := s.call(all, cost(500))
		time.Sleep(time.Second)
		if got := rpm.Stats().Available; got != 9 {
			s.t.Errorf("%d requests left while one waits for tokens, want 9", got)
		}
		c.cancel()
		<-c.done
		if got := rpm.Stats().Available; got != 9 {
			s.t.Errorf("%d requests left after that one gave up, want 9", got)
		}
		if ok, in := all.TryAcquire(cost(1)); ok || in != 59*time.Second {
			s.t.Error(ok, in)
		}
		if got := rpm.Stats().Available; got != 9 {
			s.t.Errorf("%d requests left after a refusal, want 9", got)
		}
	})
}

func TestB80TwoRates(t *testing.T) {
	virtual(t, func(s *stage) {
		all := must(ratelimiter.NewAll(window(1, 7*time.Second), window(5, 60*time.Second)))
		s.wantGrants(s.calls(7, all, any1), 0, 7*time.Second, 14*time.Second, 21*time.Second, 28*time.Second, 60*time.Second,
			67*time.Second)
	})
}

func TestB81RequestsTokensAndDay(t *testing.T) {
	virtual(t, func(s *stage) {
		rpm, tpm, rpd := window(3, time.Minute), window(1000, time.Minute), window(5, 24*time.Hour)
		all := must(ratelimiter.NewAll(ratelimiter.CountRequests(rpm), tpm, ratelimiter.CountRequests(rpd)))
		var cs []*call
		for _, c := range []int{400, 400, 400, 10, 10, 10} {
			cs = append(cs, s.call(all, cost(c)))
		}
		s.wantGrants(cs, 0, 0, time.Minute, time.Minute, time.Minute, 24*time.Hour)
		var dear *ratelimiter.CostError
		if err := all.Acquire(s.t.Context(), cost(1001)); !errors.As(err, &dear) || dear.Limit != "sliding window 1000/m" {
			s.t.Error(err)
		}
		var excess *ratelimiter.ExcessError
		if err := all.AcquireWithin(s.t.Context(), cost(10), time.Second); err != nil {
			s.t.Error(err)
		}
		for range 2 {
			_ = all.AcquireWithin(s.t.Context(), cost(10), time.Second)
		}
		if err := all.AcquireWithin(s.t.Context(), cost(10), time.Second); !errors.As(err, &excess) ||
			excess.Limit == "sliding window 1000/m" {
			s.t.Error(err)
		}
	})
}

func TestB82AdjustReachesEveryLimit(t *testing.T) {
	virtual(t, func(s *stage) {
		rpm, tpm, spaced := window(10, time.Minute), window(1000, time.Minute), bucket(100, time.Second)
		all := must(ratelimiter.NewAll(ratelimiter.CountRequests(rpm), ratelimiter.NewPausable(tpm), spaced))
		req := ratelimiter.Request{Index: 1, Attempt: 1, Cost: 600}
		s.acquire(all, req, 0)
		all.Adjust(req, 200)
		if r, k := rpm.Stats().Available, tpm.Stats().Available; r != 9 || k != 800 {
			s.t.Errorf("%d requests and %d tokens left, want 9 and 800", r, k)
		}
		next := ratelimiter.Request{Index: 2, Attempt: 1, Cost: 100}
		s.acquire(all, next, 2*time.Second) // 200 at 100/s
		all.Adjust(next, 0)                 // there was no call
		if r, k := rpm.Stats().Available, tpm.Stats().Available; r != 9 || k != 800 {
			s.t.Errorf("%d requests and %d tokens left, want 9 and 800", r, k)
		}
		s.acquire(all, any1, 2*time.Second)
	})
}

func TestAllBadArguments(t *testing.T) {
	b, w := bucket(1, time.Second), window(1, time.Second)
	for name, ls := range map[string][]ratelimiter.Limiter{
		"no limiters":                     {},
		"limiter 1 is nil":                {b, nil},
		"limiter 0 is nil":                {(*ratelimiter.TokenBucket)(nil), ratelimiter.Func(nil)},
		"occurs twice":                    {b, w, b},
		"token bucket 1/s occurs twice":   {ratelimiter.NewPausable(b), b},
		"sliding window 1/s occurs twice": {must(ratelimiter.NewAll(b, w)), ratelimiter.CountRequests(w)},
	} {
		if _, err := ratelimiter.NewAll(ls...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error that says %q", err, name)
		}
	}
}

// TestAllDoesNotHoldUpOthers: a request that waits for its daily limit leaves
// the limit it shares to those that need only that.
func TestAllDoesNotHoldUpOthers(t *testing.T) {
	virtual(t, func(s *stage) {
		shared := bucket(10, time.Second)
		day := window(1, 24*time.Hour)
		daily := must(ratelimiter.NewAll(shared, day))
		other := must(ratelimiter.NewAll(window(100, time.Hour), shared))
		s.acquire(daily, any1, 0)
		tomorrow := s.calls(3, daily, any1)
		s.wantGrants(s.calls(3, shared, any1), 100*ms, 200*ms, 300*ms)
		s.wantGrants(s.calls(3, other, any1), 400*ms, 500*ms, 600*ms)
		s.wantGrants(tomorrow, 24*time.Hour, 48*time.Hour, 72*time.Hour)
	})
}

// TestAllIsNotStarved: a request that needs two limits is served in its turn
// although each of them is wanted all the time by others.
func TestAllIsNotStarved(t *testing.T) {
	virtual(t, func(s *stage) {
		a, b := window(10, time.Second), window(10, 1100*ms)
		both := must(ratelimiter.NewAll(a, b))
		ctx, stop := context.WithCancel(s.t.Context())
		for _, l := range []ratelimiter.Limiter{a, b} {
			for range 30 {
				s.wg.Go(func() {
					for l.Acquire(ctx, any1) == nil {
					}
				})
			}
		}
		time.Sleep(10 * time.Second)
		for range 5 {
			at := s.at()
			if err := both.Acquire(s.t.Context(), cost(10)); err != nil {
				s.t.Error(err)
			}
			// 30 ahead in each limit, 10 each period, then both have to drain.
			if took := s.at() - at; took > 6*time.Second {
				s.t.Errorf("waited for %v", took)
			}
			time.Sleep(time.Second)
		}
		stop()
	})
}

// TestAllWakesWhoeverCanGo: whatever frees a shared limit wakes those who wait
// for it, through whichever limiter they came.
func TestAllWakesWhoeverCanGo(t *testing.T) {
	for name, free := range map[string]func(b *ratelimiter.TokenBucket, head *call){
		"rate":   func(b *ratelimiter.TokenBucket, _ *call) { _ = b.SetRate(ratelimiter.PerSecond(1000)) },
		"refund": func(b *ratelimiter.TokenBucket, _ *call) { b.Adjust(cost(100), 0) },
		"cancel": func(b *ratelimiter.TokenBucket, head *call) { head.cancel() },
	} {
		virtual(t, func(s *stage) {
			shared := bucket(1, time.Second, ratelimiter.WithBurst(100))
			one := must(ratelimiter.NewAll(shared, window(10, time.Second)))
			two := ratelimiter.NewPausable(shared)
			want := time.Second
			if name == "cancel" {
				s.acquire(shared, cost(50), 0)
			} else {
				s.acquire(shared, cost(100), 0)
			}
			head := s.call(shared, cost(60))
			cs := []*call{s.call(one, cost(2)), s.call(two, cost(2)), s.call(shared, cost(2))}
			time.Sleep(time.Second)
			free(shared, head)
			if name == "rate" {
				want = 0 // after a time of its own
			}
			for _, c := range cs {
				<-c.done
				if c.err != nil || want > 0 && c.when != want || c.when > 2*time.Second {
					s.t.Errorf("%s: %v at %v", name, c.err, c.when)
				}
			}
		})
	}
}

// TestAllOfForeign: limiters from elsewhere are acquired last, in order, and
// what was granted is given back when one refuses.
func TestAllOfForeign(t *testing.T) {
	virtual(t, func(s *stage) {
		own := window(2, time.Hour)
		first := window(2, time.Hour)
		failure := errors.New("broken")
		broken := ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return failure })
		all := must(ratelimiter.NewAll(broken, adjustable{foreign(first), first}, own))
		if err := all.Acquire(s.t.Context(), any1); err != failure {
			s.t.Error(err)
		}
		all = must(ratelimiter.NewAll(adjustable{foreign(first), first}, broken, own))
		if err := all.Acquire(s.t.Context(), any1); err != failure {
			s.t.Error(err)
		}
		if own.Stats().Available != 2 || first.Stats().Available != 2 {
			s.t.Error("not given back", own.Stats(), first.Stats())
		}
		if _, ok := ratelimiter.AsTryAcquirer(all); ok {
			s.t.Error("a TryAcquirer although not all are")
		}
		if ok, in := all.TryAcquire(any1); ok || in != ratelimiter.Never || own.Stats().Available != 2 {
			s.t.Error(ok, in)
		}

		slow := try{bucket(1, time.Second)}
		all = must(ratelimiter.NewAll(own, slow))
		if _, ok := ratelimiter.AsTryAcquirer(all); !ok {
			s.t.Error("no TryAcquirer although all are")
		}
		s.acquire(all, any1, 0)
		if ok, in := all.TryAcquire(any1); ok || in != time.Second || own.Stats().Available != 1 {
			s.t.Error(ok, in, own.Stats())
		}
		c := s.call(all, any1)
		c.cancel()
		<-c.done
		if !errors.Is(c.err, context.Canceled) || own.Stats().Available != 1 {
			s.t.Error(c.err, own.Stats())
		}
		s.acquire(all, any1, time.Second)
	})
}

func TestAllObserve(t *testing.T) {
	o := &observer{Limiter: bucket(1, time.Second)}
	p := ratelimiter.NewPausable(window(1, time.Second))
	must(ratelimiter.NewAll(o, p)).Observe(any1, after(time.Second))
	if o.seen != 1 || p.PausedUntil().IsZero() {
		t.Error(o.seen, p.PausedUntil())
	}
}

// TestManyAlls: a long-lived limit shared by many short-lived limiters.
func TestManyAlls(t *testing.T) {
	virtual(t, func(s *stage) {
		shared := bucket(1000, time.Second)
		for i := range 2000 {
			all := must(ratelimiter.NewAll(window(1, time.Second), ratelimiter.NewPausable(shared)))
			s.acquire(all, any1, time.Duration(i)*ms)
		}
	})
}

func ExampleNewAll() {
	// A language model's quota: requests and tokens per minute, and requests per
	// day. A request's Cost is its tokens.
	perMinute, _ := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(500))
	tokens, _ := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(30_000))
	perDay, _ := ratelimiter.NewSlidingWindow(ratelimiter.Rate{Count: 10_000, Per: 24 * time.Hour})
	quota, err := ratelimiter.NewAll(
		ratelimiter.CountRequests(perMinute),
		tokens,
		ratelimiter.CountRequests(perDay),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	req := ratelimiter.Request{Index: 7, Attempt: 1, Cost: 2000} // an estimate
	if err := quota.Acquire(context.Background(), req); err != nil {
		fmt.Println(err)
		return
	}
	quota.Adjust(req, 1200) // what the call has really used
	fmt.Println(perMinute.Stats().Available, tokens.Stats().Available, perDay.Stats().Available)
	// Output: 499 28800 9999
}

// TestTryBesideOneThatIsHeld: what is kept for a request that waits for another
// limit is refused, and the caller is not told to come back at once.
func TestTryBesideOneThatIsHeld(t *testing.T) {
	virtual(t, func(s *stage) {
		shared, other := window(10, time.Second), bucket(1, 500*ms)
		both := must(ratelimiter.NewAll(shared, other))
		s.acquire(other, any1, 0)
		c := s.call(both, cost(10)) // at 500 ms it needs the whole window
		if ok, in := shared.TryAcquire(any1); ok || in <= 0 {
			s.t.Error(ok, in)
		}
		var excess *ratelimiter.ExcessError
		if err := shared.AcquireWithin(s.t.Context(), any1, 0); !errors.As(err, &excess) || excess.RetryAfter <= 0 {
			s.t.Error(err)
		}
		s.wantGrants([]*call{c}, 500*ms)
		s.acquire(shared, any1, 1500*ms)
	})
}
