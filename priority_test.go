package penstock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/retry"
)

// attOrder is a run with one worker, busy with item -1 until release; then order says what the handler saw.
type attOrder struct {
	*penstock.Run[int, int]
	gate chan struct{}
	seen []int
}

func attBusy(t *testing.T, opts ...penstock.Option) *attOrder {
	t.Helper()
	o := &attOrder{gate: make(chan struct{})}
	opts = append([]penstock.Option{penstock.WithInputCapacity(100), penstock.WithResultCapacity(100)}, opts...)
	o.Run = attNew(t, 1, func(_ context.Context, n int) (int, error) {
		if n == -1 {
			<-o.gate
		}
		o.seen = append(o.seen, n)
		return n, nil
	}, opts...).Start(t.Context())
	o.Submit(t.Context(), -1)
	synctest.Wait()
	return o
}

// order lets the worker go and returns what came after item -1.
func (o *attOrder) order(t *testing.T) []int {
	t.Helper()
	close(o.gate)
	if err := o.Finish(t.Context()); err != nil {
		t.Error(err)
	}
	return o.seen[1:]
}

func TestPriority(t *testing.T) {
	itself := penstock.WithPriority(func(n int) int { return n })

	attTest(t, "P1 without any, first come, first served", func(t *testing.T) {
		o := attBusy(t)
		for _, n := range []int{0, -1, -2, -3} {
			o.Submit(t.Context(), n*10)
		}
		attExpect(t, "order", o.order(t), []int{0, -10, -20, -30})
	})

	attTest(t, "P2 the lowest runs first, negatives before the default of 0", func(t *testing.T) {
		o := attBusy(t)
		for _, n := range []int{10, -5, 5, 1, -10} {
			o.Submit(t.Context(), n, penstock.AtPriority(n))
		}
		o.Submit(t.Context(), 0)
		attExpect(t, "order", o.order(t), []int{-10, -5, 0, 1, 5, 10})
	})

	attTest(t, "P2 a function does the same, and Submit may know better", func(t *testing.T) {
		o := attBusy(t, itself)
		for _, n := range []int{30, 10, 20} {
			o.Submit(t.Context(), n)
		}
		o.Submit(t.Context(), 40, penstock.AtPriority(-1))
		attExpect(t, "order", o.order(t), []int{40, 10, 20, 30})
	})

	attTest(t, "P3 submitters that wait for room are admitted as they came", func(t *testing.T) {
		o := attBusy(t, penstock.WithInputCapacity(1))
		for _, n := range []int{50, 90, 1} {
			go o.Submit(t.Context(), n, penstock.AtPriority(n))
			synctest.Wait()
		}
		close(o.gate)
		synctest.Wait()
		attExpect(t, "order", o.seen, []int{-1, 50, 90, 1})
		o.Finish(t.Context())
	})

	attTest(t, "P4 a worker keeps its item through retries", func(t *testing.T) {
		var order []int
		run := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			order = append(order, n)
			return 0, errAttOne
		}, penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Hour)}), penstock.WithResultCapacity(2)).Start(t.Context())
		run.Submit(t.Context(), 9, penstock.AtPriority(9))
		synctest.Wait()
		run.Submit(t.Context(), 1, penstock.AtPriority(1))
		run.Finish(t.Context())
		attExpect(t, "calls", order, []int{9, 9, 1, 1})
	})

	attTest(t, "P5 equals run in the order they came, whenever the others come", func(t *testing.T) {
		o := attBusy(t)
		var want []int
		for class := range 3 {
			for n := range 10 {
				want = append(want, 100*class+n)
			}
		}
		for n := range 10 {
			for _, class := range []int{2, 0, 1} {
				o.Submit(t.Context(), 100*class+n, penstock.AtPriority(class))
			}
		}
		attExpect(t, "order", o.order(t), want)
	})

	attTest(t, "P6 results come as they end, whatever their priority", func(t *testing.T) {
		run := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			return n, attSleep(ctx, time.Duration(n)*time.Second)
		}).Start(t.Context())
		run.Submit(t.Context(), 2, penstock.AtPriority(-100))
		run.Submit(t.Context(), 1, penstock.AtPriority(100))
		first, _ := run.Next(t.Context())
		attExpect(t, "first", first.Data, 1)
		run.Finish(t.Context())
	})

	attTest(t, "P7 priorities change nothing about capacity", func(t *testing.T) {
		o := attBusy(t, itself, penstock.WithInputCapacity(2))
		for n := range 4 {
			go o.Submit(t.Context(), n)
		}
		synctest.Wait()
		attExpect(t, "counters", o.Counters(), penstock.Counters{Pending: 2, Running: 1})
		close(o.gate)
		o.Stop(t.Context())
	})

	attTest(t, "Index is the order of acceptance", func(t *testing.T) {
		o := attBusy(t, itself)
		for _, n := range []int{3, 1, 2} {
			o.Submit(t.Context(), n)
		}
		o.order(t)
		var index []string
		for task := range o.Results() {
			index = append(index, fmt.Sprint(task.Data, " is ", task.ID()))
		}
		attExpect(t, "tasks", index, []string{"-1 is 0", "1 is 2", "2 is 3", "3 is 1"})
	})

	attTest(t, "a source with a queue has it ordered, a slice has none", func(t *testing.T) {
		var order []int
		e := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			order = append(order, n)
			return n, attSleep(ctx, time.Second)
		}, itself, penstock.WithInputCapacity(10))
		items := []int{9, 3, 2, 1}
		e.ProcessSource(t.Context(), penstock.FromSeq(func(yield func(int) bool) {
			for _, n := range items {
				yield(n)
			}
		}))
		attExpect(t, "a sequence: the first one finds an idle worker", order, []int{9, 1, 2, 3})
		order = nil
		e.ProcessAll(t.Context(), items)
		attExpect(t, "a slice", order, items)
	})
}
