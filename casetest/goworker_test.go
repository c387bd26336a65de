package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// The change log of a worker pool with nearly our features lists what it had to repair. One test for each line.

// 1. A send on a closed channel when the pool was closed: items come in by every door while the run is ended by every other.
func TestGoWorker01SubmittingWhileClosing(t *testing.T) {
	type run = *penstock.Run[int, int]
	for name, closing := range map[string]func(ctx context.Context, r run){
		"CloseInput": func(_ context.Context, r run) { r.CloseInput() },
		"Finish":     func(ctx context.Context, r run) { _ = r.Finish(ctx) },
		"Stop":       func(ctx context.Context, r run) { _ = r.Stop(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			for range 15 {
				r := newEngine(same, 4, penstock.WithInputCapacity(1)).Start(t.Context())
				var accepted, delivered, replied, cut atomic.Int64
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						for i := 0; ; i++ {
							if _, err := r.Submit(t.Context(), i); err != nil {
								return
							}
							accepted.Add(1)
						}
					})
					all.Go(func() {
						for i := 0; ; i++ {
							var unfinished *penstock.UnfinishedError
							switch _, err := r.Do(t.Context(), i); {
							case err == nil:
								replied.Add(1)
							case errors.As(err, &unfinished):
								cut.Add(1)
							default:
								return
							}
						}
					})
				}
				all.Go(func() {
					for _, err := range r.Results() {
						if err == nil {
							delivered.Add(1)
						}
					}
				})
				for delivered.Load() < 5 {
					runtime.Gosched()
				}
				closing(t.Context(), r)
				all.Wait()
				<-r.Done()
				equal(t, "delivered, of those accepted", delivered.Load(), accepted.Load())
				c := r.Counters()
				equal(t, "outcomes", int64(c.Ended()), accepted.Load()+replied.Load()+cut.Load())
			}
		})
	}
}

// 2. Futures deadlocked with retries: Do returns after them.
func TestGoWorker02DoWithRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		run := newEngine(func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) <= n%4 {
				return 0, errX
			}
			return 2 * n, nil
		}, 3, penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(ms)})).Start(t.Context())
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() { equal(t, "reply", must(run.Do(t.Context(), i)), 2*i) })
		}
		callers.Wait()
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "counters", run.Counters(), counters{Succeeded: 100, Retries: 25 * (1 + 2 + 3)})
		_, err := run.Next(t.Context())
		isAll(t, err, penstock.ErrNoMoreResults) // the replies were not published
	})
}

// 3. The wait for the end counted attempts instead of jobs: Finish returns after the last attempt of the last item.
func TestGoWorker03FinishWaitsForTheLastAttempt(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			if err := sleep(ctx, 10*ms); err != nil {
				return 0, err
			}
			if penstock.AttemptNumber(ctx) < 4 {
				return 0, errX
			}
			return n, nil
		}, 5, numbers(5), penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(time.Second)}))
		clock.is(3*time.Second+4*10*ms, "the end")
		out.account(t, numbers(5))
		equal(t, "counters", out.count, counters{Succeeded: 5, Retries: 15})
	})
}

// 4. A token of the limiter was lost when the pool rejected the job: what is refused at the door has asked for none.
func TestGoWorker04RefusedItemsTakeNoToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		l := newBucket(every(time.Hour))
		counted := ratelimiter.Func(func(ctx context.Context, req ratelimiter.Request) error {
			asked++
			return l.Acquire(ctx, req)
		})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		e := newEngine(same, 1, penstock.WithLimiter(counted))
		run := e.Start(t.Context())
		for range 10 {
			_, err := run.Submit(ended, 1)
			isAll(t, err, context.Canceled)
			_, err = run.Do(ended, 1)
			isAll(t, err, context.Canceled)
		}
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		_, err := run.Submit(t.Context(), 1)
		isAll(t, err, penstock.ErrInputClosed)
		_, err = e.ProcessAll(ended, numbers(10))
		isAll(t, err, context.Canceled)
		synctest.Wait()
		equal(t, "requests to the limiter", asked, 0)
		equalSlices(t, "the only token", startWatch(t).grants(l, 1), []time.Duration{0})
	})
}

