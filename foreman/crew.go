package foreman

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Job is a task in a worker's hands.
type Job[D, R any] struct {
	// Task points to the task, with Index and Data set. A worker's job has room for a task and points there; an
	// [Intake] fills that in, or puts a pointer of its own here, and then the outcome is written where it points.
	Task *Task[D, R]
	// Context is the task's own context. It must end when the crew's does. nil means the crew's.
	Context context.Context
	// Reply, if not nil, gets the task when it has ended, instead of the crew's outlet. It must not keep the pointer.
	Reply func(*Task[D, R])

	own Task[D, R]
}

// hold makes the job's own room hold the task.
func (j *Job[D, R]) hold(t *Task[D, R]) {
	j.own = *t
	j.Task = &j.own
}

// An Intake is where the workers of a [Crew] get their jobs. Its methods are called from many goroutines at once.
type Intake[D, R any] interface {
	// Take waits for a job and fills in at least one and at most all of jobs. It returns how many, or 0 when there
	// will never be another one, and soon after Abandon in any case. Each job is given out once. worker is the number of
	// the worker that asks, from 0; no worker asks twice at a time.
	Take(worker int, jobs []Job[D, R]) int
	// Abandon ends the intake when the crew is ending early because of cause, which is also what those are told who
	// offer further jobs. Takes that wait and later ones return 0, and each job that was accepted but not taken is
	// passed to unfinished.
	Abandon(cause error, unfinished func(*Job[D, R]))
	// Counts returns how many jobs were accepted and how many of these were taken, as of one moment.
	Counts() (accepted, taken int)
}

// An Outlet is where the workers of a [Crew] deliver tasks that have ended. Its methods are called from many goroutines
// at once.
type Outlet[D, R any] interface {
	// Deliver takes over the tasks, which it must copy, and may wait for room until Lift.
	Deliver(tasks []*Task[D, R])
	// Lift says that the crew is ending: Deliver must not wait any more, and must still take everything.
	Lift()
	// Close follows the last Deliver.
	Close()
}

// A Crew is up to [Plan.Workers] goroutines that take jobs from an [Intake], see each through its attempts, and deliver
// it to an [Outlet]. It is the engine room below [Foreman] and below package penstock, for those who bring queues of
// their own. NewCrew makes one; it works until its intake is exhausted, or until it is cancelled.
//
// A crew that nobody cancels ends when the intake has been closed with InputDone and has no more jobs. When its
// context ends, or a run-level error occurs, it cancels the handlers, starts nothing new, turns what is pending into
// Unfinished tasks and waits for the handlers to return. Either way Done closes when nothing runs any more.
type Crew[D, R any] struct {
	plan   *Plan[D, R]
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	intake Intake[D, R]
	outlet Outlet[D, R] // nil: tasks are worked on where they lie, and not delivered
	ready  bool         // the input is there from the start
	watch  bool         // somebody may ask for Running
	madeAt time.Time

	mu sync.Mutex
	// Guarded by mu. parties counts who may still deliver something: each worker, the open input, what Go started, and
	// the watcher of the context. When only the watcher is left it is called off; the last to leave ends the crew.
	parties    int
	inputOpen  bool
	unwatch    func() bool
	workers    []*worker[D, R]
	failures   []error // run-level errors
	failedLate bool    // the first of them came when the crew was ending already
	cancelled  error   // what Cancel was given, if nothing had ended the crew before
	complete   bool    // the input came to its own end

	failed    atomic.Int64 // failed tasks, towards the failure limit
	failing   atomic.Bool  // which is reached, and the run about to end
	abandoned atomic.Int64 // tasks that ended without ever being taken
	cutOff    atomic.Bool  // some task was left unfinished
	done      chan struct{}
	err       error // set before done is closed
	onEnd     func(Counters)
}

// CrewConfig says what a crew works on.
type CrewConfig[D, R any] struct {
	// Intake is where the jobs come from.
	Intake Intake[D, R]
	// Outlet is where the tasks go. nil leaves them where Job.Task points.
	Outlet Outlet[D, R]
	// Ready says that the input is there from the start, so that no start timeout applies.
	Ready bool
	// Watch keeps the start of each task, for [Crew.Running].
	Watch bool
	// OnEnd is called once, when nothing runs any more and before Done closes.
	OnEnd func(Counters)
}

// NewCrew makes a crew. Hire and Go may be called at once, but it does not end before Start was called. It ends early when
// ctx does.
func (p *Plan[D, R]) NewCrew(ctx context.Context, c CrewConfig[D, R]) *Crew[D, R] {
	crew := &Crew[D, R]{
		plan: p, parent: ctx, intake: c.Intake, outlet: c.Outlet, ready: c.Ready, watch: c.Watch, onEnd: c.OnEnd,
		madeAt: time.Now(), parties: 2, inputOpen: true, done: make(chan struct{}),
	}
	crew.ctx, crew.cancel = context.WithCancelCause(context.WithValue(ctx, attemptKey{}, 1))
	p.log.runStarted(crew.ctx, p.workers)
	return crew
}

