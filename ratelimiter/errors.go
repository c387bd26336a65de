package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNeverGranted is found by errors.Is in the errors that refuse one request
// for good: a [*CostError] and a [*KeyError]. The limiter that returned it is in
// order; the same request asked again gets the same answer.
var ErrNeverGranted = errors.New("ratelimiter: request can never be granted")

// A CostError says that a request's cost can never be granted: it is negative or
// higher than the limit can ever hold. It matches [ErrNeverGranted].
type CostError struct {
	// Limit names the limit, for example "token bucket 10/s, burst 5".
	Limit string
	// Cost is what was asked for.
	Cost int
	// Max is the highest cost that the limit can grant.
	Max int
}

// Error names the limit, the cost and the bound.
func (e *CostError) Error() string {
	if e.Cost < 0 {
		return fmt.Sprintf("ratelimiter: %s: cost %d is negative", e.Limit, e.Cost)
	}
	return fmt.Sprintf("ratelimiter: %s: cost %d can never be granted, the highest is %d", e.Limit, e.Cost, e.Max)
}

// Is reports whether target is [ErrNeverGranted].
func (e *CostError) Is(target error) bool { return target == ErrNeverGranted }

// A KeyError says that a limiter knows no limit for a request's key. It matches
// [ErrNeverGranted].
type KeyError struct {
	// Key is the key that was asked for.
	Key string
}

// Error names the key.
func (e *KeyError) Error() string {
	if e.Key == "" {
		return `ratelimiter: no limit for key "", which is that of every request whose key nobody has set`
	}
	return fmt.Sprintf("ratelimiter: no limit for key %q", e.Key)
}

// Is reports whether target is [ErrNeverGranted].
func (e *KeyError) Is(target error) bool { return target == ErrNeverGranted }

// An ExcessError says that a request was refused because its grant would have
// come later than its caller was ready to wait. Nothing was used up.
type ExcessError struct {
	// Limit names the limit that refused, for example "token bucket 10/s". Of
	// several limits that must all agree it is the one that would have granted
	// last.
	Limit string
	// Scope says whom that limit is for, for example `key "a"` or "worker 3".
	// Empty means everybody who uses the limiter.
	Scope string
	// RetryAfter is how long, as things stood, the request would have had to
	// wait; [Never] if for ever.
	RetryAfter time.Duration
}

// Error starts with "rate_limit:" and names the limit and its scope.
func (e *ExcessError) Error() string {
	scope := e.Scope
	if scope == "" {
		scope = "all requests"
	}
	if e.RetryAfter == Never {
		return fmt.Sprintf("rate_limit: %s for %s: nothing is granted at present", e.Limit, scope)
	}
	return fmt.Sprintf("rate_limit: %s for %s: next grant in %v", e.Limit, scope, e.RetryAfter)
}

// waitError is the end of a context seen by a caller that waited for a limiter,
// or that was spared a hopeless wait. It keeps the context's error and its cause
// visible to errors.Is, and says in words where the caller was: a bare "context
// deadline exceeded" sends people to the wrong place.
type waitError struct {
	limit string
	early time.Duration // how far off the grant was; 0 when the context ended while waiting
	errs  []error       // ctx.Err(), then its cause if that is something else
}

func (e *waitError) Error() string {
	err := e.errs[len(e.errs)-1]
	if e.early > 0 {
		return fmt.Sprintf("ratelimiter: not waiting for %s: the next grant in %v would come after the deadline: %v",
			e.limit, e.early, err)
	}
	return fmt.Sprintf("ratelimiter: while waiting for %s: %v", e.limit, err)
}

func (e *waitError) Unwrap() []error { return e.errs }

// gaveUp is the error of a caller whose context ended while it waited for limit.
func gaveUp(ctx context.Context, limit string) error {
	err := &waitError{limit: limit, errs: []error{ctx.Err()}}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		err.errs = append(err.errs, cause)
	}
	return err
}

// hopeless is the error of a caller whose deadline comes before its grant.
func hopeless(limit string, wait time.Duration) error {
	return &waitError{limit: limit, early: wait, errs: []error{context.DeadlineExceeded}}
}

// apply has each option set what it sets in o. A nil option is a slip that would
// otherwise be a panic here.
func apply[O any, F ~func(*O)](options []F, o *O) error {
	var faults []error
	for i, set := range options {
		if set == nil {
			faults = append(faults, fmt.Errorf("ratelimiter: option %d is nil: leave it out", i+1))
			continue
		}
		set(o)
	}
	return errors.Join(faults...)
}