// 5. Pausing while the pool closed hung it: a pause only holds attempts. Finish waits for it to end, Stop does not.
func TestGoWorker05PauseWhileClosing(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(ctx context.Context, r *penstock.Run[int, int]) error
		at   time.Duration
		want counters
	}{
		"Finish": {func(ctx context.Context, r *penstock.Run[int, int]) error { return r.Finish(ctx) }, time.Hour, counters{Succeeded: 5}},
		"Stop":   {func(ctx context.Context, r *penstock.Run[int, int]) error { return r.Stop(ctx) }, 0, counters{Unfinished: 5}},
	} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/paused before=%v", name, before), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					p := ratelimiter.NewPausable(newWindow(ratelimiter.PerSecond(100)))
					if before {
						pauseFor(p, time.Hour)
					} else {
						pauseFor(p, ms)
					}
					run := newEngine(same, 2, penstock.WithLimiter(p), penstock.WithInputCapacity(5), penstock.WithResultCapacity(5)).Start(t.Context())
					for i := range 5 {
						must(run.Submit(t.Context(), i))
					}
					synctest.Wait()
					if !before {
						go pauseFor(p, time.Hour)
						go func() { _ = p.PauseUntil(clock.start.Add(30 * time.Minute)) }()
					}
					if err := c.end(t.Context(), run); err != nil {
						t.Error(err)
					}
					clock.is(c.at, name)
					equal(t, "counters", run.Counters(), c.want)
				})
			})
		}
	}
}

// 6. A pause did not stop idle workers: an item that comes in during the pause waits as well.
func TestGoWorker06PauseHoldsIdleWorkers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := startWatch(t)
		p := ratelimiter.NewPausable(newWindow(ratelimiter.PerSecond(1000)))
		run := newEngine(func(context.Context, int) (int, error) { return int(clock.now() / ms), nil }, 4, penstock.WithLimiter(p)).Start(t.Context())
		for i := range 4 { // four workers, idle from now on
			must(run.Submit(t.Context(), i))
		}
		for range 4 {
			equal(t, "start before the pause", must(run.Next(t.Context())).Result, 0)
		}
		synctest.Wait()
		pauseFor(p, 200*ms)
		time.Sleep(100 * ms)
		for i := range 4 {
			must(run.Submit(t.Context(), i))
		}
		for range 4 {
			equal(t, "start of an item that came in during the pause, in ms", must(run.Next(t.Context())).Result, 200)
		}
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// 7. A retry that was cancelled in its delay was not counted: the task has its outcome, and the counters have it.
func TestGoWorker07CancelledInItsDelayIsCounted(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			ctx, release := c.start(t.Context(), 50*ms)
			var done atomic.Int64
			out := w.run(ctx, func(context.Context, int) (int, error) { return 0, errX }, 3, numbers(3),
				penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Minute)}),
				penstock.WithHooks(penstock.Hooks{TaskDone: func(_ context.Context, i penstock.TaskInfo) {
					if i.Outcome == penstock.Unfinished {
						done.Add(1)
					}
				}}))
			release()
			out.account(t, numbers(3))
			equal(t, "counters", out.count, counters{Unfinished: 3})
			equal(t, "outcomes told to the hook", done.Load(), 3)
			for _, task := range out.tasks {
				isAll(t, task.Err, append(c.shows, errX)...)
				equal(t, "where it was cut", as[*penstock.UnfinishedError](t, task.Err).During, "backoff")
			}
		}
	})
}

// 8. The backoff overflowed to a negative delay: B09 has all of it; this is the engine with the number of attempts that did
// it there.
func TestGoWorker08BackoffDoesNotOverflow(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		out := w.run(t.Context(), func(context.Context, int) (int, error) { return 0, errX }, 1, numbers(1),
			penstock.WithRetry(retry.Policy{Max: 70, Backoff: retry.Exponential(time.Second, math.MaxInt64, retry.WithJitter(0))}),
			penstock.WithTaskTimeout(100*365*24*time.Hour))
		out.account(t, numbers(1))
		clock.is(100*365*24*time.Hour, "the end")
		// 1 + 2 + 4 ... seconds reach a hundred years after 31 delays.
		equal(t, "attempts", out.tasks[0].Attempts, 32)
	})
}

