package sim

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/retry"
)

// A badCall is one call of one of the user's functions that goes wrong, which ends the run.
type badCall struct {
	of   string // which function
	does string // "panic", "exit", "error" or "negative"
	at   int64  // the number of the call
}

var badCalls = map[string][]string{
	"key":      {"panic", "exit"},
	"cost":     {"panic", "exit", "negative"},
	"priority": {"panic"},
	"backoff":  {"panic", "exit", "negative"},
	"retry":    {"panic", "exit"},
	"breaker":  {"panic", "exit"},
	"limiter":  {"panic", "exit", "error"},
	"observer": {"panic", "exit"},
}

// drawBadCall draws a function that this scenario has.
func (s *Scenario) drawBadCall() {
	r := s.part("bad call", 15)
	if r == nil {
		return
	}
	var there []string
	for name, has := range map[string]bool{
		"key": s.limiter != nil, "cost": s.limiter != nil, "limiter": s.limiter != nil, "observer": s.limiter != nil,
		"priority": s.priority, "backoff": s.retry != nil, "retry": s.retry != nil, "breaker": s.breaker != nil,
	} {
		if has {
			there = append(there, name)
		}
	}
	if len(there) == 0 {
		return
	}
	slices.Sort(there)
	of := pick(r, there...)
	s.badCall = &badCall{of: of, does: pick(r, badCalls[of]...), at: int64(pick(r, 1, 2, 3, 5, 8, 13))}
	s.note("bad call %+v", *s.badCall)
}

// A badCallError is what a panicking function panics with.
type badCallError struct{ of string }

func (e *badCallError) Error() string { return "the " + e.of + " function is broken" }

// goesWrong reports whether this call of a function is the one that goes wrong, and panics or ends its goroutine if that
// is what it does. r is the run that it was called for, or nil when that is not known; sure says that the run must end.
func (w *world) goesWrong(of string, r *run, sure bool) bool {
	b := w.badCall
	if b == nil || b.of != of || w.badCalls.Add(1) != b.at {
		return false
	}
	err := &badCallError{of}
	why := ending{at: w.now(), kind: of, sure: sure, explains: isCallbackError(of, b.does, err)}
	if r != nil {
		r.ends(why)
	} else {
		why.sure = false
		for _, r := range w.runs {
			r.ends(why)
		}
	}
	switch b.does {
	case "panic":
		panic(err)
	case "exit":
		runtime.Goexit()
	}
	return true
}

// isCallbackError recognises the run's error after a function went wrong.
func isCallbackError(of, does string, mark error) func(error) bool {
	return func(err error) bool {
		return walk(err, func(err error) bool {
			switch e := err.(type) {
			case *penstock.CallbackError:
				return e.Callback == of && caused(e.Err, does, mark)
			case *penstock.LimiterError:
				return (of == "limiter" || of == "observer") && caused(e.Err, does, mark)
			}
			return false
		})
	}
}

func caused(err error, does string, mark error) bool {
	switch does {
	case "panic":
		p, ok := errors.AsType[*penstock.PanicError](err)
		return ok && p.Value == mark && errors.Is(err, mark)
	case "exit":
		return errors.Is(err, penstock.ErrGoexit)
	case "error":
		return errors.Is(err, errLimiterBroke)
	}
	return err != nil
}

// runOf finds the run of an item's error, if it says whose it is.
func (w *world) runOf(err error) *run {
	if f, ok := errors.AsType[*failure](err); ok {
		return w.runs[f.id/room]
	}
	return nil
}

func (w *world) keyOf(id int) string {
	w.noteTaken(id)
	w.goesWrong("key", w.runs[id/room], true)
	return keyOf(id)
}

func keyOf(id int) string { return "key " + strconv.Itoa(id%3) }

func (w *world) costOf(id int) int {
	// A negative one is looked at when the breaker lets it, unless the task's timeout has struck meanwhile.
	late := w.badCall != nil && w.badCall.does == "negative" && (w.breaker != nil || w.taskTimeout > 0 && !w.exact())
	if w.goesWrong("cost", w.runs[id/room], !late) {
		return -1
	}
	return w.cost(id)
}

func (w *world) cost(id int) int {
	if !w.limiter.weighted {
		return 1
	}
	return id % 4 // 0 counts as 1
}

func (w *world) noteTaken(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if it := w.items[id]; it != nil {
		it.take(w.now(), true)
	} else {
		w.fail("the key was asked of item %d, which was never offered", id)
	}
}

