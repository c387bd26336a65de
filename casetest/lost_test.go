package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/retry"
)

// Lost items, and duplicated ones: each accepted item is worked on once and has one outcome, and it is handed out once.

// B04, sourcegraph/conc#156: the list of results was cut at the first failed task. Every set of failures among four
// items, by every way in which a handler can fail, leaves four outcomes.
func TestB04FailureLosesNoOtherResult(t *testing.T) {
	failures := map[string]func() error{
		"error":  func() error { return errX },
		"panic":  func() error { panic(errX) },
		"goexit": func() error { runtime.Goexit(); return nil },
	}
	eachWay(t, func(t *testing.T, w way) {
		for name, fail := range failures {
			for failing := range 1 << 4 {
				h := func(_ context.Context, n int) (int, error) {
					if failing&(1<<n) != 0 {
						return 0, fail()
					}
					return n, nil
				}
				out := w.run(t.Context(), h, 2, numbers(4))
				out.account(t, numbers(4))
				if out.err != nil || len(out.tasks) != 4 {
					t.Fatalf("%s of %04b: %d tasks, error %v", name, failing, len(out.tasks), out.err)
				}
				for i, task := range out.byIndex() {
					if failed := task.Outcome == penstock.Failed; failed != (failing&(1<<i) != 0) {
						t.Errorf("%s of %04b: item %d is %v", name, failing, i, task.Outcome)
					}
				}
			}
		}
	})
}

// The same through Values, which drops nothing either: it names every failure.
func TestB04ValuesNamesEveryFailure(t *testing.T) {
	e := newEngine(func(_ context.Context, n int) (int, error) {
		if n%2 == 1 {
			return 0, fmt.Errorf("item %d: %w", n, errX)
		}
		return n, nil
	}, 2)
	values, err := penstock.Values(e.ProcessAll(t.Context(), numbers(6)))
	if values != nil {
		t.Errorf("values beside failures: %v", values)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Fatalf("want three failures joined, have %v", err)
	}
	for i, failure := range joined.Unwrap() {
		equal(t, "the task that failed", as[*penstock.TaskError](t, failure).Task, fmt.Sprint(2*i+1))
	}
}

// B32, kestra-io/kestra#17129: a task that failed by itself while the worker was draining had its result thrown away.
// Here a task ends in every possible way in the middle of every possible ending of its run.
func TestB32ResultDuringShutdownIsDelivered(t *testing.T) {
	endings := map[string]func(t *testing.T, run *penstock.Run[int, int], cancel func()){
		"Finish":     func(t *testing.T, run *penstock.Run[int, int], _ func()) { _ = run.Finish(t.Context()) },
		"CloseInput": func(_ *testing.T, run *penstock.Run[int, int], _ func()) { run.CloseInput() },
		"Stop":       func(t *testing.T, run *penstock.Run[int, int], _ func()) { _ = run.Stop(t.Context()) },
		"cancel":     func(_ *testing.T, _ *penstock.Run[int, int], cancel func()) { cancel() },
	}
	for name, ending := range endings {
		for _, fails := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/fails=%v", name, fails), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					run := newEngine(func(context.Context, int) (int, error) {
						time.Sleep(100 * ms) // heeds nothing
						if fails {
							return 0, errX
						}
						return 7, nil
					}, 2).Start(ctx)
					must(run.Submit(ctx, 1))
					time.AfterFunc(20*ms, func() { ending(t, run, cancel) })

					task, err := run.Next(t.Context())
					clock.is(100*ms, "the outcome")
					if err != nil {
						t.Fatal(err)
					}
					drains := name == "Finish" || name == "CloseInput"
					switch {
					case !fails:
						equal(t, "outcome", task.Outcome, penstock.Succeeded)
						equal(t, "result", task.Result, 7)
					case drains:
						equal(t, "outcome", task.Outcome, penstock.Failed)
						equal(t, "error", task.Err, errX)
					default: // cut off, and still what the handler said
						equal(t, "outcome", task.Outcome, penstock.Unfinished)
						isAll(t, task.Err, errX, context.Canceled)
					}
					_, err = run.Next(t.Context())
					if drains || name == "Stop" && !fails {
						isAll(t, err, penstock.ErrNoMoreResults)
					} else if errors.Is(err, penstock.ErrNoMoreResults) {
						t.Errorf("the results end as if nothing had been cut off: %v", err)
					}
				})
			})
		}
	}
}

// B41, python/asyncio#201 and #343: an item taken in the very instant of the reader's timeout was dropped. In virtual
// time the handlers end in exactly those instants.
func TestB41TimeoutWhileReadingLosesNothing(t *testing.T) {
	for _, timeout := range []time.Duration{ms, ms / 2, 2 * ms} {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("Run/%v/%d workers", timeout, workers), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					run := newEngine(handlerFor(ms), workers).Start(t.Context())
					defer submitAll(t.Context(), run, numbers(500))()
					readImpatiently(t, timeout, run.Next)
				})
			})
			t.Run(fmt.Sprintf("Foreman/%v/%d workers", timeout, workers), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					f := must(foreman.New(handlerFor(ms), workers))
					for i := range 500 {
						if err := f.Add(t.Context(), task{Index: i, Data: i}); err != nil {
							t.Fatal(err)
						}
					}
					if err := f.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					defer func() { _ = f.Finalize(t.Context()) }()
					go func() { _ = f.Finalize(t.Context()) }()
					readImpatiently(t, timeout, f.Next)
				})
			})
		}
	}
}

