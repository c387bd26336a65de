package penstock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// What the items of attMisbehave make it do; others are doubled.
const (
	attHangs = -1 - iota
	attPanics
	attGoexits
)

func attMisbehave(ctx context.Context, n int) (int, error) {
	switch n {
	case attHangs:
		return attHang(ctx, n)
	case attPanics:
		panic(errAttOne)
	case attGoexits:
		runtime.Goexit()
	}
	return attDouble(ctx, n)
}

var attSilent = penstock.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))

func TestPanicError(t *testing.T) {
	attTest(t, "K5 a panic in the handler is its task's error, is not retried, and harms nobody", func(t *testing.T) {
		e := attNew(t, 2, attMisbehave, penstock.WithRetry(retry.Policy{Max: 3}))
		tasks, err := e.ProcessAll(t.Context(), []int{1, attPanics, 2, attGoexits, 3})
		if err != nil {
			t.Error(err)
		}
		attExpect(t, "counters", e.Counters(), penstock.Counters{Succeeded: 3, Failed: 2})
		for i, n := range []int{1, 0, 2, 0, 3} {
			if n > 0 && tasks[i].Result != 2*n {
				t.Errorf("got %v", tasks[i])
			}
		}
		panicked := attAs[*penstock.PanicError](t, tasks[1].Err)
		if panicked.Value != errAttOne || tasks[1].Attempts != 1 {
			t.Errorf("got %v, %d attempts", panicked, tasks[1].Attempts)
		}
		if tasks[3].Err != penstock.ErrGoexit || tasks[3].Attempts != 1 {
			t.Errorf("got %v, %d attempts", tasks[3].Err, tasks[3].Attempts)
		}
	})

	attTest(t, "it shows the value, has the stack of the handler, and unwraps to a value that is an error", func(t *testing.T) {
		task, _ := attOne(t, func(context.Context, int) (int, error) { panic("no such row") })
		panicked := attAs[*penstock.PanicError](t, task.Err)
		attExpect(t, "text", panicked.Error(), "penstock: panic: no such row")
		if !bytes.Contains(panicked.Stack, []byte("TestPanicError")) {
			t.Errorf("the stack does not show the handler:\n%s", panicked.Stack)
		}
		attExpect(t, "%v", fmt.Sprintf("%v", panicked), panicked.Error())
		attExpect(t, "%s", fmt.Sprintf("%s", panicked), panicked.Error())
		attExpect(t, "%q", fmt.Sprintf("%q", panicked), fmt.Sprintf("%q", panicked.Error()))
		if text := fmt.Sprintf("%+v", panicked); !strings.HasPrefix(text, panicked.Error()+"\n\n") || !strings.HasSuffix(text, string(panicked.Stack)) {
			t.Errorf("%%+v is %s", text)
		}
		if errors.Unwrap(panicked) != nil {
			t.Error("a string does not unwrap")
		}
		task, _ = attOne(t, attMisbehave)
		attIs(t, &penstock.PanicError{Value: errAttOne}, errAttOne)
	})

	attTest(t, "panic(nil) and a runtime error are panics like any other", func(t *testing.T) {
		task, _ := attOne(t, func(context.Context, int) (int, error) { panic(nil) })
		attAs[*runtime.PanicNilError](t, task.Err)
		task, _ = attOne(t, func(context.Context, int) (int, error) { var none []int; return none[attZero], nil })
		attAs[runtime.Error](t, task.Err)
		attExpect(t, "outcome", task.Outcome, penstock.Failed)
	})

	attTest(t, "a panic in a retry, and in a handler that was told to stop", func(t *testing.T) {
		task, _ := attOne(t, func(ctx context.Context, _ int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				return 0, errAttOne
			}
			<-ctx.Done()
			panic("late")
		}, penstock.WithRetry(retry.Policy{Max: 5}), penstock.WithAttemptTimeout(time.Second))
		attAs[*penstock.PanicError](t, task.Err)
		attExpect(t, "attempts", task.Attempts, 2)
	})

	attTest(t, "a panic after cancellation leaves the task unfinished or failed, its value to be seen", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		task, _ := attOneCtx(ctx, t, func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); panic(errAttOne) })
		attIs(t, task.Err, errAttOne)
		if task.Outcome != penstock.Unfinished && task.Outcome != penstock.Failed {
			t.Errorf("got %v", task)
		}
	})
}

// attBreaks is an error whose methods panic when asked.
type attBreaks struct{}

func (attBreaks) Error() string             { return "breaks" }
func (attBreaks) Is(error) bool             { panic("Is") }
func (attBreaks) RetryAfter() time.Duration { panic("RetryAfter") }

