package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock"
)

// startSquares starts a run of an engine with one worker.
func startSquares(opts ...penstock.Option) *penstock.Run[int, int] {
	engine, err := penstock.New(square, 1, opts...)
	if err != nil {
		panic(err)
	}
	return engine.Start(context.Background())
}

// A long-lived producer and a consumer.
func ExampleRun() {
	run := startSquares()
	go func() {
		defer run.CloseInput()
		for n := range 5 {
			if _, err := run.Submit(context.Background(), n); err != nil {
				fmt.Println(err)
				return
			}
		}
	}()
	for task, err := range run.Results() {
		if err != nil {
			fmt.Println("the run failed:", err)
			return
		}
		fmt.Println(task.Data, task.Result)
	}
	// Output:
	// 0 0
	// 1 1
	// 2 4
	// 3 9
	// 4 16
}

func ExampleEngine_Start() {
	engine, err := penstock.New(square, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, b := engine.Start(context.Background()), engine.Start(context.Background()) // they may overlap
	for _, run := range []*penstock.Run[int, int]{a, b} {
		id, err := run.Submit(context.Background(), 7)
		fmt.Println(id, err)
	}
	fmt.Println(a.Finish(context.Background()), b.Stop(context.Background()))
	// Output:
	// 0 <nil>
	// 0 <nil>
	// <nil> <nil>
}

// Submit accepts an item or says why not, and then nobody will see it.
func ExampleRun_Submit() {
	run := startSquares(penstock.WithInputCapacity(1), penstock.WithResultCapacity(1))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for n := 0; ; n++ { // nobody reads, so at some point there is no more room
		if _, err := run.Submit(ctx, n); err != nil {
			fmt.Println(n, "was not accepted:", err)
			break
		}
	}
	run.CloseInput()
	for task := range run.Results() {
		fmt.Println(task.Result)
	}
	// Output:
	// 3 was not accepted: penstock: no room for another item: 1 pending, 0 running, 1 results unread: context deadline exceeded
	// 0
	// 1
	// 4
}

func ExampleSubmitOption() {
	run := startSquares()
	id, err := run.Submit(context.Background(), 7, penstock.WithID("seven"), penstock.AtPriority(-1))
	fmt.Println(id, err)
	fmt.Println(run.Finish(context.Background()))
	// Output:
	// seven <nil>
	// <nil>
}

func ExampleWithID() {
	run := startSquares(penstock.WithResultCapacity(2))
	run.Submit(context.Background(), 7, penstock.WithID("seven"))
	run.Submit(context.Background(), 8)
	run.CloseInput()
	for task := range run.Results() {
		fmt.Println(task.ID(), task.Result)
	}
	// Output:
	// seven 49
	// 1 64
}

// Pending items overtake each other by priority, lower first.
func ExampleAtPriority() {
	busy := make(chan struct{})
	engine, err := penstock.New(func(_ context.Context, name string) (string, error) {
		<-busy
		return name, nil
	}, 1, penstock.WithInputCapacity(5), penstock.WithResultCapacity(5))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	run := engine.Start(ctx)
	run.Submit(ctx, "first come")
	run.Submit(ctx, "whenever", penstock.AtPriority(10))
	run.Submit(ctx, "urgent", penstock.AtPriority(-10))
	run.Submit(ctx, "normal")
	close(busy)
	run.CloseInput()
	for task := range run.Results() {
		fmt.Println(task.Result)
	}
	// Output:
	// first come
	// urgent
	// normal
	// whenever
}

// Many callers share one run; each gets its own reply.
func ExampleRun_Do() {
	run := startSquares()
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			if v, err := run.Do(context.Background(), n); err != nil || v != n*n {
				fmt.Println(n, v, err)
			}
		})
	}
	wg.Wait()
	fmt.Println(run.Finish(context.Background()), run.Counters().Succeeded)
	// Output: <nil> 3
}

