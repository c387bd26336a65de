package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/retry"
)

// Deadlocks: everybody who waits has somebody who will wake him.

// B05, alitto/pond#138: the context expired, the worker left without accounting for the items queued behind it, and the
// waiter waited for ever.
func TestB05ExpiryAccountsForEverything(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			for _, workers := range []int{1, 3, 20} {
				for _, heeds := range []bool{true, false} {
					clock := startWatch(t)
					ctx, release := c.start(t.Context(), 50*ms)
					h, ends := handlerFor(200*ms), 50*ms
					if !heeds {
						h = func(_ context.Context, n int) (int, error) { time.Sleep(200 * ms); return n, nil }
						ends = 200 * ms
					}
					out := w.run(ctx, h, workers, numbers(10))
					release()
					clock.is(ends, c.name)
					out.account(t, numbers(10))
					if !heeds && workers > 10 {
						equal(t, "error of a run in which everything was done", out.err, nil)
					} else {
						isAll(t, out.err, c.shows...)
					}
					if w.whole {
						equal(t, "tasks", len(out.tasks), 10)
					}
					if done := out.having(penstock.Succeeded); heeds && done != 0 || !heeds && done != min(workers, 10) {
						t.Errorf("%d succeeded of %d workers' first items", done, workers)
					}
				}
			}
		}
	})
}

// B28, cmitsakis/workerpool-go#3: the caller submitted everything and only then began to read.
func TestB28SubmitWithoutReadingDoesNotHang(t *testing.T) {
	for _, workers := range []int{1, 4, 9} {
		for _, c := range []struct{ input, results int }{{0, 0}, {1, 1}, {3, 7}} {
			t.Run(fmt.Sprintf("%d workers/%v", workers, c), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var opts []option
					input, results := workers, workers
					if c.input > 0 {
						input, results = c.input, c.results
						opts = []option{penstock.WithInputCapacity(input), penstock.WithResultCapacity(results)}
					}
					run := newEngine(same, workers, opts...).Start(t.Context())
					submit := func(i int) error {
						ctx, cancel := context.WithTimeout(t.Context(), 200*ms)
						defer cancel()
						_, err := run.Submit(ctx, i)
						return err
					}
					accepted := 0
					clock := startWatch(t)
					for submit(accepted) == nil {
						accepted++
					}
					clock.is(200*ms, "the first refusal")
					isAll(t, submit(accepted), context.DeadlineExceeded)
					equal(t, "accepted without a reader", accepted, input+results+workers)
					for range 100 {
						must(run.Next(t.Context()))
						synctest.Wait()
						if err := submit(accepted); err != nil {
							t.Fatal(err)
						}
						accepted++
					}
					run.CloseInput()
					out := end{}
					for task, err := range run.Results() {
						if err != nil {
							t.Fatal(err)
						}
						out.tasks = append(out.tasks, task)
					}
					equal(t, "delivered", len(out.tasks)+100, accepted)
					equal(t, "counters", run.Counters(), counters{Succeeded: accepted})
				})
			})
		}
	}
}

// B68, project-iris/iris#54: a task that adds work to its own full pool and waits for it can never finish. Whatever a
// handler asks of its own run with a context that ends, the handler goes on, and so does the run.
func TestB68HandlerThatWaitsForItsOwnRunGoesOn(t *testing.T) {
	type run = *penstock.Run[int, int]
	for name, ask := range map[string]func(ctx context.Context, r run) error{
		"Submit": func(ctx context.Context, r run) error { _, err := r.Submit(ctx, -1); return err },
		"Do":     func(ctx context.Context, r run) error { _, err := r.Do(ctx, -1); return err },
		"Next":   func(ctx context.Context, r run) error { _, err := r.Next(ctx); return err },
		"Finish": func(ctx context.Context, r run) error { return r.Finish(ctx) },
	} {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/%d workers", name, workers), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					var r run
					var gaveUp atomic.Int64
					gate := make(chan struct{})
					r = newEngine(func(ctx context.Context, n int) (int, error) {
						if n >= 0 && n < workers {
							<-gate
							ctx, cancel := context.WithTimeout(ctx, 50*ms)
							defer cancel()
							// At the instant at which they all give up one may make room for another.
							if err := ask(ctx, r); err != nil {
								isAll(t, err, context.DeadlineExceeded)
								gaveUp.Add(1)
							}
							clock.is(50*ms, name)
						}
						return n, nil
					}, workers, penstock.WithInputCapacity(1)).Start(t.Context())
					for i := range workers + 1 {
						must(r.Submit(t.Context(), i))
					}
					close(gate)
					time.Sleep(100 * ms)
					r.CloseInput()
					for task, err := range r.Results() {
						if err != nil {
							t.Fatal(err)
						}
						equal(t, "outcome", task.Outcome, penstock.Succeeded)
					}
					<-r.Done()
					if gaveUp.Load() == 0 {
						t.Error("nobody gave up, with all waiting for each other")
					}
					if c := r.Counters(); c.Succeeded < workers+1 || c.Failed > 0 {
						t.Errorf("counters: %+v", c)
					}
				})
			})
		}
	}
}

