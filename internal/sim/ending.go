package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock"
)

// An ending is a reason for which a run may end before its work is done.
type ending struct {
	at   time.Duration
	kind string
	// sure says that it ends the run at that instant, unless another one does at the same. Otherwise it may do so then
	// or later.
	sure bool
	// soft says that it is no failure of a run which has nothing left to do.
	soft     bool
	explains func(error) bool // recognises the run's error
}

// ends notes that the run is about to be ended.
func (r *run) ends(e ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endings = append(r.endings, e)
}

// isContextEnd recognises the end of a context with this cause.
func isContextEnd(cause error) func(error) bool {
	return func(err error) bool {
		return errors.Is(err, cause) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	}
}

func isStopped(err error) bool { return err == penstock.ErrStopped }

// hasLeft recognises what hooks see when a consumer has left its loop.
func hasLeft(err error) bool { return strings.Contains(err.Error(), "the consumer left") }

func isTooManyFailures(err error) bool {
	_, ok := errors.AsType[*penstock.TooManyFailuresError](err)
	return ok
}

func isStartTimeout(err error) bool { return errors.Is(err, penstock.ErrStartTimeout) }

// walk calls is for err and all that it wraps until it is true.
func walk(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return walk(err, is) })
	}
	return false
}

// reasons are the endings of a run that may have come first: those of the instant at which it was sure to end, and the
// unsure ones before.
func (r *run) reasons() (at time.Duration, reasons []ending) {
	r.foreseen()
	at = r.endedAt
	for _, e := range r.endings {
		if e.sure {
			at = min(at, e.at)
		}
	}
	for _, e := range r.endings {
		if e.at <= at || !r.exact() {
			reasons = append(reasons, e)
		}
	}
	return at, reasons
}

// foreseen adds the endings that nobody has noted when they came.
func (r *run) foreseen() {
	if r.startTimeout > 0 {
		due := r.startedAt + r.startTimeout
		begun := min(r.first, r.closed)
		for _, it := range r.itemsOf() {
			if it.do && it.in() { // the first item of all did not have to wait for room
				begun = min(begun, it.askedAt)
			}
		}
		late := !r.exact() && (r.plan.source.kind != "slice" || r.plan.way == "Start" || r.plan.way == "Foreman")
		if (begun >= due || late) && due <= r.endedAt {
			r.endings = append(r.endings, ending{at: due, kind: "start timeout", sure: begun > due && r.exact(), explains: isStartTimeout})
		}
	}
	if r.failureLimit > 0 && !r.hooks {
		r.endings = append(r.endings, ending{kind: "failure limit", explains: isTooManyFailures})
	}
}

// checkEnding checks that the run's error says why the run has ended.
func (r *run) checkEnding(items []*item) {
	at, reasons := r.endsAt, r.why
	soft := slices.ContainsFunc(reasons, func(e ending) bool { return e.soft })
	sure := slices.ContainsFunc(reasons, func(e ending) bool { return e.sure })
	cut := 0
	for _, it := range items {
		if it.outcome() == penstock.Unfinished && !it.gaveUp() {
			cut++
		}
	}
	switch err := r.err; {
	case r.left && err != nil:
		r.fail("the consumer has left, and still got the error %v", err)
	case r.left:
	case err == nil && sure && !soft:
		r.fail("it has no error, although it should have ended because of the %s", kinds(reasons))
	case err == nil && cut > 0:
		r.fail("it has no error, although %d items are unfinished", cut)
	case err == nil && r.closed == never && !r.stopped():
		r.fail("it has no error, although its input had not ended")
	case err != nil && !explained(err, reasons):
		r.fail("its error is %v, which does not come from the %s at %v (all: %s)", err, kinds(reasons), at, kinds(r.endings))
	case isStopped(err) && cut == 0 && !r.anyGaveUp(items):
		r.fail("its error is ErrStopped, although nothing was cut off")
	}
	r.checkFailureLimit(items)
	r.checkNothingStartsAfter(at)
}

func explained(err error, reasons []ending) bool {
	return slices.ContainsFunc(reasons, func(e ending) bool { return e.explains(err) })
}

func kinds(reasons []ending) string {
	var names []string
	for _, e := range reasons {
		names = append(names, e.kind)
	}
	if names == nil {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

func (r *run) stopped() bool {
	return slices.ContainsFunc(r.endings, func(e ending) bool { return e.kind == "stop" })
}

// anyGaveUp reports whether some item may be unfinished because the caller of its Do gave up, or the run was stopped.
func (r *run) anyGaveUp(items []*item) bool {
	return slices.ContainsFunc(items, func(it *item) bool {
		o := it.outcome()
		return o == penstock.Unfinished || it.secret()
	})
}

// secret reports whether nobody knows what became of the item, since the caller of its Do gave up.
func (it *item) secret() bool { return it.do && it.outcome() == 0 && it.refusal == nil }

// checkNothingStartsAfter checks that no handler was called once the run had ended.
func (r *run) checkNothingStartsAfter(at time.Duration) {
	if !r.exact() || r.sleeps() { // a hook comes between the decision and the call
		return
	}
	for _, a := range r.attempts {
		if a.run == r && a.began > at {
			a.fail("attempt %d began at %v, after the run had ended at %v", a.number, a.began, at)
		}
	}
}

// checkFailureLimit checks that the limit is inclusive, that the run ends with it, and that the task was published.
func (r *run) checkFailureLimit(items []*item) {
	failed, unknown := 0, 0
	for _, it := range items {
		switch {
		case it.outcome() == penstock.Failed:
			failed++
		case it.secret():
			unknown++
		}
	}
	limit := r.failureLimit
	e, ended := errors.AsType[*penstock.TooManyFailuresError](r.err)
	switch {
	case limit == 0 && ended:
		r.fail("it has no failure limit, and ended with %v", r.err)
	case ended && e.Limit != limit:
		r.fail("the limit is %d, and the error says %d", limit, e.Limit)
	case ended && failed+unknown < limit:
		r.fail("it reached the limit of %d with %d failed tasks", limit, failed)
	case limit > 0 && failed >= limit+r.workers:
		r.fail("%d tasks have failed: the limit is %d, and there are %d workers", failed, limit, r.workers)
	case ended && !slices.ContainsFunc(items, func(it *item) bool { return it.isFailure(e) }):
		r.fail("the task that reached the limit was not published: %v", e)
	}
}

// isFailure reports whether the item is the one that reached the limit.
func (it *item) isFailure(e *penstock.TooManyFailuresError) bool {
	if it.outcome() != penstock.Failed && !it.secret() {
		return false
	}
	if it.do { // its error went to the caller
		return it.label == e.Task
	}
	return len(it.tasks) == 1 && it.tasks[0].ID() == e.Task && it.tasks[0].Err == e.Err
}
