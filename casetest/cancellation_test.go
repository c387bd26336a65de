package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Cancellation that was ignored: by the source, by the retry policy, by the pause between retries, by Submit.

// B11, sindresorhus/p-map#94: after the consumer had left its loop, every remaining item was still pulled and worked on.
func TestB11LeavingTheLoopStopsSourceAndHandlers(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		for _, workers := range []int{1, 2, 8} {
			for _, batch := range []int{1, 3} {
				bubble(t, func(t *testing.T) {
					before := runtime.NumGoroutine()
					clock := startWatch(t)
					var starts atomic.Int64
					e := newEngine(func(ctx context.Context, n int) (int, error) {
						starts.Add(1)
						return n, sleep(ctx, 10*ms)
					}, workers, penstock.WithInputCapacity(1), penstock.WithBatch(batch))
					f := newFeed(s.kind, 1000)
					var started, pulled int64
					var left time.Duration
					for range s.results(e, t.Context(), f.source) {
						synctest.Wait() // now all that can have started at this instant has
						started, pulled, left = starts.Load(), f.pulled.Load(), clock.now()
						break
					}
					clock.is(left, "the end of the loop") // the handlers in flight were cancelled
					equal(t, "source has ended", f.ended.Load(), s.kind != "slice" && s.kind != "chan")
					f.close()
					atBaseline(t, before)
					time.Sleep(time.Minute)
					equal(t, "handlers started after the break", starts.Load()-started, 0)
					equal(t, "items pulled after the break", f.pulled.Load()-pulled, 0)
					if most := int64(2 * workers * batch); started > most {
						t.Errorf("%d started before the break, of which one result was read: want at most %d", started, most)
					}
				})
			}
		}
	})
}

// The same for a run that is cancelled from outside while its source is blocked in front of a full queue.
func TestB11CancellingStopsTheSource(t *testing.T) {
	for _, kind := range sourceKinds[1:] {
		for _, c := range cancellations {
			t.Run(kind+"/"+c.name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					var starts, started, pulled atomic.Int64
					e := newEngine(func(ctx context.Context, _ int) (int, error) {
						starts.Add(1)
						return 0, hang(ctx)
					}, 4, penstock.WithInputCapacity(8))
					f := newFeed(kind, endless)
					time.AfterFunc(49*ms, func() {
						started.Store(starts.Load())
						pulled.Store(f.pulled.Load())
					})
					ctx, release := c.start(t.Context(), 50*ms)
					_, err := e.ProcessSource(ctx, f.source)
					release()
					isAll(t, err, c.shows...)
					clock.is(50*ms, "the end")
					f.close()
					equal(t, "handlers started after the cancellation", starts.Load()-started.Load(), 0)
					equal(t, "items pulled after the cancellation", f.pulled.Load()-pulled.Load(), 0)
				})
			})
		}
	}
}

// cancellations are the ways in which the context of a run can end, and what errors.Is must find then.
var cancellations = []struct {
	name  string
	start func(ctx context.Context, after time.Duration) (context.Context, func())
	shows []error
}{
	{"cancel", func(ctx context.Context, after time.Duration) (context.Context, func()) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(after, cancel)
		return ctx, cancel
	}, []error{context.Canceled}},
	{"cause", func(ctx context.Context, after time.Duration) (context.Context, func()) {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(after, func() { cancel(errCause) })
		return ctx, func() { cancel(nil) }
	}, []error{context.Canceled, errCause}},
	{"deadline", func(ctx context.Context, after time.Duration) (context.Context, func()) {
		ctx, cancel := context.WithTimeout(ctx, after)
		return ctx, cancel
	}, []error{context.DeadlineExceeded}},
	{"deadline with cause", func(ctx context.Context, after time.Duration) (context.Context, func()) {
		ctx, cancel := context.WithTimeoutCause(ctx, after, errCause)
		return ctx, cancel
	}, []error{context.DeadlineExceeded, errCause}},
}

