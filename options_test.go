package penstock_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// faults lists the options that an error of New complains about.
func faults(err error) (names []string) {
	var walk func(error)
	walk = func(err error) {
		if one, ok := err.(*penstock.OptionError); ok {
			names = append(names, one.Option)
		} else if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range many.Unwrap() {
				walk(err)
			}
		} else if err != nil {
			names = append(names, "not an OptionError: "+err.Error())
		}
	}
	walk(err)
	return names
}

// tryless is a limiter that cannot be asked to refuse.
var tryless = ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return nil })

func TestBadOptions(t *testing.T) {
	var noLimiter *ratelimiter.TokenBucket // what is left of a constructor that failed
	for _, c := range []struct {
		name   string
		opt    penstock.Option
		option string // that is complained about
		text   string // that the complaint contains
	}{
		{"a nil option", nil, "options", "option 1 is nil"},
		{"a nil limiter", penstock.WithLimiter(nil), "WithLimiter", "nil"},
		{"a nil limiter of some type", penstock.WithLimiter(noLimiter), "WithLimiter", "nil"},
		{"a nil limiter func", penstock.WithLimiter(ratelimiter.Func(nil)), "WithLimiter", "nil"},
		{"a nil breaker", penstock.WithBreaker(nil), "WithBreaker", "nil"},
		{"C11 no attempt timeout", penstock.WithAttemptTimeout(0), "WithAttemptTimeout", "0s"},
		{"C11 a negative attempt timeout", penstock.WithAttemptTimeout(-time.Second), "WithAttemptTimeout", "-1s"},
		{"no task timeout", penstock.WithTaskTimeout(0), "WithTaskTimeout", "0s"},
		{"a negative task timeout", penstock.WithTaskTimeout(-1), "WithTaskTimeout", "-1ns"},
		{"C12 no start timeout", penstock.WithStartTimeout(0), "WithStartTimeout", "0s"},
		{"C12 a negative start timeout", penstock.WithStartTimeout(-1), "WithStartTimeout", "-1ns"},
		{"C10 a failure limit of 0", penstock.WithFailureLimit(0), "WithFailureLimit", "is 0"},
		{"C10 a negative failure limit", penstock.WithFailureLimit(-1), "WithFailureLimit", "is -1"},
		{"C4 an input capacity of 0", penstock.WithInputCapacity(0), "WithInputCapacity", "Unlimited"},
		{"C5 a negative input capacity", penstock.WithInputCapacity(-3), "WithInputCapacity", "is -3"},
		{"C7 a result capacity of 0", penstock.WithResultCapacity(0), "WithResultCapacity", "Unlimited"},
		{"C8 a negative result capacity", penstock.WithResultCapacity(-1), "WithResultCapacity", "is -1"},
		{"H12 a batch of 0", penstock.WithBatch(0), "WithBatch", "is 0"},
		{"H12 a negative batch", penstock.WithBatch(-1), "WithBatch", "is -1"},
		{"C9 a negative number of retries", penstock.WithRetry(retry.Policy{Max: -1}), "WithRetry", "-1"},
		{"a negative cap on Retry-After", penstock.WithRetry(retry.Policy{MaxRetryAfter: -1}), "WithRetry", "MaxRetryAfter"},
		{"a key for other items", penstock.WithKey(func(string) string { return "" }), "WithKey", "the items are int"},
		{"a cost for other items", penstock.WithCost(func(int64) int { return 1 }), "WithCost", "func(int64) int"},
		{"a priority for other items", penstock.WithPriority(func(*int) int { return 1 }), "WithPriority", "func(int) int"},
		{"a nil key", penstock.WithKey[int](nil), "WithKey", "nil"},
		{"a nil cost", penstock.WithCost[int](nil), "WithCost", "nil"},
		{"a nil priority", penstock.WithPriority[int](nil), "WithPriority", "nil"},
		{"a nil key for other items", penstock.WithKey[string](nil), "WithKey", "the items are int"},
		{"shedding without a limiter", penstock.WithShed(time.Second), "WithShed", "no limiter"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := penstock.New(double, 1, c.opt)
			if e != nil || !slices.Equal(faults(err), []string{c.option}) {
				t.Fatalf("an engine: %v, complaints about %q", e != nil, faults(err))
			}
			if !strings.Contains(err.Error(), c.text) || !strings.HasPrefix(err.Error(), "penstock: "+c.option+": ") {
				t.Errorf("%q should mention %q", err, c.text)
			}
		})
	}
	for name, opts := range map[string][]penstock.Option{
		"shedding by a limiter that cannot": {penstock.WithLimiter(tryless), penstock.WithShed(0)},
		"shedding after a negative wait":    {penstock.WithLimiter(perSecond(t, 1)), penstock.WithShed(-1)},
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := penstock.New(double, 1, opts...); e != nil || !slices.Equal(faults(err), []string{"WithShed"}) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("C2 no workers, C1 no handler", func(t *testing.T) {
		for _, workers := range []int{0, -1} {
			if e, err := penstock.New(double, workers); e != nil || !slices.Equal(faults(err), []string{"workers"}) {
				t.Errorf("%d workers: %v", workers, err)
			}
		}
		if e, err := penstock.New[int, int](nil, 1); e != nil || !slices.Equal(faults(err), []string{"handler"}) {
			t.Error(err)
		}
	})
	t.Run("one error names every fault", func(t *testing.T) {
		e, err := penstock.New[int, int](nil, 0,
			penstock.WithLimiter(noLimiter), nil, penstock.WithAttemptTimeout(-1), penstock.WithTaskTimeout(0), penstock.WithStartTimeout(0),
			penstock.WithFailureLimit(0), penstock.WithInputCapacity(-1), penstock.WithResultCapacity(0), penstock.WithBatch(0),
			penstock.WithKey(func(string) string { return "" }), penstock.WithCost(func(string) int { return 0 }),
			penstock.WithPriority(func(string) int { return 0 }), penstock.WithRetry(retry.Policy{Max: -1}))
		got := faults(err)
		slices.Sort(got)
		want := []string{"WithAttemptTimeout", "WithBatch", "WithCost", "WithFailureLimit", "WithInputCapacity", "WithKey", "WithLimiter",
			"WithPriority", "WithResultCapacity", "WithRetry", "WithStartTimeout", "WithTaskTimeout", "handler", "options", "workers"}
		if e != nil || !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		var one *penstock.OptionError
		if !errors.As(err, &one) || one.Problem == "" {
			t.Errorf("%+v", one)
		}
		if lines := strings.Split(err.Error(), "\n"); len(lines) != len(want) {
			t.Errorf("%d lines for %d faults:\n%v", len(lines), len(want), err)
		}
	})
}

