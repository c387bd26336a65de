package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// upper stands for a call of some service.
func upper(_ context.Context, s string) (string, error) {
	if s == "" {
		return "", errors.New("nothing to do")
	}
	return strings.ToUpper(s), nil
}

// A batch: one task for each item, in input order.
func Example() {
	engine, err := penstock.New(upper, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, err := engine.ProcessAll(context.Background(), []string{"one", "", "three"})
	if err != nil {
		fmt.Println("the run failed:", err)
	}
	for _, task := range tasks {
		if value, err := task.Value(); err != nil {
			fmt.Printf("%q failed: %v\n", task.Data, err)
		} else {
			fmt.Printf("%q: %s\n", task.Data, value)
		}
	}
	// Output:
	// "one": ONE
	// "" failed: nothing to do
	// "three": THREE
}

// With a limiter, retries and hooks. New checks all of it.
func ExampleNew() {
	limiter, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(1000))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := penstock.New(upper, 4,
		penstock.WithLimiter(limiter),
		penstock.WithRetry(retry.Policy{Max: 2}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(penstock.Values(engine.ProcessAll(context.Background(), []string{"a", "b"})))
	// Output: [A B] <nil>
}

// The error of New names everything that is wrong.
func ExampleNew_validation() {
	_, err := penstock.New(upper, 0, penstock.WithBatch(-1))
	fmt.Println(err)
	// Output:
	// penstock: workers: is 0: at least 1 is needed
	// penstock: WithBatch: is -1: it must be at least 1; 1 means no batching
}

// An engine is a recipe, used as often and by as many goroutines as one likes.
func ExampleEngine() {
	engine, err := penstock.New(upper, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, items := range [][]string{{"a", "b"}, {"c"}} {
		fmt.Println(penstock.Values(engine.ProcessAll(context.Background(), items)))
	}
	// Output:
	// [A B] <nil>
	// [C] <nil>
}

// Also a run that fails returns a task for each item.
func ExampleEngine_ProcessAll() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	engine, err := penstock.New(func(_ context.Context, n int) (int, error) {
		if n == 2 {
			cancel(errors.New("the operator has had enough"))
		}
		return 10 * n, nil
	}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, err := engine.ProcessAll(ctx, []int{1, 2, 3})
	fmt.Println("the run:", err)
	for _, task := range tasks {
		fmt.Println(task.Data, task.Outcome, task.Result)
	}
	// Output:
	// the run: context canceled: the operator has had enough
	// 1 succeeded 10
	// 2 succeeded 20
	// 3 unfinished 0
}

// The same for any source. Only the list of tasks grows with the number of items.
func ExampleEngine_ProcessSource() {
	engine, err := penstock.New(upper, 4)
	if err != nil {
		fmt.Println(err)
		return
	}
	words := strings.SplitSeq("alpha beta gamma", " ")
	tasks, err := engine.ProcessSource(context.Background(), penstock.FromSeq(words))
	for _, task := range tasks {
		fmt.Println(task.Index, task.Result)
	}
	fmt.Println(err)
	// Output:
	// 0 ALPHA
	// 1 BETA
	// 2 GAMMA
	// <nil>
}

// The totals of all runs of an engine.
func ExampleEngine_Counters() {
	engine, err := penstock.New(upper, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		if _, err := engine.ProcessAll(context.Background(), []string{"a", "", "c"}); err != nil {
			fmt.Println(err)
		}
	}
	c := engine.Counters()
	fmt.Println(c.Succeeded, "succeeded,", c.Failed, "failed")
	// Output: 4 succeeded, 2 failed
}

// All or nothing: the results alone, or every failure.
func ExampleValues() {
	engine, err := penstock.New(upper, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(penstock.Values(engine.ProcessAll(context.Background(), []string{"a", "b"})))
	fmt.Println(penstock.Values(engine.ProcessAll(context.Background(), []string{"a", ""})))
	// Output:
	// [A B] <nil>
	// [] task 1: nothing to do
}

// A Task says what came in, what came out, and how it went.
func ExampleTask() {
	engine, err := penstock.New(upper, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, _ := engine.ProcessAll(context.Background(), []string{"a", ""})
	for _, t := range tasks {
		fmt.Printf("task %s: %q -> %q, %v after %d attempt, error: %v\n", t.ID(), t.Data, t.Result, t.Outcome, t.Attempts, t.Err)
	}
	// Output:
	// task 0: "a" -> "A", succeeded after 1 attempt, error: <nil>
	// task 1: "" -> "", failed after 1 attempt, error: nothing to do
}

// Every task ends in one of four ways.
func ExampleOutcome() {
	for _, o := range []penstock.Outcome{penstock.Succeeded, penstock.Failed, penstock.Shed, penstock.Unfinished} {
		fmt.Println(o)
	}
	// Output:
	// succeeded
	// failed
	// shed
	// unfinished
}

// A handler that behaves differently on a retry.
func ExampleAttemptNumber() {
	engine, err := penstock.New(func(ctx context.Context, n int) (string, error) {
		if attempt := penstock.AttemptNumber(ctx); attempt < n {
			return "", fmt.Errorf("attempt %d failed", attempt)
		}
		return fmt.Sprintf("attempt %d worked", n), nil
	}, 1, penstock.WithRetry(retry.Policy{Max: 2}))
	if err != nil {
		fmt.Println(err)
		return
	}
	tasks, _ := engine.ProcessAll(context.Background(), []int{1, 3, 4})
	for _, task := range tasks {
		fmt.Println(task.Value())
	}
	// Output:
	// attempt 1 worked <nil>
	// attempt 3 worked <nil>
	//  attempt 3 failed
}
