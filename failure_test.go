package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// attEvensFail fails for even items, with an error that names the item.
func attEvensFail(_ context.Context, n int) (int, error) {
	if n%2 == 0 {
		return 0, fmt.Errorf("item %d: %w", n, errAttOne)
	}
	return n, nil
}

func attUpTo(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

func TestFailureLimit(t *testing.T) {
	attTest(t, "F1 it is inclusive, counts failed tasks, and names the one that reached it", func(t *testing.T) {
		tasks, err := attNew(t, 1, attEvensFail, penstock.WithFailureLimit(2)).ProcessAll(t.Context(), attUpTo(5))
		limit := attAs[*penstock.TooManyFailuresError](t, err)
		attExpect(t, "error", *limit, penstock.TooManyFailuresError{Limit: 2, Task: "2", Err: tasks[2].Err}, attCmpErrors)
		attExpect(t, "text", err.Error(), "penstock: failure limit of 2 reached with task 2: item 2: one")
		attIs(t, err, errAttOne)
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"failed": 2, "succeeded": 1, "unfinished": 2})
		attIs(t, tasks[3].Err, err, context.Canceled)
	})

	for _, extra := range []int{0, 1} {
		attTest(t, fmt.Sprintf("F2 one failure fewer and the run completes, with %d retries", extra), func(t *testing.T) {
			p := penstock.WithRetry(retry.Policy{Max: extra})
			_, err := attNew(t, 2, attEvensFail, p, penstock.WithFailureLimit(3)).ProcessAll(t.Context(), []int{0, 1, 2, 3, 5})
			if err != nil {
				t.Error(err)
			}
		})
	}

	attTest(t, "F4 attempts that are retried do not count", func(t *testing.T) {
		calls := 0
		e := attNew(t, 1, attFails(1000, errAttOne, &calls), penstock.WithRetry(retry.Policy{Max: 3}), penstock.WithFailureLimit(2))
		_, err := e.ProcessAll(t.Context(), attUpTo(5))
		attAs[*penstock.TooManyFailuresError](t, err)
		attExpect(t, "calls", calls, 8)
		attExpect(t, "counters", e.Counters(), penstock.Counters{Failed: 2, Unfinished: 3, Retries: 6})
	})

	for _, batch := range []int{1, 8} {
		attTest(t, fmt.Sprintf("F3 F7 with a full result queue and no reader its task is still published, before the end, batch %d", batch), func(t *testing.T) {
			allThere := make(chan struct{}) // so that batches are as large as they can be
			run := attNew(t, 1, func(_ context.Context, n int) (int, error) {
				if n == 0 {
					<-allThere
					return 0, nil
				}
				return 0, errAttOne
			}, penstock.WithFailureLimit(2), penstock.WithResultCapacity(1), penstock.WithInputCapacity(5), penstock.WithBatch(batch)).Start(t.Context())
			for n := range 5 {
				run.Submit(t.Context(), n)
			}
			close(allThere)
			synctest.Wait()
			if batch == 1 {
				// Results 0 and 1: one in the queue, one in the worker's hand, which therefore has not begun item 2.
				attExpect(t, "counters", run.Counters(), penstock.Counters{Pending: 3, Succeeded: 1, Failed: 1})
				run.Next(t.Context())
			}
			<-run.Done()
			attAs[*penstock.TooManyFailuresError](t, run.Err())
			var outcomes []string
			for task, err := range run.Results() {
				if err != nil {
					outcomes = append(outcomes, "the run's error")
					continue
				}
				outcomes = append(outcomes, fmt.Sprint(task.Data, " ", task.Outcome))
			}
			want := []string{"0 succeeded", "1 failed", "2 failed", "3 unfinished", "4 unfinished", "the run's error"}
			if batch == 1 {
				want = want[1:]
			}
			attExpect(t, "results", outcomes, want)
		})
	}

	attTest(t, "F3 its task is out when the handlers of others are told", func(t *testing.T) {
		var run *penstock.Run[int, int]
		run = attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return 0, errAttOne
			}
			<-ctx.Done()
			published := run.Drain()
			if len(published) != 1 || published[0].Data != 0 {
				t.Errorf("published so far: %v", published)
			}
			return n, nil
		}, penstock.WithFailureLimit(1)).Start(t.Context())
		run.Submit(t.Context(), 1)
		synctest.Wait()
		run.Submit(t.Context(), 0)
		<-run.Done()
	})

	attTest(t, "F5 other handlers are cancelled, waited for, and unfinished unless they return a value", func(t *testing.T) {
		clock := attClock()
		e := attNew(t, 3, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				time.Sleep(time.Second)
				return 0, errAttOne
			}
			<-ctx.Done()
			attAs[*penstock.TooManyFailuresError](t, context.Cause(ctx))
			time.Sleep(time.Minute)
			if n == 1 {
				return 7, nil
			}
			return 0, ctx.Err()
		}, penstock.WithFailureLimit(1))
		tasks, err := e.ProcessAll(t.Context(), attUpTo(3))
		attExpect(t, "instant", clock(), time.Second+time.Minute)
		attExpect(t, "outcomes", []penstock.Outcome{tasks[0].Outcome, tasks[1].Outcome, tasks[2].Outcome},
			[]penstock.Outcome{penstock.Failed, penstock.Succeeded, penstock.Unfinished})
		attIs(t, tasks[2].Err, err, errAttOne, context.Canceled)
	})

	attTest(t, "F6 tasks that fail at the same time may take it over the limit, and there is one error", func(t *testing.T) {
		together := make(chan struct{})
		e := attNew(t, 8, func(context.Context, int) (int, error) {
			<-together
			return 0, errAttOne
		}, penstock.WithFailureLimit(3))
		go func() { synctest.Wait(); close(together) }()
		tasks, err := e.ProcessAll(t.Context(), attUpTo(20))
		limit := attAs[*penstock.TooManyFailuresError](t, err)
		attExpect(t, "limit", limit.Limit, 3)
		n := attCount(tasks)
		if n["failed"] < 3 || n["failed"]+n["unfinished"] != 20 {
			t.Errorf("outcomes: %v", n)
		}
	})

	attTest(t, "F8 each run counts for itself", func(t *testing.T) {
		e := attNew(t, 1, attEvensFail, penstock.WithFailureLimit(2))
		for range 3 {
			if _, err := e.ProcessAll(t.Context(), []int{0, 1}); err != nil {
				t.Error(err)
			}
		}
	})

	for _, input := range []int{1, penstock.Unlimited} {
		for _, batch := range []int{1, 32} {
			attTest(t, fmt.Sprintf("F9 the helpers raise it after what was published, input capacity %d, batch %d", input, batch), func(t *testing.T) {
				e := attNew(t, 2, attEvensFail, penstock.WithFailureLimit(3), penstock.WithInputCapacity(input), penstock.WithBatch(batch))
				endless := penstock.FromSeq(func(yield func(int) bool) {
					for n := 0; yield(n); n++ {
					}
				})
				failed, ended := 0, false
				for task, err := range e.IterResults(t.Context(), endless) {
					if ended {
						t.Error("something came after the error")
					}
					if err != nil {
						attAs[*penstock.TooManyFailuresError](t, err)
						ended = true
					} else if task.Outcome == penstock.Failed {
						failed++
					}
				}
				if failed < 3 || !ended {
					t.Errorf("%d failed tasks were yielded, the error was: %v", failed, ended)
				}
				tasks, err := e.ProcessSource(t.Context(), endless)
				attAs[*penstock.TooManyFailuresError](t, err)
				if n := attCount(tasks); n["failed"] < 3 {
					t.Errorf("outcomes: %v", n)
				}
			})
		}
	}

	attTest(t, "F10 a submitter that waits for room is released with it", func(t *testing.T) {
		run := attNew(t, 1, func(context.Context, int) (int, error) {
			time.Sleep(time.Second)
			return 0, errAttOne
		}, penstock.WithFailureLimit(1)).Start(t.Context())
		var err error
		accepted := 0
		for ; err == nil; accepted++ {
			_, err = run.Submit(t.Context(), accepted)
		}
		attAs[*penstock.TooManyFailuresError](t, err)
		<-run.Done()
		attExpect(t, "counters", run.Counters(), penstock.Counters{Failed: 1, Unfinished: accepted - 2})
	})

	attTest(t, "F11 K7 everyone is told the same, every time", func(t *testing.T) {
		run := attNew(t, 1, attEvensFail, penstock.WithFailureLimit(1)).Start(t.Context())
		run.Submit(t.Context(), 0)
		<-run.Done()
		err := run.Err()
		attAs[*penstock.TooManyFailuresError](t, err)
		for range 2 {
			_, submit := run.Submit(t.Context(), 1)
			_, do := run.Do(t.Context(), 1)
			for who, got := range map[string]error{"Submit": submit, "Do": do, "Finish": run.Finish(t.Context()), "Stop": run.Stop(t.Context())} {
				if got != err {
					t.Errorf("%s: %v", who, got)
				}
			}
		}
		run.Next(t.Context())
		if _, got := run.Next(t.Context()); got != err {
			t.Errorf("Next: %v", got)
		}
	})

	attTest(t, "shed and unfinished tasks do not count", func(t *testing.T) {
		run := attNew(t, 1, attHang, penstock.WithFailureLimit(1)).Start(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		run.Do(ctx, 1)
		synctest.Wait()
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 1})
	})

	attTest(t, "timeouts, panics and refused costs count", func(t *testing.T) {
		l := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
			if r.Index == 0 {
				return &ratelimiter.CostError{}
			}
			return nil
		})
		_, err := attNew(t, 1, attMisbehave, penstock.WithFailureLimit(4), penstock.WithLimiter(l), penstock.WithTaskTimeout(time.Second)).
			ProcessAll(t.Context(), []int{0, attPanics, attGoexits, attHangs, 4})
		limit := attAs[*penstock.TooManyFailuresError](t, err)
		attExpect(t, "task", limit.Task, "3")
	})
}

