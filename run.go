package penstock

import (
	"context"
	"errors"
	"iter"

	"github.com/penstock-go/penstock/foreman"
)

// A Run is a run made by hand: items are submitted in one place and results read in another, or [Run.Do] does both for
// one item. Make one with [Engine.Start], and end it with Finish, Stop or the end of the context it was started with.
// All methods are safe for concurrent use, from handlers too; but a handler that waits for room, for a result or for the
// end of its own run waits for itself when every worker does so.
//
// Both the input and the results are bounded: with neither option set, submitting more than three items per worker
// without reading a result waits for ever, which is what the context of Submit is for. Read results while submitting.
type Run[D, R any] struct {
	engine *Engine[D, R]
	crew   *foreman.Crew[D, R]
	inbox  *foreman.Inbox[D, R]
	outbox foreman.Outbox[D, R]
}

// Start starts a run. It starts no goroutine yet; each worker begins when there is an item for it. When ctx ends the run
// is cancelled and its error is ctx's.
func (e *Engine[D, R]) Start(ctx context.Context) *Run[D, R] {
	r := &Run[D, R]{engine: e, inbox: e.plan.NewInbox(true), outbox: e.plan.NewOutbox()}
	r.crew = e.newCrew(ctx, foreman.CrewConfig[D, R]{Intake: r.inbox, Outlet: r.outbox, Watch: true})
	r.inbox.Open(r.crew)
	r.crew.Start()
	return r
}

// A SubmitOption sets something about one submitted item.
type SubmitOption func(*submission)

type submission struct {
	id       string
	priority *int
}

// WithID gives the item an id of the caller's, for [Task.ID], logs and errors. It need not be unique. An empty id means
// the item's number.
func WithID(id string) SubmitOption { return func(s *submission) { s.id = id } }

// AtPriority gives the item a priority, lower first, instead of what WithPriority's function says or the default of 0.
func AtPriority(n int) SubmitOption { return func(s *submission) { s.priority = &n } }

// Submit accepts an item and returns its id, or returns an error, and then the item is not accepted and the handler never
// sees it. It waits while the input is full, first come, first served.
//
// The error is ctx's when that has ended, even if there is room, inside a *[BlockedError] if it waited for some;
// [ErrInputClosed] after CloseInput or Finish; and the run's error or [ErrStopped] when the run has ended.
func (r *Run[D, R]) Submit(ctx context.Context, data D, opts ...SubmitOption) (id string, err error) {
	task, err := r.submit(ctx, data, opts, nil, nil)
	if err != nil {
		return "", err
	}
	return task.ID(), nil
}

func (r *Run[D, R]) submit(ctx context.Context, data D, opts []SubmitOption, own context.Context, reply func(*Task[D, R])) (task Task[D, R], err error) {
	if ctx.Err() != nil {
		return task, foreman.ContextError(ctx)
	}
	if err := r.crew.Cause(); err != nil { // sooner than the inbox hears of it
		return task, err
	}
	var s submission
	if len(opts) > 0 {
		if s, err = submissionOf(opts); err != nil {
			return task, err
		}
	}
	priority, err := r.priority(data, s)
	if err != nil {
		r.crew.Fail(err)
		return task, err
	}
	task = Task[D, R]{Data: data}.WithID(s.id)
	if task.Index, err = r.inbox.Add(ctx, task, priority, own, reply); err != nil {
		err = r.crew.Blocked(ctx, "room", r.outbox.Len(), err)
	}
	return task, err
}

// submissionOf applies the options. It is apart because what they are given a pointer to must be allocated.
func submissionOf(opts []SubmitOption) (s submission, err error) {
	for _, o := range opts {
		if o == nil {
			return s, &OptionError{Option: "Submit", Problem: "an option is nil: leave it out"}
		}
		o(&s)
	}
	return s, nil
}

func (r *Run[D, R]) priority(data D, s submission) (int, error) {
	if s.priority != nil {
		return *s.priority, nil
	}
	return r.engine.plan.PriorityOf(data)
}

