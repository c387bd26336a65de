package sim_test

import (
	"context"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
)

var itemsFlag = flag.Int("sim.items", 0, "how many items the memory tests let through")

// A cargo makes an item that is held visible in the heap.
type cargo struct {
	number int
	_      [56]byte
}

type cargoRun = penstock.Run[*cargo, *cargo]

func passOn(_ context.Context, c *cargo) (*cargo, error) { return c, nil }

// items is how many items there are to be.
func items(t *testing.T) int {
	n := *itemsFlag
	switch {
	case n > 0:
	case raceEnabled || testing.Short():
		n = 20_000
	default:
		n = 200_000
	}
	t.Logf("%d items", n)
	return n
}

// A reading is what is alive at one moment.
type reading struct {
	heap       uint64
	goroutines int
}

func read() reading {
	runtime.GC()
	runtime.GC() // what the first has freed of pools is gone after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return reading{m.HeapAlloc, runtime.NumGoroutine()}
}

// noise is by how much the heap of a test process grows by itself: some hundred collections alone, with nothing else, add
// about 10 KiB.
const noise = 16 << 10

// checkFlat checks that readings differ by no more than 5 %, noise aside, and their goroutines not at all.
func checkFlat(t *testing.T, what string, readings []reading) {
	t.Helper()
	least, most := readings[0].heap, readings[0].heap
	for _, r := range readings {
		least, most = min(least, r.heap), max(most, r.heap)
		if r.goroutines != readings[0].goroutines {
			t.Errorf("%s: there were %d goroutines, and then %d", what, readings[0].goroutines, r.goroutines)
		}
	}
	t.Logf("%s: %d readings of %d to %d KiB, %d goroutines", what, len(readings), least>>10, most>>10, readings[0].goroutines)
	if float64(most) > 1.05*float64(least)+noise {
		t.Errorf("%s: the live heap went from %d to %d KiB", what, least>>10, most>>10)
	}
}

// TestStreamIsFlat streams items past a slow reader. Now and then it reads the heap while the pipeline is full, and when the
// source has made a pause and everything has come out.
func TestStreamIsFlat(t *testing.T) {
	n := items(t)
	e, err := penstock.New(passOn, 8, penstock.WithInputCapacity(50), penstock.WithResultCapacity(50))
	if err != nil {
		t.Fatal(err)
	}
	var given atomic.Int64
	stretch, goOn := n/20, make(chan struct{})
	source := penstock.FromFunc(func(ctx context.Context, yield func(*cargo) bool) error {
		for i := range n {
			if i > 0 && i%stretch == 0 {
				select {
				case <-goOn:
				case <-ctx.Done():
				}
			}
			given.Add(1)
			if !yield(&cargo{number: i}) {
				break
			}
		}
		return nil
	})
	seen := 0
	var full, empty []reading
	for task, err := range e.IterResults(t.Context(), source) {
		if err != nil || task.Outcome != penstock.Succeeded {
			t.Fatal(task, err)
		}
		seen++
		switch {
		case seen%stretch == stretch/2:
			awaitRest(&given)
			full = append(full, read())
		case seen%stretch == 0 && seen < n:
			empty = append(empty, read())
			goOn <- struct{}{}
		}
	}
	if seen != n {
		t.Errorf("%d of %d items came out", seen, n)
	}
	checkFlat(t, "full", full[2:])
	checkFlat(t, "empty", empty[2:])
}

// awaitRest waits until a number has stopped changing.
func awaitRest(n *atomic.Int64) {
	for last, same := n.Load(), 0; same < 20; time.Sleep(time.Millisecond) {
		if now := n.Load(); now == last {
			same++
		} else {
			last, same = now, 0
		}
	}
}

// TestBacklogIsFlat lets the backlog of a run grow and shrink, before the workers and behind them, and reads the heap when
// it is gone.
func TestBacklogIsFlat(t *testing.T) {
	n := items(t)
	var gate atomic.Pointer[sync.WaitGroup]
	gate.Store(new(sync.WaitGroup))
	handler := func(ctx context.Context, c *cargo) (*cargo, error) {
		gate.Load().Wait()
		return c, nil
	}
	e, err := penstock.New(handler, 8, penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited))
	if err != nil {
		t.Fatal(err)
	}
	run := e.Start(t.Context())
	const sizes = 10
	most := min(20_000, n/100)
	var gone, there []reading
	for done, cycle := 0, 0; done < n; cycle++ {
		size := most * (1 + cycle%sizes) / sizes
		heap := pileUp(t, run, &gate, size)
		unpile(t, run, size)
		done += size
		if cycle >= 2*sizes && cycle%sizes == sizes-1 {
			there, gone = append(there, heap), append(gone, read())
		}
	}
	if err := run.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	checkFlat(t, "a backlog", there)
	checkFlat(t, "no backlog", gone)
}

// pileUp submits items while the handlers are held up, lets them go, and waits until all results are there.
func pileUp(t *testing.T, run *cargoRun, gate *atomic.Pointer[sync.WaitGroup], size int) reading {
	before := run.Counters().Ended()
	held := new(sync.WaitGroup)
	held.Add(1)
	gate.Store(held)
	for i := range size {
		if _, err := run.Submit(t.Context(), &cargo{number: i}); err != nil {
			t.Fatal(err)
		}
	}
	heap := read()
	held.Done()
	for run.Counters().Ended() < before+size {
		time.Sleep(100 * time.Microsecond)
	}
	return heap
}

// unpile reads the results, slowly at first.
func unpile(t *testing.T, run *cargoRun, size int) {
	for i := range size {
		if _, err := run.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i < 100 {
			runtime.Gosched()
		}
	}
}

// TestManySleepers has very many workers asleep in their handlers at the same time.
func TestManySleepers(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some hundred MB")
	}
	workers := 100_000
	if raceEnabled {
		workers = 5_000
	}
	var asleep, most atomic.Int64
	wake := make(chan struct{})
	handler := func(ctx context.Context, c int) (int, error) {
		if n := asleep.Add(1); n == int64(workers) && most.CompareAndSwap(0, n) {
			close(wake)
		}
		defer asleep.Add(-1)
		select {
		case <-wake:
			return c, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	e, err := penstock.New(handler, workers, penstock.WithAttemptTimeout(10*time.Minute), penstock.WithInputCapacity(10))
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	seen := 0
	for task, err := range e.IterResults(t.Context(), penstock.FromSeq(func(yield func(int) bool) {
		for i := range 2 * workers {
			if !yield(i) {
				return
			}
		}
	})) {
		if err != nil || task.Outcome != penstock.Succeeded {
			t.Fatal(task, err)
		}
		seen++
	}
	if seen != 2*workers || most.Load() != int64(workers) {
		t.Errorf("%d of %d items came out, and %d workers were at work at once", seen, 2*workers, most.Load())
	}
	for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%d goroutines are left over", runtime.NumGoroutine()-before)
		}
	}
}