// Start says that the crew is set up: from now on its context is watched, the start timeout runs, and the crew ends when
// its work does. It must be called once.
func (c *Crew[D, R]) Start() {
	c.limitStart()
	c.mu.Lock()
	c.unwatch = context.AfterFunc(c.ctx, c.windDown)
	alone := c.parties == 1
	c.mu.Unlock()
	if alone {
		c.callOff()
	}
}

// Context is the crew's own context: it ends when the crew is cancelled or has ended.
func (c *Crew[D, R]) Context() context.Context { return c.ctx }

// Done is closed when nothing runs any more and everything was delivered.
func (c *Crew[D, R]) Done() <-chan struct{} { return c.done }

// Hire starts one more worker, with a first job if job is not nil, and reports whether it did: there are never more
// than the plan's workers, and none is started once nobody is left to wait for it.
func (c *Crew[D, R]) Hire(job *Job[D, R]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.workers) == c.plan.workers || c.parties == 0 {
		return false
	}
	w := newWorker(c, len(c.workers))
	if job != nil {
		w.accept(job)
	}
	c.workers = append(c.workers, w)
	c.parties++
	go w.run()
	return true
}

// Go runs f on a goroutine that the crew waits for, such as one that feeds the intake. It must be called before the
// input is done.
func (c *Crew[D, R]) Go(f func()) {
	c.mu.Lock()
	c.parties++
	c.mu.Unlock()
	go func() {
		defer c.leave()
		f()
	}()
}

// InputDone says that the input has come to its own end: no more jobs will be accepted. The crew ends when those that
// were have ended. Calling it again, or after the crew was cancelled, changes nothing.
func (c *Crew[D, R]) InputDone() { c.closeInput(true) }

func (c *Crew[D, R]) closeInput(complete bool) {
	c.mu.Lock()
	open := c.inputOpen
	c.inputOpen = false
	// A source may hear of the parent's end first, and then its own end means nothing.
	c.complete = c.complete || open && complete && (c.ready || c.ctx.Err() == nil && c.parent.Err() == nil)
	c.mu.Unlock()
	if open {
		c.leave()
	}
}

// Cancel ends the crew early. What is pending becomes Unfinished with this cause. That alone is no failure of the run:
// only if it cut work off is cause the run's error.
func (c *Crew[D, R]) Cancel(cause error) {
	c.mu.Lock()
	if c.ctx.Err() == nil {
		c.cancelled = cause
		c.cancel(cause)
	}
	c.mu.Unlock()
}

// Fail ends the crew early with a run-level error. Several are joined.
func (c *Crew[D, R]) Fail(err error) {
	c.mu.Lock()
	if len(c.failures) == 0 {
		c.failedLate = c.ctx.Err() != nil
	}
	c.failures = append(c.failures, err)
	c.cancel(err) // within the lock, so that of Fail and Cancel one is first
	c.mu.Unlock()
}

// Cause is why the crew is ending early: its run-level errors, what was given to Cancel, or the error and the cause of
// the context it was made with, whichever came first. It is nil while the crew goes on, and after an end in due course.
func (c *Crew[D, R]) Cause() error {
	if c.ctx.Err() == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause()
}

func (c *Crew[D, R]) cause() error {
	switch {
	case c.cancelled != nil:
		return c.cancelled
	case len(c.failures) == 0:
		if c.complete && !c.cutOff.Load() {
			return nil
		}
		return ContextError(c.parent)
	case c.failedLate: // such as a source that failed when it was told to stop
		return errors.Join(append([]error{ContextError(c.parent)}, c.failures...)...)
	default:
		return joined(c.failures)
	}
}

// verdict is the run's error. Work that was cut off, or an input that was, needs an explanation; a context that ends
// when everything is done is no failure.
func (c *Crew[D, R]) verdict() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancelled != nil && !c.cutOff.Load() {
		return nil
	}
	return c.cause()
}

// Err is the error of the run, once Done is closed: nil when everything was done, otherwise why it was not. Before that
// it is nil.
func (c *Crew[D, R]) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Wait waits until the crew has ended and returns its error, or ctx's error when ctx ends first.
func (c *Crew[D, R]) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ContextError(ctx)
	}
}

// Blocked turns the error of a context that ended while its owner waited for "room" or for the "end" into a [BlockedError].
// Other errors it leaves as they are.
func (c *Crew[D, R]) Blocked(ctx context.Context, waitedFor string, unread int, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	n := c.Counters()
	return &BlockedError{For: waitedFor, Pending: n.Pending, Running: n.Running, Unread: unread, Err: err}
}

