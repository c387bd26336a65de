package buffering

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is what Push returns after Close, unless Close was given another error.
var ErrClosed = errors.New("buffering: the queue is closed")

// A Queue is a bounded queue of accepted items in front of workers. Items come out in order of priority, equals in
// order of arrival; submitters that wait for room are admitted strictly in order of arrival, whatever they bring. It is
// safe for concurrent use. NewQueue makes one.
//
// Push either accepts an item, which Take or Abandon then hands out exactly once, or returns an error and has not
// accepted it. There is no third case, also when a context ends at the very moment of admission.
type Queue[T any] struct {
	mu sync.Mutex

	// Guarded by mu. Invariants:
	//   - an idle taker exists only while no item is stored;
	//   - a waiting push exists only while capacity items are stored;
	//   - an item is stored only when no more takers may be recruited.
	capacity int
	plain    FIFO[T] // the items, while all priorities are 0
	ranked   Heap[T] // the items, as soon as one is not, until it is empty again
	pushes   waitlist[push[T]]
	idle     waitlist[taker[T]]
	closed   bool
	refusal  error

	recruits int     // how many more takers recruit may still start
	recruit  func(T) // starts one with its first item; called with mu held

	accepted, taken int
	accept          func(item *T, n int) // told the number of an item when it is accepted; called with mu held
}

type push[T any] struct {
	item     T
	priority int
	number   int
	err      error
}

type taker[T any] struct {
	dst *T
	ok  bool
}

// NewQueue makes a queue for at most capacity stored items; capacity is at least 1. accept, if it is not nil, is called for each item when it is
// accepted, with its number, from 0; it must be quick and must not call the queue.
func NewQueue[T any](capacity int, accept func(item *T, n int)) *Queue[T] {
	return &Queue[T]{capacity: capacity, accept: accept, refusal: ErrClosed}
}

// Recruit lets the queue start up to n takers by itself: an item that finds no idle taker is given to start instead of
// being stored, as long as any of the n is left, so takers are started only for items that need one. Items stored
// before are handed over at once. start is called with the queue's lock held: it must be quick and must not call the
// queue.
func (q *Queue[T]) Recruit(n int, start func(item T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n > 0 && q.stored() > 0 {
		n--
		q.taken++
		start(q.pop())
		q.admit()
	}
	q.recruits, q.recruit = n, start
}

// Push adds an item. When the queue is full it waits for room, first come, first served, until ctx ends. The error is
// ctx's when ctx has ended, also when there is room, or the one given to Close. The returned number counts the accepted
// items from 0.
func (q *Queue[T]) Push(ctx context.Context, item T, priority int) (number int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	q.mu.Lock()
	if q.closed {
		err := q.refusal
		q.mu.Unlock()
		return 0, err
	}
	if q.stored() < q.capacity {
		number = q.add(&item, priority)
		q.mu.Unlock()
		return number, nil
	}
	w := q.pushes.add()
	w.v.item, w.v.priority = item, priority
	q.mu.Unlock()
	return q.await(ctx, w)
}

func (q *Queue[T]) await(ctx context.Context, w *waiter[push[T]]) (int, error) {
	var ctxErr error
	select {
	case <-w.wake:
	case <-ctx.Done():
		ctxErr = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if ctxErr != nil {
		if q.pushes.remove(w) {
			q.pushes.release(w)
			return 0, ctxErr
		}
		<-w.wake // served at the same moment: the item is accepted, or refused for good
	}
	number, err := w.v.number, w.v.err
	q.pushes.release(w)
	return number, err
}

// Take waits for an item and moves between one and len(dst) items into dst, but not more than its fair share of what
// is there among shares takers. There must be room in dst, and shares must be at least 1. It returns how many, or 0 when the queue is closed and empty, or abandoned.
func (q *Queue[T]) Take(dst []T, shares int) int {
	q.mu.Lock()
	if n := q.stored(); n > 0 {
		n = min(len(dst), max(1, n/shares))
		q.taken += n
		for i := range n {
			dst[i] = q.pop()
			q.admit()
		}
		q.mu.Unlock()
		return n
	}
	if q.closed {
		q.mu.Unlock()
		return 0
	}
	w := q.idle.add()
	w.v.dst = &dst[0]
	q.mu.Unlock()
	<-w.wake
	q.mu.Lock()
	ok := w.v.ok
	q.idle.release(w)
	q.mu.Unlock()
	if !ok {
		return 0
	}
	return 1
}

// Close ends the input: pushes that wait and later ones are refused with err, or ErrClosed when err is nil. What was
// accepted can still be taken. Closing again changes nothing.
func (q *Queue[T]) Close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.close(err)
}

func (q *Queue[T]) close(err error) {
	if q.closed {
		return
	}
	q.closed = true
	if err != nil {
		q.refusal = err
	}
	for w := q.pushes.first(); w != nil; w = q.pushes.first() {
		w.v.err = q.refusal
		q.pushes.serve(w)
	}
	for w := q.idle.first(); w != nil; w = q.idle.first() {
		q.idle.serve(w)
	}
}

// Abandon closes the queue and hands every stored item to each, in the order they would have been taken. Later pushes
// are refused with err, also after a Close, or with what Close said when err is nil.
func (q *Queue[T]) Abandon(err error, each func(item T)) {
	q.mu.Lock()
	q.close(err)
	if err != nil {
		q.refusal = err
	}
	left := make([]T, 0, q.stored())
	for q.stored() > 0 {
		left = append(left, q.pop())
	}
	q.mu.Unlock()
	for _, item := range left {
		each(item)
	}
}

// Counts returns how many items were accepted and how many of them were taken, as of one moment.
func (q *Queue[T]) Counts() (accepted, taken int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.accepted, q.taken
}

func (q *Queue[T]) stored() int { return q.plain.Len() + q.ranked.Len() }

// add accepts an item and gives it to an idle taker, to a new one, or to the store.
func (q *Queue[T]) add(item *T, priority int) (number int) {
	number = q.accepted
	q.accepted++
	if q.accept != nil {
		q.accept(item, number)
	}
	w := q.idle.last() // the latest to become idle: its stack is warm
	switch {
	case w != nil:
		q.taken++
		*w.v.dst, w.v.ok = *item, true
		q.idle.serve(w)
	case q.recruits > 0:
		q.recruits--
		q.taken++
		q.recruit(*item)
	default:
		q.store(item, priority)
	}
	return number
}

func (q *Queue[T]) store(item *T, priority int) {
	if priority == 0 && q.ranked.Len() == 0 {
		q.plain.Push(*item)
		return
	}
	for q.plain.Len() > 0 { // the first item with a priority: all earlier ones have 0
		q.ranked.Push(q.plain.Pop(), 0)
	}
	q.ranked.Push(*item, priority)
}

func (q *Queue[T]) pop() T {
	if q.ranked.Len() > 0 {
		return q.ranked.Pop()
	}
	return q.plain.Pop()
}

// admit lets the push that has waited longest into the room that a pop made.
func (q *Queue[T]) admit() {
	w := q.pushes.first()
	if w == nil || q.stored() >= q.capacity {
		return
	}
	w.v.number = q.add(&w.v.item, w.v.priority)
	q.pushes.serve(w)
}
