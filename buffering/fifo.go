package buffering

// A FIFO is an unbounded first-in, first-out queue in a ring that grows by doubling. The zero FIFO is empty and ready.
// It is not safe for concurrent use. Push and Pop cost a few nanoseconds and, once grown, allocate nothing.
type FIFO[T any] struct {
	ring []T // its length is zero or a power of two
	head int // the position of the oldest item
	n    int
}

// Len is the number of items in the queue.
func (q *FIFO[T]) Len() int { return q.n }

// Push appends an item.
func (q *FIFO[T]) Push(v T) {
	if q.n == len(q.ring) {
		q.grow()
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = v
	q.n++
}

// Pop removes the oldest item and returns it. The queue keeps no reference to it. Pop panics when the queue is empty.
func (q *FIFO[T]) Pop() T {
	v := *q.Peek()
	q.Drop()
	return v
}

// Drop removes the oldest item, as Pop does, for those who have looked at it with Peek.
func (q *FIFO[T]) Drop() {
	*q.Peek() = *new(T)
	q.head = (q.head + 1) & (len(q.ring) - 1)
	if q.n--; q.n == 0 {
		q.shrink()
	}
}

// Peek returns a pointer to the oldest item, good until the next Push or Pop. It panics when the queue is empty.
func (q *FIFO[T]) Peek() *T {
	if q.n == 0 {
		panic("buffering: the FIFO is empty")
	}
	return &q.ring[q.head]
}

func (q *FIFO[T]) grow() {
	ring := make([]T, max(8, 2*len(q.ring)))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

// keptRoom is how many items there may be room for in memory when they are gone: a backlog that is over does not hold its
// memory, but what thousands of workers need all the time is not made anew all the time either.
const keptRoom = 4096

// shrink gives a large ring back once it is empty.
func (q *FIFO[T]) shrink() {
	if len(q.ring) > keptRoom {
		q.ring, q.head = nil, 0
	}
}
