package ratelimiter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
)

// fast is so high a rate that nobody ever waits.
var fast = per(1e9, time.Second)

// contestants are the grants that need not be waited for whose price is promised, and what it is compared with.
func contestants() map[string]ratelimiter.Limiter {
	x, base := rate.NewLimiter(1e9, 1000), time.Now()
	return map[string]ratelimiter.Limiter{
		"x/time/rate": ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error { return x.Wait(ctx) }),
		"clock": ratelimiter.Func(func(context.Context, ratelimiter.Request) error {
			if time.Since(base) < 0 {
				return context.Canceled
			}
			return nil
		}),
		"least":         least(base),
		"TokenBucket":   bucket(1e9, time.Second),
		"WithBurst":     bucket(1e9, time.Second, ratelimiter.WithBurst(1000)),
		"SlidingWindow": window(1000, 1000),
		"large window":  window(1e6, time.Millisecond),
	}
}

// least is what every limiter must do: look at the context, and at the clock under a lock.
func least(base time.Time) ratelimiter.Limiter {
	var mu sync.Mutex
	var sum time.Duration // guarded by mu
	return ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		mu.Lock()
		sum += time.Since(base)
		early := sum < 0
		mu.Unlock()
		if early {
			return context.Canceled
		}
		return nil
	})
}

// prices is the median price of each contestant's grant in ns. They take short turns one after the other, so that a busy
// moment of the machine is the same for all, and their ratios can be trusted where the figures cannot.
func prices(tb testing.TB, rounds int) map[string]float64 {
	ctx, cancel := context.WithCancel(tb.Context())
	defer cancel()
	took := map[string][]float64{}
	limiters := contestants()
	for range rounds {
		for name, l := range limiters {
			const n = 2000
			start := time.Now()
			for range n {
				if err := l.Acquire(ctx, ratelimiter.Request{Attempt: 1}); err != nil {
					tb.Fatal(err)
				}
			}
			took[name] = append(took[name], float64(time.Since(start))/n)
		}
	}
	median := map[string]float64{}
	for name, ns := range took {
		slices.Sort(ns)
		median[name] = ns[len(ns)/2]
	}
	return median
}

// BenchmarkPrices is the price of a grant that need not be waited for, in ns, and in terms of x/time/rate's Wait.
func BenchmarkPrices(b *testing.B) {
	for b.Loop() {
		p := prices(b, 500)
		for name, ns := range p {
			b.ReportMetric(ns, strings.ReplaceAll(name, " ", "-")+"-ns")
		}
		b.ReportMetric(p["TokenBucket"]/p["x/time/rate"], "bucket/x")
		b.ReportMetric(p["SlidingWindow"]/p["x/time/rate"], "window/x")
	}
}

// TestPrices insists on the promised prices, on a quiet machine: at most 0.6 of x/time/rate's Wait, and 60 ns where the clock
// takes what it took where that was promised, 33 ns; on a slower machine as much more as that is slower.
func TestPrices(t *testing.T) {
	if !realClock {
		t.Skip("set PENSTOCK_REALCLOCK to insist on prices")
	}
	p := prices(t, 1000)
	for name, ns := range p {
		t.Logf("%-14s %4.0f ns, %.2f of x/time/rate", name, ns, ns/p["x/time/rate"])
	}
	slower := max(p["clock"]/33, 1)
	for _, name := range []string{"TokenBucket", "WithBurst", "SlidingWindow", "large window"} {
		if p[name] > 0.6*p["x/time/rate"] {
			t.Errorf("%s: %.0f ns, more than 0.6 of x/time/rate's %.0f ns", name, p[name], p["x/time/rate"])
		}
		if p[name] > 60*slower {
			t.Errorf("%s: %.0f ns, want at most %.0f on a machine whose clock takes %.0f ns", name, p[name], 60*slower, p["clock"])
		}
	}
}

// TestAcquireDoesNotAllocate: neither a grant that need not be waited for nor a refusal.
func TestAcquireDoesNotAllocate(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	limiters := contestants()
	limiters["adaptive"] = must(ratelimiter.NewAdaptive(per(1, time.Second), per(1e9, time.Second)))
	limiters["paused window"] = ratelimiter.NewPausable(window(1000, 1000))
	limiters["all"] = must(ratelimiter.NewAll(bucket(1e9, time.Second), window(1000, 1000),
		ratelimiter.CountRequests(bucket(1e9, time.Second))))
	limiters["no delay"] = must(ratelimiter.NewRandomizedInterval(per(1e9, time.Second), ratelimiter.WithBounds(0, 0),
		ratelimiter.WithFluctuation(0)))
	limiters["PerKey"] = must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"": per(1e9, time.Second)}, ratelimiter.Rate{}))
	limiters["PerWorker"] = perWorker(1e9, time.Second)
	for name, l := range limiters {
		if n := testing.AllocsPerRun(2000, func() {
			if err := l.Acquire(ctx, any1); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	spent := bucket(1, time.Hour)
	spent.TryAcquire(any1)
	if n := testing.AllocsPerRun(1000, func() { spent.TryAcquire(any1) }); n > 0 {
		t.Errorf("a refusal: %v allocations", n)
	}
}

// BenchmarkAcquire is the price of a grant that need not be waited for, beside
// golang.org/x/time/rate in the same run.
func BenchmarkAcquire(b *testing.B) {
	x := rate.NewLimiter(1e9, 1000)
	for _, bm := range []struct {
		name string
		l    ratelimiter.Limiter
	}{
		{"TokenBucket", bucket(1e9, time.Second)},
		{"TokenBucketBurst", bucket(1e9, time.Second, ratelimiter.WithBurst(1000))},
		{"SlidingWindow", window(1e6, time.Millisecond)},
		{"SlidingWindow1000", window(1000, 1000)},
		{"Pausable", ratelimiter.NewPausable(bucket(1e9, time.Second))},
		{"Adaptive", must(ratelimiter.NewAdaptive(per(1, time.Second), fast))},
		{"AllOf3", must(ratelimiter.NewAll(bucket(1e9, time.Second), bucket(1e9, time.Second), window(1000, 1000)))},
		{"XTimeRateWait", ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error { return x.Wait(ctx) })},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			for b.Loop() {
				if err := bm.l.Acquire(ctx, ratelimiter.Request{Attempt: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTryAcquireRefused is the price of shedding.
func BenchmarkTryAcquireRefused(b *testing.B) {
	l := bucket(1, time.Hour)
	l.TryAcquire(any1)
	b.Run("TokenBucket", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if ok, _ := l.TryAcquire(any1); ok {
				b.Fatal("granted")
			}
		}
	})
	x := rate.NewLimiter(rate.Every(time.Hour), 1)
	x.Allow()
	b.Run("XTimeRateAllow", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if x.Allow() {
				b.Fatal("granted")
			}
		}
	})
}

// BenchmarkParallel is the price under contention.
func BenchmarkParallel(b *testing.B) {
	l, x := must(ratelimiter.NewTokenBucket(fast)), rate.NewLimiter(1e9, 1000)
	b.Run("TokenBucket", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = l.Acquire(context.Background(), any1)
			}
		})
	})
	b.Run("XTimeRateWait", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = x.Wait(context.Background())
			}
		})
	})
}

// BenchmarkWaited is the price of a grant that was waited for: n callers of a
// window that opens for all of them at once.
func BenchmarkWaited(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			l := window(n, time.Millisecond)
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					for range b.N {
						_ = l.Acquire(context.Background(), any1)
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/grant")
		})
	}
}
