package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Panics that killed the process, or were kept silent.

// B19, googleapis/go-genai#310: a stream ignored the "stop" answer of the loop body, and a plain break crashed the program.
// Every way out of every loop, at the first result and at later ones.
func TestB19EveryWayOutOfTheLoop(t *testing.T) {
	type loops = map[string]func(t *testing.T, e *engine, s stream, f *feed, body func() bool)
	rangeOver := loops{
		"range": func(t *testing.T, e *engine, s stream, f *feed, body func() bool) {
			for range s.results(e, t.Context(), f.source) {
				if !body() {
					break
				}
			}
		},
		"by hand": func(t *testing.T, e *engine, s stream, f *feed, body func() bool) {
			s.results(e, t.Context(), f.source)(func(task, error) bool { return body() })
		},
	}
	eachStream(t, func(t *testing.T, s stream) {
		for loop, over := range rangeOver {
			for exit, leave := range map[string]func() bool{
				"break":  func() bool { return false },
				"panic":  func() bool { panic(errCause) },
				"goexit": func() bool { runtime.Goexit(); return false },
			} {
				for _, at := range []int{1, 5, 20} {
					bubble(t, func(t *testing.T) {
						before := runtime.NumGoroutine()
						e := newEngine(same, 3)
						f := newFeed(s.kind, 20)
						var recovered any
						seen := 0
						var looping sync.WaitGroup
						looping.Go(func() { // Goexit needs a goroutine to end
							defer func() { recovered = recover() }()
							over(t, e, s, f, func() bool {
								if seen++; seen < at {
									return true
								}
								return leave()
							})
						})
						looping.Wait()
						equal(t, fmt.Sprintf("%s by %s at %d: results", loop, exit, at), seen, at)
						if exit == "panic" {
							equal(t, "what was recovered", recovered, any(errCause))
						} else if recovered != nil {
							t.Errorf("%s by %s at %d: panic %v", loop, exit, at, recovered)
						}
						f.close()
						atBaseline(t, before)
						c := e.Counters()
						equal(t, "still pending or running", c.Pending+c.Running, 0)
					})
				}
			}
		}
	})
}

// Leaving at the run's error, and leaving Results of a run made by hand, which goes on.
func TestB19LeavingAtTheErrorAndLeavingResults(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		bubble(t, func(t *testing.T) {
			e := newEngine(func(context.Context, int) (int, error) { return 0, errX }, 1, penstock.WithFailureLimit(1))
			f := newFeed(s.kind, 5)
			defer f.close()
			for _, err := range s.results(e, t.Context(), f.source) {
				if err != nil {
					break
				}
			}
		})
	})
	bubble(t, func(t *testing.T) {
		run := newEngine(same, 2, penstock.WithResultCapacity(penstock.Unlimited)).Start(t.Context())
		for i := range 10 {
			must(run.Submit(t.Context(), i))
		}
		seen := map[int]bool{}
		for range 5 {
			func() {
				defer func() { equal(t, "what was recovered", recover(), any(errCause)) }()
				for task := range run.Results() {
					seen[task.Index] = true
					panic(errCause)
				}
			}()
		}
		run.CloseInput()
		for task := range run.Results() {
			seen[task.Index] = true
		}
		equal(t, "distinct results", len(seen), 10)
	})
}

type customPanic struct{ code int }

// B34, sourcegraph/conc#106: a panic in one task took the process down, or was silent until the end. Here it is that item's
// error, with the value and a stack, and counts like any failure.
func TestB34PanicIsOneItemsFailure(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for name, value := range map[string]any{"custom": customPanic{42}, "error": errX, "string": "boom", "pointer": &customPanic{1}} {
			for _, failFast := range []bool{false, true} {
				opts := []option{penstock.WithRetry(retry.Policy{Max: 3})} // not for panics
				if failFast {
					opts = append(opts, penstock.WithFailureLimit(1))
				}
				var starts atomic.Int64
				out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
					starts.Add(1)
					if n == 4 {
						explode(value)
					}
					return n, sleep(ctx, ms)
				}, 3, numbers(10), opts...)
				out.account(t, numbers(10))
				var failed *task
				for i, task := range out.byIndex() {
					if task.Outcome == penstock.Failed {
						if task.Index != 4 || failed != nil {
							t.Fatalf("%s: item %d failed: %v", name, task.Index, task.Err)
						}
						failed = &out.byIndex()[i]
					}
				}
				if failed == nil {
					t.Fatal("the item that panicked is missing")
				}
				p := as[*penstock.PanicError](t, failed.Err)
				equal(t, "value", p.Value, value)
				equal(t, "attempts", failed.Attempts, 1)
				if !strings.Contains(string(p.Stack), "casetest_test.explode") {
					t.Errorf("the stack does not show where it was:\n%s", p.Stack)
				}
				if text := p.Error(); strings.Contains(text, "\n") || len(text) > 100 {
					t.Errorf("the text is long: %q", text)
				}
				if name == "error" {
					isAll(t, failed.Err, errX)
				}
				if !failFast {
					equal(t, "error", out.err, nil)
					equal(t, "succeeded", out.having(penstock.Succeeded), 9)
					continue
				}
				as[*penstock.TooManyFailuresError](t, out.err)
				as[*penstock.PanicError](t, out.err)
				if starts.Load() > 7 {
					t.Errorf("%d starts, with a failure at the fifth item and 3 workers", starts.Load())
				}
			}
		}
	})
}

