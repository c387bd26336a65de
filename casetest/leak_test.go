package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Goroutines that were left behind. When a call returns they have ended, not some time later.

// B23, suyashkumar/dicom#183: a channel-fed iterator left its feeder behind whenever the caller stopped early.
func TestB23LeavingEarlyLeaksNothing(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		watch(t)
		e := newEngine(same, 4)
		before := runtime.NumGoroutine()
		for range 200 {
			f := newFeed(s.kind, 1000)
			for _, err := range s.results(e, t.Context(), f.source) {
				if err != nil {
					t.Error(err)
				}
				break
			}
			f.close()
		}
		atBaseline(t, before)
		c := e.Counters()
		equal(t, "still pending or running", c.Pending+c.Running, 0)
	})
}

// The same in virtual time, at every number of results read, with handlers, limiters, backoffs and sources that are in
// the middle of something. The bubble would not end if anything were left.
func TestB23LeavingInTheMiddleOfAnything(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		for read := range 8 {
			bubble(t, func(t *testing.T) {
				before := runtime.NumGoroutine()
				e := newEngine(func(ctx context.Context, n int) (int, error) {
					if n%3 == 1 && penstock.AttemptNumber(ctx) == 1 {
						return 0, errX
					}
					return n, sleep(ctx, time.Duration(n)*ms)
				}, 4, penstock.WithLimiter(newBucket(ratelimiter.PerSecond(100))), penstock.WithAttemptTimeout(time.Minute),
					penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(70 * ms)}), penstock.WithStartTimeout(time.Minute))
				f := newFeed(s.kind, 100)
				seen := 0
				for range s.results(e, t.Context(), f.source) {
					if seen++; seen > read {
						break
					}
				}
				f.close()
				atBaseline(t, before)
				c := e.Counters()
				equal(t, "still pending or running", c.Pending+c.Running, 0)
			})
		}
	})
}

// B82, panjf2000/ants#212: releasing the pool left its cleaner alive until the cleaner's next tick. Here nothing waits for
// a tick: in a bubble time does not move while the test is busy, so a goroutine that did would still be there.
func TestB82NothingIsLeftWhenTheCallReturns(t *testing.T) {
	busy := func() []option {
		return []option{
			penstock.WithLimiter(ratelimiter.NewPausable(newBucket(ratelimiter.PerSecond(1000)))),
			penstock.WithAttemptTimeout(time.Hour), penstock.WithTaskTimeout(time.Hour), penstock.WithStartTimeout(time.Hour),
			penstock.WithRetry(retry.Policy{Max: 1}),
		}
	}
	for name, use := range map[string]func(t *testing.T){
		"New and never use": func(*testing.T) { newEngine(same, 100, busy()...) },
		"ProcessAll of one": func(t *testing.T) { must(newEngine(same, 100, busy()...).ProcessAll(t.Context(), numbers(1))) },
		"ProcessAll of none": func(t *testing.T) {
			must(newEngine(same, 100, busy()...).ProcessAll(t.Context(), nil))
		},
		"ProcessAll of many": func(t *testing.T) { must(newEngine(same, 10, busy()...).ProcessAll(t.Context(), numbers(50))) },
		"an iterator never ranged over": func(t *testing.T) {
			newEngine(same, 100, busy()...).IterResults(t.Context(), penstock.FromSlice(numbers(5)))
		},
		"Start and Stop": func(t *testing.T) {
			if err := newEngine(same, 100, busy()...).Start(t.Context()).Stop(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"Start and Finish": func(t *testing.T) {
			if err := newEngine(same, 100, busy()...).Start(t.Context()).Finish(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"Start, Do and Stop": func(t *testing.T) {
			run := newEngine(same, 100, busy()...).Start(t.Context())
			must(run.Do(t.Context(), 1))
			if err := run.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"Foreman, New": func(*testing.T) { must(foreman.New(same, 100, busy()...)) },
		"Foreman, Start and Stop": func(t *testing.T) {
			f := must(foreman.New(same, 100, busy()...))
			if err := errors.Join(f.Start(t.Context()), f.Stop()); err != nil {
				t.Error(err)
			}
		},
		"Foreman, one task": func(t *testing.T) {
			f := must(foreman.New(same, 100, busy()...))
			if err := errors.Join(f.Start(t.Context()), f.Add(t.Context(), task{}), f.Finalize(t.Context())); err != nil {
				t.Error(err)
			}
		},
		"limiters": func(t *testing.T) {
			for _, kind := range spacedKinds {
				l := kind.make(every(100 * ms))
				take(t, l, 1)
				ctx, cancel := context.WithCancel(t.Context())
				var waiters sync.WaitGroup
				for range 10 {
					waiters.Go(func() { _ = acquire(ctx, l) })
				}
				cancel()
				waiters.Wait()
			}
		},
		"pauses": func(t *testing.T) {
			p := ratelimiter.NewPausable(newBucket(ratelimiter.PerSecond(10)))
			if err := errors.Join(p.PauseFor(time.Hour), p.PauseUntil(time.Now().Add(2*time.Hour))); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				before := runtime.NumGoroutine()
				use(t)
				atBaseline(t, before)
			})
		})
	}
}

// Timers that were set but not stopped would keep what they refer to, or strike later: a bubble that is left with nothing
// but a far timer ends; this one looks at the other half, that nothing happens when the time comes.
func TestB82NothingStrikesLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		late := 0
		e := newEngine(func(ctx context.Context, n int) (int, error) {
			context.AfterFunc(ctx, func() {
				if time.Since(startOfRun(ctx)) > 0 {
					late++ // the attempt's context ended by a timer and not with the attempt
				}
			})
			return n, nil
		}, 2, penstock.WithAttemptTimeout(time.Hour), penstock.WithTaskTimeout(2*time.Hour), penstock.WithStartTimeout(3*time.Hour))
		ctx := context.WithValue(t.Context(), startKey{}, time.Now())
		must(e.ProcessAll(ctx, numbers(10)))
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		equal(t, "contexts that a timer ended", late, 0)
	})
}

