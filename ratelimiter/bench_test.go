package ratelimiter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
)

// fast is so high a rate that nobody ever waits.
var fast = per(1e9, time.Second)

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