func TestErrorsWhoseMethodsPanic(t *testing.T) {
	for name, h := range map[string]attHandler{
		"returned": func(context.Context, int) (int, error) { return 0, attBreaks{} },
		"panicked": func(context.Context, int) (int, error) { panic(attBreaks{}) },
	} {
		attTest(t, name, func(t *testing.T) {
			l := &attLimiter{observe: func(ratelimiter.Request, error) {}}
			e := attNew(t, 1, h, penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 2}), penstock.WithAttemptTimeout(time.Second), attSilent)
			tasks, _ := e.ProcessAll(t.Context(), attUpTo(3))
			for _, task := range tasks {
				if task.Outcome == penstock.Succeeded || task.Err == nil {
					t.Errorf("got %v", task)
				}
			}
			attExpect(t, "ended", e.Counters().Ended(), 3)
		})
	}
}

func TestLimiterErrorsWhoseMethodsPanic(t *testing.T) {
	for _, shed := range []bool{false, true} {
		attTest(t, fmt.Sprintf("shedding: %v", shed), func(t *testing.T) {
			l := &attLimiter{
				acquire: func(context.Context, ratelimiter.Request) error { return attBreaks{} },
				within:  func(context.Context, ratelimiter.Request, time.Duration) error { return attBreaks{} },
			}
			opts := []penstock.Option{penstock.WithLimiter(l), penstock.WithTaskTimeout(time.Second), attSilent}
			if shed {
				opts = append(opts, penstock.WithShed(0))
			}
			e := attNew(t, 1, attDouble, opts...)
			_, err := e.ProcessAll(t.Context(), attUpTo(3))
			attAs[*penstock.LimiterError](t, err)
			attExpect(t, "counters", e.Counters(), penstock.Counters{Unfinished: 3})
		})
	}
}

// attVictim is the item whose processing runs into the broken piece of the user's code.
const attVictim = 13

// A broken is a piece of the user's code that panics or calls Goexit when it comes to deal with attVictim.
type broken struct {
	name    string
	options func(breaks func(index int)) []penstock.Option
	fails   bool   // the victim's first attempt fails, so that the retry machinery runs
	ends    string // what ends the run: "limiter" or a callback's name; empty: nothing does
	spoils  bool   // the victim itself may come to harm in a panic; hooks must not do that
}

func brokenPieces() []broken {
	hook := func(name string, fails bool, h func(breaks func(int)) penstock.Hooks) broken {
		return broken{name: "hook " + name, fails: fails, options: func(breaks func(int)) []penstock.Option {
			return []penstock.Option{penstock.WithHooks(h(breaks))}
		}}
	}
	limiter := func(name string, fails bool, l func(breaks func(int)) *attLimiter, more ...penstock.Option) broken {
		return broken{name: name, fails: fails, ends: "limiter", spoils: true, options: func(breaks func(int)) []penstock.Option {
			return append(more, penstock.WithLimiter(l(breaks)))
		}}
	}
	policy := func(name, callback string, p func(breaks func(int)) retry.Policy) broken {
		return broken{name: name, fails: true, ends: callback, spoils: true, options: func(breaks func(int)) []penstock.Option {
			policy := p(breaks)
			policy.Max = 2
			return []penstock.Option{penstock.WithRetry(policy)}
		}}
	}
	return []broken{
		hook("AttemptStarted", false, func(breaks func(int)) penstock.Hooks {
			return penstock.Hooks{AttemptStarted: func(_ context.Context, a penstock.Attempt) { breaks(a.Index) }}
		}),
		hook("AttemptEnded", false, func(breaks func(int)) penstock.Hooks {
			return penstock.Hooks{AttemptEnded: func(_ context.Context, a penstock.Attempt, _ error) { breaks(a.Index) }}
		}),
		hook("RetryScheduled", true, func(breaks func(int)) penstock.Hooks {
			return penstock.Hooks{RetryScheduled: func(_ context.Context, a penstock.Attempt, _ error, _ time.Duration) { breaks(a.Index) }}
		}),
		hook("TaskDone", false, func(breaks func(int)) penstock.Hooks {
			return penstock.Hooks{TaskDone: func(_ context.Context, i penstock.TaskInfo) { breaks(i.Index) }}
		}),
		hook("RunEnded", false, func(breaks func(int)) penstock.Hooks {
			return penstock.Hooks{RunEnded: func(context.Context, penstock.Counters, error) { breaks(attVictim) }}
		}),
		limiter("Acquire", false, func(breaks func(int)) *attLimiter {
			return &attLimiter{acquire: func(_ context.Context, r ratelimiter.Request) error { breaks(r.Index); return nil }}
		}),
		limiter("Acquire, for a retry", true, func(breaks func(int)) *attLimiter {
			return &attLimiter{acquire: func(_ context.Context, r ratelimiter.Request) error {
				if r.Attempt == 2 {
					breaks(r.Index)
				}
				return nil
			}}
		}),
		limiter("AcquireWithin", false, func(breaks func(int)) *attLimiter {
			return &attLimiter{within: func(_ context.Context, r ratelimiter.Request, _ time.Duration) error { breaks(r.Index); return nil }}
		}, penstock.WithShed(0)),
		limiter("Observe, of a success", false, func(breaks func(int)) *attLimiter {
			return &attLimiter{observe: func(r ratelimiter.Request, err error) { breaks(r.Index) }}
		}),
		limiter("Observe, of a failure", true, func(breaks func(int)) *attLimiter {
			return &attLimiter{observe: func(r ratelimiter.Request, err error) { breaks(r.Index) }}
		}),
		{name: "key", ends: "key", spoils: true, options: func(breaks func(int)) []penstock.Option {
			return []penstock.Option{penstock.WithLimiter(&attLimiter{}), penstock.WithKey(func(n int) string { breaks(n); return "" })}
		}},
		{name: "cost", ends: "cost", spoils: true, options: func(breaks func(int)) []penstock.Option {
			return []penstock.Option{penstock.WithLimiter(&attLimiter{}), penstock.WithCost(func(n int) int { breaks(n); return 1 })}
		}},
		policy("backoff", "backoff", func(breaks func(int)) retry.Policy {
			return retry.Policy{Backoff: func(int, error) time.Duration { breaks(attVictim); return 0 }}
		}),
		policy("If", "retry", func(breaks func(int)) retry.Policy {
			return retry.Policy{If: func(error) bool { breaks(attVictim); return true }}
		}),
		policy("Unless", "retry", func(breaks func(int)) retry.Policy {
			return retry.Policy{Unless: func(error) bool { breaks(attVictim); return false }}
		}),
	}
}

