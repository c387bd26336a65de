package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Helpers of the tests about attempts, and of those in the files beside this one that are about what can go wrong.

var (
	errAttOne = errors.New("one")
	errAttTwo = errors.New("two")
)

// attTest runs a subtest in a bubble: its clock moves only when everybody waits, and it fails when a goroutine is left.
func attTest(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

type attHandler = func(ctx context.Context, n int) (int, error)

func attNew(t *testing.T, workers int, h attHandler, opts ...penstock.Option) *penstock.Engine[int, int] {
	t.Helper()
	e, err := penstock.New(h, workers, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// attOne makes an engine with one worker, sends one item through it, and returns what became of it and of the run.
func attOne(t *testing.T, h attHandler, opts ...penstock.Option) (penstock.Task[int, int], error) {
	t.Helper()
	return attOneCtx(t.Context(), t, h, opts...)
}

func attOneCtx(ctx context.Context, t *testing.T, h attHandler, opts ...penstock.Option) (penstock.Task[int, int], error) {
	t.Helper()
	tasks, err := attNew(t, 1, h, opts...).ProcessAll(ctx, []int{0})
	return tasks[0], err
}

// attFails returns a handler that fails as often as said, counting its calls.
func attFails(times int, err error, calls *int) attHandler {
	return func(context.Context, int) (int, error) {
		*calls++
		if *calls <= times {
			return 0, err
		}
		return *calls, nil
	}
}

func attDouble(_ context.Context, n int) (int, error) { return 2 * n, nil }

// attHang does what a good handler does: it works until it is told to stop.
func attHang(ctx context.Context, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

// attSleep is a sleep that heeds ctx.
func attSleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// attLimiter is a limiter with everything that a limiter can have. What is nil says yes, or nothing.
type attLimiter struct {
	acquire func(ctx context.Context, req ratelimiter.Request) error
	within  func(ctx context.Context, req ratelimiter.Request, maxWait time.Duration) error
	observe func(req ratelimiter.Request, err error)
	adjust  func(req ratelimiter.Request, actual int)
}

func (l *attLimiter) Acquire(ctx context.Context, req ratelimiter.Request) error {
	if l.acquire == nil {
		return nil
	}
	return l.acquire(ctx, req)
}

func (l *attLimiter) AcquireWithin(ctx context.Context, req ratelimiter.Request, maxWait time.Duration) error {
	if l.within == nil {
		return nil
	}
	return l.within(ctx, req, maxWait)
}

func (l *attLimiter) TryAcquire(ratelimiter.Request) (bool, time.Duration) { return true, 0 }

func (l *attLimiter) Observe(req ratelimiter.Request, err error) {
	if l.observe != nil {
		l.observe(req, err)
	}
}

func (l *attLimiter) Adjust(req ratelimiter.Request, actual int) {
	if l.adjust != nil {
		l.adjust(req, actual)
	}
}

// attEvery is a limiter that grants once in every interval, the first at once, in order of arrival.
func attEvery(interval time.Duration) ratelimiter.Func {
	var mu sync.Mutex
	var next time.Time
	return func(ctx context.Context, _ ratelimiter.Request) error {
		mu.Lock()
		at := time.Now()
		if at.Before(next) {
			at = next
		}
		next = at.Add(interval)
		mu.Unlock()
		return attSleep(ctx, time.Until(at))
	}
}

// attExpect compares and says what differs.
func attExpect[T any](t *testing.T, what string, got, want T, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", what, diff)
	}
}

// attCmpErrors has cmp take errors for equal when they are the same one.
var attCmpErrors = cmp.Comparer(func(a, b error) bool { return a == b })

// attIs checks that an error is, to errors.Is, each of the targets.
func attIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
}

// attAs checks that an error is of a type and returns it as that.
func attAs[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("%v (%T) is no %T", err, err, e)
	}
	return e
}

func attCount(tasks []penstock.Task[int, int]) map[string]int {
	n := map[string]int{}
	for _, task := range tasks {
		n[task.Outcome.String()]++
	}
	return n
}

// attClock is how long ago the bubble began.
func attClock() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

func TestRetries(t *testing.T) {
	for _, extra := range []int{0, 1, 2, 100} {
		attTest(t, fmt.Sprintf("R1 Max %d means %d calls", extra, extra+1), func(t *testing.T) {
			calls := 0
			task, err := attOne(t, attFails(1000, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: extra}))
			attExpect(t, "calls", calls, extra+1)
			attExpect(t, "attempts", task.Attempts, extra+1)
			if err != nil || task.Err != errAttOne || task.Outcome != penstock.Failed {
				t.Errorf("got %v, %v", task, err)
			}
		})
	}

	attTest(t, "R2 U9 a later attempt that succeeds is a success without a trace of the failures", func(t *testing.T) {
		calls := 0
		task, err := attOne(t, attFails(2, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 2}))
		want := penstock.Task[int, int]{Result: 3, Attempts: 3, Outcome: penstock.Succeeded}
		if err != nil || task != want {
			t.Errorf("got %v, %v", task, err)
		}
	})

	attTest(t, "U3 U9 the last attempt's own error is stored, unwrapped", func(t *testing.T) {
		last := fmt.Errorf("last: %w", errAttTwo)
		task, _ := attOne(t, func(ctx context.Context, _ int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				return 7, errAttOne
			}
			return 8, last
		}, penstock.WithRetry(retry.Policy{Max: 1}))
		if task.Err != last {
			t.Errorf("got %v", task.Err)
		}
		if _, err := task.Value(); err != last {
			t.Errorf("Value gave %v", err)
		}
		attExpect(t, "result beside an error", task.Result, 0)
	})

	yes, no := func(error) bool { return true }, func(error) bool { return false }
	for _, c := range []struct {
		name       string
		onlyIf, un func(error) bool
		calls      int
	}{
		{"R3 Unless wins over If", yes, yes, 1},
		{"R3 If selects", yes, no, 3},
		{"R8 neither lets it pass", no, yes, 1},
		{"R8 If alone refuses", no, nil, 1},
		{"R4 without If everything is retried", nil, nil, 3},
		{"R5 Unless that excludes nothing", nil, no, 3},
		{"R4 a list of no targets selects nothing", retry.Is(), nil, 1},
		{"R6 R7 a wrapped target is found", retry.Is(errAttTwo, errAttOne), nil, 3},
		{"R6 a target that is not in the chain", retry.Is(errAttTwo), nil, 1},
		{"R6 by type, through the chain", retry.As[*penstock.TaskError](), nil, 3},
		{"R6 by another type", retry.As[*penstock.TimeoutError](), nil, 1},
	} {
		attTest(t, c.name, func(t *testing.T) {
			calls := 0
			failure := fmt.Errorf("wrapped: %w", &penstock.TaskError{Err: errAttOne})
			attOne(t, attFails(9, failure, &calls), penstock.WithRetry(retry.Policy{Max: 2, If: c.onlyIf, Unless: c.un}))
			attExpect(t, "calls", calls, c.calls)
		})
	}

	attTest(t, "an error marked Permanent is not retried, and no filter is asked", func(t *testing.T) {
		calls, asked := 0, 0
		ask := func(error) bool { asked++; return true }
		failure := retry.Permanent(errAttOne)
		task, _ := attOne(t, attFails(9, failure, &calls), penstock.WithRetry(retry.Policy{Max: 2, If: ask, Unless: ask}))
		if calls != 1 || asked != 0 || task.Err != failure {
			t.Errorf("%d calls, %d questions, %v", calls, asked, task.Err)
		}
	})

	attTest(t, "R10 every failed attempt uses up a retry, throttled and timed out ones too", func(t *testing.T) {
		calls := 0
		task, _ := attOne(t, func(ctx context.Context, _ int) (int, error) {
			calls++
			switch calls {
			case 1:
				return 0, retry.After(errAttOne, time.Second)
			case 2:
				return attHang(ctx, 0)
			}
			return 0, errAttTwo
		}, penstock.WithRetry(retry.Policy{Max: 2}), penstock.WithAttemptTimeout(time.Second))
		if calls != 3 || task.Err != errAttTwo {
			t.Errorf("%d calls, %v", calls, task.Err)
		}
	})

	attTest(t, "R13 A2 a task that is retried is not overtaken in its worker", func(t *testing.T) {
		var order []int
		e := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			order = append(order, n)
			if n == 0 && penstock.AttemptNumber(ctx) < 3 {
				return 0, errAttOne
			}
			return n, nil
		}, penstock.WithRetry(retry.Policy{Max: 2, Backoff: retry.Constant(time.Hour)}))
		if _, err := e.ProcessAll(t.Context(), []int{0, 1}); err != nil {
			t.Error(err)
		}
		attExpect(t, "calls", order, []int{0, 0, 0, 1})
	})

	attTest(t, "R14 retries do not deadlock between two full queues", func(t *testing.T) {
		e := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) < 3 {
				return 0, errAttOne
			}
			return n, nil
		}, penstock.WithRetry(retry.Policy{Max: 2}), penstock.WithInputCapacity(1), penstock.WithResultCapacity(1))
		seen := 0
		for task, err := range e.IterResults(t.Context(), penstock.FromSeq(slices.Values(make([]int, 20)))) {
			time.Sleep(time.Second) // the consumer is the slowest
			if err != nil || task.Attempts != 3 || task.Err != nil {
				t.Errorf("got %v, %v", task, err)
			}
			seen++
		}
		attExpect(t, "results", seen, 20)
	})

	attTest(t, "R16 L26 nothing is retried after a stop", func(t *testing.T) {
		calls := 0
		asked := func(error) bool { t.Error("a filter was asked"); return true }
		run := attNew(t, 1, func(ctx context.Context, _ int) (int, error) {
			calls++
			<-ctx.Done()
			return 0, errAttOne
		}, penstock.WithRetry(retry.Policy{Max: 5, If: asked})).Start(t.Context())
		run.Submit(t.Context(), 0)
		synctest.Wait()
		run.Stop(t.Context())
		task, err := run.Next(t.Context())
		if calls != 1 || err != nil || task.Outcome != penstock.Unfinished {
			t.Errorf("%d calls, %v, %v", calls, task, err)
		}
		attIs(t, task.Err, errAttOne, penstock.ErrStopped, context.Canceled)
	})
}

