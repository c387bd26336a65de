package casetest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Counters that did not add up, and attempts that were counted where there was none.

// B17, alitto/pond#84: tasks skipped because the context had expired were counted as successful. Every accepted item is in
// one counter, and each counter is the number of outcomes of that kind that were delivered.
func TestB17SkippedTasksAreNotSuccessful(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, c := range cancellations {
			for _, heeds := range []bool{true, false} {
				h := handlerFor(50 * ms)
				if !heeds {
					h = func(_ context.Context, n int) (int, error) { time.Sleep(50 * ms); return n, nil }
				}
				ctx, release := c.start(t.Context(), 80*ms)
				out := w.run(ctx, h, 1, numbers(10))
				release()
				out.account(t, numbers(10)) // the counters against the outcomes delivered
				succeeded := 1
				if !heeds {
					succeeded = 2
				}
				equal(t, "succeeded", out.count.Succeeded, succeeded)
				equal(t, "failed", out.count.Failed, 0)
				if w.whole {
					equal(t, "all", out.count.Ended(), 10)
				}
			}
		}
	})
}

// At every moment, and not only at the end, the counters add up to what was accepted, and none of them is negative.
func TestB17CountersAddUpAtEveryMoment(t *testing.T) {
	for _, batch := range []int{1, 3} {
		t.Run(fmt.Sprint("batch ", batch), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := newEngine(func(ctx context.Context, n int) (int, error) {
					if err := sleep(ctx, time.Duration(n%7)*ms); err != nil {
						return 0, err
					}
					switch n % 6 {
					case 1:
						return 0, errX
					case 2:
						panic(n)
					}
					return n, nil
				}, 3, penstock.WithBatch(batch), penstock.WithInputCapacity(10), penstock.WithResultCapacity(penstock.Unlimited),
					penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(ms)}))
				run := e.Start(t.Context())
				const n = 200
				accepted := 0
				check := func() {
					t.Helper()
					c := run.Counters()
					if sum := c.Pending + c.Running + c.Ended(); sum != accepted {
						t.Fatalf("%+v add up to %d, of %d accepted", c, sum, accepted)
					}
					if min(c.Pending, c.Running, c.Succeeded, c.Failed, c.Shed, c.Unfinished, c.Retries) < 0 || c.Running > 3*batch {
						t.Fatalf("out of range: %+v", c)
					}
					of := e.Counters() // a moment later, and it has no other run
					equal(t, "sum of the engine's counters", of.Pending+of.Running+of.Ended(), accepted)
				}
				for i := range n {
					must(run.Submit(t.Context(), i))
					accepted++
					check()
					if i%10 == 0 {
						synctest.Wait()
						check()
					}
				}
				for range 20 {
					time.Sleep(ms)
					check()
				}
				if err := run.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				check()
				out := end{run.Drain(), nil, run.Counters()}
				out.account(t, numbers(n))
			})
		})
	}
}

// While submitters, workers and readers race, on the real scheduler, the sum never leaves what is surely accepted and what
// may be.
func TestB17CountersAddUpUnderRace(t *testing.T) {
	watch(t)
	run := newEngine(func(_ context.Context, n int) (int, error) {
		if n%3 == 0 {
			return 0, errX
		}
		return n, nil
	}, 4, penstock.WithResultCapacity(penstock.Unlimited)).Start(t.Context())
	const n = 2000
	var mu sync.Mutex
	before, after := 0, 0 // Submits begun and returned
	var submitters sync.WaitGroup
	for range 4 {
		submitters.Go(func() {
			for range n / 4 {
				mu.Lock()
				before++
				i := before
				mu.Unlock()
				must(run.Submit(t.Context(), i))
				mu.Lock()
				after++
				mu.Unlock()
			}
		})
	}
	for done := false; !done; {
		mu.Lock()
		least := after
		mu.Unlock()
		c := run.Counters()
		mu.Lock()
		most := before
		done = after == n
		mu.Unlock()
		if sum := c.Pending + c.Running + c.Ended(); sum < least || sum > most {
			t.Fatalf("%+v add up to %d, with %d to %d accepted", c, sum, least, most)
		}
		if min(c.Pending, c.Running) < 0 {
			t.Fatalf("out of range: %+v", c)
		}
		runtime.Gosched() // there may be one processor
	}
	submitters.Wait()
	if err := run.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	equal(t, "counters", run.Counters(), counters{Succeeded: n - n/3, Failed: n / 3})
}

