package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
)

func isSourceError(err, want error) bool {
	var failed *penstock.SourceError
	return errors.As(err, &failed) && errors.Is(err, want)
}

// yieldAll yields 0 … n-1 and reports whether all were wanted.
func yieldAll(n int, yield func(int) bool) bool {
	for i := range n {
		if !yield(i) {
			return false
		}
	}
	return true
}

// Each way in which a source can end a run. Items 0, 1 and 2 come first, and have ended when the source fails.
func TestFailingSource(t *testing.T) {
	type failure struct {
		name string
		src  func() penstock.Source[int]
		is   func(error) bool
	}
	three := func(yield func(int) bool) {
		yieldAll(3, yield)
		synctest.Wait()
	}
	fail := func(end func() error) func() penstock.Source[int] {
		return func() penstock.Source[int] {
			return penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
				three(yield)
				return end()
			})
		}
	}
	seq := func(end func()) func() penstock.Source[int] {
		return func() penstock.Source[int] {
			return penstock.FromSeq(func(yield func(int) bool) {
				three(yield)
				end()
			})
		}
	}
	isPanic := func(err error) bool {
		var p *penstock.PanicError
		return isSourceError(err, errX) && errors.As(err, &p) && p.Value == errX && len(p.Stack) > 0
	}
	isGoexit := func(err error) bool { return isSourceError(err, penstock.ErrGoexit) }
	for _, f := range []failure{
		{"an error of a func", fail(func() error { return errX }), func(err error) bool {
			var failed *penstock.SourceError
			return errors.As(err, &failed) && failed.Err == errX && errors.Is(err, errX)
		}},
		{"an error of a seq2", func() penstock.Source[int] {
			return penstock.FromSeq2(func(yield func(int, error) bool) {
				three(func(n int) bool { return yield(n, nil) })
				if yield(99, errX) { // the value beside an error is no item, and nothing may come after it
					t.Error("the sequence should go on after its error")
				}
			})
		}, func(err error) bool { return isSourceError(err, errX) }},
		{"a wrapped context error while the run's goes on", fail(func() error { return fmt.Errorf("upstream: %w", context.Canceled) }),
			func(err error) bool { return isSourceError(err, context.Canceled) }},
		{"a SourceError of its own is not wrapped again", fail(func() error { return &penstock.SourceError{Err: errX} }), func(err error) bool {
			var failed *penstock.SourceError
			return errors.As(err, &failed) && failed.Err == errX
		}},
		{"a panic in a func", fail(func() error { panic(errX) }), isPanic},
		{"a panic in a seq", seq(func() { panic(errX) }), isPanic},
		{"a Goexit in a func", fail(func() error { runtime.Goexit(); return nil }), isGoexit},
		{"a Goexit in a seq", seq(runtime.Goexit), isGoexit},
	} {
		for _, w := range ways() {
			t.Run(f.name+" to "+w.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var running gauge
					cleaned := false
					// X10: item 2 is still under way, is cancelled, and has its cleanup awaited.
					e := newInts(t, running.around(func(ctx context.Context, n int) (int, error) {
						if n < 2 {
							return n, nil
						}
						<-ctx.Done()
						time.Sleep(time.Second)
						cleaned = true
						return 0, ctx.Err()
					}), 3)
					start := time.Now()
					tasks, err := w.run(t, background, e, f.src())
					if !f.is(err) || errors.Is(err, context.Canceled) != (f.name == "a wrapped context error while the run's goes on") {
						t.Errorf("the run's error: %v", err)
					}
					if time.Since(start) != time.Second || !cleaned || running.now.Load() != 0 {
						t.Errorf("returned after %v, cleaned up: %v", time.Since(start), cleaned)
					}
					// X11: what is there comes first.
					if c := tally(t, tasks); c != (penstock.Counters{Succeeded: 2, Unfinished: 1}) {
						t.Fatalf("%+v", c)
					}
					for _, task := range tasks {
						if task.Outcome == penstock.Unfinished && (!isUnfinished(task.Err) || !f.is(task.Err)) {
							t.Errorf("the unfinished task's error: %v", task.Err)
						}
					}
				})
			})
		}
	}
	t.Run("H14 a source that fails at once", func(t *testing.T) {
		for _, w := range ways() {
			tasks, err := w.run(t, background, newInts(t, double, 2), penstock.FromFunc(func(context.Context, func(int) bool) error { return errX }))
			if len(tasks) != 0 || !isSourceError(err, errX) {
				t.Errorf("%s: %v, %v", w.name, tasks, err)
			}
		}
	})
	t.Run("X14 an error of the source's cleanup after its last item", func(t *testing.T) {
		for _, w := range ways() {
			tasks, err := w.run(t, background, newInts(t, double, 2), penstock.FromFunc(func(_ context.Context, yield func(int) bool) (err error) {
				defer func() { err = errX }()
				yieldAll(5, yield)
				return nil
			}))
			if tally(t, tasks); len(tasks) != 5 || !isSourceError(err, errX) {
				t.Errorf("%s: %d tasks, %v", w.name, len(tasks), err)
			}
		}
	})
	t.Run("one run's failing source harms no other run", func(t *testing.T) {
		e := newInts(t, double, 2)
		if _, err := e.ProcessSource(background, penstock.FromFunc(func(context.Context, func(int) bool) error { return errX })); err == nil {
			t.Error("no error")
		}
		if tasks, err := e.ProcessAll(background, numbers(3)); err != nil || len(tasks) != 3 {
			t.Errorf("%v, %v", tasks, err)
		}
	})
}