func TestStartTimeout(t *testing.T) {
	const limit = 50 * time.Millisecond
	attTest(t, "ST1 no input in time ends the run, and everyone is told", func(t *testing.T) {
		clock := attClock()
		run := attNew(t, 1, attDouble, penstock.WithStartTimeout(limit)).Start(t.Context())
		_, next := run.Next(t.Context())
		attExpect(t, "instant", clock(), limit)
		attExpect(t, "text", next.Error(), "penstock: no input came within the start timeout: waited 50ms")
		_, submit := run.Submit(t.Context(), 1)
		for who, err := range map[string]error{"Next": next, "Submit": submit, "Finish": run.Finish(t.Context()), "Stop": run.Stop(t.Context()), "Err": run.Err()} {
			if !errors.Is(err, penstock.ErrStartTimeout) {
				t.Errorf("%s: %v", who, err)
			}
		}
	})
	attTest(t, "ST2 it is for the first item only", func(t *testing.T) {
		run := attNew(t, 1, attDouble, penstock.WithStartTimeout(limit)).Start(t.Context())
		time.Sleep(limit - 1)
		run.Submit(t.Context(), 1)
		run.Next(t.Context())
		time.Sleep(time.Hour)
		if _, err := run.Submit(t.Context(), 2); err != nil {
			t.Error(err)
		}
		run.Finish(t.Context())
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 2})
	})
	attTest(t, "ST2 an item that waits for its handler has come", func(t *testing.T) {
		task, err := attOne(t, attDouble, penstock.WithStartTimeout(limit), penstock.WithLimiter(ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
			return attSleep(ctx, time.Hour)
		})))
		if err != nil || task.Err != nil {
			t.Error(task, err)
		}
	})
	attTest(t, "ST6 closing the input in time ends the wait", func(t *testing.T) {
		run := attNew(t, 1, attDouble, penstock.WithStartTimeout(limit)).Start(t.Context())
		time.Sleep(limit - 1)
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if err := run.Err(); err != nil {
			t.Error(err)
		}
	})
	attTest(t, "ST7 a source that is slower ends the run, and is told to end itself", func(t *testing.T) {
		closed := false
		source := penstock.FromFunc(func(ctx context.Context, _ func(int) bool) error {
			<-ctx.Done()
			closed = true
			return ctx.Err()
		})
		_, err := attNew(t, 1, attDouble, penstock.WithStartTimeout(limit)).ProcessSource(t.Context(), source)
		attIs(t, err, penstock.ErrStartTimeout)
		if !closed {
			t.Error("the source was not waited for")
		}
		_, err = attNew(t, 1, attDouble, penstock.WithStartTimeout(limit)).ProcessSource(t.Context(), penstock.FromChan(make(chan int)))
		attIs(t, err, penstock.ErrStartTimeout)
	})
	attTest(t, "ST8 a slice has come at once, also an empty one", func(t *testing.T) {
		e := attNew(t, 1, func(ctx context.Context, n int) (int, error) { return n, attSleep(ctx, time.Hour) }, penstock.WithStartTimeout(limit))
		for _, items := range [][]int{{1}, {}} {
			if _, err := e.ProcessAll(t.Context(), items); err != nil {
				t.Error(err)
			}
			for _, err := range e.IterResults(t.Context(), penstock.FromSlice(items)) {
				if err != nil {
					t.Error(err)
				}
			}
		}
	})
	attTest(t, "ST9 without it an idle run waits for ever", func(t *testing.T) {
		run := attNew(t, 1, attDouble).Start(t.Context())
		time.Sleep(1000 * time.Hour)
		if _, err := run.Do(t.Context(), 1); err != nil {
			t.Error(err)
		}
		run.Finish(t.Context())
	})
}