// B29, jd/tenacity#529: "retry everything except X" retried the cancellation itself.
func TestB29CancellationIsNotRetried(t *testing.T) {
	always := func(error) bool { return true }
	policies := map[string]retry.Policy{
		"unless X":        {Unless: retry.Is(errX)},
		"if always":       {If: always},
		"if cancelled":    {If: retry.Is(context.Canceled, context.DeadlineExceeded)},
		"free throttling": {FreeThrottled: true},
	}
	returns := map[string]func(error) error{
		"the context's error": func(err error) error { return err },
		"wrapped":             func(err error) error { return fmt.Errorf("call: %w", err) },
		"another error":       func(error) error { return errX },
		"throttled":           func(error) error { return retry.After(errX, time.Second) },
	}
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			for policy, p := range policies {
				for what, returned := range returns {
					clock := startWatch(t)
					ctx, release := c.start(t.Context(), 30*ms)
					p.Max, p.Backoff = 5, retry.Constant(100*ms)
					out := w.run(ctx, func(ctx context.Context, _ int) (int, error) {
						return 0, returned(hang(ctx))
					}, 1, numbers(1), penstock.WithRetry(p))
					release()
					at := fmt.Sprintf("%s, %s, %s", c.name, policy, what)
					clock.is(30*ms, at)
					out.account(t, numbers(1))
					equal(t, at+": outcome", out.tasks[0].Outcome, penstock.Unfinished)
					equal(t, at+": attempts", out.tasks[0].Attempts, 1)
					equal(t, at+": retries", out.count.Retries, 0)
					isAll(t, out.tasks[0].Err, c.shows...)
					isAll(t, out.err, c.shows...)
					if what == "another error" || what == "throttled" {
						isAll(t, out.tasks[0].Err, errX)
					}
				}
			}
		}
	})
}

// A service's caller that gives up: the same for the context of one Do.
func TestB29CancelledDoIsNotRetried(t *testing.T) {
	for _, c := range cancellations {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clock := startWatch(t)
				run := newEngine(func(ctx context.Context, _ int) (int, error) { return 0, hang(ctx) }, 1,
					penstock.WithRetry(retry.Policy{Max: 5, Unless: retry.Is(errX), Backoff: retry.Constant(100 * ms)})).Start(t.Context())
				ctx, release := c.start(t.Context(), 30*ms)
				defer release()
				_, err := run.Do(ctx, 1)
				clock.is(30*ms, "Do")
				isAll(t, err, c.shows...)
				if err := run.Finish(t.Context()); err != nil {
					t.Error(err)
				}
				clock.is(30*ms, "the end of the run")
				equal(t, "counters", run.Counters(), counters{Unfinished: 1})
			})
		})
	}
}

// B50, Rican7/retry#5: the pause between retries was a plain sleep. Every wait of a task ends with its context, and the
// handler's last error stays visible.
func TestB50EveryWaitEndsWithTheContext(t *testing.T) {
	waits := map[string][]option{
		"backoff":     {penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(30 * time.Second)})},
		"longest":     {penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(1<<63 - 1)})},
		"exponential": {penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Exponential(30*time.Second, time.Minute, retry.WithJitter(0))})},
		"limiter": {penstock.WithRetry(retry.Policy{Max: 3}),
			penstock.WithLimiter(must(ratelimiter.NewTokenBucket(ratelimiter.PerHour(60))))},
	}
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			for wait, opts := range waits {
				if wait == "limiter" { // its clock belongs to this bubble
					opts = []option{opts[0], penstock.WithLimiter(must(ratelimiter.NewTokenBucket(ratelimiter.PerHour(60))))}
				}
				clock := startWatch(t)
				ctx, release := c.start(t.Context(), 50*ms)
				out := w.run(ctx, func(context.Context, int) (int, error) { return 0, errX }, 1, numbers(1), opts...)
				release()
				clock.is(50*ms, c.name+" during "+wait)
				out.account(t, numbers(1))
				equal(t, "attempts", out.tasks[0].Attempts, 1)
				equal(t, "outcome", out.tasks[0].Outcome, penstock.Unfinished)
				isAll(t, out.tasks[0].Err, append(c.shows, errX)...)
				isAll(t, out.err, c.shows...)
			}
		}
	})
}

// The same when it is Stop, or the caller of Do, that ends the wait.
func TestB50StopAndDoEndTheBackoff(t *testing.T) {
	policy := penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(30 * time.Second)})
	fails := func(context.Context, int) (int, error) { return 0, errX }
	bubble(t, func(t *testing.T) {
		clock := startWatch(t)
		run := newEngine(fails, 1, policy).Start(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		_, err := run.Do(ctx, 1)
		clock.is(50*ms, "Do")
		isAll(t, err, context.DeadlineExceeded)
		synctest.Wait()
		equal(t, "counters", run.Counters(), counters{Unfinished: 1})

		must(run.Submit(t.Context(), 2))
		time.AfterFunc(50*ms, func() { _ = run.Stop(t.Context()) })
		task, err := run.Next(t.Context())
		clock.is(100*ms, "Next")
		if err != nil {
			t.Fatal(err)
		}
		isAll(t, task.Err, penstock.ErrStopped, context.Canceled, errX)
		<-run.Done()
	})
}

