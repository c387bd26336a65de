package penstock

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
)

// receive starts a run over a channel.
func (e *Engine[D, R]) receive(ctx context.Context, ch <-chan D, outlet foreman.Outlet[D, R], window *buffering.Window[Task[D, R]]) *foreman.Crew[D, R] {
	r := &receiver[D, R]{ch: ch, window: window, hired: 1, workers: e.plan.Workers()}
	r.turn.L = &r.mu
	r.crew = e.newCrew(ctx, foreman.CrewConfig[D, R]{Intake: r, Outlet: outlet})
	r.crew.Hire(nil)
	r.crew.Start()
	return r.crew
}

// receiver is the intake over a channel: workers receive from it directly. Only one of them waits at the channel, so that
// numbers follow the order of the items, and the others rest. Whoever has received something sees to it that another one
// comes to the channel, resting or newly hired, before it goes off to work.
type receiver[D, R any] struct {
	ch      <-chan D
	crew    *foreman.Crew[D, R]
	window  *buffering.Window[Task[D, R]]
	workers int

	mu   sync.Mutex
	turn sync.Cond // signals a resting worker to come to the channel

	// Guarded by mu. Invariant: while workers rest, one is at the channel or has been signalled.
	waiting bool // a worker waits at the channel, without the lock
	resting int
	coming  bool // one has been signalled and is on its way
	hired   int
	over    bool // the channel is closed, or the run has ended

	taken atomic.Int64 // written with mu held
}

func (r *receiver[D, R]) Take(_ int, jobs []foreman.Job[D, R]) int {
	if r.window != nil {
		jobs = jobs[:r.window.Enter(1)]
	} else if len(jobs) > 1 {
		jobs = jobs[:min(len(jobs), max(1, (len(r.ch)+1)/r.workers))]
	}
	if len(jobs) == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for !r.over {
		if r.waiting {
			r.rest()
			continue
		}
		if n := r.fill(jobs); n > 0 {
			r.sendNext()
			return n
		}
	}
	return 0
}

// rest parks a worker until it is its turn to come to the channel, or all is over.
func (r *receiver[D, R]) rest() {
	r.resting++
	r.turn.Wait()
	r.resting--
	r.coming = false
}

// sendNext gets another worker to the channel.
func (r *receiver[D, R]) sendNext() {
	switch {
	case r.coming || r.waiting:
	case r.resting > 0:
		r.coming = true
		r.turn.Signal()
	case r.hired < r.workers:
		r.hired++
		r.crew.Hire(nil)
	}
}

// fill receives what is there, up to all of jobs, or else waits for one item. It returns 0 when all is over.
func (r *receiver[D, R]) fill(jobs []foreman.Job[D, R]) int {
	for n := range jobs {
		item, ok := r.poll()
		if !ok && n == 0 && !r.over {
			r.waiting = true
			item, ok = r.wait()
			r.waiting = false
		}
		if !ok {
			return n
		}
		number := int(r.taken.Add(1)) - 1
		jobs[n].Task.Index, jobs[n].Task.Data = number, item
	}
	return len(jobs)
}

// poll receives an item that is there. It takes none once the run has ended: somebody else may want it.
func (r *receiver[D, R]) poll() (item D, ok bool) {
	if r.crew.Context().Err() != nil {
		r.end()
		return item, false
	}
	select {
	case item, ok = <-r.ch:
		if !ok {
			r.exhausted()
		}
	default:
	}
	return item, ok
}

// wait receives the next item, without the lock. First it lets others run once: often the next item is about to come.
func (r *receiver[D, R]) wait() (item D, ok bool) {
	r.mu.Unlock()
	runtime.Gosched()
	r.mu.Lock()
	if item, ok = r.poll(); ok || r.over {
		return item, ok
	}
	r.mu.Unlock()
	ended := false
	select {
	case item, ok = <-r.ch:
	case <-r.crew.Context().Done():
		ended = true
	}
	r.mu.Lock()
	switch {
	case ended:
		r.end()
	case !ok:
		r.exhausted()
	}
	return item, ok
}

// exhausted is called by the one who finds the channel closed.
func (r *receiver[D, R]) exhausted() {
	r.crew.InputDone()
	r.end()
}

func (r *receiver[D, R]) end() {
	r.over = true
	r.turn.Broadcast()
}

func (r *receiver[D, R]) Abandon(error, func(*foreman.Job[D, R])) {
	if r.window != nil {
		r.window.Shut()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

func (r *receiver[D, R]) Counts() (accepted, taken int) {
	n := int(r.taken.Load())
	return n, n
}
