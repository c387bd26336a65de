package main

import (
	"context"

	"github.com/penstock-go/penstock"
)

// engine makes an engine for a turn. A turn makes all it needs while the clock runs, as its rivals do.
func engine(t *turn, opts ...penstock.Option) (*penstock.Engine[int, int], error) {
	return penstock.New(t.handle, t.workers, opts...)
}

// processAll is an ordered batch.
func processAll(opts ...penstock.Option) func(*turn) error {
	return func(t *turn) error {
		e, err := engine(t, opts...)
		if err != nil {
			return err
		}
		out, err := e.ProcessAll(context.Background(), t.items)
		t.values = tasks(out)
		return err
	}
}

// iterResults is a stream in order of completion.
func iterResults(source func([]int) penstock.Source[int], opts ...penstock.Option) func(*turn) error {
	return func(t *turn) error {
		e, err := engine(t, opts...)
		if err != nil {
			return err
		}
		for r, err := range e.IterResults(context.Background(), source(t.items)) {
			if err != nil {
				return err
			}
			if r.Err != nil {
				return r.Err
			}
			t.emit(r.Result)
		}
		return nil
	}
}

// iterOrdered is a stream in input order.
func iterOrdered(source func([]int) penstock.Source[int], opts ...penstock.Option) func(*turn) error {
	return func(t *turn) error {
		e, err := engine(t, opts...)
		if err != nil {
			return err
		}
		for r, err := range e.IterOrdered(context.Background(), source(t.items)) {
			if err != nil {
				return err
			}
			if r.Err != nil {
				return r.Err
			}
			t.emit(r.Result)
		}
		return nil
	}
}

func fromSlice(items []int) penstock.Source[int] { return penstock.FromSlice(items) }

// fromFunc is a source with a goroutine of its own, like the producer of the hand-written pools.
func fromFunc(items []int) penstock.Source[int] {
	return penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
		for _, item := range items {
			if !yield(item) {
				break
			}
		}
		return nil
	})
}
