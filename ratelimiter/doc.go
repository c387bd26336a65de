// Package ratelimiter decides when an attempt may start.
//
// A [Limiter] has one method, Acquire, which returns when the attempt may start.
// The limiters here differ in what they promise:
//
//   - [TokenBucket] spaces grants evenly, or with [WithBurst] lets some go
//     together after a quiet time; its promise is the mean rate.
//   - [SlidingWindow] is a cap: never more than so many in any period.
//   - [RandomizedInterval] is a cap with a random delay before each grant.
//   - [Adaptive] finds out what rate a service bears.
//   - [PerKey] and [PerWorker] are a spaced bucket for each key, or worker.
//   - [Pausable] puts a pause around another limiter, for everybody who uses it.
//   - [All] grants when several limits do, of all or of none: requests per
//     minute and tokens per minute, say. [CountRequests] tells the former apart.
//   - [FromRate] is a limiter of golang.org/x/time/rate, for those who have one.
//
// FIELDBUGS.md, beside the source, lists what has gone wrong in other limiters and
// the tests against it.
//
// # Words
//
// A request asks for a grant, at some cost. A grant is the permission to start,
// given at an instant. The limiter's schedule is the arithmetic that says when the
// next grant may be; the instant it names is the next slot. Callers whose slot has
// not come wait in a line. A burst is what may be granted at one instant. Lateness
// is how long after its slot a grant is made because a timer went off late, which
// on a real clock every timer does.
//
// # Waiting
//
// Everybody waits in order of arrival. A request that needs much is not overtaken
// by those that need little, so it holds them up; see [All] for the one exception,
// which harms nobody.
//
// Callers hold nothing while they wait. A slot is taken when it is granted, not
// when somebody begins to wait for it, so that a caller which gives up, at the
// head, in the middle or at the tail, leaves no hole, and whoever is behind moves
// up at once. When its context ends at the very instant of its grant, one of the
// two counts: either the grant, and Acquire returns nil, or the error, and nothing
// has been used up.
//
// A deadline that cannot be met is refused at once, with an error that is
// [context.DeadlineExceeded] to errors.Is. Only what is certain counts for that:
// callers ahead may give up, so they are no reason. AcquireWithin, which sheds
// load, goes by how things stand and does count them.
//
// # Time
//
// All times are monotonic: steps of the wall clock change nothing, and a machine
// that sleeps only slows down. Each limiter counts from its own creation, nothing
// spins and no goroutine is kept, so limiters work in a [testing/synctest] bubble
// as they are. There, timers are punctual and grants are exact to the nanosecond;
// an hour of traffic takes milliseconds; hour_test.go, beside the source, is a test
// of that kind to copy. A limiter belongs to the bubble in which it first makes
// somebody wait.
//
// Instants are counted in nanoseconds for 146 years from a limiter's creation. What
// would come later than that, such as a third grant at one in 80 years, does not
// come; nothing comes early.
//
// A context's deadline and a pause that come from a wall clock time are measured
// against the wall clock once, when they are given.
//
// # Costs
//
// A [Request] has a cost, 1 if not set. When the true cost is known only after the
// call, as with the tokens of a language model, ask for an estimate and tell the
// truth with Adjust. A cost that can never be granted is a [*CostError] at once;
// it matches [ErrNeverGranted], which says that only this request is refused.
//
// # Your own limiter
//
// Anything with an Acquire method that obeys the rules of [Limiter] is a limiter,
// and a [Func] is one from a function. The rule that is easily broken is that a
// caller which gives up has used nothing up: do not take first and wait then. A
// limiter made of the ones here gets it for free; see the example of Func. To be
// of use for shedding a limiter must be a [TryAcquirer], to learn from outcomes an
// [Observer], to take back costs an [Adjuster]; [AsTryAcquirer] and [AsAdjuster] see
// through limiters that wrap others. Package limitertest checks the rules.
//
// # Sources
//
// The token bucket is the generic cell rate algorithm (ITU-T I.371), with an exact
// remainder. The sliding window is the log of its grants. The one queue in front
// of them all follows golang.org/x/sync/semaphore in how a cancelled waiter meets
// its grant, and golang.org/x/time/rate in what Acquire refuses.
package ratelimiter