func TestAttemptNumber(t *testing.T) {
	attTest(t, "counts the attempts from 1", func(t *testing.T) {
		var numbers []int
		h := func(ctx context.Context, _ int) (int, error) {
			numbers = append(numbers, penstock.AttemptNumber(ctx))
			return 0, errAttOne
		}
		attOne(t, h, penstock.WithRetry(retry.Policy{Max: 2}), penstock.WithAttemptTimeout(time.Second))
		attExpect(t, "numbers", numbers, []int{1, 2, 3})
	})
	attTest(t, "is 0 outside of a handler", func(t *testing.T) {
		attExpect(t, "number", penstock.AttemptNumber(t.Context()), 0)
	})
	attTest(t, "is the inner engine's in a handler that uses another engine", func(t *testing.T) {
		var inner []int
		e := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			inner = append(inner, penstock.AttemptNumber(ctx))
			return n, nil
		})
		run := e.Start(t.Context())
		attOne(t, func(ctx context.Context, n int) (int, error) {
			e.ProcessAll(ctx, []int{n})
			run.Do(ctx, n)
			return 0, errAttOne
		}, penstock.WithRetry(retry.Policy{Max: 2}))
		attExpect(t, "numbers", inner, []int{1, 1, 1, 1, 1, 1})
		run.Stop(t.Context())
	})
}

