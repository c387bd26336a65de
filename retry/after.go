package retry

import (
	"errors"
	"time"
)

// After gives err a Retry-After hint: the service wants no further attempt before d has passed, counted from the end of
// the failed one. A policy that retries err waits at least that long, unless its MaxRetryAfter is shorter, and the
// engine tells its limiter, so that one throttled caller can pause them all. A negative d counts as zero.
//
//	if d, ok := retry.ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
//		return zero, retry.After(errThrottled, d)
//	}
//	return zero, errThrottled // no usable header: the policy's Backoff alone decides
//
// The hint does not make err retryable; that is for the policy's filters to say. The text stays err's, and errors.Is,
// errors.As and errors.Unwrap find err and everything that it wraps. When an error in the chain has a hint already, the
// outermost hint counts.
//
// After(nil, d) is nil: a hint alone is no failure, so a handler that returns it has succeeded.
func After(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &afterError{err, max(d, 0)}
}

// RetryAfter returns the hint that err carries and whether it carries one: the answer of the first error in err's chain,
// in the order of errors.As, that has a method RetryAfter() time.Duration. Errors made by [After] have it, and any
// other type may. A negative answer counts as zero, and a panic in the method passes through to the caller. See
// [Policy.Hint] for the capped value.
func RetryAfter(err error) (d time.Duration, ok bool) {
	hinted, ok := errors.AsType[hinter](err)
	if !ok {
		return 0, false
	}
	return max(hinted.RetryAfter(), 0), true
}

type hinter interface {
	error
	RetryAfter() time.Duration
}

type afterError struct {
	err   error
	after time.Duration
}

func (e *afterError) Error() string             { return e.err.Error() }
func (e *afterError) Unwrap() error             { return e.err }
func (e *afterError) RetryAfter() time.Duration { return e.after }
