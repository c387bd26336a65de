package buffering

import (
	"context"
	"errors"
	"runtime"
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
	//   - while items are stored and takers are idle, one of these has been woken and is on its way;
	//   - an item is stored only when an idle taker is there for it, or when no more may be recruited;
	//   - at most capacity items are stored beyond those that idle takers will take;
	//   - a push waits only while there is no room.
	capacity int
	plain    FIFO[numbered[T]] // the items, while all priorities are 0
	ranked   Heap[numbered[T]] // the items, as soon as one is not, until it is empty again
	pushes   waitlist[push[T]]
	fed      []*waiter[push[T]] // admitted feeds that are not woken yet
	idle     waitlist[struct{}] // parked takers
	resting  int                // takers that are parked or on their way
	waking   bool               // one is on its way
	closed   bool
	refusal  error

	recruits int                       // how many more takers recruit may still start
	recruit  func(item *T, number int) // starts one with its first item; called with mu held

	accepted, taken int
}

// numbered is an item with its place in the order of acceptance.
type numbered[T any] struct {
	item   T
	number int
}

type push[T any] struct {
	item     T
	priority int
	number   int
	err      error
	feed     bool
}

// NewQueue makes a queue for at most capacity stored items; capacity is at least 1.
func NewQueue[T any](capacity int) *Queue[T] {
	return &Queue[T]{capacity: capacity, refusal: ErrClosed}
}

// Recruit lets the queue start up to n takers by itself: an item that finds no idle taker is given to start instead of
// being stored, as long as any of the n is left, so takers are started only for items that need one. Items stored
// before are handed over at once. start gets the item, which it must copy, and its number; it is called with the queue's
// lock held, so it must be quick and must not call the queue.
func (q *Queue[T]) Recruit(n int, start func(item *T, number int)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n > 0 && q.stored() > 0 {
		n--
		q.taken++
		q.pop(start)
		q.admit()
	}
	q.recruits, q.recruit = n, start
}

// Push adds an item. When the queue is full it waits for room, first come, first served, until ctx ends. The error is
// ctx's when ctx has ended, also when there is room, or the one given to Close. The returned number counts the accepted
// items from 0.
func (q *Queue[T]) Push(ctx context.Context, item T, priority int) (number int, err error) {
	return q.push(ctx, &item, priority, false)
}

// Feed is Push for a source that brings one item after the other and has nothing else to do: once it had to wait, it is
// woken when half of the queue is free, so that it does not change places with the takers at every item. Its item is
// admitted as soon as there is room all the same. It waits until it is served or the queue is closed.
func (q *Queue[T]) Feed(item T, priority int) error {
	_, err := q.push(context.Background(), &item, priority, true)
	return err
}

func (q *Queue[T]) push(ctx context.Context, item *T, priority int, feed bool) (number int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	q.mu.Lock()
	if feed && !q.closed && !q.room() {
		q.yield()
	}
	if q.closed {
		err := q.refusal
		q.mu.Unlock()
		return 0, err
	}
	if q.room() {
		number = q.add(item, priority)
		next := q.next()
		q.mu.Unlock()
		rouse(next)
		return number, nil
	}
	w := q.pushes.add()
	w.v.item, w.v.priority, w.v.feed = *item, priority, feed
	q.mu.Unlock()
	return q.await(ctx, w)
}

