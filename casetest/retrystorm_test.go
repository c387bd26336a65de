package casetest_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/retry"
)

// Retry storms: retries without a pause, in step, or against a service that is down.

// B09, qdrant/go-client#153: the exponential delay was computed first and capped afterwards, so that it overflowed and the
// retries became a hot loop. package retry looks at all numbers of attempts; here a task really is tried 201 times.
func TestB09NoHotLoopAfterManyAttempts(t *testing.T) {
	const base, limit, retries = time.Second, 5 * time.Second, 200
	for _, jitter := range []float64{0, 1} {
		t.Run(fmt.Sprint("jitter ", jitter), func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				clock := startWatch(t)
				var starts []time.Duration
				out := w.run(t.Context(), func(context.Context, int) (int, error) {
					starts = append(starts, clock.now())
					return 0, errX
				}, 1, numbers(1), penstock.WithRetry(retry.Policy{Max: retries, Backoff: retry.Exponential(base, limit, retry.WithJitter(jitter))}))
				out.account(t, numbers(1))
				equal(t, "attempts", len(starts), 1+retries)
				for i := 1; i < len(starts); i++ {
					if gap := starts[i] - starts[i-1]; gap <= 0 || gap > limit || jitter == 0 && gap != min(base<<min(i-1, 3), limit) {
						t.Fatalf("attempt %d came %v after the one before", i+1, gap)
					}
				}
			})
		})
	}
}

// All built-in shapes, for all numbers of attempts that a run could ever see and for the largest int.
func TestB09EveryDelayIsInRange(t *testing.T) {
	attempts := []int{math.MaxInt32, math.MaxInt / 2, math.MaxInt - 1, math.MaxInt}
	for failed := 200; failed >= 1; failed-- {
		attempts = slices.Insert(attempts, 0, failed)
	}
	for _, c := range []struct{ base, limit time.Duration }{
		{time.Second, 5 * time.Second}, {1, 1}, {1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {time.Hour, 100 * 365 * 24 * time.Hour},
	} {
		for _, factor := range []float64{1, 1.001, 2, 10, math.MaxFloat64} {
			for _, jitter := range []float64{0, 0.3, 1} {
				backoff := retry.Exponential(c.base, c.limit, retry.WithFactor(factor), retry.WithJitter(jitter))
				var last time.Duration
				for _, failed := range attempts {
					d := backoff(failed, errX)
					if d <= 0 || d > c.limit || jitter == 0 && d < last {
						t.Fatalf("%v to %v, factor %v, jitter %v, attempt %d: %v after %v", c.base, c.limit, factor, jitter, failed, d, last)
					}
					last = d
				}
			}
		}
	}
}

// B26, bytedance/deer-flow#4294: without jitter all calls that failed together woke on the same tick and failed again. The
// starts of fifty second attempts, as the handler sees them.
func TestB26JitterSpreadsTheHerd(t *testing.T) {
	const tasks, limit = 50, 300 * ms
	herd := func(t *testing.T, w way, hint time.Duration) []time.Duration {
		clock := startWatch(t)
		var mu sync.Mutex
		var second []time.Duration
		backoff := retry.Exponential(limit, limit, retry.WithRandom(rand.New(rand.NewPCG(26, 26))))
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			if penstock.AttemptNumber(ctx) == 1 {
				return 0, retry.After(errX, hint)
			}
			mu.Lock()
			defer mu.Unlock()
			second = append(second, clock.now())
			return n, nil
		}, tasks, numbers(tasks), penstock.WithRetry(retry.Policy{Max: 1, Backoff: backoff}))
		out.account(t, numbers(tasks))
		slices.Sort(second)
		return second
	}
	for _, hint := range []time.Duration{0, time.Second} { // the jitter comes on top of what the service asks for
		t.Run(fmt.Sprint("Retry-After ", hint), func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				second := herd(t, w, hint)
				if len(second) != tasks {
					t.Fatalf("%d second attempts of %d", len(second), tasks)
				}
				buckets := map[time.Duration]int{}
				for _, at := range second {
					buckets[at/(10*ms)]++
					if at <= hint || at > hint+limit {
						t.Errorf("a second attempt at %v, out of the documented range", at)
					}
				}
				for bucket, n := range buckets {
					if n > tasks/5 {
						t.Errorf("%d of %d second attempts within 10 ms of %v", n, tasks, bucket*10*ms)
					}
				}
				if spread := second[tasks-1] - second[0]; spread < 200*ms {
					t.Errorf("all second attempts within %v", spread)
				}
				equalSlices(t, "the same seed once more", herd(t, w, hint), second)
			})
		})
	}
}

