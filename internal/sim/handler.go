package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/retry"
)

var (
	errFlaky = errors.New("it may work next time")
	errFatal = errors.New("it will not work next time either")
)

// A failure is an attempt's own error, and no other attempt's.
type failure struct {
	id, attempt int
	kind        error
}

func (e *failure) Error() string {
	return fmt.Sprintf("item %d, attempt %d: %v", e.id, e.attempt, e.kind)
}
func (e *failure) Unwrap() error { return e.kind }

// resultOf is what an attempt returns when it succeeds.
func resultOf(id, attempt int) int { return id*1000 + attempt }

// handle is the handler of all engines.
func (w *world) handle(ctx context.Context, id int) (result int, err error) {
	a := w.begin(ctx, id)
	defer func() { w.end(a, err) }() // also when it does not return
	if id%8 == 0 {
		runtime.Gosched()
	}
	return w.act(ctx, a)
}

func (w *world) begin(ctx context.Context, id int) *attempt {
	r := contextRun(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	it := w.items[id]
	if it == nil || it.run != r {
		w.fail("the handler was called for item %d, which was not offered to this run", id)
		it = &item{run: w.runs[0], id: id, does: script{{}}}
	}
	a := &attempt{item: it, number: penstock.AttemptNumber(ctx), began: w.now(), ended: never, heard: never}
	a.granted, a.step = a.began, it.does.at(max(a.number, 1))
	if n := len(it.started); n > 0 {
		a.granted = it.started[n-1]
	} else {
		a.vague = w.sleeps() && w.badHook.kind == "AttemptStarted"
	}
	it.beginAttempt(a)
	return a
}

// beginAttempt checks what must be true when a handler is called.
func (it *item) beginAttempt(a *attempt) {
	r := it.run
	if n := int(r.inside.Add(1)); n > r.workers {
		r.fail("%d handlers run at once, with %d workers", n, r.workers)
	}
	if it.running {
		it.fail("attempt %d overlaps the one before", a.number)
	}
	if a.number != len(it.tries)+1 {
		it.fail("attempt %d follows attempt %d", a.number, len(it.tries))
	}
	if it.refusal != nil {
		it.fail("the handler was called although the item was refused with %v", it.refusal)
	}
	if it.taken == never {
		it.take(a.granted, !a.vague)
	}
	if len(it.tries) == 0 && r.plan.way == "IterOrdered" {
		it.checkWindow()
	}
	it.running = true
	it.tries = append(it.tries, a)
	r.attempts = append(r.attempts, a)
}

// take notes that a worker has begun with the item, and when that was, if it is sure and no breaker has come between.
func (it *item) take(at time.Duration, sure bool) {
	it.isAccepted()
	if sure && (it.breaker == nil || it.limits != nil) {
		it.taken = at
	}
	if k := it.plan.source.kind; it.plan.way == "IterResults" && (k == "slice" || k == "chan") {
		it.run.hold(it)
	}
}

// checkWindow checks how far the newest item is ahead of the oldest one not yet yielded.
func (it *item) checkWindow() {
	index, oldest := it.id-it.base, int(it.yielded.Load())
	capacity := it.resultCapacity()
	if size := it.workers + capacity; capacity > 0 && index-oldest >= size {
		it.fail("it was started although item %d was not yet yielded: the window is %d", it.base+oldest, size)
	}
}

func (w *world) end(a *attempt, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.ended, a.err, a.running = w.now(), err, false
	a.inside.Add(-1)
	if hint, ok := retry.RetryAfter(err); ok && w.limits != nil {
		w.limits.hinted(a.ended, hint)
	}
}

// act does what the script says.
func (w *world) act(ctx context.Context, a *attempt) (int, error) {
	if !w.spend(ctx, a) {
		return w.tooLate(ctx, a)
	}
	own := &failure{a.id, a.number, errFlaky}
	switch a.step.do {
	case failing:
		return 0, own
	case hopeless:
		own.kind = errFatal
		if a.step.how == 0 {
			return 0, retry.Permanent(own)
		}
		return 0, own
	case throttled:
		return 0, retry.After(own, a.step.hint)
	case hanging:
		return w.hang(ctx, a)
	case panicking:
		a.lost = panicking
		panic(own)
	case exiting:
		a.lost = exiting
		runtime.Goexit()
	case borrowing:
		return 0, [...]error{context.Canceled, context.DeadlineExceeded, fmt.Errorf("dial: %w", context.DeadlineExceeded), context.Canceled}[a.step.how]
	case submitting:
		a.run.submitMore(ctx, a)
	case meddling:
		a.run.meddle(a)
	}
	return resultOf(a.id, a.number), nil
}

// spend takes the step's time and reports whether its context has let it.
func (w *world) spend(ctx context.Context, a *attempt) bool {
	switch {
	case a.step.do == hanging || a.step.takes == 0:
		return true
	case a.step.deaf:
		time.Sleep(a.step.takes)
		return true
	}
	timer := time.NewTimer(a.step.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		w.hear(ctx, a)
		return false
	}
}

func (w *world) hang(ctx context.Context, a *attempt) (int, error) {
	<-ctx.Done()
	w.hear(ctx, a)
	if a.step.deaf {
		time.Sleep(a.step.takes)
	}
	return w.tooLate(ctx, a)
}

// hear notes that the handler saw its context end.
func (w *world) hear(ctx context.Context, a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.heard, a.heardErr = w.now(), ctx.Err()
}

// tooLate is what a handler returns when its context has ended.
func (w *world) tooLate(ctx context.Context, a *attempt) (int, error) {
	switch a.step.late {
	case contextError:
		return 0, ctx.Err()
	case wrappedError:
		return 0, fmt.Errorf("interrupted: %w", ctx.Err())
	case contextCause:
		return 0, context.Cause(ctx)
	case ownError:
		return 0, &failure{a.id, a.number, errFlaky}
	default:
		return resultOf(a.id, a.number), nil
	}
}