func (q *Queue[T]) await(ctx context.Context, w *waiter[push[T]]) (int, error) {
	ctxErr := w.await(ctx)
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

// Take waits for an item and hands between one and n items to take, but not more than its fair share of what is there
// among shares takers; n and shares are at least 1. take gets each item, which it must copy, and its number; it is called
// with the queue's lock held, so it must be quick and must not call the queue. Take returns how many items it handed
// over, or 0 when the queue is closed and empty, or abandoned.
func (q *Queue[T]) Take(n, shares int, take func(item *T, number int)) int {
	q.mu.Lock()
	for q.stored() == 0 && !q.closed {
		q.rest()
	}
	stored := q.stored()
	if n > 1 {
		n = min(n, max(1, stored/shares))
	}
	n = min(n, stored)
	q.taken += n
	for range n {
		q.pop(take)
		q.admit()
	}
	next := q.next()
	q.mu.Unlock()
	rouse(next)
	return n
}

// yield lets other goroutines run once, without the lock, before a feeder parks: often the takers are about to make room,
// and then two switches are saved. It is done once, not in a loop.
func (q *Queue[T]) yield() {
	q.mu.Unlock()
	runtime.Gosched()
	q.mu.Lock()
}

// rest parks a taker until it is woken. It is called, and returns, with the lock held, but waits without it.
func (q *Queue[T]) rest() {
	w := q.idle.add()
	q.resting++
	q.mu.Unlock()
	<-w.wake
	q.mu.Lock()
	q.idle.release(w)
	q.resting--
	q.waking = false
}

// next is the taker to be woken now, or nil. Only one is on its way at a time, and when it comes and leaves something
// behind, it wakes the next: so a taker that is busy but quick takes several items before others are bothered, and still
// no item waits while a taker rests.
func (q *Queue[T]) next() *waiter[struct{}] {
	if q.waking || q.stored() == 0 && !q.closed {
		return nil
	}
	w := q.idle.last() // the latest to rest: its stack is warm
	if w != nil {
		q.idle.remove(w)
		q.waking = true
	}
	return w
}

func rouse(w *waiter[struct{}]) {
	if w != nil {
		w.wake <- struct{}{}
	}
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
	q.wakeFed()
	for w := q.idle.first(); w != nil; w = q.idle.first() {
		q.idle.serve(w)
	}
}

// Abandon closes the queue and hands every stored item to each, in the order they would have been taken. Later pushes
// are refused with err, also after a Close, or with what Close said when err is nil.
func (q *Queue[T]) Abandon(err error, each func(item *T, number int)) {
	q.mu.Lock()
	q.close(err)
	if err != nil {
		q.refusal = err
	}
	left := make([]numbered[T], 0, q.stored())
	for q.stored() > 0 {
		q.pop(func(item *T, number int) { left = append(left, numbered[T]{*item, number}) })
	}
	q.mu.Unlock()
	for i := range left {
		each(&left[i].item, left[i].number)
	}
}

// Counts returns how many items were accepted and how many of them were taken, as of one moment.
func (q *Queue[T]) Counts() (accepted, taken int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.accepted, q.taken
}

func (q *Queue[T]) stored() int { return q.plain.Len() + q.ranked.Len() }

func (q *Queue[T]) room() bool { return q.stored()-q.resting < q.capacity || q.recruits > 0 }

// add accepts an item, for which there is room, and returns its number.
func (q *Queue[T]) add(item *T, priority int) (number int) {
	number = q.accepted
	q.accepted++
	if q.recruits > 0 && q.stored() >= q.resting {
		q.recruits--
		q.taken++
		first := *item
		q.recruit(&first, number)
	} else {
		q.store(item, number, priority)
	}
	return number
}

func (q *Queue[T]) store(item *T, number, priority int) {
	if priority == 0 && q.ranked.Len() == 0 {
		q.plain.Push(numbered[T]{*item, number})
		return
	}
	for q.plain.Len() > 0 { // the first item with a priority: all earlier ones have 0
		q.ranked.Push(q.plain.Pop(), 0)
	}
	q.ranked.Push(numbered[T]{*item, number}, priority)
}

// pop removes the next item and hands it to take.
func (q *Queue[T]) pop(take func(item *T, number int)) {
	if q.ranked.Len() > 0 {
		e := q.ranked.Peek()
		take(&e.item, e.number)
		q.ranked.Drop()
		return
	}
	e := q.plain.Peek()
	take(&e.item, e.number)
	q.plain.Drop()
}

// admit lets pushes that wait into the room there is, the longest waiting first.
func (q *Queue[T]) admit() {
	for w := q.pushes.first(); w != nil; w = q.pushes.first() {
		if !q.room() {
			break
		}
		w.v.number = q.add(&w.v.item, w.v.priority)
		if w.v.feed {
			w.v.item = *new(T) // it may be a while until its owner wakes up
			q.pushes.remove(w)
			q.fed = append(q.fed, w)
		} else {
			q.pushes.serve(w)
		}
	}
	if q.stored()-q.resting <= q.capacity/2 {
		q.wakeFed()
	}
}

func (q *Queue[T]) wakeFed() {
	for i, w := range q.fed {
		q.pushes.serve(w)
		q.fed[i] = nil
	}
	q.fed = q.fed[:0]
}
