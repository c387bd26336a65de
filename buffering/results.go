package buffering

import (
	"context"
	"math"
	"sync"
)

// Results is a bounded buffer between workers and readers. A writer that finds it full waits; a reader takes either the
// oldest item or as many as are there in one go. Items come out in the order they were put. It is safe for concurrent
// use. NewResults makes one.
type Results[T any] struct {
	mu sync.Mutex

	// Guarded by mu. Invariants:
	//   - a reader waits only while the buffer is empty and not closed;
	//   - a writer waits only while there is no room, and the buffer is not lifted;
	//   - more holds items only while items does, and they are younger.
	items    []T
	head     int // items before it were handed out
	more     []T // what came when items held as many as are handed out in one go
	capacity int
	limit    int            // on what is stored and lent
	lent     int            // items that the caller of TakeAll has in its hands
	writers  waitlist[[]*T] // each waits with the items that did not fit
	readers  waitlist[read[T]]
	batch    chan struct{} // wakes the reader of TakeAll
	waiting  bool          // that reader waits
	lifted   bool
	closed   bool
}

type read[T any] struct {
	item T
	ok   bool
}

// NewResults makes a buffer for at most capacity items; capacity is at least 1. With a reader that uses TakeAll it is for
// twice as many, those included that the reader has in its hands.
func NewResults[T any](capacity int) *Results[T] {
	return &Results[T]{capacity: capacity, limit: capacity, batch: make(chan struct{}, 1)}
}

// Put copies the items into the buffer, in this order, and returns when all are in it. It waits while the buffer is
// full, until a reader makes room or Lift takes the bound away.
func (r *Results[T]) Put(items []*T) {
	r.mu.Lock()
	if items = r.fill(items); len(items) == 0 {
		r.mu.Unlock()
		return
	}
	w := r.writers.add()
	w.v = items
	r.mu.Unlock()
	<-w.wake
	r.mu.Lock()
	r.writers.release(w)
	r.mu.Unlock()
}

// fill takes in what there is room for, readers that wait first, and returns the rest.
func (r *Results[T]) fill(items []*T) []*T {
	for w := r.readers.first(); w != nil && len(items) > 0; w = r.readers.first() {
		w.v.item, w.v.ok = *items[0], true
		r.readers.serve(w)
		items = items[1:]
	}
	n := min(len(items), r.room())
	for _, item := range items[:n] {
		if len(r.more) > 0 || len(r.items)-r.head >= r.capacity {
			r.more = append(r.more, *item)
			continue
		}
		if len(r.items) == cap(r.items) {
			r.slide()
		}
		r.items = append(r.items, *item)
	}
	if n > 0 {
		r.wakeBatch()
	}
	return items[n:]
}

// slide moves items down, so that they need not grow: what was handed out is no use.
func (r *Results[T]) slide() {
	if r.head > len(r.items)/2 {
		n := copy(r.items, r.items[r.head:])
		clear(r.items[n:])
		r.items, r.head = r.items[:n], 0
	}
}

// Next waits for the oldest item. It returns false and nil when the buffer is closed and empty, and ctx's error when
// ctx ends first. An item that was handed over at the very moment ctx ended is returned, not lost.
func (r *Results[T]) Next(ctx context.Context) (item T, ok bool, err error) {
	r.mu.Lock()
	if r.stored() > 0 {
		item = r.pop()
		r.refill()
		r.mu.Unlock()
		return item, true, nil
	}
	if r.closed {
		r.mu.Unlock()
		return item, false, nil
	}
	if err := ctx.Err(); err != nil {
		r.mu.Unlock()
		return item, false, err
	}
	w := r.readers.add()
	r.mu.Unlock()
	err = w.await(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !r.readers.remove(w) {
		<-w.wake
		err = nil
	}
	item, ok = w.v.item, w.v.ok
	r.readers.release(w)
	return item, ok, err
}

// TakeAll waits for at least one item and returns those that are there, in one go at most as many as the capacity, until
// Lift. It returns nil when the buffer is closed and empty. The caller has the items in its hands until it calls TakeAll
// again, with the slice that it got from the call before, cleared, to be used again. Only one goroutine may call TakeAll, and
// none Next at the same time.
//
// What the reader holds and what is stored are one account: a writer may use what the reader does not. So a quick reader,
// which holds little, leaves the writers twice as much room before they have to wait for it, and in the worst case
// neither more nor less is stored and held than if each had half of it to itself.
func (r *Results[T]) TakeAll(spare []T) []T {
	if cap(spare) > keptRoom {
		spare = nil
	}
	r.mu.Lock()
	r.lent, r.limit = 0, max(r.capacity, 2*r.capacity) // which may run over
	r.refill()
	for r.stored() == 0 && !r.closed {
		r.waiting = true
		r.mu.Unlock()
		<-r.batch
		r.mu.Lock()
	}
	items := r.items[r.head:]
	r.items, r.more, r.head = r.more, spare[:0], 0
	r.lent = len(items)
	r.refill()
	r.mu.Unlock()
	if len(items) == 0 {
		return nil
	}
	return items
}

// Drain returns what is there now, without waiting, and nil when nothing is. That includes what writers wait with, so it can be
// more than the capacity.
func (r *Results[T]) Drain() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	var items []T
	for r.stored() > 0 {
		items = append(items, r.items[r.head:]...)
		clear(r.items)
		r.next()
		r.refill()
	}
	return items
}

// Len is the number of items in the buffer, those that writers wait with not included.
func (r *Results[T]) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored()
}

// Lift takes the bound away: what waits goes in, and nobody waits again. A run that is ending does this, so that its
// workers can leave although nobody reads. The items that come after it are at most those accepted before.
func (r *Results[T]) Lift() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifted = true
	r.refill()
}

// Close says that nothing will be put any more. Readers still get what is there; those that wait are told the end.
func (r *Results[T]) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for w := r.readers.first(); w != nil; w = r.readers.first() {
		r.readers.serve(w)
	}
	r.wakeBatch()
}

func (r *Results[T]) stored() int { return len(r.items) - r.head + len(r.more) }

// room is how many more items may be stored now.
func (r *Results[T]) room() int {
	if r.lifted {
		return math.MaxInt
	}
	return max(0, r.limit-r.lent-r.stored())
}

func (r *Results[T]) wakeBatch() {
	if r.waiting {
		r.waiting = false
		r.batch <- struct{}{}
	}
}

func (r *Results[T]) pop() T {
	item := r.items[r.head]
	clear(r.items[r.head : r.head+1])
	if r.head++; r.head == len(r.items) {
		r.next()
	}
	return item
}

// next goes on to the younger items when items are all handed out.
func (r *Results[T]) next() {
	r.items, r.more, r.head = r.more, r.items[:0], 0
	if cap(r.more) > keptRoom {
		r.more = nil
	}
}

// refill takes what there is room for from the writers that wait, the longest waiting first. Their items go in before those
// of any later Put, so nothing overtakes, and a writer that is woken needs nothing more.
func (r *Results[T]) refill() {
	for w := r.writers.first(); w != nil; w = r.writers.first() {
		if w.v = r.fill(w.v); len(w.v) > 0 {
			return
		}
		r.writers.serve(w)
	}
}
