package penstock

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
)

// An Engine is an immutable recipe: a handler, a number of workers, and the limits they keep. It is safe for concurrent
// use. Each call of a helper and each Start is a run of its own, with its own queues, workers and counters. Runs share
// the handler, the limiter, the retry budget and the breaker, and nothing else, so they may overlap, and there is
// nothing to close, reset or drain. An engine that is not running costs no goroutine.
type Engine[D, R any] struct {
	plan *foreman.Plan[D, R]

	mu     sync.Mutex
	active map[*foreman.Crew[D, R]]struct{}
	ended  foreman.Counters // of the runs that are over
}

// New makes an engine that calls handler with up to workers items at a time. A worker is occupied by its item from the
// first wait for the limiter to the last retry. Workers are goroutines, started only for items that need one.
//
// The handler gets a context that ends when the run is cancelled, when its attempt or task timeout strikes, or when the
// caller of [Run.Do] gives up, and should return soon after. Nothing can stop one that does not, and whoever waits for
// the run then waits for it.
//
// The error names every fault in the arguments and options: one *[OptionError] for each, joined. Nothing is started.
func New[TData, TResult any](handler func(ctx context.Context, data TData) (TResult, error), workers int, opts ...Option) (*Engine[TData, TResult], error) {
	plan, err := foreman.NewPlan(handler, workers, workers, workers, opts...)
	if err != nil {
		return nil, err
	}
	return &Engine[TData, TResult]{plan: plan, active: make(map[*foreman.Crew[TData, TResult]]struct{})}, nil
}

// ProcessAll works on all items and returns one task for each, in input order, always: when the run fails, what had
// ended keeps its outcome and the rest is Unfinished, with the cause. The error is the run's and never one item's; an
// item's is in its task. Nothing runs any more when ProcessAll returns.
//
// It needs no queues: workers claim items by index and write the outcome where it belongs. Items are begun in input order,
// except where they take less than two microseconds: there a worker claims up to 32 at a time, and when it is held up the
// others take over what it has not begun. A handler that waits for what another one does with a later item needs WithBatch(1),
// which forbids that: then the items under way are always neighbours.
func (e *Engine[D, R]) ProcessAll(ctx context.Context, items []D) ([]Task[D, R], error) {
	tasks := make([]Task[D, R], len(items))
	crew := e.divide(ctx, items, tasks)
	<-crew.Done()
	return tasks, crew.Err()
}

// ProcessSource is ProcessAll for any source. It returns one task for each item that the source gave, in the order it
// gave them. The list is the only thing that grows with the number of items. An error of the source is a *[SourceError].
func (e *Engine[D, R]) ProcessSource(ctx context.Context, src Source[D]) ([]Task[D, R], error) {
	if src.isSlice() {
		return e.ProcessAll(ctx, src.items)
	}
	var list taskList[D, R]
	crew := e.launch(ctx, src, &list, nil)
	<-crew.Done()
	return list.tasks, crew.Err()
}

// IterResults works on the items of a source and yields each task as it ends. It starts when it is ranged over; each
// range is a run of its own. An item's failure is in its task. A non-nil error is the run's: it comes once, last, with a
// zero task, after all tasks.
//
// Memory is bounded: see [buffering.Bound]. A slow loop body slows the workers and then the source.
//
// Leaving the loop in any way, by its end, break, return or panic, cancels the run, and the loop statement ends only when
// the source, the workers and every other goroutine of the run have ended. So a source or a handler that does not heed
// its context holds up the loop. Whoever leaves early does not get to see the tasks that were under way, nor the run's
// error; hooks and counters do.
func (e *Engine[D, R]) IterResults(ctx context.Context, src Source[D]) iter.Seq2[Task[D, R], error] {
	return func(yield func(Task[D, R], error) bool) {
		results := e.plan.NewOutbox()
		crew := e.launch(ctx, src, results, nil)
		defer leave(crew)
		var batch []Task[D, R]
		for {
			if batch = results.TakeAll(batch); batch == nil {
				break
			}
			if !yieldEach(batch, yield, nil) {
				return
			}
		}
		if err := ending(crew); err != nil {
			yield(Task[D, R]{}, err)
		}
	}
}