// B67, riverqueue/river#730: deferring a job, which is no error, bumped its attempt numbers. Waits for the limiter, for a
// pause and in the queue use up nothing.
func TestB67WaitingIsNoAttempt(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		p := ratelimiter.NewPausable(newBucket(every(20 * ms)))
		pauseFor(p, 200*ms)
		var mu sync.Mutex
		var delays, asked []int
		l := ratelimiter.Func(func(ctx context.Context, req ratelimiter.Request) error {
			err := p.Acquire(ctx, req)
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, req.Attempt)
			return err
		})
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				pauseFor(p, 100*ms) // the retry waits for a pause as well
				return 0, errX
			}
			return n, nil
		}, 1, numbers(1), penstock.WithLimiter(l), penstock.WithRetry(retry.Policy{Max: 1, Backoff: func(failed int, _ error) time.Duration {
			delays = append(delays, failed)
			return ms
		}}))
		out.account(t, numbers(1))
		equal(t, "outcome", out.tasks[0].Outcome, penstock.Succeeded)
		equal(t, "attempts", out.tasks[0].Attempts, 2)
		equalSlices(t, "backoff was asked for", delays, []int{1})
		equalSlices(t, "limiter was asked for attempts", asked, []int{1, 2})
		equal(t, "counters", out.count, counters{Succeeded: 1, Retries: 1})
	})
}

// B104, hibiken/asynq#26: the retry counter said 1 before any retry, and elsewhere attempts went above the maximum. The
// number of an attempt is the same for the handler, the limiter, the backoff, the hooks, the task and the counters.
func TestB104EveryNumberOfAnAttemptAgrees(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, retries := range []int{0, 1, 2, 7} {
			numbersFrom1 := func(n int) []int { return numbers(n + 1)[1:] }
			var handler, limiter, backoff, started, ended, scheduled []int
			total := 0
			out := w.run(t.Context(), func(ctx context.Context, _ int) (int, error) {
				handler = append(handler, penstock.AttemptNumber(ctx))
				return 0, errX
			}, 1, numbers(1),
				penstock.WithLimiter(ratelimiter.Func(func(_ context.Context, req ratelimiter.Request) error {
					limiter = append(limiter, req.Attempt)
					return nil
				})),
				penstock.WithRetry(retry.Policy{Max: retries, Backoff: func(failed int, _ error) time.Duration {
					backoff = append(backoff, failed)
					return ms
				}}),
				penstock.WithHooks(penstock.Hooks{
					AttemptStarted: func(_ context.Context, a penstock.Attempt) { started = append(started, a.Number) },
					AttemptEnded:   func(_ context.Context, a penstock.Attempt, _ error) { ended = append(ended, a.Number) },
					RetryScheduled: func(_ context.Context, a penstock.Attempt, _ error, _ time.Duration) {
						scheduled = append(scheduled, a.Number)
					},
					TaskDone: func(_ context.Context, i penstock.TaskInfo) { total = i.Attempts },
				}))
			out.account(t, numbers(1))
			for what, got := range map[string][]int{"handler": handler, "limiter": limiter, "AttemptStarted": started, "AttemptEnded": ended} {
				equalSlices(t, what, got, numbersFrom1(retries+1))
			}
			for what, got := range map[string][]int{"backoff": backoff, "RetryScheduled": scheduled} {
				equalSlices(t, what, got, numbersFrom1(retries))
			}
			equal(t, "attempts of the task", out.tasks[0].Attempts, retries+1)
			equal(t, "attempts of TaskDone", total, retries+1)
			equal(t, "counters", out.count, counters{Failed: 1, Retries: retries})
		}
	})
}

// The retries are counted when they begin: not while the task waits for its backoff or its limiter.
func TestB104RetriesAreCountedWhenTheyBegin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		run := newEngine(func(ctx context.Context, _ int) (int, error) {
			if err := sleep(ctx, 10*ms); err != nil {
				return 0, err
			}
			return 0, errX
		}, 1, penstock.WithLimiter(newBucket(every(100*ms))),
			penstock.WithRetry(retry.Policy{Max: 2, Backoff: retry.Constant(50 * ms)})).Start(t.Context())
		must(run.Submit(t.Context(), 1))
		clock := startWatch(t)
		var seen []int
		for range 26 { // attempts at 0, 100 and 200 ms
			time.Sleep(5 * ms)
			synctest.Wait()
			seen = append(seen, run.Counters().Retries)
			time.Sleep(5 * ms)
		}
		clock.is(260*ms, "the last look")
		equalSlices(t, "retries, every 10 ms", seen, slices.Concat(make([]int, 10), slices.Repeat([]int{1}, 10), slices.Repeat([]int{2}, 6)))
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		equal(t, "counters", run.Counters(), counters{Failed: 1, Retries: 2})
	})
}
