package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// Who waits, how long, in which order, and what it is told.

func TestB15HopelessDeadline(t *testing.T) {
	for name, make := range map[string]func() ratelimiter.Limiter{
		"bucket": func() ratelimiter.Limiter { return bucket(1, 10*time.Second) },
		"window": func() ratelimiter.Limiter { return window(1, 10*time.Second) },
		"paused": func() ratelimiter.Limiter {
			p := ratelimiter.NewPausable(bucket(1, 10*time.Second))
			_ = p.PauseFor(time.Hour)
			return p
		},
		"all": func() ratelimiter.Limiter {
			return must(ratelimiter.NewAll(bucket(1, time.Second), window(1, 10*time.Second)))
		},
	} {
		virtual(t, func(s *stage) {
			l := make()
			if name != "paused" {
				s.acquire(l, any1, 0)
			}
			ctx, cancel := context.WithTimeout(s.t.Context(), 50*ms)
			defer cancel()
			err := l.Acquire(ctx, any1)
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimiter.ErrNeverGranted) || s.at() != 0 {
				s.t.Errorf("%s: %v at %v, want a deadline error at once", name, err, s.at())
			}
			if !strings.Contains(err.Error(), "not waiting for") || !strings.Contains(err.Error(), "deadline") {
				s.t.Errorf("%s: the text does not say that it is about waiting for the limiter: %v", name, err)
			}
		})
	}
}

// TestB15OthersAheadAreNoReason: callers ahead may give up, so their slots do
// not make a deadline hopeless.
func TestB15OthersAheadAreNoReason(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second)
		s.acquire(l, any1, 0)
		first := s.call(l, any1)
		ctx, cancel := context.WithTimeout(s.t.Context(), 1500*ms)
		defer cancel()
		second, third := s.callCtx(ctx, l, any1), s.callCtx(ctx, l, any1)
		time.Sleep(500 * ms)
		first.cancel()
		s.wantGrants([]*call{second}, time.Second)
		<-third.done
		if err := third.err; !errors.Is(err, context.DeadlineExceeded) || third.when != 1500*ms ||
			!strings.Contains(err.Error(), "while waiting for token bucket 1/s") {
			s.t.Errorf("%v at %v", err, third.when)
		}
	})
}

func TestB17ZeroRate(t *testing.T) {
	if _, err := ratelimiter.NewTokenBucket(ratelimiter.Rate{}); err == nil {
		t.Error("a zero rate was accepted")
	}
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second)
		s.acquire(l, any1, 0)
		time.Sleep(400 * ms)
		if err := l.SetRate(ratelimiter.Rate{}); err != nil {
			s.t.Fatal(err)
		}
		c := s.call(l, any1)
		time.Sleep(10 * time.Hour)
		if ok, in := l.TryAcquire(any1); ok || in != ratelimiter.Never || c.back() {
			s.t.Fatal(ok, in, c.back())
		}
		// Not hopeless: the rate may come back. AcquireWithin goes by what is.
		if err := l.AcquireWithin(s.t.Context(), any1, time.Hour); !strings.HasPrefix(fmt.Sprint(err),
			"rate_limit: stopped token bucket") {
			s.t.Error(err)
		}
		at := s.at()
		if err := l.SetRate(per(2, time.Second)); err != nil {
			s.t.Fatal(err)
		}
		s.wantGrants([]*call{c}, at+300*ms) // 0.6 tokens were missing
	})
}

func TestB18WaitsForWhatIsMissing(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second, ratelimiter.WithBurst(3))
		s.acquire(l, cost(2), 0)
		s.acquire(l, cost(2), time.Second)
	})
}

func TestB19OrderOfArrival(t *testing.T) {
	for _, l := range []func() ratelimiter.Limiter{
		func() ratelimiter.Limiter { return bucket(100, time.Second) },
		func() ratelimiter.Limiter { return bucket(100, time.Second, ratelimiter.WithBurst(3)) },
		func() ratelimiter.Limiter { return window(3, 100*ms) },
		func() ratelimiter.Limiter { return ratelimiter.NewPausable(window(3, 100*ms)) },
		func() ratelimiter.Limiter {
			return must(ratelimiter.NewAll(window(3, 100*ms), bucket(100, time.Second)))
		},
	} {
		virtual(t, func(s *stage) {
			cs := s.calls(100, l(), any1)
			var last time.Duration
			for i, c := range cs {
				<-c.done
				if c.when < last {
					s.t.Errorf("caller %d at %v, the one before at %v", i, c.when, last)
				}
				last = c.when
			}
		})
	}
}