func TestBackoff(t *testing.T) {
	attTest(t, "D1 it is told the number of failed attempts and the very error", func(t *testing.T) {
		failures := []error{errAttOne, fmt.Errorf("wrapped: %w", errAttTwo)}
		var numbers []int
		var told []error
		calls := 0
		attOne(t, func(context.Context, int) (int, error) {
			if calls == 2 {
				return 1, nil
			}
			calls++
			return 0, failures[calls-1]
		}, penstock.WithRetry(retry.Policy{Max: 5, Backoff: func(failed int, err error) time.Duration {
			numbers, told = append(numbers, failed), append(told, err)
			return 0
		}}))
		attExpect(t, "numbers", numbers, []int{1, 2})
		if !slices.Equal(told, failures) {
			t.Errorf("told %v", told)
		}
	})

	attTest(t, "D2 it is asked only for a retry that will be made", func(t *testing.T) {
		asked := 0
		p := retry.Policy{Max: 1, Unless: retry.Is(errAttTwo), Backoff: func(int, error) time.Duration { asked++; return 0 }}
		calls := 0
		attOne(t, attFails(9, errAttOne, &calls), penstock.WithRetry(p))
		attExpect(t, "questions, with one retry", asked, 1)
		attOne(t, attFails(9, errAttTwo, &calls), penstock.WithRetry(p))
		attExpect(t, "questions, after an excluded error", asked, 1)
	})

	attTest(t, "D3 without one the retry follows at once", func(t *testing.T) {
		clock, calls := attClock(), 0
		attOne(t, attFails(2, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 2}))
		if calls != 3 || clock() != 0 {
			t.Errorf("%d calls took %v", calls, clock())
		}
	})

	attTest(t, "D4 the wait is no part of the attempt and its timeout", func(t *testing.T) {
		clock, calls := attClock(), 0
		p := retry.Policy{Max: 2, Backoff: retry.Constant(time.Minute)}
		task, _ := attOne(t, attFails(2, errAttOne, &calls), penstock.WithRetry(p), penstock.WithAttemptTimeout(time.Second))
		if task.Err != nil || clock() != 2*time.Minute {
			t.Errorf("%v after %v", task.Err, clock())
		}
	})

	attTest(t, "D5 it occupies its worker and no other", func(t *testing.T) {
		run := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if n == 1 && penstock.AttemptNumber(ctx) == 1 {
				return 0, errAttOne
			}
			return n, nil
		}, penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Minute)})).Start(t.Context())
		clock := attClock()
		run.Submit(t.Context(), 1)
		run.Submit(t.Context(), 2)
		first, _ := run.Next(t.Context())
		attExpect(t, "first to end", first.Data, 2)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Running: 1, Succeeded: 1})
		second, _ := run.Next(t.Context())
		attExpect(t, "second", second.Data, 1)
		attExpect(t, "instant", clock(), time.Minute)
		run.Finish(t.Context())
	})

	attTest(t, "D6 a negative delay ends the run, not the task, and is not cut to zero", func(t *testing.T) {
		calls := 0
		task, err := attOne(t, attFails(9, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 2, Backoff: retry.Constant(-1)}))
		broken := attAs[*penstock.CallbackError](t, err)
		if broken.Callback != "backoff" || broken.Task != "0" || !strings.Contains(broken.Error(), "-1ns") {
			t.Errorf("got %v", broken)
		}
		if calls != 1 || task.Outcome != penstock.Unfinished {
			t.Errorf("%d calls, %v", calls, task)
		}
		attIs(t, task.Err, err, errAttOne, context.Canceled)
	})

	attTest(t, "D8 cancellation interrupts the wait, and no attempt follows", func(t *testing.T) {
		clock, calls := attClock(), 0
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAttTwo)
		defer cancel()
		p := retry.Policy{Max: 9, Backoff: retry.Constant(time.Hour)}
		task, err := attOneCtx(ctx, t, attFails(9, errAttOne, &calls), penstock.WithRetry(p))
		if calls != 1 || clock() != time.Second || task.Outcome != penstock.Unfinished {
			t.Errorf("%d calls, %v after %v", calls, task, clock())
		}
		attIs(t, task.Err, context.DeadlineExceeded, errAttTwo, errAttOne)
		attIs(t, err, context.DeadlineExceeded, errAttTwo)
		attExpect(t, "during", attAs[*penstock.UnfinishedError](t, task.Err).During, "backoff")
	})

	attTest(t, "D9 backoff and limiter add up", func(t *testing.T) {
		clock := attClock()
		var starts []time.Duration
		e := attNew(t, 1, func(context.Context, int) (int, error) {
			starts = append(starts, clock())
			return 0, errAttOne
		}, penstock.WithLimiter(attEvery(20*time.Millisecond)), penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(30 * time.Millisecond)}))
		e.ProcessAll(t.Context(), []int{0, 1})
		const ms = time.Millisecond
		attExpect(t, "starts", starts, []time.Duration{0, 30 * ms, 50 * ms, 80 * ms})
	})
}

