package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

func TestAttemptTimeout(t *testing.T) {
	attTest(t, "T1 it is for each call, without the waits for limiter and retry", func(t *testing.T) {
		clock := attClock()
		task, err := attOne(t, func(ctx context.Context, _ int) (int, error) {
			if err := attSleep(ctx, 900*time.Millisecond); err != nil {
				return 0, err
			}
			if penstock.AttemptNumber(ctx) < 3 {
				return 0, errAttOne
			}
			return 1, nil
		}, penstock.WithAttemptTimeout(time.Second), penstock.WithLimiter(attEvery(time.Minute)),
			penstock.WithRetry(retry.Policy{Max: 2, Backoff: retry.Constant(time.Hour)}))
		if err != nil || task.Err != nil {
			t.Errorf("%v, %v", task, err)
		}
		attExpect(t, "instant", clock(), 2*time.Hour+2700*time.Millisecond)
	})

	attTest(t, "T2 those that take longer time out at that very instant", func(t *testing.T) {
		e := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			began := time.Now()
			err := attSleep(ctx, time.Duration(n)*10*time.Millisecond)
			if took := time.Since(began); took > 55*time.Millisecond {
				t.Errorf("item %d took %v", n, took)
			}
			return n, err
		}, penstock.WithAttemptTimeout(55*time.Millisecond))
		tasks, err := e.ProcessAll(t.Context(), []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
		if err != nil {
			t.Error(err)
		}
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"succeeded": 5, "failed": 5})
		timeout := attAs[*penstock.TimeoutError](t, tasks[9].Err)
		attExpect(t, "error", *timeout, penstock.TimeoutError{Task: "9", Scope: "attempt", Limit: 55 * time.Millisecond, During: "handler", Err: context.DeadlineExceeded}, attCmpErrors)
	})

	attTest(t, "T2 T9 a retry has the whole time again and counts as a retry", func(t *testing.T) {
		e := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				return attHang(ctx, n)
			}
			return n, attSleep(ctx, 900*time.Millisecond)
		}, penstock.WithAttemptTimeout(time.Second), penstock.WithRetry(retry.Policy{Max: 1}))
		e.ProcessAll(t.Context(), make([]int, 10))
		attExpect(t, "counters", e.Counters(), penstock.Counters{Succeeded: 10, Retries: 10})
	})

	for _, c := range []struct {
		name   string
		policy retry.Policy
		calls  int
	}{
		{"selected by its type", retry.Policy{If: retry.As[*penstock.TimeoutError]()}, 2},
		{"selected as a deadline", retry.Policy{If: retry.Is(context.DeadlineExceeded)}, 2},
		{"not selected", retry.Policy{If: retry.Is(errAttOne)}, 1},
		{"excluded by its type", retry.Policy{Unless: retry.As[*penstock.TimeoutError]()}, 1},
	} {
		attTest(t, "R9 T4 a timeout takes part in the filters: "+c.name, func(t *testing.T) {
			calls := 0
			c.policy.Max = 1
			attOne(t, func(ctx context.Context, n int) (int, error) {
				calls++
				return attHang(ctx, n)
			}, penstock.WithAttemptTimeout(time.Second), penstock.WithRetry(c.policy))
			attExpect(t, "calls", calls, c.calls)
		})
	}

	attTest(t, "T6 the handler is waited for, so an attempt never overlaps its retry", func(t *testing.T) {
		clock, inside := attClock(), 0
		e := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if n != 0 {
				return n, nil
			}
			if inside++; inside > 1 {
				t.Error("two attempts of one task at a time")
			}
			defer func() { inside-- }()
			<-ctx.Done()
			time.Sleep(time.Minute) // cleaning up, in spite of everything
			return 0, ctx.Err()
		}, penstock.WithAttemptTimeout(time.Second), penstock.WithRetry(retry.Policy{Max: 2}))
		run := e.Start(t.Context())
		run.Submit(t.Context(), 0)
		run.Submit(t.Context(), 1)
		first, _ := run.Next(t.Context())
		attExpect(t, "another worker goes on meanwhile", first.Data, 1)
		attExpect(t, "at once", clock(), 0)
		second, _ := run.Next(t.Context())
		attExpect(t, "attempts", second.Attempts, 3)
		attExpect(t, "instant", clock(), 3*(time.Second+time.Minute))
		run.Finish(t.Context())
	})

	late := func(value int, err error) attHandler {
		return func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return value, err
		}
	}
	for name, h := range map[string]attHandler{
		"T7 a late value is a success": late(7, nil),
		"T8 a value from a handler that never looked is a success": func(context.Context, int) (int, error) {
			time.Sleep(time.Hour)
			return 7, nil
		},
	} {
		attTest(t, name, func(t *testing.T) {
			task, err := attOne(t, h, penstock.WithAttemptTimeout(time.Second))
			if err != nil || task.Result != 7 || task.Outcome != penstock.Succeeded || task.Err != nil {
				t.Errorf("%v, %v", task, err)
			}
		})
	}
	attTest(t, "T7 another error is kept", func(t *testing.T) {
		task, _ := attOne(t, late(0, errAttOne), penstock.WithAttemptTimeout(time.Second))
		if task.Err != errAttOne {
			t.Errorf("got %v", task.Err)
		}
	})
	for _, err := range []error{context.DeadlineExceeded, context.Canceled, fmt.Errorf("query: %w", context.DeadlineExceeded)} {
		attTest(t, "T7 the context's error becomes a TimeoutError: "+err.Error(), func(t *testing.T) {
			task, _ := attOne(t, late(0, err), penstock.WithAttemptTimeout(time.Second))
			timeout := attAs[*penstock.TimeoutError](t, task.Err)
			if timeout.Err != err {
				t.Errorf("the handler's own error is %v", timeout.Err)
			}
		})
	}
}

