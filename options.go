package penstock

import (
	"log/slog"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Unlimited is the capacity of a queue without a bound.
const Unlimited = foreman.Unlimited

// An Option sets one thing about an [Engine]. New checks them all. An option given twice counts as given last, but every
// WithHooks is added. Options are plain values that may be kept and used for many engines; the same ones configure a
// [foreman.Foreman].
type Option = foreman.Option

// WithLimiter makes every attempt, retries too, acquire l before the handler is called. While it waits, the item occupies
// its worker. One limiter may be shared by many engines. The default is no limiter.
//
// A limiter that returns an error of its own ends the run with a *[LimiterError]. One that can never grant a request
// (ratelimiter.ErrNeverGranted, such as a cost above the limit) fails that task only.
func WithLimiter(l ratelimiter.Limiter) Option { return foreman.WithLimiter(l) }

// WithKey tells a keyed limiter the key of an item. D must be the engine's item type, which New checks. The function is
// called once for each task, on its worker; a panic in it ends the run with a *[CallbackError]. The default key is "", the same
// for all. A worker waits for the limiter with its item in hand, so a busy key can hold up the items of others behind it.
func WithKey[D any](key func(D) string) Option { return foreman.WithKey(key) }

// WithCost tells a weighted limiter what an item costs. D must be the engine's item type, which New checks. The function
// is called once for each task, on its worker. A negative cost, or a panic, ends the run with a *[CallbackError]. The
// default cost is 1, and 0 counts as 1. The handler may correct it when it knows better: see [AttemptRequest].
func WithCost[D any](cost func(D) int) Option { return foreman.WithCost(cost) }

// WithPriority lets pending items overtake each other: the lowest value runs first, equals in order of arrival. D must be
// the engine's item type, which New checks.
//
// It orders what waits in the input queue and nothing else: there is no pre-emption, submitters that wait for room are
// admitted in order of arrival, and sources that workers take from directly (a slice, a channel) have no queue to order.
// Priority is strict: while more urgent items keep coming, the others wait. A panic in the function ends the run with a
// *[CallbackError]. By default the priority is 0, also for an item submitted without [AtPriority].
func WithPriority[D any](priority func(D) int) Option { return foreman.WithPriority(priority) }

// WithRetry sets which errors are retried, how often and when. A worker keeps its item through retries, and every attempt
// acquires the limiter again. Panics and Goexit are never retried. The default is no retries.
func WithRetry(p retry.Policy) Option { return foreman.WithRetry(p) }

// WithAttemptTimeout limits each handler call; waits for the limiter and between retries do not count. When it strikes,
// the handler's context ends, and the attempt is over when the handler has returned: an attempt never overlaps its own
// retry. A handler that returns a value after all has succeeded. One that returns its context's error has failed with a
// *[TimeoutError], which is retried like any other error. Any other error stays as it is. d must be positive. The default
// is no limit.
func WithAttemptTimeout(d time.Duration) Option { return foreman.WithAttemptTimeout(d) }

// WithTaskTimeout limits the whole life of a task after a worker has taken it: limiter, attempts and backoffs together. A
// task that runs out of it has failed with a *[TimeoutError] through which its last attempt's error is still visible. d
// must be positive. The default is no limit.
func WithTaskTimeout(d time.Duration) Option { return foreman.WithTaskTimeout(d) }

// WithStartTimeout ends a run with [ErrStartTimeout] when its first item has not come within d and its input is still
// open. The items of a slice have come at once. d must be positive. The default is to wait for ever.
func WithStartTimeout(d time.Duration) Option { return foreman.WithStartTimeout(d) }

// WithFailureLimit ends a run with a *[TooManyFailuresError] when n of its tasks have failed, after the n-th was
// published. Shed and unfinished tasks do not count, nor do attempts that are retried. Tasks that end while the run is
// being cancelled may take the number above n. n must be positive. The default is no limit.
func WithFailureLimit(n int) Option { return foreman.WithFailureLimit(n) }

// WithInputCapacity sets how many accepted items may wait for a worker. n must be positive, or [Unlimited]. The default is
// the number of workers.
func WithInputCapacity(n int) Option { return foreman.WithInputCapacity(n) }

// WithResultCapacity sets how many results may wait for their reader before the workers wait too. In a loop over IterResults
// that is twice as many, those included that the loop has taken in one go and not yielded yet. n must be positive, or
// [Unlimited]. The default is the number of workers.
func WithResultCapacity(n int) Option { return foreman.WithResultCapacity(n) }

// WithBatch moves up to n items per hand-over, in and out, where that many are there: more throughput for small items,
// while the results of one batch come together, when its last item has ended. No item ever waits for a batch to fill, and
// a worker never takes more than its share of what is pending. Handlers still get one item per call. n must be positive.
// The default is 1, except that ProcessAll may have a worker claim several tiny items at once, which WithBatch(1) forbids.
func WithBatch(n int) Option { return foreman.WithBatch(n) }

// WithShed gives a task up instead of waiting when the limiter would hold an attempt longer than maxWait; 0 sheds
// everything that cannot start at once. It needs a limiter that is a [ratelimiter.TryAcquirer]. A shed task has the
// Outcome Shed and a *[ShedError], calls no handler, and counts neither as failed nor towards the failure limit. Retries
// are shed like first attempts. Only the wait for the limiter counts, not that for a worker: to shed whatever comes too late,
// have as many workers as items may be under way. The default is to wait.
func WithShed(maxWait time.Duration) Option { return foreman.WithShed(maxWait) }

// WithBreaker puts a circuit breaker in front of the limiter. While it is open attempts wait, nothing of the limiter's is
// used up, and nothing is shed, whatever WithShed says: the items are fine, their service is not. It is told how each
// attempt ended; attempts that were cancelled do not count. One breaker may be shared by many engines. A panic in its
// Trip function ends the run with a *[CallbackError]. The default is none.
func WithBreaker(b *breaker.Breaker) Option { return foreman.WithBreaker(b) }

// WithHooks adds functions that are told what happens. Several sets are all called, in the order they were given. A hook
// that panics is logged and otherwise ignored.
func WithHooks(h Hooks) Option { return foreman.WithHooks(h) }

// WithLogger logs failed attempts at Warn, and scheduled retries and the life of runs at Debug. The default is silence,
// except that a panicking hook is logged by slog.Default.
func WithLogger(l *slog.Logger) Option { return foreman.WithLogger(l) }
