package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/retry"
)

// Memory that grew with the work: what is pulled ahead, what waits for a retry, what has been handed out.

// B08, python/cpython#74028: a parallel map pulled its whole input before it gave out anything. The number of items held
// is measured at every result against the documented bound.
func TestB08PulledAheadIsBounded(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		for _, c := range []struct{ input, results, workers, batch int }{
			{8, 4, 4, 1}, {1, 1, 1, 1}, {1, 9, 3, 1}, {20, 1, 2, 1}, {8, 4, 4, 5},
		} {
			bubble(t, func(t *testing.T) {
				var starts atomic.Int64
				e := newEngine(func(_ context.Context, n int) (int, error) {
					starts.Add(1)
					return n, nil
				}, c.workers, penstock.WithInputCapacity(c.input), penstock.WithResultCapacity(c.results), penstock.WithBatch(c.batch))
				f := newFeed(s.kind, endless)
				defer f.close()
				bound := buffering.Bound(c.input, c.results, c.workers*c.batch)
				read := 0
				for _, err := range s.results(e, t.Context(), f.source) {
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(10 * ms)
					synctest.Wait()
					pulled := max(f.pulled.Load(), starts.Load())
					if held := int(pulled) - read; held > bound { // the one that is looked at counts
						t.Fatalf("%v: %d items are held after %d were read, want at most %d", c, held, read, bound)
					}
					if ahead := int(starts.Load()) - read; s.ordered && ahead > c.workers+c.results {
						t.Fatalf("%v: %d were started ahead of the %d that were read, want at most workers and results", c, ahead, read)
					}
					if read++; read == 30 {
						break
					}
				}
			})
		}
	})
}

// A run made by hand, whose reader reads nothing: every submitter is stopped, and together they hold the bound.
func TestB08SubmittedAheadIsBounded(t *testing.T) {
	for _, submitters := range []int{1, 5} {
		t.Run(fmt.Sprint(submitters, " submitters"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				run := newEngine(same, 4, penstock.WithInputCapacity(8)).Start(t.Context())
				var accepted atomic.Int64
				var all sync.WaitGroup
				for range submitters {
					all.Go(func() {
						for i := 0; ; i++ {
							if _, err := run.Submit(t.Context(), i); err != nil {
								isAll(t, err, penstock.ErrStopped)
								return
							}
							accepted.Add(1)
						}
					})
				}
				time.Sleep(time.Minute)
				equal(t, "accepted: the input, the workers and the results are full", accepted.Load(), 8+4+4)
				if err := run.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				all.Wait()
				equal(t, "delivered", len(run.Drain()), 8+4+4)
			})
		})
	}
}

// B52, celery/celery#9849: delayed and retrying tasks did not count against the prefetch bound, so a wave of failures
// pulled thousands into memory. A task that waits, for whatever reason, occupies its worker.
func TestB52WaitingTasksCount(t *testing.T) {
	for name, opts := range map[string]func() []option{
		"backoff": func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Hour)})}
		},
		"Retry-After": func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1, FreeThrottled: true})}
		},
		"limiter": func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithLimiter(limiterFunc(func(ctx context.Context, _ int) error {
				return hang(ctx)
			}))}
		},
	} {
		for _, kind := range sourceKinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := newFeed(kind, endless)
					defer f.close()
					var starts atomic.Int64
					e := newEngine(func(context.Context, int) (int, error) {
						starts.Add(1)
						return 0, retry.After(errX, time.Hour)
					}, 4, append(opts(), penstock.WithInputCapacity(8))...)
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(300*ms, func() {
						defer cancel()
						if n := f.pulled.Load(); n > 8+4+1 {
							t.Errorf("%d pulled, want at most the queue, the workers and the one in the source's hand", n)
						}
						if n := starts.Load(); n > 4 {
							t.Errorf("%d items started, with 4 workers whose items all wait", n)
						}
					})
					if _, err := e.ProcessSource(ctx, f.source); !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				})
			})
		}
	}
}

// A blob stands for an item or a result of some size, and can be watched without being kept.
type blob struct{ bytes []byte }

// watched counts how many of the blobs made by it are still held.
type watched struct {
	mu    sync.Mutex
	blobs []weak.Pointer[blob]
}