// Three deadlines, three errors; only the first is ours.
func TestThreeDeadlines(t *testing.T) {
	attTest(t, "the attempt timeout is a TimeoutError", func(t *testing.T) {
		task, err := attOne(t, attHang, penstock.WithAttemptTimeout(time.Second))
		attAs[*penstock.TimeoutError](t, task.Err)
		attIs(t, task.Err, context.DeadlineExceeded)
		if err != nil || task.Outcome != penstock.Failed {
			t.Errorf("%v, %v", task, err)
		}
	})

	attTest(t, "the caller's deadline leaves the task unfinished and is the run's error", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		task, err := attOneCtx(ctx, t, attHang, penstock.WithAttemptTimeout(time.Minute), penstock.WithTaskTimeout(time.Minute), penstock.WithRetry(retry.Policy{Max: 3}))
		attAs[*penstock.UnfinishedError](t, task.Err)
		attIs(t, task.Err, context.DeadlineExceeded)
		attIs(t, err, context.DeadlineExceeded)
		if timeout, ok := errors.AsType[*penstock.TimeoutError](task.Err); ok || task.Outcome != penstock.Unfinished || task.Attempts != 1 {
			t.Errorf("%v, %v", task, timeout)
		}
	})

	own := func(ctx context.Context, n int) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err := attHang(ctx, n)
		return 0, err
	}
	for name, opts := range map[string][]penstock.Option{
		"without timeouts":                   nil,
		"with timeouts that have not struck": {penstock.WithAttemptTimeout(time.Second), penstock.WithTaskTimeout(time.Minute)},
	} {
		attTest(t, "T3 the handler's own deadline is its own error, as it is, "+name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			task, err := attOneCtx(ctx, t, own, opts...)
			if err != nil || task.Err != context.DeadlineExceeded || task.Outcome != penstock.Failed {
				t.Errorf("%v, %v", task, err)
			}
		})
	}
}