func TestRetryAfter(t *testing.T) {
	attTest(t, "the wait is what the service asked for and the backoff", func(t *testing.T) {
		clock, calls := attClock(), 0
		p := retry.Policy{Max: 1, Backoff: retry.Constant(time.Second)}
		attOne(t, attFails(1, retry.After(errAttOne, 10*time.Second), &calls), penstock.WithRetry(p))
		attExpect(t, "instant", clock(), 11*time.Second)
	})
	attTest(t, "it works without a backoff", func(t *testing.T) {
		clock, calls := attClock(), 0
		attOne(t, attFails(1, retry.After(errAttOne, 10*time.Second), &calls), penstock.WithRetry(retry.Policy{Max: 1}))
		attExpect(t, "instant", clock(), 10*time.Second)
	})
	attTest(t, "it is capped", func(t *testing.T) {
		clock, calls := attClock(), 0
		p := retry.Policy{Max: 1, Backoff: retry.Constant(time.Second), MaxRetryAfter: 3 * time.Second}
		attOne(t, attFails(1, retry.After(errAttOne, 10*time.Second), &calls), penstock.WithRetry(p))
		attExpect(t, "instant", clock(), 4*time.Second)
	})
	attTest(t, "a hint does not make an error retryable", func(t *testing.T) {
		calls := 0
		p := retry.Policy{Max: 1, If: retry.Is(errAttTwo)}
		attOne(t, attFails(1, retry.After(errAttOne, time.Second), &calls), penstock.WithRetry(p))
		attExpect(t, "calls", calls, 1)
	})
	attTest(t, "FreeThrottled: throttled attempts use up no retry, also with Max 0", func(t *testing.T) {
		clock, calls := attClock(), 0
		task, _ := attOne(t, attFails(5, retry.After(errAttOne, time.Minute), &calls), penstock.WithRetry(retry.Policy{FreeThrottled: true}))
		if task.Err != nil || task.Attempts != 6 || clock() != 5*time.Minute {
			t.Errorf("%v after %v", task, clock())
		}
	})
	attTest(t, "FreeThrottled: other failures still do, and a hint of zero counts as one of them", func(t *testing.T) {
		failures := []error{retry.After(errAttOne, time.Second), errAttTwo, retry.After(errAttOne, time.Second), retry.After(errAttOne, 0)}
		calls := 0
		task, _ := attOne(t, func(context.Context, int) (int, error) {
			calls++
			return 0, failures[calls-1]
		}, penstock.WithRetry(retry.Policy{Max: 1, FreeThrottled: true}))
		if calls != 4 || task.Err != failures[3] {
			t.Errorf("%d calls, %v", calls, task.Err)
		}
	})
	attTest(t, "FreeThrottled: the task timeout ends it", func(t *testing.T) {
		clock, calls := attClock(), 0
		failure := retry.After(errAttOne, time.Minute)
		task, _ := attOne(t, attFails(1000, failure, &calls), penstock.WithRetry(retry.Policy{FreeThrottled: true}), penstock.WithTaskTimeout(150*time.Second))
		if calls != 3 || clock() != 150*time.Second || task.Outcome != penstock.Failed {
			t.Errorf("%d calls, %v after %v", calls, task, clock())
		}
		attIs(t, task.Err, errAttOne, context.DeadlineExceeded)
	})
}