// limitStart applies the plan's start timeout: unless a job is accepted in time, or the input is done, the crew fails
// with [ErrStartTimeout].
func (c *Crew[D, R]) limitStart() {
	d := c.plan.startTimeout
	if d <= 0 || c.ready {
		return
	}
	timer := time.AfterFunc(d, func() {
		c.mu.Lock()
		open := c.inputOpen
		c.mu.Unlock()
		if accepted, _ := c.intake.Counts(); accepted == 0 && open {
			c.Fail(fmt.Errorf("%w: waited %v", ErrStartTimeout, d))
		}
	})
	context.AfterFunc(c.ctx, func() { timer.Stop() })
}

// Counters is a consistent snapshot: every accepted task is counted exactly once.
func (c *Crew[D, R]) Counters() Counters {
	// Outcomes first, then what was taken, then what was accepted: each can only have grown since the one before, so
	// no difference is negative. What went on in between is put down as pending, which keeps the sum.
	// The lock is not held over Counts: an intake hires workers with its own lock held.
	c.mu.Lock()
	workers := c.workers
	c.mu.Unlock()
	var n Counters
	abandoned := int(c.abandoned.Load())
	for _, w := range workers {
		w.tally.addTo(&n)
	}
	ended := n.Ended()
	accepted, taken := c.intake.Counts()
	n.Running = min(taken-ended, c.plan.workers)
	n.Unfinished += abandoned
	n.Pending = accepted - n.Ended() - n.Running
	return n
}

// Running lists the tasks that workers hold now, the longest first. It needs CrewConfig.Watch.
func (c *Crew[D, R]) Running() []RunningTask {
	c.mu.Lock()
	defer c.mu.Unlock()
	var tasks []RunningTask
	for _, w := range c.workers {
		if t, ok := w.holds(); ok {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b RunningTask) int { return int(b.For - a.For) })
	return tasks
}

// windDown runs when the crew's context has ended: nobody waits for room any more, and what is pending is over.
func (c *Crew[D, R]) windDown() {
	c.endTimeouts()
	if c.outlet != nil {
		c.outlet.Lift()
	}
	err := c.unfinished(c.ctx, duringQueue, nil) // one for all
	c.intake.Abandon(c.Cause(), func(job *Job[D, R]) { c.abandon(job, err) })
	c.closeInput(false)
	c.leave()
}

func (c *Crew[D, R]) abandon(job *Job[D, R], err error) {
	c.abandoned.Add(1)
	job.Task.Outcome, job.Task.Err = Unfinished, err
	c.cutOff.Store(true)
	c.plan.hooks.callApart(taskDone, hookCall{ctx: c.ctx, task: infoOf(job.Task)})
	switch {
	case job.Reply != nil:
		job.Reply(job.Task)
	case c.outlet != nil:
		c.outlet.Deliver([]*Task[D, R]{job.Task})
	}
}

// unfinished is the error of a task that was cut off because ctx ended.
func (c *Crew[D, R]) unfinished(ctx context.Context, during string, last error) error {
	return &UnfinishedError{During: during, Context: ctx.Err(), Cause: context.Cause(ctx), Err: last}
}

// countFailure counts a failed task and reports whether it is the one that reached the limit. Those beyond the limit wait
// for the one who reached it to end the run, so that no worker fails task after task meanwhile.
func (c *Crew[D, R]) countFailure() bool {
	limit := int64(c.plan.failureLimit)
	if limit == 0 {
		return false
	}
	n := c.failed.Add(1)
	if n > limit {
		<-c.ctx.Done()
	}
	return n == limit
}

// leave is called by each party when it is through. The last one ends the crew.
func (c *Crew[D, R]) leave() {
	c.mu.Lock()
	c.parties--
	left, watched := c.parties, c.unwatch != nil
	c.mu.Unlock()
	switch {
	case left == 0 && c.plan.tellsEnd():
		go c.end() // the last to leave may be the caller of Finish, whom a slow hook must not hold up; Done tells the end
	case left == 0:
		c.end()
	case left == 1 && watched:
		c.callOff()
	}
}

// callOff makes the watcher leave, when nobody else is left or only the watcher itself is at work. If it will never run, it
// leaves by proxy. But a context has ended a moment before its watchers start, and a worker that noticed has left jobs behind:
// then there is work for the watcher, and somebody must do it in its place.
func (c *Crew[D, R]) callOff() {
	c.mu.Lock()
	unwatch := c.unwatch
	c.unwatch = nil
	c.mu.Unlock()
	if unwatch == nil || !unwatch() {
		return
	}
	if c.ctx.Err() != nil {
		go c.windDown()
		return
	}
	c.leave()
}

// end runs once, when nobody is left who could deliver anything.
func (c *Crew[D, R]) end() {
	c.err = c.verdict()
	counters := c.Counters()
	c.plan.hooks.callApart(runEnded, hookCall{ctx: c.ctx, counters: counters, err: c.err})
	if c.plan.log.l != nil {
		_ = apart(func() { c.plan.log.runEnded(c.ctx, counters, c.err) })
	}
	if c.onEnd != nil {
		c.onEnd(counters)
	}
	c.cancel(nil)
	if c.outlet != nil {
		c.outlet.Close()
	}
	close(c.done)
}

func joined(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