func TestSubmitOptionsAreChecked(t *testing.T) {
	run := newInts(t, double, 1).Start(t.Context())
	var fault *penstock.OptionError
	if id, err := run.Submit(t.Context(), 1, penstock.WithID("x"), nil); !errors.As(err, &fault) || fault.Option != "Submit" || id != "" {
		t.Errorf("%q, %v", id, err)
	}
	mustSubmit(t, run, 2)
	run.CloseInput()
	if tasks, err := drainRun(t, run); err != penstock.ErrNoMoreResults || len(tasks) != 1 || tasks[0].Data != 2 {
		t.Errorf("%v, %v", tasks, err)
	}
}

func perSecond(t testing.TB, n int) *ratelimiter.TokenBucket {
	t.Helper()
	b, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(n))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoodOptions(t *testing.T) {
	t.Run("C9 C14 an engine without options calls each handler once and starts nothing by itself", func(t *testing.T) {
		calls := 0
		e := newInts(t, func(context.Context, int) (int, error) {
			calls++
			return 0, errX
		}, 1)
		if c := e.Counters(); c != (penstock.Counters{}) || calls != 0 {
			t.Errorf("%+v, %d calls", c, calls)
		}
		tasks, err := e.ProcessAll(background, numbers(3))
		if c := tally(t, tasks); err != nil || calls != 3 || c != (penstock.Counters{Failed: 3}) {
			t.Errorf("%d calls, %+v, %v", calls, c, err)
		}
	})
	t.Run("C3 C6 both capacities are the number of workers, if not said otherwise", func(t *testing.T) {
		for _, c := range []struct {
			workers, accepted int
			opts              []penstock.Option
		}{
			{1, 3, nil},
			{2, 6, nil},
			{5, 15, nil},
			{2, 2 + 2 + 7, []penstock.Option{penstock.WithInputCapacity(7)}},
			{2, 2 + 2 + 7, []penstock.Option{penstock.WithResultCapacity(7)}},
			{2, 2 + 1 + 1, []penstock.Option{penstock.WithResultCapacity(1), penstock.WithInputCapacity(1)}},
		} {
			synctest.Test(t, func(t *testing.T) {
				run := newInts(t, double, c.workers, c.opts...).Start(background)
				ctx, cancel := context.WithTimeout(background, time.Second)
				defer cancel()
				accepted := 0
				for {
					synctest.Wait()
					if _, err := run.Submit(ctx, 1); err != nil {
						break
					}
					accepted++
				}
				if accepted != c.accepted {
					t.Errorf("%+v: %d accepted", c, accepted)
				}
				if err := run.Stop(background); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Run("C4 unlimited capacities take everything", func(t *testing.T) {
		gate := make(chan struct{})
		run := newInts(t, until(gate), 1, penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited)).Start(background)
		mustSubmit(t, run, numbers(500)...)
		close(gate)
		if err := run.Finish(background); err != nil || len(run.Drain()) != 500 {
			t.Error(err)
		}
	})
	t.Run("B9 options serve many engines, and each engine many runs, without wearing out", func(t *testing.T) {
		hooked := new(atomic.Int32)
		opts := []penstock.Option{penstock.WithHooks(penstock.Hooks{TaskDone: func(context.Context, penstock.TaskInfo) { hooked.Add(1) }})}
		for range 3 {
			e := newInts(t, double, 2, opts...)
			for range 2 {
				if _, err := e.ProcessAll(background, numbers(5)); err != nil {
					t.Error(err)
				}
			}
		}
		if hooked.Load() != 30 {
			t.Errorf("%d hooks for 30 items", hooked.Load())
		}
	})
	t.Run("a nil logger is none", func(t *testing.T) {
		if _, err := newInts(t, double, 1, penstock.WithLogger(nil)).ProcessAll(background, numbers(2)); err != nil {
			t.Error(err)
		}
	})
}

func TestOptionTwice(t *testing.T) {
	t.Run("the last one wins, also over a bad one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var keys []string
			e := newInts(t, func(ctx context.Context, n int) (int, error) {
				return n, pause(ctx, time.Hour)
			}, 1,
				penstock.WithAttemptTimeout(-1), penstock.WithAttemptTimeout(time.Second),
				penstock.WithInputCapacity(0), penstock.WithInputCapacity(1),
				penstock.WithLimiter(nil), penstock.WithLimiter(ratelimiter.Func(func(_ context.Context, r ratelimiter.Request) error {
					keys = append(keys, r.Key)
					return nil
				})),
				penstock.WithRetry(retry.Policy{Max: 7}), penstock.WithRetry(retry.Policy{Max: 1}),
				penstock.WithKey(func(string) string { return "" }), penstock.WithKey(func(int) string { return "first" }),
				penstock.WithKey(func(int) string { return "last" }))
			start := time.Now()
			tasks, err := e.ProcessAll(background, numbers(1))
			var timeout *penstock.TimeoutError
			if err != nil || !errors.As(tasks[0].Err, &timeout) || timeout.Limit != time.Second || tasks[0].Attempts != 2 {
				t.Errorf("%+v, %v", tasks[0], err)
			}
			if time.Since(start) != 2*time.Second || !slices.Equal(keys, []string{"last", "last"}) {
				t.Errorf("after %v, keys %q", time.Since(start), keys)
			}
		})
	})
	t.Run("the last one counts, also after a good one", func(t *testing.T) {
		_, err := penstock.New(double, 1, penstock.WithBatch(4), penstock.WithBatch(0))
		if !slices.Equal(faults(err), []string{"WithBatch"}) {
			t.Error(err)
		}
	})
	t.Run("all hooks are called, in the order they were given", func(t *testing.T) {
		var calls []string
		hook := func(name string) penstock.Option {
			return penstock.WithHooks(penstock.Hooks{
				AttemptStarted: func(context.Context, penstock.Attempt) { calls = append(calls, name+" started") },
				TaskDone:       func(context.Context, penstock.TaskInfo) { calls = append(calls, name+" done") },
			})
		}
		e := newInts(t, double, 1, hook("a"), penstock.WithHooks(penstock.Hooks{}), hook("b"))
		if _, err := e.ProcessAll(background, numbers(1)); err != nil {
			t.Error(err)
		}
		if want := []string{"a started", "b started", "a done", "b done"}; !slices.Equal(calls, want) {
			t.Errorf("%q", calls)
		}
	})
}

// logCalls is a log handler that calls a function.
type logCalls func(slog.Record)

func (logCalls) Enabled(context.Context, slog.Level) bool        { return true }
func (f logCalls) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f logCalls) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f logCalls) WithGroup(string) slog.Handler                 { return f }

