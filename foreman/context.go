package foreman

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What context.Cause says when one of our own timeouts has struck. Handlers can see it, too.
var (
	errAttemptTimeout = errors.New("penstock: attempt timeout")
	errTaskTimeout    = errors.New("penstock: task timeout")
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
	ctx    context.Context
	cancel context.CancelFunc // of the timeout, if there is one
	began  time.Time
	err    error // what it came to, while hooks and the limiter are told

	elapsed time.Duration
}

// begin makes the context. marked says that ctx says already that it is the first attempt.
func (c *call) begin(ctx context.Context, number int, marked bool, timeout time.Duration) context.Context {
	if number > 1 || !marked {
		ctx = context.WithValue(ctx, attemptKey{}, number)
	}
	if timeout > 0 {
		ctx, c.cancel = context.WithTimeoutCause(ctx, timeout, errAttemptTimeout)
	}
	c.ctx = ctx
	return ctx
}

// cause is why the call's context ended, or nil while it has not.
func (c *call) cause() error { return context.Cause(c.ctx) }

// end releases the context. Only its timer must go; what the handler keeps of it stays valid, and ended.
func (c *call) end() {
	if c.cancel != nil {
		c.cancel()
		c.cancel = nil
	}
	c.ctx, c.err = nil, nil
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
