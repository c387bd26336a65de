package foreman_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// length is the handler of most examples.
func length(_ context.Context, word string) (int, error) {
	if word == "" {
		return 0, errors.New("no word")
	}
	return len(word), nil
}

// run does the whole job for examples that are about something else: it puts the words through a foreman with one worker
// and prints what became of each, and of the work if it ended early.
func run(handler func(context.Context, string) (int, error), words []string, opts ...foreman.Option) {
	f, err := foreman.New(handler, 1, opts...)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, word := range words {
		f.Add(context.Background(), foreman.Task[string, int]{Index: i, Data: word})
	}
	f.Start(context.Background())
	ended := f.Finalize(context.Background())
	for {
		task, err := f.Next(context.Background())
		if err != nil {
			break
		}
		n, err := task.Value()
		fmt.Printf("%q %v: %d, %v\n", task.Data, task.Outcome, n, err)
	}
	if ended != nil {
		fmt.Println(ended)
	}
}

// The whole life of a foreman: tasks go in, workers start, tasks come out ended.
func Example() {
	ctx := context.Background()
	f, err := foreman.New(length, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := f.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	go func() { // add and read at the same time: that is what keeps memory bounded when the queues are
		for i, word := range []string{"penstock", "", "gate"} {
			if err := f.Add(ctx, foreman.Task[string, int]{Index: i, Data: word}); err != nil {
				fmt.Println(err)
			}
		}
		f.Finalize(ctx)
	}()
	lines := make([]string, 3)
	for {
		task, err := f.Next(ctx)
		if errors.Is(err, foreman.ErrNoMoreResults) {
			break
		}
		if err != nil {
			fmt.Println(err) // the work ended early
			break
		}
		lines[task.Index] = fmt.Sprint(task.Outcome, " ", task.Result, " ", task.Err)
	}
	fmt.Println(strings.Join(lines, "\n"))
	// Output:
	// succeeded 8 <nil>
	// failed 0 no word
	// succeeded 4 <nil>
}

// The error of New names every fault.
func ExampleNew() {
	_, err := foreman.New(length, 0, foreman.WithTaskTimeout(-time.Second))
	fmt.Println(err)
	// Output:
	// penstock: workers: is 0: at least 1 is needed
	// penstock: WithTaskTimeout: is -1s: it must be positive; leave the option out for no limit
}

func ExampleForeman() {
	f, _ := foreman.New(length, 2)
	f.Start(context.Background())
	defer f.Stop() // whatever happens, no worker is left
	f.Add(context.Background(), foreman.Task[string, int]{Data: "sluice"})
	task, err := f.Next(context.Background())
	fmt.Println(task.Result, err)
	// Output: 6 <nil>
}

// A foreman that was finalized, and whose results were read, can be started again.
func ExampleForeman_Start() {
	ctx := context.Background()
	f, _ := foreman.New(length, 2)
	for _, word := range []string{"a", "bb"} {
		f.Start(ctx)
		fmt.Println("a second Start is refused:", f.Start(ctx) != nil)
		f.Add(ctx, foreman.Task[string, int]{Data: word})
		f.Finalize(ctx)
		task, _ := f.Next(ctx)
		fmt.Println(task.Result)
	}
	// Output:
	// a second Start is refused: true
	// 1
	// a second Start is refused: true
	// 2
}

// Add waits for room no longer than its context allows; an error means that the task was not accepted.
func ExampleForeman_Add() {
	f, _ := foreman.New(length, 1, foreman.WithInputCapacity(1))
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(f.Add(context.Background(), foreman.Task[string, int]{Data: "first"}))
	fmt.Println(f.Add(ctx, foreman.Task[string, int]{Data: "second"}))
	// Output:
	// <nil>
	// context deadline exceeded
}

// Tasks come in the order in which they end. The index says which is which.
func ExampleForeman_Next() {
	ctx := context.Background()
	f, _ := foreman.New(func(_ context.Context, d time.Duration) (string, error) {
		time.Sleep(d)
		return d.String(), nil
	}, 2)
	f.Start(ctx)
	f.Add(ctx, foreman.Task[time.Duration, string]{Index: 0, Data: 100 * time.Millisecond})
	f.Add(ctx, foreman.Task[time.Duration, string]{Index: 1, Data: time.Millisecond})
	f.Finalize(ctx)
	for {
		task, err := f.Next(ctx)
		if err != nil {
			fmt.Println(errors.Is(err, foreman.ErrNoMoreResults))
			return
		}
		fmt.Println(task.Index, task.Result)
	}
	// Output:
	// 1 1ms
	// 0 100ms
	// true
}

// Finalize means that no more tasks come. It waits for those that were accepted.
func ExampleForeman_Finalize() {
	ctx := context.Background()
	f, _ := foreman.New(length, 1)
	fmt.Println(errors.Is(f.Finalize(ctx), foreman.ErrNotStarted))
	f.Start(ctx)
	f.Add(ctx, foreman.Task[string, int]{Data: "weir"})
	fmt.Println(f.Finalize(ctx), f.Counters().Succeeded)
	fmt.Println(errors.Is(f.Add(ctx, foreman.Task[string, int]{Data: "late"}), foreman.ErrInputClosed))
	// Output:
	// true
	// <nil> 1
	// true
}

// Stop cuts work off, and what was cut off can still be read.
func ExampleForeman_Stop() {
	ctx := context.Background()
	f, _ := foreman.New(func(ctx context.Context, _ string) (int, error) {
		<-ctx.Done() // a handler should end soon when it is told to
		return 0, ctx.Err()
	}, 1)
	f.Start(ctx)
	f.Add(ctx, foreman.Task[string, int]{Data: "endless"})
	f.Stop()
	task, _ := f.Next(ctx)
	_, err := f.Next(ctx)
	fmt.Println(task.Outcome, errors.Is(task.Err, foreman.ErrStopped), errors.Is(err, foreman.ErrStopped))
	// Output: unfinished true true
}

func ExampleForeman_Counters() {
	f, _ := foreman.New(length, 2)
	f.Add(context.Background(), foreman.Task[string, int]{Data: "lock"})
	fmt.Println(f.Counters().Pending)
	f.Start(context.Background())
	f.Finalize(context.Background())
	fmt.Println(f.Counters().Succeeded)
	// Output:
	// 1
	// 1
}

// The number of the attempt can be part of an idempotency key, or switch to another server.
func ExampleAttemptNumber() {
	run(func(ctx context.Context, word string) (int, error) {
		server := []string{"primary", "secondary"}[foreman.AttemptNumber(ctx)-1]
		if server == "primary" {
			return 0, errors.New("down")
		}
		return len(server), nil
	}, []string{"x"}, foreman.WithRetry(retry.Policy{Max: 1}))
	// Output: "x" succeeded: 9, <nil>
}

func ExampleContextError() {
	ctx, cancel := context.WithCancelCause(context.Background())
	shutdown := errors.New("shutting down")
	cancel(shutdown)
	err := foreman.ContextError(ctx)
	fmt.Println(err, errors.Is(err, context.Canceled), errors.Is(err, shutdown))
	// Output: context canceled: shutting down true true
}

func ExampleTask_Value() {
	for _, task := range []foreman.Task[string, int]{
		{Outcome: foreman.Succeeded, Result: 6},
		{Outcome: foreman.Failed, Err: errors.New("no word")},
		{Index: 7},
	} {
		fmt.Println(task.Value())
	}
	// Output:
	// 6 <nil>
	// 0 no word
	// 0 penstock: task 7 has not ended
}

// An id of the caller's own shows up in errors, logs and hooks.
func ExampleTask_WithID() {
	task := foreman.Task[string, int]{Index: 7}
	fmt.Println(task.ID(), task.WithID("order-1001").ID(), task.ID())
	// Output: 7 order-1001 7
}

func ExampleTask_ID() {
	fmt.Println(foreman.Task[string, int]{Index: 7}.ID())
	// Output: 7
}

func ExampleTask() {
	task := foreman.Task[string, int]{Index: 3, Data: "what goes in"}
	fmt.Println(task.Outcome, task.Err)
	// Output: pending <nil>
}

func ExampleOutcome() {
	fmt.Println(foreman.Succeeded, foreman.Failed, foreman.Shed, foreman.Unfinished)
	// Output: succeeded failed shed unfinished
}

func ExampleOutcome_String() {
	var none foreman.Outcome
	fmt.Println(none.String(), foreman.Failed.String())
	// Output: pending failed
}

func ExampleCounters() {
	c := foreman.Counters{Pending: 5, Running: 2, Succeeded: 90, Failed: 3, Retries: 12}
	fmt.Printf("%d of %d\n", c.Ended(), c.Pending+c.Running+c.Ended())
	// Output: 93 of 100
}

func ExampleCounters_Plus() {
	fmt.Println(foreman.Counters{Succeeded: 1, Retries: 2}.Plus(foreman.Counters{Succeeded: 3, Failed: 1}))
	// Output: {0 0 4 1 0 0 2}
}

func ExampleCounters_Ended() {
	fmt.Println(foreman.Counters{Running: 1, Succeeded: 2, Failed: 3, Shed: 4, Unfinished: 5}.Ended())
	// Output: 14
}

func ExampleHooks() {
	run(length, []string{"", "dam"}, foreman.WithHooks(foreman.Hooks{
		AttemptStarted: func(_ context.Context, a foreman.Attempt) { fmt.Println("task", a.ID(), "starts") },
		AttemptEnded:   func(_ context.Context, a foreman.Attempt, err error) { fmt.Println("task", a.ID(), "ended:", err) },
		TaskDone:       func(_ context.Context, t foreman.TaskInfo) { fmt.Println("task", t.ID(), t.Outcome) },
		RunEnded:       func(_ context.Context, c foreman.Counters, err error) { fmt.Println(c.Ended(), "tasks,", err) },
	}))
	// Output:
	// task 0 starts
	// task 0 ended: no word
	// task 0 failed
	// task 1 starts
	// task 1 ended: <nil>
	// task 1 succeeded
	// 2 tasks, <nil>
	// "" failed: 0, no word
	// "dam" succeeded: 3, <nil>
}

func ExampleAttempt() {
	run(length, []string{""}, foreman.WithRetry(retry.Policy{Max: 1}), foreman.WithHooks(foreman.Hooks{
		AttemptEnded: func(_ context.Context, a foreman.Attempt, err error) {
			fmt.Printf("task %s, attempt %d by worker %d: %v, took a while: %v\n", a.ID(), a.Number, a.Worker, err, a.Elapsed > time.Minute)
		},
	}))
	// Output:
	// task 0, attempt 1 by worker 0: no word, took a while: false
	// task 0, attempt 2 by worker 0: no word, took a while: false
	// "" failed: 0, no word
}

func ExampleTaskInfo() {
	run(length, []string{"mill"}, foreman.WithHooks(foreman.Hooks{
		TaskDone: func(_ context.Context, t foreman.TaskInfo) {
			fmt.Printf("task %s %v after %d attempts: %v\n", t.ID(), t.Outcome, t.Attempts, t.Err)
		},
	}))
	// Output:
	// task 0 succeeded after 1 attempts: <nil>
	// "mill" succeeded: 4, <nil>
}

// Options are values: they can be collected, kept and used again.
func ExampleOption() {
	opts := []foreman.Option{foreman.WithRetry(retry.Policy{Max: 2})}
	opts = append(opts, foreman.WithInputCapacity(foreman.Unlimited))
	run(length, []string{"race"}, opts...)
	// Output: "race" succeeded: 4, <nil>
}

func ExampleWithLimiter() {
	limiter := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
		fmt.Printf("worker %d asks for attempt %d of task %d\n", r.Worker, r.Attempt, r.Index)
		return nil
	})
	run(length, []string{"pond"}, foreman.WithLimiter(limiter))
	// Output:
	// worker 0 asks for attempt 1 of task 0
	// "pond" succeeded: 4, <nil>
}

