package penstock

import (
	"context"
	"sync/atomic"

	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
)

// receive starts a run over a channel.
func (e *Engine[D, R]) receive(ctx context.Context, ch <-chan D, outlet foreman.Outlet[D, R], window *buffering.Window[Task[D, R]]) *foreman.Crew[D, R] {
	r := &receiver[D, R]{ch: ch, window: window, turn: make(chan int, 1), hired: 1, workers: e.plan.Workers()}
	r.crew = e.newCrew(ctx, r, outlet, false)
	r.turn <- 0
	r.crew.Hire(nil)
	r.crew.Start()
	return r.crew
}

// receiver is the intake over a channel: workers receive from it directly, one at a time, so that numbers follow the
// order of the channel. The one whose turn it is has a colleague ready, hired if need be, before it goes off to work.
type receiver[D, R any] struct {
	ch      <-chan D
	crew    *foreman.Crew[D, R]
	window  *buffering.Window[Task[D, R]]
	workers int

	turn    chan int     // holds the next number while nobody has the turn; closed when the channel is
	hired   int          // guarded by the turn
	waiting atomic.Int32 // workers that wait for the turn
	taken   atomic.Int64
}

func (r *receiver[D, R]) Take(jobs []foreman.Job[D, R]) int {
	ended := r.crew.Context().Done()
	r.waiting.Add(1)
	var number int
	var open bool
	select {
	case number, open = <-r.turn:
	case <-ended:
	}
	r.waiting.Add(-1)
	if !open {
		return 0
	}
	n := r.take(jobs, number, ended)
	if n < 0 {
		r.crew.InputDone()
		close(r.turn)
		return 0
	}
	if n > 0 && r.hired < r.workers && r.waiting.Load() == 0 {
		r.hired++
		r.crew.Hire(nil)
	}
	r.turn <- number + n
	return n
}

// take receives the next item and, when batching, a fair share of what is there already. It returns how many, 0 when the
// run has ended, or -1 when the channel is closed.
func (r *receiver[D, R]) take(jobs []foreman.Job[D, R], number int, ended <-chan struct{}) int {
	if r.window != nil {
		jobs = jobs[:r.window.Enter(1)]
	} else if len(jobs) > 1 {
		jobs = jobs[:min(len(jobs), max(1, (len(r.ch)+1)/r.workers))]
	}
	for n := range jobs {
		item, got, closed := r.next(n == 0, ended)
		switch {
		case got:
			r.taken.Add(1)
			jobs[n].Task.Index, jobs[n].Task.Data = number+n, item
		case closed && n == 0:
			return -1
		default:
			return n
		}
	}
	return len(jobs)
}

// next receives one item. It takes none from the channel once the run has ended: somebody else may want it.
func (r *receiver[D, R]) next(wait bool, ended <-chan struct{}) (item D, got, closed bool) {
	select {
	case <-ended:
		return item, false, false
	default:
	}
	if wait {
		select {
		case item, got = <-r.ch:
			return item, got, !got
		case <-ended:
			return item, false, false
		}
	}
	select {
	case item, got = <-r.ch:
		return item, got, !got
	default:
		return item, false, false
	}
}

func (r *receiver[D, R]) Abandon(error, func(*foreman.Job[D, R])) {
	if r.window != nil {
		r.window.Shut() // those who wait for their turn look at the run's context
	}
}

func (r *receiver[D, R]) Counts() (accepted, taken int) {
	n := int(r.taken.Load())
	return n, n
}