func TestNilSources(t *testing.T) {
	for name, src := range map[string]penstock.Source[int]{
		"FromSeq":  penstock.FromSeq[int](nil),
		"FromSeq2": penstock.FromSeq2[int](nil),
		"FromChan": penstock.FromChan[int](nil),
		"FromFunc": penstock.FromFunc[int](nil),
	} {
		for _, w := range ways() {
			tasks, err := w.run(t, background, newInts(t, double, 2), src)
			var failed *penstock.SourceError
			if len(tasks) != 0 || !errors.As(err, &failed) {
				t.Errorf("%s of nil to %s: %v, %v", name, w.name, tasks, err)
			} else if want := "penstock: the source failed: " + name; len(err.Error()) < len(want) || err.Error()[:len(want)] != want {
				t.Errorf("%s of nil to %s: %q does not say what was nil", name, w.name, err)
			}
		}
	}
	for name, src := range map[string]penstock.Source[int]{"a nil slice": penstock.FromSlice[int](nil), "the zero Source": {}} {
		for _, w := range ways() {
			if tasks, err := w.run(t, background, newInts(t, double, 2), src); len(tasks) != 0 || err != nil {
				t.Errorf("%s to %s: %v, %v", name, w.name, tasks, err)
			}
		}
	}
}

// X22: a source is told by its context that the run has ended, and what it makes of that.
func TestSourceIsCancelled(t *testing.T) {
	ends := map[string]func(ctx context.Context) error{
		"returns ctx's error":     func(ctx context.Context) error { return ctx.Err() },
		"returns the cause":       context.Cause,
		"returns it wrapped":      func(ctx context.Context) error { return fmt.Errorf("reading: %w", ctx.Err()) },
		"returns nil":             func(context.Context) error { return nil },
		"returns another error":   func(context.Context) error { return errX },
		"panics":                  func(context.Context) error { panic(errX) },
		"ends its goroutine":      func(context.Context) error { runtime.Goexit(); return nil },
		"needs time to clean up":  func(context.Context) error { time.Sleep(time.Second); return nil },
		"yields after it is over": nil, // see below
	}
	for name, end := range ends {
		for _, w := range ways() {
			t.Run("it "+name+" to "+w.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(background)
					time.AfterFunc(time.Second, func() { cancel(errWhy) })
					returned := false
					tasks, err := w.run(t, ctx, newInts(t, double, 2), penstock.FromFunc(func(ctx context.Context, yield func(int) bool) error {
						defer func() { returned = true }()
						yieldAll(5, yield)
						<-ctx.Done()
						if end == nil {
							synctest.Wait()
							if yield(5) || yield(6) {
								t.Error("items are wanted after the end")
							}
							return nil
						}
						return end(ctx)
					}))
					// X10: also when the source then fails by itself, it was ctx that ended the run.
					if !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
						t.Errorf("the run's error does not show that ctx has ended: %v", err)
					}
					if c := tally(t, tasks); c != (penstock.Counters{Succeeded: 5}) || !returned {
						t.Errorf("%+v, the source has returned: %v", c, returned)
					}
				})
			})
		}
		t.Run("it "+name+" when the loop is left", func(t *testing.T) {
			if end == nil {
				return
			}
			returned := false
			for range newInts(t, double, 2).IterResults(background, penstock.FromFunc(func(ctx context.Context, yield func(int) bool) error {
				defer func() { returned = true }()
				yield(0)
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), context.Canceled) {
					t.Error("the cause says nothing:", context.Cause(ctx))
				}
				if name == "needs time to clean up" {
					return nil
				}
				return end(ctx)
			})) {
				break
			}
			if !returned {
				t.Error("the source has not returned")
			}
		})
	}
}

