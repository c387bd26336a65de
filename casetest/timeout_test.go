package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Timeouts that were taken for something else, or that counted what they should not.

// B07, turbopuffer/turbopuffer-go#138: a timed-out attempt was taken for a cancelled caller and never retried.
func TestB07AttemptTimeoutIsRetried(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, parent := range []func(context.Context) (context.Context, context.CancelFunc){
			context.WithCancel,
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Hour)
			},
		} {
			clock := startWatch(t)
			ctx, cancel := parent(t.Context())
			out := w.run(ctx, func(ctx context.Context, n int) (int, error) {
				if penstock.AttemptNumber(ctx) <= 2 {
					return 0, hang(ctx)
				}
				return n, nil
			}, 2, numbers(6), penstock.WithAttemptTimeout(30*ms), penstock.WithRetry(retry.Policy{Max: 3}))
			cancel()
			out.account(t, numbers(6))
			equal(t, "succeeded", out.having(penstock.Succeeded), 6)
			for _, task := range out.tasks {
				equal(t, "attempts", task.Attempts, 3)
			}
			clock.is(3*60*ms, "three turns of two attempts that time out, the end")
		}
	})
}

// With the caller's context ended instead it is one attempt, and the error is the caller's.
func TestB07CallersEndIsNoTimeout(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			for _, at := range []time.Duration{0, ms, 29 * ms} {
				ctx, release := c.start(t.Context(), at)
				clock := startWatch(t)
				out := w.run(ctx, func(ctx context.Context, _ int) (int, error) { return 0, hang(ctx) }, 2, numbers(2),
					penstock.WithAttemptTimeout(30*ms), penstock.WithTaskTimeout(time.Minute), penstock.WithRetry(retry.Policy{Max: 3}))
				release()
				clock.is(at, "the end")
				out.account(t, numbers(2))
				isAll(t, out.err, c.shows...)
				for _, task := range out.tasks {
					equal(t, "outcome", task.Outcome, penstock.Unfinished)
					isAll(t, task.Err, c.shows...)
					noTimeout(t, task.Err)
					if task.Attempts > 1 {
						t.Errorf("%d attempts", task.Attempts)
					}
				}
			}
		}
	})
}

func noTimeout(t *testing.T, err error) {
	t.Helper()
	if timeout, ok := errors.AsType[*penstock.TimeoutError](err); ok {
		t.Errorf("reported as our timeout: %v", timeout)
	}
}

