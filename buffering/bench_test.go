package buffering_test

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/penstock-go/penstock/buffering"
)

// payload has the size of a small task.
type payload [9]int

// BenchmarkHeap is one item in and one out, at a steady length, beside the standard library's heap with the same order.
func BenchmarkHeap(b *testing.B) {
	for _, n := range []int{8, 1000} {
		priorities := make([]int, 1024)
		for i := range priorities {
			priorities[i] = rand.IntN(100)
		}
		b.Run(fmt.Sprintf("typed/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var h buffering.Heap[payload]
			for i := range n {
				h.Push(payload{}, priorities[i&1023])
			}
			for i := 0; b.Loop(); i++ {
				h.Push(payload{}, priorities[i&1023])
				h.Pop()
			}
		})
		b.Run(fmt.Sprintf("container-heap/n=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var h boxedHeap
			for i := range n {
				heap.Push(&h, boxed{payload{}, priorities[i&1023], i})
			}
			for i := n; b.Loop(); i++ {
				heap.Push(&h, boxed{payload{}, priorities[i&1023], i})
				heap.Pop(&h)
			}
		})
	}
}

type boxed struct {
	value             payload
	priority, arrival int
}

type boxedHeap []boxed

func (h boxedHeap) Len() int      { return len(h) }
func (h boxedHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h boxedHeap) Less(i, j int) bool {
	return h[i].priority < h[j].priority || h[i].priority == h[j].priority && h[i].arrival < h[j].arrival
}
func (h *boxedHeap) Push(v any) { *h = append(*h, v.(boxed)) }
func (h *boxedHeap) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}

func BenchmarkFIFO(b *testing.B) {
	b.ReportAllocs()
	var q buffering.FIFO[payload]
	q.Push(payload{})
	for b.Loop() {
		q.Push(payload{})
		q.Pop()
	}
}

// BenchmarkQueue hands items from one producer to takers, beside a channel of the same capacity.
func BenchmarkQueue(b *testing.B) {
	ctx := context.Background()
	for _, takers := range []int{1, 8} {
		// hand runs the takers, and the producer on this goroutine, and waits for all.
		hand := func(b *testing.B, take func(), push func(), end func()) {
			b.ReportAllocs()
			var all sync.WaitGroup
			for range takers {
				all.Go(take)
			}
			for b.Loop() {
				push()
			}
			end()
			all.Wait()
		}
		queues := map[string]func(q *buffering.Queue[payload]) func(){
			"push":   func(q *buffering.Queue[payload]) func() { return func() { _, _ = q.Push(ctx, payload{}, 0) } },
			"ranked": func(q *buffering.Queue[payload]) func() { return func() { _, _ = q.Push(ctx, payload{}, 1) } },
			"feed":   func(q *buffering.Queue[payload]) func() { return func() { _ = q.Feed(payload{}, 0) } },
		}
		for name, push := range queues {
			b.Run(fmt.Sprintf("%s/takers=%d", name, takers), func(b *testing.B) {
				q := buffering.NewQueue[payload](8)
				hand(b, func() {
					var own payload
					for q.Take(1, takers, func(item *payload, _ int) { own = *item }) > 0 {
					}
					_ = own
				}, push(q), func() { q.Close(nil) })
			})
		}
		b.Run(fmt.Sprintf("channel/takers=%d", takers), func(b *testing.B) {
			ch := make(chan payload, 8)
			hand(b, func() {
				for range ch {
				}
			}, func() { ch <- payload{} }, func() { close(ch) })
		})
		b.Run(fmt.Sprintf("channel-and-context/takers=%d", takers), func(b *testing.B) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			ch := make(chan payload, 8)
			hand(b, func() {
				for range ch {
				}
			}, func() {
				select {
				case ch <- payload{}:
				case <-ctx.Done():
				}
			}, func() { close(ch) })
		})
	}
}

// BenchmarkResults hands items from writers to one reader, beside a channel of the same capacity.
func BenchmarkResults(b *testing.B) {
	ctx := context.Background()
	for _, writers := range []int{1, 8} {
		// hand runs the writers, each with its share of the items, and the reader on this goroutine.
		hand := func(b *testing.B, writer func() func(*payload), end func(), read func()) {
			b.ReportAllocs()
			var all sync.WaitGroup
			for w := range writers {
				all.Go(func() {
					put := writer()
					var item payload
					for i := w; i < b.N; i += writers {
						put(&item)
					}
				})
			}
			go func() {
				all.Wait()
				end()
			}()
			read()
		}
		b.Run(fmt.Sprintf("TakeAll/writers=%d", writers), func(b *testing.B) {
			r := buffering.NewResults[payload](8)
			hand(b, putter(r), r.Close, func() {
				for batch := r.TakeAll(nil); batch != nil; batch = r.TakeAll(batch) {
					clear(batch)
				}
			})
		})
		b.Run(fmt.Sprintf("Next/writers=%d", writers), func(b *testing.B) {
			r := buffering.NewResults[payload](8)
			hand(b, putter(r), r.Close, func() {
				for ok := true; ok; {
					_, ok, _ = r.Next(ctx)
				}
			})
		})
		b.Run(fmt.Sprintf("channel/writers=%d", writers), func(b *testing.B) {
			ch := make(chan payload, 8)
			hand(b, func() func(*payload) { return func(item *payload) { ch <- *item } }, func() { close(ch) }, func() {
				for range ch {
				}
			})
		})
	}
}

// putter makes the way in which one writer puts single items: with a slice of its own, as a worker has.
func putter(r *buffering.Results[payload]) func() func(*payload) {
	return func() func(*payload) {
		one := make([]*payload, 1)
		return func(item *payload) {
			one[0] = item
			r.Put(one)
		}
	}
}

// BenchmarkWindow is two results, the later one first.
func BenchmarkWindow(b *testing.B) {
	b.ReportAllocs()
	w := buffering.NewWindow[payload](16)
	var item payload
	var buf []payload
	for next := 0; b.Loop(); next += 2 {
		w.Enter(2)
		w.Put(next+1, &item)
		w.Put(next, &item)
		buf = w.TakeReady(buf)
		w.Release(len(buf))
	}
}
