package foreman_test

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

	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

var errOne = errors.New("one")

// bubble runs a subtest in a bubble: its clock moves only when everybody waits, and it fails when a goroutine is left.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", what, diff)
	}
}

func is(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
}

func double(_ context.Context, n int) (int, error) { return 2 * n, nil }

func hang(ctx context.Context, _ int) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func newForeman(t *testing.T, workers int, h func(context.Context, int) (int, error), opts ...foreman.Option) *foreman.Foreman[int, int] {
	t.Helper()
	f, err := foreman.New(h, workers, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func start(t *testing.T, f *foreman.Foreman[int, int]) {
	t.Helper()
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func item(n int) foreman.Task[int, int] { return foreman.Task[int, int]{Index: n, Data: n} }

func add(t *testing.T, f *foreman.Foreman[int, int], items ...int) {
	t.Helper()
	for _, n := range items {
		if err := f.Add(t.Context(), item(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// rest reads until an error comes.
func rest(t *testing.T, f *foreman.Foreman[int, int]) ([]foreman.Task[int, int], error) {
	t.Helper()
	var tasks []foreman.Task[int, int]
	for {
		task, err := f.Next(t.Context())
		if err != nil {
			return tasks, err
		}
		tasks = append(tasks, task)
	}
}

func data(tasks []foreman.Task[int, int]) []int {
	var items []int
	for _, task := range tasks {
		items = append(items, task.Data)
	}
	slices.Sort(items)
	return items
}

func TestForeman(t *testing.T) {
	bubble(t, "FM1 bad arguments are all named", func(t *testing.T) {
		_, err := foreman.New[int, int](nil, 0, foreman.WithAttemptTimeout(-1), foreman.WithKey(func(string) string { return "" }))
		var names []string
		joined, _ := err.(interface{ Unwrap() []error })
		for _, one := range joined.Unwrap() {
			if fault, ok := errors.AsType[*foreman.OptionError](one); ok {
				names = append(names, fault.Option)
			}
		}
		slices.Sort(names)
		expect(t, "faults", names, []string{"WithAttemptTimeout", "WithKey", "handler", "workers"})
	})

	bubble(t, "FM1 both queues are unlimited by default", func(t *testing.T) {
		f := newForeman(t, 1, double)
		for n := range 1000 {
			add(t, f, n)
		}
		expect(t, "before Start", f.Counters(), foreman.Counters{Pending: 1000})
		start(t, f)
		if err := f.Finalize(t.Context()); err != nil { // with nobody reading
			t.Error(err)
		}
		expect(t, "after Finalize", f.Counters(), foreman.Counters{Succeeded: 1000})
		tasks, err := rest(t, f)
		expect(t, "results", len(tasks), 1000)
		is(t, err, foreman.ErrNoMoreResults)
	})

	bubble(t, "FM1 bounded ones hold up those who add and those who work", func(t *testing.T) {
		f := newForeman(t, 1, double, foreman.WithInputCapacity(1), foreman.WithResultCapacity(1))
		start(t, f)
		for n := range 9 {
			go f.Add(t.Context(), item(n))
		}
		synctest.Wait()
		// One result is in the buffer, one in the worker's hand.
		expect(t, "counters", f.Counters(), foreman.Counters{Pending: 1, Succeeded: 2})
		for range 9 {
			f.Next(t.Context())
		}
		f.Finalize(t.Context())
	})

	bubble(t, "FM2 tasks can be added before and after Start, and come back ended", func(t *testing.T) {
		f := newForeman(t, 2, func(_ context.Context, n int) (int, error) {
			if n == 2 {
				return 7, errOne
			}
			return 2 * n, nil
		})
		add(t, f, 1)
		start(t, f)
		if err := f.Add(t.Context(), item(2).WithID("two")); err != nil {
			t.Error(err)
		}
		f.Finalize(t.Context())
		tasks, _ := rest(t, f)
		slices.SortFunc(tasks, func(a, b foreman.Task[int, int]) int { return a.Index - b.Index })
		one, two := tasks[0], tasks[1]
		if one.Outcome != foreman.Succeeded || one.Result != 2 || one.Err != nil || one.Attempts != 1 || one.ID() != "1" {
			t.Errorf("got %v", one)
		}
		if two.Outcome != foreman.Failed || two.Result != 0 || two.Err != errOne || two.ID() != "two" {
			t.Errorf("got %v", two)
		}
	})

	bubble(t, "the caller's index, id and data are kept, everything else is overwritten", func(t *testing.T) {
		f := newForeman(t, 1, double)
		start(t, f)
		dirty := foreman.Task[int, int]{Index: -5, Data: 3, Result: 99, Err: errOne, Attempts: 99, Outcome: foreman.Unfinished}.WithID("x")
		for range 2 { // ids and indices need not be unique
			f.Add(t.Context(), dirty)
			got, err := f.Next(t.Context())
			want := foreman.Task[int, int]{Index: -5, Data: 3, Result: 6, Attempts: 1, Outcome: foreman.Succeeded}.WithID("x")
			if got != want || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
		}
		f.Stop()
	})

	bubble(t, "FM3 nothing is retried without a policy; with one it is as in an engine", func(t *testing.T) {
		for extra := range 3 {
			f := newForeman(t, 1, func(context.Context, int) (int, error) { return 0, errOne }, foreman.WithRetry(retry.Policy{Max: extra}))
			start(t, f)
			add(t, f, 1)
			f.Finalize(t.Context())
			expect(t, "counters", f.Counters(), foreman.Counters{Failed: 1, Retries: extra})
		}
	})

	bubble(t, "FM4 Finalize waits for all priorities and refuses what comes later", func(t *testing.T) {
		var order []int
		f := newForeman(t, 1, func(_ context.Context, n int) (int, error) {
			time.Sleep(time.Second)
			order = append(order, n)
			return n, nil
		}, foreman.WithPriority(func(n int) int { return n }))
		add(t, f, 5, 1, 9, 3, 1)
		start(t, f)
		began := time.Now()
		if err := f.Finalize(t.Context()); err != nil {
			t.Error(err)
		}
		expect(t, "time", time.Since(began), 5*time.Second)
		expect(t, "order", order, []int{1, 1, 3, 5, 9})
		is(t, f.Add(t.Context(), item(1)), foreman.ErrInputClosed)
	})

	bubble(t, "FM4 Finalize gives up with its context, and the work goes on", func(t *testing.T) {
		f := newForeman(t, 1, func(_ context.Context, n int) (int, error) { time.Sleep(time.Minute); return n, nil })
		start(t, f)
		add(t, f, 1)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		is(t, f.Finalize(ctx), context.DeadlineExceeded, errOne)
		if err := f.Finalize(t.Context()); err != nil {
			t.Error(err)
		}
		expect(t, "counters", f.Counters(), foreman.Counters{Succeeded: 1})
	})

	bubble(t, "FM5 Finalize and Stop without Start change nothing", func(t *testing.T) {
		f := newForeman(t, 1, double)
		add(t, f, 1)
		is(t, f.Finalize(t.Context()), foreman.ErrNotStarted)
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		add(t, f, 2)
		start(t, f)
		add(t, f, 3)
		f.Finalize(t.Context())
		tasks, _ := rest(t, f)
		expect(t, "results", data(tasks), []int{1, 2, 3})
	})

	bubble(t, "FM6 after Finalize or Stop, and when all was read, it starts afresh", func(t *testing.T) {
		f := newForeman(t, 2, double)
		for round := range 4 {
			start(t, f)
			if err := f.Start(t.Context()); err == nil {
				t.Error("two Starts at a time")
			}
			expect(t, "counters", f.Counters(), foreman.Counters{})
			add(t, f, 1, 2)
			synctest.Wait()
			if round%2 == 0 {
				f.Finalize(t.Context())
			} else {
				f.Stop()
			}
			if err := f.Start(t.Context()); err == nil {
				t.Error("started although results were not read")
			}
			tasks, err := rest(t, f)
			expect(t, "results", data(tasks), []int{1, 2})
			is(t, err, foreman.ErrNoMoreResults) // a Stop that cut nothing off is none
		}
	})

	bubble(t, "FM7 Stop cancels handlers, waits for them, and leaves nothing without an outcome", func(t *testing.T) {
		f := newForeman(t, 1, func(ctx context.Context, n int) (int, error) {
			<-ctx.Done()
			is(t, context.Cause(ctx), foreman.ErrStopped)
			time.Sleep(time.Minute)
			return 0, ctx.Err()
		})
		start(t, f)
		add(t, f, 1, 2, 3)
		synctest.Wait()
		began := time.Now()
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		expect(t, "time", time.Since(began), time.Minute)
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
		is(t, f.Add(t.Context(), item(1)), foreman.ErrStopped)
		tasks, err := rest(t, f)
		is(t, err, foreman.ErrStopped)
		expect(t, "results", data(tasks), []int{1, 2, 3})
		for _, task := range tasks {
			expect(t, "outcome", task.Outcome, foreman.Unfinished)
			is(t, task.Err, foreman.ErrStopped, context.Canceled)
		}
	})

	bubble(t, "the end of Start's context is a stop with its error", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		f := newForeman(t, 1, hang)
		add(t, f, 1, 2)
		f.Start(ctx)
		is(t, f.Finalize(t.Context()), context.DeadlineExceeded, errOne)
		tasks, err := rest(t, f)
		is(t, err, context.DeadlineExceeded, errOne)
		expect(t, "results", data(tasks), []int{1, 2})
	})

	bubble(t, "FM8 a broken limiter is told of by everyone, after the results", func(t *testing.T) {
		l := ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
			if r.Index == 2 {
				return errOne
			}
			return nil
		})
		f := newForeman(t, 1, double, foreman.WithLimiter(l))
		start(t, f)
		add(t, f, 1, 2)
		tasks, err := rest(t, f)
		expect(t, "results", data(tasks), []int{1, 2})
		broken, ok := errors.AsType[*foreman.LimiterError](err)
		if !ok || broken.Err != errOne || broken.Task != "2" {
			t.Errorf("got %v", err)
		}
		for who, got := range map[string]error{"Add": f.Add(t.Context(), item(3)), "Finalize": f.Finalize(t.Context()), "Stop": f.Stop()} {
			if got != err {
				t.Errorf("%s: %v", who, got)
			}
		}
		if err := f.Start(t.Context()); err != nil {
			t.Error("after a failure it starts afresh, too:", err)
		}
		f.Stop()
	})

	bubble(t, "FM8 a reader who waits when the workers fail is told why, every time", func(t *testing.T) {
		f := newForeman(t, 1, double, foreman.WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return errOne })))
		for range 50 {
			start(t, f)
			go f.Add(t.Context(), item(1))
			f.Next(t.Context())
			_, err := f.Next(t.Context())
			is(t, err, errOne)
		}
	})

	bubble(t, "FM9 an add that waits for room is refused by Stop and Finalize", func(t *testing.T) {
		for want, end := range map[error]func(*foreman.Foreman[int, int]){
			foreman.ErrInputClosed: func(f *foreman.Foreman[int, int]) { go f.Finalize(t.Context()) },
			foreman.ErrStopped:     func(f *foreman.Foreman[int, int]) { go f.Stop() },
		} {
			release := make(chan struct{})
			f := newForeman(t, 1, func(context.Context, int) (int, error) { <-release; return 0, nil }, foreman.WithInputCapacity(1))
			start(t, f)
			add(t, f, 1, 2)
			refused := make(chan error)
			go func() { refused <- f.Add(t.Context(), item(3)) }()
			synctest.Wait()
			end(f)
			is(t, <-refused, want)
			close(release)
			tasks, _ := rest(t, f)
			expect(t, "results", data(tasks), []int{1, 2})
			f.Stop()
		}
	})

	bubble(t, "FM11 an add whose context ends was not accepted", func(t *testing.T) {
		f := newForeman(t, 1, double, foreman.WithInputCapacity(1))
		add(t, f, 1)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		is(t, f.Add(ctx, item(2)), context.DeadlineExceeded, errOne)
		is(t, f.Add(ctx, item(3)), context.DeadlineExceeded, errOne)
		expect(t, "counters", f.Counters(), foreman.Counters{Pending: 1})
	})

	bubble(t, "FM12 Next waits for Start as for anything else, until its context ends", func(t *testing.T) {
		f := newForeman(t, 1, double)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		_, err := f.Next(ctx)
		is(t, err, context.DeadlineExceeded, errOne)
		got := make(chan int)
		go func() { task, _ := f.Next(t.Context()); got <- task.Result }()
		synctest.Wait()
		add(t, f, 4)
		start(t, f)
		expect(t, "result", <-got, 8)
		f.Stop()
	})

	bubble(t, "FM13 any value is data, nil too", func(t *testing.T) {
		f, _ := foreman.New(func(_ context.Context, v any) (any, error) { return v, nil }, 1)
		f.Start(t.Context())
		for _, v := range []any{nil, 0, "", foreman.ErrStopped, struct{}{}} {
			f.Add(t.Context(), foreman.Task[any, any]{Data: v})
			task, err := f.Next(t.Context())
			if task.Result != v || task.Outcome != foreman.Succeeded || err != nil {
				t.Errorf("%v came back as %v, %v", v, task.Result, err)
			}
		}
		f.Stop()
	})

	bubble(t, "FM14 workers are numbered from 0, and a task keeps its worker through retries", func(t *testing.T) {
		var mu sync.Mutex
		seen := map[int]map[int]bool{} // task -> workers
		workers := map[int]bool{}
		hooks := foreman.Hooks{AttemptStarted: func(_ context.Context, a foreman.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			workers[a.Worker] = true
			if seen[a.Index] == nil {
				seen[a.Index] = map[int]bool{}
			}
			seen[a.Index][a.Worker] = true
		}}
		f := newForeman(t, 3, func(context.Context, int) (int, error) { time.Sleep(time.Second); return 0, errOne },
			foreman.WithHooks(hooks), foreman.WithRetry(retry.Policy{Max: 2}))
		add(t, f, 0, 1, 2, 3, 4, 5)
		start(t, f)
		f.Finalize(t.Context())
		expect(t, "workers", workers, map[int]bool{0: true, 1: true, 2: true})
		for n, by := range seen {
			if len(by) != 1 {
				t.Errorf("task %d was worked on by %v", n, by)
			}
		}
		expect(t, "tasks", len(seen), 6)
	})

	bubble(t, "workers start only for tasks that need one", func(t *testing.T) {
		numbers := map[int]bool{}
		hooks := foreman.Hooks{AttemptStarted: func(_ context.Context, a foreman.Attempt) { numbers[a.Worker] = true }}
		f := newForeman(t, 10_000, double, foreman.WithHooks(hooks))
		start(t, f)
		for n := range 10 {
			add(t, f, n)
			f.Next(t.Context())
			synctest.Wait()
		}
		expect(t, "workers that one task at a time needed", numbers, map[int]bool{0: true})
		f.Stop()
	})

	bubble(t, "WithStartTimeout is for what was added before Start, too", func(t *testing.T) {
		f := newForeman(t, 1, double, foreman.WithStartTimeout(time.Second))
		start(t, f)
		_, err := f.Next(t.Context())
		is(t, err, foreman.ErrStartTimeout)
		f = newForeman(t, 1, double, foreman.WithStartTimeout(time.Second))
		add(t, f, 1)
		start(t, f)
		time.Sleep(time.Hour)
		if err := f.Finalize(t.Context()); err != nil {
			t.Error(err)
		}
	})

	bubble(t, "a panic in the priority function refuses the task and ends the work", func(t *testing.T) {
		f := newForeman(t, 1, hang, foreman.WithPriority(func(n int) int {
			if n == 2 {
				panic(errOne)
			}
			return 0
		}))
		broken := func(err error) {
			t.Helper()
			is(t, err, errOne)
			if e, ok := errors.AsType[*foreman.CallbackError](err); !ok || e.Callback != "priority" {
				t.Errorf("got %v", err)
			}
		}
		broken(f.Add(t.Context(), item(2))) // before Start there is nothing to end
		start(t, f)
		add(t, f, 1)
		broken(f.Add(t.Context(), item(2)))
		broken(f.Finalize(t.Context()))
		expect(t, "counters", f.Counters(), foreman.Counters{Unfinished: 1})
	})

	bubble(t, "a failure limit, with its task readable", func(t *testing.T) {
		f := newForeman(t, 1, func(context.Context, int) (int, error) { return 0, errOne }, foreman.WithFailureLimit(2))
		add(t, f, 1, 2, 3)
		start(t, f)
		tasks, err := rest(t, f)
		if _, ok := errors.AsType[*foreman.TooManyFailuresError](err); !ok {
			t.Errorf("got %v", err)
		}
		expect(t, "results", data(tasks), []int{1, 2, 3})
		expect(t, "outcomes", []foreman.Outcome{tasks[0].Outcome, tasks[1].Outcome, tasks[2].Outcome},
			[]foreman.Outcome{foreman.Failed, foreman.Failed, foreman.Unfinished})
	})
}

// All methods at the same time, under the race detector: every task that was accepted comes back exactly once.
func TestForemanConcurrently(t *testing.T) {
	f := newForeman(t, 4, func(_ context.Context, n int) (int, error) {
		if n%3 == 0 {
			return 0, errOne
		}
		return n, nil
	}, foreman.WithInputCapacity(3), foreman.WithResultCapacity(2), foreman.WithBatch(2))
	for round := range 20 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		accepted, read := map[int]int{}, map[int]int{}
		ready := make(chan struct{})
		wg.Go(func() {
			if err := f.Start(context.Background()); err != nil {
				t.Error(err)
			}
			close(ready)
		})
		wg.Go(func() { f.Counters() }) // beside Start
		<-ready
		for part := range 3 {
			wg.Go(func() {
				for i := range 50 {
					if n := 50*part + i; f.Add(context.Background(), item(n)) == nil {
						mu.Lock()
						accepted[n]++
						mu.Unlock()
					}
				}
			})
			wg.Go(func() {
				for {
					task, err := f.Next(context.Background())
					if err != nil {
						return
					}
					mu.Lock()
					read[task.Data]++
					mu.Unlock()
					f.Counters()
				}
			})
		}
		wg.Go(func() {
			for range round {
				time.Sleep(time.Microsecond)
			}
			if round%2 == 0 {
				f.Finalize(context.Background())
			} else {
				f.Stop()
			}
		})
		wg.Wait()
		expect(t, fmt.Sprintf("read in round %d", round), read, accepted)
		expect(t, "ended", f.Counters().Ended(), len(accepted))
	}
}

