package foreman

import (
	"context"
	"sync/atomic"

	"github.com/penstock-go/penstock/buffering"
)

// An Inbox is a bounded [Intake] that tasks are added to. It orders what is pending by priority, equals by arrival, and
// has its crew hire a worker only for a task that finds no idle one.
type Inbox[D, R any] struct {
	queue  *buffering.Queue[parcel[D, R]]
	plan   *Plan[D, R]
	number bool
	crew   atomic.Pointer[Crew[D, R]] // set by Open
	closed atomic.Bool
}

// A parcel is what an inbox keeps of a task that nobody has begun.
type parcel[D, R any] struct {
	data    D
	id      string
	index   int
	context context.Context
	reply   func(*Task[D, R])
}

// NewInbox makes an inbox with the plan's input capacity. With number set it numbers the tasks as they are accepted,
// from 0 and without gaps; otherwise they keep the Index they come with.
func (p *Plan[D, R]) NewInbox(number bool) *Inbox[D, R] {
	return &Inbox[D, R]{queue: buffering.NewQueue[parcel[D, R]](p.inputCapacity), plan: p, number: number}
}

// Open has the crew hire workers for what was and will be added.
func (b *Inbox[D, R]) Open(c *Crew[D, R]) {
	b.queue.Recruit(b.plan.workers, func(p *parcel[D, R], number int) {
		var job Job[D, R]
		job.Task = &job.own
		b.unpack(&job, p, number)
		c.Hire(&job)
	})
	if b.crew.Store(c); b.closed.Load() {
		c.InputDone()
	}
}

// unpack fills in a job whose task is blank.
func (b *Inbox[D, R]) unpack(job *Job[D, R], p *parcel[D, R], number int) {
	if !b.number {
		number = p.index
	}
	t := job.Task
	t.Index, t.Data, t.id = number, p.data, p.id
	job.Context, job.Reply = p.context, p.reply
}

// Add accepts a task and returns its number, or returns an error and has not accepted it. It waits for room, first come,
// first served, until ctx ends. own and reply are the Context and Reply of its job and may be nil.
func (b *Inbox[D, R]) Add(ctx context.Context, t Task[D, R], priority int, own context.Context, reply func(*Task[D, R])) (number int, err error) {
	p := parcel[D, R]{data: t.Data, id: t.id, index: t.Index, context: own, reply: reply}
	number, err = b.queue.Push(ctx, p, priority)
	if err != nil && err == ctx.Err() {
		err = ContextError(ctx)
	}
	return number, err
}

// Feed is Add for a source that brings one item after the other. It is cheaper: see [buffering.Queue.Feed].
func (b *Inbox[D, R]) Feed(data D, priority int) error {
	return b.queue.Feed(parcel[D, R]{data: data}, priority)
}

// Close refuses further tasks with this error. What was accepted is still worked on, and then the crew that the inbox was
// opened for ends.
func (b *Inbox[D, R]) Close(err error) {
	b.queue.Close(err)
	b.closed.Store(true)
	if c := b.crew.Load(); c != nil {
		c.InputDone()
	}
}

// Take implements [Intake].
func (b *Inbox[D, R]) Take(_ int, jobs []Job[D, R]) int {
	i := 0
	return b.queue.Take(len(jobs), b.plan.workers, func(p *parcel[D, R], number int) {
		b.unpack(&jobs[i], p, number)
		i++
	})
}

// Abandon implements [Intake].
func (b *Inbox[D, R]) Abandon(cause error, unfinished func(*Job[D, R])) {
	b.queue.Abandon(cause, func(p *parcel[D, R], number int) {
		var job Job[D, R]
		job.Task = &job.own
		b.unpack(&job, p, number)
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