func explode(v any) { panic(v) }

// Panics and Goexits of all kinds, in all handlers at once: every worker lives on, and takes the next item.
func TestB34EveryHandlerPanics(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
			switch n % 5 {
			case 0:
				panic(fmt.Sprint("item ", n))
			case 1:
				var none []int
				_ = none[n]
			case 2:
				runtime.Goexit()
			case 3:
				panic(nil)
			default:
				var nowhere *int
				return *nowhere, nil
			}
			return 0, nil
		}, 4, numbers(60), penstock.WithBatch(3), penstock.WithAttemptTimeout(time.Minute))
		out.account(t, numbers(60))
		equal(t, "failed", out.having(penstock.Failed), 60)
		for _, task := range out.tasks {
			if task.Index%5 == 2 {
				isAll(t, task.Err, penstock.ErrGoexit)
			} else {
				as[*penstock.PanicError](t, task.Err)
			}
		}
	})
}

// B53, temporalio/sdk-go#855: stopping twice, or submitting while stopping, panicked with a send on a closed channel. All
// calls that end a run and all that need it, from many goroutines, in every order.
func TestB53AnyOrderOfEndings(t *testing.T) {
	type run = *penstock.Run[int, int]
	calls := map[string]func(ctx context.Context, r run) error{
		"Stop":       func(ctx context.Context, r run) error { return r.Stop(ctx) },
		"Finish":     func(ctx context.Context, r run) error { return r.Finish(ctx) },
		"CloseInput": func(_ context.Context, r run) error { r.CloseInput(); return nil },
	}
	for first, one := range calls {
		for second, two := range calls {
			t.Run(first+" and "+second, func(t *testing.T) {
				for _, items := range []int{0, 1, 10} {
					for range 10 {
						bubble(t, func(t *testing.T) {
							r := newEngine(same, 2, penstock.WithResultCapacity(penstock.Unlimited)).Start(t.Context())
							var accepted atomic.Int64
							submit := func() {
								switch _, err := r.Submit(t.Context(), 1); {
								case err == nil:
									accepted.Add(1)
								case errors.Is(err, penstock.ErrStopped), errors.Is(err, penstock.ErrInputClosed):
								default:
									t.Error("Submit:", err)
								}
							}
							for range items {
								submit()
							}
							var all sync.WaitGroup
							for range 3 {
								all.Go(func() { _ = one(t.Context(), r) })
								all.Go(submit)
								all.Go(func() { _ = two(t.Context(), r) })
							}
							all.Wait()
							if err := errors.Join(one(t.Context(), r), two(t.Context(), r)); err != nil && !errors.Is(err, penstock.ErrStopped) {
								t.Error("once more:", err)
							}
							before := accepted.Load()
							submit()
							equal(t, "accepted after the end", accepted.Load()-before, 0)
							<-r.Done()
							equal(t, "delivered", int64(len(r.Drain())), before)
						})
					}
				}
			})
		}
	}
}

// After Stop, Submit says that it was stopped; after Finish, that the input is closed.
func TestB53SubmitAfterTheEndSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stopped, finished := newEngine(same, 1).Start(t.Context()), newEngine(same, 1).Start(t.Context())
		if err := errors.Join(stopped.Stop(t.Context()), finished.Finish(t.Context())); err != nil {
			t.Error(err)
		}
		_, err := stopped.Submit(t.Context(), 1)
		isAll(t, err, penstock.ErrStopped)
		_, err = stopped.Do(t.Context(), 1)
		isAll(t, err, penstock.ErrStopped)
		_, err = finished.Submit(t.Context(), 1)
		isAll(t, err, penstock.ErrInputClosed)
		_, err = finished.Do(t.Context(), 1)
		isAll(t, err, penstock.ErrInputClosed)
	})
}

