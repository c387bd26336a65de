package foreman

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A timeoutContext is a context.WithTimeout for attempts. It costs a third of that, as it shares its worker's timer, makes
// its channel only when somebody asks for it, and does not register with the run's context: the crew ends the calls of its
// workers itself when it winds down. Like any context it may be kept, shared and derived from, also after the call.
type timeoutContext struct {
	context.Context // of the task
	deadline        time.Time
	unregister      func() bool // from the task's context, when that is not the crew's

	state atomic.Int32 // alive, or the first reason for its end

	mu    sync.Mutex
	over  bool // guarded by mu, like the rest
	done  chan struct{}
	after map[*func()]struct{} // to be called at the end
}

const (
	alive int32 = iota
	struck
	endedWithTask
	endedWithCall
)

// withTimeout starts the timeout of an attempt.
func (w *worker[D, R]) withTimeout(ctx context.Context, d time.Duration) *timeoutContext {
	c := &timeoutContext{Context: ctx, deadline: time.Now().Add(d)}
	if w.ctx != w.crew.ctx {
		c.unregister = context.AfterFunc(w.ctx, func() { c.end(endedWithTask) })
	}
	w.timeout.Store(c)
	w.crew.checkTimeout(c) // the crew may have looked for it just before
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.strike)
	} else {
		w.timer.Reset(d)
	}
	return c
}

func (w *worker[D, R]) endTimeout(c *timeoutContext) {
	w.timer.Stop()
	w.timeout.Store(nil)
	if c.unregister != nil {
		c.unregister()
	}
	c.end(endedWithCall)
}

// strike is what the timer calls. The attempt it was set for may be over, and another one under way.
func (w *worker[D, R]) strike() {
	if c := w.timeout.Load(); c != nil && !time.Now().Before(c.deadline) {
		c.end(struck)
	}
}

// checkTimeout ends a call's context if the crew's has ended.
func (c *Crew[D, R]) checkTimeout(t *timeoutContext) {
	if c.ctx.Err() != nil && t != nil && t.unregister == nil {
		t.end(endedWithTask)
	}
}

// endTimeouts ends the calls that are under way when the crew's context has ended.
func (c *Crew[D, R]) endTimeouts() {
	if c.plan.attemptTimeout == 0 {
		return
	}
	c.mu.Lock()
	workers := c.workers
	c.mu.Unlock()
	for _, w := range workers {
		c.checkTimeout(w.timeout.Load())
	}
}

func (c *timeoutContext) end(why int32) {
	if !c.state.CompareAndSwap(alive, why) {
		return
	}
	c.mu.Lock()
	c.over = true
	if c.done != nil {
		close(c.done)
	}
	after := c.after
	c.after = nil
	c.mu.Unlock()
	for f := range after {
		go (*f)()
	}
}

// Deadline implements [context.Context].
func (c *timeoutContext) Deadline() (time.Time, bool) {
	if d, ok := c.Context.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

// Done implements [context.Context].
func (c *timeoutContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.over {
			close(c.done)
		}
	}
	return c.done
}

// Err implements [context.Context].
func (c *timeoutContext) Err() error {
	switch c.state.Load() {
	case alive:
		return nil
	case struck:
		return context.DeadlineExceeded
	case endedWithTask:
		return c.Context.Err()
	default:
		return context.Canceled
	}
}

// AfterFunc is how package context registers contexts derived from this one without a goroutine for each. f runs on a
// goroutine of its own.
func (c *timeoutContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		go f()
		return func() bool { return false }
	}
	if c.after == nil {
		c.after = make(map[*func()]struct{})
	}
	key := &f
	c.after[key] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, waiting := c.after[key]
		delete(c.after, key)
		return waiting
	}
}
