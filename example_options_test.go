package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// process makes an engine of one worker, sends items through it, and prints what became of each and of the run.
func process[T, R any](handler func(context.Context, T) (R, error), items []T, opts ...penstock.Option) {
	engine, err := penstock.New(handler, 1, opts...)
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, err := engine.ProcessAll(context.Background(), items)
	for _, task := range tasks {
		if task.Err != nil {
			fmt.Printf("%v: %v: %v\n", task.Data, task.Outcome, task.Err)
		} else {
			fmt.Printf("%v: %v\n", task.Data, task.Result)
		}
	}
	if err != nil {
		fmt.Println("the run:", err)
	}
}

// Options are values: they can be kept, and used for many engines.
func ExampleOption() {
	careful := []penstock.Option{
		penstock.WithRetry(retry.Policy{Max: 2}),
		penstock.WithAttemptTimeout(time.Second),
	}
	process(square, []int{2}, careful...)
	process(upper, []string{"a"}, append(careful, penstock.WithFailureLimit(1))...)
	// Output:
	// 2: 4
	// a: A
}

func ExampleWithLimiter() {
	limiter, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(100))
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	process(square, []int{1, 2, 3}, penstock.WithLimiter(limiter))
	fmt.Println(time.Since(start) >= 20*time.Millisecond) // the first one is free, the others are 10 ms apart
	// Output:
	// 1: 1
	// 2: 4
	// 3: 9
	// true
}

// After two failures in a row nothing is sent for a while, and then a probe: the items wait, and none is lost.
func ExampleWithBreaker() {
	fuse, err := breaker.New(breaker.WithThreshold(2, time.Minute), breaker.WithCooldown(20*time.Millisecond), breaker.WithProbes(1, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	process(func(_ context.Context, n int) (int, error) {
		if n < 0 {
			return 0, errors.New("out of order")
		}
		return n * n, nil
	}, []int{-1, -2, 3, 4}, penstock.WithBreaker(fuse))
	fmt.Println(time.Since(start) >= 20*time.Millisecond)
	// Output:
	// -1: failed: out of order
	// -2: failed: out of order
	// 3: 9
	// 4: 16
	// true
}

// printRequests is a limiter that grants everything and shows what it is told.
var printRequests = ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
	fmt.Printf("item %d, attempt %d: key %q, cost %d\n", r.Index, r.Attempt, r.Key, r.Cost)
	return nil
})

func ExampleWithKey() {
	process(upper, []string{"ann", "bob"},
		penstock.WithLimiter(printRequests),
		penstock.WithKey(func(name string) string { return name[:1] }))
	// Output:
	// item 0, attempt 1: key "a", cost 1
	// item 1, attempt 1: key "b", cost 1
	// ann: ANN
	// bob: BOB
}

func ExampleWithCost() {
	process(upper, []string{"a", "abc"},
		penstock.WithLimiter(printRequests),
		penstock.WithCost(func(prompt string) int { return len(prompt) }))
	// Output:
	// item 0, attempt 1: key "", cost 1
	// item 1, attempt 1: key "", cost 3
	// a: A
	// abc: ABC
}

