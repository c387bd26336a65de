package casetest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
)

// Order that was assumed and not kept, or kept and not said.

// B22, sourcegraph/sourcegraph-public-snapshot#62193: results were taken for ordered, and came as they were completed. The
// helpers that promise input order keep it, the others give completion order, and every result carries its own input.
func TestB22OrderIsWhatTheHelperPromises(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, workers := range []int{1, 8, 20} {
			out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
				time.Sleep(time.Duration(20-n) * ms)
				return 100 + n, nil
			}, workers, numbers(20))
			out.account(t, numbers(20))
			var completed []int
			for i, task := range out.tasks {
				equal(t, "result beside its input", task.Result, 100+task.Data)
				if w.ordered {
					equal(t, "index", task.Index, i)
				}
				completed = append(completed, task.Index)
			}
			if !w.ordered && workers == 20 {
				want := numbers(20)
				slices.Reverse(want)
				equalSlices(t, "completion order", completed, want)
			}
		}
	})
}

// B46, supercharge/promise-pool#26: results were appended as they finished and failures left out, so that positions no
// longer matched. Random lengths, failures and batches: the i-th task is always the i-th item's.
func TestB46PositionsMatchTheInputs(t *testing.T) {
	random := rand.New(rand.NewPCG(46, 46))
	for seed := range 3 {
		n := 1 + random.IntN(40)
		if seed == 0 {
			n = 9
		}
		fails := make([]bool, n)
		takes := make([]time.Duration, n)
		for i := range n {
			fails[i] = i%3 == 2
			takes[i] = time.Duration(random.IntN(10)) * ms
		}
		t.Run(fmt.Sprint(n, " items"), func(t *testing.T) {
			eachWay(t, func(t *testing.T, w way) {
				for _, batch := range []int{1, 4} {
					out := w.run(t.Context(), func(_ context.Context, i int) (int, error) {
						time.Sleep(takes[i])
						if fails[i] {
							return 0, fmt.Errorf("item %d: %w", i, errX)
						}
						return 2 * i, nil
					}, 3, numbers(n), penstock.WithBatch(batch))
					out.account(t, numbers(n))
					tasks := out.byIndex()
					if w.ordered {
						tasks = out.tasks
					}
					equal(t, "tasks", len(tasks), n)
					for i, task := range tasks {
						if task.Data != i || task.Index != i || (task.Outcome == penstock.Failed) != fails[i] {
							t.Errorf("position %d holds item %d, %v", i, task.Data, task.Outcome)
						}
						if fails[i] {
							equal(t, "error", task.Err.Error(), fmt.Sprintf("item %d: x failed", i))
						} else {
							equal(t, "result", task.Result, 2*i)
						}
					}
				}
			})
		})
	}
}