func ExampleWithKey() {
	limiter := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
		fmt.Println("limit of", r.Key)
		return nil
	})
	host := func(address string) string { return strings.Split(address, "/")[0] }
	run(length, []string{"a.example/1", "b.example/2"}, foreman.WithLimiter(limiter), foreman.WithKey(host))
	// Output:
	// limit of a.example
	// limit of b.example
	// "a.example/1" succeeded: 11, <nil>
	// "b.example/2" succeeded: 11, <nil>
}

// A cost that can never be granted fails its task only.
func ExampleWithCost() {
	limiter := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
		if r.Cost > 4 {
			return &ratelimiter.CostError{Limit: "4 letters", Cost: r.Cost, Max: 4}
		}
		return nil
	})
	run(length, []string{"spillway", "gate"}, foreman.WithLimiter(limiter), foreman.WithCost(func(word string) int { return len(word) }))
	// Output:
	// "spillway" failed: 0, ratelimiter: 4 letters: cost 8 can never be granted, the highest is 4
	// "gate" succeeded: 4, <nil>
}

func ExampleWithPriority() {
	shortestFirst := func(word string) int { return len(word) }
	run(length, []string{"turbine", "dam", "flume", "leat"}, foreman.WithPriority(shortestFirst))
	// Output:
	// "dam" succeeded: 3, <nil>
	// "leat" succeeded: 4, <nil>
	// "flume" succeeded: 5, <nil>
	// "turbine" succeeded: 7, <nil>
}

