package penstock_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// attDiary is a set of hooks that writes down what it is told.
type attDiary struct {
	mu    sync.Mutex
	lines []string
}

func (d *attDiary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *attDiary) hooks() penstock.Hooks {
	return penstock.Hooks{
		AttemptStarted: func(_ context.Context, a penstock.Attempt) {
			d.write("started %s #%d by %d, %v", a.ID(), a.Number, a.Worker, a.Elapsed)
		},
		AttemptEnded: func(_ context.Context, a penstock.Attempt, err error) {
			d.write("ended %s #%d by %d, %v: %v", a.ID(), a.Number, a.Worker, a.Elapsed, err)
		},
		RetryScheduled: func(_ context.Context, a penstock.Attempt, err error, delay time.Duration) {
			d.write("retry of %s #%d in %v: %v", a.ID(), a.Number, delay, err)
		},
		TaskDone: func(_ context.Context, i penstock.TaskInfo) {
			d.write("done %s: %v after %d: %v", i.ID(), i.Outcome, i.Attempts, i.Err)
		},
		RunEnded: func(_ context.Context, c penstock.Counters, err error) { d.write("run ended: %d, %v", c.Ended(), err) },
	}
}

func TestHooks(t *testing.T) {
	attTest(t, "tell the whole story of a task, in order", func(t *testing.T) {
		var d attDiary
		run := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			time.Sleep(time.Second)
			if penstock.AttemptNumber(ctx) == 1 {
				return 0, retry.After(errAttOne, time.Minute)
			}
			return n, nil
		}, penstock.WithHooks(d.hooks()), penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Hour)})).Start(t.Context())
		run.Submit(t.Context(), 1, penstock.WithID("x"))
		run.Finish(t.Context())
		attExpect(t, "story", d.lines, []string{
			"started x #1 by 0, 0s",
			"ended x #1 by 0, 1s: one",
			"retry of x #1 in 1h1m0s: one",
			"started x #2 by 0, 0s",
			"ended x #2 by 0, 1s: <nil>",
			"done x: succeeded after 2: <nil>",
			"run ended: 1, <nil>",
		})
	})

	attTest(t, "tell what an attempt came to: a timeout, a panic, Goexit", func(t *testing.T) {
		var d attDiary
		attNew(t, 1, attMisbehave, penstock.WithHooks(d.hooks()), penstock.WithAttemptTimeout(time.Second)).
			ProcessAll(t.Context(), []int{attHangs, attPanics, attGoexits})
		attExpect(t, "story", d.lines, []string{
			"started 0 #1 by 0, 0s",
			"ended 0 #1 by 0, 1s: penstock: task 0: attempt timed out after 1s (last error: context deadline exceeded)",
			"done 0: failed after 1: penstock: task 0: attempt timed out after 1s (last error: context deadline exceeded)",
			"started 1 #1 by 0, 0s",
			"ended 1 #1 by 0, 0s: penstock: panic: one",
			"done 1: failed after 1: penstock: panic: one",
			"started 2 #1 by 0, 0s",
			"ended 2 #1 by 0, 0s: penstock: runtime.Goexit was called",
			"done 2: failed after 1: penstock: runtime.Goexit was called",
			"run ended: 3, <nil>",
		})
	})

	attTest(t, "TaskDone comes for tasks that were never started, too, and before RunEnded", func(t *testing.T) {
		var d attDiary
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		attNew(t, 1, attDouble, penstock.WithHooks(d.hooks()), penstock.WithLimiter(attNever)).ProcessAll(ctx, attUpTo(2))
		if len(d.lines) != 3 {
			t.Fatalf("got %q", d.lines)
		}
		for i, line := range d.lines[:2] { // in either order
			if !strings.HasPrefix(line, "done ") || !strings.Contains(line, ": unfinished after 0: ") {
				t.Errorf("line %d is %s", i, line)
			}
		}
		attExpect(t, "last", d.lines[2], "run ended: 2, context deadline exceeded")
	})

	attTest(t, "TaskDone comes before the result is handed out, RunEnded before Done", func(t *testing.T) {
		done, ended := false, false
		run := attNew(t, 1, attDouble, penstock.WithHooks(penstock.Hooks{
			TaskDone: func(context.Context, penstock.TaskInfo) { time.Sleep(time.Second); done = true },
			RunEnded: func(context.Context, penstock.Counters, error) { time.Sleep(time.Second); ended = true },
		})).Start(t.Context())
		if _, err := run.Do(t.Context(), 1); err != nil || !done {
			t.Error("Do had its reply before TaskDone was through")
		}
		done = false
		run.Submit(t.Context(), 1)
		if _, err := run.Next(t.Context()); err != nil || !done {
			t.Error("Next had a result before TaskDone was through")
		}
		run.CloseInput()
		<-run.Done()
		if !ended {
			t.Error("Done was closed before RunEnded was through")
		}
	})

	attTest(t, "AttemptStarted comes after the limiter's grant, once per attempt", func(t *testing.T) {
		clock := attClock()
		var at []time.Duration
		e := attNew(t, 1, attDouble, penstock.WithLimiter(attEvery(time.Second)), penstock.WithHooks(penstock.Hooks{
			AttemptStarted: func(context.Context, penstock.Attempt) { at = append(at, clock()) },
		}))
		e.ProcessAll(t.Context(), attUpTo(3))
		attExpect(t, "instants", at, []time.Duration{0, time.Second, 2 * time.Second})
	})

	attTest(t, "RetryScheduled knows how long the attempt took, also when it is the only hook", func(t *testing.T) {
		var took time.Duration
		attOne(t, func(ctx context.Context, n int) (int, error) {
			time.Sleep(time.Second)
			return 0, errAttOne
		}, penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithHooks(penstock.Hooks{
			RetryScheduled: func(_ context.Context, a penstock.Attempt, _ error, _ time.Duration) { took = a.Elapsed },
		}))
		attExpect(t, "elapsed", took, time.Second)
	})

	attTest(t, "the attempt's hooks get the handler's context", func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "v")
		look := func(ctx context.Context, number int) {
			t.Helper()
			if ctx.Value(key{}) != "v" || penstock.AttemptNumber(ctx) != number {
				t.Errorf("value %v, attempt %d", ctx.Value(key{}), penstock.AttemptNumber(ctx))
			}
		}
		calls := 0
		attOneCtx(ctx, t, attFails(1, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithHooks(penstock.Hooks{
			AttemptStarted: func(ctx context.Context, a penstock.Attempt) { look(ctx, a.Number) },
			AttemptEnded:   func(ctx context.Context, a penstock.Attempt, _ error) { look(ctx, a.Number) },
		}))
	})

	attTest(t, "TaskInfo is the task's", func(t *testing.T) {
		var info penstock.TaskInfo
		task, _ := attOne(t, attMisbehave, penstock.WithHooks(penstock.Hooks{TaskDone: func(_ context.Context, i penstock.TaskInfo) { info = i }}))
		if info.Index != task.Index || info.Outcome != task.Outcome || info.Attempts != task.Attempts || info.Err != task.Err {
			t.Errorf("got %+v for %v", info, task)
		}
	})

	attTest(t, "several sets are all called, in the order they were given", func(t *testing.T) {
		var order []string
		set := func(name string) penstock.Option {
			return penstock.WithHooks(penstock.Hooks{TaskDone: func(context.Context, penstock.TaskInfo) { order = append(order, name) }})
		}
		attOne(t, attDouble, set("a"), penstock.WithHooks(penstock.Hooks{}), set("b"))
		attExpect(t, "order", order, []string{"a", "b"})
	})

	attTest(t, "RunEnded comes once, also for a run without items, with the run's error", func(t *testing.T) {
		var d attDiary
		e := attNew(t, 1, attDouble, penstock.WithHooks(penstock.Hooks{RunEnded: d.hooks().RunEnded}), penstock.WithLimiter(attBrokenAt(0, 1, errAttTwo)))
		e.ProcessAll(t.Context(), nil)
		run := e.Start(t.Context())
		run.Stop(t.Context())
		run.Stop(t.Context())
		e.ProcessAll(t.Context(), attUpTo(2))
		attExpect(t, "story", d.lines, []string{"run ended: 0, <nil>", "run ended: 0, <nil>", "run ended: 2, penstock: the limiter failed for task 0: two"})
	})

	attTest(t, "Do's tasks and shed ones are told of like any other", func(t *testing.T) {
		var d attDiary
		l := &attLimiter{within: func(_ context.Context, r ratelimiter.Request, _ time.Duration) error {
			if r.Index == 1 {
				return &ratelimiter.ExcessError{Limit: "l", RetryAfter: time.Second}
			}
			return nil
		}}
		run := attNew(t, 1, attDouble, penstock.WithHooks(penstock.Hooks{TaskDone: d.hooks().TaskDone}), penstock.WithLimiter(l), penstock.WithShed(0)).Start(t.Context())
		run.Do(t.Context(), 1)
		run.Do(t.Context(), 2)
		run.Finish(t.Context())
		if len(d.lines) != 2 || d.lines[0] != "done 0: succeeded after 1: <nil>" || !strings.HasPrefix(d.lines[1], "done 1: shed after 0: rate_limit: l for ") {
			t.Errorf("got %q", d.lines)
		}
	})
}

