package casetest_test

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
)

// sourceKinds are the five kinds of source.
var sourceKinds = []string{"slice", "seq", "seq2", "chan", "func"}

// A feed is a source that is watched. Its items count up from 0.
type feed struct {
	source penstock.Source[int]
	pulled atomic.Int64 // items that the source was asked for; of a slice none
	ended  atomic.Bool  // the source's own clean-up has run; a slice has none
	quit   chan struct{}
	feeder sync.WaitGroup
}

const endless = -1

// newFeed makes a feed of n items, or an endless one; a slice that is endless has very many.
func newFeed(kind string, n int) *feed {
	f := &feed{quit: make(chan struct{})}
	seq := func(yield func(int) bool) {
		defer f.ended.Store(true)
		for i := 0; i != n; i++ {
			f.pulled.Add(1)
			if !yield(i) {
				return
			}
		}
	}
	switch kind {
	case "slice":
		if n == endless {
			n = 2000
		}
		f.source = penstock.FromSlice(numbers(n))
	case "seq":
		f.source = penstock.FromSeq(seq)
	case "seq2":
		f.source = penstock.FromSeq2(func(yield func(int, error) bool) {
			seq(func(i int) bool { return yield(i, nil) })
		})
	case "chan":
		ch := make(chan int)
		f.feeder.Go(func() {
			defer f.ended.Store(true)
			for i := 0; i != n; i++ {
				select {
				case ch <- i:
					f.pulled.Add(1)
				case <-f.quit:
					return
				}
			}
			close(ch)
		})
		f.source = penstock.FromChan(ch)
	case "func":
		f.source = penstock.FromFunc(func(_ context.Context, yield func(int) bool) error {
			seq(yield)
			return nil
		})
	default:
		panic(kind)
	}
	return f
}

// close ends what the test itself has started for the feed: the goroutine that fills the channel.
func (f *feed) close() {
	close(f.quit)
	f.feeder.Wait()
}

// A way is one of the ways to have items processed to the end.
type way struct {
	name    string
	ordered bool // the tasks come in input order
	whole   bool // there is a task for every item, whatever happens
	foreman bool
	run     func(ctx context.Context, h handler, workers int, items []int, opts ...option) end
}

// ways are all of them: each helper with each kind of source, runs made by hand, and the bare foreman.
var ways = func() []way {
	ways := []way{
		{name: "ProcessAll", ordered: true, whole: true, run: processAll},
		{name: "Run.Next", run: byNext},
		{name: "Run.Results", run: byResults},
		{name: "Run.Drain", run: byDrain},
		{name: "Foreman", foreman: true, run: byForeman},
	}
	for _, kind := range sourceKinds {
		ways = append(ways,
			way{name: "ProcessSource(" + kind + ")", ordered: true, whole: kind == "slice", run: processSource(kind)},
			way{name: "IterResults(" + kind + ")", run: iterate(kind, (*engine).IterResults)},
			way{name: "IterOrdered(" + kind + ")", ordered: true, run: iterate(kind, (*engine).IterOrdered)})
	}
	return ways
}()

// eachWay runs f in a bubble for each way.
func eachWay(t *testing.T, f func(t *testing.T, w way)) {
	t.Helper()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) { bubble(t, func(t *testing.T) { f(t, w) }) })
	}
}

func processAll(ctx context.Context, h handler, workers int, items []int, opts ...option) end {
	e := newEngine(h, workers, opts...)
	tasks, err := e.ProcessAll(ctx, items)
	return end{tasks, err, e.Counters()}
}

// sourceOf gives these items as a source of that kind. quit ends what fills a channel.
func sourceOf(kind string, items []int) (src penstock.Source[int], quit func()) {
	if kind == "slice" {
		return penstock.FromSlice(items), func() {}
	}
	f := newFeed(kind, len(items))
	for i := range items {
		if items[i] != i {
			panic("a feed counts from 0")
		}
	}
	return f.source, f.close
}

