package penstock

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
)

// claim starts a run over a slice.
func (e *Engine[D, R]) claim(ctx context.Context, c *claims[D, R], outlet foreman.Outlet[D, R]) *foreman.Crew[D, R] {
	crew := e.newCrew(ctx, foreman.CrewConfig[D, R]{Intake: c, Outlet: outlet, Ready: true})
	c.shares, c.exhausted = e.plan.Workers(), crew.InputDone
	c.part = max(1, e.window()/e.plan.Workers())
	if len(c.items) == 0 {
		crew.InputDone()
	}
	for range min(len(c.items), e.plan.Workers()) {
		crew.Hire(nil)
	}
	crew.Start()
	return crew
}

// claims is the intake over a slice: workers claim items by counting up, and that is all the queue there is.
type claims[D, R any] struct {
	items     []D
	window    *buffering.Window[Task[D, R]]
	part      int // of the window, at most, for one worker
	shares    int
	exhausted func()

	// next is how many items were claimed, or more, as each claim beyond the end counts on. It is negative once the
	// intake was abandoned; claimed is then how many were claimed before.
	_       [128]byte // every claim writes next: keep what is only read off its cache line
	next    atomic.Int64
	_       [128]byte
	claimed atomic.Int64
}

func (c *claims[D, R]) Take(_ int, jobs []foreman.Job[D, R]) int {
	n := len(jobs)
	if n > 1 {
		n = c.share(n)
	}
	if c.window != nil {
		if n = c.window.Enter(min(n, c.part)); n == 0 {
			return 0
		}
	}
	end := int(c.next.Add(int64(n)))
	first := end - n
	if first < 0 || first >= len(c.items) {
		return 0
	}
	if end >= len(c.items) {
		c.last()
		n = len(c.items) - first
	}
	for i := range jobs[:n] {
		t := jobs[i].Task
		t.Index, t.Data = first+i, c.items[first+i]
	}
	return n
}

// share keeps a worker from claiming more than its part of what is left.
func (c *claims[D, R]) share(n int) int {
	left := len(c.items) - int(c.next.Load())
	return min(n, max(1, left/c.shares))
}

// last is called by the one who claims the last item.
func (c *claims[D, R]) last() {
	c.exhausted()
	if c.window != nil {
		c.window.Shut()
	}
}

func (c *claims[D, R]) Abandon(error, func(*foreman.Job[D, R])) {
	for {
		n := c.next.Load()
		c.claimed.Store(n)
		if c.next.CompareAndSwap(n, math.MinInt64/2) {
			break
		}
	}
	if c.window != nil {
		c.window.Shut()
	}
}

func (c *claims[D, R]) Counts() (accepted, taken int) {
	n := c.next.Load()
	if n < 0 {
		n = c.claimed.Load()
	}
	taken = min(int(n), len(c.items))
	return taken, taken
}
