package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
)

// Shutdowns that hung, and shutdowns that said that all was well when it was not.

// stubborn heeds nothing for three seconds.
func stubborn(_ context.Context, n int) (int, error) {
	time.Sleep(3 * time.Second)
	return n, nil
}

// B15, riverqueue/river#78: a hard stop took a context and ignored it. Here Stop gives up with its context, names what still
// runs, and does not pretend that it has ended.
func TestB15StopGivesUpAndNamesWhatRuns(t *testing.T) {
	for _, workers := range []int{1, 2, 20} {
		for _, c := range cancellations {
			t.Run(fmt.Sprintf("%d workers/%s", workers, c.name), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					run := newEngine(stubborn, workers).Start(t.Context())
					for i := range workers + 1 {
						must(run.Submit(t.Context(), i, penstock.WithID(fmt.Sprint("item ", i))))
					}
					synctest.Wait() // every worker is with its first item
					ctx, release := c.start(t.Context(), 100*ms)
					defer release()
					err := run.Stop(ctx)
					clock.is(100*ms, "Stop")
					isAll(t, err, c.shows...)
					running := as[*penstock.StillRunningError](t, err)
					equal(t, "tasks still running", len(running.Tasks), workers)
					for _, r := range running.Tasks {
						if r.For != 100*ms || r.ID != fmt.Sprint("item ", r.Index) {
							t.Errorf("still running: %+v", r)
						}
					}
					select {
					case <-run.Done():
						t.Error("it is done, with handlers still running")
					default:
					}
					equal(t, "error before the end", run.Err(), nil)
					equal(t, "counters", run.Counters(), counters{Running: workers, Unfinished: 1})
					if err := run.Stop(ctx); !errors.Is(err, c.shows[0]) {
						t.Error("a second Stop whose context has ended:", err)
					}
					if err := run.Stop(t.Context()); err != nil {
						t.Error("a Stop with patience:", err)
					}
					clock.is(3*time.Second, "the end")
					out := end{run.Drain(), run.Err(), run.Counters()}
					out.account(t, numbers(workers+1))
					equal(t, "succeeded", out.having(penstock.Succeeded), workers)
					isAll(t, out.err, penstock.ErrStopped)
				})
			})
		}
	}
}

// Finish whose context ends says so and leaves the run alone.
func TestB15FinishGivesUpAndTheRunGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := startWatch(t)
		run := newEngine(stubborn, 2).Start(t.Context())
		f := must(foreman.New(stubborn, 2))
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			must(run.Submit(t.Context(), i))
			if err := f.Add(t.Context(), task{Index: i, Data: i}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		isAll(t, run.Finish(ctx), context.DeadlineExceeded)
		clock.is(100*ms, "Finish")
		isAll(t, f.Finalize(ctx), context.DeadlineExceeded)
		clock.is(100*ms, "Finalize")
		_, err := run.Submit(t.Context(), 9)
		isAll(t, err, penstock.ErrInputClosed)
		for range 4 {
			must(run.Next(t.Context()))
			must(f.Next(t.Context()))
		}
		if err := errors.Join(run.Finish(t.Context()), f.Finalize(t.Context())); err != nil {
			t.Error(err)
		}
		clock.is(6*time.Second, "the end of everything")
		equal(t, "counters", run.Counters(), counters{Succeeded: 4})
		equal(t, "counters", f.Counters(), counters{Succeeded: 4})
	})
}

// B44, alitto/pond#61: cancelling the parent context with tasks queued, then stopping and waiting, blocked for ever.
func TestB44CancelThenWait(t *testing.T) {
	for name, wait := range map[string]func(run *penstock.Run[int, int], f *foreman.Foreman[int, int]) error{
		"Finish": func(run *penstock.Run[int, int], f *foreman.Foreman[int, int]) error {
			err := f.Finalize(context.Background())
			if !errors.Is(err, errCause) {
				return fmt.Errorf("Finalize: %w", err)
			}
			return run.Finish(context.Background())
		},
		"Stop": func(run *penstock.Run[int, int], f *foreman.Foreman[int, int]) error {
			if err := f.Stop(); !errors.Is(err, errCause) {
				return fmt.Errorf("Foreman.Stop: %w", err)
			}
			return run.Stop(context.Background())
		},
		"Done": func(run *penstock.Run[int, int], f *foreman.Foreman[int, int]) error {
			<-run.Done()
			_ = f.Stop()
			return run.Err()
		},
	} {
		for _, settled := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/settled=%v", name, settled), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					h := func(ctx context.Context, _ int) (int, error) { return 0, hang(ctx) }
					run := newEngine(h, 1, penstock.WithInputCapacity(5)).Start(ctx)
					f := must(foreman.New(h, 1, penstock.WithInputCapacity(5)))
					if err := f.Start(ctx); err != nil {
						t.Fatal(err)
					}
					for i := range 3 {
						must(run.Submit(ctx, i))
						if err := f.Add(ctx, task{Index: i, Data: i}); err != nil {
							t.Fatal(err)
						}
					}
					if settled {
						synctest.Wait()
					}
					cancel(errCause)
					isAll(t, wait(run, f), context.Canceled, errCause)
					clock.is(0, "the end")
					out := end{run.Drain(), run.Err(), run.Counters()}
					out.account(t, numbers(3))
					equal(t, "unfinished", out.having(penstock.Unfinished), 3)
					if settled {
						for _, task := range out.tasks {
							equal(t, "attempts", task.Attempts, max(1-task.Index, 0))
						}
					}
				})
			})
		}
	}
}

