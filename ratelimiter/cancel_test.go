package ratelimiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// Whoever gives up has used nothing up. The numbers of the tests are those of
// the list of field bugs that the limiters were built against.

func TestB01CancelGivesBackEverything(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(20))
		s.acquire(l, cost(15), 0)
		time.Sleep(100 * ms)
		a := s.call(l, cost(10)) // 6 tokens are there, 4 to come
		b := s.call(l, cost(8))
		a.cancel()
		s.wantGrants([]*call{b}, 300*ms) // as if a had never come
	})
}

func TestB02CancelsInRandomOrder(t *testing.T) {
	for seed := range uint64(20) {
		virtual(t, func(s *stage) {
			rng := rand.New(rand.NewPCG(seed, 2))
			l := bucket(10, time.Second, ratelimiter.WithBurst(20))
			s.acquire(l, cost(20), 0)
			cs := make([]*call, 30)
			for i := range cs {
				cs[i] = s.call(l, cost(rng.IntN(20)+1))
			}
			for _, i := range rng.Perm(len(cs)) {
				cs[i].cancel()
			}
			synctest.Wait()
			if got := l.Stats(); got != (ratelimiter.Stats{}) {
				s.t.Errorf("after cancelling all: %+v, want nothing there and nobody waiting", got)
			}
			s.acquire(l, any1, 100*ms)
		})
	}
}

func TestB03CancelNewestFirst(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(60, time.Second)
		s.acquire(l, any1, 0)
		cs := s.calls(1000, l, any1)
		for i := len(cs) - 1; i >= 0; i-- {
			cs[i].cancel()
		}
		time.Sleep(20 * ms)
		s.acquire(l, any1, 20*ms)
	})
}

func TestB04CancelInTheMiddle(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		cs := s.calls(3, l, any1)
		cs[1].cancel()
		s.wantGrants([]*call{cs[0], cs[2]}, 100*ms, 200*ms)
	})
}

func TestB05RefusalsChangeNothing(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(2))
		s.acquire(l, cost(2), 0)
		near, cancel := context.WithTimeout(s.t.Context(), 50*ms)
		defer cancel()
		for range 1000 {
			var tooDear *ratelimiter.CostError
			if err := l.Acquire(s.t.Context(), cost(3)); !errors.As(err, &tooDear) {
				s.t.Fatal(err)
			}
			if err := l.Acquire(near, any1); !errors.Is(err, context.DeadlineExceeded) {
				s.t.Fatal(err)
			}
			if ok, in := l.TryAcquire(any1); ok || in != 100*ms {
				s.t.Fatal(ok, in)
			}
		}
		s.acquire(l, any1, 100*ms)
	})
}

func TestB06CancelsInOrderOfArrival(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		a, b := s.call(l, any1), s.call(l, any1)
		a.cancel()
		b.cancel()
		s.acquire(l, any1, 100*ms)
	})
}

func TestB07HeadMiddleTail(t *testing.T) {
	for who, want := range map[int][]time.Duration{0: {100 * ms, 200 * ms}, 1: {100 * ms, 200 * ms}, 2: {100 * ms, 200 * ms}} {
		virtual(t, func(s *stage) {
			l := bucket(10, time.Second)
			s.acquire(l, any1, 0)
			cs := s.calls(3, l, any1)
			time.Sleep(50 * ms)
			cs[who].cancel()
			s.wantGrants(append(append([]*call{}, cs[:who]...), cs[who+1:]...), want...)
		})
	}
}

func TestB07NoPhantomDebt(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(1, time.Hour)
		s.acquire(l, any1, 0)
		for range 10000 {
			ctx, cancel := context.WithCancel(s.t.Context())
			done := make(chan error)
			go func() { done <- l.Acquire(ctx, any1) }()
			synctest.Wait()
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				s.t.Fatal(err)
			}
		}
		if got := l.Stats().Waiting; got != 0 {
			s.t.Errorf("%d waiting", got)
		}
		s.acquire(l, any1, time.Hour)
	})
}

