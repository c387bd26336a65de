package buffering

// A Heap is an unbounded priority queue: the lowest priority comes out first, equal priorities in the order they went
// in. The zero Heap is empty and ready. It is not safe for concurrent use.
//
// It is a binary heap that moves a hole instead of swapping, and is typed, so that nothing is boxed: Push and Pop
// allocate nothing once grown.
type Heap[T any] struct {
	entries []entry[T]
	arrived uint64
}

type entry[T any] struct {
	priority int
	arrival  uint64 // breaks ties: this is what makes equals first in, first out
	value    T
}

func (e *entry[T]) before(f *entry[T]) bool {
	return e.priority < f.priority || e.priority == f.priority && e.arrival < f.arrival
}

// Len is the number of items in the heap.
func (h *Heap[T]) Len() int { return len(h.entries) }

// Push adds an item.
func (h *Heap[T]) Push(v T, priority int) {
	e := entry[T]{priority, h.arrived, v}
	h.arrived++
	h.entries = append(h.entries, e)
	hole := len(h.entries) - 1
	for hole > 0 {
		parent := (hole - 1) / 2
		if !e.before(&h.entries[parent]) {
			break
		}
		h.entries[hole] = h.entries[parent]
		hole = parent
	}
	h.entries[hole] = e
}

// Pop removes the item with the lowest priority, the oldest among equals, and returns it. The heap keeps no reference
// to it. Pop panics when the heap is empty.
func (h *Heap[T]) Pop() T {
	v := *h.Peek()
	h.Drop()
	return v
}

// Peek returns a pointer to the item that Pop would return, good until the next Push or Pop. It panics when the heap is
// empty.
func (h *Heap[T]) Peek() *T {
	if len(h.entries) == 0 {
		panic("buffering: the Heap is empty")
	}
	return &h.entries[0].value
}

// Drop removes an item, as Pop does, for those who have looked at it with Peek.
func (h *Heap[T]) Drop() {
	last := len(h.entries) - 1
	e := h.entries[last]
	clear(h.entries[last:])
	h.entries = h.entries[:last]
	if last > 0 {
		h.sink(e)
	} else if cap(h.entries) > keptRoom {
		h.entries = nil // a backlog that is over does not hold its memory
	}
}

// sink puts e where it belongs, starting from a hole at the top.
func (h *Heap[T]) sink(e entry[T]) {
	hole, n := 0, len(h.entries)
	for {
		child := 2*hole + 1
		if child >= n {
			break
		}
		if child+1 < n && h.entries[child+1].before(&h.entries[child]) {
			child++
		}
		if !h.entries[child].before(&e) {
			break
		}
		h.entries[hole] = h.entries[child]
		hole = child
	}
	h.entries[hole] = e
}
