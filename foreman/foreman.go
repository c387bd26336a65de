package foreman

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// A Foreman keeps bounded workers busy for those who do the orchestration themselves: tasks are added in one place and
// the ended ones read in another. Package penstock does that work for you; use a Foreman when its helpers do not fit.
//
// Tasks may be added before Start. A Foreman does not number tasks: Index is the caller's. Both its queues are unlimited
// by default; with bounded ones, read results while you add and while you finalize. All methods are safe for concurrent
// use. After Finalize or Stop, and once everything was read, Start begins afresh; until then Add refuses.
type Foreman[D, R any] struct {
	plan *Plan[D, R]

	mu  sync.Mutex
	job *job[D, R] // the current one, started or not
}

type job[D, R any] struct {
	inbox  *Inbox[D, R]
	outbox Outbox[D, R]
	crew   atomic.Pointer[Crew[D, R]] // nil before Start
}

// New makes a foreman, or returns an error that names every fault in the arguments. Nothing is started.
func New[D, R any](handler func(ctx context.Context, data D) (R, error), workers int, opts ...Option) (*Foreman[D, R], error) {
	p, err := NewPlan(handler, workers, Unlimited, Unlimited, opts...)
	if err != nil {
		return nil, err
	}
	f := &Foreman[D, R]{plan: p}
	f.job = f.newJob()
	return f, nil
}

func (f *Foreman[D, R]) newJob() *job[D, R] {
	return &job[D, R]{inbox: f.plan.NewInbox(false), outbox: f.plan.NewOutbox()}
}

func (f *Foreman[D, R]) current() *job[D, R] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.job
}

// Start puts the workers to work; each begins when there is a task for it. When ctx ends, handlers are cancelled and what
// is pending ends Unfinished. Starting a foreman that works already is an error, as is starting one again whose results
// were not all read.
func (f *Foreman[D, R]) Start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.job.crew.Load(); c != nil {
		select {
		case <-c.Done():
		default:
			return errors.New("penstock: the foreman works already: Finalize or Stop it before starting it again")
		}
		if f.job.outbox.Len() > 0 {
			return errors.New("penstock: the foreman has results that were not read: read them with Next before starting it again")
		}
		f.job = f.newJob()
	}
	j := f.job
	crew := f.plan.NewCrew(ctx, CrewConfig[D, R]{Intake: j.inbox, Outlet: j.outbox, Watch: true})
	j.crew.Store(crew)
	j.inbox.Open(crew)
	crew.Start()
	return nil
}

// Add accepts a task, or returns an error and has not accepted it. When the input is full it waits for room until ctx
// ends. The error is ctx's, inside a *[BlockedError] if it waited; [ErrInputClosed] after Finalize, or the reason for which the
// workers ended. The task's id, index and data are kept; everything else is overwritten. Before Start tasks are accepted for
// the start to come.
func (f *Foreman[D, R]) Add(ctx context.Context, t Task[D, R]) error {
	j := f.current()
	priority, err := f.plan.PriorityOf(t.Data)
	if err != nil {
		if crew := j.crew.Load(); crew != nil {
			crew.Fail(err)
		}
		return err
	}
	if ctx.Err() != nil {
		return ContextError(ctx)
	}
	_, err = j.inbox.Add(ctx, Task[D, R]{Index: t.Index, Data: t.Data, id: t.id}, priority, nil, nil)
	return j.blocked(ctx, "room", err)
}

// Next waits for the next task that has ended, in order of completion. After the last one it returns the error for which
// the workers ended, or [ErrNoMoreResults]. It returns ctx's error when ctx ends first; no task is lost by that. Before Start
// it waits.
func (f *Foreman[D, R]) Next(ctx context.Context) (Task[D, R], error) {
	j := f.current()
	t, ok, err := j.outbox.Next(ctx)
	switch {
	case ok:
		return t, nil
	case err != nil:
		return t, ContextError(ctx)
	}
	crew := j.crew.Load()
	<-crew.Done() // closing the results is the last step before it
	if err := crew.Err(); err != nil {
		return t, err
	}
	return t, ErrNoMoreResults
}

// Finalize closes the input and waits until all tasks have ended and all workers are gone. It returns the error for which
// they ended early, if they did. When ctx ends first it returns a *[BlockedError] with ctx's error, and the work goes on. With
// a bounded result capacity somebody must be reading.
func (f *Foreman[D, R]) Finalize(ctx context.Context) error {
	j := f.current()
	crew := j.crew.Load()
	if crew == nil {
		return ErrNotStarted
	}
	j.inbox.Close(ErrInputClosed)
	return j.blocked(ctx, "end", crew.Wait(ctx))
}

func (j *job[D, R]) blocked(ctx context.Context, waitedFor string, err error) error {
	crew := j.crew.Load()
	if crew == nil {
		return err
	}
	return crew.Blocked(ctx, waitedFor, j.outbox.Len(), err)
}

// Stop cancels the handlers, ends everything that is pending as Unfinished, and waits until all workers are gone, however
// long a handler takes. It returns the error for which they had ended before, if they had. Results stay readable.
func (f *Foreman[D, R]) Stop() error {
	crew := f.current().crew.Load()
	if crew == nil {
		return nil
	}
	crew.Cancel(ErrStopped)
	<-crew.Done()
	if err := crew.Err(); err != ErrStopped {
		return err
	}
	return nil
}

// Counters is a snapshot of what has become of the tasks since Start.
func (f *Foreman[D, R]) Counters() Counters {
	j := f.current()
	if crew := j.crew.Load(); crew != nil {
		return crew.Counters()
	}
	accepted, _ := j.inbox.Counts()
	return Counters{Pending: accepted}
}