// attBrokenAt is a limiter that breaks at one item's given attempt.
func attBrokenAt(index, attempt int, err error) ratelimiter.Func {
	return func(_ context.Context, r ratelimiter.Request) error {
		if r.Index == index && r.Attempt == attempt {
			return err
		}
		return nil
	}
}

func TestLimiterErrors(t *testing.T) {
	attTest(t, "K3 K9 a limiter's own error ends the run, with its very error inside", func(t *testing.T) {
		own := fmt.Errorf("connection lost: %w", errAttTwo)
		tasks, err := attNew(t, 1, attDouble, penstock.WithLimiter(attBrokenAt(2, 1, own)), penstock.WithRetry(retry.Policy{Max: 5})).
			ProcessAll(t.Context(), attUpTo(5))
		broken := attAs[*penstock.LimiterError](t, err)
		if broken.Task != "2" || broken.Err != own {
			t.Errorf("got %v", broken)
		}
		attExpect(t, "text", err.Error(), "penstock: the limiter failed for task 2: connection lost: two")
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"succeeded": 2, "unfinished": 3})
		for _, task := range tasks[2:] {
			attIs(t, task.Err, err, errAttTwo, context.Canceled)
		}
		attExpect(t, "attempts", tasks[2].Attempts, 0)
	})

	attTest(t, "K3 other handlers are cancelled and waited for", func(t *testing.T) {
		clock := attClock()
		l := ratelimiter.Func(func(ctx context.Context, r ratelimiter.Request) error {
			if r.Index == 1 {
				time.Sleep(time.Second)
				return errAttTwo
			}
			return nil
		})
		tasks, err := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return 0, ctx.Err()
		}, penstock.WithLimiter(l)).ProcessAll(t.Context(), attUpTo(2))
		attExpect(t, "instant", clock(), time.Second+time.Minute)
		attIs(t, err, errAttTwo)
		attExpect(t, "outcomes", attCount(tasks), map[string]int{"unfinished": 2})
	})

	attTest(t, "K3 what was published before comes first, and a run with full queues does not hang", func(t *testing.T) {
		e := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				return 0, errAttOne
			}
			return n, nil
		}, penstock.WithLimiter(attBrokenAt(7, 2, errAttTwo)), penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithInputCapacity(1), penstock.WithResultCapacity(1))
		var ended error
		n := map[string]int{}
		for task, err := range e.IterResults(t.Context(), penstock.FromSeq(slices.Values(attUpTo(100)))) {
			time.Sleep(time.Second)
			if ended != nil {
				t.Errorf("%v came after the error", task)
			}
			if ended = err; err == nil {
				n[task.Outcome.String()]++
				if task.Data == 7 { // the handler's own error is still there beside the limiter's
					attIs(t, task.Err, errAttOne, errAttTwo)
				}
			}
		}
		attAs[*penstock.LimiterError](t, ended)
		if n["failed"] != 0 || n["succeeded"] < 6 || n["unfinished"] == 0 {
			t.Errorf("outcomes: %v", n)
		}
	})

	attTest(t, "K4 several run-level failures at once are joined", func(t *testing.T) {
		together := make(chan struct{})
		failures := []error{errors.New("a"), errors.New("b"), errors.New("c")}
		var waiting atomic.Int32
		l := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
			// Once the run has ended, a limiter's error does not count any more. So these must be as close as can be.
			if waiting.Add(1) == 3 {
				close(together)
			}
			<-together
			return failures[r.Index]
		})
		_, err := attNew(t, 3, attDouble, penstock.WithLimiter(l)).ProcessAll(t.Context(), attUpTo(3))
		attAs[*penstock.LimiterError](t, err)
		found := 0
		for _, failure := range failures {
			if errors.Is(err, failure) {
				found++
			}
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			attExpect(t, "joined errors", len(joined.Unwrap()), found)
		} else {
			attExpect(t, "errors", found, 1)
		}
	})

	attTest(t, "K4 several failures that all count are all in the run's error", func(t *testing.T) {
		// A broken Observe counts also after the run has ended: the attempt was made.
		together := make(chan struct{})
		l := &attLimiter{observe: func(r ratelimiter.Request, _ error) { panic(fmt.Errorf("%d: %w", r.Index, errAttTwo)) }}
		run := attNew(t, 3, func(_ context.Context, n int) (int, error) { <-together; return n, nil }, penstock.WithLimiter(l)).Start(t.Context())
		for n := range 3 {
			run.Submit(t.Context(), n)
		}
		synctest.Wait()
		close(together)
		<-run.Done()
		joined, ok := run.Err().(interface{ Unwrap() []error })
		if !ok || len(joined.Unwrap()) != 3 {
			t.Fatalf("got %v", run.Err())
		}
		for _, err := range joined.Unwrap() {
			attAs[*penstock.LimiterError](t, err)
			attIs(t, err, errAttTwo)
		}
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 3})
	})

	attTest(t, "a limiter that fails because the run has ended is not to blame", func(t *testing.T) {
		l := ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
			<-ctx.Done()
			return errAttTwo // not even ctx's error
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		task, err := attOneCtx(ctx, t, attDouble, penstock.WithLimiter(l))
		attIs(t, err, context.DeadlineExceeded)
		attIs(t, task.Err, context.DeadlineExceeded)
		if broken, ok := errors.AsType[*penstock.LimiterError](err); ok {
			t.Error(broken)
		}
	})

	attTest(t, "a limiter that says cancelled while nothing is, is broken", func(t *testing.T) {
		for _, own := range []error{context.Canceled, context.DeadlineExceeded} {
			_, err := attOne(t, attDouble, penstock.WithLimiter(attBrokenAt(0, 1, own)))
			attAs[*penstock.LimiterError](t, err)
		}
	})

	attTest(t, "K8 a failed run spoils nothing for the next run of the engine", func(t *testing.T) {
		broken := true
		e := attNew(t, 1, attDouble, penstock.WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error {
			if broken {
				return errAttTwo
			}
			return nil
		})))
		if _, err := e.ProcessAll(t.Context(), attUpTo(2)); err == nil {
			t.Error("no error")
		}
		broken = false
		if _, err := e.ProcessAll(t.Context(), attUpTo(2)); err != nil {
			t.Error(err)
		}
		attExpect(t, "counters", e.Counters(), penstock.Counters{Succeeded: 2, Unfinished: 2})
	})
}

