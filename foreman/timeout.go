package foreman

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A timeoutContext is a context.WithTimeout for attempts and tasks. It costs about half of that, as it shares its worker's timer,
// makes its channel only when somebody asks for it, and does not register with the run's context or that of its worker's
// task: the crew ends what its workers have under way itself when it winds down, and a task its attempt. Like any context it
// may be kept, shared and derived from, also after its end.
type timeoutContext struct {
	context.Context // the one it is made from
	deadline        time.Time
	within          *timeoutContext // of the task that the attempt belongs to, if that has a timeout
	registered      bool            // with a context that knows nothing of us
	unregister      func() bool     // from it; the worker's
	mark            mark

	mu sync.Mutex
	// Guarded by mu.
	state atomic.Int32 // alive, or the first reason for its end; read without the lock too
	done  chan struct{}
	inner *alarm               // of the attempts of this task, until its end
	after map[*func()]struct{} // to be called at the end
}

const (
	alive int32 = iota
	struck
	endedBefore // the context it is made from has ended
	released
)

// An alarm is what a worker times its attempts with, or its tasks, one after the other.
type alarm struct {
	timer *time.Timer                    // made when it is first needed
	ctx   atomic.Pointer[timeoutContext] // what it is set for; nil: nothing
}

func (a *alarm) set(c *timeoutContext, d time.Duration) {
	a.ctx.Store(c)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.strike)
	} else {
		a.timer.Reset(d)
	}
}

// strike is what the timer calls. What it was set for may be over, and something else under way.
func (a *alarm) strike() {
	if c := a.ctx.Load(); c != nil && !time.Now().Before(c.deadline) {
		c.end(struck)
	}
}

// release ends the context and sets the alarm off.
func (a *alarm) release(c *timeoutContext) {
	a.timer.Stop()
	a.ctx.Store(nil)
	if c.unregister != nil {
		c.unregister()
		c.unregister = nil
	}
	c.end(released)
}

// limitTask starts the timeout of a task.
func (w *worker[D, R]) limitTask(ctx context.Context, d time.Duration) *timeoutContext {
	c := &timeoutContext{Context: ctx, deadline: time.Now().Add(d), inner: &w.attemptAlarm}
	if ctx != w.crew.ctx {
		c.registered = true
		c.unregister = context.AfterFunc(ctx, func() { c.end(endedBefore) })
	}
	w.taskAlarm.set(c, d)
	w.crew.endTimeout(c) // the crew may have looked for it just before
	return c
}

// limitAttempt starts the timeout of an attempt.
func (w *worker[D, R]) limitAttempt(d time.Duration, m mark) *timeoutContext {
	c := &timeoutContext{Context: w.ctx, deadline: time.Now().Add(d), within: w.limited, mark: m}
	if c.within == nil && w.ctx != w.crew.ctx {
		c.registered = true
		c.unregister = context.AfterFunc(w.ctx, func() { c.end(endedBefore) })
	}
	w.attemptAlarm.set(c, d)
	if c.within != nil && c.within.state.Load() != alive {
		c.end(endedBefore) // the task may have looked for it just before
	}
	w.crew.endTimeout(c)
	return c
}

// endTimeout ends a context if the crew's has ended and no other one comes between the two.
func (c *Crew[D, R]) endTimeout(t *timeoutContext) {
	if t != nil && !t.registered && t.within == nil && c.ctx.Err() != nil {
		t.end(endedBefore)
	}
}

// endTimeouts ends what is under way when the crew's context has ended.
func (c *Crew[D, R]) endTimeouts() {
	if c.plan.attemptTimeout == 0 && c.plan.taskTimeout == 0 {
		return
	}
	c.mu.Lock()
	workers := c.workers
	c.mu.Unlock()
	for _, w := range workers {
		c.endTimeout(w.taskAlarm.ctx.Load())
		c.endTimeout(w.attemptAlarm.ctx.Load())
	}
}

func (c *timeoutContext) end(why int32) {
	c.mu.Lock()
	if c.state.Load() != alive {
		c.mu.Unlock()
		return
	}
	c.state.Store(why)
	if c.done != nil {
		close(c.done)
	}
	after, inner := c.after, c.inner
	c.after, c.inner = nil, nil // who keeps the context does not keep the run
	c.mu.Unlock()
	for f := range after {
		go (*f)()
	}
	if inner == nil {
		return
	}
	if attempt := inner.ctx.Load(); attempt != nil && attempt.within == c {
		attempt.end(endedBefore)
	}
}

// String keeps package fmt from looking at what others are changing.
func (c *timeoutContext) String() string {
	return fmt.Sprintf("%v.WithDeadline(%v)", c.Context, c.deadline)
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
		if c.state.Load() != alive {
			close(c.done)
		}
	}
	return c.done
}

// Err implements [context.Context].
func (c *timeoutContext) Err() error {
	state := c.state.Load()
	if state == alive {
		return nil
	}
	c.mu.Lock() // which is free when Done is closed
	defer c.mu.Unlock()
	switch state {
	case struck:
		return context.DeadlineExceeded
	case endedBefore:
		return c.Context.Err()
	default:
		return context.Canceled
	}
}

// Value implements [context.Context]. An end of our own is not that of the context it is made from, whose cause
// [context.Cause] would find and take for ours when that ends later.
func (c *timeoutContext) Value(key any) any {
	if v, ok := c.mark.value(key); ok {
		return v
	}
	if state := c.state.Load(); state == struck || state == released {
		return context.WithoutCancel(c.Context).Value(key)
	}
	return c.Context.Value(key)
}

// AfterFunc is how package context registers contexts derived from this one without a goroutine for each, unless one with a
// value comes between the two. f runs on a goroutine of its own.
func (c *timeoutContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != alive {
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
