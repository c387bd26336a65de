package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock"
)

// The baselines are what a careful person would write by hand for one job, and nothing else: no cancelling, no panics, no
// retries, no limits. They make the same type as Penstock and have channels as deep as Penstock's default buffers.

// finished is the task that a worker makes of an item.
func finished(index, item, v int, err error) task {
	return task{Index: index, Data: item, Result: v, Err: err, Attempts: 1, Outcome: penstock.Succeeded}
}

// claimLoop is the least that an ordered batch can do: goroutines claim indices and write the outcome where it belongs.
func claimLoop(t *turn) error {
	out := make([]task, len(t.items))
	claim(t.items, t.workers, out, t.handle)
	t.values = tasks(out)
	return nil
}

func claim(items []int, workers int, out []task, handle handler) {
	ctx := context.Background()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				v, err := handle(ctx, items[i])
				t := &out[i] // field by field: twice as fast as a composite that is copied
				t.Index, t.Data, t.Result, t.Err, t.Attempts, t.Outcome = i, items[i], v, err, 1, penstock.Succeeded
			}
		})
	}
	wg.Wait()
}

// channelPool is the usual producer, workers and consumer.
func channelPool(t *turn) error {
	in := make(chan int, t.workers)
	out := make(chan task, t.workers)
	go func() {
		defer close(in)
		for i := range t.items {
			in <- i
		}
	}()
	workers := pool(t, in, out)
	go func() {
		workers.Wait()
		close(out)
	}()
	for r := range out {
		if r.Err != nil {
			return r.Err
		}
		t.emit(r.Result)
	}
	return nil
}

// claimStream does without a producer, which only works where the items lie in a slice.
func claimStream(t *turn) error {
	ctx := context.Background()
	out := make(chan task, t.workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range t.workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(t.items) {
					return
				}
				v, err := t.handle(ctx, t.items[i])
				out <- finished(i, t.items[i], v, err)
			}
		})
	}
	go func() {
		wg.Wait()
		close(out)
	}()
	for r := range out {
		if r.Err != nil {
			return r.Err
		}
		t.emit(r.Result)
	}
	return nil
}

// pool starts the workers, which work on the items whose positions come in.
func pool(t *turn, in <-chan int, out chan<- task) *sync.WaitGroup {
	ctx := context.Background()
	var wg sync.WaitGroup
	for range t.workers {
		wg.Go(func() {
			for i := range in {
				v, err := t.handle(ctx, t.items[i])
				out <- finished(i, t.items[i], v, err)
			}
		})
	}
	return &wg
}

const stride = 64

// slicePool is channelPool with slices of 64 items and 64 tasks, which go back into use when they have been read.
func slicePool(t *turn) error {
	in := make(chan int, t.workers)
	out := make(chan *[]task, t.workers)
	spare := sync.Pool{New: func() any { return new(make([]task, 0, stride)) }}
	go func() {
		defer close(in)
		for from := 0; from < len(t.items); from += stride {
			in <- from
		}
	}()
	var wg sync.WaitGroup
	for range t.workers {
		wg.Go(func() {
			for from := range in {
				batch := spare.Get().(*[]task)
				*batch = work(t, from, (*batch)[:0])
				out <- batch
			}
		})
	}
	go func() {
		wg.Wait()
		close(out)
	}()
	for batch := range out {
		for i := range *batch {
			r := &(*batch)[i]
			if r.Err != nil {
				return r.Err
			}
			t.emit(r.Result)
		}
		spare.Put(batch)
	}
	return nil
}

// work does one stride of items.
func work(t *turn, from int, batch []task) []task {
	ctx := context.Background()
	for i := from; i < min(from+stride, len(t.items)); i++ {
		v, err := t.handle(ctx, t.items[i])
		batch = append(batch, finished(i, t.items[i], v, err))
	}
	return batch
}

// orderedPool keeps the order with a ring as large as Penstock's window. One goroutine hands out, collects and emits:
// neither channel can be full for it, so it needs no third one to bound the window.
func orderedPool(t *turn) error {
	window := 2 * t.workers
	in := make(chan int, window)
	out := make(chan task, window)
	workers := pool(t, in, out)
	defer workers.Wait()
	defer close(in)
	ring := make([]task, window)
	for next, sent := 0, 0; next < len(t.items); {
		for ; sent < min(len(t.items), next+window); sent++ {
			in <- sent
		}
		r := <-out
		ring[r.Index%window] = r
		for slot := &ring[next%window]; slot.Outcome != 0; slot = &ring[next%window] {
			if slot.Err != nil {
				return slot.Err
			}
			t.emit(slot.Result)
			*slot = task{}
			next++
		}
	}
	return nil
}

// withTimeout gives each call of a handler a context of its own, with a timeout that does not strike.
func withTimeout(handle handler) handler {
	return func(ctx context.Context, item int) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return handle(ctx, item)
	}
}

// plainLoop handles the items one after the other on the goroutine it is called on.
func plainLoop(t *turn) error {
	ctx := context.Background()
	out := make([]task, len(t.items))
	for i, item := range t.items {
		v, err := t.handle(ctx, item)
		r := &out[i]
		r.Index, r.Data, r.Result, r.Err, r.Attempts, r.Outcome = i, item, v, err, 1, penstock.Succeeded
	}
	t.values = tasks(out)
	return nil
}