func (w *watched) make(size int) *blob {
	b := &blob{make([]byte, size)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.blobs = append(w.blobs, weak.Make(b))
	return b
}

func (w *watched) held() (n int) {
	runtime.GC()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.blobs {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// B70, python/cpython#1560: finished results stayed referenced until the very end, and so did the inputs. Both are counted
// by weak pointers at several places in the stream.
func TestB70HandedOutIsReleased(t *testing.T) {
	const items, workers = 200, 4
	for name, source := range map[string]func(seq iter.Seq[*blob]) (penstock.Source[*blob], func()){
		"seq": func(seq iter.Seq[*blob]) (penstock.Source[*blob], func()) { return penstock.FromSeq(seq), func() {} },
		"seq2": func(seq iter.Seq[*blob]) (penstock.Source[*blob], func()) {
			return penstock.FromSeq2(func(yield func(*blob, error) bool) {
				for b := range seq {
					if !yield(b, nil) {
						return
					}
				}
			}), func() {}
		},
		"func": func(seq iter.Seq[*blob]) (penstock.Source[*blob], func()) {
			return penstock.FromFunc(func(_ context.Context, yield func(*blob) bool) error { seq(yield); return nil }), func() {}
		},
		"chan": func(seq iter.Seq[*blob]) (penstock.Source[*blob], func()) {
			ch := make(chan *blob)
			var feeder sync.WaitGroup
			feeder.Go(func() {
				defer close(ch)
				for b := range seq {
					ch <- b
				}
			})
			return penstock.FromChan(ch), feeder.Wait
		},
	} {
		for iterator, results := range map[string]func(*penstock.Engine[*blob, *blob], context.Context, penstock.Source[*blob]) iter.Seq2[penstock.Task[*blob, *blob], error]{
			"IterResults": (*penstock.Engine[*blob, *blob]).IterResults,
			"IterOrdered": (*penstock.Engine[*blob, *blob]).IterOrdered,
		} {
			for _, batch := range []int{1, 8} {
				t.Run(fmt.Sprintf("%s(%s)/batch %d", iterator, name, batch), func(t *testing.T) {
					watch(t)
					var in, out watched
					e := must(penstock.New(func(_ context.Context, b *blob) (*blob, error) { return out.make(len(b.bytes)), nil },
						workers, penstock.WithBatch(batch), penstock.WithRetry(retry.Policy{Max: 1})))
					src, wait := source(func(yield func(*blob) bool) {
						for range items {
							if !yield(in.make(1024)) {
								return
							}
						}
					})
					// One goroutine of the test may still have one of each in its hand.
					bound := buffering.Bound(workers, workers, workers*batch) + 1
					read := 0
					for task, err := range results(e, t.Context(), src) {
						if task.Outcome != penstock.Succeeded || err != nil {
							t.Fatal(task, err)
						}
						if read++; read%100 == 0 {
							if n := out.held(); n > bound {
								t.Errorf("%d results are held after %d, want at most %d", n, read, bound)
							}
							if n := in.held(); n > bound {
								t.Errorf("%d inputs are held after %d, want at most %d", n, read, bound)
							}
						}
					}
					wait()
					equal(t, "results", read, items)
					equal(t, "results held at the end", out.held(), 0)
					equal(t, "inputs held at the end", in.held(), 0)
					runtime.KeepAlive(e)
				})
			}
		}
	}
}

// Runs made by hand and the foreman keep nothing of what was read either, although they go on.
func TestB70LongRunsKeepNothing(t *testing.T) {
	const items = 200
	type blobTask = penstock.Task[*blob, *blob]
	var in, out watched
	h := func(_ context.Context, b *blob) (*blob, error) { return out.make(len(b.bytes)), nil }
	ctx := t.Context()
	run := must(penstock.New(h, 3)).Start(ctx)
	f := must(foreman.New(h, 3))
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for name, turn := range map[string]func(){
		"Next": func() { must(run.Submit(ctx, in.make(1024))); must(run.Next(ctx)) },
		"Do":   func() { must(run.Do(ctx, in.make(1024))) },
		"Do with a context": func() {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			must(run.Do(ctx, in.make(1024)))
		},
		"priority": func() {
			for p := range 4 {
				must(run.Submit(ctx, in.make(1024), penstock.AtPriority(4-p)))
			}
			for range 4 {
				must(run.Next(ctx))
			}
		},
		"Results": func() {
			must(run.Submit(ctx, in.make(1024)))
			for range run.Results() {
				break
			}
		},
		"Drain": func() {
			must(run.Submit(ctx, in.make(1024)))
			for len(run.Drain()) == 0 {
				runtime.Gosched()
			}
		},
		"Foreman": func() {
			if err := f.Add(ctx, blobTask{Data: in.make(1024)}); err != nil {
				t.Fatal(err)
			}
			must(f.Next(ctx))
		},
		"a backlog": func() {
			for range 50 {
				if err := f.Add(ctx, blobTask{Data: in.make(1024)}); err != nil {
					t.Fatal(err)
				}
			}
			for range 50 {
				must(f.Next(ctx))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			for range items / 10 {
				turn()
			}
			// A worker may still be on its way from handing over to letting go: it is waited for by what it does next.
			const hands = 8
			for try := 0; ; try++ {
				results, inputs := out.held(), in.held()
				if results == 0 && inputs == 0 {
					break
				}
				if try == 100 {
					t.Fatalf("%d results and %d inputs are still held", results, inputs)
				}
				for range hands {
					runtime.Gosched()
				}
			}
		})
	}
	if err := run.Finish(ctx); err != nil {
		t.Error(err)
	}
	if err := f.Finalize(ctx); err != nil {
		t.Error(err)
	}
}

// The case as it was reported, by the heap: 200 results of 256 KiB through a stream, of which a handful is held.
func TestB70HeapHoldsAHandful(t *testing.T) {
	watch(t)
	const size, workers = 1 << 18, 4
	e := must(penstock.New(func(context.Context, int) ([]byte, error) { return make([]byte, size), nil }, workers))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, read := heap(), 0
	for task, err := range e.IterResults(t.Context(), penstock.FromSlice(numbers(200))) {
		if err != nil || len(task.Result) != size {
			t.Fatal(task.Outcome, err)
		}
		if read++; read%100 == 0 {
			most := uint64(buffering.Bound(0, workers, workers)+2) * size
			if grown := heap() - before; grown > most && grown < 1<<60 {
				t.Errorf("the heap has grown by %d KiB after %d results, want at most %d KiB", grown>>10, read, most>>10)
			}
		}
	}
}