type startKey struct{}

func startOfRun(ctx context.Context) time.Time { return ctx.Value(startKey{}).(time.Time) }

// B107, open-policy-agent/opa-control-plane#368: workers waited on an empty queue with no way out, and every run left its
// goroutines behind.
func TestB107EmptyRunsLeakNothing(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, e *engine){
		"Stop": func(t *testing.T, e *engine) {
			if err := e.Start(t.Context()).Stop(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"Finish": func(t *testing.T, e *engine) {
			if err := e.Start(t.Context()).Finish(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"cancelled before the first item": func(t *testing.T, e *engine) {
			ctx, cancel := context.WithCancel(t.Context())
			run := e.Start(ctx)
			cancel()
			<-run.Done()
			isAll(t, run.Err(), context.Canceled)
		},
		"cancelled before the start": func(t *testing.T, e *engine) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			run := e.Start(ctx)
			<-run.Done()
			isAll(t, run.Err(), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			watch(t)
			before := runtime.NumGoroutine()
			runs := 300
			if name == "Stop" {
				runs = 1000
			}
			for range runs {
				run(t, newEngine(same, 8))
			}
			atBaseline(t, before)
		})
	}
}

// An input that never comes: the start timeout ends the run with an error that says so, exactly then, for every source
// that can keep one waiting.
func TestB107StartTimeout(t *testing.T) {
	e := func() *engine { return newEngine(same, 8, penstock.WithStartTimeout(100*ms)) }
	silent := func(ctx context.Context, _ func(int) bool) error { return hang(ctx) }
	for name, run := range map[string]func(t *testing.T) error{
		"Run": func(t *testing.T) error {
			run := e().Start(t.Context())
			_, err := run.Next(t.Context())
			_, refused := run.Submit(t.Context(), 1)
			isAll(t, refused, penstock.ErrStartTimeout)
			return err
		},
		"Foreman": func(t *testing.T) error {
			f := must(foreman.New(same, 8, penstock.WithStartTimeout(100*ms)))
			if err := f.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := f.Next(t.Context())
			isAll(t, f.Add(t.Context(), task{}), penstock.ErrStartTimeout)
			return err
		},
		"chan": func(t *testing.T) error {
			_, err := e().ProcessSource(t.Context(), penstock.FromChan(make(chan int)))
			return err
		},
		"func": func(t *testing.T) error {
			_, err := e().ProcessSource(t.Context(), penstock.FromFunc(silent))
			return err
		},
		"IterResults(chan)": func(t *testing.T) (last error) {
			for _, err := range e().IterResults(t.Context(), penstock.FromChan(make(chan int))) {
				last = err
			}
			return last
		},
		"IterOrdered(func)": func(t *testing.T) (last error) {
			for _, err := range e().IterOrdered(t.Context(), penstock.FromFunc(silent)) {
				last = err
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for range 20 {
					before := runtime.NumGoroutine()
					clock := startWatch(t)
					isAll(t, run(t), penstock.ErrStartTimeout)
					clock.is(100*ms, "the end")
					atBaseline(t, before)
				}
			})
		})
	}
}

// An item in time, or an input that is closed in time, and the timeout is no matter any more.
func TestB107StartTimeoutThatWasMet(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, n := range []int{0, 1, 5} {
			out := w.run(t.Context(), handlerFor(time.Second), 1, numbers(n), penstock.WithStartTimeout(100*ms))
			out.account(t, numbers(n))
			if out.err != nil {
				t.Error(fmt.Sprint(n, " items: ", out.err))
			}
		}
	})
}