// A run whose ctx has ended reports that, also when its source has noticed first, by the caller's own ctx, and ended as if
// nothing had happened.
func TestSourceNoticesFirst(t *testing.T) {
	watch(t)
	sources := map[string]func(ctx context.Context) penstock.Source[int]{
		"seq": func(ctx context.Context) penstock.Source[int] {
			return penstock.FromSeq(func(yield func(int) bool) { yieldAll(2, yield); <-ctx.Done() })
		},
		"seq2": func(ctx context.Context) penstock.Source[int] {
			return penstock.FromSeq2(func(yield func(int, error) bool) { yield(0, nil); yield(1, nil); <-ctx.Done() })
		},
		"func": func(ctx context.Context) penstock.Source[int] {
			return penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
				yieldAll(2, yield)
				<-ctx.Done()
				return nil
			})
		},
		"chan": func(ctx context.Context) penstock.Source[int] {
			ch := make(chan int)
			go func() {
				defer close(ch)
				ch <- 0
				ch <- 1
				<-ctx.Done()
			}()
			return penstock.FromChan(ch)
		},
	}
	for name, source := range sources {
		for _, w := range ways() {
			t.Run(name+" to "+w.name, func(t *testing.T) {
				for range 100 {
					parent, cancel := context.WithCancel(background)
					ctx := foreignContext{parent} // the engine hears of its end a moment later than the source does
					e := newInts(t, func(_ context.Context, n int) (int, error) {
						if n == 1 {
							go cancel()
						}
						return n, nil
					}, 1)
					tasks, err := w.run(t, ctx, e, source(ctx))
					if !errors.Is(err, context.Canceled) {
						t.Fatalf("%d tasks, %v", len(tasks), err)
					}
				}
			})
		}
	}
}

// foreignContext is a context type that package context does not know, so that it watches it from another goroutine.
type foreignContext struct{ context.Context }

func (foreignContext) Value(any) any { return nil }

// A context that ends before, or just when, a run begins.
func TestEndedContext(t *testing.T) {
	watch(t)
	for _, w := range ways() {
		for _, kind := range sourceKinds() {
			e := newInts(t, double, 2, penstock.WithStartTimeout(time.Hour))
			for i := range 200 {
				ctx, cancel := context.WithCancel(background)
				if i%2 == 0 {
					cancel()
				} else {
					go cancel()
				}
				var reading atomic.Int32
				tasks, err := w.run(t, ctx, e, kind.make(ctx, 3, func() { reading.Add(1); reading.Add(-1) }))
				if err == nil && (len(tasks) != 3 || tally(t, tasks).Succeeded != 3) || err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("%s over a %s: %d tasks, %v", w.name, kind.name, len(tasks), err)
				}
				if tally(t, tasks); w.name == "ProcessSource" && kind.name == "slice" && len(tasks) != 3 {
					t.Fatalf("%d tasks of 3", len(tasks))
				}
			}
		}
	}
	t.Run("a source is not running any more, and was not begun after the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		cancel()
		e := newInts(t, double, 1)
		for range 2000 {
			var running atomic.Bool
			_, err := e.ProcessSource(ctx, penstock.FromFunc(func(context.Context, func(int) bool) error {
				running.Store(true)
				runtime.Gosched()
				running.Store(false)
				return nil
			}))
			if running.Load() || err != context.Canceled {
				t.Fatal("it still runs, or", err)
			}
		}
	})
}

