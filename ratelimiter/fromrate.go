package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// FromRate makes a [Limiter] of a [rate.Limiter], for programs that have one already. It is a [TryAcquirer], too, and
// follows the changes that SetLimit and SetBurst make for later requests.
//
// What x/time/rate cannot do stays undone; a [TokenBucket] has none of these shortfalls:
//
//   - A caller that gives up while it waits gives back less than it had reserved as soon as others have reserved after
//     it: slots are lost, and the others are not moved up.
//   - With a burst of 1 and an interval below about 1 ms a single caller gets far less than the rate, since each timer's
//     lateness is lost.
//   - SetLimit does not re-time those who wait. A limit of 0 makes callers without a deadline wait for ever.
//   - Grants are in order of arrival only as far as the order of reservations is that of waking up.
//   - A deadline is taken for hopeless because of those ahead, who may yet give up: it is their reservations that one would
//     have to wait for.
//   - Tokens are floating-point numbers, so a retryAfter may be 1 ns short or long.
//
// It is not an [Adjuster]. A cost above the burst is a [*CostError], unless the limit is rate.Inf. FromRate panics if l is
// nil.
func FromRate(l *rate.Limiter) Limiter {
	if l == nil {
		panic("ratelimiter: FromRate: the limiter is nil")
	}
	return &fromRate{l}
}

type fromRate struct{ l *rate.Limiter }

func (f *fromRate) Acquire(ctx context.Context, req Request) error {
	return f.AcquireWithin(ctx, req, Never)
}

func (f *fromRate) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	now := time.Now()
	r, delay, err := f.reserve(now, req)
	switch {
	case err != nil:
		return false, Never
	case delay > 0:
		r.CancelAt(now)
		return false, delay
	}
	return true, 0
}

func (f *fromRate) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	if ctx.Err() != nil {
		return gaveUp(ctx, f.String())
	}
	now := time.Now()
	r, delay, err := f.reserve(now, req)
	if err != nil {
		return err
	}
	if delay == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && delay > deadline.Sub(now) {
		r.CancelAt(now)
		return hopeless(f.String(), delay)
	}
	if maxWait != Never && delay > max(maxWait, 0) {
		r.CancelAt(now)
		return &ExcessError{Limit: f.String(), RetryAfter: delay}
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.Cancel()
		return gaveUp(ctx, f.String())
	}
}

// reserve takes the tokens of req, which will be due after delay.
func (f *fromRate) reserve(now time.Time, req Request) (r *rate.Reservation, delay time.Duration, err error) {
	cost := toInt(askOf(req).cost)
	if cost > 0 {
		r = f.l.ReserveN(now, cost)
	}
	if cost <= 0 || !r.OK() {
		return nil, 0, &CostError{Limit: f.String(), Cost: cost, Max: f.l.Burst()}
	}
	return r, r.DelayFrom(now), nil
}

// String names the limit.
func (f *fromRate) String() string {
	limit := f.l.Limit()
	if limit == rate.Inf {
		return "x/time/rate without limit"
	}
	return fmt.Sprintf("x/time/rate %v/s, burst %d", float64(limit), f.l.Burst())
}

var errNotFinite = errors.New("must be a finite number")

// finite refuses what no option of a limiter may be.
func finite(x float64) error {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return errNotFinite
	}
	return nil
}