func TestB20LargeRequestIsNotStarved(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(10))
		s.acquire(l, cost(10), 0)
		before := s.calls(3, l, any1)
		large := s.call(l, cost(10))
		after := s.calls(3, l, any1)
		s.wantGrants(before, 100*ms, 200*ms, 300*ms)
		s.wantGrants([]*call{large}, 1300*ms)
		s.wantGrants(after, 1400*ms, 1500*ms, 1600*ms)
	})
}

func TestB21EverybodyIsServed(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(300, time.Minute)
		var served [100]atomic.Int64
		for i := range served {
			s.wg.Go(func() {
				for s.at() < 5*time.Minute {
					if err := l.Acquire(s.t.Context(), any1); err != nil {
						s.t.Error(err)
					}
					served[i].Add(1)
				}
			})
		}
		s.wg.Wait()
		for i := range served {
			if n := served[i].Load(); n < 15 || n > 17 {
				s.t.Errorf("worker %d was served %d times of about 16", i, n)
			}
		}
	})
}

// TestB24NoSpuriousFailure: many callers, one bucket, nobody fails.
func TestB24NoSpuriousFailure(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(7, 10*ms)
		for i, c := range s.calls(500, l, any1) {
			<-c.done
			if want := time.Duration(i/7) * 10 * ms; c.err != nil || c.when != want {
				s.t.Fatalf("caller %d: %v at %v, want %v", i, c.err, c.when, want)
			}
		}
	})
}

func TestB25BarrierOfWaiters(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(10, time.Second)
		cs := make([]*call, 1000)
		gate := make(chan struct{})
		for i := range cs {
			cs[i] = s.run(s.t.Context(), func(ctx context.Context) error {
				<-gate
				return l.Acquire(ctx, any1)
			})
		}
		close(gate)
		per := map[time.Duration]int{}
		for _, c := range cs {
			<-c.done
			per[c.when]++
		}
		for at, n := range per {
			if n != 10 || at%time.Second != 0 {
				s.t.Errorf("%d grants at %v", n, at)
			}
		}
	})
}

// TestB26BoundedQueue: there is no count of waiters to set; AcquireWithin bounds
// the queue by what matters, the time in it.
func TestB26BoundedQueue(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		var cs []*call
		for range 5 {
			cs = append(cs, s.within(l, any1, 500*ms))
		}
		sixth := s.within(l, any1, 500*ms)
		var excess *ratelimiter.ExcessError
		if !sixth.back() || !errors.As(sixth.err, &excess) || excess.RetryAfter != 600*ms {
			s.t.Errorf("the sixth: back %v, %v", sixth.back(), sixth.err)
		}
		s.wantGrants(cs, 100*ms, 200*ms, 300*ms, 400*ms, 500*ms)
	})
}

func TestB28WaitsExactlyToItsSlot(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(3, time.Second)
		s.wantGrants(s.calls(4, l, any1), 0, 333333334, 666666667, time.Second)
	})
}

func TestAcquireWithin(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		err := l.AcquireWithin(s.t.Context(), any1, 100*ms-1)
		want := &ratelimiter.ExcessError{Limit: "token bucket 10/s", RetryAfter: 100 * ms}
		var got *ratelimiter.ExcessError
		if !errors.As(err, &got) || *got != *want || s.at() != 0 {
			s.t.Fatalf("%#v at %v, want %#v", err, s.at(), want)
		}
		if text := "rate_limit: token bucket 10/s for all requests: next grant in 100ms"; err.Error() != text {
			s.t.Errorf("%q, want %q", err, text)
		}
		c := s.within(l, any1, 100*ms) // exactly enough
		s.wantGrants([]*call{c}, 100*ms)
		if err := l.AcquireWithin(s.t.Context(), any1, -time.Hour); !errors.As(err, &got) {
			s.t.Error(err)
		}
		time.Sleep(100 * ms)
		if err := l.AcquireWithin(s.t.Context(), any1, -time.Hour); err != nil {
			s.t.Error(err)
		}
		if err := l.AcquireWithin(s.t.Context(), any1, ratelimiter.Never); err != nil || s.at() != 300*ms {
			s.t.Error(err, s.at())
		}
	})
}