func processSource(kind string) func(context.Context, handler, int, []int, ...option) end {
	return func(ctx context.Context, h handler, workers int, items []int, opts ...option) end {
		e := newEngine(h, workers, opts...)
		src, quit := sourceOf(kind, items)
		defer quit()
		tasks, err := e.ProcessSource(ctx, src)
		return end{tasks, err, e.Counters()}
	}
}

type iterator = func(*engine, context.Context, penstock.Source[int]) iter.Seq2[task, error]

func iterate(kind string, iterator iterator) func(context.Context, handler, int, []int, ...option) end {
	return func(ctx context.Context, h handler, workers int, items []int, opts ...option) (out end) {
		e := newEngine(h, workers, opts...)
		src, quit := sourceOf(kind, items)
		defer quit()
		for task, err := range iterator(e, ctx, src) {
			if err != nil {
				out.err = err
			} else {
				out.tasks = append(out.tasks, task)
			}
		}
		out.count = e.Counters()
		return out
	}
}

// submitAll submits until it is refused or all is submitted, and closes the input. wait waits for it.
func submitAll(ctx context.Context, run *penstock.Run[int, int], items []int) (wait func()) {
	var submitter sync.WaitGroup
	submitter.Go(func() {
		defer run.CloseInput()
		for _, item := range items {
			if _, err := run.Submit(ctx, item); err != nil {
				return
			}
		}
	})
	return submitter.Wait
}

func byNext(ctx context.Context, h handler, workers int, items []int, opts ...option) (out end) {
	run := newEngine(h, workers, opts...).Start(ctx)
	defer submitAll(ctx, run, items)()
	for {
		task, err := run.Next(context.Background())
		if err != nil {
			if !errors.Is(err, penstock.ErrNoMoreResults) {
				out.err = err
			}
			out.count = run.Counters()
			return out
		}
		out.tasks = append(out.tasks, task)
	}
}

func byResults(ctx context.Context, h handler, workers int, items []int, opts ...option) (out end) {
	run := newEngine(h, workers, opts...).Start(ctx)
	defer submitAll(ctx, run, items)()
	for task, err := range run.Results() {
		if err != nil {
			out.err = err
			break
		}
		out.tasks = append(out.tasks, task)
	}
	out.count = run.Counters()
	return out
}

// byDrain reads nothing before the end, so nothing may be bounded.
func byDrain(ctx context.Context, h handler, workers int, items []int, opts ...option) end {
	opts = append(opts, penstock.WithResultCapacity(penstock.Unlimited))
	run := newEngine(h, workers, opts...).Start(ctx)
	defer submitAll(ctx, run, items)()
	<-run.Done()
	return end{run.Drain(), run.Err(), run.Counters()}
}

func byForeman(ctx context.Context, h handler, workers int, items []int, opts ...option) (out end) {
	f := must(foreman.New(h, workers, opts...))
	if err := f.Start(ctx); err != nil {
		panic(err)
	}
	var adder sync.WaitGroup
	defer adder.Wait()
	adder.Go(func() {
		for i, item := range items {
			if f.Add(ctx, task{Index: i, Data: item}) != nil {
				break
			}
		}
		_ = f.Finalize(context.Background()) // its error is Next's last one
	})
	for {
		task, err := f.Next(context.Background())
		if err != nil {
			if !errors.Is(err, penstock.ErrNoMoreResults) {
				out.err = err
			}
			out.count = f.Counters()
			return out
		}
		out.tasks = append(out.tasks, task)
	}
}

// A stream is one of the ways to range over the results of one kind of source.
type stream struct {
	kind    string
	ordered bool
	results iterator
}

// eachStream runs f in a subtest for each of them.
func eachStream(t *testing.T, f func(t *testing.T, s stream)) {
	t.Helper()
	for _, kind := range sourceKinds {
		t.Run("IterResults("+kind+")", func(t *testing.T) { f(t, stream{kind, false, (*engine).IterResults}) })
		t.Run("IterOrdered("+kind+")", func(t *testing.T) { f(t, stream{kind, true, (*engine).IterOrdered}) })
	}
}