func TestTaskTimeout(t *testing.T) {
	// In each of these an attempt fails with errAttOne before the timeout strikes, at the second minute.
	failFirst := func(then attHandler) attHandler {
		return func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				return 0, errAttOne
			}
			return then(ctx, n)
		}
	}
	const limit = 2 * time.Minute
	quick := penstock.WithRetry(retry.Policy{Max: 1})
	for _, c := range []struct {
		where, during string
		handler       attHandler
		opts          []penstock.Option
		attempts      int
		last          error
		text          string
	}{
		{
			"in the handler", "handler", failFirst(attHang), []penstock.Option{quick}, 2, context.DeadlineExceeded,
			"penstock: task 0: task timed out after 2m0s (last error: context deadline exceeded)",
		},
		{
			"in the backoff", "backoff", failFirst(attHang), []penstock.Option{penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Hour)})}, 1, errAttOne,
			"penstock: task 0: task timed out after 2m0s while waiting to retry (last error: one)",
		},
		{
			"in the limiter, before a retry", "limiter", failFirst(attHang), []penstock.Option{quick, penstock.WithLimiter(attEvery(time.Hour))}, 1, errAttOne,
			"penstock: task 0: task timed out after 2m0s while waiting for the limiter (last error: one)",
		},
		{
			"in the limiter, before the first attempt", "limiter", attHang, []penstock.Option{penstock.WithLimiter(attNever)}, 0, nil,
			"penstock: task 0: task timed out after 2m0s while waiting for the limiter",
		},
	} {
		attTest(t, "it strikes "+c.where, func(t *testing.T) {
			clock := attClock()
			task, err := attOne(t, c.handler, append(c.opts, penstock.WithTaskTimeout(limit))...)
			if err != nil || task.Outcome != penstock.Failed || task.Attempts != c.attempts || clock() != limit {
				t.Errorf("%v, %v after %v", task, err, clock())
			}
			timeout := attAs[*penstock.TimeoutError](t, task.Err)
			attExpect(t, "error", *timeout, penstock.TimeoutError{Task: "0", Scope: "task", Limit: limit, During: c.during, Err: c.last}, attCmpErrors)
			attExpect(t, "text", timeout.Error(), c.text)
			attIs(t, task.Err, context.DeadlineExceeded)
			if c.last != nil {
				attIs(t, task.Err, c.last)
			}
		})
	}

	attTest(t, "once it has struck in the handler nothing of a retry happens", func(t *testing.T) {
		no := func(what string) { t.Errorf("%s was called", what) }
		budget, _ := retry.NewBudget(0.001, 3)
		p := retry.Policy{
			Max: 3, Budget: budget, If: func(error) bool { no("If"); return true },
			Backoff: func(int, error) time.Duration { no("Backoff"); return 0 },
		}
		hooks := penstock.Hooks{RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) { no("RetryScheduled") }}
		task, _ := attOne(t, attHang, penstock.WithTaskTimeout(limit), penstock.WithRetry(p), penstock.WithHooks(hooks))
		attExpect(t, "during", attAs[*penstock.TimeoutError](t, task.Err).During, "handler")
		attExpect(t, "budget", budget.Balance(), 3)
	})

	attTest(t, "T7 what the handler returns after it counts: a value, or another error", func(t *testing.T) {
		for _, want := range []error{nil, errAttTwo} {
			task, _ := attOne(t, func(ctx context.Context, _ int) (int, error) {
				<-ctx.Done()
				return 7, want
			}, penstock.WithTaskTimeout(limit))
			if task.Err != want {
				t.Errorf("got %v", task.Err)
			}
		}
	})

	attTest(t, "it does not run while the task waits for a worker or for its reader", func(t *testing.T) {
		tasks, err := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			return n, attSleep(ctx, 50*time.Second)
		}, penstock.WithTaskTimeout(time.Minute)).ProcessAll(t.Context(), make([]int, 10))
		if err != nil {
			t.Error(err)
		}
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"succeeded": 10})
	})

	attTest(t, "the shorter of two timeouts strikes, and says which it was", func(t *testing.T) {
		for _, c := range []struct {
			attempt, task time.Duration
			scope         string
		}{{time.Second, time.Minute, "attempt"}, {time.Minute, time.Second, "task"}} {
			task, _ := attOne(t, attHang, penstock.WithAttemptTimeout(c.attempt), penstock.WithTaskTimeout(c.task))
			timeout := attAs[*penstock.TimeoutError](t, task.Err)
			if timeout.Scope != c.scope || timeout.Limit != time.Second {
				t.Errorf("got %v", timeout)
			}
		}
	})

	attTest(t, "attempts with timeouts of their own share it", func(t *testing.T) {
		clock := attClock()
		task, _ := attOne(t, attHang, penstock.WithAttemptTimeout(time.Second), penstock.WithTaskTimeout(2500*time.Millisecond), penstock.WithRetry(retry.Policy{Max: 9}))
		if clock() != 2500*time.Millisecond || task.Attempts != 3 {
			t.Errorf("%v after %v", task, clock())
		}
		attExpect(t, "scope", attAs[*penstock.TimeoutError](t, task.Err).Scope, "task")
	})

	attTest(t, "During is one of three words also when the task had not come to any of them", func(t *testing.T) {
		task, _ := attOne(t, attDouble, penstock.WithTaskTimeout(time.Second), penstock.WithLimiter(&attLimiter{}),
			penstock.WithKey(func(int) string { time.Sleep(time.Minute); return "" }))
		switch during := attAs[*penstock.TimeoutError](t, task.Err).During; during {
		case "handler", "limiter", "backoff":
		default:
			t.Errorf("During is %q", during)
		}
	})
}

