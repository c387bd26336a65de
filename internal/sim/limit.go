package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// A limiterPlan is a limiter, made of other ones perhaps.
type limiterPlan struct {
	kind     string
	rate     ratelimiter.Rate
	burst    int
	takes    time.Duration  // of a foreign one
	of       []*limiterPlan // inside it
	metered  bool           // the outermost one only: its calls are counted
	weighted bool           // the outermost one only: items have a cost
}

// limiterKinds are the limiters that can be drawn. Those with inner ones say how many.
var limiterKinds = []struct {
	name  string
	inner int
	make  func(l *limits, p *limiterPlan, inner []ratelimiter.Limiter) (ratelimiter.Limiter, error)
}{
	{"spaced bucket", 0, newSpaced},
	{"bucket", 0, newBurst},
	{"window", 0, newWindow},
	{"foreign", 0, newForeign},
	{"pausable", 1, newPausable},
	{"all", 2, newAll},
}

func (s *Scenario) drawLimits() {
	defer s.drawBadCall()
	s.drawBreaker()
	r := s.part("limiter", 50)
	if r == nil {
		return
	}
	s.limiter = s.drawLimiter(r, 2)
	s.limiter.metered = r.IntN(4) > 0
	s.limiter.weighted = s.part("costs", 30) != nil
	if sh := s.part("shed", 25); sh != nil && !s.limiter.has("foreign") {
		s.shed = s.maybe(sh)
		s.note("shed after %v", s.shed)
	}
	s.note("limiter %v metered %v weighted %v", s.limiter, s.limiter.metered, s.limiter.weighted)
}

func (s *Scenario) drawLimiter(r *rand.Rand, depth int) *limiterPlan {
	kind := pick(r, limiterKinds...)
	if depth == 0 {
		kind = limiterKinds[r.IntN(4)]
	}
	p := &limiterPlan{
		kind:  kind.name,
		rate:  ratelimiter.Rate{Count: pick(r, 1, 2, 3, 7, 100), Per: s.unit * time.Duration(pick(r, 1, 5, 10, 30, 100))},
		burst: pick(r, 1, 2, 3, 10),
		takes: s.maybe(r),
	}
	for range kind.inner {
		p.of = append(p.of, s.drawLimiter(r, depth-1))
	}
	return p
}

func (p *limiterPlan) String() string {
	return fmt.Sprintf("%s(%v, burst %d, takes %v, %v)", p.kind, p.rate, p.burst, p.takes, p.of)
}

func (p *limiterPlan) has(kind string) bool {
	return p.kind == kind || slices.ContainsFunc(p.of, func(p *limiterPlan) bool { return p.has(kind) })
}

// limits is the limiter of a world, and what it promises.
type limits struct {
	*world
	outer     ratelimiter.Limiter
	pausables []*ratelimiter.Pausable
	promises  []promise
	dearest   int // the highest cost that all of it can grant; 0: any
	meter     *meter

	// Guarded by the ledger's lock.
	paused []span
}

// A grant is what a promise is about.
type grant struct {
	at   time.Duration
	cost int
	req  ratelimiter.Request
}

// A promise is what a limiter promises about its grants, in their order in time. It says what is wrong, or "".
type promise func(grants []grant) string

func (w *world) newLimits() *limits {
	l := &limits{world: w}
	l.outer = l.build(w.limiter)
	if w.limiter.metered || w.badCall != nil {
		l.meter = &meter{limits: l, inner: l.outer}
		l.outer = l.meter
		if w.shed >= 0 || !w.limiter.has("foreign") {
			l.outer = tryMeter{l.meter}
		}
	}
	return l
}

func (l *limits) build(p *limiterPlan) ratelimiter.Limiter {
	var inner []ratelimiter.Limiter
	for _, p := range p.of {
		inner = append(inner, l.build(p))
	}
	for _, k := range limiterKinds {
		if k.name == p.kind {
			limiter, err := k.make(l, p, inner)
			if err != nil {
				l.fail("the limiter was refused: %v", err)
			}
			return limiter
		}
	}
	panic("sim: no limiter " + p.kind)
}

// atMost notes that no more than cost can be granted at a time.
func (l *limits) atMost(cost int) {
	if l.dearest == 0 || cost < l.dearest {
		l.dearest = cost
	}
}

func newSpaced(l *limits, p *limiterPlan, _ []ratelimiter.Limiter) (ratelimiter.Limiter, error) {
	l.promises = append(l.promises, spaced(p.rate))
	return ratelimiter.NewTokenBucket(p.rate)
}

func newBurst(l *limits, p *limiterPlan, inner []ratelimiter.Limiter) (ratelimiter.Limiter, error) {
	if p.burst == 1 {
		return newSpaced(l, p, inner)
	}
	l.atMost(p.burst)
	l.promises = append(l.promises, withinBucket(p.rate, p.burst))
	return ratelimiter.NewTokenBucket(p.rate, ratelimiter.WithBurst(p.burst))
}