func TestRetryBudget(t *testing.T) {
	attTest(t, "is shared by all tasks and engines", func(t *testing.T) {
		budget, err := retry.NewBudget(0.001, 5)
		if err != nil {
			t.Fatal(err)
		}
		p := penstock.WithRetry(retry.Policy{Max: 3, Budget: budget})
		fail := func(context.Context, int) (int, error) { return 0, errAttOne }
		e := attNew(t, 2, fail, p)
		e.ProcessAll(t.Context(), make([]int, 4))
		attNew(t, 2, fail, p).ProcessAll(t.Context(), make([]int, 4))
		attExpect(t, "retries, 5 in stock and nothing earned", e.Counters(), penstock.Counters{Failed: 4, Retries: 5})
	})
	attTest(t, "a task that finds it empty fails with its own error", func(t *testing.T) {
		budget, _ := retry.NewBudget(0.001, 1)
		calls := 0
		task, err := attOne(t, attFails(9, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 9, Budget: budget}))
		if err != nil || task.Err != errAttOne || task.Attempts != 2 {
			t.Errorf("%v, %v", task, err)
		}
	})
	attTest(t, "first attempts earn, retries do not", func(t *testing.T) {
		budget, _ := retry.NewBudget(0.5, 4)
		calls := 0
		attOne(t, attFails(3, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 9, Budget: budget}))
		attExpect(t, "balance after three retries", budget.Balance(), 1.0)
		attOne(t, attDouble, penstock.WithRetry(retry.Policy{Budget: budget}))
		attExpect(t, "balance after another task", budget.Balance(), 1.5)
	})
	attTest(t, "an excluded error draws nothing", func(t *testing.T) {
		budget, _ := retry.NewBudget(0.5, 4)
		calls := 0
		attOne(t, attFails(9, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 1, Budget: budget, Unless: retry.Is(errAttOne)}))
		attExpect(t, "balance", budget.Balance(), 4.0)
	})
}