// attNever grants nothing.
var attNever = ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
	<-ctx.Done()
	return ctx.Err()
})

func TestTimeoutError(t *testing.T) {
	task, timeout := "7", time.Second
	var err error = &penstock.TimeoutError{Task: task, Scope: "attempt", Limit: timeout, During: "handler", Err: errAttOne}
	t.Run("text", func(t *testing.T) {
		attExpect(t, "text", err.Error(), "penstock: task 7: attempt timed out after 1s (last error: one)")
	})
	t.Run("U10 is a deadline and the last error to errors.Is, not a cancellation", func(t *testing.T) {
		attIs(t, err, context.DeadlineExceeded, errAttOne)
		if errors.Is(err, context.Canceled) {
			t.Error("is context.Canceled")
		}
	})
	t.Run("is a timeout to package net", func(t *testing.T) {
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Error("is not")
		}
		if _, ok := err.(net.Error); ok {
			t.Error("is a net.Error, which it need not be")
		}
	})
}

func TestCancellation(t *testing.T) {
	attTest(t, "a handler that returns a value has succeeded", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		task, err := attOneCtx(ctx, t, func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 7, nil })
		if task.Outcome != penstock.Succeeded || task.Result != 7 {
			t.Errorf("got %v", task)
		}
		if err != nil { // everything was done
			t.Error(err)
		}
	})

	attTest(t, "a handler that returns an error is unfinished: context, cause and its own error can be seen", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { time.Sleep(time.Second); cancel(errAttTwo) }()
		task, err := attOneCtx(ctx, t, func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 7, errAttOne }, penstock.WithRetry(retry.Policy{Max: 3}))
		if task.Outcome != penstock.Unfinished || task.Attempts != 1 || task.Result != 0 {
			t.Errorf("got %v", task)
		}
		attIs(t, task.Err, context.Canceled, errAttTwo, errAttOne)
		attIs(t, err, context.Canceled, errAttTwo)
		attExpect(t, "text", task.Err.Error(), "penstock: unfinished: two (last error: one)")
		unfinished := attAs[*penstock.UnfinishedError](t, task.Err)
		attExpect(t, "error", *unfinished, penstock.UnfinishedError{During: "handler", Context: context.Canceled, Cause: errAttTwo, Err: errAttOne}, attCmpErrors)
	})

	attTest(t, "the handler sees the cause", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAttTwo)
		defer cancel()
		attOneCtx(ctx, t, func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			attIs(t, context.Cause(ctx), errAttTwo)
			return 0, ctx.Err()
		}, penstock.WithAttemptTimeout(time.Minute))
	})

	attTest(t, "it strikes in the limiter and in the queue", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tasks, err := attNew(t, 1, attDouble, penstock.WithLimiter(attNever)).ProcessAll(ctx, []int{0, 1})
		attIs(t, err, context.DeadlineExceeded)
		for i, during := range []string{"limiter", "queue"} {
			unfinished := attAs[*penstock.UnfinishedError](t, tasks[i].Err)
			attExpect(t, "during", unfinished.During, during)
		}
		attExpect(t, "text", tasks[0].Err.Error(), "penstock: unfinished, waiting for the limiter: context deadline exceeded")
		attExpect(t, "text", tasks[1].Err.Error(), "penstock: not started: context deadline exceeded")
	})

	attTest(t, "K2 context.Canceled from a handler that nobody cancelled is an ordinary failure", func(t *testing.T) {
		calls := 0
		task, err := attOne(t, attFails(9, context.Canceled, &calls), penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithAttemptTimeout(time.Second))
		if err != nil || task.Err != context.Canceled || task.Outcome != penstock.Failed || calls != 2 {
			t.Errorf("%v, %v", task, err)
		}
	})

	attTest(t, "K6 N11 what was cut off is counted as unfinished and as nothing else", func(t *testing.T) {
		e := attNew(t, 2, attHang, penstock.WithRetry(retry.Policy{Max: 1}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e.ProcessAll(ctx, make([]int, 5))
		attExpect(t, "counters", e.Counters(), penstock.Counters{Unfinished: 5})
	})

	for _, batch := range []int{1, 8} {
		attTest(t, fmt.Sprintf("WithBatch(%d): in the middle of a batch nothing more is started, and everything comes out once", batch), func(t *testing.T) {
			const items = 32
			calls := 0
			run := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
				if calls++; calls == 3 {
					return attHang(ctx, n)
				}
				return n, nil
			}, penstock.WithBatch(batch), penstock.WithInputCapacity(items), penstock.WithResultCapacity(items)).Start(t.Context())
			for n := range items {
				run.Submit(t.Context(), n)
			}
			synctest.Wait()
			attExpect(t, "calls before the stop", calls, 3)
			run.Stop(t.Context())
			attExpect(t, "calls", calls, 3)
			seen := make([]int, items)
			tasks := run.Drain()
			for _, task := range tasks {
				seen[task.Data]++
			}
			for n, times := range seen {
				if times != 1 {
					t.Errorf("item %d came %d times", n, times)
				}
			}
			attExpect(t, "outcomes", attCount(tasks), map[string]int{"succeeded": 2, "unfinished": items - 2})
			attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 2, Unfinished: items - 2})
		})
	}
}

