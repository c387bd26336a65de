// Package breaker is a circuit breaker that makes attempts wait.
//
// A service that fails for everybody is not helped by more calls, and the calls are not helped either. A [Breaker]
// counts failures; when there are too many of them within a window it opens, and nobody calls for a while. Then it lets a
// few attempts through to see how the service is: the probes. If enough of them succeed it closes and all is as before;
// if not, it opens again.
//
//	closed ── threshold failures within the window ──▶ open
//	open ── the cooldown is over ──▶ half-open
//	half-open ── enough probes succeeded ──▶ closed
//	half-open ── too many failed, or one takes too long ──▶ open
//
// Other breakers refuse calls while they are open. This one never does: whoever asks waits, in order of arrival, until
// an attempt may be made or the context ends. Work is slowed down by a failing service; it is not lost by it.
//
// # Where it stands
//
// The breaker stands in front of the limiter, and nothing of the limiter's is used up while it is open. As the limiter
// may take its time, asking and starting are two steps. The life of one attempt:
//
//	for {
//		if err := b.Wait(ctx); err != nil {
//			return err // ctx has ended; a breaker has no errors of its own
//		}
//		if err := limiter.Acquire(ctx, req); err != nil {
//			b.Skip() // there will be no attempt
//			return err
//		}
//		ticket, ok := b.Enter()
//		if ok {
//			err = call(ctx)
//			b.Leave(ticket, report(err))
//			return err
//		}
//		// It opened while we waited for the limiter: give the grant back, if the limiter takes it, and start over.
//	}
//
// Package penstock does all of this for an engine with WithBreaker.
//
// # Time
//
// A Breaker keeps no goroutine. Its one timer is set while it is open or probes are running, and nothing polls. Its
// clock is its own and starts with it, so a Breaker made in a testing/synctest bubble works there, exact to the
// nanosecond. Half-open has no end of its own: as long as nobody wants to make an attempt, or the limiter takes its
// time, it stays.
//
// # Why not gobreaker
//
// The usual library, github.com/sony/gobreaker/v2 (v2.4.0 was read), is a good breaker of the refusing kind and cannot
// be made into this one from outside. In half-open the first failure opens it and only an unbroken row of successes
// closes it: there is no ratio. A probe that hangs keeps its place for ever, since half-open has no end of its own. It
// refuses with an error that does not say until when, changes from open to half-open only when somebody asks, and tells
// nobody, so that waiting would be polling. Callbacks run under its mutex, its window moves in buckets, and its two-step
// form, which this needs, allocates for every call. What would be left of it is a counter.
package breaker
