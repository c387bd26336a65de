package ratelimiter

import (
	"context"
	"errors"
	"time"
)

// AsTryAcquirer returns l as a [TryAcquirer] and reports whether it is one in
// truth: a [*Pausable] or an [*All] has the methods but can refuse at once only
// if all the limiters inside it can.
func AsTryAcquirer(l Limiter) (t TryAcquirer, ok bool) {
	t, ok = l.(TryAcquirer)
	return t, ok && canTry(l)
}

func canTry(l Limiter) bool {
	if c, ok := l.(interface{ canTry() bool }); ok {
		return c.canTry()
	}
	_, ok := l.(TryAcquirer)
	return ok
}

// AsAdjuster returns l as an [Adjuster] and reports whether it is one in truth: a
// [*Pausable], an [*All] or what [CountRequests] returns has the method, but what
// it is told reaches only those of the limiters inside it that are Adjusters. ok
// is true if all of them are. A caller whose costs are estimates should look,
// since a limit that is never told the true cost goes on believing the estimate.
func AsAdjuster(l Limiter) (a Adjuster, ok bool) {
	a, ok = l.(Adjuster)
	return a, ok && canAdjust(l)
}

func canAdjust(l Limiter) bool {
	if c, ok := l.(interface{ canAdjust() bool }); ok {
		return c.canAdjust()
	}
	_, ok := l.(Adjuster)
	return ok
}

// adjust tells l the true cost if it wants to know.
func adjust(l Limiter, req Request, actual int) {
	if a, ok := l.(Adjuster); ok {
		a.Adjust(req, actual)
	}
}

// refund gives back what l granted, as far as l can take it back.
func refund(l Limiter, req Request) { adjust(l, req, 0) }

// acquireWithin is AcquireWithin for any limiter. One that cannot refuse at once
// is given a context that ends in time.
func acquireWithin(ctx context.Context, l Limiter, req Request, most time.Duration) error {
	if t, ok := AsTryAcquirer(l); ok {
		return t.AcquireWithin(ctx, req, most)
	}
	if most == Never {
		return l.Acquire(ctx, req)
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := l.Acquire(limited, req)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &ExcessError{Limit: describe(l), RetryAfter: Never}
	}
	return err
}
