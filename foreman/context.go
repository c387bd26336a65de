package foreman

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

type attemptKey struct{}

// AttemptNumber tells a handler which attempt of its task this is, from 1, by the context it was called with. For other
// contexts of a run it is 1, and for one that does not come from a run 0.
func AttemptNumber(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

// A call is the context of one handler call. Without a timeout a task's first call uses the task's context as it is.
type call struct {
	ctx     context.Context
	timeout *timeoutContext // ctx, if the attempt has a timeout
	began   time.Time
	elapsed time.Duration
	err     error // what it came to, while hooks and the limiter are told
}

// beginCall makes the context of an attempt. marked says that the task's context says already that it is the first.
func (w *worker[D, R]) beginCall(number int, marked bool) context.Context {
	ctx := w.ctx
	if number > 1 || !marked {
		ctx = context.WithValue(ctx, attemptKey{}, number)
	}
	if d := w.plan.attemptTimeout; d > 0 {
		w.call.timeout = w.limitAttempt(ctx, d)
		ctx = w.call.timeout
	}
	w.call.ctx = ctx
	return ctx
}

// endCall releases the context. What the handler keeps of it stays valid, and ended.
func (w *worker[D, R]) endCall() {
	if w.call.timeout != nil {
		w.attemptAlarm.release(w.call.timeout)
	}
	if w.entered { // the attempt came to nothing that could be told
		w.leaveBreaker(breaker.Ignored)
	}
	w.call.ctx, w.call.timeout, w.call.err = nil, nil, nil
}

func badCost(cost int) error {
	return fmt.Errorf("the cost is %d: it must not be negative", cost)
}

// wait sleeps for d, or until ctx ends, and reports whether it slept to the end and ctx goes on.
func wait(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