// The user's functions are called without a lock held: they may ask the engine and its runs for what there is to ask.
func TestCallbacksMayAsk(t *testing.T) {
	watch(t)
	var e *intEngine
	var run *intRun
	asked := map[string]int{}
	ask := func(who string) {
		if e != nil {
			e.Counters()
		}
		if run != nil {
			run.Counters()
			run.Drain()
			run.Err()
		}
		asked[who]++
	}
	who := func(name string) func(int) int { return func(int) int { ask(name); return 1 } }
	e = newInts(t, func(ctx context.Context, n int) (int, error) {
		ask("handler")
		if penstock.AttemptNumber(ctx) == 1 {
			return 0, errX
		}
		return n, nil
	}, 1,
		penstock.WithLogger(slog.New(logCalls(func(r slog.Record) { ask("log: " + r.Message) }))),
		penstock.WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error { ask("limiter"); return nil })),
		penstock.WithKey(func(int) string { ask("key"); return "" }),
		penstock.WithCost(who("cost")), penstock.WithPriority(who("priority")),
		penstock.WithRetry(retry.Policy{Max: 1, Backoff: func(int, error) time.Duration { ask("backoff"); return 0 }, If: func(error) bool { ask("if"); return true }}),
		penstock.WithHooks(penstock.Hooks{
			AttemptStarted: func(context.Context, penstock.Attempt) { ask("AttemptStarted") },
			AttemptEnded:   func(context.Context, penstock.Attempt, error) { ask("AttemptEnded") },
			RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) { ask("RetryScheduled") },
			TaskDone:       func(context.Context, penstock.TaskInfo) { ask("TaskDone") },
			RunEnded:       func(context.Context, penstock.Counters, error) { ask("RunEnded") },
		}))
	if _, err := e.ProcessAll(background, numbers(2)); err != nil {
		t.Error(err)
	}
	run = e.Start(background)
	if _, err := run.Do(background, 1); err != nil {
		t.Error(err)
	}
	if err := run.Finish(background); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"handler", "limiter", "key", "cost", "priority", "backoff", "if", "AttemptStarted", "AttemptEnded",
		"RetryScheduled", "TaskDone", "RunEnded", "log: run started", "log: run ended", "log: attempt failed", "log: retry scheduled"} {
		if asked[name] == 0 {
			t.Errorf("%q was never called: %v", name, asked)
		}
	}
}