func TestLimiterPerAttempt(t *testing.T) {
	attTest(t, "R11 every attempt acquires, with its number and always the same worker", func(t *testing.T) {
		var asked []ratelimiter.Request
		keys, costs, calls := 0, 0, 0
		l := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error { asked = append(asked, r); return nil })
		attOne(t, attFails(2, errAttOne, &calls), penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 2}),
			penstock.WithKey(func(int) string { keys++; return "k" }), penstock.WithCost(func(int) int { costs++; return 7 }))
		attExpect(t, "requests", asked, []ratelimiter.Request{
			{Attempt: 1, Cost: 7, Key: "k"}, {Attempt: 2, Cost: 7, Key: "k"}, {Attempt: 3, Cost: 7, Key: "k"},
		})
		if keys != 1 || costs != 1 {
			t.Errorf("the key function was called %d times, the cost function %d times", keys, costs)
		}
	})

	attTest(t, "without functions the key is empty and the cost 1; workers and items are numbered", func(t *testing.T) {
		var mu sync.Mutex
		asked := map[int]ratelimiter.Request{}
		workers := map[int]bool{}
		l := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
			mu.Lock()
			defer mu.Unlock()
			workers[r.Worker] = true
			r.Worker = 0
			asked[r.Index] = r
			return nil
		})
		e := attNew(t, 3, func(ctx context.Context, n int) (int, error) { return n, attSleep(ctx, time.Second) }, penstock.WithLimiter(l))
		e.ProcessAll(t.Context(), make([]int, 4))
		attExpect(t, "requests", asked, map[int]ratelimiter.Request{
			0: {Index: 0, Attempt: 1, Cost: 1}, 1: {Index: 1, Attempt: 1, Cost: 1}, 2: {Index: 2, Attempt: 1, Cost: 1}, 3: {Index: 3, Attempt: 1, Cost: 1},
		})
		attExpect(t, "workers", workers, map[int]bool{0: true, 1: true, 2: true})
	})

	attTest(t, "a request that can never be granted fails its task only, and is not retried", func(t *testing.T) {
		for _, refusal := range []error{&ratelimiter.CostError{Limit: "l", Cost: 9, Max: 5}, &ratelimiter.KeyError{Key: "x"}, fmt.Errorf("mine: %w", ratelimiter.ErrNeverGranted)} {
			asked := 0
			l := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
				if r.Index == 1 {
					asked++
					return refusal
				}
				return nil
			})
			e := attNew(t, 1, attDouble, penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 5}))
			tasks, err := e.ProcessAll(t.Context(), []int{1, 2, 3})
			attExpect(t, "outcomes", attCount(tasks), map[string]int{"succeeded": 2, "failed": 1})
			if err != nil || tasks[1].Err != refusal || tasks[1].Attempts != 0 || asked != 1 {
				t.Errorf("%v, %v, asked %d times", tasks[1], err, asked)
			}
		}
	})

	attTest(t, "a negative cost ends the run, and the limiter is not asked", func(t *testing.T) {
		l := ratelimiter.Func(func(context.Context, ratelimiter.Request) error { t.Error("asked"); return nil })
		task, err := attOne(t, attDouble, penstock.WithLimiter(l), penstock.WithCost(func(int) int { return -3 }))
		broken := attAs[*penstock.CallbackError](t, err)
		if broken.Callback != "cost" || !strings.Contains(broken.Error(), "-3") || task.Outcome != penstock.Unfinished {
			t.Errorf("%v, %v", broken, task)
		}
	})

	attTest(t, "a grant that comes too late is given back, and the handler is not called", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var back []ratelimiter.Request
		l := &attLimiter{
			acquire: func(context.Context, ratelimiter.Request) error { cancel(); return nil },
			adjust: func(r ratelimiter.Request, actual int) {
				attExpect(t, "actual", actual, 0)
				back = append(back, r)
			},
		}
		task, err := attOneCtx(ctx, t, func(context.Context, int) (int, error) { t.Error("called"); return 0, nil }, penstock.WithLimiter(l))
		attExpect(t, "refunds", back, []ratelimiter.Request{{Attempt: 1, Cost: 1}})
		attIs(t, err, context.Canceled)
		if task.Outcome != penstock.Unfinished || task.Attempts != 0 {
			t.Errorf("got %v", task)
		}
	})

	attTest(t, "nothing is given back for an attempt that was made", func(t *testing.T) {
		l := &attLimiter{adjust: func(ratelimiter.Request, int) { t.Error("given back") }}
		calls := 0
		attOne(t, attFails(1, errAttOne, &calls), penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 1}))
	})
}