// TestAcquireWithinWhenThingsGetWorse: the estimate was right when it was made.
func TestAcquireWithinWhenThingsGetWorse(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		p := ratelimiter.NewPausable(l)
		s.acquire(p, any1, 0)
		head, second, third := s.within(p, any1, 300*ms), s.within(p, any1, 300*ms), s.within(p, any1, 3*time.Second)
		time.Sleep(50 * ms)
		if err := p.PauseFor(time.Second); err != nil {
			s.t.Fatal(err)
		}
		var excess *ratelimiter.ExcessError
		for _, c := range []*call{head, second} {
			<-c.done
			if !errors.As(c.err, &excess) || c.when != 300*ms || excess.Limit != "pause" || excess.RetryAfter != 750*ms {
				s.t.Errorf("%v at %v", c.err, c.when)
			}
		}
		s.wantGrants([]*call{third}, 1050*ms)
	})
}

// TestAcquireWithinAtTheVeryInstant: all whose grant falls on the instant at
// which they would give up are granted, whatever timer goes off first.
func TestAcquireWithinAtTheVeryInstant(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(100, time.Second)
		s.acquire(l, cost(100), 0)
		for _, c := range func() (cs []*call) {
			for range 100 {
				cs = append(cs, s.within(l, any1, time.Second))
			}
			return cs
		}() {
			<-c.done
			if c.err != nil || c.when != time.Second {
				s.t.Errorf("%v at %v", c.err, c.when)
			}
		}
	})
}

func TestTryAcquireDoesNotOvertake(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second, ratelimiter.WithBurst(10))
		s.acquire(l, cost(5), 0)
		c := s.call(l, cost(8)) // 3 missing
		if ok, in := l.TryAcquire(any1); ok || in != 4*time.Second {
			s.t.Errorf("%v %v, want a refusal for 4s", ok, in)
		}
		s.wantGrants([]*call{c}, 3*time.Second)
		if ok, in := l.TryAcquire(any1); ok || in != time.Second {
			s.t.Errorf("%v %v, want a refusal for 1s", ok, in)
		}
	})
}

// TestEstimateIsWhatHappens: retryAfter of a request of cost 1 is when it would
// have been granted, whoever waits ahead.
func TestEstimateIsWhatHappens(t *testing.T) {
	for name, make := range map[string]func() interface {
		ratelimiter.Limiter
		ratelimiter.TryAcquirer
	}{
		"bucket": func() interface {
			ratelimiter.Limiter
			ratelimiter.TryAcquirer
		} {
			return bucket(7, time.Second)
		},
		"burst": func() interface {
			ratelimiter.Limiter
			ratelimiter.TryAcquirer
		} {
			return bucket(7, time.Second, ratelimiter.WithBurst(4))
		},
		"window": func() interface {
			ratelimiter.Limiter
			ratelimiter.TryAcquirer
		} {
			return window(7, time.Second)
		},
	} {
		virtual(t, func(s *stage) {
			l := make()
			for i := range 40 {
				if i < 7 {
					time.Sleep(31 * ms)
				}
				ok, in := l.TryAcquire(any1)
				if ok {
					continue
				}
				at := s.at() + in
				c := s.call(l, any1)
				s.wg.Go(func() {
					<-c.done
					if c.when != at {
						s.t.Errorf("%s: granted at %v, told %v", name, c.when, at)
					}
				})
			}
		})
	}
}

// TestCaseDeadlineText: a deadline seen at the limiter names the limiter and is
// no fault of its.
func TestCaseDeadlineText(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, 10*time.Second)
		s.acquire(l, any1, 0)
		ctx, cancel := context.WithTimeout(s.t.Context(), 50*ms)
		defer cancel()
		err := l.Acquire(ctx, any1)
		want := "ratelimiter: not waiting for token bucket 1/10s: the next grant in 10s would come after the deadline: " +
			"context deadline exceeded"
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
			s.t.Errorf("%q, want %q", err, want)
		}
	})
}

// TestRL4StrictlyFirstInFirstOut: also when those behind could go.
func TestRL4StrictlyFirstInFirstOut(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(3, time.Second)
		s.acquire(l, cost(2), 0)
		big, small := s.call(l, cost(2)), s.call(l, any1)
		synctest.Wait()
		if small.back() {
			s.t.Error("the small request has overtaken")
		}
		s.wantGrants([]*call{big, small}, time.Second, time.Second)
	})
}

// TestRL7SharedStateSurvives: a limiter knows nothing of who uses it.
func TestRL7SharedStateSurvives(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		for i := range 3 {
			ctx, cancel := context.WithCancel(s.t.Context())
			for j := range 2 {
				if err := l.Acquire(ctx, any1); err != nil || s.at() != time.Duration(2*i+j)*100*ms {
					s.t.Fatal(err, s.at())
				}
			}
			cancel()
		}
	})
}
