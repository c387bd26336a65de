package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
)

// failureOf gives the error of one item that is sent through an engine, and the run's.
func failureOf(handler func(context.Context, int) (int, error), opts ...penstock.Option) (task, run error) {
	engine, err := penstock.New(handler, 1, opts...)
	if err != nil {
		return nil, err
	}
	tasks, err := engine.ProcessAll(context.Background(), []int{0})
	return tasks[0].Err, err
}

// Our own timeouts are TimeoutErrors; a deadline of the caller's or of the handler's own is not.
func ExampleTimeoutError() {
	err, _ := failureOf(hang, penstock.WithAttemptTimeout(5*time.Millisecond))
	var timeout *penstock.TimeoutError
	if errors.As(err, &timeout) {
		fmt.Println(timeout.Scope, timeout.Limit, timeout.During)
	}
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// attempt 5ms handler
	// true
}

// A task that was cut off says what it was doing, and why it was cut off.
func ExampleUnfinishedError() {
	errEnough := errors.New("that is enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errEnough)
	engine, err := penstock.New(square, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, _ := engine.ProcessAll(ctx, []int{1})
	var unfinished *penstock.UnfinishedError
	if errors.As(tasks[0].Err, &unfinished) {
		fmt.Println("during", unfinished.During, "because of", unfinished.Cause)
	}
	fmt.Println(errors.Is(tasks[0].Err, context.Canceled), errors.Is(tasks[0].Err, errEnough))
	// Output:
	// during queue because of that is enough
	// true true
}

// A panic fails its own task. %+v prints the stack too.
func ExamplePanicError() {
	err, run := failureOf(func(context.Context, int) (int, error) { panic("no such page") })
	var p *penstock.PanicError
	if errors.As(err, &p) {
		fmt.Println(p.Value, len(p.Stack) > 0)
	}
	fmt.Println(err)
	fmt.Println("the run:", run)
	// Output:
	// no such page true
	// penstock: panic: no such page
	// the run: <nil>
}

func ExampleErrGoexit() {
	err, _ := failureOf(func(context.Context, int) (int, error) {
		runtime.Goexit() // as t.FailNow does
		return 0, nil
	})
	fmt.Println(errors.Is(err, penstock.ErrGoexit))
	// Output: true
}

func ExampleShedError() {
	limiter, err := ratelimiter.NewTokenBucket(ratelimiter.PerHour(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := penstock.New(square, 1, penstock.WithLimiter(limiter), penstock.WithShed(time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, _ := engine.ProcessAll(context.Background(), []int{1, 2})
	var shed *penstock.ShedError
	if errors.As(tasks[1].Err, &shed) {
		fmt.Println("task", shed.Task, "would not wait longer than", shed.MaxWait)
		fmt.Println("it is worth trying again:", shed.Err.RetryAfter > 59*time.Minute)
	}
	// Output:
	// task 1 would not wait longer than 1s
	// it is worth trying again: true
}

// A limiter that fails by itself ends the run.
func ExampleLimiterError() {
	broken := ratelimiter.Func(func(context.Context, ratelimiter.Request) error {
		return errors.New("the database is gone")
	})
	task, run := failureOf(square, penstock.WithLimiter(broken))
	var failed *penstock.LimiterError
	fmt.Println(errors.As(run, &failed), errors.As(task, &failed))
	fmt.Println(run)
	// Output:
	// true true
	// penstock: the limiter failed for task 0: the database is gone
}

// A function given as an option that panics, or gives an invalid answer, ends the run.
func ExampleCallbackError() {
	_, run := failureOf(square,
		penstock.WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return nil })),
		penstock.WithCost(func(n int) int { return n - 1 }))
	var failed *penstock.CallbackError
	if errors.As(run, &failed) {
		fmt.Println(failed.Callback)
	}
	fmt.Println(run)
	// Output:
	// cost
	// penstock: the cost function failed for task 0: the cost is -1: it must not be negative
}

func ExampleTooManyFailuresError() {
	errDown := errors.New("the service is down")
	_, run := failureOf(func(context.Context, int) (int, error) { return 0, errDown }, penstock.WithFailureLimit(1))
	var many *penstock.TooManyFailuresError
	if errors.As(run, &many) {
		fmt.Println(many.Limit, "failure, the last one with task", many.Task)
	}
	fmt.Println(errors.Is(run, errDown))
	// Output:
	// 1 failure, the last one with task 0
	// true
}

// A handler that does not heed its context cannot be stopped, only named.
func ExampleStillRunningError() {
	var gate = make(chan struct{})
	started := make(chan struct{})
	engine, err := penstock.New(func(_ context.Context, n int) (int, error) {
		close(started)
		<-gate
		return n, nil
	}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	run := engine.Start(context.Background())
	run.Submit(context.Background(), 1, penstock.WithID("stubborn"))
	<-started

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	err = run.Stop(ctx)
	var still *penstock.StillRunningError
	if errors.As(err, &still) {
		fmt.Println(len(still.Tasks), "task:", still.Tasks[0].ID)
	}
	close(gate)
	<-run.Done()
	fmt.Println(run.Stop(context.Background()))
	// Output:
	// 1 task: stubborn
	// <nil>
}

func ExampleRunningTask() {
	task := penstock.RunningTask{Index: 7, ID: "invoice-7", For: 90 * time.Second}
	fmt.Printf("number %d, task %s, for %v\n", task.Index, task.ID, task.For)
	// Output: number 7, task invoice-7, for 1m30s
}

func ExampleOptionError() {
	_, err := penstock.New(square, 1, penstock.WithKey(func(name string) string { return name }))
	var wrong *penstock.OptionError
	if errors.As(err, &wrong) {
		fmt.Println(wrong.Option)
	}
	fmt.Println(err)
	// Output:
	// WithKey
	// penstock: WithKey: the function is a func(string) string, but the items are int: it must be a func(int) string
}

func ExampleTaskError() {
	engine, err := penstock.New(upper, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = penstock.Values(engine.ProcessAll(context.Background(), []string{"a", "b", ""}))
	var failed *penstock.TaskError
	if errors.As(err, &failed) {
		fmt.Println(failed.Task, failed.Err)
	}
	// Output: 2 nothing to do
}

func ExampleErrInputClosed() {
	run := startSquares()
	run.CloseInput()
	_, err := run.Submit(context.Background(), 1)
	fmt.Println(errors.Is(err, penstock.ErrInputClosed))
	// Output: true
}

func ExampleErrNoMoreResults() {
	run := startSquares()
	run.CloseInput()
	_, err := run.Next(context.Background())
	fmt.Println(errors.Is(err, penstock.ErrNoMoreResults))
	// Output: true
}

func ExampleErrStopped() {
	run := startSquares()
	fmt.Println(run.Stop(context.Background()))
	_, err := run.Submit(context.Background(), 1)
	fmt.Println(errors.Is(err, penstock.ErrStopped))
	// Output:
	// <nil>
	// true
}

// A run whose source takes too long to give its first item.
func ExampleErrStartTimeout() {
	engine, err := penstock.New(square, 1, penstock.WithStartTimeout(5*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = engine.ProcessSource(context.Background(), penstock.FromFunc(func(ctx context.Context, _ func(int) bool) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	fmt.Println(errors.Is(err, penstock.ErrStartTimeout))
	// Output: true
}
