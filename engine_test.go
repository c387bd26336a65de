package penstock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

func TestTask(t *testing.T) {
	failing := newInts(t, func(_ context.Context, n int) (int, error) {
		if n == 1 {
			return 7, errX
		}
		return 0, nil
	}, 1)
	tasks, err := failing.ProcessAll(background, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("U2 U4 a success has a value, also a zero one", func(t *testing.T) {
		want := intTask{Index: 0, Data: 0, Attempts: 1, Outcome: penstock.Succeeded}
		if tasks[0] != want {
			t.Errorf("%+v", tasks[0])
		}
		if v, err := tasks[0].Value(); v != 0 || err != nil {
			t.Errorf("Value: %v, %v", v, err)
		}
	})
	t.Run("U3 U5 U7 a failure keeps the handler's very error and no result", func(t *testing.T) {
		for range 2 { // Value changes nothing
			if v, err := tasks[1].Value(); v != 0 || err != errX {
				t.Errorf("Value: %v, %v", v, err)
			}
			want := intTask{Index: 1, Data: 1, Err: errX, Attempts: 1, Outcome: penstock.Failed}
			if tasks[1] != want {
				t.Errorf("%+v", tasks[1])
			}
		}
	})
	t.Run("U6 a task that has not ended says so", func(t *testing.T) {
		v, err := intTask{Index: 3}.Value()
		if v != 0 || err == nil || err.Error() != "penstock: task 3 has not ended" {
			t.Errorf("%v, %v", v, err)
		}
	})
	t.Run("U9 only the last attempt's error is kept, and none after a success", func(t *testing.T) {
		texts := []string{"one", "two", "three"}
		e := newInts(t, func(ctx context.Context, n int) (int, error) {
			if attempt := penstock.AttemptNumber(ctx); attempt <= n {
				return 0, errors.New(texts[attempt-1])
			}
			return n, nil
		}, 1, penstock.WithRetry(retry.Policy{Max: 1}))
		tasks, err := e.ProcessAll(background, []int{1, 2})
		if err != nil || tasks[0].Err != nil || tasks[0].Outcome != penstock.Succeeded || tasks[0].Attempts != 2 {
			t.Errorf("%+v, %v", tasks[0], err)
		}
		if tasks[1].Err == nil || tasks[1].Err.Error() != "two" || tasks[1].Result != 0 || tasks[1].Attempts != 2 {
			t.Errorf("%+v", tasks[1])
		}
	})
	t.Run("U10 an error type that cannot be compared is as good as any", func(t *testing.T) {
		e, err := penstock.New(func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			return 0, manyErrors{errX, ctx.Err()}
		}, 1, penstock.WithAttemptTimeout(time.Nanosecond), penstock.WithTaskTimeout(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := e.ProcessAll(background, []int{1})
		if err != nil || !errors.Is(tasks[0].Err, errX) || !errors.Is(tasks[0].Err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", tasks[0].Err, err)
		}
	})
}

// manyErrors is what validation libraries return: == panics on it.
type manyErrors []error

func (m manyErrors) Error() string   { return "many errors" }
func (m manyErrors) Unwrap() []error { return m }

func TestProcessAll(t *testing.T) {
	for _, w := range append([]way{{"ProcessAll", true, nil}}, ways()...) {
		process := func(t *testing.T, e *intEngine, items []int) ([]intTask, error) {
			if w.run == nil {
				return e.ProcessAll(background, items)
			}
			return w.run(t, background, e, penstock.FromSlice(items))
		}
		t.Run(w.name, func(t *testing.T) {
			t.Run("H2 no items give no tasks and no error", func(t *testing.T) {
				for _, items := range [][]int{nil, {}} {
					tasks, err := process(t, newInts(t, double, 4), items)
					if len(tasks) != 0 || err != nil {
						t.Errorf("%v, %v", tasks, err)
					}
				}
			})
			t.Run("H3 a failed item harms no other", func(t *testing.T) {
				e, err := penstock.New(func(_ context.Context, n int) (string, error) {
					if n == 2 {
						return "", errX
					}
					return strconv.Itoa(n), nil
				}, 2)
				if err != nil {
					t.Fatal(err)
				}
				tasks, err := e.ProcessAll(background, []int{1, 2, 3})
				if err != nil || tasks[0].Result != "1" || tasks[1].Err != errX || tasks[2].Result != "3" {
					t.Errorf("%v, %v", tasks, err)
				}
			})
			t.Run("H5 any capacities, batch and retries come to an end", func(t *testing.T) {
				watch(t)
				for _, capacity := range []int{1, 2, penstock.Unlimited} {
					for _, batch := range []int{1, 3, 100} {
						e := newInts(t, func(ctx context.Context, n int) (int, error) {
							if penstock.AttemptNumber(ctx) == 1 && n%3 == 0 {
								return 0, errX
							}
							return 2 * n, nil
						}, 3, penstock.WithInputCapacity(capacity), penstock.WithResultCapacity(capacity),
							penstock.WithBatch(batch), penstock.WithRetry(retry.Policy{Max: 1}))
						tasks, err := process(t, e, numbers(100))
						if c := tally(t, tasks); err != nil || c.Succeeded != 100 || c.Retries != 34 {
							t.Errorf("capacity %d, batch %d: %+v, %v", capacity, batch, c, err)
						}
					}
				}
			})
			t.Run("H8 each run begins at number 0 and has its own tasks only", func(t *testing.T) {
				e := newInts(t, double, 2)
				for round := range 3 {
					tasks, err := process(t, e, numbers(10+round))
					if tally(t, tasks); err != nil || len(tasks) != 10+round {
						t.Errorf("round %d: %d tasks, %v", round, len(tasks), err)
					}
				}
			})
		})
	}
	t.Run("B77 each item is handled exactly once", func(t *testing.T) {
		const n = 2_000
		handled := make([]atomic.Int32, n)
		e := newInts(t, func(_ context.Context, i int) (int, error) {
			handled[i].Add(1)
			return i, nil
		}, 16)
		rounds := 0
		for _, w := range ways() {
			for _, kind := range sourceKinds() {
				if !kind.queued && w.ordered {
					continue // enough is enough
				}
				rounds++
				tasks, err := w.run(t, background, e, kind.make(background, n, func() {}))
				if c := tally(t, tasks); err != nil || c.Succeeded != n {
					t.Fatalf("%s over a %s: %+v, %v", w.name, kind.name, c, err)
				}
			}
		}
		for i := range handled {
			if handled[i].Load() != int32(rounds) {
				t.Fatalf("item %d was handled %d times in %d runs", i, handled[i].Load(), rounds)
			}
		}
	})
}

// Every way in which a whole run can fail, for every way to work through every kind of source.
func TestFailedRun(t *testing.T) {
	isCancelled := func(err error) bool { return errors.Is(err, context.Canceled) && errors.Is(err, errWhy) }
	isDeadline := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && errors.Is(err, errWhy) }
	isTooMany := func(err error) bool {
		var many *penstock.TooManyFailuresError
		return errors.As(err, &many) && many.Limit == 2 && many.Task == "5" && many.Err == errX && errors.Is(err, errX)
	}
	isLimiter := func(err error) bool {
		var broken *penstock.LimiterError
		return errors.As(err, &broken) && broken.Err == errX && broken.Task == "5"
	}
	// Two workers take a second for each item, so that items 2k and 2k+1 run from second k on.
	for _, failure := range []struct {
		name     string
		opts     []penstock.Option
		ctx      func() (context.Context, func())
		bad      func(n int) bool // the handler fails for these
		is       func(error) bool
		at       time.Duration // when the run ends
		finished int           // tasks that came to their own end
	}{
		{
			name: "ctx is cancelled", at: 2500 * time.Millisecond, finished: 4, is: isCancelled,
			ctx: func() (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(background)
				timer := time.AfterFunc(2500*time.Millisecond, func() { cancel(errWhy) })
				return ctx, func() { timer.Stop(); cancel(nil) }
			},
		},
		{
			name: "ctx has a deadline", at: 2500 * time.Millisecond, finished: 4, is: isDeadline,
			ctx: func() (context.Context, func()) {
				return context.WithTimeoutCause(background, 2500*time.Millisecond, errWhy)
			},
		},
		{
			name: "ctx has ended before", at: 0, finished: 0, is: isCancelled,
			ctx: func() (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(background)
				cancel(errWhy)
				return ctx, func() {}
			},
		},
		{
			name: "too many items fail", at: 3 * time.Second, is: isTooMany,
			// Items 4 and 5 end in the same instant; 4 does not fail, so it may be finished or not.
			opts: []penstock.Option{penstock.WithFailureLimit(2)}, bad: func(n int) bool { return n == 1 || n == 5 }, finished: -1,
		},
		{
			name: "the limiter fails", at: 2 * time.Second, finished: 4, is: isLimiter,
			opts: []penstock.Option{penstock.WithLimiter(ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
				if r.Index == 5 {
					return errX
				}
				return nil
			}))},
		},
	} {
		t.Run(failure.name, func(t *testing.T) {
			all := append(ways(), way{"ProcessAll", true, func(_ testing.TB, ctx context.Context, e *intEngine, _ penstock.Source[int]) ([]intTask, error) {
				return e.ProcessAll(ctx, numbers(10))
			}})
			for _, w := range all {
				for _, kind := range sourceKinds() {
					if w.name == "ProcessAll" && kind.name != "slice" {
						continue
					}
					t.Run(w.name+" over a "+kind.name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							ctx, cancel := background, func() {}
							if failure.ctx != nil {
								ctx, cancel = failure.ctx()
							}
							defer cancel()
							sourceCtx, closeSource := context.WithCancel(background)
							defer closeSource()
							var running gauge
							e := newInts(t, running.around(func(ctx context.Context, n int) (int, error) {
								if err := pause(ctx, time.Second); err != nil {
									return 0, err
								}
								if failure.bad != nil && failure.bad(n) {
									return 0, errX
								}
								return 2 * n, nil
							}), 2, failure.opts...)

							start := time.Now()
							tasks, err := w.run(t, ctx, e, kind.make(sourceCtx, 10, func() {}))

							if since := time.Since(start); since != failure.at {
								t.Errorf("returned after %v instead of %v", since, failure.at)
							}
							if !failure.is(err) {
								t.Errorf("the run's error is %v", err)
							}
							if n := running.now.Load(); n != 0 {
								t.Errorf("%d handlers still run", n)
							}
							if w.ordered && !slices.IsSortedFunc(tasks, func(a, b intTask) int { return a.Index - b.Index }) {
								t.Error("the tasks are not in order")
							}
							if (w.name == "ProcessAll" || w.name == "ProcessSource" && kind.name == "slice") && len(tasks) != 10 {
								t.Errorf("%d tasks for 10 items", len(tasks))
							}
							c := tally(t, tasks)
							if failure.finished >= 0 && c.Succeeded+c.Failed != failure.finished {
								t.Errorf("%+v, but %d should have ended by themselves", c, failure.finished)
							}
							for _, task := range tasks {
								if task.Data != task.Index {
									t.Errorf("task %d has data %d", task.Index, task.Data)
								}
								if task.Outcome == penstock.Unfinished && (!failure.is(task.Err) || !isUnfinished(task.Err)) {
									t.Errorf("task %d does not say why: %v", task.Index, task.Err)
								}
							}
							if total := e.Counters(); total != c {
								t.Errorf("the engine counted %+v, the tasks say %+v", total, c)
							}

							started := running.total.Load()
							time.Sleep(time.Hour)
							if running.total.Load() != started {
								t.Error("a handler started after the end")
							}
						})
					})
				}
			}
		})
	}
}

