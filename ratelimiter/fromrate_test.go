package ratelimiter_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/penstock-go/penstock/ratelimiter"
)

func TestFromRate(t *testing.T) {
	t.Run("it grants as x/time/rate does", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := ratelimiter.FromRate(rate.NewLimiter(10, 2))
			for i, want := range []time.Duration{0, 0, 100, 100} {
				if got := waits(t, l, 1)[0]; got != want*time.Millisecond {
					t.Errorf("grant %d took %v", i, got)
				}
			}
		})
	})
	t.Run("errors are typed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := ratelimiter.FromRate(rate.NewLimiter(rate.Every(10*time.Second), 1))
			waits(t, l, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			if err := l.Acquire(ctx, ratelimiter.Request{}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 0 {
				t.Errorf("%v after %v, want to be refused at once", err, time.Since(start))
			}
			var cost *ratelimiter.CostError
			if err := l.Acquire(t.Context(), ratelimiter.Request{Cost: 2}); !errors.As(err, &cost) || cost.Max != 1 ||
				!errors.Is(err, ratelimiter.ErrNeverGranted) {
				t.Error(err)
			}
			if err := l.Acquire(t.Context(), ratelimiter.Request{Cost: -1}); !errors.As(err, &cost) {
				t.Error(err)
			}
			ended, end := context.WithCancelCause(t.Context())
			end(errSlow)
			if err := l.Acquire(ended, ratelimiter.Request{}); !errors.Is(err, context.Canceled) || !errors.Is(err, errSlow) {
				t.Error(err)
			}
		})
	})
	t.Run("it can refuse", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, ok := ratelimiter.AsTryAcquirer(ratelimiter.FromRate(rate.NewLimiter(1, 1)))
			if !ok {
				t.Fatal("it is no TryAcquirer")
			}
			if ok, _ := l.TryAcquire(ratelimiter.Request{}); !ok {
				t.Fatal("refused though full")
			}
			for range 10 { // a refusal costs nothing
				if ok, in := l.TryAcquire(ratelimiter.Request{}); ok || in != time.Second {
					t.Fatal(ok, in)
				}
			}
			var excess *ratelimiter.ExcessError
			if err := l.AcquireWithin(t.Context(), ratelimiter.Request{}, time.Second-1); !errors.As(err, &excess) ||
				!strings.HasPrefix(err.Error(), "rate_limit:") {
				t.Fatal(err)
			}
			start := time.Now()
			if err := l.AcquireWithin(t.Context(), ratelimiter.Request{}, time.Second); err != nil || time.Since(start) != time.Second {
				t.Error(err, time.Since(start))
			}
		})
	})
	t.Run("cancelling while waiting is prompt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := ratelimiter.FromRate(rate.NewLimiter(1, 1))
			waits(t, l, 1)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			start := time.Now()
			if err := l.Acquire(ctx, ratelimiter.Request{}); !errors.Is(err, context.Canceled) || time.Since(start) != time.Millisecond {
				t.Error(err, time.Since(start))
			}
		})
	})
}

// TestB16NoLimitWhateverTheBurst: without a limit everything goes at once.
func TestB16NoLimitWhateverTheBurst(t *testing.T) {
	virtual(t, func(s *stage) {
		l := ratelimiter.FromRate(rate.NewLimiter(rate.Inf, 0))
		for range 100 {
			s.acquire(l, cost(1000), 0)
		}
		if ok, in := l.(ratelimiter.TryAcquirer).TryAcquire(cost(math.MaxInt)); !ok || in != 0 {
			t.Error(ok, in)
		}
	})
}

// TestFromRateAgainstItself: as long as nobody gives up, every grant comes when x/time/rate says.
func TestFromRateAgainstItself(t *testing.T) {
	for seed := range uint64(30) {
		virtual(t, func(s *stage) {
			rng := rand.New(rand.NewPCG(seed, 3))
			limit, burst := rate.Limit(rng.IntN(50)+1), rng.IntN(6)+1
			l, twin := ratelimiter.FromRate(rate.NewLimiter(limit, burst)), rate.NewLimiter(limit, burst)
			for range 100 {
				n := rng.IntN(burst) + 1
				want := s.at() + twin.ReserveN(time.Now(), n).Delay()
				c := s.call(l, cost(n))
				s.wg.Go(func() { s.wantGrants([]*call{c}, want) })
				time.Sleep(time.Duration(rng.IntN(200)) * ms)
			}
		})
	}
}