// B60, jumpmindinc/metl#439: cancelling a flow while one step's queue was full hung it. Everything is full here: results,
// handlers, input and submitters, and however the run is ended, all who wait are let go at once.
func TestB60EverythingFullIsLetGo(t *testing.T) {
	const workers, input, results, submitters = 2, 3, 2, 5
	for name, abort := range map[string]func(run *penstock.Run[int, int], cancel func()){
		"cancel": func(_ *penstock.Run[int, int], cancel func()) { cancel() },
		"Stop": func(run *penstock.Run[int, int], _ func()) {
			if err := run.Stop(context.Background()); err != nil {
				panic(err)
			}
		},
	} {
		for what, h := range map[string]handler{
			"handlers hang": func(ctx context.Context, n int) (int, error) {
				if n < results {
					return n, nil
				}
				return 0, hang(ctx)
			},
			"results block": same,
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					before := runtime.NumGoroutine()
					clock := startWatch(t)
					ctx, cancel := context.WithCancel(t.Context())
					run := newEngine(h, workers, penstock.WithInputCapacity(input), penstock.WithResultCapacity(results)).Start(ctx)
					for i := range workers + input + results {
						must(run.Submit(t.Context(), i))
						synctest.Wait()
					}
					var blocked sync.WaitGroup
					for range submitters {
						blocked.Go(func() {
							if _, err := run.Submit(context.Background(), 99); err == nil || errors.Is(err, penstock.ErrInputClosed) {
								t.Error("a blocked Submit, when the run was ended:", err)
							}
							clock.is(50*ms, "the end of a blocked Submit")
						})
						blocked.Go(func() {
							if _, err := run.Do(context.Background(), 99); err == nil {
								t.Error("a blocked Do succeeded")
							}
							clock.is(50*ms, "the end of a blocked Do")
						})
					}
					time.Sleep(50 * ms)
					abort(run, cancel)
					<-run.Done()
					blocked.Wait()
					clock.is(50*ms, "the end")
					out := end{run.Drain(), run.Err(), run.Counters()}
					out.account(t, numbers(workers+input+results))
					equal(t, "tasks", len(out.tasks), workers+input+results)
					cancel()
					atBaseline(t, before)
				})
			})
		}
	}
}

// The same for a stream whose consumer is busy with one result while everything behind it is full.
func TestB60FullStreamIsLetGo(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		for _, hangs := range []bool{true, false} {
			bubble(t, func(t *testing.T) {
				before := runtime.NumGoroutine()
				clock := startWatch(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				e := newEngine(func(ctx context.Context, n int) (int, error) {
					if !hangs || n < 1 {
						return n, nil
					}
					return 0, hang(ctx)
				}, 2, penstock.WithInputCapacity(1), penstock.WithResultCapacity(1))
				f := newFeed(s.kind, endless)
				out := end{}
				for task, err := range s.results(e, ctx, f.source) {
					if err != nil {
						out.err = err
						continue
					}
					if len(out.tasks) == 0 {
						time.Sleep(50 * ms)
						cancel(errCause)
					}
					out.tasks = append(out.tasks, task)
				}
				clock.is(50*ms, "the end")
				isAll(t, out.err, context.Canceled, errCause)
				out.count = e.Counters()
				out.account(t, numbers(len(out.tasks)))
				equal(t, "the source has ended", f.ended.Load(), s.kind != "slice" && s.kind != "chan")
				f.close()
				atBaseline(t, before)
			})
		}
	})
}

// A Stop that cuts nothing off is no failure of the run, whatever has happened in it before: here a caller of Do gave up
// long ago, and everything else was done.
func TestB15StopOfAnIdleRunCutsNothingOff(t *testing.T) {
	for _, gaveUp := range []bool{false, true} {
		t.Run(fmt.Sprint("a caller of Do gave up: ", gaveUp), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				run := newEngine(func(ctx context.Context, n int) (int, error) { return n, sleep(ctx, time.Second) }, 2).Start(t.Context())
				if gaveUp {
					ctx, cancel := context.WithTimeout(t.Context(), ms)
					_, err := run.Do(ctx, 1)
					isAll(t, err, context.DeadlineExceeded)
					cancel()
				}
				must(run.Do(t.Context(), 2))
				synctest.Wait()
				if err := run.Stop(t.Context()); err != nil {
					t.Error("Stop:", err)
				}
				equal(t, "Err", run.Err(), nil)
				_, err := run.Next(t.Context())
				isAll(t, err, penstock.ErrNoMoreResults)
			})
		})
	}
}