// Stop from inside a handler cancels the very context it is called with, so it returns.
func TestB68HandlerStopsItsOwnRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var r *penstock.Run[int, int]
		gate := make(chan struct{})
		r = newEngine(func(ctx context.Context, n int) (int, error) {
			<-gate
			err := r.Stop(ctx)
			equal(t, "tasks still running", len(as[*penstock.StillRunningError](t, err).Tasks), 1)
			return n, nil
		}, 1).Start(t.Context())
		for i := range 2 {
			must(r.Submit(t.Context(), i))
		}
		close(gate)
		<-r.Done()
		equal(t, "counters", r.Counters(), counters{Succeeded: 1, Unfinished: 1})
		isAll(t, r.Err(), penstock.ErrStopped)
	})
}

// Hooks and loggers are called at every step; whatever they ask of the run or the engine is answered, since no lock is
// held while they are called.
func TestB68HooksAndLoggersMayAskTheEngine(t *testing.T) {
	ask := func(e *engine, r **penstock.Run[int, int]) {
		if e == nil {
			return
		}
		_ = e.Counters()
		if *r != nil {
			_, _, _ = (*r).Counters(), (*r).Err(), (*r).Drain()
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_, _ = (*r).Submit(ended, 1)
			_, _ = (*r).Next(ended)
		}
	}
	retries := penstock.WithRetry(retry.Policy{Max: 1})
	fails := func(context.Context, int) (int, error) { return 0, errX }
	t.Run("hooks", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var e *engine
			var r *penstock.Run[int, int]
			e = newEngine(fails, 2, retries, penstock.WithHooks(penstock.Hooks{
				AttemptStarted: func(context.Context, penstock.Attempt) { ask(e, &r) },
				AttemptEnded:   func(context.Context, penstock.Attempt, error) { ask(e, &r) },
				RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) { ask(e, &r) },
				TaskDone:       func(context.Context, penstock.TaskInfo) { ask(e, &r) },
				RunEnded:       func(context.Context, counters, error) { ask(e, &r) },
			}), penstock.WithPriority(func(int) int { ask(e, &r); return 0 }))
			r = e.Start(t.Context())
			for i := range 3 {
				must(r.Submit(t.Context(), i))
			}
			if err := r.Finish(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := e.ProcessAll(t.Context(), numbers(9)); err != nil {
				t.Error(err)
			}
			equal(t, "counters", e.Counters(), counters{Failed: 12, Retries: 12})
		})
	})
	t.Run("logger", func(t *testing.T) {
		watch(t)
		var e *engine
		var r *penstock.Run[int, int]
		e = newEngine(fails, 2, retries, penstock.WithLogger(slog.New(askingLog{func() { ask(e, &r) }})))
		if _, err := e.ProcessAll(t.Context(), numbers(9)); err != nil {
			t.Error(err)
		}
		equal(t, "counters", e.Counters(), counters{Failed: 9, Retries: 9})
	})
}

// askingLog is a log handler that asks the engine something at every line, as one that adds statistics to the lines does.
type askingLog struct{ ask func() }

func (l askingLog) Enabled(context.Context, slog.Level) bool  { return true }
func (l askingLog) Handle(context.Context, slog.Record) error { l.ask(); return nil }
func (l askingLog) WithAttrs([]slog.Attr) slog.Handler        { return l }
func (l askingLog) WithGroup(string) slog.Handler             { return l }