func ExampleWithRetry() {
	flaky := func(ctx context.Context, word string) (int, error) {
		if foreman.AttemptNumber(ctx) < 3 {
			return 0, errors.New("busy")
		}
		return len(word), nil
	}
	run(flaky, []string{"turbine"}, foreman.WithRetry(retry.Policy{Max: 2, Backoff: retry.Exponential(time.Millisecond, time.Second)}))
	// Output: "turbine" succeeded: 7, <nil>
}

// until is a handler that works as long as its context lets it.
func until(ctx context.Context, _ string) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func ExampleWithAttemptTimeout() {
	run(until, []string{"endless"}, foreman.WithAttemptTimeout(time.Millisecond), foreman.WithRetry(retry.Policy{Max: 1}))
	// Output: "endless" failed: 0, penstock: task 0: attempt timed out after 1ms (last error: context deadline exceeded)
}

func ExampleWithTaskTimeout() {
	busy := func(context.Context, string) (int, error) { return 0, errors.New("busy") }
	run(busy, []string{"x"}, foreman.WithTaskTimeout(50*time.Millisecond), foreman.WithRetry(retry.Policy{Max: 9, Backoff: retry.Constant(time.Hour)}))
	// Output: "x" failed: 0, penstock: task 0: task timed out after 50ms while waiting to retry (last error: busy)
}

