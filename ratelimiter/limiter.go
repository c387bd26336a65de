package ratelimiter

import (
	"context"
	"math"
	"time"
)

// A Limiter decides when an attempt may start.
//
// An implementation must obey these rules; the conformance kit in
// ratelimiter/limitertest checks them:
//
//  1. Acquire returns nil when the attempt may start now. Whoever gets nil has
//     been granted what it asked for.
//  2. Acquire returns promptly when ctx ends, with an error for which errors.Is
//     finds ctx.Err().
//  3. A caller that got an error has used nothing up, wherever it stood in line.
//  4. A context that has ended before the call is never granted anything, also
//     when a grant would be free.
//  5. Acquire may refuse early when it is certain that ctx's deadline comes
//     before the grant. That error is context.DeadlineExceeded to errors.Is, and
//     it is final for this context: asking again in a loop is a busy loop.
//  6. An error for which errors.Is finds [ErrNeverGranted] refuses this request
//     alone. Any other error that is not ctx's says that the limiter is broken.
//  7. All methods are safe for concurrent use.
//  8. Grants are made in order of arrival, unless the limiter says otherwise.
//  9. Nothing is left behind: no goroutine outlives the call, nothing spins, and
//     no lock is held while waiting.
type Limiter interface {
	Acquire(ctx context.Context, req Request) error
}

// A Request is what a limiter is told about the attempt that asks. A limiter
// reads the fields it needs and ignores the others; the zero Request is an
// anonymous attempt of cost 1.
type Request struct {
	// Worker is the number of the worker that asks, from 0.
	Worker int
	// Attempt counts the attempts of one item, from 1.
	Attempt int
	// Index is the position of the item in its run, from 0.
	Index int
	// Cost is how much the attempt uses up of the limit, for example the tokens
	// of a call to a language model. Zero counts as 1; a negative cost is a
	// [*CostError].
	Cost int
	// Key says whose limit applies, for limiters that keep one per key.
	Key string
}

// Func makes a [Limiter] from a function, which must obey the rules of
// [Limiter]. Concurrency safety is the function's.
type Func func(ctx context.Context, req Request) error

// Acquire calls f.
func (f Func) Acquire(ctx context.Context, req Request) error { return f(ctx, req) }

// Never is the retryAfter of a request that no amount of waiting helps, as
// things stand: its cost is above what can ever be granted, its key is unknown,
// or the limit has been set to zero.
const Never time.Duration = math.MaxInt64

// A TryAcquirer is a [Limiter] that can refuse instead of making its caller
// wait. Shedding needs one.
type TryAcquirer interface {
	// TryAcquire grants now or refuses now; it never waits. It does not overtake
	// callers that wait. When it refuses, retryAfter is how long, as things
	// stand, a caller that queued now would wait ([Never] if for ever), and
	// nothing has been used up.
	TryAcquire(req Request) (ok bool, retryAfter time.Duration)

	// AcquireWithin is Acquire for callers that wait no longer than maxWait. If
	// the grant would, as things stand, come later than that, it returns an
	// [*ExcessError] at once; if things change for the worse while it waits, it
	// returns one when maxWait has passed. A maxWait of zero or less is
	// "now or not at all". Nothing has been used up when it returns an error.
	AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error
}

// An Observer is a [Limiter] that wants to know how attempts went, to adapt its
// rate or to pause.
type Observer interface {
	// Observe is called after each attempt with the attempt's error, nil for
	// success. It must not block.
	Observe(req Request, err error)
}

// An Adjuster is a [Limiter] that can be told the true cost of a request after
// its grant, when the cost asked for was an estimate.
type Adjuster interface {
	// Adjust says that req, which has been granted, did cost actual instead of
	// what it asked for. A lower cost gives the difference back, never beyond
	// what the limit can hold; a higher one is a debt that delays the grants to
	// come. Adjust(req, 0) is a refund. A negative actual counts as 0. It must be
	// called at most once per grant, with the Request that was granted.
	Adjust(req Request, actual int)
}