func TestHookThatPanics(t *testing.T) {
	everyHook := func(d *attDiary) penstock.Hooks {
		boom := func(name string) { d.write("%s", name); panic(name) }
		return penstock.Hooks{
			AttemptStarted: func(context.Context, penstock.Attempt) { boom("AttemptStarted") },
			AttemptEnded:   func(context.Context, penstock.Attempt, error) { boom("AttemptEnded") },
			RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) { boom("RetryScheduled") },
			TaskDone:       func(context.Context, penstock.TaskInfo) { boom("TaskDone") },
			RunEnded:       func(context.Context, penstock.Counters, error) { boom("RunEnded") },
		}
	}
	names := []string{"AttemptStarted", "AttemptEnded", "RetryScheduled", "AttemptStarted", "AttemptEnded", "TaskDone", "RunEnded"}

	attTest(t, "is logged as an error and otherwise ignored, and later sets are still called", func(t *testing.T) {
		var log attLog
		var bad, good attDiary
		calls := 0
		task, err := attOne(t, attFails(1, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 1}), log.option(),
			penstock.WithHooks(everyHook(&bad)), penstock.WithHooks(good.hooks()))
		if err != nil || task.Outcome != penstock.Succeeded || task.Attempts != 2 {
			t.Errorf("%v, %v", task, err)
		}
		attExpect(t, "called", bad.lines, names)
		attExpect(t, "calls of the other set", len(good.lines), len(names))
		var logged []string
		for _, line := range log.at(slog.LevelError) {
			logged = append(logged, line.attrs["hook"].String())
			err, _ := line.attrs["error"].Any().(error)
			attExpect(t, "value", attAs[*penstock.PanicError](t, err).Value.(string), line.attrs["hook"].String())
		}
		attExpect(t, "logged", logged, names)
	})

	attTest(t, "for the tasks that were never started, too", func(t *testing.T) {
		var log attLog
		var bad attDiary
		run := attNew(t, 1, attHang, log.option(), penstock.WithHooks(everyHook(&bad)), penstock.WithInputCapacity(3)).Start(t.Context())
		for n := range 3 {
			run.Submit(t.Context(), n)
		}
		synctest.Wait()
		run.Stop(t.Context())
		attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 3})
		attExpect(t, "results", len(run.Drain()), 3)
		attExpect(t, "errors logged", len(log.at(slog.LevelError)), 2+3+1)
	})

	t.Run("is logged by slog.Default when there is no logger", func(t *testing.T) {
		var buf bytes.Buffer
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&buf, nil)))
		var bad attDiary
		attOne(t, attDouble, penstock.WithHooks(penstock.Hooks{RunEnded: everyHook(&bad).RunEnded}))
		if text := buf.String(); !strings.Contains(text, "hook=RunEnded") || !strings.Contains(text, "level=ERROR") {
			t.Errorf("logged: %s", text)
		}
	})
}

