package penstock_test

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
)

// The names that nearly every test needs.
type (
	intTask    = penstock.Task[int, int]
	intEngine  = penstock.Engine[int, int]
	intRun     = penstock.Run[int, int]
	intHandler = func(context.Context, int) (int, error)
)

var (
	errX   = errors.New("error X")
	errWhy = errors.New("the reason why")
)

// background is a context that never ends.
var background = context.Background()

func newInts(t testing.TB, handler intHandler, workers int, opts ...penstock.Option) *intEngine {
	t.Helper()
	e, err := penstock.New(handler, workers, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func double(_ context.Context, n int) (int, error) { return 2 * n, nil }

// pause works for d, and gives up when its context ends, as a good handler does.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow is a handler that takes d.
func slow(d time.Duration) intHandler {
	return func(ctx context.Context, n int) (int, error) { return 2 * n, pause(ctx, d) }
}

// until is a handler that waits for a channel, and gives up when its context ends.
func until(gate <-chan struct{}) intHandler {
	return func(ctx context.Context, n int) (int, error) {
		select {
		case <-gate:
			return 2 * n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// A gauge counts what is there now, the most that ever was, and all that came.
type gauge struct{ now, peak, total atomic.Int64 }

func (g *gauge) enter() {
	g.total.Add(1)
	now := g.now.Add(1)
	for {
		peak := g.peak.Load()
		if now <= peak || g.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// around measures a handler.
func (g *gauge) around(h intHandler) intHandler {
	return func(ctx context.Context, n int) (int, error) {
		g.enter()
		defer g.leave()
		return h(ctx, n)
	}
}

// watch ends a test on the real clock that hangs, with all stacks. A bubble finds out by itself.
func watch(t testing.TB) {
	t.Helper()
	timer := time.AfterFunc(30*time.Second, func() {
		debug.SetTraceback("all")
		panic(t.Name() + " hangs")
	})
	t.Cleanup(func() { timer.Stop() })
}

// eventually waits on the real clock for something that takes a few scheduler turns.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); runtime.Gosched() {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// tally checks that each task has properly ended and carries its own data, that their numbers are 0, 1, 2 … without a
// gap or a double, and counts outcomes.
func tally(t testing.TB, tasks []intTask) (c penstock.Counters) {
	t.Helper()
	tasks = slices.SortedFunc(slices.Values(tasks), func(a, b intTask) int { return a.Index - b.Index })
	for i, task := range tasks {
		if task.Index != i {
			t.Fatalf("task %d of %d has the number %d", i, len(tasks), task.Index)
		}
		if (task.Err == nil) != (task.Outcome == penstock.Succeeded) {
			t.Errorf("task %d: %v with error %v", i, task.Outcome, task.Err)
		}
		switch task.Outcome {
		case penstock.Succeeded:
			c.Succeeded++
		case penstock.Failed:
			c.Failed++
		case penstock.Shed:
			c.Shed++
		case penstock.Unfinished:
			c.Unfinished++
		default:
			t.Errorf("task %d has no outcome: %v", i, task.Outcome)
		}
		c.Retries += max(0, task.Attempts-1)
	}
	return c
}

// collect reads a stream to its end: an error must come once, last, with a zero task.
func collect(t testing.TB, stream iter.Seq2[intTask, error]) (tasks []intTask, failure error) {
	t.Helper()
	for task, err := range stream {
		if failure != nil {
			t.Fatalf("after the run's error came task %v, error %v", task, err)
		}
		if err != nil {
			if task != (intTask{}) {
				t.Errorf("the run's error came with task %v", task)
			}
			failure = err
			continue
		}
		tasks = append(tasks, task)
	}
	return tasks, failure
}

// drainRun reads a run by hand to its end.
func drainRun(t testing.TB, run *intRun) (tasks []intTask, failure error) {
	t.Helper()
	for {
		task, err := run.Next(background)
		if err != nil {
			return tasks, err
		}
		tasks = append(tasks, task)
	}
}

func mustSubmit(t testing.TB, run *intRun, items ...int) {
	t.Helper()
	for _, n := range items {
		if _, err := run.Submit(background, n); err != nil {
			t.Fatalf("submitting %d: %v", n, err)
		}
	}
}

// A sourceKind makes a source of 0, 1, 2 … n-1, or an endless one for a negative n, and tells took about each item the
// moment it leaves the source. Everything it started has ended when the run has and ctx did.
type sourceKind struct {
	name   string
	queued bool // it goes through the input queue
	make   func(ctx context.Context, n int, took func()) penstock.Source[int]
}

const plenty = 10_000 // stands for no end where there must be one

func sourceKinds() []sourceKind {
	count := func(n int, took func(), yield func(int) bool) {
		for i := 0; i != n; i++ {
			took()
			if !yield(i) {
				return
			}
		}
	}
	return []sourceKind{
		{"slice", false, func(_ context.Context, n int, _ func()) penstock.Source[int] {
			if n < 0 {
				n = plenty
			}
			return penstock.FromSlice(numbers(n))
		}},
		{"chan", false, func(ctx context.Context, n int, took func()) penstock.Source[int] {
			ch := make(chan int)
			go func() {
				defer close(ch)
				for i := 0; i != n; i++ {
					select {
					case ch <- i:
						took()
					case <-ctx.Done():
						return
					}
				}
			}()
			return penstock.FromChan(ch)
		}},
		{"seq", true, func(_ context.Context, n int, took func()) penstock.Source[int] {
			return penstock.FromSeq(func(yield func(int) bool) { count(n, took, yield) })
		}},
		{"seq2", true, func(_ context.Context, n int, took func()) penstock.Source[int] {
			return penstock.FromSeq2(func(yield func(int, error) bool) {
				count(n, took, func(i int) bool { return yield(i, nil) })
			})
		}},
		{"func", true, func(_ context.Context, n int, took func()) penstock.Source[int] {
			return penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
				count(n, took, yield)
				return nil
			})
		}},
	}
}

// A way is one of the ways to work through a source.
type way struct {
	name    string
	ordered bool // the tasks come in input order
	run     func(t testing.TB, ctx context.Context, e *intEngine, src penstock.Source[int]) ([]intTask, error)
}

func ways() []way {
	return []way{
		{"ProcessSource", true, func(_ testing.TB, ctx context.Context, e *intEngine, src penstock.Source[int]) ([]intTask, error) {
			return e.ProcessSource(ctx, src)
		}},
		{"IterResults", false, func(t testing.TB, ctx context.Context, e *intEngine, src penstock.Source[int]) ([]intTask, error) {
			return collect(t, e.IterResults(ctx, src))
		}},
		{"IterOrdered", true, func(t testing.TB, ctx context.Context, e *intEngine, src penstock.Source[int]) ([]intTask, error) {
			return collect(t, e.IterOrdered(ctx, src))
		}},
	}
}

// blocked reports whether err says that a deadline came while its owner waited for room, or for the end of a run.
func blocked(err error, waitedFor string) bool {
	var b *penstock.BlockedError
	return errors.As(err, &b) && b.For == waitedFor && b.Err == context.DeadlineExceeded && errors.Is(err, context.DeadlineExceeded)
}