// 9. A panic inside a hook killed the process: it is logged, and changes nothing else. B34 has all that can panic.
func TestGoWorker09HooksThatPanicAreOnlyLogged(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, bad := range []func(){func() { panic("in a hook") }, runtime.Goexit} {
			log := new(countingLog)
			exits := false
			out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
				if n == 1 && penstock.AttemptNumber(ctx) == 1 {
					return 0, errX
				}
				return n, nil
			}, 2, numbers(5), penstock.WithLogger(slog.New(log)), penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithHooks(penstock.Hooks{
				TaskDone: func(context.Context, penstock.TaskInfo) { bad() },
				RunEnded: func(context.Context, counters, error) { bad() },
			}), penstock.WithHooks(penstock.Hooks{RunEnded: func(_ context.Context, c counters, _ error) { exits = c.Ended() == 5 }}))
			out.account(t, numbers(5))
			equal(t, "counters", out.count, counters{Succeeded: 5, Retries: 1})
			equal(t, "the hook behind it was called", exits, true)
			equal(t, "errors logged", log.errors.Load(), 6)
		}
	})
}

// countingLog counts the errors.
type countingLog struct{ errors atomic.Int64 }

func (l *countingLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *countingLog) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		l.errors.Add(1)
	}
	return nil
}
func (l *countingLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *countingLog) WithGroup(string) slog.Handler      { return l }

// 10. A goroutine per job just to watch the pool's context: what is pending, or waits in its caller's Do, costs none.
func TestGoWorker10NoGoroutinePerItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const workers, pending, callers = 3, 1000, 100
		before := runtime.NumGoroutine()
		gate := make(chan struct{})
		run := newEngine(func(context.Context, int) (int, error) { <-gate; return 0, nil }, workers,
			penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited),
			penstock.WithTaskTimeout(time.Hour), penstock.WithAttemptTimeout(time.Hour)).Start(t.Context())
		for i := range pending {
			must(run.Submit(t.Context(), i))
		}
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				must(run.Do(ctx, i))
			})
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > workers+callers {
			t.Errorf("%d goroutines more, want the %d workers and the %d callers", n, workers, callers)
		}
		close(gate)
		all.Wait()
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		atBaseline(t, before)
	})
}

// 11. A default job timeout of 30 s surprised people: there is no timeout that nobody set.
func TestGoWorker11NoDefaultTimeout(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			if _, limited := ctx.Deadline(); limited {
				t.Error("the handler's context has a deadline")
			}
			return n, sleep(ctx, 10000*time.Hour)
		}, 2, numbers(2), penstock.WithLimiter(newBucket(every(1000*time.Hour))))
		out.account(t, numbers(2))
		equal(t, "succeeded", out.having(penstock.Succeeded), 2)
		clock.is(11000*time.Hour, "the end")
	})
}

// 12. The timeout became one per attempt instead of per job: attempts that together take longer than it are fine.
func TestGoWorker12TimeoutIsPerAttempt(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			if deadline, _ := ctx.Deadline(); time.Until(deadline) != 50*ms {
				t.Errorf("attempt %d has %v", penstock.AttemptNumber(ctx), time.Until(deadline))
			}
			if err := sleep(ctx, 40*ms); err != nil {
				return 0, err
			}
			if penstock.AttemptNumber(ctx) < 4 {
				return 0, errX
			}
			return n, nil
		}, 2, numbers(4), penstock.WithAttemptTimeout(50*ms), penstock.WithRetry(retry.Policy{Max: 3}))
		out.account(t, numbers(4))
		equal(t, "succeeded", out.having(penstock.Succeeded), 4)
		clock.is(2*4*40*ms, "the end")
	})
}

// 13. Panics were retried: they are not, nor is a Goexit, whatever the policy says.
func TestGoWorker13PanicsAreNotRetried(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for name, policy := range map[string]retry.Policy{
			"every error": {Max: 5}, "if it is one": {Max: 5, If: retry.As[*penstock.PanicError]()}, "Goexit": {Max: 5, If: retry.Is(penstock.ErrGoexit)},
			"always": {Max: 5, If: func(error) bool { return true }},
		} {
			var calls atomic.Int64
			out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
				calls.Add(1)
				if n%2 == 0 {
					panic(retry.After(errX, time.Second)) // not even for a hint
				}
				runtime.Goexit()
				return 0, nil
			}, 2, numbers(6), penstock.WithRetry(policy))
			out.account(t, numbers(6))
			equal(t, name+": calls", calls.Load(), 6)
			equal(t, name+": counters", out.count, counters{Failed: 6})
		}
	})
}