// B73, istio/istio#45092: the back-off's "stop" signal, -1, was used as a delay, and retries ran without any pause. A
// negative delay ends the run with an error that names it; no delay is no delay; a huge one waits, and can be cancelled.
func TestB73OddDelays(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, delay := range []time.Duration{-1, math.MinInt64} {
			calls := 0
			out := w.run(t.Context(), func(context.Context, int) (int, error) { calls++; return 0, errX }, 1, numbers(1),
				penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(delay)}))
			out.account(t, numbers(1))
			equal(t, "function at fault", as[*penstock.CallbackError](t, out.err).Callback, "backoff")
			equal(t, "calls", calls, 1)
			equal(t, "outcome", out.tasks[0].Outcome, penstock.Unfinished)
			isAll(t, out.tasks[0].Err, errX)
		}
		for _, policy := range []retry.Policy{{Max: 3}, {Max: 3, Backoff: retry.Constant(0)}} {
			clock := startWatch(t)
			out := w.run(t.Context(), func(context.Context, int) (int, error) { return 0, errX }, 1, numbers(1), penstock.WithRetry(policy))
			out.account(t, numbers(1))
			equal(t, "attempts", out.tasks[0].Attempts, 4)
			clock.is(0, "the end")
		}
		for _, delay := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 200 * 365 * 24 * time.Hour} {
			for _, hint := range []time.Duration{0, math.MaxInt64} {
				clock := startWatch(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				out := w.run(ctx, func(context.Context, int) (int, error) { return 0, retry.After(errX, hint) }, 1, numbers(1),
					penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(delay), MaxRetryAfter: math.MaxInt64}))
				cancel()
				out.account(t, numbers(1))
				equal(t, "attempts", out.tasks[0].Attempts, 1)
				clock.is(time.Hour, "the end of a run that waits very long")
			}
		}
	})
}

// B91, nyxtron/paperless-aissist#46: the provider died in mid-batch, and every remaining document was still tried. The run
// ends soon after the limit, with what was good before it.
func TestB91FailureLimitEndsTheStorm(t *testing.T) {
	const limit, workers, dead = 5, 4, 20
	eachWay(t, func(t *testing.T, w way) {
		for _, batch := range []int{1, 8} {
			var mu sync.Mutex
			failing := 0
			out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
				if n < dead {
					return n, nil
				}
				mu.Lock()
				failing++
				mu.Unlock()
				if err := sleep(ctx, ms); err != nil {
					return 0, err
				}
				return 0, errX
			}, workers, numbers(1000), penstock.WithFailureLimit(limit), penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithBatch(batch))
			out.account(t, numbers(1000))
			failure := as[*penstock.TooManyFailuresError](t, out.err)
			isAll(t, failure, errX)
			equal(t, "limit", failure.Limit, limit)
			equal(t, "good results", out.having(penstock.Succeeded), dead)
			published := out.having(penstock.Failed)
			if published < limit || published > limit+workers-1 {
				t.Errorf("%d failed, want %d and those that ended with the last of them", published, limit)
			}
			if most := 2 * (limit + workers); failing > most {
				t.Errorf("%d attempts at a dead service, want at most %d", failing, most)
			}
			if w.whole {
				equal(t, "tasks", len(out.tasks), 1000)
			}
		}
	})
}

// Without a failure limit a Budget keeps the number of retries down, over all tasks and runs that share it.
func TestB91BudgetCapsRetries(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		budget := must(retry.NewBudget(0.1, 5))
		total := 0
		for range 3 {
			out := w.run(t.Context(), func(context.Context, int) (int, error) { return 0, errX }, 4, numbers(100),
				penstock.WithRetry(retry.Policy{Max: 3, Budget: budget}))
			out.account(t, numbers(100))
			equal(t, "failed", out.count.Failed, 100)
			total += out.count.Retries
		}
		if total > 5+30 || total < 30 {
			t.Errorf("%d retries for 300 tasks, of a budget of 5 and one in ten", total)
		}
	})
}