// A limiter that knows that the deadline comes first says so at once. A worker that took that for the task's end and
// went on would run through everything pending in no time.
func TestHopelessDeadline(t *testing.T) {
	hopeless := func(asked *int) ratelimiter.Func {
		return func(context.Context, ratelimiter.Request) error {
			*asked++
			return fmt.Errorf("no grant before the deadline: %w", context.DeadlineExceeded)
		}
	}

	attTest(t, "of the run: it is waited for, and nobody asks again", func(t *testing.T) {
		clock, asked := attClock(), 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		tasks, err := attNew(t, 1, attDouble, penstock.WithLimiter(hopeless(&asked))).ProcessAll(ctx, make([]int, 1000))
		if asked != 1 || clock() != time.Hour {
			t.Errorf("asked %d times in %v", asked, clock())
		}
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"unfinished": 1000})
		attIs(t, err, context.DeadlineExceeded)
		attExpect(t, "during", attAs[*penstock.UnfinishedError](t, tasks[0].Err).During, "limiter")
	})

	attTest(t, "of the task: it is waited for, and the task has timed out", func(t *testing.T) {
		clock, asked := attClock(), 0
		tasks, err := attNew(t, 1, attDouble, penstock.WithLimiter(hopeless(&asked)), penstock.WithTaskTimeout(time.Minute)).
			ProcessAll(t.Context(), make([]int, 3))
		if err != nil || asked != 3 || clock() != 3*time.Minute {
			t.Errorf("%v, asked %d times in %v", err, asked, clock())
		}
		for _, task := range tasks {
			timeout := attAs[*penstock.TimeoutError](t, task.Err)
			if task.Outcome != penstock.Failed || timeout.Scope != "task" || timeout.During != "limiter" {
				t.Errorf("got %v", task)
			}
		}
	})

	attTest(t, "of Do's caller: it is told at once, the run goes on", func(t *testing.T) {
		clock, asked := attClock(), 0
		run := attNew(t, 1, attDouble, penstock.WithLimiter(hopeless(&asked))).Start(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := run.Do(ctx, 1)
		attIs(t, err, context.DeadlineExceeded)
		if timeout, ok := errors.AsType[*penstock.TimeoutError](err); ok {
			t.Errorf("%v is none of our timeouts", timeout)
		}
		attExpect(t, "instant", clock(), 0)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 1})
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})

	attTest(t, "of nobody: then the limiter is broken", func(t *testing.T) {
		asked := 0
		task, err := attOne(t, attDouble, penstock.WithLimiter(hopeless(&asked)))
		attAs[*penstock.LimiterError](t, err)
		attExpect(t, "outcome", task.Outcome, penstock.Unfinished)
	})
}

func TestObserve(t *testing.T) {
	attTest(t, "hears of every attempt, with the very error", func(t *testing.T) {
		var told []error
		var requests []ratelimiter.Request
		l := &attLimiter{observe: func(r ratelimiter.Request, err error) { told, requests = append(told, err), append(requests, r) }}
		failure := fmt.Errorf("wrapped: %w", errAttOne)
		calls := 0
		attOne(t, attFails(2, failure, &calls), penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 2}))
		if !slices.Equal(told, []error{failure, failure, nil}) {
			t.Errorf("told %v", told)
		}
		attExpect(t, "requests", requests, []ratelimiter.Request{{Attempt: 1, Cost: 1}, {Attempt: 2, Cost: 1}, {Attempt: 3, Cost: 1}})
	})

	attTest(t, "a Retry-After comes capped, and else as it was", func(t *testing.T) {
		var told []error
		l := &attLimiter{observe: func(_ ratelimiter.Request, err error) { told = append(told, err) }}
		short, long := retry.After(errAttOne, time.Second), retry.After(errAttTwo, 100*time.Hour)
		calls := 0
		task, _ := attOne(t, func(context.Context, int) (int, error) {
			calls++
			return 0, []error{short, long}[calls-1]
		}, penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 1, MaxRetryAfter: time.Minute}))
		if len(told) != 2 || told[0] != short {
			t.Fatalf("told %v", told)
		}
		d, ok := retry.RetryAfter(told[1])
		if !ok || d != time.Minute || !errors.Is(told[1], errAttTwo) {
			t.Errorf("told %v, %v", told[1], d)
		}
		if task.Err != long {
			t.Errorf("the task's own error was changed: %v", task.Err)
		}
	})

	attTest(t, "hears of timeouts, panics and Goexit", func(t *testing.T) {
		var told []error
		l := &attLimiter{observe: func(_ ratelimiter.Request, err error) { told = append(told, err) }}
		e := attNew(t, 1, attMisbehave, penstock.WithLimiter(l), penstock.WithAttemptTimeout(time.Second))
		e.ProcessAll(t.Context(), []int{attHangs, attPanics, attGoexits})
		if len(told) != 3 {
			t.Fatalf("told %v", told)
		}
		attAs[*penstock.TimeoutError](t, told[0])
		attAs[*penstock.PanicError](t, told[1])
		attIs(t, told[2], penstock.ErrGoexit)
	})

	attTest(t, "hears nothing of an attempt that was never made", func(t *testing.T) {
		l := &attLimiter{
			acquire: func(context.Context, ratelimiter.Request) error { return &ratelimiter.CostError{} },
			observe: func(ratelimiter.Request, error) { t.Error("told") },
		}
		attOne(t, attDouble, penstock.WithLimiter(l))
	})
}