// TestB07CancelRacesGrant makes cancels and grants meet on the real clock: each
// caller gets exactly one of the two, and what was granted adds up.
func TestB07CancelRacesGrant(t *testing.T) {
	const callers, rounds = 8, 200
	l := window(callers*rounds*10, time.Hour)
	var granted, cancelled atomic.Int64
	var wg sync.WaitGroup
	blocked := must(ratelimiter.NewAll(l, bucket(20000, time.Second)))
	for range callers {
		wg.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(rand.IntN(300))*time.Microsecond, cancel)
				switch err := blocked.Acquire(ctx, any1); {
				case err == nil:
					granted.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if granted.Load()+cancelled.Load() != callers*rounds {
		t.Errorf("%d granted + %d cancelled, want %d", granted.Load(), cancelled.Load(), callers*rounds)
	}
	if got, want := l.Stats().Available, callers*rounds*10-int(granted.Load()); got != want {
		t.Errorf("room for %d left, want %d: %d were granted", got, want, granted.Load())
	}
	t.Logf("%d granted, %d cancelled", granted.Load(), cancelled.Load())
}

// TestB08TryUnderOverload asks ten times too often from 64 goroutines.
func TestB08TryUnderOverload(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(100, time.Second)
		var ok atomic.Int64
		for i := range 64 {
			s.wg.Go(func() {
				time.Sleep(time.Duration(i) * ms) // 1,000 a second, evenly
				for s.at() < 10*time.Second {
					if got, _ := l.TryAcquire(any1); got {
						ok.Add(1)
					}
					time.Sleep(64 * ms)
				}
			})
		}
		s.wg.Wait()
		if n := ok.Load(); n < 990 || n > 1000 {
			s.t.Errorf("%d admitted in 10 s at 100/s", n)
		}
	})
}

// TestB09TimeoutAtTheInstantOfTheGrant: whichever of the two wins, a token is
// taken exactly if its caller was told so.
func TestB09TimeoutAtTheInstantOfTheGrant(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, 10*ms)
		count := window(1e6, time.Hour)
		both := must(ratelimiter.NewAll(l, count))
		s.acquire(both, any1, 0)
		granted, timedOut := 1, 0
		for range 5000 {
			at := s.at().Truncate(10*ms) + 10*ms
			ctx, cancel := context.WithTimeout(s.t.Context(), at-s.at())
			switch err := both.Acquire(ctx, any1); {
			case err == nil && s.at() == at:
				granted++
			case errors.Is(err, context.DeadlineExceeded) && s.at() == at:
				timedOut++
				s.acquire(both, any1, at) // the slot is still there
				granted++
			default:
				s.t.Fatal(err, s.at(), at)
			}
			cancel()
		}
		if got := 1000000 - count.Stats().Available; got != granted {
			s.t.Errorf("%d counted, %d granted", got, granted)
		}
		s.t.Logf("%d granted, %d timed out", granted, timedOut)
	})
}

func TestB10DeadContextTakesNothing(t *testing.T) {
	dead, cancel := context.WithCancelCause(t.Context())
	why := errors.New("why")
	cancel(why)
	for name, l := range map[string]ratelimiter.Limiter{
		"bucket": bucket(1, time.Hour), "burst": bucket(1, time.Hour, ratelimiter.WithBurst(1)), "window": window(1, time.Hour),
		"pausable": ratelimiter.NewPausable(bucket(1, time.Hour)), "all": must(ratelimiter.NewAll(bucket(1, time.Hour),
			window(1, time.Hour))),
		"foreign": ratelimiter.NewPausable(ratelimiter.Func(bucket(1, time.Hour).Acquire)),
	} {
		for range 100 {
			if err := l.Acquire(dead, any1); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Fatalf("%s: %v", name, err)
			}
			if t2, ok := ratelimiter.AsTryAcquirer(l); ok {
				if err := t2.AcquireWithin(dead, any1, 0); !errors.Is(err, context.Canceled) {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		if err := l.Acquire(t.Context(), any1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestB11Refund(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second)
		s.acquire(l, any1, 0)
		next := s.call(l, any1)
		time.Sleep(300 * ms)
		l.Adjust(any1, 0)
		s.wantGrants([]*call{next}, 300*ms) // advances at once
		for range 10 {
			l.Adjust(any1, 0)
		}
		s.acquire(l, any1, 300*ms)
		s.acquire(l, any1, 1300*ms) // ten refunds were not ten tokens
	})
}

func TestB11RefundWindow(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(2, time.Second)
		a, b := ratelimiter.Request{Index: 1}, ratelimiter.Request{Index: 2}
		s.acquire(l, a, 0)
		time.Sleep(100 * ms)
		s.acquire(l, b, 100*ms)
		l.Adjust(b, 0)
		s.acquire(l, any1, 100*ms)
		l.Adjust(b, 0) // twice for one grant: nothing left to give back
		s.acquire(l, any1, time.Second)
		time.Sleep(100 * ms)
		l.Adjust(a, 0) // gone from the window: nothing to give back
		s.acquire(l, any1, 1100*ms)
		s.acquire(l, any1, 2000*ms)
	})
}

