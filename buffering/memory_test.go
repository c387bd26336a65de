package buffering_test

import (
	"context"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/penstock-go/penstock/buffering"
)

// A cargo is something that is worth being collected.
type cargo struct{ _ [64]byte }

// A manifest knows of each cargo whether it is still held by anybody.
type manifest []weak.Pointer[cargo]

func (m *manifest) load() *cargo {
	c := new(cargo)
	*m = append(*m, weak.Make(c))
	return c
}

func (m *manifest) held() (n int) {
	runtime.GC()
	for _, p := range *m {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

func wantHeld(t *testing.T, m *manifest, want int) {
	t.Helper()
	if n := m.held(); n != want {
		t.Errorf("%d items are held, want %d", n, want)
	}
}

func TestFIFOForgetsWhatItGaveOut(t *testing.T) {
	var q buffering.FIFO[*cargo]
	var m manifest
	for range 20 {
		q.Push(m.load())
	}
	for want := 19; want >= 0; want-- {
		q.Pop()
		wantHeld(t, &m, want)
	}
	runtime.KeepAlive(&q)
}

func TestHeapForgetsWhatItGaveOut(t *testing.T) {
	var h buffering.Heap[*cargo]
	var m manifest
	for i := range 20 {
		h.Push(m.load(), i*7%5)
	}
	for want := 19; want >= 0; want-- {
		h.Pop()
		wantHeld(t, &m, want)
	}
	runtime.KeepAlive(&h)
}

func TestQueueForgetsWhatItGaveOut(t *testing.T) {
	for _, priority := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			var m manifest
			q := buffering.NewQueue[*cargo](2)
			ctx, cancel := context.WithCancel(t.Context())
			for range 5 { // two stored, three waiting, one of them in vain
				go q.Push(ctx, m.load(), priority)
				synctest.Wait()
			}
			take(q, 1, 1)
			synctest.Wait()
			wantHeld(t, &m, 4)
			cancel()
			synctest.Wait()
			wantHeld(t, &m, 2)

			take(q, 1, 1)
			q.Abandon(errGone, func(**cargo, int) {})
			wantHeld(t, &m, 0)
			runtime.KeepAlive(q)
		})
	}
}

// Neither the notes of those who waited nor a recruit's start leave anything behind.
func TestQueueForgetsWhatItHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m manifest
		q := buffering.NewQueue[*cargo](1)
		for range 3 {
			go take(q, 1, 1)
		}
		synctest.Wait()
		for range 3 {
			mustPush(t, q, m.load(), 0)
		}
		q.Recruit(1, func(**cargo, int) {})
		mustPush(t, q, m.load(), 0)
		synctest.Wait()
		wantHeld(t, &m, 0)
		runtime.KeepAlive(q)
	})
}

func TestResultsForgetWhatTheyGaveOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m manifest
		r := buffering.NewResults[*cargo](3)
		load := func(n int) {
			items := make([]*cargo, n)
			for i := range items {
				items[i] = m.load()
			}
			go r.Put(pointers(items...))
			synctest.Wait()
		}
		for range 3 {
			go r.Next(t.Context())
		}
		synctest.Wait()
		load(3) // to those who wait
		wantHeld(t, &m, 0)
		load(3)
		for want := 2; want >= 1; want-- {
			r.Next(t.Context())
			wantHeld(t, &m, want)
		}
		load(7) // some of it in the writer's hands
		r.Drain()
		synctest.Wait()
		wantHeld(t, &m, 0)
		var spare []*cargo
		for range 3 {
			load(2)
			spare = r.TakeAll(spare)
			clear(spare)
			wantHeld(t, &m, 0)
		}
		runtime.KeepAlive(r)
		runtime.KeepAlive(spare)
	})
}

// Also not at the places from which items were moved to make room.
func TestResultsForgetWhatTheyMoved(t *testing.T) {
	for n := range 20 {
		var m manifest
		r := buffering.NewResults[*cargo](100)
		next := func(times int) {
			for range times {
				r.Next(t.Context())
			}
		}
		for range n {
			r.Put(pointers(m.load()))
		}
		next(n - 2)
		for range 3 {
			r.Put(pointers(m.load()))
		}
		next(r.Len())
		wantHeld(t, &m, 0)
		runtime.KeepAlive(r)
	}
}

func TestWindowForgetsWhatItGaveOut(t *testing.T) {
	var m manifest
	w := buffering.NewWindow[*cargo](100)
	w.Enter(100)
	for number := 99; number >= 0; number-- {
		item := m.load()
		w.Put(number, &item)
	}
	buf := w.TakeReady(nil)
	wantHeld(t, &m, 100)
	clear(buf)
	wantHeld(t, &m, 0)
	runtime.KeepAlive(w)
}