// IterOrdered is IterResults in input order. At most workers + result capacity items lie between the oldest one not yet
// yielded and the newest one started, so one slow item holds up the rest once that many have passed it.
func (e *Engine[D, R]) IterOrdered(ctx context.Context, src Source[D]) iter.Seq2[Task[D, R], error] {
	return func(yield func(Task[D, R], error) bool) {
		window := buffering.NewWindow[Task[D, R]](e.window())
		crew := e.launch(ctx, src, reorder[D, R]{window}, window)
		defer leave(crew)
		var batch []Task[D, R]
		for {
			if batch = window.TakeReady(batch); batch == nil {
				break
			}
			if !yieldEach(batch, yield, window) {
				return
			}
		}
		if err := ending(crew); err != nil {
			yield(Task[D, R]{}, err)
		}
	}
}

// window is the size of the reorder window.
func (e *Engine[D, R]) window() int {
	if size := e.plan.Workers() + e.plan.ResultCapacity(); size > 0 {
		return size
	}
	return Unlimited // the sum ran over
}

// yieldEach yields the tasks and lets go of each. It reports whether the loop goes on.
func yieldEach[D, R any](batch []Task[D, R], yield func(Task[D, R], error) bool, window *buffering.Window[Task[D, R]]) bool {
	for i := range batch {
		task := batch[i]
		batch[i] = Task[D, R]{}
		if !yield(task, nil) {
			return false
		}
		if window != nil {
			window.Release(1)
		}
	}
	return true
}

// errLeft is the cause that handlers and hooks see when the consumer has left its loop.
var errLeft = errors.New("penstock: the consumer left the loop over the results")

// leave ends a run whose consumer is gone, by whatever way, and waits until nothing of it runs any more.
func leave[D, R any](crew *foreman.Crew[D, R]) {
	crew.Cancel(errLeft)
	<-crew.Done()
}

// ending waits for the end of a run whose results have all been read, and returns its error.
func ending[D, R any](crew *foreman.Crew[D, R]) error {
	<-crew.Done()
	return crew.Err()
}

// Counters adds up all runs of the engine, those under way included.
func (e *Engine[D, R]) Counters() Counters {
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := e.ended
	for crew := range e.active {
		sum = sum.Plus(crew.Counters())
	}
	return sum
}

// newCrew makes the crew of a run and keeps account of it. It still has to be started.
func (e *Engine[D, R]) newCrew(ctx context.Context, config foreman.CrewConfig[D, R]) *foreman.Crew[D, R] {
	var crew *foreman.Crew[D, R]
	config.OnEnd = func(c Counters) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ended = e.ended.Plus(c)
		delete(e.active, crew)
	}
	crew = e.plan.NewCrew(ctx, config)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active[crew] = struct{}{}
	return crew
}

// Values returns the results of tasks that have all succeeded. Otherwise it returns nil and every failure, joined: the
// run's error first, then a *[TaskError] for each task that failed or was shed, and one for all that were left unfinished. It
// takes what ProcessAll returns: Values(engine.ProcessAll(ctx, items)).
func Values[D, R any](tasks []Task[D, R], err error) ([]R, error) {
	var failures []error
	if err != nil {
		failures = append(failures, err)
	}
	values := make([]R, len(tasks))
	var unfinished *TaskError
	for i := range tasks {
		t := &tasks[i]
		if values[i], err = t.Value(); err == nil {
			continue
		}
		if t.Outcome == Unfinished && unfinished != nil {
			unfinished.More++
			continue
		}
		failure := &TaskError{Task: t.ID(), Err: err}
		failures = append(failures, failure)
		if t.Outcome == Unfinished {
			unfinished = failure
		}
	}
	if len(failures) > 0 {
		return nil, errors.Join(failures...)
	}
	return values, nil
}