func TestErrorTexts(t *testing.T) {
	excess := &ratelimiter.ExcessError{Limit: "token bucket 10/s", RetryAfter: time.Second}
	for want, err := range map[string]error{
		"penstock: task 3: attempt timed out after 1s":                                              &foreman.TimeoutError{Task: "3", Scope: "attempt", Limit: time.Second, During: "handler"},
		"penstock: task 3: task timed out after 1s while waiting for the limiter (last error: one)": &foreman.TimeoutError{Task: "3", Scope: "task", Limit: time.Second, During: "limiter", Err: errOne},
		"penstock: task 3: task timed out after 1s while waiting to retry (last error: one)":        &foreman.TimeoutError{Task: "3", Scope: "task", Limit: time.Second, During: "backoff", Err: errOne},
		"penstock: task 3: task timed out after 1s while waiting for the breaker to close":          &foreman.TimeoutError{Task: "3", Scope: "task", Limit: time.Second, During: "breaker"},
		"penstock: unfinished, waiting for the breaker to close: stopped":                           &foreman.UnfinishedError{During: "breaker", Context: context.Canceled, Cause: foreman.ErrStopped},
		"penstock: not started: stopped":                                                            &foreman.UnfinishedError{During: "queue", Context: context.Canceled, Cause: foreman.ErrStopped},
		"penstock: unfinished, waiting for the limiter: stopped":                                    &foreman.UnfinishedError{During: "limiter", Context: context.Canceled, Cause: foreman.ErrStopped},
		"penstock: unfinished, waiting to retry: stopped (last error: one)":                         &foreman.UnfinishedError{During: "backoff", Context: context.Canceled, Cause: foreman.ErrStopped, Err: errOne},
		"penstock: unfinished: context canceled (last error: one)":                                  &foreman.UnfinishedError{During: "handler", Context: context.Canceled, Cause: context.Canceled, Err: errOne},
		"penstock: panic: one":                                                                      &foreman.PanicError{Value: errOne},
		"penstock: the limiter failed for task 3: panic: one":                                       &foreman.LimiterError{Task: "3", Err: &foreman.PanicError{Value: errOne}},
		"penstock: the backoff function failed for task 3: one":                                     &foreman.CallbackError{Callback: "backoff", Task: "3", Err: errOne},
		"penstock: failure limit of 2 reached with task 3: panic: one":                              &foreman.TooManyFailuresError{Limit: 2, Task: "3", Err: &foreman.PanicError{Value: errOne}},
		"rate_limit: token bucket 10/s for all requests: next grant in 1s: task 3 was shed":         &foreman.ShedError{Task: "3", Err: excess},
		"penstock: WithBatch: is 0: it must be at least 1":                                          &foreman.OptionError{Option: "WithBatch", Problem: "is 0: it must be at least 1"},
		"penstock: stop gave up waiting (context deadline exceeded) with 1 task still running: tas": stillRunning(1),
	} {
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if text := stillRunning(9).Error(); !strings.Contains(text, "9 tasks") || strings.Count(text, "task x") != 5 || !strings.Contains(text, "…") {
		t.Errorf("got %s", text)
	}
}

func stillRunning(n int) error {
	return &foreman.StillRunningError{Tasks: slices.Repeat([]foreman.RunningTask{{ID: "x", For: time.Second}}, n), Err: context.DeadlineExceeded}
}

func TestErrorsUnwrap(t *testing.T) {
	excess := &ratelimiter.ExcessError{}
	for _, c := range []struct {
		err error
		is  []error
		not []error
	}{
		{&foreman.TimeoutError{Err: errOne}, []error{context.DeadlineExceeded, errOne}, []error{context.Canceled}},
		{&foreman.TimeoutError{}, []error{context.DeadlineExceeded}, []error{errOne}},
		{&foreman.UnfinishedError{Context: context.Canceled, Cause: foreman.ErrStopped, Err: errOne}, []error{context.Canceled, foreman.ErrStopped, errOne}, []error{context.DeadlineExceeded}},
		{&foreman.UnfinishedError{Context: context.DeadlineExceeded, Cause: context.DeadlineExceeded}, []error{context.DeadlineExceeded}, []error{context.Canceled}},
		{&foreman.PanicError{Value: errOne}, []error{errOne}, nil},
		{&foreman.ShedError{Err: excess}, []error{excess}, []error{context.DeadlineExceeded}},
		{&foreman.LimiterError{Err: errOne}, []error{errOne}, nil},
		{&foreman.CallbackError{Err: errOne}, []error{errOne}, nil},
		{&foreman.TooManyFailuresError{Err: errOne}, []error{errOne}, nil},
		{&foreman.StillRunningError{Err: errOne}, []error{errOne}, nil},
	} {
		is(t, c.err, c.is...)
		for _, not := range c.not {
			if errors.Is(c.err, not) {
				t.Errorf("%v is %v", c.err, not)
			}
		}
	}
}

func TestContextError(t *testing.T) {
	if err := foreman.ContextError(context.Background()); err != nil {
		t.Errorf("a context that goes on: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errOne)
	is(t, foreman.ContextError(ctx), context.Canceled, errOne)
	expect(t, "text", foreman.ContextError(ctx).Error(), "context canceled: one")
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := foreman.ContextError(ctx); err != context.Canceled {
		t.Errorf("without a cause: %v", err)
	}
	ctx, cancel = context.WithCancelCause(context.Background())
	cause := fmt.Errorf("shutdown: %w", context.Canceled)
	cancel(cause)
	if err := foreman.ContextError(ctx); err != cause {
		t.Errorf("a cause that says it all: %v", err)
	}
}

func TestOutcome(t *testing.T) {
	for o, want := range map[foreman.Outcome]string{
		0: "pending", foreman.Succeeded: "succeeded", foreman.Failed: "failed", foreman.Shed: "shed", foreman.Unfinished: "unfinished", 99: "Outcome(99)",
	} {
		expect(t, "name", o.String(), want)
	}
}

func TestTaskValue(t *testing.T) {
	_, err := foreman.Task[int, int]{Index: 4}.Value()
	if err == nil || !strings.Contains(err.Error(), "task 4 has not ended") {
		t.Errorf("U6 a task that has not ended: %v", err)
	}
	expect(t, "an empty id is the index", foreman.Task[int, int]{Index: 4}.WithID("x").WithID("").ID(), "4")
}
