package main

import (
	"context"
	"sync"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/destel/rill"
	"github.com/panjf2000/ants/v2"
	concpool "github.com/sourcegraph/conc/pool"
	"github.com/sourcegraph/conc/stream"
	"golang.org/x/sync/errgroup"
)

// answer is what goes through the channel between a peer's handlers and the consumer. It is a third of a Task.
type answer struct {
	value int
	err   error
}

// collect is the consumer of a peer that brings no stream of its own: produce submits everything and returns when all of
// it has been handled. The channel is as deep as there are workers, as everywhere.
func collect(t *turn, produce func(out chan<- answer) error) error {
	out := make(chan answer, t.workers)
	var err error
	go func() {
		defer close(out)
		err = produce(out)
	}()
	for a := range out {
		if a.err != nil {
			return a.err
		}
		t.emit(a.value)
	}
	return err
}

func answerOf(v int, err error) answer { return answer{v, err} }

func rillStream(t *turn) error {
	ctx := context.Background()
	in := rill.FromSlice(t.items, nil)
	return rillEmit(t, rill.Map(in, t.workers, func(item int) (int, error) { return t.handle(ctx, item) }))
}

func rillOrdered(t *turn) error {
	ctx := context.Background()
	in := rill.FromSlice(t.items, nil)
	return rillEmit(t, rill.OrderedMap(in, t.workers, func(item int) (int, error) { return t.handle(ctx, item) }))
}

func rillEmit(t *turn, results <-chan rill.Try[int]) error {
	for r := range results {
		if r.Error != nil {
			return r.Error
		}
		t.emit(r.Value)
	}
	return nil
}

func errgroupStream(t *turn) error {
	ctx := context.Background()
	return collect(t, func(out chan<- answer) error {
		var g errgroup.Group
		g.SetLimit(t.workers)
		for _, item := range t.items {
			g.Go(func() error {
				out <- answerOf(t.handle(ctx, item))
				return nil
			})
		}
		return g.Wait()
	})
}

func concPoolStream(t *turn) error {
	ctx := context.Background()
	return collect(t, func(out chan<- answer) error {
		p := concpool.New().WithMaxGoroutines(t.workers)
		for _, item := range t.items {
			p.Go(func() { out <- answerOf(t.handle(ctx, item)) })
		}
		p.Wait()
		return nil
	})
}

// pondStream bounds its queue, which has no bound by default.
func pondStream(t *turn) error {
	ctx := context.Background()
	return collect(t, func(out chan<- answer) error {
		p := pond.NewPool(t.workers, pond.WithQueueSize(t.workers))
		defer p.StopAndWait()
		for _, item := range t.items {
			if err := p.Go(func() { out <- answerOf(t.handle(ctx, item)) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func antsStream(t *turn) error {
	ctx := context.Background()
	return collect(t, func(out chan<- answer) error {
		var wg sync.WaitGroup
		p, err := ants.NewPoolWithFuncGeneric(t.workers, func(item int) {
			defer wg.Done()
			out <- answerOf(t.handle(ctx, item))
		})
		if err != nil {
			return err
		}
		t.after(func() { _ = p.ReleaseTimeout(time.Minute) })
		for _, item := range t.items {
			wg.Add(1)
			if err := p.Invoke(item); err != nil {
				return err
			}
		}
		wg.Wait()
		return nil
	})
}

// concStream calls back in input order, one at a time.
func concStream(t *turn) error {
	ctx := context.Background()
	var failed error
	s := stream.New().WithMaxGoroutines(t.workers)
	for _, item := range t.items {
		s.Go(func() stream.Callback {
			v, err := t.handle(ctx, item)
			return func() {
				if err != nil {
					failed = err
				}
				t.emit(v)
			}
		})
	}
	s.Wait()
	return failed
}

// pondOrdered keeps the order with a channel of futures.
func pondOrdered(t *turn) error {
	ctx := context.Background()
	p := pond.NewResultPool[int](t.workers, pond.WithQueueSize(t.workers))
	t.after(p.StopAndWait)
	futures := make(chan pond.ResultTask[int], t.workers)
	go func() {
		defer close(futures)
		for _, item := range t.items {
			futures <- p.SubmitErr(func() (int, error) { return t.handle(ctx, item) })
		}
	}()
	for f := range futures {
		v, err := f.Wait()
		if err != nil {
			return err
		}
		t.emit(v)
	}
	return nil
}