func TestSourceAfterTheEnd(t *testing.T) {
	t.Run("B11 after the loop was left the source is not pulled again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var taken, started gauge
			e := newInts(t, started.around(func(ctx context.Context, n int) (int, error) {
				if n == 0 {
					return 0, nil
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}), 2)
			for range e.IterResults(background, sourceKinds()[2].make(background, 1000, taken.enter)) {
				synctest.Wait()
				break
			}
			// One done, two with the workers, two pending, and perhaps one in the source's hands.
			if started.total.Load() != 3 || taken.total.Load() > 6 {
				t.Errorf("%d items started, %d taken", started.total.Load(), taken.total.Load())
			}
		})
	})
	t.Run("B11 after ctx has ended nothing is received any more", func(t *testing.T) {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				ch := make(chan int, 1000)
				for i := range 1000 {
					ch <- i
				}
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				e := newInts(t, slow(time.Hour), 4)
				tasks, err := e.ProcessSource(ctx, penstock.FromChan(ch))
				if len(tasks) != 4 || len(ch) != 996 || err != context.DeadlineExceeded {
					t.Fatalf("%d tasks, %d items left, %v", len(tasks), len(ch), err)
				}
			})
		}
	})
	t.Run("a func that ignores yield's answer gets the same one again, and its items are not handled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var handled gauge
			e := newInts(t, handled.around(double), 2)
			answers := map[bool]int{}
			returned := false
			for range e.IterResults(background, penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
				for i := range 1000 {
					answers[yield(i)]++
				}
				returned = true
				return nil
			})) {
				synctest.Wait()
				break
			}
			if !returned || answers[true]+answers[false] != 1000 || answers[false] < 980 {
				t.Errorf("returned: %v, answers: %v", returned, answers)
			}
			if n := handled.total.Load(); n > 10 {
				t.Errorf("%d items were handled", n)
			}
			// A false means that no more is wanted; the item it was the answer to may just have been accepted.
			c := e.Counters()
			if more := c.Succeeded + c.Unfinished - answers[true]; c.Pending+c.Running != 0 || more < 0 || more > 1 {
				t.Errorf("%d items were wanted, and the counters are %+v", answers[true], c)
			}
		})
	})
	t.Run("a seq or a seq2 that ignores yield's answer", func(t *testing.T) {
		ignorant := []penstock.Source[int]{
			penstock.FromSeq(func(yield func(int) bool) {
				for i := range 1000 {
					yield(i)
				}
			}),
			penstock.FromSeq2(func(yield func(int, error) bool) { // Go itself makes this one panic
				for i := range 1000 {
					yield(i, nil)
				}
			}),
		}
		for i, w := range append(ways(), ways()...) {
			ctx, cancel := context.WithCancel(background)
			e := newInts(t, func(ctx context.Context, n int) (int, error) {
				if n == 10 {
					cancel()
				}
				return n, ctx.Err()
			}, 2)
			tasks, err := w.run(t, ctx, e, ignorant[i%2])
			if tally(t, tasks); !errors.Is(err, context.Canceled) || len(tasks) == 1000 {
				t.Errorf("%s: %d tasks, %v", w.name, len(tasks), err)
			}
		}
	})
	t.Run("X13 a channel is neither closed nor drained", func(t *testing.T) {
		ch := make(chan int, 100)
		for i := range 100 {
			ch <- i
		}
		got := 0
		e := newInts(t, double, 2)
		for range e.IterResults(background, penstock.FromChan(ch)) {
			if got++; got == 3 {
				break
			}
		}
		select {
		case n, open := <-ch:
			if !open || n < 3 || n > 3+2*2+2 {
				t.Errorf("the next item in the channel is %d, open: %v", n, open)
			}
		default:
			t.Error("the channel was drained")
		}
	})
	t.Run("a worker that waits for a channel's next item leaves when ctx ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			start := time.Now()
			ch := make(chan int, 1)
			ch <- 7
			tasks, err := newInts(t, double, 3).ProcessSource(ctx, penstock.FromChan(ch))
			if time.Since(start) != time.Second || err != context.DeadlineExceeded || len(tasks) != 1 || tasks[0].Result != 14 {
				t.Errorf("after %v: %v, %v", time.Since(start), tasks, err)
			}
		})
	})
}