func isUnfinished(err error) bool {
	var u *penstock.UnfinishedError
	return errors.As(err, &u) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

func TestFailureIsPublishedFirst(t *testing.T) {
	// X18: whatever the capacities, the item that reaches the limit comes before the run's error.
	for _, capacity := range []int{1, penstock.Unlimited} {
		e := newInts(t, func(_ context.Context, n int) (int, error) {
			if n == 3 {
				return 0, errX
			}
			return n, nil
		}, 1, penstock.WithFailureLimit(1), penstock.WithInputCapacity(capacity), penstock.WithResultCapacity(capacity))
		for _, w := range ways() {
			for _, kind := range sourceKinds() {
				ctx, cancel := context.WithCancel(background)
				tasks, err := w.run(t, ctx, e, kind.make(ctx, 10, func() {}))
				cancel()
				var many *penstock.TooManyFailuresError
				if !errors.As(err, &many) {
					t.Fatalf("%s over a %s: %v", w.name, kind.name, err)
				}
				if c := tally(t, tasks); c.Succeeded != 3 || c.Failed != 1 || tasks[3].Err != errX {
					t.Errorf("%s over a %s: %+v", w.name, kind.name, c)
				}
			}
		}
	}
}

func TestHandlersAfterCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A handler that returns a value has succeeded, however late; one that returns an error is unfinished.
		e := newInts(t, func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Second)
			if n == 0 {
				return 42, nil
			}
			return 0, errX
		}, 2, penstock.WithRetry(retry.Policy{Max: 5}))
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		start := time.Now()
		tasks, err := e.ProcessAll(ctx, numbers(3))
		if time.Since(start) != 2*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if tasks[0].Outcome != penstock.Succeeded || tasks[0].Result != 42 {
			t.Errorf("%+v", tasks[0])
		}
		if tasks[1].Attempts != 1 || !isUnfinished(tasks[1].Err) || !errors.Is(tasks[1].Err, errX) || !errors.Is(tasks[1].Err, context.DeadlineExceeded) {
			t.Errorf("%+v", tasks[1])
		}
		if tasks[2].Attempts != 0 || !isUnfinished(tasks[2].Err) {
			t.Errorf("%+v", tasks[2])
		}
		if c := tally(t, tasks); c != (penstock.Counters{Succeeded: 1, Unfinished: 2}) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("a context that ends when all is done anyway is no failure", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		e := newInts(t, func(_ context.Context, n int) (int, error) {
			cancel()
			return n, nil
		}, 1)
		if values, err := penstock.Values(e.ProcessAll(ctx, []int{7})); err != nil || values[0] != 7 {
			t.Errorf("%v, %v", values, err)
		}
	})
}

