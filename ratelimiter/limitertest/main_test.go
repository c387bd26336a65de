package limitertest_test

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"go.uber.org/goleak"
)

const ms = time.Millisecond

func TestMain(m *testing.M) {
	// One of the broken limiters leaves goroutines behind in bubbles that are no
	// more. Nobody can end them.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/penstock-go/penstock/ratelimiter/limitertest.hoard"))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func per(n int, d time.Duration) ratelimiter.Rate { return ratelimiter.Rate{Count: n, Per: d} }

func bucket(n int, d time.Duration, opts ...ratelimiter.BucketOption) *ratelimiter.TokenBucket {
	return must(ratelimiter.NewTokenBucket(per(n, d), opts...))
}

func window(n int, d time.Duration) *ratelimiter.SlidingWindow {
	return must(ratelimiter.NewSlidingWindow(per(n, d)))
}