func ExampleWithStartTimeout() {
	f, _ := foreman.New(length, 1, foreman.WithStartTimeout(time.Millisecond))
	f.Start(context.Background())
	_, err := f.Next(context.Background())
	fmt.Println(errors.Is(err, foreman.ErrStartTimeout))
	// Output: true
}

func ExampleWithFailureLimit() {
	run(length, []string{"", "", "never tried"}, foreman.WithFailureLimit(2))
	// Output:
	// "" failed: 0, no word
	// "" failed: 0, no word
	// "never tried" unfinished: 0, penstock: not started: failure limit of 2 reached with task 1: no word
	// penstock: failure limit of 2 reached with task 1: no word
}

// With bounded queues somebody must read while tasks are added and finalized.
func ExampleWithInputCapacity() {
	ctx := context.Background()
	f, _ := foreman.New(length, 2, foreman.WithInputCapacity(2), foreman.WithResultCapacity(2))
	f.Start(ctx)
	go func() {
		for i := range 1000 {
			f.Add(ctx, foreman.Task[string, int]{Index: i, Data: strconv.Itoa(i)})
		}
		f.Finalize(ctx)
	}()
	sum := 0
	for {
		task, err := f.Next(ctx)
		if err != nil {
			break
		}
		sum += task.Result
	}
	fmt.Println(sum)
	// Output: 2890
}

func ExampleWithResultCapacity() {
	plan, _ := foreman.NewPlan(length, 2, 10, 10, foreman.WithResultCapacity(3))
	fmt.Println(plan.InputCapacity(), plan.ResultCapacity())
	// Output: 10 3
}

func ExampleWithBatch() {
	words := []string{"a", "bb", "ccc"}
	run(length, words, foreman.WithBatch(16)) // no task waits for a batch to fill
	// Output:
	// "a" succeeded: 1, <nil>
	// "bb" succeeded: 2, <nil>
	// "ccc" succeeded: 3, <nil>
}

