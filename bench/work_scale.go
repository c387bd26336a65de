package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/penstock-go/penstock"
)

// scaleGroups show how the cost grows with the number of items and of workers.
func scaleGroups(s sizes) []*group {
	return []*group{
		itemsGroup(s), heapGroup(s),
		workersGroup("workers/batch", "ProcessAll of 10 items", s, tenAtOnce),
		workersGroup("workers/stream", "IterResults over 10 items", s, tenStreamed),
		workersGroup("workers/run", "Start, Submit of 10 items, Next, Finish", s, tenSubmitted),
	}
}

// count is a source of the numbers 0 … n-1 that keeps none of them.
func count(n int) penstock.Source[int] {
	return penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
		for i := range n {
			if !yield(i) {
				break
			}
		}
		return nil
	})
}

func powers(from, to int) []int {
	var all []int
	for n := from; n <= to; n *= 10 {
		all = append(all, n)
	}
	return all
}

func nameItems(n int) string { return grouped(n) + " items" }

// itemsGroup streams from 1,000 to 10 million items through one engine. Short streams are repeated, so that every turn
// takes long enough to be timed.
func itemsGroup(s sizes) *group {
	g := &group{
		name: "items/time", about: "Time per item as streams grow: IterResults over a function, no-op handler, 8 workers",
		unit: perItem, workers: 8, handle: noop, baseline: nameItems(100_000),
		notes: []string{"Streams of fewer than 100,000 items are repeated until 100,000 have gone through."},
	}
	for _, n := range powers(1_000, s.most) {
		g.contenders = append(g.contenders, contender{nameItems(n), func(t *turn) error {
			repeats := max(1, s.repeat/n)
			t.done = n * repeats
			for range repeats {
				if err := streamNumbers(t, n, nil); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	return g
}

// streamNumbers runs n items through an engine and checks their number and sum. between is called after every eighth part.
func streamNumbers(t *turn, n int, between func()) error {
	e, err := engine(t)
	if err != nil {
		return err
	}
	seen, sum := 0, 0
	for r, err := range e.IterResults(context.Background(), count(n)) {
		if err != nil {
			return err
		}
		seen++
		sum += r.Result
		if between != nil && seen%(n/8) == 0 {
			between()
		}
	}
	if want := n*(n-1)/2 + n; seen != n || sum != want {
		return fmt.Errorf("%d results with the sum %d, not %d with %d", seen, sum, n, want)
	}
	return nil
}

// heapGroup looks at what is alive in the middle of a stream.
func heapGroup(s sizes) *group {
	g := &group{
		name: "items/heap", about: "Live heap in the middle of a stream: IterResults over a function, no-op handler, 8 workers",
		unit: totalBytes, exact: true, workers: 8, handle: noop,
		notes: []string{"The largest of eight looks at equal distances, each after a garbage collection, above what was " +
			"alive before the stream."},
	}
	for _, n := range powers(1_000, s.most) {
		g.contenders = append(g.contenders, contender{nameItems(n), func(t *turn) error {
			before, most := liveHeap(), int64(0)
			err := streamNumbers(t, n, func() { most = max(most, liveHeap()-before) })
			t.report(float64(most))
			return err
		}})
	}
	return g
}

// liveHeap is how many bytes are alive. The second collection takes what the first one left to finalizers and pools.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func nameWorkers(n int) string {
	if n == 1 {
		return "1 worker"
	}
	return grouped(n) + " workers"
}

// workersGroup gives 10 items to engines of more and more workers.
func workersGroup(name, about string, s sizes, ten func(*penstock.Engine[int, int], []int) error) *group {
	g := &group{
		name: name, about: about + " with more and more workers configured, no-op handler",
		unit: perRun, items: 10, handle: noop, baseline: nameWorkers(10),
	}
	for _, workers := range powers(1, 100_000) {
		g.contenders = append(g.contenders, contender{nameWorkers(workers), func(t *turn) error {
			e, err := penstock.New(t.handle, workers)
			if err != nil {
				return err
			}
			t.done = s.runs
			for range s.runs {
				if err := ten(e, t.items); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	return g
}

func tenAtOnce(e *penstock.Engine[int, int], items []int) error {
	out, err := e.ProcessAll(context.Background(), items)
	if err != nil {
		return err
	}
	return checkBatch(&turn{items: items, values: tasks(out)})
}

func tenStreamed(e *penstock.Engine[int, int], items []int) error {
	sum := 0
	for r, err := range e.IterResults(context.Background(), penstock.FromSlice(items)) {
		if err != nil {
			return err
		}
		sum += r.Result
	}
	return checkTen(sum)
}

func tenSubmitted(e *penstock.Engine[int, int], items []int) error {
	ctx := context.Background()
	run := e.Start(ctx)
	sum := 0
	for from := 0; from < len(items); from += 2 { // two at a time: also one worker has room for them
		for _, item := range items[from : from+2] {
			if _, err := run.Submit(ctx, item); err != nil {
				return err
			}
		}
		for range 2 {
			r, err := run.Next(ctx)
			if err != nil {
				return err
			}
			sum += r.Result
		}
	}
	if err := run.Finish(ctx); err != nil {
		return err
	}
	return checkTen(sum)
}

// checkTen knows the sum of the right answers for 0 … 9.
func checkTen(sum int) error {
	if sum != 55 {
		return fmt.Errorf("the sum of ten results is %d, not 55", sum)
	}
	return nil
}