func TestBatch(t *testing.T) {
	// instants submits items that each take a second and returns when each result was there.
	instants := func(t *testing.T, workers, items int) []time.Duration {
		clock := attClock()
		run := attNew(t, workers, func(ctx context.Context, n int) (int, error) { return n, attSleep(ctx, time.Second) },
			penstock.WithBatch(4), penstock.WithInputCapacity(items)).Start(t.Context())
		for n := range items {
			run.Submit(t.Context(), n)
		}
		run.CloseInput()
		var at []time.Duration
		for range run.Results() {
			at = append(at, clock())
		}
		return at
	}
	const s = time.Second
	attTest(t, "the results of a batch come together, and no item waits for a batch to fill", func(t *testing.T) {
		// The worker is hired with the first item, finds four more, and then what is left.
		attExpect(t, "instants", instants(t, 1, 7), []time.Duration{1 * s, 5 * s, 5 * s, 5 * s, 5 * s, 7 * s, 7 * s})
	})
	attTest(t, "a worker takes no more than its share", func(t *testing.T) {
		// Of the four left after the first two, one worker takes half, the other half of the rest, and then the last.
		attExpect(t, "instants", instants(t, 2, 6), []time.Duration{1 * s, 1 * s, 2 * s, 3 * s, 3 * s, 3 * s})
	})
	attTest(t, "a timeout is each item's own", func(t *testing.T) {
		tasks, _ := attNew(t, 1, attMisbehave, penstock.WithBatch(8), penstock.WithTaskTimeout(time.Second)).
			ProcessAll(t.Context(), []int{attHangs, 1, attHangs, 2})
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"succeeded": 2, "failed": 2})
	})
}
