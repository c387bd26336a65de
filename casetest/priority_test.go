package casetest_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/retry"
)

// Priorities that were lost on the way, or that overtook their equals.

// B16, OptimalBits/bull#1755: a retried job went back into the queue without its priority. Here it does not go back: it
// keeps its worker, and its next attempt starts exactly when its delay is over, whatever else waits.
func TestB16RetryKeepsItsPlace(t *testing.T) {
	for _, workers := range []int{1, 2, 3} {
		for _, urgency := range []int{0, 9} { // also if it is the least urgent
			t.Run(fmt.Sprintf("%d workers/priority %d", workers, urgency), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					const h = 100
					clock := startWatch(t)
					var mu sync.Mutex
					var starts []time.Duration // of h
					var order []int
					run := newEngine(func(ctx context.Context, n int) (int, error) {
						mu.Lock()
						order = append(order, n)
						if n == h {
							starts = append(starts, clock.now())
						}
						mu.Unlock()
						if n == h && penstock.AttemptNumber(ctx) < 3 {
							return 0, errX
						}
						return n, sleep(ctx, 7*ms)
					}, workers, penstock.WithInputCapacity(20), penstock.WithResultCapacity(penstock.Unlimited),
						penstock.WithRetry(retry.Policy{Max: 2, Backoff: retry.Constant(20 * ms)})).Start(t.Context())
					must(run.Submit(t.Context(), h, penstock.AtPriority(urgency)))
					synctest.Wait()
					for i := range 5 {
						must(run.Submit(t.Context(), i, penstock.AtPriority(5)))
					}
					if err := run.Finish(t.Context()); err != nil {
						t.Error(err)
					}
					equalSlices(t, "attempts of the one that fails", starts, []time.Duration{0, 20 * ms, 40 * ms})
					equal(t, "attempts", len(order), 8)
					if workers == 1 {
						equalSlices(t, "order", order, []int{h, h, h, 0, 1, 2, 3, 4})
					}
				})
			})
		}
	}
}

// B71, ignlg/heap-js#460: a plain heap does not keep the order of arrival among equals. Within one priority it is first in,
// first out, for many items on few levels, however they come in.
func TestB71EqualPrioritiesKeepTheirOrder(t *testing.T) {
	for _, n := range []int{50, 500} {
		for _, levels := range []int{1, 3, 10} {
			t.Run(fmt.Sprintf("%d items on %d levels", n, levels), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					random := rand.New(rand.NewPCG(71, uint64(n+levels)))
					level := make([]int, n)
					for i := range level {
						level[i] = random.IntN(levels) - levels/2
					}
					want := numbers(n)
					slices.SortStableFunc(want, func(a, b int) int { return cmp.Compare(level[a], level[b]) })

					var order []int
					gate := make(chan struct{})
					h := func(_ context.Context, i int) (int, error) {
						if i < 0 {
							<-gate
						} else {
							order = append(order, i)
						}
						return i, nil
					}
					byItem := penstock.WithPriority(func(i int) int {
						if i < 0 {
							return 0
						}
						return level[i]
					})
					unlimited := []option{penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited)}

					run := newEngine(h, 1, unlimited...).Start(t.Context())
					must(run.Submit(t.Context(), -1))
					for i := range n {
						must(run.Submit(t.Context(), i, penstock.AtPriority(level[i])))
					}
					gate <- struct{}{}
					if err := run.Finish(t.Context()); err != nil {
						t.Error(err)
					}
					equalSlices(t, "AtPriority", order, want)

					order = nil
					run = newEngine(h, 1, append(unlimited, byItem)...).Start(t.Context())
					for i := -1; i < n; i++ {
						must(run.Submit(t.Context(), i))
					}
					gate <- struct{}{}
					if err := run.Finish(t.Context()); err != nil {
						t.Error(err)
					}
					equalSlices(t, "WithPriority", order, want)

					order = nil
					f := must(foreman.New(h, 1, byItem))
					for i := range n {
						if err := f.Add(t.Context(), task{Index: i, Data: i}); err != nil {
							t.Fatal(err)
						}
					}
					if err := f.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := f.Finalize(t.Context()); err != nil {
						t.Error(err)
					}
					equalSlices(t, "Foreman", order, want)

					order = nil
					src := penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
						yield(-1)
						synctest.Wait()
						for i := range n {
							yield(i)
						}
						close(gate)
						return nil
					})
					if _, err := newEngine(h, 1, append(unlimited, byItem)...).ProcessSource(t.Context(), src); err != nil {
						t.Error(err)
					}
					equalSlices(t, "a source", order, want)
				})
			})
		}
	}
}

// Retries, cancellations of Do, and batches in between do not disturb it.
func TestB71OrderWithBatchesAndLeavers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []int
		gate := make(chan struct{})
		run := newEngine(func(ctx context.Context, i int) (int, error) {
			if i < 0 {
				<-gate
				return 0, nil
			}
			if penstock.AttemptNumber(ctx) == 1 && i%3 == 0 {
				return 0, errX
			}
			order = append(order, i)
			return i, nil
		}, 1, penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited), penstock.WithBatch(7),
			penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(ms)})).Start(t.Context())
		must(run.Submit(t.Context(), -1))
		var want []int
		var leavers sync.WaitGroup
		for i := range 60 {
			if i%4 == 1 {
				leavers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), ms)
					defer cancel()
					_, err := run.Do(ctx, i, penstock.AtPriority(1))
					isAll(t, err, context.DeadlineExceeded)
				})
				synctest.Wait()
				continue
			}
			must(run.Submit(t.Context(), i, penstock.AtPriority(1)))
			want = append(want, i)
		}
		leavers.Wait()
		close(gate)
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		equalSlices(t, "order", order, want)
		equal(t, "counters", run.Counters(), counters{Succeeded: 1 + len(want), Unfinished: 60 - len(want), Retries: 15})
	})
}