// full is a limiter that has nothing to give for a second.
type full struct{}

func (full) Acquire(ctx context.Context, _ ratelimiter.Request) error { <-ctx.Done(); return ctx.Err() }

func (full) TryAcquire(ratelimiter.Request) (bool, time.Duration) { return false, time.Second }

func (full) AcquireWithin(context.Context, ratelimiter.Request, time.Duration) error {
	return &ratelimiter.ExcessError{Limit: "60/m", RetryAfter: time.Second}
}

func ExampleWithShed() {
	run(length, []string{"ford"}, foreman.WithLimiter(full{}), foreman.WithShed(100*time.Millisecond))
	// Output: "ford" shed: 0, rate_limit: 60/m for all requests: next grant in 1s: task 0 was shed
}

// While the breaker is open attempts wait; none is lost.
func ExampleWithBreaker() {
	b, err := breaker.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	run(length, []string{"ford"}, foreman.WithBreaker(b))
	// Output: "ford" succeeded: 4, <nil>
}

func ExampleWithHooks() {
	failures := foreman.Hooks{TaskDone: func(_ context.Context, t foreman.TaskInfo) {
		if t.Err != nil {
			fmt.Println("failed:", t.ID())
		}
	}}
	count := 0
	all := foreman.Hooks{TaskDone: func(context.Context, foreman.TaskInfo) { count++ }}
	run(length, []string{"ait", ""}, foreman.WithHooks(failures), foreman.WithHooks(all)) // both are called
	fmt.Println(count)
	// Output:
	// failed: 1
	// "ait" succeeded: 3, <nil>
	// "" failed: 0, no word
	// 2
}

func ExampleWithLogger() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "elapsed" {
			return slog.Attr{}
		}
		return a
	}})
	run(length, []string{""}, foreman.WithLogger(slog.New(handler)))
	// Output:
	// level=WARN msg="attempt failed" task=0 worker=0 attempt=1 error="no word"
	// "" failed: 0, no word
}

func ExampleTimeoutError() {
	run(until, []string{"endless"}, foreman.WithAttemptTimeout(time.Millisecond), foreman.WithHooks(foreman.Hooks{
		TaskDone: func(_ context.Context, t foreman.TaskInfo) {
			var timeout *foreman.TimeoutError
			fmt.Println(errors.As(t.Err, &timeout), timeout.Scope, timeout.Limit, timeout.During)
			fmt.Println(errors.Is(t.Err, context.DeadlineExceeded))
		},
	}))
	// Output:
	// true attempt 1ms handler
	// true
	// "endless" failed: 0, penstock: task 0: attempt timed out after 1ms (last error: context deadline exceeded)
}

func ExampleUnfinishedError() {
	ctx, cancel := context.WithCancelCause(context.Background())
	shutdown := errors.New("shutting down")
	f, _ := foreman.New(func(ctx context.Context, _ string) (int, error) {
		cancel(shutdown) // it could come from anywhere
		<-ctx.Done()
		return 0, errors.New("half done")
	}, 1)
	f.Add(ctx, foreman.Task[string, int]{Data: "endless"})
	f.Start(ctx)
	task, _ := f.Next(context.Background())
	var unfinished *foreman.UnfinishedError
	fmt.Println(errors.As(task.Err, &unfinished), unfinished.During, errors.Is(task.Err, context.Canceled), errors.Is(task.Err, shutdown))
	fmt.Println(task.Err)
	f.Stop()
	// Output:
	// true handler true true
	// penstock: unfinished: shutting down (last error: half done)
}

func ExamplePanicError() {
	run(func(context.Context, string) (int, error) { panic("out of paper") }, []string{"x"}, foreman.WithHooks(foreman.Hooks{
		TaskDone: func(_ context.Context, t foreman.TaskInfo) {
			var panicked *foreman.PanicError
			fmt.Println(errors.As(t.Err, &panicked), panicked.Value, len(panicked.Stack) > 0)
		},
	}))
	// Output:
	// true out of paper true
	// "x" failed: 0, penstock: panic: out of paper
}

