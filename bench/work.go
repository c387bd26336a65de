package main

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock"
)

// A handler is the work per item. Its right answer is always right(item), so that every output can be checked.
type handler func(context.Context, int) (int, error)

type task = penstock.Task[int, int]

func right(item int) int { return item + 1 }

func noop(_ context.Context, item int) (int, error) { return right(item), nil }

// nap waits like a call of a remote service: it takes time and no processor.
func nap(_ context.Context, item int) (int, error) {
	time.Sleep(time.Millisecond)
	return right(item), nil
}

// spinner is a handler that keeps a processor busy for d. It counts steps and looks at no clock: reading one costs a
// good part of a microsecond on some machines.
func spinner(d time.Duration) handler {
	steps := int(float64(d) / stepTime())
	return func(_ context.Context, item int) (int, error) {
		if spin(steps) == 0 { // never: a shift register does not get to zero
			return 0, context.Canceled
		}
		return right(item), nil
	}
}

//go:noinline
func spin(steps int) uint64 {
	x := uint64(88172645463325252)
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// stepTime is how many nanoseconds a step of spin takes: the best of several tries, which is the least disturbed one.
func stepTime() float64 {
	const steps = 2_000_000
	best := time.Duration(1<<63 - 1)
	for range 7 {
		start := time.Now()
		if spin(steps) != 0 { // always: the result has to be used for something
			best = min(best, time.Since(start))
		}
	}
	return float64(best) / steps
}

// numbers gives the items 0 … n-1, so that an item is also its own position.
func numbers(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

// values is what a batch came to, whatever its type.
type values interface {
	count() int
	at(i int) (int, error)
}

type ints []int

func (v ints) count() int            { return len(v) }
func (v ints) at(i int) (int, error) { return v[i], nil }

type tasks []task

func (v tasks) count() int { return len(v) }
func (v tasks) at(i int) (int, error) {
	t := &v[i]
	if t.Index != i || t.Data != i || t.Outcome != penstock.Succeeded || t.Attempts != 1 {
		return 0, fmt.Errorf("task %d is %+v", i, *t)
	}
	return t.Result, t.Err
}

// checkBatch wants one right value for each item, in order.
func checkBatch(t *turn) error {
	if t.values == nil || t.values.count() != len(t.items) {
		return fmt.Errorf("not as many results as the %d items", len(t.items))
	}
	for i, item := range t.items {
		v, err := t.values.at(i)
		if err != nil {
			return err
		}
		if v != right(item) {
			return fmt.Errorf("result %d is %d and not %d", i, v, right(item))
		}
	}
	return nil
}

// checkOrdered wants one right value for each item, in order.
func checkOrdered(t *turn) error {
	t.values = ints(t.stream)
	return checkBatch(t)
}

// checkStream wants one right value for each item, in any order.
func checkStream(t *turn) error {
	if len(t.stream) != len(t.items) {
		return fmt.Errorf("%d results of %d items", len(t.stream), len(t.items))
	}
	seen := make([]bool, len(t.items))
	for _, v := range t.stream {
		item := v - 1
		if item < 0 || item >= len(seen) || seen[item] {
			return fmt.Errorf("result %d is wrong or came twice", v)
		}
		seen[item] = true
	}
	return nil
}