// leaving a loop in each possible way, early and late.
func TestLeavingTheLoop(t *testing.T) {
	type exit struct {
		name  string
		leave func() // called in the loop's body; what it does not do, a break does
	}
	exits := []exit{
		{"break", func() {}},
		{"panic", func() { panic(errX) }},
		{"Goexit", runtime.Goexit},
	}
	streams := []struct {
		name   string
		stream func(e *intEngine, ctx context.Context, src penstock.Source[int]) func(func(intTask, error) bool)
	}{
		{"IterResults", func(e *intEngine, ctx context.Context, src penstock.Source[int]) func(func(intTask, error) bool) {
			return e.IterResults(ctx, src)
		}},
		{"IterOrdered", func(e *intEngine, ctx context.Context, src penstock.Source[int]) func(func(intTask, error) bool) {
			return e.IterOrdered(ctx, src)
		}},
	}
	for _, s := range streams {
		for _, kind := range sourceKinds() {
			for _, x := range exits {
				t.Run(s.name+" over a "+kind.name+" by "+x.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ctx, cancel := context.WithCancel(background)
						defer cancel()
						var running gauge
						cleaned := 0
						// Item 0 gives the one result; the others hang until cancelled and then take a second to clean up.
						e := newInts(t, running.around(func(ctx context.Context, n int) (int, error) {
							if n == 0 {
								return 0, nil
							}
							<-ctx.Done()
							time.Sleep(time.Second)
							if n == 1 {
								cleaned++
							}
							return 0, ctx.Err()
						}), 3)
						bodies := 0
						start := time.Now()
						loop := func() {
							for _, err := range s.stream(e, ctx, kind.make(ctx, -1, func() {})) {
								if err != nil {
									t.Error(err)
								}
								bodies++
								synctest.Wait()
								x.leave()
								break
							}
						}
						var caught any
						ended := make(chan struct{})
						go func() { // for Goexit's sake
							defer close(ended)
							defer func() { caught = recover() }()
							loop()
						}()
						<-ended
						if x.name == "panic" && caught != errX || x.name != "panic" && caught != nil {
							t.Errorf("caught %v", caught)
						}
						if time.Since(start) != time.Second {
							t.Errorf("the loop was left after %v, the handlers' cleanup takes 1s", time.Since(start))
						}
						if bodies != 1 || cleaned != 1 || running.now.Load() != 0 {
							t.Errorf("%d bodies, %d cleaned up, %d still running", bodies, cleaned, running.now.Load())
						}
						started := running.total.Load()
						time.Sleep(time.Hour)
						if running.total.Load() != started || started > 4 {
							t.Errorf("%d handlers started, %d of them after the loop", running.total.Load(), running.total.Load()-started)
						}
						if c := e.Counters(); c.Pending != 0 || c.Running != 0 {
							t.Errorf("%+v", c)
						}
					}) // the bubble fails if a goroutine is left
				})
			}
		}
	}
	t.Run("B19 a return out of the loop", func(t *testing.T) {
		e := newInts(t, double, 2)
		first := func() int {
			for task := range e.IterResults(background, penstock.FromSlice(numbers(20))) {
				return task.Result
			}
			return -1
		}
		if first()%2 != 0 {
			t.Error("no result")
		}
	})
	t.Run("X6 a source has run its deferred calls when the loop is over, also without a single result", func(t *testing.T) {
		for _, x := range []string{"end", "break", "error"} {
			closed := 0
			source := func(yield func(int) bool) {
				defer func() { closed++ }() // no lock: the end of the loop must come after it
				for i := range 20 {
					if !yield(i) {
						return
					}
				}
			}
			e := newInts(t, func(_ context.Context, n int) (int, error) {
				if x == "error" {
					return 0, errX
				}
				return n, nil
			}, 2, penstock.WithFailureLimit(1))
			for _, err := range e.IterResults(background, penstock.FromSeq(source)) {
				if x == "break" || err != nil {
					break
				}
			}
			if closed != 1 {
				t.Errorf("%s: closed %d times", x, closed)
			}
		}
	})
	t.Run("B23 no goroutine is left after many early exits", func(t *testing.T) {
		e := newInts(t, double, 4)
		before := runtime.NumGoroutine()
		for range 100 {
			for _, kind := range sourceKinds() {
				ctx, cancel := context.WithCancel(background)
				for range e.IterResults(ctx, kind.make(ctx, -1, func() {})) {
					break
				}
				cancel()
			}
		}
		eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
}

func TestIterResults(t *testing.T) {
	t.Run("X1 nothing happens before it is ranged over", func(t *testing.T) {
		began := false
		e := newInts(t, double, 2)
		e.IterResults(background, penstock.FromSeq(func(func(int) bool) { began = true }))
		e.IterOrdered(background, penstock.FromSeq(func(func(int) bool) { began = true }))
		runtime.Gosched()
		if began || e.Counters() != (penstock.Counters{}) {
			t.Error("the source has begun")
		}
	})
	t.Run("X2 results come in order of completion", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newInts(t, func(ctx context.Context, n int) (int, error) {
				return n, pause(ctx, time.Duration(20-n)*time.Second)
			}, 20)
			for _, kind := range sourceKinds() {
				tasks, err := collect(t, e.IterResults(background, kind.make(background, 20, func() {})))
				if err != nil {
					t.Fatal(err)
				}
				for i, task := range tasks {
					if task.Data != 19-i || task.Index != 19-i || task.Result != 19-i {
						t.Errorf("%s: at %d came %+v", kind.name, i, task)
					}
				}
			}
		})
	})
	t.Run("X3 the first result comes before the source ends", func(t *testing.T) {
		e := newInts(t, double, 1)
		read := make(chan struct{})
		source := penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
			yield(21)
			<-read
			return nil
		})
		for task, err := range e.IterResults(background, source) {
			if err != nil || task.Result != 42 {
				t.Errorf("%+v, %v", task, err)
			}
			close(read)
		}
	})
	t.Run("X4 each range is a run of its own", func(t *testing.T) {
		e := newInts(t, double, 2)
		stream := e.IterResults(background, penstock.FromSlice(numbers(5)))
		for range 3 {
			tasks, err := collect(t, stream)
			if c := tally(t, tasks); err != nil || c.Succeeded != 5 {
				t.Errorf("%+v, %v", c, err)
			}
		}
		if c := e.Counters(); c != (penstock.Counters{Succeeded: 15}) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("X8 X9 a deadline that strikes in the body ends the loop when all is cleaned up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			defer cancel()
			e := newInts(t, func(ctx context.Context, n int) (int, error) {
				if n == 0 {
					return 0, nil
				}
				<-ctx.Done()
				time.Sleep(50 * time.Millisecond)
				return 0, ctx.Err()
			}, 2)
			start := time.Now()
			var outcomes []penstock.Outcome
			var failure error
			for task, err := range e.IterResults(ctx, penstock.FromSlice([]int{0, 1})) {
				if err != nil {
					failure = err
					continue
				}
				outcomes = append(outcomes, task.Outcome)
				if task.Index == 0 {
					time.Sleep(30 * time.Millisecond)
				}
			}
			if time.Since(start) != 70*time.Millisecond || !errors.Is(failure, context.DeadlineExceeded) {
				t.Errorf("after %v: %v", time.Since(start), failure)
			}
			if !slices.Equal(outcomes, []penstock.Outcome{penstock.Succeeded, penstock.Unfinished}) {
				t.Error(outcomes)
			}
		})
	})
	t.Run("X17 a failed run lets the consumer have all results first, or leave", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := newInts(t, func(_ context.Context, n int) (int, error) {
				if n == 2 {
					return 0, errX
				}
				return n, nil
			}, 1, penstock.WithFailureLimit(1))
			seen := 0
			for _, err := range e.IterResults(background, penstock.FromSlice(numbers(100))) {
				if err != nil {
					t.Fatalf("the error came after %d results", seen)
				}
				synctest.Wait() // the run has failed meanwhile
				if seen++; seen == 3 {
					break
				}
			}
		})
	})
	t.Run("a nested loop over the same engine", func(t *testing.T) {
		watch(t)
		e := newInts(t, double, 2)
		n := 0
		for range e.IterResults(background, penstock.FromSlice(numbers(10))) {
			for range e.IterOrdered(background, penstock.FromSlice(numbers(10))) {
				n++
			}
		}
		if n != 100 {
			t.Error(n)
		}
	})
}

func TestRunsShareOnlyTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One grant a second, for whoever asks.
		var mu sync.Mutex
		var grants []time.Time
		next := time.Now()
		limiter := ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
			mu.Lock()
			at := next
			next = next.Add(time.Second)
			grants = append(grants, at)
			mu.Unlock()
			return pause(ctx, time.Until(at))
		})
		e := newInts(t, func(_ context.Context, n int) (int, error) {
			if n < 0 {
				return 0, errX
			}
			return n, nil
		}, 2, penstock.WithLimiter(limiter), penstock.WithFailureLimit(1))
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 { // these are well
			wg.Go(func() {
				tasks, err := e.ProcessAll(background, numbers(5))
				if c := tally(t, tasks); err != nil || c != (penstock.Counters{Succeeded: 5}) {
					t.Errorf("%+v, %v", c, err)
				}
			})
		}
		wg.Go(func() { // this one fails
			tasks, err := e.ProcessAll(background, []int{-1, 1, 2})
			var many *penstock.TooManyFailuresError
			if !errors.As(err, &many) || tally(t, tasks).Failed != 1 {
				t.Errorf("%v, %v", tasks, err)
			}
		})
		run := e.Start(background) // and this one is stopped, with nothing in it
		if err := run.Stop(background); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if got := int(time.Since(start) / time.Second); got+1 < 16 || got+1 > len(grants) {
			t.Errorf("%d grants took %v: the runs did not share the limiter", len(grants), time.Since(start))
		}
		if c := e.Counters(); c.Succeeded < 15 || c.Succeeded+c.Failed+c.Unfinished != 18 || c.Running+c.Pending != 0 {
			t.Errorf("the engine's counters: %+v", c)
		}
	})
}