func ExampleRun_Next() {
	run := startSquares()
	run.Submit(context.Background(), 3)
	run.CloseInput()
	for {
		task, err := run.Next(context.Background())
		if errors.Is(err, penstock.ErrNoMoreResults) {
			break
		}
		if err != nil {
			fmt.Println("the run failed:", err)
			break
		}
		fmt.Println(task.Result)
	}
	// Output: 9
}

// A loop over the results may be left and taken up again: the run goes on.
func ExampleRun_Results() {
	run := startSquares()
	run.Submit(context.Background(), 3)
	run.Submit(context.Background(), 4)
	for task := range run.Results() {
		fmt.Println(task.Result)
		break
	}
	run.CloseInput()
	for task := range run.Results() {
		fmt.Println(task.Result)
	}
	// Output:
	// 9
	// 16
}

func ExampleRun_Drain() {
	run := startSquares(penstock.WithResultCapacity(penstock.Unlimited))
	fmt.Println(len(run.Drain()))
	for n := range 100 {
		run.Submit(context.Background(), n)
	}
	if err := run.Finish(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(run.Drain()))
	// Output:
	// 0
	// 100
}

func ExampleRun_CloseInput() {
	run := startSquares()
	run.Submit(context.Background(), 3)
	run.CloseInput()
	_, err := run.Submit(context.Background(), 4)
	fmt.Println(errors.Is(err, penstock.ErrInputClosed))
	<-run.Done() // what was accepted is done all the same
	fmt.Println(len(run.Drain()))
	// Output:
	// true
	// 1
}

// A shutdown as of an HTTP server: some time to finish, and then an end.
func ExampleRun_Finish() {
	run := startSquares()
	run.Submit(context.Background(), 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run.Finish(ctx); err != nil {
		fmt.Println("not done in time:", err)
		run.Stop(context.Background())
	}
	fmt.Println(len(run.Drain()), "result")
	// Output: 1 result
}

// Stop cuts everything off, and says what became of it.
func ExampleRun_Stop() {
	engine, err := penstock.New(func(ctx context.Context, n int) (int, error) {
		<-ctx.Done() // as a request does that was given ctx
		return 0, ctx.Err()
	}, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	run := engine.Start(context.Background())
	run.Submit(context.Background(), 1)
	run.Submit(context.Background(), 2)
	fmt.Println("stop:", run.Stop(context.Background()))
	for task, err := range run.Results() {
		if err != nil {
			fmt.Println("the run:", err)
			return
		}
		fmt.Println(task.Data, task.Outcome)
	}
	// Unordered output:
	// stop: <nil>
	// 1 unfinished
	// 2 unfinished
	// the run: penstock: stopped
}

func ExampleRun_Done() {
	run := startSquares()
	run.CloseInput()
	select {
	case <-run.Done():
		fmt.Println("the run has ended:", run.Err())
	case <-time.After(time.Minute):
		fmt.Println("it takes its time")
	}
	// Output: the run has ended: <nil>
}

func ExampleRun_Err() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	engine, err := penstock.New(square, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	run := engine.Start(ctx)
	fmt.Println(run.Err()) // none yet
	cancel(errors.New("the lights are out"))
	<-run.Done()
	fmt.Println(run.Err())
	// Output:
	// <nil>
	// context canceled: the lights are out
}

func ExampleRun_Counters() {
	run := startSquares(penstock.WithResultCapacity(penstock.Unlimited))
	for n := range 3 {
		run.Submit(context.Background(), n)
	}
	run.Finish(context.Background())
	c := run.Counters()
	fmt.Println(c.Pending, "pending,", c.Running, "running,", c.Succeeded, "succeeded")
	// Output: 0 pending, 0 running, 3 succeeded
}

// Counters of several engines can be added up.
func ExampleCounters() {
	a := penstock.Counters{Succeeded: 2, Retries: 1}
	b := penstock.Counters{Succeeded: 1, Failed: 1}
	sum := a.Plus(b)
	fmt.Println(sum.Succeeded, sum.Failed, sum.Retries, sum.Ended())
	// Output: 3 1 1 4
}