// The foreman has a state before its start, too: each call before it, twice, and in any order with it.
func TestB53ForemanInAnyOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := must(foreman.New(same, 2))
		for range 2 {
			if err := f.Stop(); err != nil {
				t.Error("Stop before Start:", err)
			}
			isAll(t, f.Finalize(t.Context()), foreman.ErrNotStarted)
		}
		if err := f.Add(t.Context(), task{Index: 7}); err != nil {
			t.Error("Add before Start, after a Finalize that was refused because nothing had started:", err)
		}
		equal(t, "counters before Start", f.Counters(), counters{Pending: 1})
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.Start(t.Context()) == nil {
			t.Error("a second Start was accepted")
		}
		for range 2 {
			if err := errors.Join(f.Finalize(t.Context()), f.Stop()); err != nil {
				t.Error(err)
			}
		}
		isAll(t, f.Add(t.Context(), task{}), penstock.ErrInputClosed)
		if got := must(f.Next(t.Context())); got.Index != 7 {
			t.Error(got)
		}
		_, err := f.Next(t.Context())
		isAll(t, err, penstock.ErrNoMoreResults)

		if err := errors.Join(f.Start(t.Context()), f.Add(t.Context(), task{Index: 8})); err != nil {
			t.Fatal("Start afresh:", err)
		}
		must(f.Next(t.Context()))
		for range 2 {
			if err := f.Stop(); err != nil {
				t.Error(err)
			}
		}
		isAll(t, f.Add(t.Context(), task{}), penstock.ErrStopped)
	})
}

// A reader may come before the start, and waits for it.
func TestB53ForemanReaderBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := must(foreman.New(same, 2))
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for {
					if _, err := f.Next(t.Context()); err != nil {
						isAll(t, err, penstock.ErrNoMoreResults)
						return
					}
				}
			})
		}
		synctest.Wait()
		if err := errors.Join(f.Start(t.Context()), f.Add(t.Context(), task{}), f.Finalize(t.Context())); err != nil {
			t.Error(err)
		}
		readers.Wait()
	})
}

// All methods of the foreman at once, for the race detector.
func TestB53ForemanConcurrently(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			f := must(foreman.New(same, 2))
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() { _ = f.Start(t.Context()) })
				all.Go(func() { _ = f.Add(t.Context(), task{}) })
				all.Go(func() { _ = f.Counters() })
				all.Go(func() { _ = f.Stop() })
				all.Go(func() { _ = f.Finalize(t.Context()) })
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), ms)
					defer cancel()
					_, _ = f.Next(ctx)
				})
			}
			all.Wait()
			_ = f.Stop()
		})
	}
}

// A priority function that panics before Start is told to who adds; nothing has started that could fail.
func TestB53ForemanPriorityPanicsWhileStarting(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T) {
			f := must(foreman.New(same, 2, penstock.WithPriority(func(int) int { panic(errX) })))
			var all sync.WaitGroup
			all.Go(func() { _ = f.Start(t.Context()) })
			all.Go(func() { isAll(t, f.Add(t.Context(), task{}), errX) })
			all.Wait()
			_ = f.Stop()
		})
	}
}

