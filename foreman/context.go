package foreman

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
)

type (
	attemptKey struct{}
	requestKey struct{}
)

// AttemptNumber tells a handler which attempt of its task this is, from 1, by the context it was called with. For other
// contexts of a run it is 1, and for one that does not come from a run 0.
func AttemptNumber(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

// AttemptRequest tells a handler, by the context it was called with, what the plan's limiter was asked for its attempt, for
// [ratelimiter.Adjuster] when the true cost is known. It is known where WithCost is set; elsewhere the request is zero and ok
// is false.
func AttemptRequest(ctx context.Context) (req ratelimiter.Request, ok bool) {
	r, ok := ctx.Value(requestKey{}).(*ratelimiter.Request)
	if !ok {
		return ratelimiter.Request{}, false
	}
	return *r, true
}

// A mark is what the context of an attempt says about it.
type mark struct {
	number  int                 // 0: nothing
	request ratelimiter.Request // if the plan has costs; its Attempt is 0 otherwise
}

func (m *mark) value(key any) (v any, ok bool) {
	switch {
	case m.number == 0:
	case key == attemptKey{}:
		return m.number, true
	case key == requestKey{} && m.request.Attempt > 0:
		return &m.request, true
	}
	return nil, false
}

// An attemptContext is the context of an attempt that has no timeout.
type attemptContext struct {
	context.Context
	mark mark
}

func (c *attemptContext) Value(key any) any {
	if v, ok := c.mark.value(key); ok {
		return v
	}
	return c.Context.Value(key)
}

// String leaves the mark out.
func (c *attemptContext) String() string { return fmt.Sprint(c.Context) }

// AfterFunc is for contexts derived from this one, which would not see that of the context it is made from.
func (c *attemptContext) AfterFunc(f func()) (stop func() bool) {
	return context.AfterFunc(c.Context, f)
}

// A call is the context of one handler call. Without a timeout a task's first call uses the task's context as it is.
type call struct {
	ctx     context.Context
	timeout *timeoutContext // ctx, if the attempt has a timeout
	began   time.Time
	elapsed time.Duration
	err     error // what it came to, while hooks and the limiter are told
}

// mark is what the context of an attempt says.
func (w *worker[D, R]) mark(number int) mark {
	m := mark{number: number}
	if w.plan.weighs() {
		m.request = w.req
		m.request.Attempt = number
	}
	return m
}

// beginCall makes the context of an attempt. first says that the task's context is as good as that of its first attempt.
func (w *worker[D, R]) beginCall(number int, first bool) context.Context {
	ctx := w.ctx
	switch d := w.plan.attemptTimeout; {
	case d > 0:
		w.call.timeout = w.limitAttempt(d, w.mark(number))
		ctx = w.call.timeout
	case number == 1 && (w.limited != nil || first && !w.plan.weighs()):
	default:
		ctx = &attemptContext{ctx, w.mark(number)}
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
