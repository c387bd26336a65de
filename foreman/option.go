package foreman

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Unlimited is the capacity of a queue without a bound.
const Unlimited = math.MaxInt

// An Option sets one thing about a [Plan]. An option given twice counts as given last, but every WithHooks is added.
// Options are values: they can be kept and used for many plans.
type Option interface{ apply(*settings) }

type option func(*settings)

func (o option) apply(s *settings) { o(s) }

// settings is what the options say, before New knows the types of the items and checks it all.
type settings struct {
	limiter        ratelimiter.Limiter
	hasLimiter     bool
	key            any // func(D) string
	cost           any // func(D) int
	priority       any // func(D) int
	retry          retry.Policy
	attemptTimeout *time.Duration
	taskTimeout    *time.Duration
	startTimeout   *time.Duration
	failureLimit   *int
	inputCapacity  *int
	resultCapacity *int
	batch          *int
	maxWait        *time.Duration
	breaker        *breaker.Breaker
	hasBreaker     bool
	hooks          []Hooks
	logger         *slog.Logger
}

// WithLimiter makes every attempt, retries too, acquire l before the handler is called. While it waits, the task
// occupies its worker. One limiter may be shared by many plans. The default is no limiter.
func WithLimiter(l ratelimiter.Limiter) Option {
	return option(func(s *settings) { s.limiter, s.hasLimiter = l, true })
}

// WithKey tells a keyed limiter the key of an item. D must be the item type of the plan. It is called once for each
// task, on its worker. A panic in it ends the run with a [CallbackError]. The default key is "".
func WithKey[D any](key func(D) string) Option { return option(func(s *settings) { s.key = key }) }

// WithCost tells a weighted limiter what an item costs. D must be the item type of the plan. It is called once for
// each task, on its worker. A negative cost or a panic in it ends the run with a [CallbackError]. The default
// cost is 1, and 0 counts as 1.
func WithCost[D any](cost func(D) int) Option { return option(func(s *settings) { s.cost = cost }) }

// WithPriority lets pending items overtake each other: the lowest value runs first, equals in order of arrival. It
// orders what is in the input queue, so it has no effect on sources that workers take from directly (a slice, a
// channel). D must be the item type of the plan. A panic in it ends the run with a [CallbackError]. By default, and for
// items submitted without a priority, the priority is 0.
func WithPriority[D any](priority func(D) int) Option {
	return option(func(s *settings) { s.priority = priority })
}

// WithRetry sets what is retried, how often and when. The default is no retries.
func WithRetry(p retry.Policy) Option { return option(func(s *settings) { s.retry = p }) }

// WithAttemptTimeout limits each handler call, waits for the limiter and for retries excluded. When it strikes, the
// handler's context ends, and the attempt is over when the handler returns: an attempt never overlaps its own retry. A
// handler that returns a value after all has succeeded; one that returns the context's error has failed with a
// [TimeoutError], which is retried like any other error. d must be positive. The default is no limit.
func WithAttemptTimeout(d time.Duration) Option {
	return option(func(s *settings) { s.attemptTimeout = &d })
}

// WithTaskTimeout limits the whole life of a task after a worker has taken it: waits for the limiter, attempts and
// backoffs together. A task that runs out of it has failed with a [TimeoutError]. d must be positive. The default is no
// limit.
func WithTaskTimeout(d time.Duration) Option {
	return option(func(s *settings) { s.taskTimeout = &d })
}

// WithStartTimeout ends a run with [ErrStartTimeout] when its first item has not come after d and its input is still
// open. A slice has come at once. d must be positive. The default is to wait for ever.
func WithStartTimeout(d time.Duration) Option {
	return option(func(s *settings) { s.startTimeout = &d })
}

// WithFailureLimit ends a run with a [TooManyFailuresError] when n tasks have failed, after the n-th was published.
// Tasks that were shed or left unfinished do not count, nor do attempts that are retried. n must be positive. The
// default is no limit.
func WithFailureLimit(n int) Option { return option(func(s *settings) { s.failureLimit = &n }) }

// WithInputCapacity sets how many accepted items may wait for a worker; n is positive, or [Unlimited].
func WithInputCapacity(n int) Option { return option(func(s *settings) { s.inputCapacity = &n }) }

// WithResultCapacity sets how many results may wait for their reader before the workers wait too; n is positive, or
// [Unlimited]. A reader that takes them all in one go shares twice as many with what it has in its hands.
func WithResultCapacity(n int) Option { return option(func(s *settings) { s.resultCapacity = &n }) }

