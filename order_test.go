package penstock_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
)

func inOrder(tasks []intTask) bool {
	return slices.IsSortedFunc(tasks, func(a, b intTask) int { return a.Index - b.Index })
}

func TestInputOrder(t *testing.T) {
	t.Run("H1 I6 B22 every ordered way keeps the input's order, whatever ends first", func(t *testing.T) {
		for _, w := range ways() {
			for _, kind := range sourceKinds() {
				if !w.ordered {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					// Later items are faster, and in each group of eight the last is first.
					e := newInts(t, func(ctx context.Context, n int) (int, error) {
						return 2 * n, pause(ctx, time.Duration(100-n)*time.Millisecond)
					}, 8)
					tasks, err := w.run(t, background, e, kind.make(background, 100, func() {}))
					if c := tally(t, tasks); err != nil || c.Succeeded != 100 || !inOrder(tasks) {
						t.Errorf("%s over a %s: %+v, %v", w.name, kind.name, c, err)
					}
					for i, task := range tasks {
						if task.Data != i || task.Result != 2*i || task.ID() != fmt.Sprint(i) {
							t.Errorf("%s over a %s: at %d came %+v", w.name, kind.name, i, task)
						}
					}
				})
			}
		}
	})
	t.Run("the order holds with many workers and no time between items", func(t *testing.T) {
		watch(t)
		for _, batch := range []int{1, 7} {
			e := newInts(t, func(_ context.Context, n int) (int, error) {
				if n%5 == 0 {
					runtime.Gosched()
				}
				return n, nil
			}, 16, penstock.WithBatch(batch), penstock.WithResultCapacity(3))
			for _, w := range ways() {
				for _, kind := range sourceKinds() {
					tasks, err := w.run(t, background, e, kind.make(background, 500, func() {}))
					if c := tally(t, tasks); err != nil || c.Succeeded != 500 || w.ordered && !inOrder(tasks) {
						t.Errorf("%s over a %s: %+v, %v", w.name, kind.name, c, err)
					}
					for _, task := range tasks {
						if task.Data != task.Index || task.Result != task.Data {
							t.Fatalf("%s over a %s: %+v", w.name, kind.name, task)
						}
					}
				}
			}
		}
	})
	t.Run("L2 one worker takes the items in order", func(t *testing.T) {
		for _, kind := range sourceKinds() {
			var handled []int
			e := newInts(t, func(_ context.Context, n int) (int, error) {
				handled = append(handled, n)
				return n, nil
			}, 1)
			if _, err := e.ProcessSource(background, kind.make(background, 50, func() {})); err != nil || !slices.Equal(handled, numbers(50)) {
				t.Errorf("%s: %v, %v", kind.name, handled, err)
			}
		}
	})
}

// The window of IterOrdered, exactly: workers + result capacity.
func TestOrderedWindow(t *testing.T) {
	for _, size := range []struct{ workers, results int }{{1, 1}, {2, 1}, {2, 2}, {3, 8}, {8, 3}} {
		for _, kind := range sourceKinds() {
			t.Run(fmt.Sprintf("%d workers, %d results, %s", size.workers, size.results, kind.name), func(t *testing.T) {
				window := int64(size.workers + size.results)
				opts := penstock.WithResultCapacity(size.results)
				t.Run("a slow consumer", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ctx, cancel := context.WithCancel(background)
						defer cancel()
						var started gauge
						e := newInts(t, started.around(double), size.workers, opts)
						next := 0
						for task, err := range e.IterOrdered(ctx, kind.make(ctx, -1, func() {})) {
							if err != nil || task.Index != next {
								t.Fatalf("%+v, %v", task, err)
							}
							time.Sleep(time.Second)
							synctest.Wait() // all that can start has started; the body has not let go of the task yet
							if n := started.total.Load(); n != int64(next)+window {
								t.Fatalf("in the body of task %d, %d items have started", next, n)
							}
							if next++; next == 30 {
								break
							}
						}
					})
				})
				t.Run("a slow item", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						ctx, cancel := context.WithCancel(background)
						defer cancel()
						if size.workers == 1 {
							return // it would stand alone
						}
						const slow = 5
						gate := make(chan struct{})
						var started gauge
						e := newInts(t, started.around(func(ctx context.Context, n int) (int, error) {
							if n == slow {
								return until(gate)(ctx, n)
							}
							return 2 * n, nil
						}), size.workers, opts)
						go func() {
							synctest.Wait()
							if n := started.total.Load(); n != slow+window {
								t.Errorf("while item %d was under way %d items have started", slow, n)
							}
							close(gate)
						}()
						next := 0
						for task, err := range e.IterOrdered(ctx, kind.make(ctx, 50, func() {})) {
							if err != nil || task.Index != next {
								t.Fatalf("%+v, %v", task, err)
							}
							next++
						}
						if next != 50 {
							t.Errorf("%d results", next)
						}
					})
				})
			})
		}
	}
	t.Run("without a bound nothing is held back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			var started gauge
			e := newInts(t, started.around(func(ctx context.Context, n int) (int, error) {
				if n == 0 {
					return until(gate)(ctx, n)
				}
				return n, nil
			}), 2, penstock.WithResultCapacity(penstock.Unlimited))
			go func() {
				synctest.Wait()
				if n := started.total.Load(); n != 1000 {
					t.Errorf("%d items have started", n)
				}
				close(gate)
			}()
			tasks, err := collect(t, e.IterOrdered(background, penstock.FromSlice(numbers(1000))))
			if err != nil || len(tasks) != 1000 || !inOrder(tasks) {
				t.Errorf("%d tasks, %v", len(tasks), err)
			}
		})
	})
}