// Between the failure that reaches the limit and the end of the run there is a moment, here made long by a hook. Meanwhile
// each of the other workers may fail one more task, and no worker another one.
func TestFailureLimitIsNotOverrun(t *testing.T) {
	attTest(t, "4 workers, limit 3", func(t *testing.T) {
		const workers, limit = 4, 3
		fail := func(_ context.Context, n int) (int, error) {
			time.Sleep(time.Duration(n) * time.Millisecond)
			return 0, errAttOne
		}
		pause := func(_ context.Context, t penstock.TaskInfo) {
			if t.Index == limit-1 {
				time.Sleep(time.Second)
			}
		}
		e := attNew(t, workers, fail, penstock.WithFailureLimit(limit), penstock.WithHooks(penstock.Hooks{TaskDone: pause}))
		_, err := e.ProcessAll(t.Context(), attUpTo(11))
		attAs[*penstock.TooManyFailuresError](t, err)
		attExpect(t, "failed", e.Counters().Failed, limit+workers-1)
	})
}

func TestCallbackErrorText(t *testing.T) {
	for err, want := range map[*penstock.CallbackError]string{
		{Callback: "cost", Task: "7", Err: errAttOne}:                                 "penstock: the cost function failed for task 7: one",
		{Callback: "priority", Err: errAttOne}:                                        "penstock: the priority function failed for a new item: one",
		{Callback: "key", Task: "x", Err: &penstock.PanicError{Value: "no such map"}}: "penstock: the key function failed for task x: panic: no such map",
	} {
		attExpect(t, "text", err.Error(), want)
		if errors.Unwrap(err) != err.Err {
			t.Errorf("%v does not unwrap to its error", err)
		}
	}
}