// attZero hides an index from the compiler.
var attZero = 0

// Whatever the user's code does: one failed task or one failed run, never a dead process, a hung run, a leaked worker
// (the bubble would not end), a task without an outcome or with two, or harm to another task.
func TestBrokenPieces(t *testing.T) {
	const items = 40
	ways := map[string]func(){"panics": func() { panic(errAttTwo) }, "calls Goexit": runtime.Goexit}
	for _, piece := range brokenPieces() {
		for way, do := range ways {
			for _, batch := range []int{1, 8} {
				attTest(t, fmt.Sprintf("%s %s, batch %d", piece.name, way, batch), func(t *testing.T) {
					breaks := func(index int) {
						if index == attVictim {
							do()
						}
					}
					h := func(ctx context.Context, n int) (int, error) {
						if n == attVictim && piece.fails && penstock.AttemptNumber(ctx) == 1 {
							return 0, errAttOne
						}
						return attDouble(ctx, n)
					}
					done := make([]int, items)
					opts := append([]penstock.Option{
						penstock.WithBatch(batch), attSilent, penstock.WithRetry(retry.Policy{Max: 2}),
						penstock.WithHooks(penstock.Hooks{TaskDone: func(_ context.Context, i penstock.TaskInfo) { done[i.Index]++ }}),
					}, piece.options(breaks)...)
					e := attNew(t, 3, h, opts...)

					var tasks []penstock.Task[int, int]
					var ended error
					for task, err := range e.IterResults(t.Context(), penstock.FromSlice(attUpTo(items))) {
						if err != nil {
							ended = err
						} else {
							tasks = append(tasks, task)
						}
					}
					piece.checkRun(t, ended, way)
					piece.checkTasks(t, tasks, ended)
					if ended == nil {
						attExpect(t, "tasks", len(tasks), items)
					}
					attExpect(t, "ended", e.Counters().Ended(), len(tasks))
					for n, times := range done {
						if times > 1 {
							t.Errorf("TaskDone came %d times for item %d", times, n)
						}
					}
				})
			}
		}
	}
}

func (p *broken) checkRun(t *testing.T, err error, way string) {
	t.Helper()
	var inside error
	switch p.ends {
	case "":
		if err != nil {
			t.Errorf("the run ended with %v", err)
		}
		return
	case "limiter":
		inside = attAs[*penstock.LimiterError](t, err).Err
	default:
		callback := attAs[*penstock.CallbackError](t, err)
		attExpect(t, "callback", callback.Callback, p.ends)
		attExpect(t, "its task", callback.Task, "13")
		inside = callback.Err
	}
	if way == "panics" {
		attIs(t, attAs[*penstock.PanicError](t, inside), errAttTwo)
	} else if inside != penstock.ErrGoexit {
		t.Errorf("got %v", inside)
	}
}

