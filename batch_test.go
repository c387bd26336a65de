package penstock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
)

// In a batch, quick workers claim portions of several items. These tests are about what becomes of a portion whose owner is
// held up after all. Inside a bubble a handler that does not sleep takes no time, so it is as quick as can be.

// heldUp works on items of which most take no time, and some the given one. It returns when each was begun.
func heldUp(t *testing.T, workers, items int, takes map[int]time.Duration, opts ...penstock.Option) []time.Duration {
	t.Helper()
	began := make([]time.Duration, items)
	start := time.Now()
	e := newInts(t, func(ctx context.Context, i int) (int, error) {
		began[i] = time.Since(start)
		if d := takes[i]; d > 0 {
			time.Sleep(d)
		}
		return 2 * i, nil
	}, workers, opts...)
	tasks, err := e.ProcessAll(background, numbers(items))
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range tasks {
		if task.Index != i || task.Data != i || task.Result != 2*i || task.Outcome != penstock.Succeeded || task.Attempts != 1 {
			t.Fatalf("task %d is %+v", i, task)
		}
	}
	return began
}

func TestBatchPortionIsTakenOver(t *testing.T) {
	for _, workers := range []int{2, 3, 8} {
		t.Run(fmt.Sprintf("%d workers, one of them held up", workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := heldUp(t, workers, 10_000, map[int]time.Duration{5000: time.Hour})
				if last := slices.Max(began); last != 0 {
					t.Errorf("an item was begun after %v only, although there was a worker for it", last)
				}
			})
		})
	}
	t.Run("all workers held up, one after the other", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			takes := map[int]time.Duration{}
			for i := range 4 {
				takes[1000*(i+1)] = time.Duration(4-i) * time.Minute // the first one the longest
			}
			began := heldUp(t, 4, 10_000, takes)
			if last := slices.Max(began); last > time.Minute {
				t.Errorf("an item was begun after %v only, although a worker was free after a minute", last)
			}
		})
	})
	t.Run("slow items are begun in order", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			takes := map[int]time.Duration{}
			for i := range 100 {
				takes[i] = time.Duration(1+rand.IntN(100)) * time.Millisecond
			}
			if began := heldUp(t, 7, 100, takes); !slices.IsSorted(began) {
				t.Errorf("begun at %v", began)
			}
		})
	})
	t.Run("with batches for the workers too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			began := heldUp(t, 4, 10_000, map[int]time.Duration{5000: time.Hour}, penstock.WithBatch(10))
			late := 0
			for _, b := range began {
				if b > 0 {
					late++
				}
			}
			if late > 9 { // the worker's own batch has no other way
				t.Errorf("%d items were begun late", late)
			}
		})
	})
}

// TestBatchCountersAmongPortions looks at the counters while a worker is held up in the middle of a portion.
func TestBatchCountersAmongPortions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 1000
		e := newInts(t, func(_ context.Context, i int) (int, error) {
			if i >= 500 && i < 504 {
				time.Sleep(time.Hour)
			}
			return i, nil
		}, 5)
		go func() {
			if _, err := e.ProcessAll(background, numbers(items)); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		c := e.Counters()
		if want := (penstock.Counters{Running: 4, Succeeded: items - 4}); c != want { // the fifth worker has done the rest
			t.Errorf("the counters are %+v, they should be %+v", c, want)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if c := e.Counters(); c != (penstock.Counters{Succeeded: items}) {
			t.Errorf("in the end the counters are %+v", c)
		}
	})
}

// TestBatchCancelledAmongPortions cancels while portions are half done: every item has an outcome, and none is begun twice.
func TestBatchCancelledAmongPortions(t *testing.T) {
	const items = 5000
	for round := range 60 {
		ctx, cancel := context.WithCancel(background)
		var calls [items]atomic.Int32
		stopAt := int32(rand.IntN(items))
		var begun atomic.Int32
		e := newInts(t, func(_ context.Context, i int) (int, error) {
			calls[i].Add(1)
			if begun.Add(1) == stopAt {
				cancel()
			}
			return i, nil
		}, 1+round%9)
		tasks, _ := e.ProcessAll(ctx, numbers(items))
		cancel()
		var sum penstock.Counters
		for i, task := range tasks {
			n := calls[i].Load()
			switch {
			case task.Index != i || task.Data != i:
				t.Fatalf("task %d is %+v", i, task)
			case task.Outcome == penstock.Succeeded && n == 1 && task.Result == i:
				sum.Succeeded++
			case task.Outcome == penstock.Unfinished && n <= 1 && task.Err != nil:
				sum.Unfinished++
			default:
				t.Fatalf("task %d was begun %d times: %+v", i, n, task)
			}
		}
		if c := e.Counters(); c != sum {
			t.Fatalf("the counters say %+v, the tasks %+v", c, sum)
		}
	}
}

// TestBatchPortionsRace has many workers that are held up now and then, so that portions change hands all the time.
func TestBatchPortionsRace(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		const items = 20_000
		var calls [items]atomic.Int32
		var wg sync.WaitGroup
		stop := make(chan struct{})
		e := newInts(t, func(_ context.Context, i int) (int, error) {
			calls[i].Add(1)
			if i%197 == round {
				time.Sleep(time.Duration(rand.IntN(50)) * time.Microsecond)
			}
			return i, nil
		}, 2+round)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c := e.Counters(); c.Pending < 0 || c.Running < 0 || c.Running > 2+round || c.Ended() > items {
					t.Errorf("the counters are %+v", c)
					return
				}
			}
		})
		tasks, err := e.ProcessAll(background, numbers(items))
		close(stop)
		wg.Wait()
		if err != nil {
			t.Fatal(err)
		}
		for i, task := range tasks {
			if n := calls[i].Load(); n != 1 || task.Result != i || task.Outcome != penstock.Succeeded {
				t.Fatalf("item %d was begun %d times: %+v", i, n, task)
			}
		}
	}
}

// TestBatchOneByOne has pairs of items that must be under way at the same time, after many that take no time.
func TestBatchOneByOne(t *testing.T) {
	const quick, items = 3000, 3200
	for range 5 {
		meet := make([]chan struct{}, items)
		for i := range meet {
			meet[i] = make(chan struct{})
		}
		e := newInts(t, func(_ context.Context, i int) (int, error) {
			if i >= quick {
				select {
				case meet[i&^1] <- struct{}{}:
				case <-meet[i&^1]:
				}
			}
			return i, nil
		}, 2, penstock.WithBatch(1))
		if _, err := e.ProcessAll(background, numbers(items)); err != nil {
			t.Fatal(err)
		}
	}
}

// endingContext is a context that has ended a moment before those who wait for that are told.
type endingContext struct {
	context.Context
	ended atomic.Bool
}

func (c *endingContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// TestBatchContextEndsDuringTheLast has the context end while the last item is under way, which succeeds all the same.
func TestBatchContextEndsDuringTheLast(t *testing.T) {
	ctx := &endingContext{Context: background}
	e := newInts(t, func(_ context.Context, i int) (int, error) {
		ctx.ended.Store(true)
		return i, nil
	}, 1)
	tasks, err := e.ProcessAll(ctx, numbers(2))
	if err != nil || tasks[0].Outcome != penstock.Succeeded || tasks[1].Outcome != penstock.Succeeded {
		t.Errorf("%v; the error is %v, although nothing was cut off", tasks, err)
	}
}