// WithBatch moves up to n items per hand-over, in and out, where as many are there: more throughput for small items,
// while results of one batch come together when its last item has ended. No item ever waits for a batch to fill, and a
// worker never takes more than its share of what is pending. n must be positive. The default is 1, except that a batch over a
// slice may claim several tiny items at a time: see ProcessAll of package penstock. WithBatch(1) forbids that too.
func WithBatch(n int) Option { return option(func(s *settings) { s.batch = &n }) }

// WithShed gives up a task instead of waiting when the limiter would hold an attempt longer than maxWait; 0 sheds
// everything that cannot start at once. It needs a limiter that is a [ratelimiter.TryAcquirer]. A shed task has the
// Outcome [Shed] and a [ShedError], and counts neither as failed nor for the failure limit. Retries are shed like first
// attempts. The default is to wait.
func WithShed(maxWait time.Duration) Option {
	return option(func(s *settings) { s.maxWait = &maxWait })
}

// WithBreaker puts a circuit breaker in front of the limiter. While it is open attempts wait, nothing of the limiter's is
// used up, and nothing is shed. It is told how each attempt ended; attempts that were cancelled do not count. One breaker
// may be shared by many plans. A panic in its Trip function ends the run with a [CallbackError]. The default is none.
func WithBreaker(b *breaker.Breaker) Option {
	return option(func(s *settings) { s.breaker, s.hasBreaker = b, true })
}

// WithHooks adds functions that are told what happens. Several sets are all called, in the order they were given.
func WithHooks(h Hooks) Option { return option(func(s *settings) { s.hooks = append(s.hooks, h) }) }

// WithLogger logs failed attempts at Warn and the life of runs at Debug. The default is silence, except that a
// panicking hook is logged by slog.Default.
func WithLogger(l *slog.Logger) Option { return option(func(s *settings) { s.logger = l }) }

// A Plan says what is to be done with each task, and under which limits. It is immutable, safe for concurrent use, and
// may serve any number of crews.
type Plan[D, R any] struct {
	handler func(context.Context, D) (R, error)
	workers int

	limiter  ratelimiter.Limiter
	try      ratelimiter.TryAcquirer // set exactly when tasks are shed
	observer ratelimiter.Observer    // the limiter again, when it wants to hear of outcomes
	key      func(D) string
	cost     func(D) int
	priority func(D) int
	maxWait  time.Duration
	breaker  *breaker.Breaker

	retry          retry.Policy
	attemptTimeout time.Duration // 0: none
	taskTimeout    time.Duration // 0: none
	startTimeout   time.Duration // 0: none
	failureLimit   int           // 0: none
	inputCapacity  int
	resultCapacity int
	batch          int
	oneByOne       bool

	hooks hookSet
	log   *logger
	bare  bool // there is nothing but the handler
	timed bool // the length of an attempt is wanted
}

