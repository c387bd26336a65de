package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Probes: small programs whose answers differ from library to library. These are ours.

// Five waiters are cancelled, then one more acquires, at one per second: the others took 2 s and 6 s.
func TestProbe01CancelledWaitersCostNothing(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		l := make(ratelimiter.PerSecond(1))
		take(t, l, 1)
		clock := startWatch(t)
		var quitters [5]*caller
		for i := range quitters {
			quitters[i] = clock.call(l)
		}
		for _, q := range quitters {
			q.cancel(errCause)
			<-q.done
		}
		clock.call(l).grantedAt(t, "the sixth", time.Second)
	})
}

// The context ends while a submitter is blocked: it returns at once, with the cause.
func TestProbe02BlockedSubmitterReturnsTheCause(t *testing.T) {
	for _, whose := range []string{"the submitter's", "the run's"} {
		t.Run(whose, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				clock := startWatch(t)
				ended, cancel := context.WithCancelCause(t.Context())
				runs, submits := t.Context(), ended
				if whose == "the run's" {
					runs, submits = ended, t.Context()
				}
				run := newEngine(func(ctx context.Context, _ int) (int, error) { return 0, hang(ctx) }, 1).Start(runs)
				for i := range 2 {
					must(run.Submit(t.Context(), i))
				}
				time.AfterFunc(10*ms, func() { cancel(errCause) })
				_, err := run.Submit(submits, 9)
				clock.is(10*ms, "the refusal")
				isAll(t, err, context.Canceled, errCause)
				_ = run.Stop(t.Context())
			})
		})
	}
}

// The first of ten fails, with one worker, failing fast: one runs, and nine are reported as not run.
func TestProbe03FailFastRunsNoMore(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for range 20 {
			starts := 0
			out := w.run(t.Context(), func(context.Context, int) (int, error) { starts++; return 0, errX }, 1, numbers(10), penstock.WithFailureLimit(1))
			out.account(t, numbers(10))
			equal(t, "items that ran", starts, 1)
			equal(t, "failed", out.having(penstock.Failed), 1)
			as[*penstock.TooManyFailuresError](t, out.err)
			if w.whole {
				equal(t, "reported as not run", out.having(penstock.Unfinished), 9)
			}
			for _, task := range out.tasks {
				if task.Outcome == penstock.Unfinished {
					equal(t, "attempts of one that was not run", task.Attempts, 0)
					as[*penstock.TooManyFailuresError](t, task.Err)
				}
			}
		}
	})
}

// An error ends the run early: what is in flight is cancelled, and the rest never starts.
func TestProbe04EarlyEndCancelsWhatIsInFlight(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		clock := startWatch(t)
		var starts, cancelled atomic.Int64
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			starts.Add(1)
			if n == 3 {
				return 0, errors.Join(errX, sleep(ctx, 10*ms))
			}
			err := sleep(ctx, time.Hour)
			if err != nil {
				cancelled.Add(1)
				isAll(t, context.Cause(ctx), errX)
			}
			return n, err
		}, 4, numbers(20), penstock.WithFailureLimit(1))
		clock.is(10*ms, "the end")
		out.account(t, numbers(20))
		equal(t, "started", starts.Load(), 4)
		equal(t, "cancelled", cancelled.Load(), 3)
		time.Sleep(time.Hour)
		equal(t, "started later", starts.Load(), 4)
	})
}

// Break after the first result, then count goroutines: none at the end of the loop.
func TestProbe05NoGoroutineAfterBreak(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		bubble(t, func(t *testing.T) {
			before := runtime.NumGoroutine()
			f := newFeed(s.kind, 1000)
			for range s.results(newEngine(handlerFor(time.Hour), 4, penstock.WithTaskTimeout(time.Minute)), t.Context(), f.source) {
				break
			}
			f.close()
			atBaseline(t, before)
		})
	})
}

// A panic in the handler: one failed item, a short text, and the stack in its field, in %+v and in a structured log.
func TestProbe06PanicHasAShortText(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
			if n == 2 {
				explode("boom")
			}
			return n, nil
		}, 2, numbers(5))
		out.account(t, numbers(5))
		equal(t, "failed", out.having(penstock.Failed), 1)
		err := out.byIndex()[2].Err
		equal(t, "text", err.Error(), "penstock: panic: boom")
		p := as[*penstock.PanicError](t, err)
		for what, text := range map[string]string{"Stack": string(p.Stack), "%+v": fmt.Sprintf("%+v", err), "LogValue": p.LogValue().String()} {
			if !strings.Contains(text, "explode") {
				t.Errorf("%s does not show the stack: %s", what, text)
			}
		}
		equal(t, "%v", fmt.Sprintf("%v", err), err.Error())
	})
}

