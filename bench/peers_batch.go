package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/destel/rill"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	"github.com/samber/lo/parallel"
	"github.com/sourcegraph/conc/iter"
	concpool "github.com/sourcegraph/conc/pool"
	"golang.org/x/sync/errgroup"
)

// errgroupBatch writes results by index: the group only runs functions.
func errgroupBatch(t *turn) error {
	ctx := context.Background()
	out := make([]int, len(t.items))
	var g errgroup.Group
	g.SetLimit(t.workers)
	for i, item := range t.items {
		g.Go(func() (err error) {
			out[i], err = t.handle(ctx, item)
			return err
		})
	}
	err := g.Wait()
	t.values = ints(out)
	return err
}

// concResults: the result pool of this version gives results in order of completion, so each takes its place along.
func concResults(t *turn) error {
	type placed struct{ index, value int }
	ctx := context.Background()
	p := concpool.NewWithResults[placed]().WithErrors().WithMaxGoroutines(t.workers)
	for i, item := range t.items {
		p.Go(func() (placed, error) {
			v, err := t.handle(ctx, item)
			return placed{i, v}, err
		})
	}
	results, err := p.Wait()
	out := make([]int, len(t.items))
	for _, r := range results {
		out[r.index] = r.value
	}
	t.values = ints(out)
	return err
}

// concMapper is conc's own claim loop over a slice.
func concMapper(t *turn) error {
	ctx := context.Background()
	mapper := iter.Mapper[int, int]{MaxGoroutines: t.workers}
	out, err := mapper.MapErr(t.items, func(item *int) (int, error) { return t.handle(ctx, *item) })
	t.values = ints(out)
	return err
}

func pondBatch(t *turn) error {
	ctx := context.Background()
	p := pond.NewResultPool[int](t.workers)
	t.after(p.StopAndWait)
	group := p.NewGroup()
	for _, item := range t.items {
		group.SubmitErr(func() (int, error) { return t.handle(ctx, item) })
	}
	out, err := group.Wait()
	t.values = ints(out)
	return err
}

// antsBatch uses the pool for one function, its quickest. It knows neither results nor errors.
func antsBatch(t *turn) error {
	ctx := context.Background()
	out := make([]int, len(t.items))
	var wg sync.WaitGroup
	var failed atomic.Bool
	p, err := ants.NewPoolWithFuncGeneric(t.workers, func(i int) {
		defer wg.Done()
		v, err := t.handle(ctx, t.items[i])
		if err != nil {
			failed.Store(true)
		}
		out[i] = v
	})
	if err != nil {
		return err
	}
	t.after(func() { _ = p.ReleaseTimeout(time.Minute) })
	for i := range t.items {
		wg.Add(1)
		if err := p.Invoke(i); err != nil {
			return err
		}
	}
	wg.Wait()
	t.values = ints(out)
	return failure(&failed)
}

var errHandler = errors.New("a handler failed")

func failure(failed *atomic.Bool) error {
	if failed.Load() {
		return errHandler
	}
	return nil
}

// workerpoolBatch ends its pool: that is the way to wait for everything.
func workerpoolBatch(t *turn) error {
	ctx := context.Background()
	out := make([]int, len(t.items))
	var failed atomic.Bool
	p := workerpool.New(t.workers)
	for i, item := range t.items {
		p.Submit(func() {
			v, err := t.handle(ctx, item)
			if err != nil {
				failed.Store(true)
			}
			out[i] = v
		})
	}
	p.StopWait()
	t.values = ints(out)
	return failure(&failed)
}

// loBatch starts a goroutine for each item: the function knows no limit.
func loBatch(t *turn) error {
	ctx := context.Background()
	var failed atomic.Bool
	out := parallel.Map(t.items, func(item, _ int) int {
		v, err := t.handle(ctx, item)
		if err != nil {
			failed.Store(true)
		}
		return v
	})
	t.values = ints(out)
	return failure(&failed)
}

func rillBatch(t *turn) error {
	ctx := context.Background()
	in := rill.FromSlice(t.items, nil)
	out, err := rill.ToSlice(rill.OrderedMap(in, t.workers, func(item int) (int, error) { return t.handle(ctx, item) }))
	t.values = ints(out)
	return err
}