// B65, sourcegraph/conc#107: submitting blocked for a free worker, with no way to give up.
func TestB65BlockedSubmitGivesUp(t *testing.T) {
	for _, c := range cancellations {
		for _, workers := range []int{1, 3} {
			for _, capacity := range []int{1, 5} {
				t.Run(fmt.Sprintf("%s/%d workers/%d", c.name, workers, capacity), func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						clock := startWatch(t)
						var mu sync.Mutex
						var handled []int
						h := func(ctx context.Context, n int) (int, error) {
							mu.Lock()
							handled = append(handled, n)
							mu.Unlock()
							return n, sleep(ctx, 2*time.Second)
						}
						run := newEngine(h, workers, penstock.WithInputCapacity(capacity)).Start(t.Context())
						f := must(foreman.New(h, workers, penstock.WithInputCapacity(capacity)))
						if err := f.Start(t.Context()); err != nil {
							t.Fatal(err)
						}
						for i := range workers + capacity {
							must(run.Submit(t.Context(), i))
							if err := f.Add(t.Context(), task{Index: i, Data: i}); err != nil {
								t.Fatal(err)
							}
						}
						const tooMany = 1000
						ctx, release := c.start(t.Context(), 50*ms)
						defer release()
						var callers sync.WaitGroup
						for range 20 {
							callers.Go(func() {
								_, err := run.Submit(ctx, tooMany)
								clock.is(50*ms, "Submit")
								isAll(t, err, c.shows...)
							})
							callers.Go(func() {
								_, err := run.Do(ctx, tooMany)
								clock.is(50*ms, "Do")
								isAll(t, err, c.shows...)
							})
							callers.Go(func() {
								err := f.Add(ctx, task{Data: tooMany})
								clock.is(50*ms, "Foreman.Add")
								isAll(t, err, c.shows[0])
							})
						}
						callers.Wait()
						_, err := run.Submit(ctx, tooMany) // at once, the context has ended
						clock.is(50*ms, "Submit")
						isAll(t, err, c.shows...)
						time.Sleep(10 * time.Second)
						run.CloseInput()
						delivered := 0
						for range run.Results() {
							delivered++
						}
						if err := f.Finalize(t.Context()); err != nil {
							t.Error(err)
						}
						equal(t, "delivered", delivered, workers+capacity)
						equal(t, "handled", len(handled), 2*(workers+capacity))
						for _, n := range handled {
							if n == tooMany {
								t.Error("an item that was refused has run")
							}
						}
					})
				})
			}
		}
	}
}

// A context that has ended refuses also when there is room, and what is refused leaves no trace.
func TestB65EndedContextIsRefusedInFrontOfRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		run := newEngine(same, 2).Start(t.Context())
		f := must(foreman.New(same, 2))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errCause)
		for range 100 {
			_, err := run.Submit(ctx, 1)
			isAll(t, err, context.Canceled, errCause)
			_, err = run.Do(ctx, 1)
			isAll(t, err, context.Canceled, errCause)
			isAll(t, f.Add(ctx, task{}), context.Canceled)
		}
		equal(t, "counters of the run", run.Counters(), counters{})
		equal(t, "counters of the foreman", f.Counters(), counters{})
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// All that waits ends with the context that it was given, and shows its cause; nothing else is disturbed by that.
func TestB65EveryCallThatWaitsGivesUp(t *testing.T) {
	for _, c := range cancellations {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clock := startWatch(t)
				h := func(context.Context, int) (int, error) { time.Sleep(time.Second); return 1, nil }
				run := newEngine(h, 1).Start(t.Context())
				must(run.Submit(t.Context(), 0))
				f := must(foreman.New(h, 1))
				if err := errors.Join(f.Start(t.Context()), f.Add(t.Context(), task{})); err != nil {
					t.Fatal(err)
				}
				ctx, release := c.start(t.Context(), 50*ms)
				defer release()
				var callers sync.WaitGroup
				for name, call := range map[string]func() error{
					"Next":             func() error { _, err := run.Next(ctx); return err },
					"Finish":           func() error { return run.Finish(ctx) },
					"Foreman.Next":     func() error { _, err := f.Next(ctx); return err },
					"Foreman.Finalize": func() error { return f.Finalize(ctx) },
				} {
					callers.Go(func() {
						err := call()
						clock.is(50*ms, name)
						for _, target := range c.shows {
							if !errors.Is(err, target) {
								t.Errorf("%s: errors.Is does not find %q in %v", name, target, err)
							}
						}
					})
				}
				callers.Wait()
				err := run.Stop(ctx)
				clock.is(50*ms, "Stop")
				isAll(t, err, c.shows...)
				equal(t, "tasks still running", len(as[*penstock.StillRunningError](t, err).Tasks), 1)
				if task, err := run.Next(t.Context()); err != nil || task.Outcome != penstock.Succeeded {
					t.Errorf("the item that was waited for: %v, %v", task.Outcome, err)
				}
				if task, err := f.Next(t.Context()); err != nil || task.Outcome != penstock.Succeeded {
					t.Errorf("the foreman's item: %v, %v", task.Outcome, err)
				}
				clock.is(time.Second, "the results")
				<-run.Done()
				if err := f.Finalize(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
