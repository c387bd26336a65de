package buffering

import "context"

// A waitlist is a first-come, first-served list of waiters. It is guarded by the lock of the structure that it belongs
// to, and keeps the notes of waiters that were served, so that waiting allocates only while the list grows.
type waitlist[V any] struct {
	head, tail *waiter[V]
	free       *waiter[V]
}

// A waiter is the note that one waiting goroutine leaves: what it brings or wants, and where to wake it.
type waiter[V any] struct {
	v          V
	wake       chan struct{} // holds one token when the waiter was served
	linked     bool
	prev, next *waiter[V]
}

// await waits until the waiter is served, or until ctx ends, and then returns its error.
func (w *waiter[V]) await(ctx context.Context) error {
	done := ctx.Done()
	if done == nil { // a select is dearer
		<-w.wake
		return nil
	}
	select {
	case <-w.wake:
		return nil
	case <-done:
		return ctx.Err()
	}
}

func (l *waitlist[V]) first() *waiter[V] { return l.head }
func (l *waitlist[V]) last() *waiter[V]  { return l.tail }

// add appends a fresh note.
func (l *waitlist[V]) add() *waiter[V] {
	w := l.free
	if w != nil {
		l.free = w.next
	} else {
		w = &waiter[V]{wake: make(chan struct{}, 1)}
	}
	w.linked, w.prev, w.next = true, l.tail, nil
	if l.tail != nil {
		l.tail.next = w
	} else {
		l.head = w
	}
	l.tail = w
	return w
}

// remove takes a note back and reports whether it was still waiting.
func (l *waitlist[V]) remove(w *waiter[V]) bool {
	if !w.linked {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	w.linked, w.prev, w.next = false, nil, nil
	return true
}

// serve takes a note off the list and wakes its owner, which releases the note when it has read it.
func (l *waitlist[V]) serve(w *waiter[V]) {
	l.remove(w)
	w.wake <- struct{}{}
}

// release keeps a note for the next waiter, without what it held.
func (l *waitlist[V]) release(w *waiter[V]) {
	var zero V
	w.v, w.next = zero, l.free
	l.free = w
}