func TestShed(t *testing.T) {
	refuse := func(after time.Duration) func(context.Context, ratelimiter.Request, time.Duration) error {
		return func(_ context.Context, _ ratelimiter.Request, maxWait time.Duration) error {
			if after <= maxWait {
				return nil
			}
			return &ratelimiter.ExcessError{Limit: "bucket 10/s", Scope: `key "a"`, RetryAfter: after}
		}
	}

	attTest(t, "what would wait longer than allowed is shed, and nothing of an attempt happens", func(t *testing.T) {
		no := func(what string) { t.Error(what) }
		hooks := penstock.Hooks{
			AttemptStarted: func(context.Context, penstock.Attempt) { no("AttemptStarted") },
			AttemptEnded:   func(context.Context, penstock.Attempt, error) { no("AttemptEnded") },
			RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) { no("RetryScheduled") },
		}
		l := &attLimiter{within: refuse(time.Second), observe: func(ratelimiter.Request, error) { no("Observe") }}
		e := attNew(t, 1, func(context.Context, int) (int, error) { no("handler"); return 0, nil }, penstock.WithLimiter(l),
			penstock.WithShed(0), penstock.WithRetry(retry.Policy{Max: 5}), penstock.WithFailureLimit(1), penstock.WithHooks(hooks))
		tasks, err := e.ProcessAll(t.Context(), make([]int, 3))
		if err != nil {
			t.Errorf("shed tasks must not count for the failure limit: %v", err)
		}
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"shed": 3})
		attExpect(t, "counters", e.Counters(), penstock.Counters{Shed: 3})
		shed := attAs[*penstock.ShedError](t, tasks[2].Err)
		if text := shed.Error(); !strings.HasPrefix(text, "rate_limit: bucket 10/s") || strings.Count(text, "rate_limit:") != 1 ||
			!strings.Contains(text, `key "a"`) || !strings.Contains(text, "task 2") {
			t.Errorf("text %q", text)
		}
		attExpect(t, "retry after", attAs[*ratelimiter.ExcessError](t, tasks[2].Err).RetryAfter, time.Second)
	})

	attTest(t, "what may wait, waits", func(t *testing.T) {
		task, err := attOne(t, attDouble, penstock.WithLimiter(&attLimiter{within: refuse(time.Second)}), penstock.WithShed(time.Second))
		if err != nil || task.Outcome != penstock.Succeeded {
			t.Errorf("%v, %v", task, err)
		}
	})

	attTest(t, "retries are shed, too", func(t *testing.T) {
		l := &attLimiter{within: func(_ context.Context, r ratelimiter.Request, _ time.Duration) error {
			if r.Attempt < 3 {
				return nil
			}
			return &ratelimiter.ExcessError{Limit: "l"}
		}}
		calls := 0
		task, err := attOne(t, attFails(9, errAttOne, &calls), penstock.WithLimiter(l), penstock.WithShed(0), penstock.WithRetry(retry.Policy{Max: 5}))
		attAs[*penstock.ShedError](t, task.Err)
		if err != nil || calls != 2 || task.Outcome != penstock.Shed || task.Attempts != 2 {
			t.Errorf("%d calls, %v, %v", calls, task, err)
		}
	})

	attTest(t, "without WithShed the same refusal is a broken limiter", func(t *testing.T) {
		l := &attLimiter{acquire: func(context.Context, ratelimiter.Request) error { return &ratelimiter.ExcessError{Limit: "l"} }}
		_, err := attOne(t, attDouble, penstock.WithLimiter(l))
		attAs[*penstock.LimiterError](t, err)
	})

	attTest(t, "a limiter that cannot shed is an error of New", func(t *testing.T) {
		for _, opts := range [][]penstock.Option{
			{penstock.WithShed(0)},
			{penstock.WithShed(0), penstock.WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return nil }))},
			{penstock.WithShed(-1), penstock.WithLimiter(&attLimiter{})},
		} {
			_, err := penstock.New(attDouble, 1, opts...)
			attExpect(t, "option", attAs[*penstock.OptionError](t, err).Option, "WithShed")
		}
	})
}
