package sim

import (
	"context"
	"iter"
	"runtime"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/buffering"
)

// A consumerPlan is who reads the results of an iterator.
type consumerPlan struct {
	pace    time.Duration // for each result
	pauseAt int           // at this result, from 1, it makes a long pause; 0: none
	pause   time.Duration
	leaveAt int // at this result, from 1, it leaves; 0: never
	leave   string
}

func (s *Scenario) drawConsumer(run string) (p consumerPlan) {
	if r := s.part(run+" consumer slow", 30); r != nil {
		p.pace = s.span(r)
	}
	if r := s.part(run+" consumer pauses", 20); r != nil {
		p.pauseAt, p.pause = pick(r, 1, 2, 5), 20*s.span(r)
	}
	if r := s.part(run+" consumer leaves", 25); r != nil {
		p.leaveAt, p.leave = pick(r, 1, 2, 3, 10), pick(r, "break", "panic", "exit", "cancel")
	}
	return p
}

// inputCapacity and resultCapacity are the effective ones; 0 is unlimited.
func (r *run) inputCapacity() int  { return r.capacity(r.inputs) }
func (r *run) resultCapacity() int { return r.capacity(r.results) }

func (r *run) capacity(n int) int {
	switch {
	case n == unlimited, n == 0 && r.plan.way == "Foreman":
		return 0
	case n == 0:
		return r.workers
	}
	return n
}

// limitHolding says what the run may hold: what the library says about it.
func (r *run) limitHolding() {
	i, o, w := r.inputCapacity(), r.resultCapacity(), r.workers*r.batch
	direct := r.plan.source.kind == "slice" || r.plan.source.kind == "chan"
	switch {
	case r.failureLimit > 0: // the bound goes a moment before the run does
	case o == 0, r.plan.way == "ProcessSource": // a list of everything
	case r.plan.way == "IterOrdered":
		r.bound = r.workers + o + 1
	case r.plan.way == "IterResults" && direct:
		r.bound = buffering.Bound(0, o, w) - 1
	case i > 0:
		r.bound = buffering.Bound(i, o, w)
		if r.plan.way == "Start" {
			r.bound += w // Drain also takes the results that workers cannot get rid of
		}
	}
}

// byHelper is a run of one of the engine's helpers.
func (r *run) byHelper() {
	r.limitHolding()
	e := r.engine
	switch r.plan.way {
	case "ProcessAll":
		ids := r.slice()
		tasks, err := e.ProcessAll(r.ctx, ids)
		r.returned(err)
		r.listed(tasks, err)
		if len(tasks) != len(ids) {
			r.fail("ProcessAll returned %d tasks for %d items", len(tasks), len(ids))
		}
	case "ProcessSource":
		tasks, err := e.ProcessSource(r.ctx, r.source())
		r.returned(err)
		r.listed(tasks, err)
	case "IterResults":
		r.loop(e.IterResults(r.ctx, r.source()))
	case "IterOrdered":
		r.loop(e.IterOrdered(r.ctx, r.source()))
	}
	for _, clean := range r.cleanup {
		clean()
	}
}

// listed checks a list of all tasks: it is in input order.
func (r *run) listed(tasks []penstock.Task[int, int], err error) {
	for i, t := range tasks {
		if t.Index != i || t.Data != r.base+i {
			r.fail("task %d of the list is number %d, item %d", i, t.Index, t.Data)
		}
		r.deliver(t)
	}
	values, failure := penstock.Values(tasks, err)
	if allWell := err == nil && r.counted().Succeeded == len(tasks); allWell != (failure == nil) || allWell && len(values) != len(tasks) {
		r.fail("Values gives %d values and the error %v", len(values), failure)
	}
}

// leaving is what a consumer panics with.
type leaving struct{ *run }

// loop reads an iterator to its end, or leaves it. It is done on a goroutine of its own, since that may end too.
func (r *run) loop(seq iter.Seq2[penstock.Task[int, int], error]) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if v := recover(); v != nil && v != (leaving{r}) {
				panic(v)
			}
			if r.left {
				r.returned(nil)
			}
		}()
		err := r.consume(seq)
		if !r.left {
			r.returned(err)
		}
	}()
	<-ended
}

func (r *run) consume(seq iter.Seq2[penstock.Task[int, int], error]) (failure error) {
	n := 0
	for t, err := range seq {
		if failure != nil {
			r.fail("after its error came %v, %v", t, err)
		}
		if err != nil {
			failure = err
			if t != (penstock.Task[int, int]{}) {
				r.fail("its error came with the task %v", t)
			}
			continue
		}
		if n++; r.plan.way == "IterOrdered" && t.Index != n-1 {
			r.fail("result %d is of item %d", n-1, t.Index)
		}
		r.yielded.Add(1)
		it := r.deliver(t)
		r.digest(n)
		if n == r.plan.consumer.leaveAt && r.leaves() {
			break
		}
		r.lock(func() { r.release(it) })
	}
	return failure
}

// digest takes the consumer's time.
func (r *run) digest(n int) {
	p := r.plan.consumer
	d := p.pace
	if n == p.pauseAt {
		d += p.pause
	}
	if d > 0 {
		time.Sleep(d)
	}
}

// leaves leaves the loop, in the way that the plan says, or reports whether to break.
func (r *run) leaves() (leave bool) {
	how := r.plan.consumer.leave
	if how == "cancel" {
		r.cancelNow(errCancelled)
		return false
	}
	r.ends(ending{at: r.now(), kind: "consumer", sure: true, soft: true, explains: hasLeft})
	r.left = true
	switch how {
	case "panic":
		panic(leaving{r})
	case "exit":
		runtime.Goexit()
	}
	return true
}

// counted counts the outcomes that were delivered.
func (r *run) counted() (c penstock.Counters) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, it := range r.itemsOf() {
		for _, t := range it.tasks {
			add(&c, t.Outcome)
		}
	}
	return c
}

func add(c *penstock.Counters, o penstock.Outcome) {
	switch o {
	case penstock.Succeeded:
		c.Succeeded++
	case penstock.Failed:
		c.Failed++
	case penstock.Shed:
		c.Shed++
	case penstock.Unfinished:
		c.Unfinished++
	}
}

// patient is a context that ends after d, or never for 0. Half of them do it without having a deadline.
func (r *run) patient(ctx context.Context, d time.Duration, deadline bool) (limited context.Context, end context.CancelFunc) {
	switch {
	case d == 0:
		return ctx, func() {}
	case deadline:
		return context.WithTimeout(ctx, d)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(d, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}