func ExampleShedError() {
	err := error(&foreman.ShedError{Task: "7", Err: &ratelimiter.ExcessError{Limit: "60/m", RetryAfter: time.Second}})
	var shed *foreman.ShedError
	if errors.As(err, &shed) {
		fmt.Println("come back in", shed.Err.RetryAfter)
	}
	// Output: come back in 1s
}

func ExampleLimiterError() {
	broken := ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return errors.New("the store is gone") })
	run(length, []string{"x"}, foreman.WithLimiter(broken))
	// Output:
	// "x" unfinished: 0, penstock: unfinished, waiting for the limiter: the limiter failed for task 0: the store is gone
	// penstock: the limiter failed for task 0: the store is gone
}

func ExampleCallbackError() {
	run(length, []string{""}, foreman.WithRetry(retry.Policy{Max: 1, Backoff: func(int, error) time.Duration { return -1 }}))
	// Output:
	// "" unfinished: 0, penstock: unfinished, waiting to retry: the backoff function failed for task 0: retry: Policy.Backoff returned -1ns after failed attempt 1: a delay must be 0 or more (last error: no word)
	// penstock: the backoff function failed for task 0: retry: Policy.Backoff returned -1ns after failed attempt 1: a delay must be 0 or more
}

func ExampleTooManyFailuresError() {
	f, _ := foreman.New(length, 1, foreman.WithFailureLimit(1))
	f.Start(context.Background())
	f.Add(context.Background(), foreman.Task[string, int]{Data: ""}.WithID("empty"))
	err := f.Finalize(context.Background())
	var tooMany *foreman.TooManyFailuresError
	fmt.Println(errors.As(err, &tooMany), tooMany.Limit, tooMany.Task, tooMany.Err)
	// Output: true 1 empty no word
}

func ExampleStillRunningError() {
	err := &foreman.StillRunningError{
		Tasks: []foreman.RunningTask{{Index: 4, ID: "4", For: 3 * time.Second}},
		Err:   context.DeadlineExceeded,
	}
	fmt.Println(err)
	// Output: penstock: stop gave up waiting (context deadline exceeded) with 1 task still running: task 4 for 3s; its handler has not returned since it was cancelled
}

func ExampleRunningTask() {
	t := foreman.RunningTask{Index: 4, ID: "order-1001", For: 3 * time.Second}
	fmt.Println(t.ID, "is running for", t.For)
	// Output: order-1001 is running for 3s
}

func ExampleOptionError() {
	_, err := foreman.New(length, 1, foreman.WithKey(func(int) string { return "" }))
	var wrong *foreman.OptionError
	fmt.Println(errors.As(err, &wrong), wrong.Option)
	// Output: true WithKey
}