// A Retry-After of half an hour: it is waited for, or capped by the setting with that name. Elsewhere it ended the retries.
func TestProbe07RetryAfterOfHalfAnHour(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for limit, want := range map[time.Duration]time.Duration{0: 30 * time.Minute, 31 * time.Minute: 30 * time.Minute, time.Minute: time.Minute} {
			clock := startWatch(t)
			out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
				if penstock.AttemptNumber(ctx) == 1 {
					return 0, retry.After(errX, 30*time.Minute)
				}
				return n, nil
			}, 1, numbers(1), penstock.WithRetry(retry.Policy{Max: 1, MaxRetryAfter: limit}))
			out.account(t, numbers(1))
			equal(t, "outcome", out.tasks[0].Outcome, penstock.Succeeded)
			clock.is(want, fmt.Sprintf("with MaxRetryAfter %v, the end", limit))
		}
	})
}

// The same policy for two items, and for two engines: three attempts each, with the same delays.
func TestProbe08PolicyHasNoMemory(t *testing.T) {
	policy := penstock.WithRetry(retry.Policy{Max: 2, Backoff: retry.Exponential(time.Second, time.Minute, retry.WithJitter(0))})
	eachWay(t, func(t *testing.T, w way) {
		for range 2 {
			clock := startWatch(t)
			out := w.run(t.Context(), func(context.Context, int) (int, error) { return 0, errX }, 1, numbers(2), policy)
			out.account(t, numbers(2))
			for _, task := range out.tasks {
				equal(t, "attempts", task.Attempts, 3)
			}
			clock.is(2*(1+2)*time.Second, "the end")
		}
	})
}

// Retries under a limit of one per second: always one per second, whichever option comes first.
func TestProbe09RetriesPassTheLimiter(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, limiterFirst := range []bool{false, true} {
			opts := []option{penstock.WithRetry(retry.Policy{Max: 2}), penstock.WithLimiter(newBucket(ratelimiter.PerSecond(1)))}
			if limiterFirst {
				opts[0], opts[1] = opts[1], opts[0]
			}
			clock := startWatch(t)
			var mu sync.Mutex
			var starts []time.Duration
			out := w.run(t.Context(), func(context.Context, int) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, clock.now())
				return 0, errX
			}, 3, numbers(4), opts...)
			out.account(t, numbers(4))
			equalSlices(t, "attempts", starts, steps(0, time.Second, 12))
		}
	})
}

// A lone item with default settings runs at once, and its result is there at once; so does one in a batch that never fills.
func TestProbe10LoneItemRunsAtOnce(t *testing.T) {
	for _, opts := range [][]option{nil, {penstock.WithBatch(100)}, {penstock.WithBatch(100), penstock.WithInputCapacity(1000)}} {
		bubble(t, func(t *testing.T) {
			clock := startWatch(t)
			run := newEngine(same, 8, opts...).Start(t.Context())
			for i := range 3 {
				must(run.Submit(t.Context(), i))
				equal(t, "result", must(run.Next(t.Context())).Result, i)
				equal(t, "reply", must(run.Do(t.Context(), i)), i)
				clock.is(0, "the replies")
			}
			ch := make(chan int)
			go func() { // the source is not at its end after its first item
				ch <- 7
				time.Sleep(time.Hour)
				close(ch)
			}()
			for task, err := range newEngine(same, 8, opts...).IterResults(t.Context(), penstock.FromChan(ch)) {
				equal(t, "result", task.Result, 7)
				equal(t, "error", err, nil)
				clock.is(0, "the first result")
			}
			if err := run.Finish(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
	}
}

// A failed item among ordered results has its error at its index, and no zero value that could be taken for a result.
func TestProbe11FailedItemHasItsErrorAtItsIndex(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
			if n == 1 {
				return 0, errX
			}
			return 100, nil
		}, 3, numbers(5))
		out.account(t, numbers(5))
		for i, task := range out.byIndex() {
			value, err := task.Value()
			if i == 1 {
				equal(t, "error", err, errX)
			} else if value != 100 || err != nil {
				t.Errorf("item %d: %v, %v", i, value, err)
			}
		}
		if values, err := penstock.Values(out.tasks, out.err); values != nil || !errors.Is(err, errX) {
			t.Errorf("Values: %v, %v", values, err)
		}
	})
}