// Who set which deadline: the attempt's, the task's, the caller's, and one that the handler made for itself are four
// different errors, though all are context.DeadlineExceeded.
func TestB07EveryDeadlineHasItsOwnError(t *testing.T) {
	inner := func(ctx context.Context) error {
		own, cancel := context.WithTimeout(ctx, 10*ms)
		defer cancel()
		return hang(own)
	}
	for name, c := range map[string]struct {
		within time.Duration // the caller's deadline, if any
		opts   []option
		h      func(ctx context.Context) error
		scope  string // of the TimeoutError, if it is one
		want   penstock.Outcome
	}{
		"attempt":                    {0, []option{penstock.WithAttemptTimeout(20 * ms)}, hang, "attempt", penstock.Failed},
		"task":                       {0, []option{penstock.WithTaskTimeout(20 * ms)}, hang, "task", penstock.Failed},
		"attempt before task":        {0, []option{penstock.WithAttemptTimeout(20 * ms), penstock.WithTaskTimeout(30 * ms)}, hang, "attempt", penstock.Failed},
		"task before attempt":        {0, []option{penstock.WithAttemptTimeout(30 * ms), penstock.WithTaskTimeout(20 * ms)}, hang, "task", penstock.Failed},
		"caller":                     {20 * ms, []option{penstock.WithAttemptTimeout(30 * ms), penstock.WithTaskTimeout(40 * ms)}, hang, "", penstock.Unfinished},
		"handler's own":              {time.Hour, []option{penstock.WithAttemptTimeout(30 * ms), penstock.WithTaskTimeout(40 * ms)}, inner, "", penstock.Failed},
		"handler's own, no timeouts": {0, nil, inner, "", penstock.Failed},
		"handler says so": {0, []option{penstock.WithAttemptTimeout(30 * ms)},
			func(context.Context) error { return context.DeadlineExceeded }, "", penstock.Failed},
		"handler says cancelled": {0, []option{penstock.WithAttemptTimeout(30 * ms)},
			func(context.Context) error { return context.Canceled }, "", penstock.Failed},
		"other error after the timeout": {0, []option{penstock.WithAttemptTimeout(30 * ms)},
			func(ctx context.Context) error { _ = hang(ctx); return errX }, "", penstock.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				ctx, cancel := context.WithCancel(t.Context())
				if c.within > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.within)
				}
				defer cancel()
				var returned error
				out := w.run(ctx, func(ctx context.Context, _ int) (int, error) {
					returned = c.h(ctx)
					return 0, returned
				}, 1, numbers(1), c.opts...)
				out.account(t, numbers(1))
				got := out.tasks[0]
				equal(t, "outcome", got.Outcome, c.want)
				isAll(t, got.Err, returned)
				if c.scope != "" {
					timeout := as[*penstock.TimeoutError](t, got.Err)
					equal(t, "scope", timeout.Scope, c.scope)
					isAll(t, got.Err, context.DeadlineExceeded)
				} else {
					noTimeout(t, got.Err)
				}
				if c.want == penstock.Failed && c.scope == "" {
					equal(t, "error, as the handler returned it", got.Err, returned)
				}
			})
		})
	}
}

// B24, kubernetes/kubernetes#137694: a dead context was reported as the limiter's fault, and a limiter that saw the
// deadline coming returned an error that was no deadline.
func TestB24DeadlineAtTheLimiter(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		l := make(every(10 * time.Second))
		take(t, l, 1)
		for _, c := range cancellations {
			clock := startWatch(t)
			ctx, release := c.start(t.Context(), 50*ms)
			err := acquire(ctx, l)
			if clock.now() < 50*ms {
				isAll(t, err, context.DeadlineExceeded) // the limiter saw it coming
			} else {
				isAll(t, err, c.shows...)
			}
			if c.shows[0] == context.Canceled && clock.now() != 50*ms {
				t.Errorf("gave up at %v", clock.now())
			}
			if !strings.Contains(err.Error(), "wait") {
				t.Errorf("the text does not tell that it ended while waiting for the limiter: %v", err)
			}
			release()
			time.Sleep(50*ms - clock.now())
		}
	})
}

// The same in an engine: the handler is not called, and it is neither an attempt timeout nor a broken limiter.
func TestB24DeadlineAtTheLimiterOfAnEngine(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			for _, l := range []ratelimiter.Limiter{
				newBucket(every(10 * time.Second)), ratelimiter.NewPausable(newBucket(every(10 * time.Second))),
				limiterFunc(func(ctx context.Context, index int) error { // one that does not see it coming
					if index < 0 {
						return nil
					}
					return hang(ctx)
				}),
			} {
				_ = l.Acquire(t.Context(), ratelimiter.Request{Index: -1})
				clock := startWatch(t)
				ctx, release := c.start(t.Context(), 50*ms)
				var calls atomic.Int32
				out := w.run(ctx, func(context.Context, int) (int, error) { calls.Add(1); return 0, nil }, 2, numbers(5),
					penstock.WithLimiter(l), penstock.WithAttemptTimeout(ms))
				release()
				clock.is(50*ms, "the end")
				out.account(t, numbers(5))
				equal(t, "handler calls", calls.Load(), 0)
				isAll(t, out.err, c.shows...)
				limiterIsInnocent(t, out.err)
				for _, task := range out.tasks {
					equal(t, "outcome", task.Outcome, penstock.Unfinished)
					isAll(t, task.Err, c.shows...)
					noTimeout(t, task.Err)
					limiterIsInnocent(t, task.Err)
					if during := as[*penstock.UnfinishedError](t, task.Err).During; task.Index < 2 {
						equal(t, "where it ended", during, "limiter")
						if !strings.Contains(task.Err.Error(), "limiter") {
							t.Errorf("the text does not tell that it waited for the limiter: %v", task.Err)
						}
					}
				}
			}
		}
	})
}

