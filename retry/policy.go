package retry

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// DefaultMaxRetryAfter is the cap on a service's Retry-After hint when [Policy.MaxRetryAfter] is 0.
const DefaultMaxRetryAfter = time.Hour

// A Policy says what is retried, how often, and after which delay.
//
// The zero value retries nothing. A Policy is a plain value: fill in the fields and hand it over; do not change it while
// it is in use. Its methods may be called from many goroutines at once, and so must the functions in it. Copies of a
// Policy share its Budget.
type Policy struct {
	// Max is how many retries a task may have: attempts after the first one. 0 means one attempt and no retry,
	// 2 means at most three attempts. Negative is refused by Validate. There is no value for "unlimited";
	// math.MaxInt comes close enough.
	Max int

	// Backoff says how long to wait before a retry. It is called once for each retry that is going to be made, and
	// never for one that is not. A nil Backoff means no delay beyond a Retry-After hint.
	Backoff Backoff

	// If says which errors are retried; nil means every error. An error for which Unless is true, or that is marked by
	// Permanent, is not retried whatever If says. Is and As make the usual filters.
	If func(err error) bool

	// Unless says which errors are not retried; nil means none. It wins over If, which is then not asked.
	Unless func(err error) bool

	// MaxRetryAfter caps the wait that a service can ask for with a Retry-After hint, so that a broken or hostile
	// header cannot park a worker for a year. A longer hint is cut to it, and the retry is made all the same. It does
	// not cap the Backoff. 0 means DefaultMaxRetryAfter, one hour; negative is refused by Validate;
	// time.Duration(math.MaxInt64) switches the cap off.
	MaxRetryAfter time.Duration

	// Budget caps the retries of all tasks together, against retry storms. It may be shared between policies, engines
	// and runs. A retry that it does not grant is not made: the task fails with its own last error. nil means no cap.
	Budget *Budget

	// FreeThrottled keeps throttled attempts from using up a task's retries. An attempt is throttled when its error
	// carries a Retry-After hint longer than zero: the service did not try and fail, it asked to be called later. Such
	// an attempt is made again without counting towards Max, also when Max is 0, as long as the error is retryable and
	// the Budget grants the retry.
	//
	// A rejection without a hint, or with a hint of zero ("come at once"), counts as always, so a free retry always
	// waits. Nothing else bounds the number of free retries: against a service that answers 429 for ever a task ends
	// only with its task timeout, its run, or an empty Budget. Set one of them.
	FreeThrottled bool
}

// Validate reports every field whose value makes no sense, all of them in one joined error, or nil. Each error names the
// field, its value, and what would be right. It calls none of the functions in the policy.
func (p *Policy) Validate() error {
	var errs []error
	if p.Max < 0 {
		errs = append(errs, fmt.Errorf("retry: Policy.Max is %d: it counts the attempts after the first and must be 0 or more", p.Max))
	}
	if p.MaxRetryAfter < 0 {
		errs = append(errs, fmt.Errorf("retry: Policy.MaxRetryAfter is %v: it must be positive, or 0 for the default of %v",
			p.MaxRetryAfter, DefaultMaxRetryAfter))
	}
	if p.Budget != nil && p.Budget.burst == 0 {
		errs = append(errs, errors.New("retry: Policy.Budget is a zero Budget, which never grants a retry: make it with NewBudget, or leave it nil for no cap"))
	}
	return errors.Join(errs...)
}

// Retryable reports whether err is the kind of error that the policy retries. It does not ask whether a retry is left.
//
// A nil error is not retryable, nor is one marked by [Permanent]. After that Unless is asked, then If. These are the
// user's functions: a panic in one of them passes through to the caller.
func (p *Policy) Retryable(err error) bool {
	switch {
	case err == nil, IsPermanent(err):
		return false
	case p.Unless != nil && p.Unless(err):
		return false
	default:
		return p.If == nil || p.If(err)
	}
}

// Free reports whether a failed attempt that ended with err leaves the task's retries untouched: FreeThrottled is set
// and err carries a Retry-After hint longer than zero. It says nothing about err being retryable.
func (p *Policy) Free(err error) bool {
	if !p.FreeThrottled {
		return false
	}
	hint, _ := RetryAfter(err)
	return hint > 0
}

// Hint is the package's function [RetryAfter] with the policy's cap: the wait that err asks for, never negative and
// never longer than MaxRetryAfter, and whether it asks for one at all.
func (p *Policy) Hint(err error) (d time.Duration, ok bool) {
	limit := p.MaxRetryAfter
	if limit == 0 {
		limit = DefaultMaxRetryAfter
	}
	d, ok = RetryAfter(err)
	return min(d, limit), ok
}

// Delay returns how long to wait before the retry that follows the task's failed-th failed attempt (from 1), which ended
// with err: the capped hint of err, if it has one, plus what the Backoff says. The sum stops at the longest
// time.Duration instead of overflowing, and is never negative.
//
// Delay calls the Backoff, once; a panic in it passes through. A negative answer is an error that names the value: many
// backoff objects use -1 for "stop", and taking that for a delay would retry without any pause.
func (p *Policy) Delay(failed int, err error) (time.Duration, error) {
	hint, _ := p.Hint(err)
	if p.Backoff == nil {
		return hint, nil
	}
	backoff := p.Backoff(failed, err)
	if backoff < 0 {
		return 0, fmt.Errorf("retry: Policy.Backoff returned %v after failed attempt %d: a delay must be 0 or more", backoff, failed)
	}
	if backoff > math.MaxInt64-hint {
		return math.MaxInt64, nil
	}
	return hint + backoff, nil
}