// A backlog that never gets empty must not creep: once warm, an item in and an item out allocate nothing, also after
// many times the backlog.
func TestSteadyBacklogDoesNotGrow(t *testing.T) {
	const backlog = 37
	ctx := t.Context()
	var fifo buffering.FIFO[int]
	var heap buffering.Heap[int]
	plain, ranked := buffering.NewQueue[int](1000), buffering.NewQueue[int](1000)
	fed := buffering.NewQueue[int](1000)
	results := buffering.NewResults[int](1000)
	batches := buffering.NewResults[int](1000)
	window := buffering.NewWindow[int](1000)
	item, number := 0, 0
	batch := []*int{&item}
	var spare, buf []int
	pop := func(q *buffering.Queue[int]) { q.Take(1, 1, func(*int, int) {}) }
	for name, tt := range map[string]struct{ in, out func() }{
		"FIFO":         {func() { fifo.Push(1) }, func() { fifo.Pop() }},
		"Heap":         {func() { heap.Push(1, number&7); number++ }, func() { heap.Pop() }},
		"Queue":        {func() { plain.Push(ctx, 1, 0) }, func() { pop(plain) }},
		"Queue ranked": {func() { ranked.Push(ctx, 1, 1) }, func() { pop(ranked) }},
		"Queue fed":    {func() { fed.Feed(1, 0) }, func() { pop(fed) }},
		"Results":      {func() { results.Put(batch) }, func() { results.Next(ctx) }},
		"TakeAll":      {func() { batches.Put(batch) }, func() { spare = batches.TakeAll(spare) }},
	} {
		t.Run(name, func(t *testing.T) {
			for range backlog {
				tt.in()
			}
			turn := func() {
				tt.in()
				tt.out()
			}
			for range 200 { // warm
				turn()
			}
			if n := testing.AllocsPerRun(2000, turn); n != 0 {
				t.Errorf("%v allocations per item", n)
			}
		})
	}
	t.Run("Window", func(t *testing.T) {
		next := window.Enter(backlog)
		turn := func() { // results come two by two, the later one first
			window.Enter(2)
			window.Put(next-backlog+1, &item)
			window.Put(next-backlog, &item)
			next += 2
			buf = window.TakeReady(buf)
			window.Release(len(buf))
		}
		for range 1000 {
			turn()
		}
		if n := testing.AllocsPerRun(2000, turn); n != 0 {
			t.Errorf("%v allocations per item", n)
		}
	})
	// A single rare growth would be rounded away above: see the whole heap too.
	before := liveHeap()
	for range 20_000 {
		fifo.Push(1)
		fifo.Pop()
		heap.Push(1, number&7)
		heap.Pop()
		results.Put(batch)
		results.Next(ctx)
	}
	if grown := int64(liveHeap()) - int64(before); grown > 64<<10 {
		t.Errorf("grew by %d bytes", grown)
	}
	for _, alive := range []any{&fifo, &heap, results} {
		runtime.KeepAlive(alive)
	}
}

// Waiting is paid for once: the notes that waiters leave are used again.
func TestWaitingReusesItsNotes(t *testing.T) {
	q := buffering.NewQueue[int](1)
	for name, push := range map[string]func() error{
		"Push": func() error { _, err := q.Push(context.Background(), 1, 0); return err },
		"Feed": func() error { return q.Feed(1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			const items = 5000
			var pusher sync.WaitGroup
			pusher.Go(func() {
				for range items {
					if err := push(); err != nil {
						t.Error(err)
					}
				}
			})
			before := mallocs()
			for range items {
				q.Take(1, 1, func(*int, int) {})
			}
			pusher.Wait()
			if n := mallocs() - before; n > items/20 {
				t.Errorf("%d allocations for %d items", n, items)
			}
		})
	}
}

func TestBacklogThatIsOverGivesItsMemoryBack(t *testing.T) {
	const items = 1 << 13
	var fifo buffering.FIFO[cargo]
	var heap buffering.Heap[cargo]
	results, batches := buffering.NewResults[cargo](math.MaxInt), buffering.NewResults[cargo](math.MaxInt)
	put := func(r *buffering.Results[cargo]) func() { return func() { r.Put([]*cargo{{}}) } }
	var batch []cargo
	for name, tt := range map[string]struct{ in, out func() }{
		"FIFO":    {func() { fifo.Push(cargo{}) }, func() { fifo.Pop() }},
		"Heap":    {func() { heap.Push(cargo{}, 0) }, func() { heap.Pop() }},
		"Results": {put(results), func() { _, _, _ = results.Next(t.Context()) }},
		"batches of Results": {put(batches), func() {
			if batches.Len() > 0 { // the first time all are taken, and the second time the slice is given back
				batch = batches.TakeAll(batch)
				clear(batch)
				batches.Put([]*cargo{{}})
				batch = batches.TakeAll(batch)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := liveHeap()
			for range items {
				tt.in()
			}
			if grown := liveHeap() - before; grown < items*32 {
				t.Fatalf("the backlog takes %d bytes, which cannot be", grown)
			}
			for range items {
				tt.out()
			}
			if left := int64(liveHeap()) - int64(before); left > items {
				t.Errorf("%d bytes are left", left)
			}
		})
	}
	runtime.KeepAlive(&fifo)
	runtime.KeepAlive(&heap)
	runtime.KeepAlive(results)
	runtime.KeepAlive(batches)
	runtime.KeepAlive(batch)
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