// The more urgent items are the larger ones here.
func ExampleWithPriority() {
	busy := make(chan struct{})
	engine, err := penstock.New(func(_ context.Context, n int) (int, error) {
		<-busy
		return n, nil
	}, 1, penstock.WithPriority(func(n int) int { return -n }),
		penstock.WithInputCapacity(10), penstock.WithResultCapacity(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	run := engine.Start(context.Background())
	for _, n := range []int{0, 1, 3, 2} { // 0 goes to the worker at once
		run.Submit(context.Background(), n)
	}
	close(busy)
	run.CloseInput()
	for task := range run.Results() {
		fmt.Println(task.Result)
	}
	// Output:
	// 0
	// 3
	// 2
	// 1
}

func ExampleWithRetry() {
	errBusy := errors.New("busy")
	process(func(ctx context.Context, n int) (int, error) {
		if penstock.AttemptNumber(ctx) < 3 {
			return 0, errBusy
		}
		return n * n, nil
	}, []int{7}, penstock.WithRetry(retry.Policy{Max: 2, If: retry.Is(errBusy), Backoff: retry.Constant(time.Millisecond)}))
	// Output: 7: 49
}

// hang does nothing until its context ends.
func hang(ctx context.Context, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func ExampleWithAttemptTimeout() {
	process(hang, []int{1}, penstock.WithAttemptTimeout(5*time.Millisecond))
	// Output: 1: failed: penstock: task 0: attempt timed out after 5ms (last error: context deadline exceeded)
}

// The task timeout is for all attempts and all waits of a task together.
func ExampleWithTaskTimeout() {
	process(func(context.Context, int) (int, error) { return 0, errors.New("no luck") }, []int{1},
		penstock.WithRetry(retry.Policy{Max: 1_000_000, Backoff: retry.Constant(time.Millisecond)}),
		penstock.WithTaskTimeout(10*time.Millisecond))
	// Output: 1: failed: penstock: task 0: task timed out after 10ms while waiting to retry (last error: no luck)
}

func ExampleWithStartTimeout() {
	engine, err := penstock.New(square, 1, penstock.WithStartTimeout(5*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	never := make(chan int)
	_, err = engine.ProcessSource(context.Background(), penstock.FromChan(never))
	fmt.Println(errors.Is(err, penstock.ErrStartTimeout))
	fmt.Println(err)
	// Output:
	// true
	// penstock: no input came within the start timeout: waited 5ms
}

func ExampleWithFailureLimit() {
	process(upper, []string{"", "", "a"}, penstock.WithFailureLimit(2))
	// Output:
	// : failed: nothing to do
	// : failed: nothing to do
	// a: unfinished: penstock: not started: failure limit of 2 reached with task 1: nothing to do
	// the run: penstock: failure limit of 2 reached with task 1: nothing to do
}

// With no bound on the input, a submitter never waits.
func ExampleWithInputCapacity() {
	run := startSquares(penstock.WithInputCapacity(penstock.Unlimited))
	for n := range 1000 {
		if _, err := run.Submit(context.Background(), n); err != nil {
			fmt.Println(err)
		}
	}
	run.CloseInput()
	sum := 0
	for task := range run.Results() {
		sum += task.Result
	}
	fmt.Println(sum)
	// Output: 332833500
}

// With no bound on the results, a run can be finished before anybody reads.
func ExampleWithResultCapacity() {
	run := startSquares(penstock.WithResultCapacity(penstock.Unlimited))
	for n := range 1000 {
		run.Submit(context.Background(), n)
	}
	fmt.Println(run.Finish(context.Background()), len(run.Drain()))
	// Output: <nil> 1000
}

// For small items: a hundred per hand-over.
func ExampleWithBatch() {
	engine, err := penstock.New(square, 4, penstock.WithBatch(100), penstock.WithResultCapacity(100))
	if err != nil {
		fmt.Println(err)
		return
	}
	n := 0
	for _, err := range engine.IterResults(context.Background(), penstock.FromSlice(make([]int, 10_000))) {
		if err != nil {
			fmt.Println(err)
		}
		n++
	}
	fmt.Println(n)
	// Output: 10000
}

// What comes above the rate is refused, not kept waiting.
func ExampleWithShed() {
	limiter, err := ratelimiter.NewTokenBucket(ratelimiter.PerHour(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := penstock.New(square, 1, penstock.WithLimiter(limiter), penstock.WithShed(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, err := engine.ProcessAll(context.Background(), []int{1, 2})
	for _, task := range tasks {
		fmt.Println(task.Data, task.Outcome)
	}
	var shed *penstock.ShedError
	fmt.Println(errors.As(tasks[1].Err, &shed), err)
	// Output:
	// 1 succeeded
	// 2 shed
	// true <nil>
}

func ExampleWithHooks() {
	progress := penstock.Hooks{
		AttemptEnded: func(_ context.Context, a penstock.Attempt, err error) {
			fmt.Printf("task %s, attempt %d: %v\n", a.ID(), a.Number, err)
		},
		TaskDone: func(_ context.Context, t penstock.TaskInfo) { fmt.Printf("task %s %v\n", t.ID(), t.Outcome) },
		RunEnded: func(_ context.Context, c penstock.Counters, err error) {
			fmt.Printf("%d done, %d retries, error: %v\n", c.Ended(), c.Retries, err)
		},
	}
	engine, err := penstock.New(upper, 1, penstock.WithHooks(progress), penstock.WithRetry(retry.Policy{Max: 1}))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine.ProcessAll(context.Background(), []string{"a", ""})
	// Output:
	// task 0, attempt 1: <nil>
	// task 0 succeeded
	// task 1, attempt 1: nothing to do
	// task 1, attempt 2: nothing to do
	// task 1 failed
	// 2 done, 1 retries, error: <nil>
}

func ExampleHooks() {
	var failed []string
	count := penstock.Hooks{TaskDone: func(_ context.Context, t penstock.TaskInfo) {
		if t.Outcome == penstock.Failed {
			failed = append(failed, t.ID()) // with more than one worker this needs a mutex
		}
	}}
	process(upper, []string{"a", ""}, penstock.WithHooks(count))
	fmt.Println("failed:", failed)
	// Output:
	// a: A
	// : failed: nothing to do
	// failed: [1]
}

func ExampleTaskInfo() {
	show := func(_ context.Context, t penstock.TaskInfo) {
		fmt.Println(t.ID(), t.Index, t.Outcome, t.Attempts, t.Err)
	}
	engine, err := penstock.New(upper, 1, penstock.WithHooks(penstock.Hooks{TaskDone: show}))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine.ProcessAll(context.Background(), []string{""})
	// Output: 0 0 failed 1 nothing to do
}

func ExampleAttempt() {
	show := func(_ context.Context, a penstock.Attempt) {
		fmt.Println("worker", a.Worker, "task", a.ID(), "attempt", a.Number)
	}
	process(square, []int{3}, penstock.WithHooks(penstock.Hooks{AttemptStarted: show}))
	// Output:
	// worker 0 task 0 attempt 1
	// 3: 9
}

func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { // only for the output below
			if a.Key == slog.TimeKey || a.Key == "elapsed" {
				return slog.Attr{}
			}
			return a
		},
	}))
	process(upper, []string{""}, penstock.WithLogger(logger))
	// Output:
	// level=WARN msg="attempt failed" task=0 worker=0 attempt=1 error="nothing to do"
	// : failed: nothing to do
}

// A language model's quota counts tokens, and how many a call takes is known only afterwards.
func ExampleAttemptRequest() {
	tokens, err := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(10_000))
	if err != nil {
		fmt.Println(err)
		return
	}
	complete := func(ctx context.Context, prompt string) (string, error) {
		answer, used := "an answer", 100 // what the model says and what it took
		if req, ok := penstock.AttemptRequest(ctx); ok {
			tokens.Adjust(req, used)
		}
		return answer, nil
	}
	engine, err := penstock.New(complete, 4,
		penstock.WithLimiter(tokens),
		penstock.WithCost(func(prompt string) int { return 1000 })) // a cautious guess
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, err := engine.ProcessAll(context.Background(), make([]string, 50))
	fmt.Println(len(tasks), err, tokens.Stats().Available)
	// Output: 50 <nil> 5000
}