// B93, cgarciae/pypeln#110: a stage died while the feeder was blocked in front of a full queue, and nobody told it.
func TestB93FailureReleasesTheFeeder(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		for _, results := range []int{1, 4} {
			bubble(t, func(t *testing.T) {
				before := runtime.NumGoroutine()
				clock := startWatch(t)
				e := newEngine(func(ctx context.Context, n int) (int, error) {
					if n == 5 {
						return 0, errX
					}
					return n, sleep(ctx, 10*ms)
				}, 2, penstock.WithInputCapacity(1), penstock.WithResultCapacity(results), penstock.WithFailureLimit(1))
				f := newFeed(s.kind, endless)
				failed, ended := false, error(nil)
				for task, err := range s.results(e, t.Context(), f.source) {
					if err != nil {
						ended = err
					}
					failed = failed || task.Outcome == penstock.Failed && task.Index == 5
				}
				if !failed {
					t.Error("the task that failed was not published")
				}
				isAll(t, ended, errX)
				equal(t, "limit", as[*penstock.TooManyFailuresError](t, ended).Limit, 1)
				if clock.now() > 30*ms {
					t.Errorf("the end came at %v", clock.now())
				}
				equal(t, "the source's own clean-up has run", f.ended.Load(), s.kind != "slice" && s.kind != "chan")
				f.close()
				atBaseline(t, before)
			})
		}
	})
}

// The task that reaches the failure limit is there to be read before anybody hears of the run's end.
func TestB93FailureIsPublishedBeforeTheEnd(t *testing.T) {
	for _, batch := range []int{1, 4} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var run *penstock.Run[int, int]
				var early []task
				run = newEngine(func(ctx context.Context, n int) (int, error) {
					switch n {
					case 0:
						err := hang(ctx)
						early = run.Drain()
						return 0, err
					case 1: // by now the other worker can take a batch
						return 0, sleep(ctx, 10*ms)
					}
					return 0, errX
				}, 2, penstock.WithFailureLimit(1), penstock.WithBatch(batch), penstock.WithInputCapacity(20),
					penstock.WithHooks(penstock.Hooks{TaskDone: func(_ context.Context, i penstock.TaskInfo) {
						if i.Outcome == penstock.Unfinished { // the rest of the batch takes its time
							time.Sleep(ms)
						}
					}})).Start(t.Context())
				for i := range 10 {
					must(run.Submit(t.Context(), i))
				}
				<-run.Done()
				isAll(t, run.Err(), errX)
				failed := 0
				for _, task := range early {
					if task.Outcome == penstock.Failed {
						failed++
					}
				}
				equal(t, "failures that a handler could read when it was cancelled", failed, 1)
				equal(t, "outcomes", len(early)+len(run.Drain()), 10)
			})
		})
	}
}

// The other helper over a source, and every other way in which a run can fail from inside, with the feeder blocked.
func TestB93EveryFailureReleasesTheFeeder(t *testing.T) {
	faults := map[string]struct {
		h    handler
		opts func() []option
	}{
		"failure limit": {func(_ context.Context, n int) (int, error) {
			if n == 5 {
				return 0, errX
			}
			return n, nil
		}, func() []option { return []option{penstock.WithFailureLimit(1)} }},
		"limiter": {same, func() []option {
			return []option{penstock.WithLimiter(limiterFunc(func(_ context.Context, index int) error {
				if index == 5 {
					return errX
				}
				return nil
			}))}
		}},
		"cost": {same, func() []option {
			return []option{penstock.WithLimiter(limiterFunc(func(context.Context, int) error { return nil })),
				penstock.WithCost(func(n int) int {
					if n == 5 {
						panic(errX)
					}
					return 1
				})}
		}},
		"priority": {same, func() []option {
			return []option{penstock.WithPriority(func(n int) int {
				if n == 5 {
					panic(errX)
				}
				return 1
			})}
		}},
		"backoff": {func(_ context.Context, n int) (int, error) {
			if n == 5 {
				return 0, errors.New("once")
			}
			return n, nil
		}, func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1, Backoff: func(int, error) time.Duration { panic(errX) }})}
		}},
		"retry filter": {func(_ context.Context, n int) (int, error) {
			if n == 5 {
				return 0, errors.New("once")
			}
			return n, nil
		}, func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1, If: func(error) bool { panic(errX) }})}
		}},
	}
	for name, fault := range faults {
		for _, kind := range sourceKinds {
			if name == "priority" && (kind == "slice" || kind == "chan") {
				continue // nothing is queued, so nothing is asked for its priority
			}
			t.Run(name+"/"+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					before := runtime.NumGoroutine()
					e := newEngine(fault.h, 2, append(fault.opts(), penstock.WithInputCapacity(1))...)
					f := newFeed(kind, endless)
					tasks, err := e.ProcessSource(t.Context(), f.source)
					isAll(t, err, errX)
					out := end{tasks, err, e.Counters()}
					out.account(t, numbers(len(tasks)))
					equal(t, "the source's own clean-up has run", f.ended.Load(), kind != "slice" && kind != "chan")
					f.close()
					atBaseline(t, before)
				})
			})
		}
	}
}
