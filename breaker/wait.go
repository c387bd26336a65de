package breaker

import (
	"context"
	"fmt"
)

// A waiter is a caller in Wait. It leaves the line under the lock.
type waiter struct {
	ready chan struct{} // closed when it may go
	epoch epoch         // in which it was let go; zero: not yet
}

// Wait returns nil when an attempt may be made: at once while the breaker is closed, in half-open when one of the probes'
// places is free, and otherwise after waiting for one of these, first come, first served. When the breaker closes, all
// who wait go; in half-open, as many as there are places. It returns an error only when ctx ends first, or has ended
// before: that error is ctx's, and its cause, to errors.Is.
//
// A place in half-open is promised to the caller with nil. It should get to [Breaker.Enter] soon, or call
// [Breaker.Skip] when it will not.
func (b *Breaker) Wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return b.gaveUp(ctx)
	}
	if b.current().state() == Closed {
		return nil
	}
	return b.queue(ctx)
}

// queue is Wait when it was not seen to be closed.
func (b *Breaker) queue(ctx context.Context) error {
	w := &waiter{ready: make(chan struct{})}
	now := b.lock()
	place := b.waiters.PushBack(w)
	b.admit(now)
	b.unlock(now)

	select {
	case <-w.ready:
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		return nil
	}
	now = b.lock()
	switch w.epoch {
	case 0:
		b.waiters.Remove(place)
	case b.current(): // it holds a promise, if this is half-open
		b.unpromise(now)
	}
	b.unlock(now)
	return b.gaveUp(ctx)
}

// admit lets those who wait go, as far as there are places for them. Whatever makes a place calls it, so while somebody
// waits no place is free, and nobody can come in between.
func (b *Breaker) admit(now int64) {
	e := b.current()
	for b.waiters.Len() > 0 {
		if e.state() == Open || e.state() == HalfOpen && b.free() == 0 {
			return
		}
		if e.state() == HalfOpen {
			b.promised, b.promisedAt = b.promised+1, now
		}
		w := b.waiters.Remove(b.waiters.Front()).(*waiter)
		w.epoch = e
		close(w.ready)
	}
}

// waitError is the end of a context seen by a caller in Wait. It keeps the context's error and its cause visible to
// errors.Is, and says where the caller was.
type waitError struct {
	state State
	errs  []error // ctx.Err(), then its cause if that is something else
}

func (e *waitError) Error() string {
	return fmt.Sprintf("breaker: while waiting for an attempt (%v): %v", e.state, e.errs[len(e.errs)-1])
}

func (e *waitError) Unwrap() []error { return e.errs }

func (b *Breaker) gaveUp(ctx context.Context) error {
	err := &waitError{state: b.current().state(), errs: []error{ctx.Err()}}
	if cause := context.Cause(ctx); cause != ctx.Err() {
		err.errs = append(err.errs, cause)
	}
	return err
}
