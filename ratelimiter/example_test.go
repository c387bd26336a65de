package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// A limiter of one's own: mornings and evenings have different quotas. It is made
// of limiters from here, so waiting, order and cancellation are theirs.
func ExampleFunc() {
	day, _ := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(10))
	night, _ := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(100))
	hour := func() int { return 3 }

	limiter := ratelimiter.Func(func(ctx context.Context, req ratelimiter.Request) error {
		if h := hour(); h >= 8 && h < 20 {
			return day.Acquire(ctx, req)
		}
		return night.Acquire(ctx, req)
	})

	fmt.Println(limiter.Acquire(context.Background(), ratelimiter.Request{Attempt: 1}))
	// Output: <nil>
}

// Shedding: what would have to wait too long is refused at once.
func ExampleTryAcquirer() {
	limiter, _ := ratelimiter.NewTokenBucket(ratelimiter.PerMinute(1))
	for range 2 {
		err := limiter.AcquireWithin(context.Background(), ratelimiter.Request{}, 5*time.Second)
		var excess *ratelimiter.ExcessError
		switch {
		case err == nil:
			fmt.Println("go")
		case errors.As(err, &excess):
			fmt.Println("shed by", excess.Limit, "for", excess.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// go
	// shed by token bucket 1/m for 1m0s
}

// The true cost becomes known after the call.
func ExampleAdjuster() {
	tokens, _ := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(1000))
	req := ratelimiter.Request{Index: 1, Attempt: 1, Cost: 600}
	_ = tokens.Acquire(context.Background(), req)
	fmt.Println(tokens.Stats().Available)
	tokens.Adjust(req, 250)
	fmt.Println(tokens.Stats().Available)
	// Output:
	// 400
	// 750
}

func ExampleTokenBucket_SetRate() {
	l, _ := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(5))
	if err := l.SetRate(ratelimiter.PerMinute(30)); err != nil {
		fmt.Println(err)
	}
	fmt.Println(l, l.Stats().Available)
	// Output: token bucket 30/m, burst 5 5
}

func ExampleWithBurst() {
	l, _ := ratelimiter.NewTokenBucket(ratelimiter.PerMinute(60), ratelimiter.WithBurst(3))
	for i := range 5 {
		ok, _ := l.TryAcquire(ratelimiter.Request{})
		fmt.Print(i+1, " ", ok, "; ")
	}
	// Output: 1 true; 2 true; 3 true; 4 false; 5 false;
}

func ExampleSlidingWindow_SetRate() {
	l, _ := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(100))
	_, retryAfter := l.TryAcquire(ratelimiter.Request{Cost: 101})
	fmt.Println(retryAfter == ratelimiter.Never)
	fmt.Println(l.SetRate(ratelimiter.PerMinute(200)))
	ok, _ := l.TryAcquire(ratelimiter.Request{Cost: 101})
	fmt.Println(ok, l.Stats().Available)
	// Output:
	// true
	// <nil>
	// true 99
}

func ExampleCountRequests() {
	l, _ := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(3))
	_ = ratelimiter.CountRequests(l).Acquire(context.Background(), ratelimiter.Request{Cost: 5000})
	fmt.Println(l.Stats().Available)
	// Output: 2
}

func ExampleAsTryAcquirer() {
	bucket, _ := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(1))
	_, ok := ratelimiter.AsTryAcquirer(ratelimiter.NewPausable(bucket))
	fmt.Println(ok)
	_, ok = ratelimiter.AsTryAcquirer(ratelimiter.NewPausable(ratelimiter.Func(bucket.Acquire)))
	fmt.Println(ok)
	// Output:
	// true
	// false
}

func ExampleCostError() {
	l, _ := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(5))
	err := l.Acquire(context.Background(), ratelimiter.Request{Cost: 6})
	fmt.Println(err)
	fmt.Println(errors.Is(err, ratelimiter.ErrNeverGranted))
	// Output:
	// ratelimiter: token bucket 10/s, burst 5: cost 6 can never be granted, the highest is 5
	// true
}

func ExamplePerSecond() {
	fmt.Println(ratelimiter.PerSecond(5), ratelimiter.PerMinute(5), ratelimiter.PerHour(5))
	fmt.Println(ratelimiter.Rate{Count: 5, Per: 200 * time.Millisecond})
	// Output:
	// 5/s 5/m 5/h
	// 5/200ms
}

// TestAnHourOfTraffic is what a test of a program that uses limiters looks like:
// in a bubble, an hour of traffic takes no time and everything is exact.
func TestAnHourOfTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(100))
		if err != nil {
			t.Fatal(err)
		}
		start, sent := time.Now(), 0
		for time.Since(start) < time.Hour {
			if err := limiter.Acquire(t.Context(), ratelimiter.Request{}); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		if sent != 60*100+1 { // the last one came when the hour was over
			t.Errorf("%d requests sent in an hour", sent)
		}
	})
}
