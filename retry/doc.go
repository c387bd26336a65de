// Package retry says which failures are worth another attempt, how many attempts a task may have, and how long to wait
// before the next one.
//
// It only decides. Nothing in it waits, starts a goroutine or reads a clock: the engine that runs the attempts asks a
// [Policy] and does the waiting. So every answer can be tested without sleeping, and one policy may serve any number of
// tasks and runs at the same time.
//
// # Words
//
// A task has a first attempt and, after a failed one, perhaps a retry: a further attempt. Numbers in this package count
// retries where they limit ([Policy.Max]) and failed attempts where they describe what has happened ([Backoff]).
//
// # The decision
//
// After a failed attempt the questions come in this order, and the first "no" ends the task with the error of that
// attempt:
//
//  1. Is the error retryable? Not when it is marked by [Permanent]; not when Unless says so; else If decides, and
//     without an If every error is retryable. See [Policy.Retryable].
//  2. Has the task a retry left? It may have Max of them. With FreeThrottled an attempt that the service turned away
//     with a time to come back uses none up. See [Policy.Free].
//  3. Has the [Budget], which many tasks and runs may share, a retry left?
//
// Then the delay is worked out ([Policy.Delay]): what the service asked for in the error's Retry-After hint, capped by
// MaxRetryAfter, plus what the [Backoff] says. The hint is a floor: the backoff, with its jitter, is only ever added to
// it, because callers who were all told "in 10 s" must not come back together, and none of them early.
//
// # Filters
//
// If and Unless are plain functions from an error to a bool. [Is] and [As] make the usual ones, and both look through
// the whole chain of wrapped errors:
//
//	retry.Policy{
//		Max:     4,
//		Backoff: retry.Exponential(100*time.Millisecond, 30*time.Second),
//		If:      retry.As[*HTTPError](),
//		Unless:  retry.Is(ErrQuotaGone, ErrNotFound),
//	}
//
// The end of the caller's own context is no question for a filter: a run that was cancelled retries nothing, whatever
// the policy says.
//
// # Telling the policy from the handler
//
// The code that sees the failure often knows best. It may return [Permanent] (do not try this again) or [After] (try
// again, but not before this much time has passed); [ParseRetryAfter] reads the HTTP header. Both keep the text and the
// chain of the error that they wrap. Any error type of your own that has a method
//
//	RetryAfter() time.Duration
//
// gives a hint too, without importing this package.
package retry