func limiterIsInnocent(t *testing.T, err error) {
	t.Helper()
	if broken, ok := errors.AsType[*penstock.LimiterError](err); ok {
		t.Errorf("reported as the limiter's failure: %v", broken)
	}
}

// A caller of Do whose deadline cannot be met hears of its own deadline, at once or then, and disturbs nobody else.
func TestB24DeadlineOfDoAtTheLimiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newBucket(every(10 * time.Second))
		run := newEngine(same, 2, penstock.WithLimiter(l)).Start(t.Context())
		must(run.Do(t.Context(), 1))
		clock := startWatch(t)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
			_, err := run.Do(ctx, 2)
			cancel()
			isAll(t, err, context.DeadlineExceeded)
			noTimeout(t, err)
			limiterIsInnocent(t, err)
		}
		must(run.Do(t.Context(), 3))
		clock.is(10*time.Second, "the next grant")
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "counters", run.Counters(), counters{Succeeded: 2, Unfinished: 3})
	})
}

// B57, SGrondin/bottleneck#77: the job's clock ran while it waited in the limiter. The attempt timeout counts the handler
// alone: not the limiter, a pause, the queue, the backoff, or a reader who takes his time.
func TestB57AttemptTimeoutCountsTheHandlerAlone(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for name, c := range map[string]struct {
			pause time.Duration
			retry retry.Policy
			ends  time.Duration
		}{
			"limiter": {0, retry.Policy{}, 3*150*ms + 10*ms},
			"pause":   {200 * ms, retry.Policy{}, 200*ms + 3*150*ms + 10*ms},
			"backoff": {0, retry.Policy{Max: 1, Backoff: retry.Constant(500 * ms)}, 0},
		} {
			clock := startWatch(t)
			p := ratelimiter.NewPausable(newBucket(every(150 * ms)))
			if err := p.PauseFor(c.pause); err != nil {
				t.Error(err)
			}
			out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
				if err := sleep(ctx, 10*ms); err != nil {
					return 0, err
				}
				if penstock.AttemptNumber(ctx) <= c.retry.Max {
					return 0, errX
				}
				return n, nil
			}, 3, numbers(4), penstock.WithLimiter(p), penstock.WithAttemptTimeout(50*ms), penstock.WithRetry(c.retry))
			out.account(t, numbers(4))
			equal(t, name+": succeeded", out.having(penstock.Succeeded), 4)
			if c.ends > 0 {
				clock.is(c.ends, name+": the end")
			}
		}
	})
}

// The task timeout is the one that counts all that: it says where it struck, and keeps the last error.
func TestB57TaskTimeoutCountsEverything(t *testing.T) {
	for during, opts := range map[string]func() []option{
		"limiter": func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 5}), penstock.WithLimiter(newBucket(every(150 * ms)))}
		},
		"backoff": func() []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 5, Backoff: retry.Constant(time.Hour)})}
		},
	} {
		t.Run(during, func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				clock := startWatch(t)
				out := w.run(t.Context(), func(context.Context, int) (int, error) { return 0, errX }, 1, numbers(1),
					append(opts(), penstock.WithTaskTimeout(100*ms))...)
				clock.is(100*ms, "the end")
				out.account(t, numbers(1))
				equal(t, "outcome", out.tasks[0].Outcome, penstock.Failed)
				timeout := as[*penstock.TimeoutError](t, out.tasks[0].Err)
				equal(t, "where it struck", fmt.Sprint(timeout.Scope, " ", timeout.During), "task "+during)
				isAll(t, timeout, errX, context.DeadlineExceeded)
			})
		})
	}
}