func (p *broken) checkTasks(t *testing.T, tasks []penstock.Task[int, int], ended error) {
	t.Helper()
	slices.SortFunc(tasks, func(a, b penstock.Task[int, int]) int { return a.Index - b.Index })
	for i, task := range tasks {
		switch {
		case i > 0 && tasks[i-1].Index == task.Index:
			t.Errorf("item %d came twice", task.Index)
		case (task.Err == nil) != (task.Outcome == penstock.Succeeded):
			t.Errorf("got %v", task)
		case task.Outcome == penstock.Succeeded:
			attExpect(t, "result", task.Result, 2*task.Data)
		case task.Data == attVictim:
			p.checkVictim(t, task)
		case ended != nil && task.Outcome == penstock.Unfinished:
			attIs(t, task.Err, context.Canceled, ended)
		default:
			t.Errorf("came to harm: %v", task)
		}
	}
}

// checkVictim is asked when the victim did not succeed.
func (p *broken) checkVictim(t *testing.T, task penstock.Task[int, int]) {
	t.Helper()
	if p.fails && p.spoils {
		attIs(t, task.Err, errAttOne) // what the handler returned is still to be seen
	}
	// A Goexit in a hook cannot be undone: before the handler it counts as the handler's, after it no retry follows.
	if !p.spoils && task.Err != penstock.ErrGoexit && !(p.fails && task.Err == errAttOne) {
		t.Errorf("a hook decided what became of its task: %v", task)
	}
}

func TestBrokenPriority(t *testing.T) {
	breaks := penstock.WithPriority(func(n int) int {
		switch n {
		case attPanics:
			panic(errAttTwo)
		case attGoexits:
			runtime.Goexit()
		}
		return 0
	})

	attTest(t, "a panic in Submit ends the run, and Submit says why", func(t *testing.T) {
		run := attNew(t, 2, attHang, breaks).Start(t.Context())
		run.Submit(t.Context(), 1)
		_, err := run.Submit(t.Context(), attPanics)
		attExpect(t, "callback", attAs[*penstock.CallbackError](t, err).Callback, "priority")
		attIs(t, attAs[*penstock.PanicError](t, err), errAttTwo)
		<-run.Done()
		attIs(t, run.Err(), err)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 1})
	})

	attTest(t, "a Goexit in Submit or Do is its caller's own, the run goes on", func(t *testing.T) {
		run := attNew(t, 2, attDouble, breaks).Start(t.Context())
		for _, call := range []func(){
			func() { run.Submit(t.Context(), attGoexits) },
			func() { run.Do(t.Context(), attGoexits) },
		} {
			returned := false
			go func() { call(); returned = true }()
			synctest.Wait()
			if returned {
				t.Error("returned")
			}
		}
		if v, err := run.Do(t.Context(), 1); v != 2 || err != nil {
			t.Error(v, err)
		}
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 1})
	})

	for _, n := range []int{attPanics, attGoexits} {
		attTest(t, fmt.Sprintf("in a source it ends the run, way %d", n), func(t *testing.T) {
			e := attNew(t, 2, attDouble, breaks)
			tasks, err := e.ProcessSource(t.Context(), penstock.FromSeq(slices.Values([]int{1, 2, n, 3})))
			if n == attPanics {
				attExpect(t, "callback", attAs[*penstock.CallbackError](t, err).Callback, "priority")
				attIs(t, err, errAttTwo)
			} else {
				attIs(t, err, penstock.ErrGoexit)
			}
			if len(tasks) > 2 {
				t.Errorf("got %v", tasks)
			}
		})
	}
}

func TestBrokenRefund(t *testing.T) {
	for way, do := range map[string]func(){"panics": func() { panic(errAttTwo) }, "calls Goexit": runtime.Goexit} {
		attTest(t, "Adjust "+way, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			l := &attLimiter{
				acquire: func(context.Context, ratelimiter.Request) error { cancel(); return nil },
				adjust:  func(ratelimiter.Request, int) { do() },
			}
			e := attNew(t, 1, attDouble, penstock.WithLimiter(l))
			_, err := e.ProcessAll(ctx, attUpTo(3))
			if err == nil {
				t.Error("no error")
			}
			attExpect(t, "counters", e.Counters(), penstock.Counters{Unfinished: 3})
		})
	}
}

func TestManyGoexits(t *testing.T) {
	attTest(t, "every worker can lose its goroutine, again and again", func(t *testing.T) {
		items := make([]int, 1000)
		for i := range items {
			items[i] = attGoexits + i%2 // Goexit and panic in turn
		}
		for _, batch := range []int{1, 8} {
			e := attNew(t, 4, attMisbehave, penstock.WithBatch(batch))
			seen := 0
			for task, err := range e.IterResults(t.Context(), penstock.FromSlice(items)) {
				if err != nil || task.Outcome != penstock.Failed {
					t.Fatal(task, err)
				}
				seen++
			}
			attExpect(t, "results", seen, len(items))
		}
	})
}