func handlerFor(d time.Duration) handler {
	return func(ctx context.Context, n int) (int, error) { return n, sleep(ctx, d) }
}

func readImpatiently(t *testing.T, timeout time.Duration, next func(context.Context) (task, error)) {
	t.Helper()
	seen := map[int]int{}
	for {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		task, err := next(ctx)
		cancel()
		switch {
		case err == nil:
			seen[task.Index]++
		case errors.Is(err, penstock.ErrNoMoreResults):
			equal(t, "distinct outcomes", len(seen), 500)
			for i, n := range seen {
				equal(t, fmt.Sprintf("outcomes of item %d", i), n, 1)
			}
			return
		case !errors.Is(err, context.DeadlineExceeded):
			t.Fatal(err)
		}
	}
}

// The other end: an item whose submitter gives up in the very instant of its admission is accepted or refused, and the
// submitter is told which.
func TestB41TimeoutWhileSubmittingLosesNothing(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				handled := map[int]int{}
				run := newEngine(func(ctx context.Context, n int) (int, error) {
					mu.Lock()
					handled[n]++
					mu.Unlock()
					return n, sleep(ctx, ms)
				}, workers, penstock.WithInputCapacity(1)).Start(t.Context())
				accepted := make(map[int]bool)
				var submitters sync.WaitGroup
				for i := range 200 {
					submitters.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%7)*ms)
						defer cancel()
						_, err := run.Submit(ctx, i)
						mu.Lock()
						accepted[i] = err == nil
						mu.Unlock()
					})
				}
				go func() { submitters.Wait(); run.CloseInput() }()
				delivered := map[int]int{}
				for task, err := range run.Results() {
					if err != nil {
						t.Fatal(err)
					}
					delivered[task.Data]++
				}
				for i := range 200 {
					want := 0
					if accepted[i] {
						want = 1
					}
					if handled[i] != want || delivered[i] != want {
						t.Errorf("item %d: accepted %v, handled %d times, delivered %d times", i, accepted[i], handled[i], delivered[i])
					}
				}
			})
		})
	}
}

// B76, temporalio/sdk-go#1197: on shutdown, tasks that were taken but not started vanished. However a run ends early, every
// accepted item has its outcome, and those that never started can be told apart and submitted again.
func TestB76NotStartedItemsAreHandedBack(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, heeds := range []bool{true, false} {
			for _, batch := range []int{1, 4} {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(150*ms, cancel)
				h := handlerFor(100 * ms)
				if !heeds {
					h = func(_ context.Context, n int) (int, error) { time.Sleep(100 * ms); return n, nil }
				}
				out := w.run(ctx, h, 2, numbers(10), penstock.WithInputCapacity(10), penstock.WithBatch(batch))
				out.account(t, numbers(10))
				isAll(t, out.err, context.Canceled)
				if w.whole {
					equal(t, "tasks", len(out.tasks), 10)
				}
				succeeded := 2
				if !heeds {
					succeeded = 4
				}
				equal(t, "succeeded", out.having(penstock.Succeeded), succeeded)
				for _, task := range out.tasks {
					if task.Outcome == penstock.Succeeded {
						continue
					}
					isAll(t, task.Err, context.Canceled)
					during := as[*penstock.UnfinishedError](t, task.Err).During
					if notStarted := task.Attempts == 0; notStarted != (during == "queue") || !notStarted && !heeds {
						t.Errorf("item %d, %d attempts, was cut off in the %s", task.Index, task.Attempts, during)
					}
				}
			}
		}
	})
}

// The case as it was reported: Stop in the middle of ten items.
func TestB76StopHandsBackWhatItCutOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := startWatch(t)
		run := newEngine(handlerFor(100*ms), 2, penstock.WithInputCapacity(10)).Start(t.Context())
		for i := range 10 {
			must(run.Submit(t.Context(), i))
		}
		time.Sleep(150 * ms)
		if err := run.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		clock.is(150*ms, "Stop")
		out := end{run.Drain(), run.Err(), run.Counters()}
		out.account(t, numbers(10))
		equal(t, "done", out.having(penstock.Succeeded), 2)
		var again []int
		for _, task := range out.tasks {
			if task.Outcome == penstock.Unfinished {
				isAll(t, task.Err, penstock.ErrStopped, context.Canceled)
			}
			if task.Outcome == penstock.Unfinished && task.Attempts == 0 {
				again = append(again, task.Data)
			}
		}
		equalSlices(t, "to be submitted again", again, []int{4, 5, 6, 7, 8, 9})
	})
}

