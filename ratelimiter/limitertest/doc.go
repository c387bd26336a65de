// Package limitertest checks that a limiter keeps the rules of
// [ratelimiter.Limiter]. It is to Limiter what [testing/slogtest] is to
// slog.Handler: one call in a test of yours,
//
//	func TestMine(t *testing.T) {
//		limitertest.Run(t, func() ratelimiter.Limiter { return NewMine(5, time.Second) })
//	}
//
// and any limiter, yours or one from package ratelimiter, is put through its
// paces, whatever it does: granting many at once or one at a time, hourly or a
// million times a second, to everybody or by key. The example is a small limiter
// that passes.
//
// # How it works
//
// Each check is a subtest. It takes fresh limiters from the function and asks
// them inside [testing/synctest] bubbles, where time is virtual: an hour of waiting
// takes no time, and "at that instant" means to the nanosecond. The kit first
// finds out how the limiter behaves: how many it lets go at once, when those that
// must wait are granted. Most checks then compare two runs that differ in one
// thing. That a caller which gave up has used nothing up, for example, is checked
// by having all others granted at exactly the instants of a run in which it never
// asked.
//
// What does not apply is skipped, and the skipped subtest says why (go test -v
// shows it): there is no order among callers if nobody ever waits. So give the
// kit a limiter that makes somebody wait, after no more than 16,384 grants and for
// no longer than 30 days. Small limits are best, and make the checks cheap: for a
// limit of five all of them together take about 0.05 s, and 0.3 s with -race.
//
// # What is checked
//
// A failure names the rule that is broken, what was expected and what happened.
// The names in brackets are those of the subtests. Rules 1 to 7 are those of
// [ratelimiter.Limiter]:
//
//  1. A grant means that the attempt may start now: a crowd that asks at one
//     instant, from many goroutines, is granted no more and no earlier than
//     callers who ask one by one, and a huge cost does not wrap around to nothing
//     [Grant, Crowd, RealTime, CostHuge].
//  2. A caller whose context ends, by a cancel, with a cause or by a deadline,
//     returns at that very instant, with the context's error, at the head, in the
//     middle and at the tail of the line [CancelHead, CancelMiddle, CancelTail].
//  3. It has used nothing up, nor has one that was refused: alone, as one of a
//     crowd, and also if it gives up at the very instant of a grant [the same, and
//     CancelAll, CancelAtGrant, RealTime].
//  4. An ended context is never granted anything, not by chance either
//     [EndedContext].
//  5. A deadline that cannot be met is an error that is
//     context.DeadlineExceeded, no later than the deadline; one that can be met,
//     even if only because others may give up, is not refused early [Deadline].
//  6. A negative cost and one that can never be granted are refused at once with
//     ratelimiter.ErrNeverGranted, also for one that would have to wait behind
//     others; a cost of zero counts as 1 [CostNegative, CostHuge, CostZero]. There
//     are no other errors [all].
//  7. All methods are called from many goroutines at once, in virtual and in real
//     time: run the test with -race. Afterwards the limiter must be as good as new
//     [Crowd, Storm, RealTime].
//
// and two that package ratelimiter keeps itself and asks of every limiter:
//
//  8. Grants are made in order of arrival. Newcomers do not overtake, not even at
//     the instant at which a slot becomes free, nor do small costs large ones
//     [Order, OrderOfCosts].
//  9. Nothing is left behind and nothing spins: when all callers have returned no
//     goroutine is left, and while all wait none is busy [Goroutines, all].
//
// If the limiter is a [ratelimiter.TryAcquirer] (as [ratelimiter.AsTryAcquirer]
// has it), an [ratelimiter.Adjuster] (as [ratelimiter.AsAdjuster] has it) or an
// [ratelimiter.Observer], the rules of these are checked too: that TryAcquire never waits, overtakes nobody, uses
// nothing up when it refuses, and names a retryAfter at which a grant comes, but
// not a nanosecond before [TryAcquire, TryAcquireInLine, RetryAfter]; that
// AcquireWithin refuses at once what would take longer than its caller wants to
// wait, and nothing else, and gives up in time if it only then turns out to take
// longer [AcquireWithin, AcquireWithinWorse]; that Adjust gives back, never more
// than there was, and collects debts [AdjustRefund, AdjustCapacity, AdjustDebt,
// AdjustSame]; that neither Adjust nor Observe blocks [the same, and Observe].
//
// # Limiters that need more
//
// The kit asks with requests of cost 1 without a key. A limiter with other needs
// is told by [WithRequest] what to be asked for. One whose delays are drawn at
// random is checked with [Random], one that promises no order with [Unordered],
// one that keeps a goroutine until it is closed with [WithClose]. A check that a
// limiter is known not to pass is left out, by name and with the reason, by
// [Without].
//
// # What it cannot do
//
// Bubbles do not see through a lock that is held while waiting, through I/O, nor
// through anything made outside of them. A limiter that waits for such a thing
// fails with a message that says so, after the time of [WithPatience]. Channels
// and timers that two limiters share by way of a package-level variable, such as
// a sync.Pool, make the runtime stop the program ("fatal error: … from outside
// bubble").
//
// A limiter that passes obeys the rules in all situations that the kit brings
// about, which are many but not all. That its rate is the one you want is for a
// test of your own.
package limitertest