// Do submits an item and waits for its own result, which is not handed out by Next: many callers can share one run, each
// getting its own reply. The error is the task's, or one of Submit's.
//
// When ctx ends, the context of the item's attempt ends too and Do returns ctx's error at once; the handler may still be
// on its way out, and the run waits for it. A limiter may refuse as soon as it knows that its grant would come after ctx's
// deadline: that is an *[UnfinishedError] which is [context.DeadlineExceeded] and says when the grant would have come. Whether
// it was the run that ended, its Err tells. The handler's context has the values of ctx, and those of the run's context.
func (r *Run[D, R]) Do(ctx context.Context, data D, opts ...SubmitOption) (R, error) {
	own, release := callerContext(ctx, r.crew.Context())
	replies := make(chan Task[D, R], 1)
	reply := func(t *Task[D, R]) {
		release()
		replies <- *t
	}
	var zero R
	if _, err := r.submit(ctx, data, opts, own, reply); err != nil {
		release()
		return zero, err
	}
	select {
	case t := <-replies:
		return t.Value()
	case <-ctx.Done():
	}
	select { // a reply that came at the same moment is not thrown away
	case t := <-replies:
		return t.Value()
	default:
		return zero, foreman.ContextError(ctx)
	}
}

// Next waits for the next result, in order of completion. After the last one it returns the run's error if there is one,
// which is [ErrStopped] after a Stop that cut work off, and otherwise [ErrNoMoreResults]. When ctx ends first it returns
// ctx's error, and no result is lost by that. Several readers share the results, each result going to one of them.
func (r *Run[D, R]) Next(ctx context.Context) (Task[D, R], error) {
	t, ok, err := r.outbox.Next(ctx)
	switch {
	case ok:
		return t, nil
	case err != nil:
		return t, foreman.ContextError(ctx)
	}
	<-r.crew.Done() // closing the results is the last step before it
	if err := r.crew.Err(); err != nil {
		return t, err
	}
	return t, ErrNoMoreResults
}

// Results yields results until the last one, and then the run's error, if there is one, with a zero task. Leaving the loop
// stops only the reading: the run goes on, and what was not yielded can still be read.
func (r *Run[D, R]) Results() iter.Seq2[Task[D, R], error] {
	return func(yield func(Task[D, R], error) bool) {
		for {
			t, err := r.Next(context.Background())
			if errors.Is(err, ErrNoMoreResults) && r.crew.Err() == nil {
				return
			}
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// Drain returns the results that are there now, without waiting; nil when there are none. Those with which workers wait for
// room are included, so it can be more than the result capacity.
func (r *Run[D, R]) Drain() []Task[D, R] { return r.outbox.Drain() }

// CloseInput says that no more items will be submitted. Submitters that wait are refused, as later ones are. What was
// accepted is still worked on, and the run ends after it.
func (r *Run[D, R]) CloseInput() { r.inbox.Close(ErrInputClosed) }

// Finish closes the input and waits until all work is done. It returns the run's error, each time it is called. When ctx
// ends first it returns a *[BlockedError] with ctx's error, and the run goes on: Stop is what aborts it. With a bounded result
// capacity somebody must read the results meanwhile.
func (r *Run[D, R]) Finish(ctx context.Context) error {
	r.CloseInput()
	return r.crew.Blocked(ctx, "end", r.outbox.Len(), r.crew.Wait(ctx))
}

// Stop cancels the run and waits for everything to end. Pending items end Unfinished, handlers are cancelled, nothing new
// starts, and results stay readable.
//
// It returns nil when everything has ended, although the run's Err is [ErrStopped] if that cut work off; the run's own
// error if it had failed before; and a *[StillRunningError] that
// names the tasks still running when ctx ends first. Then the run ends when their handlers return, which Done tells.
func (r *Run[D, R]) Stop(ctx context.Context) error {
	r.crew.Cancel(ErrStopped)
	select {
	case <-r.crew.Done():
	default:
		select {
		case <-r.crew.Done():
		case <-ctx.Done():
			return &StillRunningError{Tasks: r.crew.Running(), Err: foreman.ContextError(ctx)}
		}
	}
	if err := r.crew.Err(); err != ErrStopped {
		return err
	}
	return nil
}

// Done is closed when the run has ended: nothing runs any more, and every task has its outcome.
func (r *Run[D, R]) Done() <-chan struct{} { return r.crew.Done() }

// Err is the run's error, once Done is closed: nil after a run in which everything was done, [ErrStopped] after a Stop
// that cut work off, else the failure. Before that it is nil.
func (r *Run[D, R]) Err() error { return r.crew.Err() }

// Counters says how many of the run's tasks are where. Reading results does not change them.
func (r *Run[D, R]) Counters() Counters { return r.crew.Counters() }

// callerContext is the context of an item whose caller waits for it: it has the deadline and the values of the caller's
// context, and also the values of the run's, and it ends when either ends. release frees it.
func callerContext(caller, run context.Context) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(bothValues{caller, run})
	stop := context.AfterFunc(run, func() { cancel(context.Cause(run)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

type bothValues struct {
	context.Context
	run context.Context
}

func (c bothValues) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.run.Value(key)
}