// One plan serves any number of crews, at the same time, too.
func ExamplePlan() {
	plan, err := foreman.NewPlan(length, 4, 10, 20, foreman.WithBatch(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Workers(), plan.InputCapacity(), plan.ResultCapacity(), plan.Batch())
	// Output: 4 10 20 2
}

func ExampleNewPlan() {
	_, err := foreman.NewPlan[string, int](nil, 4, 10, 20)
	fmt.Println(err)
	// Output: penstock: handler: is nil: it is the function that processes one item
}

func ExamplePlan_PriorityOf() {
	plan, _ := foreman.NewPlan(length, 1, 1, 1, foreman.WithPriority(func(word string) int { return len(word) }))
	fmt.Println(plan.PriorityOf("adit"))
	// Output: 4 <nil>
}

// An inbox is the queue in front of a crew for those who have none, and an outbox the buffer behind it.
func ExampleInbox() {
	ctx := context.Background()
	plan, _ := foreman.NewPlan(length, 2, 10, 10)
	inbox, outbox := plan.NewInbox(true), plan.NewOutbox()
	crew := plan.NewCrew(ctx, foreman.CrewConfig[string, int]{Intake: inbox, Outlet: outbox})
	inbox.Open(crew)
	crew.Start()
	for _, word := range []string{"pier", "quay", "groyne"} {
		number, err := inbox.Add(ctx, foreman.Task[string, int]{Data: word}, 0, nil, nil)
		fmt.Println(number, err)
	}
	inbox.Close(foreman.ErrInputClosed)
	crew.InputDone()
	<-crew.Done()
	tasks := outbox.Drain()
	sort.Slice(tasks, func(i, j int) bool { return tasks[i].Index < tasks[j].Index })
	for _, task := range tasks {
		fmt.Println(task.Index, task.Data, task.Result)
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
	// 2 <nil>
	// 0 pier 4
	// 1 quay 4
	// 2 groyne 6
}

func ExampleOutbox() {
	plan, _ := foreman.NewPlan(length, 1, 10, 10)
	outbox := plan.NewOutbox()
	outbox.Deliver([]*foreman.Task[string, int]{{Index: 0, Data: "mole"}, {Index: 1, Data: "jetty"}})
	outbox.Close()
	first, ok, err := outbox.Next(context.Background())
	fmt.Println(first.Data, ok, err)
	fmt.Println(len(outbox.Drain()))
	// Output:
	// mole true <nil>
	// 1
}

// A job can have a context of its own, and one who waits for its reply.
func ExampleJob() {
	plan, _ := foreman.NewPlan(length, 1, 10, 10)
	inbox := plan.NewInbox(true)
	crew := plan.NewCrew(context.Background(), foreman.CrewConfig[string, int]{Intake: inbox})
	inbox.Open(crew)
	crew.Start()
	own, cancel := context.WithTimeout(crew.Context(), time.Minute) // it must end when the crew's does
	defer cancel()
	reply := make(chan foreman.Task[string, int], 1)
	inbox.Add(own, foreman.Task[string, int]{Data: "weir"}, 0, own, func(t *foreman.Task[string, int]) { reply <- *t })
	task := <-reply
	fmt.Println(task.Value())
	crew.Cancel(foreman.ErrStopped)
	<-crew.Done()
	// Output: 4 <nil>
}

// What a crew asks of an Intake, played through by hand.
func ExampleIntake() {
	plan, _ := foreman.NewPlan(length, 1, 10, 10)
	inbox := plan.NewInbox(true)
	for _, word := range []string{"reach", "riffle"} {
		inbox.Add(context.Background(), foreman.Task[string, int]{Data: word}, 0, nil, nil)
	}
	var intake foreman.Intake[string, int] = inbox

	jobs := []foreman.Job[string, int]{{Task: new(foreman.Task[string, int])}} // a worker's, with room for one task
	fmt.Println(intake.Take(0, jobs), jobs[0].Task.Data)
	fmt.Println(intake.Counts())
	intake.Abandon(foreman.ErrStopped, func(job *foreman.Job[string, int]) { fmt.Println("left over:", job.Task.Data) })
	fmt.Println(intake.Take(0, jobs))
	// Output:
	// 1 reach
	// 2 1
	// left over: riffle
	// 0
}

// What a crew asks of an Outlet, played through by hand.
func ExampleOutlet() {
	plan, _ := foreman.NewPlan(length, 1, 10, 1) // room for one result
	outbox := plan.NewOutbox()
	var outlet foreman.Outlet[string, int] = outbox

	outlet.Deliver([]*foreman.Task[string, int]{{Data: "pool"}})
	outlet.Lift() // from now on Deliver does not wait for a reader
	outlet.Deliver([]*foreman.Task[string, int]{{Data: "lake"}})
	outlet.Close()
	fmt.Println(len(outbox.Drain()))
	// Output: 2
}

func ExampleCrewConfig() {
	plan, _ := foreman.NewPlan(length, 1, 10, 10)
	inbox := plan.NewInbox(true)
	crew := plan.NewCrew(context.Background(), foreman.CrewConfig[string, int]{
		Intake: inbox,
		Outlet: plan.NewOutbox(),
		OnEnd:  func(c foreman.Counters) { fmt.Println(c.Succeeded, "succeeded") },
	})
	inbox.Open(crew)
	crew.Start()
	inbox.Add(context.Background(), foreman.Task[string, int]{Data: "burn"}, 0, nil, nil)
	inbox.Close(foreman.ErrInputClosed) // no more tasks for the inbox, and
	crew.InputDone()                    // no more inbox for the crew
	<-crew.Done()
	// Output: 1 succeeded
}