func (w *world) priorityOf(id int) int {
	r := w.runs[id/room]
	w.goesWrong("priority", r, !r.early.Load() && !r.mayEnd()) // before the start and after the end there is nothing to end
	return priorityOf(id)
}

func priorityOf(id int) int { return id*7%5 - 2 }

// A retryPlan is a retry policy.
type retryPlan struct {
	max      int
	free     bool
	longest  time.Duration // MaxRetryAfter
	constant time.Duration // the backoff; 0: none
	jitter   bool          // an exponential one
	filter   string
	burst    int // of the budget; 0: none
	ratio    float64
}

func (s *Scenario) drawRetry() {
	r := s.part("retry", 60)
	if r == nil {
		return
	}
	s.retry = &retryPlan{max: pick(r, 0, 1, 1, 2, 3, 10), filter: pick(r, "", "", "unless fatal", "if flaky")}
	if r.IntN(2) == 0 {
		s.retry.constant, s.retry.jitter = s.span(r), r.IntN(3) == 0
	}
	if r.IntN(3) == 0 {
		s.retry.longest = s.span(r)
	}
	if f := s.part("free throttled", 30); f != nil {
		s.retry.free = true
	}
	if b := s.part("retry budget", 20); b != nil {
		s.retry.burst, s.retry.ratio = pick(b, 1, 2, 10), pick(b, 0.1, 0.5, 1)
	}
	s.note("retry %+v", *s.retry)
}

func (w *world) policy() retry.Policy {
	p := w.retry
	policy := retry.Policy{Max: p.max, FreeThrottled: p.free, MaxRetryAfter: p.longest}
	if p.burst > 0 {
		w.budget, _ = retry.NewBudget(p.ratio, p.burst)
		policy.Budget = w.budget
	}
	backoff := retry.Constant(p.constant)
	if p.jitter {
		backoff = retry.Exponential(p.constant, 8*p.constant)
	}
	policy.Backoff = func(failed int, err error) time.Duration {
		if w.goesWrong("backoff", w.runOf(err), true) {
			return -1
		}
		return backoff(failed, err)
	}
	if p.filter != "" || w.badCall != nil {
		policy.If = func(err error) bool {
			w.goesWrong("retry", w.runOf(err), true)
			return p.retryable(err)
		}
	}
	return policy
}

// retryable says what the policy retries, permanent errors aside.
func (p *retryPlan) retryable(err error) bool {
	switch p.filter {
	case "unless fatal":
		return !errors.Is(err, errFatal)
	case "if flaky":
		return errors.Is(err, errFlaky)
	}
	return true
}

// hint is how long err asks to wait, capped.
func (p *retryPlan) hint(err error) time.Duration {
	d, _ := retry.RetryAfter(err)
	limit := retry.DefaultMaxRetryAfter
	if p != nil && p.longest > 0 {
		limit = p.longest
	}
	return min(d, limit)
}

// A breakerPlan is a circuit breaker.
type breakerPlan struct {
	threshold, probes int
	window, cooldown  time.Duration
	ratio             float64
}

func (s *Scenario) drawBreaker() {
	if r := s.part("breaker", 15); r != nil {
		s.breaker = &breakerPlan{pick(r, 1, 2, 3, 10), pick(r, 1, 2, 5), s.span(r), s.span(r), pick(r, 0.5, 0.8, 1)}
		s.note("breaker %+v", *s.breaker)
	}
}

func (w *world) newBreaker() *breaker.Breaker {
	p := w.breaker
	b, err := breaker.New(
		breaker.WithThreshold(p.threshold, p.window), breaker.WithCooldown(p.cooldown), breaker.WithProbes(p.probes, p.ratio),
		breaker.WithTrip(func(err error) bool {
			r := w.runOf(err)
			_, lost := errors.AsType[*penstock.PanicError](err)
			w.goesWrong("breaker", r, !lost && err != penstock.ErrGoexit)
			return true
		}),
		breaker.WithOnChange(w.breakerChanged),
	)
	if err != nil {
		w.fail("the breaker was refused: %v", err)
	}
	return b
}

func (w *world) breakerChanged(from, to breaker.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.opened); from == breaker.Open && n > 0 {
		w.opened[n-1].to = w.now()
	}
	if to == breaker.Open {
		w.opened = append(w.opened, span{w.now(), never})
	}
}

// contextRun is the run that a call was made for.
func contextRun(ctx context.Context) *run {
	r, _ := ctx.Value(runKey{}).(*run)
	return r
}