func newWindow(l *limits, p *limiterPlan, _ []ratelimiter.Limiter) (ratelimiter.Limiter, error) {
	l.atMost(p.rate.Count)
	l.promises = append(l.promises, withinWindow(p.rate))
	return ratelimiter.NewSlidingWindow(p.rate)
}

// newForeign is a limiter that is not of the library: it holds everybody up for as long.
func newForeign(_ *limits, p *limiterPlan, _ []ratelimiter.Limiter) (ratelimiter.Limiter, error) {
	return ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
		timer := time.NewTimer(p.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}), nil
}

func newPausable(l *limits, _ *limiterPlan, inner []ratelimiter.Limiter) (ratelimiter.Limiter, error) {
	p := ratelimiter.NewPausable(inner[0])
	l.pausables = append(l.pausables, p)
	return p, nil
}

func newAll(_ *limits, _ *limiterPlan, inner []ratelimiter.Limiter) (ratelimiter.Limiter, error) {
	return ratelimiter.NewAll(inner...)
}

// spaced grants are an interval apart, for each unit of cost. Instants are rounded up to whole nanoseconds.
func spaced(r ratelimiter.Rate) promise { return withinBucket(r, 0) }

// withinBucket grants are never more than a full bucket and what has flowed in since. With a size of 0 the bucket is a
// spaced one, whose last grant is free.
func withinBucket(r ratelimiter.Rate, size int) promise {
	return func(grants []grant) string {
		for i := range grants {
			sum := 0
			for j := i; j < len(grants); j++ {
				if size > 0 {
					sum += grants[j].cost
				}
				if int64(sum-size)*int64(r.Per) > int64(grants[j].at-grants[i].at+1)*int64(r.Count) {
					return fmt.Sprintf("between %v and %v it has let through a cost of %d: its rate is %v, its burst %d", grants[i].at, grants[j].at, sum, r, size)
				}
				if size == 0 {
					sum += grants[j].cost
				}
			}
		}
		return ""
	}
}

// withinWindow grants are never more than the count in any period, which does not include its end.
func withinWindow(r ratelimiter.Rate) promise {
	return func(grants []grant) string {
		for i := range grants {
			sum := 0
			for _, g := range grants[i:] {
				if g.at-grants[i].at >= r.Per {
					break
				}
				if sum += g.cost; sum > r.Count {
					return fmt.Sprintf("between %v and %v it has let through a cost of %d: its window is %v", grants[i].at, g.at, sum, r)
				}
			}
		}
		return ""
	}
}

// pause pauses now and then.
func (w *world) pause() {
	r := w.random("pauses")
	for w.nap(2*w.span(r)) && len(w.limits.pausables) > 0 {
		d := w.span(r)
		w.limits.notePause(d)
		if err := pick(r, w.limits.pausables...).PauseFor(d); err != nil {
			w.fail("PauseFor(%v): %v", d, err)
		}
		if !w.nap(20 * w.span(r)) {
			return
		}
	}
}

// hinted is called when an attempt has ended with a hint, which pauses. A meter knows better when that is.
func (l *limits) hinted(at, hint time.Duration) {
	if l.meter == nil && len(l.pausables) > 0 && !l.sleeps() {
		if l.retry != nil && l.retry.longest > 0 {
			hint = min(hint, l.retry.longest)
		}
		l.paused = append(l.paused, span{at, at + hint})
	}
}

func (l *limits) notePause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused = append(l.paused, span{l.now(), l.now() + d})
}

// check checks the promises on the attempts of all runs.
func (l *limits) check() {
	if l.meter != nil {
		l.meter.check()
	}
	if !l.exact() || l.limiter.has("foreign") {
		return // between a grant and what its caller does with it, time may pass
	}
	grants := l.log()
	for _, kept := range l.promises {
		if wrong := kept(grants); wrong != "" {
			l.fail("the limiter %v broke its promise: %s", l.limiter, wrong)
		}
	}
	for _, g := range grants {
		for _, p := range l.paused {
			if p.from < g.at && g.at < p.to {
				l.fail("a grant at %v in a pause from %v to %v", g.at, p.from, p.to)
			}
		}
	}
}

// log is the log of attempts, by the time of the grant.
func (l *limits) log() (grants []grant) {
	if l.meter != nil {
		grants = l.meter.grants
	} else if !l.sleeps() {
		for _, a := range l.attempts {
			grants = append(grants, grant{at: a.granted, cost: max(1, l.cost(a.id))})
		}
	}
	slices.SortStableFunc(grants, func(a, b grant) int { return int(a.at - b.at) })
	return grants
}

// A meter counts what goes through a limiter, and breaks it if the scenario wants that.
type meter struct {
	*limits
	inner  ratelimiter.Limiter
	inside atomic.Int64

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
	if d, ok := retry.RetryAfter(err); ok && len(m.pausables) > 0 {
		m.notePause(d)
	}
	m.goesWrong("observer", m.runOf(err), true)
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