func TestSourceReuse(t *testing.T) {
	t.Run("a slice serves many runs at once", func(t *testing.T) {
		src := penstock.FromSlice(numbers(100))
		e := newInts(t, double, 4)
		outer := 0
		for range e.IterResults(background, src) {
			if outer++; outer%10 == 0 {
				if tasks, err := e.ProcessSource(background, src); err != nil || len(tasks) != 100 {
					t.Errorf("%d tasks, %v", len(tasks), err)
				}
			}
		}
		if outer != 100 {
			t.Error(outer)
		}
	})
	t.Run("a channel goes on where the run before has left it", func(t *testing.T) {
		ch := make(chan int)
		go func() {
			for i := range 10 {
				ch <- i
			}
			close(ch)
		}()
		e := newInts(t, double, 1)
		total := 0
		for round := 0; total < 10 && round < 20; round++ {
			for task := range e.IterResults(background, penstock.FromChan(ch)) {
				if task.Index == 0 && task.Data != total {
					t.Errorf("task 0 of a run has %d after %d items", task.Data, total)
				}
				total++
			}
		}
		if total != 10 {
			t.Error(total)
		}
	})
	t.Run("H13 a batch takes what a channel has ready, and waits for nothing more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ch := make(chan int, 100)
			for i := range 30 {
				ch <- i
			}
			time.AfterFunc(time.Hour, func() { close(ch) })
			start := time.Now()
			e := newInts(t, double, 2, penstock.WithBatch(8))
			seen := 0
			for task, err := range e.IterOrdered(background, penstock.FromChan(ch)) {
				if err != nil || task.Data != seen || task.Index != seen || time.Since(start) != 0 {
					t.Errorf("after %v: %+v, %v", time.Since(start), task, err)
				}
				seen++
			}
			if seen != 30 {
				t.Error(seen)
			}
			tasks, err := e.ProcessSource(background, penstock.FromChan(ch)) // closed
			if len(tasks) != 0 || err != nil {
				t.Errorf("%v, %v", tasks, err)
			}
		})
	})
	t.Run("any value is an item, the zero one and nil too", func(t *testing.T) {
		e, err := penstock.New(func(_ context.Context, p *int) (*int, error) { return p, nil }, 2)
		if err != nil {
			t.Fatal(err)
		}
		values, err := penstock.Values(e.ProcessSource(background, penstock.FromSlice([]*int{nil, nil})))
		if err != nil || len(values) != 2 || values[0] != nil {
			t.Errorf("%v, %v", values, err)
		}
	})
}

// A source that only reports that its context has ended is not broken: the run's error is the reason for that end alone.
func TestSourceThatReportsTheEnd(t *testing.T) {
	for name, report := range map[string]func(context.Context) error{
		"nothing":           func(context.Context) error { return nil },
		"the context's":     func(ctx context.Context) error { return ctx.Err() },
		"its cause":         context.Cause,
		"one that wraps it": func(ctx context.Context) error { return fmt.Errorf("query: %w", ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			tasks, err := newInts(t, double, 1).ProcessSource(ctx, penstock.FromFunc(func(ctx context.Context, yield func(int) bool) error {
				yield(1)
				cancel(errWhy)
				<-ctx.Done()
				return report(ctx)
			}))
			if _, broken := errors.AsType[*penstock.SourceError](err); broken || !errors.Is(err, errWhy) || len(tasks) != 1 {
				t.Errorf("%v, %v", tasks, err)
			}
		})
	}
}