// What else is the user's code: every function, hook, source, limiter, and the methods of errors that a handler returns.
// Each of these panics, or ends its goroutine, in a process of its own, which must live and account for every item.
func TestB34UsersCodeNeverKillsTheProcess(t *testing.T) {
	all := map[string]func(bad func()) []option{
		"hook AttemptStarted": func(bad func()) []option {
			return []option{penstock.WithHooks(penstock.Hooks{AttemptStarted: func(context.Context, penstock.Attempt) { bad() }})}
		},
		"hook AttemptEnded": func(bad func()) []option {
			return []option{penstock.WithHooks(penstock.Hooks{AttemptEnded: func(context.Context, penstock.Attempt, error) { bad() }})}
		},
		"hook RetryScheduled": func(bad func()) []option {
			return []option{penstock.WithHooks(penstock.Hooks{RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) { bad() }})}
		},
		"hook TaskDone": func(bad func()) []option {
			return []option{penstock.WithHooks(penstock.Hooks{TaskDone: func(context.Context, penstock.TaskInfo) { bad() }})}
		},
		"hook RunEnded": func(bad func()) []option {
			return []option{penstock.WithHooks(penstock.Hooks{RunEnded: func(context.Context, counters, error) { bad() }})}
		},
		"key": func(bad func()) []option {
			return []option{penstock.WithLimiter(newBucket(every(1))), penstock.WithKey(func(int) string { bad(); return "" })}
		},
		"cost": func(bad func()) []option {
			return []option{penstock.WithLimiter(newBucket(every(1))), penstock.WithCost(func(int) int { bad(); return 1 })}
		},
		"priority": func(bad func()) []option { return []option{penstock.WithPriority(func(int) int { bad(); return 1 })} },
		"backoff": func(bad func()) []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1, Backoff: func(int, error) time.Duration { bad(); return 0 }})}
		},
		"retry filter": func(bad func()) []option {
			return []option{penstock.WithRetry(retry.Policy{Max: 1, If: func(error) bool { bad(); return true }})}
		},
		"limiter": func(bad func()) []option {
			return []option{penstock.WithLimiter(limiterFunc(func(context.Context, int) error { bad(); return nil }))}
		},
		"limiter's Observe": func(bad func()) []option { return []option{penstock.WithLimiter(observer{bad})} },
		"logger":            func(bad func()) []option { return []option{penstock.WithLogger(slog.New(askingLog{bad}))} },
		"error's RetryAfter": func(bad func()) []option {
			return []option{withError(badError{after: bad}), penstock.WithRetry(retry.Policy{Max: 1}),
				penstock.WithLimiter(ratelimiter.NewPausable(newBucket(every(1))))}
		},
		"error's Is": func(bad func()) []option {
			return []option{withError(badError{is: bad}), penstock.WithRetry(retry.Policy{Max: 1, Unless: retry.Is(errCause)}), penstock.WithAttemptTimeout(time.Minute)}
		},
		"error's Error": func(bad func()) []option {
			return []option{withError(badError{text: bad}), penstock.WithFailureLimit(2), penstock.WithLogger(slog.New(slog.DiscardHandler))}
		},
	}
	if !inChild(t) {
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for name, opts := range all {
		for how, bad := range map[string]func(){"panics": func() { panic(errX) }, "exits": runtime.Goexit} {
			for _, w := range ways {
				if name == "priority" && how == "exits" && (w.foreman || strings.HasPrefix(w.name, "Run")) {
					continue // it ends the goroutine of the test that submits, as it must
				}
				t.Run(name+" "+how+"/"+w.name, func(t *testing.T) {
					watch(t)
					random := rand.New(rand.NewPCG(1, 2))
					var mu sync.Mutex
					h, opts := handlerOf(opts(func() {
						mu.Lock()
						now := random.IntN(3) == 0
						mu.Unlock()
						if now {
							bad()
						}
					}))
					w.run(context.Background(), h, 3, numbers(12), opts...).account(t, numbers(12))
				})
			}
		}
	}
}

// withError stands for a handler whose error this is; handlerOf takes it out of the options again.
func withError(err error) option {
	return errorOption{penstock.WithBatch(1), err}
}

type errorOption struct {
	option
	err error
}

func handlerOf(opts []option) (handler, []option) {
	h := handler(func(_ context.Context, n int) (int, error) {
		if n%2 == 0 {
			return n, nil
		}
		return 0, errX
	})
	for i, o := range opts {
		if e, ok := o.(errorOption); ok {
			opts[i] = e.option
			h = func(_ context.Context, n int) (int, error) {
				if n%2 == 0 {
					return n, nil
				}
				return 0, e.err
			}
		}
	}
	return h, opts
}

// badError is an error whose methods do what they should not.
type badError struct{ after, is, text func() }

func (e badError) Error() string {
	if e.text != nil {
		e.text()
	}
	return "bad"
}

func (e badError) Is(error) bool {
	if e.is != nil {
		e.is()
	}
	return false
}

func (e badError) RetryAfter() time.Duration {
	if e.after != nil {
		e.after()
	}
	return 1
}

type observer struct{ bad func() }

func (o observer) Acquire(ctx context.Context, _ ratelimiter.Request) error { return ctx.Err() }
func (o observer) Observe(ratelimiter.Request, error)                       { o.bad() }
