package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// A meter counts what goes through a limiter, and breaks it if the scenario wants that.
type meter struct {
	*limits
	inner ratelimiter.Limiter

	mu       sync.Mutex
	grants   []grant // those that were not given back
	refunds  int
	observed int
}

// errLimiterBroke is what a broken limiter returns.
var errLimiterBroke = errors.New("the limiter is out of order")

func (m *meter) Acquire(ctx context.Context, req ratelimiter.Request) error {
	return m.acquire(ctx, req, func() error { return m.inner.Acquire(ctx, req) })
}

func (m *meter) acquire(ctx context.Context, req ratelimiter.Request, ask func() error) error {
	r := contextRun(ctx)
	if r == nil {
		m.world.fail("the limiter was asked with a context that is not of its run")
		return ask()
	}
	r.busy.Add(1)
	defer r.busy.Add(-1)
	if req.Worker < 0 || req.Worker >= m.workers || req.Attempt < 1 || req.Cost < 0 {
		r.fail("the limiter was asked for %+v", req)
	}
	due, limited := ctx.Deadline()
	sure := ctx.Err() == nil && !(limited && !due.After(time.Now())) && !m.mayBeDo(r)
	if m.goesWrong("limiter", r, sure) {
		return errLimiterBroke
	}
	err := ask()
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.grants = append(m.grants, grant{m.now(), max(1, req.Cost), req})
	}
	return err
}

// mayBeDo says that the context may be that of a Do, which may end at this instant.
func (m *meter) mayBeDo(r *run) bool { return r.plan.way == "Start" }

func (m *meter) Observe(req ratelimiter.Request, err error) {
	m.mu.Lock()
	m.observed++
	m.mu.Unlock()
	m.goesWrong("observer", m.runOf(err), true)
	if d, ok := retry.RetryAfter(err); ok && m.hints {
		m.notePause(d)
	}
	if o, ok := m.inner.(ratelimiter.Observer); ok {
		o.Observe(req, err)
	}
}

func (m *meter) Adjust(req ratelimiter.Request, actual int) {
	m.mu.Lock()
	for i := len(m.grants) - 1; i >= 0; i-- {
		if m.grants[i].req == req {
			m.grants = slices.Delete(m.grants, i, i+1)
			m.refunds++
			break
		}
	}
	m.mu.Unlock()
	if a, ok := m.inner.(ratelimiter.Adjuster); ok {
		a.Adjust(req, actual)
	}
}

// check checks that each grant was used by one attempt, and that the limiter was told of each.
func (m *meter) check() {
	exits := 0 // attempts that a hook has ended before the handler was called
	for _, it := range m.items {
		if it.hookExit {
			exits++
		}
	}
	if n := len(m.attempts); len(m.grants) < n || len(m.grants) > n+exits {
		m.world.fail("the limiter has granted %d times, %d of them were given back, and there were %d attempts", len(m.grants)+m.refunds, m.refunds, n)
	}
	if n := len(m.attempts); m.observed < n || m.observed > n+exits {
		m.world.fail("the limiter was told of %d attempts, and there were %d", m.observed, n)
	}
}

// A tryMeter is a meter of a limiter that can refuse at once.
type tryMeter struct{ *meter }

func (m tryMeter) TryAcquire(req ratelimiter.Request) (bool, time.Duration) {
	return m.inner.(ratelimiter.TryAcquirer).TryAcquire(req)
}

func (m tryMeter) AcquireWithin(ctx context.Context, req ratelimiter.Request, maxWait time.Duration) error {
	return m.acquire(ctx, req, func() error {
		return m.inner.(ratelimiter.TryAcquirer).AcquireWithin(ctx, req, maxWait)
	})
}