// TestB12AbandonedWaits: 100,000 callers that gave up leave no memory behind.
func TestB12AbandonedWaits(t *testing.T) {
	l := bucket(1, time.Hour)
	if err := l.Acquire(t.Context(), any1); err != nil {
		t.Fatal(err)
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if err := l.Acquire(ctx, any1); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		for l.Stats().Waiting < 1000 {
			runtime.Gosched()
		}
		cancel()
		wg.Wait()
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d bytes more than before", grown)
	}
	if got := l.Stats(); got != (ratelimiter.Stats{}) {
		t.Errorf("%+v", got)
	}
	runtime.KeepAlive(l)
}

func TestB13B14FiveCancelled(t *testing.T) {
	for _, l := range []func() ratelimiter.Limiter{
		func() ratelimiter.Limiter { return bucket(1, time.Second) },
		func() ratelimiter.Limiter { return window(1, time.Second) },
		func() ratelimiter.Limiter { return ratelimiter.NewPausable(bucket(1, time.Second)) },
		func() ratelimiter.Limiter {
			return must(ratelimiter.NewAll(bucket(1, time.Second), window(1, time.Second)))
		},
	} {
		virtual(t, func(s *stage) {
			l := l()
			s.acquire(l, any1, 0)
			for _, c := range s.calls(5, l, any1) {
				c.cancel()
			}
			s.acquire(l, any1, time.Second)
		})
	}
}

// TestRL5CancelledWaiterTakesNothing is the seed's own case.
func TestRL5CancelledWaiterTakesNothing(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, 100*ms)
		s.acquire(l, any1, 0)
		c := s.call(l, any1)
		time.Sleep(50 * ms)
		c.cancel()
		s.acquire(l, any1, 100*ms)
	})
	virtual(t, func(s *stage) {
		l := window(1, 100*ms)
		s.acquire(l, any1, 0)
		c := s.call(l, any1)
		time.Sleep(50 * ms)
		c.cancel()
		s.acquire(l, any1, 100*ms)
		s.acquire(l, any1, 200*ms)
	})
}

// TestCaseCrowdOfQuitters: a crowd that gives up, by hanging up or by a deadline,
// leaves no debt behind.
func TestCaseCrowdOfQuitters(t *testing.T) {
	for _, deadline := range []bool{false, true} {
		virtual(t, func(s *stage) {
			l := bucket(20, time.Second)
			s.acquire(l, any1, 0)
			for range 200 {
				if deadline {
					ctx, cancel := context.WithTimeout(s.t.Context(), 49*ms)
					defer cancel()
					s.callCtx(ctx, l, any1)
				} else {
					c := s.call(l, any1)
					time.AfterFunc(49*ms, c.cancel)
				}
			}
			time.Sleep(49 * ms)
			s.acquire(l, any1, 50*ms)
		})
	}
}

// TestCaseQuittersBeforeOthers: those behind quitters move up.
func TestCaseQuittersBeforeOthers(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		cs := s.calls(5, l, any1)
		for _, c := range cs[:3] {
			c.cancel()
		}
		s.wantGrants(cs[3:], 100*ms, 200*ms)
		s.acquire(l, any1, 300*ms)
	})
}