func TestLazyWorkers(t *testing.T) {
	watch(t)
	const workers, items = 10_000, 10
	for _, kind := range sourceKinds() {
		t.Run(kind.name, func(t *testing.T) {
			gate := make(chan struct{})
			var running gauge
			e := newInts(t, running.around(until(gate)), workers)
			before := runtime.NumGoroutine()
			if e.Start(background); runtime.NumGoroutine() > before {
				t.Error("a run that has nothing to do has goroutines")
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if tasks, err := e.ProcessSource(background, kind.make(background, items, func() {})); err != nil || len(tasks) != items {
					t.Errorf("%d tasks, %v", len(tasks), err)
				}
			}()
			// One is the caller. A channel source has one worker more, ready to receive, until the channel is closed.
			eventually(t, "the source to be read and ten handlers to run", func() bool {
				return running.now.Load() == items && runtime.NumGoroutine()-before <= items+2
			})
			if kind.name == "slice" && runtime.NumGoroutine()-before > items+1 {
				t.Errorf("%d goroutines for %d items", runtime.NumGoroutine()-before, items)
			}
			close(gate)
			<-ended
			eventually(t, "all to end", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
	t.Run("a run by hand", func(t *testing.T) {
		gate := make(chan struct{})
		var running gauge
		run := newInts(t, running.around(until(gate)), workers).Start(background)
		before := runtime.NumGoroutine()
		mustSubmit(t, run, numbers(items)...)
		eventually(t, "ten handlers to run", func() bool { return running.now.Load() == items })
		if n := runtime.NumGoroutine() - before; n > items {
			t.Errorf("%d goroutines for %d items", n, items)
		}
		close(gate)
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
	})
	t.Run("an idle worker is used again", func(t *testing.T) {
		run := newInts(t, double, workers).Start(background)
		before := runtime.NumGoroutine()
		for i := range 1000 {
			if _, err := run.Do(background, i); err != nil {
				t.Error(err)
			}
		}
		// Do returns a moment before its worker is idle, so the next item may need a second one, and on a busy machine
		// a few more.
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines for one item at a time", n)
		}
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
	})
}

func TestValues(t *testing.T) {
	t.Run("all succeeded", func(t *testing.T) {
		values, err := penstock.Values(newInts(t, double, 2).ProcessAll(background, numbers(4)))
		if err != nil || !slices.Equal(values, []int{0, 2, 4, 6}) {
			t.Errorf("%v, %v", values, err)
		}
	})
	t.Run("no tasks", func(t *testing.T) {
		values, err := penstock.Values[int, int](nil, nil)
		if len(values) != 0 || err != nil {
			t.Errorf("%v, %v", values, err)
		}
	})
	t.Run("the run's error first, then each item's", func(t *testing.T) {
		errY := errors.New("error Y")
		tasks := []intTask{
			{Index: 0, Outcome: penstock.Succeeded},
			{Index: 1, Outcome: penstock.Failed, Err: errX},
			intTask{Index: 2, Outcome: penstock.Failed, Err: errY}.WithID("two"),
		}
		values, err := penstock.Values(tasks, errWhy)
		if values != nil || !errors.Is(err, errWhy) || !errors.Is(err, errX) || !errors.Is(err, errY) {
			t.Errorf("%v, %v", values, err)
		}
		if want := "the reason why\ntask 1: error X\ntask two: error Y"; err.Error() != want {
			t.Errorf("%q", err)
		}
		var one *penstock.TaskError
		if !errors.As(err, &one) || one.Task != "1" || one.Err != errX {
			t.Errorf("%+v", one)
		}
	})
	t.Run("what was left unfinished is one error", func(t *testing.T) {
		cut := &penstock.UnfinishedError{During: "queue", Context: context.Canceled, Cause: errX}
		tasks := make([]intTask, 4)
		for i := range tasks {
			tasks[i] = intTask{Index: i, Outcome: penstock.Unfinished, Err: cut}
		}
		tasks[2] = intTask{Index: 2, Outcome: penstock.Failed, Err: errX}
		_, err := penstock.Values(tasks, nil)
		if want := "task 0: not started: error X (and 2 more left unfinished)\ntask 2: error X"; err == nil || err.Error() != want {
			t.Errorf("%q", err)
		}
	})
	t.Run("the run's error alone is an error", func(t *testing.T) {
		if values, err := penstock.Values([]intTask{{Outcome: penstock.Succeeded}}, errX); values != nil || !errors.Is(err, errX) {
			t.Errorf("%v, %v", values, err)
		}
	})
}

// B70: neither results nor inputs are held longer than the buffers hold them.
func TestMemoryIsReleased(t *testing.T) {
	const workers, items, size = 2, 60, 1 << 20
	e, err := penstock.New(func(_ context.Context, in []byte) ([]byte, error) { return make([]byte, size), nil }, workers)
	if err != nil {
		t.Fatal(err)
	}
	source := func() penstock.Source[[]byte] {
		return penstock.FromSeq(func(yield func([]byte) bool) {
			for range items {
				if !yield(make([]byte, size)) {
					return
				}
			}
		})
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	// An item is an input and, later, a result too.
	const most = 2 * size * (4*workers + 3)
	for name, stream := range map[string]func(yield func(penstock.Task[[]byte, []byte], error) bool){
		"IterResults": e.IterResults(background, source()),
		"IterOrdered": e.IterOrdered(background, source()),
	} {
		before, n := heap(), 0
		for _, err := range stream {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%20 == 0 {
				if now := heap(); now > before+most {
					t.Errorf("%s: %d MB are held after %d results", name, (now-before)>>20, n)
				}
			}
		}
		if n != items {
			t.Errorf("%s: %d results", name, n)
		}
	}
}

// A run that waits for work holds nothing of what went through it.
func TestIdleRunHoldsNothing(t *testing.T) {
	watch(t)
	type big struct{ _ [1 << 16]byte }
	for _, batch := range []int{1, 8} {
		e, err := penstock.New(func(_ context.Context, in *big) (*big, error) { return new(big), nil }, 3, penstock.WithBatch(batch))
		if err != nil {
			t.Fatal(err)
		}
		var inputs, results []weak.Pointer[big]
		note := func(in, out *big) {
			inputs, results = append(inputs, weak.Make(in)), append(results, weak.Make(out))
		}
		run := e.Start(background)
		for range 3 {
			for range 6 {
				if _, err := run.Submit(background, new(big)); err != nil {
					t.Fatal(err)
				}
			}
			for range 6 {
				task, err := run.Next(background)
				if err != nil {
					t.Fatal(err)
				}
				note(task.Data, task.Result)
			}
			in := new(big)
			out, err := run.Do(background, in)
			if err != nil {
				t.Fatal(err)
			}
			note(in, out)
		}
		eventually(t, "everything to be collected", func() bool {
			runtime.GC()
			held := func(p weak.Pointer[big]) bool { return p.Value() != nil }
			return !slices.ContainsFunc(inputs, held) && !slices.ContainsFunc(results, held)
		})
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
	}
}
