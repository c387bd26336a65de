package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
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

func ExampleAsAdjuster() {
	window, _ := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(100))
	_, ok := ratelimiter.AsAdjuster(ratelimiter.NewPausable(window))
	fmt.Println(ok)
	elsewhere := ratelimiter.Func(window.Acquire) // takes no costs back
	_, ok = ratelimiter.AsAdjuster(ratelimiter.NewPausable(elsewhere))
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

// Slow down when the service says so, and find back.
func ExampleNewAdaptive() {
	limiter, err := ratelimiter.NewAdaptive(ratelimiter.PerSecond(1), ratelimiter.PerSecond(100),
		ratelimiter.WithDecrease(0.7), ratelimiter.WithIncrease(2),
		ratelimiter.WithThrottle(func(err error) bool { return errors.Is(err, errTooMany) }))
	if err != nil {
		fmt.Println(err)
		return
	}
	req := ratelimiter.Request{Index: 1, Attempt: 1}
	if err := limiter.Acquire(context.Background(), req); err != nil {
		fmt.Println(err)
		return
	}
	limiter.Observe(req, fmt.Errorf("GET /rows/1: %w", errTooMany)) // an engine does that by itself
	fmt.Println(limiter.PerSecond(), "per second")
	// Output: 70 per second
}

var errTooMany = errors.New("429 Too Many Requests")

// Delays between 0.2 and 1 of an interval, the same in every run of a test.
func ExampleNewRandomizedInterval() {
	limiter, err := ratelimiter.NewRandomizedInterval(ratelimiter.PerSecond(1000),
		ratelimiter.WithMultiplier(0.8, 0.1), ratelimiter.WithBounds(0.2, 1), ratelimiter.WithFluctuation(0),
		ratelimiter.WithRandom(rand.New(rand.NewPCG(1, 2))))
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	for range 3 {
		_ = limiter.Acquire(context.Background(), ratelimiter.Request{})
	}
	fmt.Println(limiter, "took at least 0.6ms:", time.Since(start) >= 600*time.Microsecond)
	// Output: randomized interval 1000/s took at least 0.6ms: true
}

// A program that has a limiter of golang.org/x/time/rate already.
func ExampleFromRate() {
	limiter := ratelimiter.FromRate(rate.NewLimiter(10, 3))
	for range 3 {
		_ = limiter.Acquire(context.Background(), ratelimiter.Request{})
	}
	err := limiter.(ratelimiter.TryAcquirer).AcquireWithin(context.Background(), ratelimiter.Request{}, 0)
	fmt.Println(errors.As(err, new(*ratelimiter.ExcessError)), limiter)
	// Output: true x/time/rate 10/s, burst 3
}

// A limiter that only counts how attempts went, around another one.
func ExampleObserver() {
	bucket, _ := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(10))
	limiter := &counting{Limiter: bucket}
	var observer ratelimiter.Observer = limiter // an engine finds it by itself, and tells it
	observer.Observe(ratelimiter.Request{Index: 1}, nil)
	observer.Observe(ratelimiter.Request{Index: 2}, errTooMany)
	fmt.Println(limiter.failed.Load(), "failed")
	// Output: 1 failed
}

type counting struct {
	ratelimiter.Limiter
	failed atomic.Int64
}

func (c *counting) Observe(_ ratelimiter.Request, err error) {
	if err != nil {
		c.failed.Add(1)
	}
}
