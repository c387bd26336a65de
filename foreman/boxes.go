package foreman

import (
	"context"

	"github.com/penstock-go/penstock/buffering"
)

// An Inbox is a bounded [Intake] that jobs are added to. It orders what is pending by priority, equals by arrival, and
// has its crew hire a worker only for a job that finds no idle one.
type Inbox[D, R any] struct {
	queue *buffering.Queue[Job[D, R]]
	plan  *Plan[D, R]
}

// NewInbox makes an inbox with the plan's input capacity. With number set it numbers the tasks as they are accepted,
// from 0 and without gaps; otherwise they keep the Index they come with.
func (p *Plan[D, R]) NewInbox(number bool) *Inbox[D, R] {
	var accept func(*Job[D, R], int)
	if number {
		accept = func(job *Job[D, R], n int) { job.own.Index = n }
	}
	return &Inbox[D, R]{queue: buffering.NewQueue(p.inputCapacity, accept), plan: p}
}

// Open has the crew hire workers for what was and will be added.
func (b *Inbox[D, R]) Open(c *Crew[D, R]) {
	b.queue.Recruit(b.plan.workers, func(job Job[D, R]) {
		job.Task = &job.own
		c.Hire(&job)
	})
}

// Add accepts a task and returns its number, or returns an error and has not accepted it. It waits for room, first come,
// first served, until ctx ends. own and reply are the Context and Reply of its job and may be nil.
func (b *Inbox[D, R]) Add(ctx context.Context, t Task[D, R], priority int, own context.Context, reply func(*Task[D, R])) (number int, err error) {
	number, err = b.queue.Push(ctx, Job[D, R]{own: t, Context: own, Reply: reply}, priority)
	if err != nil && err == ctx.Err() {
		err = ContextError(ctx)
	}
	return number, err
}

// Close refuses further tasks with this error. What was accepted is still worked on.
func (b *Inbox[D, R]) Close(err error) { b.queue.Close(err) }

// Take implements [Intake].
func (b *Inbox[D, R]) Take(jobs []Job[D, R]) int {
	n := b.queue.Take(jobs, b.plan.workers)
	for i := range jobs[:n] {
		jobs[i].Task = &jobs[i].own
	}
	return n
}

// Abandon implements [Intake].
func (b *Inbox[D, R]) Abandon(cause error, unfinished func(*Job[D, R])) {
	b.queue.Abandon(cause, func(job Job[D, R]) {
		job.Task = &job.own
		unfinished(&job)
	})
}

// Counts implements [Intake].
func (b *Inbox[D, R]) Counts() (accepted, taken int) { return b.queue.Counts() }

// An Outbox is a bounded [Outlet] that is read one by one, or all that is there at once.
type Outbox[D, R any] struct {
	*buffering.Results[Task[D, R]]
}

// NewOutbox makes an outbox with the plan's result capacity.
func (p *Plan[D, R]) NewOutbox() Outbox[D, R] {
	return Outbox[D, R]{buffering.NewResults[Task[D, R]](p.resultCapacity)}
}

// Deliver implements [Outlet].
func (b Outbox[D, R]) Deliver(tasks []*Task[D, R]) { b.Put(tasks) }

// PriorityOf asks the plan's priority function, and returns 0 when there is none. A panic in it is a [CallbackError].
func (p *Plan[D, R]) PriorityOf(data D) (priority int, err error) {
	if p.priority == nil {
		return 0, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = &CallbackError{Callback: "priority", Err: newPanicError(v)}
		}
	}()
	return p.priority(data), nil
}
