package buffering

import "sync"

// A Window puts results back into input order, by their numbers from 0. It holds each result until all earlier ones have
// been handed out, and lets at most size items be open at a time, counted from the oldest not yet released to the newest
// that entered. It is safe for concurrent use. NewWindow makes one.
type Window[T any] struct {
	mu sync.Mutex

	// Guarded by mu. Invariants:
	//   - released <= handed <= entered <= released + size, while the window is open;
	//   - the result of item n, once put and until it is handed out, is in slot n mod len(slots);
	//   - somebody waits to enter only while entered == released + size.
	size     int
	slots    []slot[T] // grows with the distance between handed and the newest result, up to size
	entered  int       // how many items were let in
	handed   int       // results before it were given to the reader
	released int       // results before it were let go by the reader
	entries  waitlist[entrance]
	reader   chan struct{}
	waiting  bool // the reader waits
	shut     bool // no more entries
	closed   bool // no more results
}

type slot[T any] struct {
	item T
	full bool
}

type entrance struct{ n int }

// NewWindow makes a window of the given size, at least 1; math.MaxInt makes one that never holds anybody back. Its
// memory grows with the results that wait for an earlier one.
func NewWindow[T any](size int) *Window[T] {
	return &Window[T]{size: size, slots: make([]slot[T], min(size, 16)), reader: make(chan struct{}, 1)}
}

// Enter lets in between one and max items (max is at least 1), as many as the window has room for, waiting for the first. It
// returns how many, or 0 once the window is shut. Whoever enters first need not be the one with the lowest number: it is enough that
// numbers are given out in order and never more than have entered.
func (w *Window[T]) Enter(max int) int {
	w.mu.Lock()
	if w.shut {
		w.mu.Unlock()
		return 0
	}
	if room := w.size - (w.entered - w.released); room > 0 {
		n := min(max, room)
		w.entered += n
		w.mu.Unlock()
		return n
	}
	e := w.entries.add()
	w.mu.Unlock()
	<-e.wake
	w.mu.Lock()
	n := e.v.n
	w.entries.release(e)
	w.mu.Unlock()
	return n
}

// Put stores the result of the item with this number. It never waits: the item has entered, so there is a place
// for it.
func (w *Window[T]) Put(number int, item *T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number-w.handed >= len(w.slots) {
		w.grow(number)
	}
	s := &w.slots[number%len(w.slots)]
	s.item, s.full = *item, true
	if number == w.handed {
		w.wakeReader()
	}
}

// grow makes room for the result of the item with this number.
func (w *Window[T]) grow(number int) {
	slots := make([]slot[T], min(w.size, max(2*len(w.slots), number-w.handed+1)))
	for n := w.handed; n < w.handed+len(w.slots); n++ {
		slots[n%len(slots)] = w.slots[n%len(w.slots)]
	}
	w.slots = slots
}

// TakeReady waits until the next result in order is there and returns it with all that follow without a gap, in
// buf. It returns nil when the window is closed and the next result is not there. Only one goroutine may call it.
func (w *Window[T]) TakeReady(buf []T) []T {
	buf = buf[:0]
	for {
		w.mu.Lock()
		for {
			s := &w.slots[w.handed%len(w.slots)]
			if !s.full {
				break
			}
			buf = append(buf, s.item)
			*s = slot[T]{}
			w.handed++
		}
		if len(buf) > 0 {
			w.mu.Unlock()
			return buf
		}
		if w.closed {
			w.mu.Unlock()
			return nil
		}
		w.waiting = true
		w.mu.Unlock()
		<-w.reader
	}
}

// Release moves the window on by n results that the reader has let go, and lets in who waits to enter.
func (w *Window[T]) Release(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.released += n
	for e := w.entries.first(); e != nil && w.entered-w.released < w.size; e = w.entries.first() {
		e.v.n = 1
		w.entered++
		w.entries.serve(e)
	}
}

// Shut refuses further entries, those that wait included.
func (w *Window[T]) Shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = true
	for e := w.entries.first(); e != nil; e = w.entries.first() {
		w.entries.serve(e)
	}
}

// Close says that nothing will be put any more. The reader still gets what is there without a gap.
func (w *Window[T]) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.wakeReader()
}

func (w *Window[T]) wakeReader() {
	if w.waiting {
		w.waiting = false
		w.reader <- struct{}{}
	}
}