// B38, OpenFn/kit#1138: the answer came after the timeout, and the retry sent the work again beside it. Here the late
// answer counts, and an attempt never overlaps the next one.
func TestB38LateAnswerIsNoDuplicate(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		var calls atomic.Int32
		out := w.run(t.Context(), func(ctx context.Context, _ int) (int, error) {
			calls.Add(1)
			if penstock.AttemptNumber(ctx) == 1 {
				time.Sleep(80 * ms)
				return 1, nil // late, and ctx has ended
			}
			return 2, nil
		}, 1, numbers(1), penstock.WithAttemptTimeout(30*ms), penstock.WithRetry(retry.Policy{Max: 1}))
		clock.is(80*ms, "the end")
		time.Sleep(200 * ms)
		out.account(t, numbers(1))
		equal(t, "result", out.tasks[0].Result, 1)
		equal(t, "attempts", out.tasks[0].Attempts, 1)
		equal(t, "handler calls", calls.Load(), 1)
		equal(t, "counters", out.count, counters{Succeeded: 1})
	})
}

// What else a handler may bring late decides whether there is a second attempt, but never lets two run at once.
func TestB38AttemptsNeverOverlap(t *testing.T) {
	for name, late := range map[string]func(ctx context.Context) error{
		"the context's error": func(ctx context.Context) error { return ctx.Err() },
		"its cause":           func(ctx context.Context) error { return fmt.Errorf("call: %w", ctx.Err()) },
		"another error":       func(context.Context) error { return errX },
		"panic":               func(context.Context) error { panic("late") },
		"goexit":              func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				var mu sync.Mutex
				live := map[int]int{}
				var calls atomic.Int32
				out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
					calls.Add(1)
					mu.Lock()
					if live[n]++; live[n] > 1 {
						t.Errorf("two attempts of item %d at once", n)
					}
					mu.Unlock()
					defer func() {
						mu.Lock()
						live[n]--
						mu.Unlock()
					}()
					time.Sleep(80 * ms)
					return 0, late(ctx)
				}, 4, numbers(9), penstock.WithAttemptTimeout(30*ms), penstock.WithRetry(retry.Policy{Max: 2}))
				out.account(t, numbers(9))
				equal(t, "failed", out.having(penstock.Failed), 9)
				attempts := 3
				if name == "panic" || name == "goexit" {
					attempts = 1
				}
				equal(t, "handler calls", int(calls.Load()), 9*attempts)
				_, timeout := errors.AsType[*penstock.TimeoutError](out.tasks[0].Err)
				equal(t, "is a timeout", timeout, name == "the context's error" || name == "its cause")
			})
		})
	}
}

// B77, SMART-Lab/smartdispatch#59: workers raced for the next job and ran it several times. This one is for the race
// detector and the real scheduler.
func TestB77EachItemRunsOnce(t *testing.T) {
	for _, w := range ways {
		for _, batch := range []int{1, 16} {
			t.Run(fmt.Sprintf("%s/batch %d", w.name, batch), func(t *testing.T) {
				watch(t)
				n := 500
				if batch == 1 {
					switch w.name {
					case "ProcessAll":
						n = 50_000
					case "IterResults(slice)", "Run.Next":
						n = 5000
					}
				}
				ran := make([]atomic.Int32, n)
				out := w.run(t.Context(), func(_ context.Context, i int) (int, error) {
					ran[i].Add(1)
					return i, nil
				}, 16, numbers(n), penstock.WithBatch(batch))
				if out.err != nil {
					t.Fatal(out.err)
				}
				out.account(t, numbers(n))
				for i := range ran {
					if times := ran[i].Load(); times != 1 {
						t.Errorf("item %d ran %d times", i, times)
					}
				}
			})
		}
	}
}

// Several submitters and several readers at one run: still each item once, to one reader.
func TestB77ManyHandsRunEachItemOnce(t *testing.T) {
	watch(t)
	const n, hands = 8000, 8
	var ran, read [n]atomic.Int32
	run := newEngine(func(_ context.Context, i int) (int, error) {
		ran[i].Add(1)
		return i, nil
	}, 16).Start(t.Context())
	var submitters, readers sync.WaitGroup
	for hand := range hands {
		submitters.Go(func() {
			for i := hand; i < n; i += hands {
				must(run.Submit(t.Context(), i))
			}
		})
		readers.Go(func() {
			for task, err := range run.Results() {
				if err != nil {
					t.Error(err)
				}
				read[task.Data].Add(1)
			}
		})
	}
	submitters.Wait()
	run.CloseInput()
	readers.Wait()
	for i := range n {
		if ran[i].Load() != 1 || read[i].Load() != 1 {
			t.Errorf("item %d ran %d times and was read %d times", i, ran[i].Load(), read[i].Load())
		}
	}
	equal(t, "counters", run.Counters(), counters{Succeeded: n})
}
