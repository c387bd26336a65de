package penstock_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// The benchmarks stand beside what a careful person would write by hand for the same job, in the same run. Compare the
// rows with each other, not with those of another machine: ns/item and allocs/item.

const (
	benchItems   = 200_000
	benchWorkers = 8
)

func noop(_ context.Context, n int) (int, error) { return n, nil }

func perItem(b *testing.B, items int, f func()) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(items), "ns/item")
}

func numbers(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

func newEngine(b *testing.B, opts ...penstock.Option) *penstock.Engine[int, int] {
	b.Helper()
	e, err := penstock.New(noop, benchWorkers, opts...)
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// claimLoop is the least that an ordered batch can do: goroutines claim indices and write the same Task type.
func claimLoop(items []int, handler func(context.Context, int) (int, error)) []penstock.Task[int, int] {
	tasks := make([]penstock.Task[int, int], len(items))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range benchWorkers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(items) {
					return
				}
				v, err := handler(context.Background(), items[i])
				t := &tasks[i]
				t.Index, t.Data, t.Result, t.Err, t.Attempts, t.Outcome = i, items[i], v, err, 1, penstock.Succeeded
			}
		})
	}
	wg.Wait()
	return tasks
}

// channelPool is the usual producer, workers and consumer over channels as deep as there are workers.
func channelPool(items []int, handler func(context.Context, int) (int, error), consume func(penstock.Task[int, int])) {
	in := make(chan int, benchWorkers)
	out := make(chan penstock.Task[int, int], benchWorkers)
	go func() {
		defer close(in)
		for _, n := range items {
			in <- n
		}
	}()
	var wg sync.WaitGroup
	for range benchWorkers {
		wg.Go(func() {
			for n := range in {
				v, err := handler(context.Background(), n)
				out <- penstock.Task[int, int]{Index: n, Data: n, Result: v, Err: err, Attempts: 1, Outcome: penstock.Succeeded}
			}
		})
	}
	go func() {
		wg.Wait()
		close(out)
	}()
	for t := range out {
		consume(t)
	}
}

func BenchmarkBatch(b *testing.B) {
	items := numbers(benchItems)
	handler := noop
	b.Run("ClaimLoop", func(b *testing.B) {
		perItem(b, benchItems, func() { claimLoop(items, handler) })
	})
	b.Run("ProcessAll", func(b *testing.B) {
		e := newEngine(b)
		perItem(b, benchItems, func() {
			if tasks, err := e.ProcessAll(context.Background(), items); err != nil || len(tasks) != benchItems {
				b.Fatal(err)
			}
		})
	})
}

func BenchmarkStream(b *testing.B) {
	items := numbers(benchItems)
	stream := func(b *testing.B, e *penstock.Engine[int, int], src func() penstock.Source[int]) {
		perItem(b, benchItems, func() {
			sum := 0
			for t, err := range e.IterResults(context.Background(), src()) {
				if err != nil {
					b.Fatal(err)
				}
				sum += t.Result
			}
			if sum != benchItems*(benchItems-1)/2 {
				b.Fatal("wrong sum", sum)
			}
		})
	}
	slice := func() penstock.Source[int] { return penstock.FromSlice(items) }
	b.Run("ChannelPool", func(b *testing.B) {
		perItem(b, benchItems, func() {
			sum := 0
			channelPool(items, noop, func(t penstock.Task[int, int]) { sum += t.Result })
		})
	})
	b.Run("Slice", func(b *testing.B) { stream(b, newEngine(b), slice) })
	b.Run("Func", func(b *testing.B) {
		stream(b, newEngine(b), func() penstock.Source[int] {
			return penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
				for _, n := range items {
					if !yield(n) {
						break
					}
				}
				return nil
			})
		})
	})
	b.Run("Chan", func(b *testing.B) {
		stream(b, newEngine(b), func() penstock.Source[int] {
			ch := make(chan int, benchWorkers)
			go func() {
				defer close(ch)
				for _, n := range items {
					ch <- n
				}
			}()
			return penstock.FromChan(ch)
		})
	})
	b.Run("SliceBatch64", func(b *testing.B) {
		stream(b, newEngine(b, penstock.WithBatch(64), penstock.WithResultCapacity(64)), slice)
	})
	b.Run("Ordered", func(b *testing.B) {
		e := newEngine(b)
		perItem(b, benchItems, func() {
			for _, err := range e.IterOrdered(context.Background(), penstock.FromSlice(items)) {
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkOptions shows what each option costs when it is set and has nothing to do.
func BenchmarkOptions(b *testing.B) {
	items := numbers(benchItems)
	grant := ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return nil })
	limiter := penstock.WithLimiter(grant)
	retries := penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(time.Second)})
	hooks := penstock.WithHooks(penstock.Hooks{
		AttemptStarted: func(context.Context, penstock.Attempt) {},
		AttemptEnded:   func(context.Context, penstock.Attempt, error) {},
		TaskDone:       func(context.Context, penstock.TaskInfo) {},
	})
	logger := penstock.WithLogger(slog.New(slog.DiscardHandler))
	for _, bench := range []struct {
		name string
		opts []penstock.Option
	}{
		{"None", nil},
		{"Limiter", []penstock.Option{limiter}},
		{"Retry", []penstock.Option{retries}},
		{"Hooks", []penstock.Option{hooks}},
		{"Logger", []penstock.Option{logger}},
		{"LimiterRetryHooksLogger", []penstock.Option{limiter, retries, hooks, logger}},
		{"AttemptTimeout", []penstock.Option{penstock.WithAttemptTimeout(time.Minute)}},
		{"TaskTimeout", []penstock.Option{penstock.WithTaskTimeout(time.Minute)}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			e := newEngine(b, bench.opts...)
			perItem(b, benchItems, func() {
				if _, err := e.ProcessAll(context.Background(), items); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// BenchmarkDo is the round trip of a lone item on an idle run, beside one over unbuffered channels.
func BenchmarkDo(b *testing.B) {
	b.Run("Channels", func(b *testing.B) {
		in, out := make(chan int), make(chan int)
		go func() {
			for n := range in {
				out <- n
			}
		}()
		for b.Loop() {
			in <- 1
			<-out
		}
		close(in)
	})
	b.Run("Do", func(b *testing.B) {
		run := newEngine(b).Start(context.Background())
		b.ReportAllocs()
		for b.Loop() {
			if _, err := run.Do(context.Background(), 1); err != nil {
				b.Fatal(err)
			}
		}
		if err := run.Finish(context.Background()); err != nil {
			b.Fatal(err)
		}
	})
}

func TestTaskSize(t *testing.T) {
	if size := unsafe.Sizeof(penstock.Task[int, int]{}); size > 72 {
		t.Errorf("a Task[int, int] takes %d bytes, at most 72 are promised", size)
	}
}