func TestHookThatCallsGoexit(t *testing.T) {
	quit := map[string]penstock.Hooks{
		"AttemptStarted": {AttemptStarted: func(context.Context, penstock.Attempt) { runtime.Goexit() }},
		"AttemptEnded":   {AttemptEnded: func(context.Context, penstock.Attempt, error) { runtime.Goexit() }},
		"TaskDone":       {TaskDone: func(context.Context, penstock.TaskInfo) { runtime.Goexit() }},
	}
	for name, hooks := range quit {
		attTest(t, "in "+name+": what other sets count still adds up", func(t *testing.T) {
			started, ended, done, observed := 0, 0, 0, 0
			limiter := penstock.WithLimiter(&attLimiter{observe: func(ratelimiter.Request, error) { observed++ }})
			count := penstock.Hooks{
				AttemptStarted: func(context.Context, penstock.Attempt) { started++ },
				AttemptEnded:   func(context.Context, penstock.Attempt, error) { ended++ },
				TaskDone:       func(context.Context, penstock.TaskInfo) { done++ },
			}
			for _, opts := range [][]penstock.Option{
				{penstock.WithHooks(hooks), penstock.WithHooks(count)},
				{penstock.WithHooks(count), penstock.WithHooks(hooks)},
			} {
				started, ended, done, observed = 0, 0, 0, 0
				attOne(t, attDouble, append(opts, attSilent, limiter, penstock.WithAttemptTimeout(time.Second))...)
				if started != ended || observed != 1 || done != 1 {
					t.Errorf("%d attempts started, %d ended, the limiter was told of %d; the task was done %d times", started, ended, observed, done)
				}
			}
		})
	}
}