// NewPlan checks everything and returns the plan, or an error that names every fault: one [OptionError] for each.
// inputs and results are the capacities used when no option sets them.
func NewPlan[D, R any](handler func(context.Context, D) (R, error), workers, inputs, results int, opts ...Option) (*Plan[D, R], error) {
	var s settings
	var faults faults
	for i, o := range opts {
		if o == nil {
			faults.add("options", "option %d is nil: leave it out", i+1)
			continue
		}
		o.apply(&s)
	}
	if handler == nil {
		faults.add("handler", "is nil: it is the function that processes one item")
	}
	if workers < 1 {
		faults.add("workers", "is %d: at least 1 is needed", workers)
	}
	p := &Plan[D, R]{
		handler: handler, workers: workers, limiter: s.limiter, retry: s.retry, breaker: s.breaker,
		attemptTimeout: faults.positive("WithAttemptTimeout", s.attemptTimeout),
		taskTimeout:    faults.positive("WithTaskTimeout", s.taskTimeout),
		startTimeout:   faults.positive("WithStartTimeout", s.startTimeout),
		failureLimit:   faults.count("WithFailureLimit", s.failureLimit, 0, "leave the option out for no limit"),
		inputCapacity:  faults.count("WithInputCapacity", s.inputCapacity, inputs, "Unlimited means no bound"),
		resultCapacity: faults.count("WithResultCapacity", s.resultCapacity, results, "Unlimited means no bound"),
		batch:          faults.count("WithBatch", s.batch, 1, "1 means no batching"),
		oneByOne:       s.batch != nil && *s.batch == 1,
		key:            typed[D, string](&faults, "WithKey", s.key),
		cost:           typed[D, int](&faults, "WithCost", s.cost),
		priority:       typed[D, int](&faults, "WithPriority", s.priority),
	}
	p.setLimiter(&s, &faults)
	if s.hasBreaker && s.breaker == nil {
		faults.add("WithBreaker", "the breaker is nil: leave the option out (did its constructor return an error?)")
	}
	if err := s.retry.Validate(); err != nil {
		faults.add("WithRetry", "%v", err)
	}
	p.log = &logger{s.logger}
	p.hooks = newHookSet(s.hooks, p.log)
	p.timed = p.hooks.has[attemptEnded] || p.hooks.has[retryScheduled] || s.logger != nil
	p.bare = p.limiter == nil && p.breaker == nil && p.retry.Max == 0 && !p.retry.FreeThrottled && p.retry.Budget == nil && p.attemptTimeout == 0 && p.taskTimeout == 0 && len(s.hooks) == 0 && s.logger == nil
	if err := faults.join(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plan[D, R]) setLimiter(s *settings, faults *faults) {
	if s.hasLimiter && isNil(s.limiter) {
		faults.add("WithLimiter", "the limiter is nil: leave the option out for no limit (did its constructor return an error?)")
		return
	}
	p.observer, _ = s.limiter.(ratelimiter.Observer)
	if s.maxWait == nil {
		return
	}
	p.maxWait = *s.maxWait
	if p.maxWait < 0 {
		faults.add("WithShed", "the longest wait is %v: it must be 0 or more", p.maxWait)
	}
	try, ok := ratelimiter.AsTryAcquirer(s.limiter)
	switch {
	case ok:
		p.try = try
	case s.limiter == nil:
		faults.add("WithShed", "there is no limiter to shed by: add WithLimiter")
	default:
		faults.add("WithShed", "the limiter %T cannot say how long it would wait: it must be a ratelimiter.TryAcquirer, and so must every limiter that it wraps", s.limiter)
	}
}

// Workers is the number of workers that a crew of this plan has at most.
func (p *Plan[D, R]) Workers() int { return p.workers }

// InputCapacity is how many accepted items may wait for a worker.
func (p *Plan[D, R]) InputCapacity() int { return p.inputCapacity }

// ResultCapacity is how many results may wait for their reader.
func (p *Plan[D, R]) ResultCapacity() int { return p.resultCapacity }

// Batch is how many items move per hand-over at most.
func (p *Plan[D, R]) Batch() int { return p.batch }

// OneByOne reports whether WithBatch(1) was given: every item is to be handed over by itself.
func (p *Plan[D, R]) OneByOne() bool { return p.oneByOne }

// weighs reports whether a limiter is told what tasks cost.
func (p *Plan[D, R]) weighs() bool { return p.cost != nil && p.limiter != nil }

// tellsEnd reports whether the user's code is called at the end of a run.
func (p *Plan[D, R]) tellsEnd() bool { return p.hooks.has[runEnded] || p.log.l != nil }

// faults collects what was wrong with the arguments of a constructor.
type faults []error

func (f *faults) add(name, format string, args ...any) {
	*f = append(*f, &OptionError{Option: name, Problem: fmt.Sprintf(format, args...)})
}

func (f *faults) join() error { return errors.Join(*f...) }

// positive returns the duration that was set, or 0 when none was.
func (f *faults) positive(name string, d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	if *d <= 0 {
		f.add(name, "is %v: it must be positive; leave the option out for no limit", *d)
	}
	return *d
}

// count returns the number that was set, or the default when none was.
func (f *faults) count(name string, n *int, byDefault int, hint string) int {
	if n == nil {
		return byDefault
	}
	if *n < 1 {
		f.add(name, "is %d: it must be at least 1; %s", *n, hint)
	}
	return *n
}

// typed returns the function that was set, which must take the plan's item type, or nil when none was.
func typed[D, V any](f *faults, name string, fn any) func(D) V {
	if fn == nil {
		return nil
	}
	typed, ok := fn.(func(D) V)
	if !ok {
		f.add(name, "the function is a %T, but the items are %v: it must be a %T", fn, reflect.TypeFor[D](), typed)
	} else if typed == nil {
		f.add(name, "the function is nil: leave the option out")
	}
	return typed
}

// isNil sees through an interface that holds a nil pointer: a limiter whose constructor failed.
func isNil(l ratelimiter.Limiter) bool {
	v := reflect.ValueOf(l)
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map:
		return v.IsNil()
	}
	return false
}
