package foreman

import (
	"context"
	"time"
)

// Hooks are functions that are told what happens. Each may be nil. They are called on the goroutine that does the
// work, between its steps, so a slow hook slows the work; they may be called from many goroutines at once. A hook
// that panics is logged (by the run's logger, else by slog.Default) and otherwise ignored. One that ends its goroutine with
// runtime.Goexit, as a test's FailNow does, is logged too, but ends its task: with [ErrGoexit] when the handler was not
// called yet, otherwise with what the last attempt came to.
//
// The context is the one that the handler gets, or, in TaskDone and RunEnded, the run's, which may have ended.
type Hooks struct {
	// AttemptStarted is called after the limiter's grant, right before the handler.
	AttemptStarted func(ctx context.Context, a Attempt)
	// AttemptEnded is called when the handler has returned. err is what the attempt came to: nil, the handler's
	// error, a *TimeoutError, a *PanicError or ErrGoexit.
	AttemptEnded func(ctx context.Context, a Attempt, err error)
	// RetryScheduled is called when a failed attempt will be followed by another after delay, limiter aside.
	RetryScheduled func(ctx context.Context, a Attempt, err error, delay time.Duration)
	// TaskDone is called once for each accepted task when it has ended, before its result is handed out; for a
	// task that was never started too.
	TaskDone func(ctx context.Context, t TaskInfo)
	// RunEnded is called once, after the last task of a run. err is the run's error.
	RunEnded func(ctx context.Context, c Counters, err error)
}

// An Attempt tells a hook about one handler call.
type Attempt struct {
	// Worker is the worker's number, from 0. It stays the same over a task's retries.
	Worker int
	// Index is the task's position in its run.
	Index int
	// Number counts the attempts of the task, from 1.
	Number int
	// Elapsed is the time the handler took. It is zero in AttemptStarted.
	Elapsed time.Duration

	id string
}

// ID returns the task's id, as [Task.ID] does.
func (a Attempt) ID() string { return taskID(a.id, a.Index) }

// TaskInfo tells a hook how a task ended.
type TaskInfo struct {
	// Index is the task's position in its run.
	Index int
	// Outcome is never zero.
	Outcome Outcome
	// Attempts is the number of handler calls that started.
	Attempts int
	// Err is the task's error, nil exactly when it succeeded.
	Err error

	id string
}

// ID returns the task's id, as [Task.ID] does.
func (t TaskInfo) ID() string { return taskID(t.id, t.Index) }

// Counters is a snapshot of what has become of the tasks of a run, or of all runs of an engine. Every accepted task
// is in exactly one of the first six, so these always add up to the number of accepted tasks.
type Counters struct {
	// Pending tasks are accepted and wait for a worker. A blocked submitter's item is not accepted yet.
	Pending int
	// Running tasks are with a worker: waiting for the limiter, in the handler, or waiting for a retry.
	Running int
	// Succeeded, Failed, Shed and Unfinished tasks have ended so, whether or not their results were read yet.
	Succeeded, Failed, Shed, Unfinished int
	// Retries is the number of handler calls that were not a task's first.
	Retries int
}

// Ended is the number of tasks that have an outcome.
func (c Counters) Ended() int { return c.Succeeded + c.Failed + c.Shed + c.Unfinished }

// Plus adds two snapshots.
func (c Counters) Plus(d Counters) Counters {
	return Counters{
		Pending: c.Pending + d.Pending, Running: c.Running + d.Running,
		Succeeded: c.Succeeded + d.Succeeded, Failed: c.Failed + d.Failed,
		Shed: c.Shed + d.Shed, Unfinished: c.Unfinished + d.Unfinished,
		Retries: c.Retries + d.Retries,
	}
}

// hookSet calls the hooks of every WithHooks, in the order they were given. One mechanism guards them all.
type hookSet struct {
	sets []Hooks
	has  [hookKinds]bool // so that an attempt without hooks costs a test of a bool
	log  *logger
}

type hookKind int

const (
	attemptStarted hookKind = iota
	attemptEnded
	retryScheduled
	taskDone
	runEnded
	hookKinds
)

func (k hookKind) String() string {
	return [...]string{"AttemptStarted", "AttemptEnded", "RetryScheduled", "TaskDone", "RunEnded"}[k]
}

// A hookCall is what a hook is told; each kind uses its own part.
type hookCall struct {
	ctx      context.Context
	attempt  Attempt
	err      error
	delay    time.Duration
	task     TaskInfo
	counters Counters
}

func newHookSet(sets []Hooks, log *logger) hookSet {
	h := hookSet{sets: sets, log: log}
	for _, s := range sets {
		h.has[attemptStarted] = h.has[attemptStarted] || s.AttemptStarted != nil
		h.has[attemptEnded] = h.has[attemptEnded] || s.AttemptEnded != nil
		h.has[retryScheduled] = h.has[retryScheduled] || s.RetryScheduled != nil
		h.has[taskDone] = h.has[taskDone] || s.TaskDone != nil
		h.has[runEnded] = h.has[runEnded] || s.RunEnded != nil
	}
	return h
}

// call calls the hook of this kind in every set. A panic or a Goexit in one is logged, and the other sets are called all
// the same. A Goexit then ends the goroutine, so it must have a rescue.
func (h *hookSet) call(k hookKind, c *hookCall) { h.callFrom(0, k, c) }

func (h *hookSet) callFrom(i int, k hookKind, c *hookCall) {
	defer func() {
		if i == len(h.sets) {
			return
		}
		err := ErrGoexit
		if v := recover(); v != nil {
			err = newPanicError(v)
		}
		h.log.hookFailed(k, err)
		h.callFrom(i+1, k, c)
	}()
	for ; i < len(h.sets); i++ {
		h.sets[i].call(k, c)
	}
}

// callApart is call for goroutines without a rescue: it survives a Goexit too.
func (h *hookSet) callApart(k hookKind, c hookCall) {
	if !h.has[k] {
		return
	}
	for i := range h.sets {
		if err := apart(func() { h.sets[i].call(k, &c) }); err != nil {
			h.log.hookFailed(k, err)
		}
	}
}

func (s *Hooks) call(k hookKind, c *hookCall) {
	switch {
	case k == attemptStarted && s.AttemptStarted != nil:
		s.AttemptStarted(c.ctx, c.attempt)
	case k == attemptEnded && s.AttemptEnded != nil:
		s.AttemptEnded(c.ctx, c.attempt, c.err)
	case k == retryScheduled && s.RetryScheduled != nil:
		s.RetryScheduled(c.ctx, c.attempt, c.err, c.delay)
	case k == taskDone && s.TaskDone != nil:
		s.TaskDone(c.ctx, c.task)
	case k == runEnded && s.RunEnded != nil:
		s.RunEnded(c.ctx, c.counters, c.err)
	}
}
