package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// limits is the limiter of a world while it is used.
type limits struct {
	*world
	limit
	outer ratelimiter.Limiter // with a meter around it, if there is one
	meter *meter

	// Guarded by the ledger's lock.
	paused  []span
	outside []grant // to others than the engine
}

func (w *world) newLimits() *limits {
	l := &limits{world: w}
	var err error
	if l.limit, err = w.limiter.build(); err != nil {
		w.fail("the limiter was refused: %v", err)
	}
	l.outer = l.limit.Limiter
	if w.limiter.metered || w.badCall != nil {
		l.meter = &meter{limits: l, inner: l.outer}
		l.outer = l.meter
		if !w.limiter.has("foreign") {
			l.outer = tryMeter{l.meter}
		}
	}
	return l
}

// A grant is what a promise is about.
type grant struct {
	at   time.Duration
	cost int
	req  ratelimiter.Request
}

// A promise is what a limiter promises about its grants, in their order in time. It says what is wrong, or "".
type promise func(grants []grant) string

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
				if int64(sum-size)*int64(r.Per) >= int64(grants[j].at-grants[i].at+1)*int64(r.Count) && sum > size {
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

// each makes a promise for each part of the grants.
func each(part func(grant) any, kept promise) promise {
	return func(grants []grant) string {
		parts := make(map[any][]grant)
		for _, g := range grants {
			parts[part(g)] = append(parts[part(g)], g)
		}
		for of, grants := range parts {
			if wrong := kept(grants); wrong != "" {
				return fmt.Sprintf("for %v: %s", of, wrong)
			}
		}
		return ""
	}
}

// disturb pauses the limiter and changes its rate now and then.
func (w *world) disturb() {
	r := w.random("disturbances")
	l := w.limits
	for w.nap(2 * w.span(r)) {
		if len(l.pauses) > 0 {
			d := w.span(r)
			l.notePause(d)
			if err := pick(r, l.pauses...)(d); err != nil {
				w.fail("PauseFor(%v): %v", d, err)
			}
		}
		if len(l.rates) > 0 && w.limiter.retuned {
			to := w.drawRate(r)
			if r.IntN(4) == 0 {
				to = ratelimiter.Rate{}
			}
			_ = pick(r, l.rates...)(to) // it may be refused, as too slow for the burst
		}
		if !w.nap(20 * w.span(r)) {
			return
		}
	}
}

// share uses the limiter besides the engine, in all ways that there are.
func (w *world) share() {
	r := w.random("outsider")
	l := w.limits
	for n := 0; w.nap(w.span(r)); n++ {
		req := ratelimiter.Request{Worker: r.IntN(w.workers), Attempt: 1, Index: -1 - n, Cost: 1, Key: keyOf(n)}
		if !l.askFor(req, r.IntN(4), w.span(r)) {
			continue
		}
		if a, ok := l.Limiter.(ratelimiter.Adjuster); ok && r.IntN(4) == 0 {
			a.Adjust(req, 0) // at the instant of its grant
			continue
		}
		w.mu.Lock()
		l.outside = append(l.outside, grant{w.now(), 1, req})
		w.mu.Unlock()
	}
}

// askFor asks the limiter in one of the ways that it has, and reports whether it has granted.
func (l *limits) askFor(req ratelimiter.Request, how int, patience time.Duration) bool {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	try, can := ratelimiter.AsTryAcquirer(l.Limiter)
	switch {
	case !can || how == 0:
		return l.Limiter.Acquire(ctx, req) == nil
	case how == 1:
		return try.AcquireWithin(ctx, req, patience/2) == nil
	default:
		ok, in := try.TryAcquire(req)
		if !ok && in <= 0 {
			l.fail("TryAcquire has refused, and says that the next grant is in %v", in)
		}
		return ok
	}
}

// hinted is called when an attempt has ended with a hint, which pauses. A meter knows better when that is.
func (l *limits) hinted(at, hint time.Duration) {
	if l.meter == nil && l.hints && !l.sleeps() {
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
	foreign := l.limiter.has("foreign") || l.limiter.has("from rate") && len(l.limiter.of) > 0
	if !l.exact() || foreign {
		return // between a grant and what its caller does with it, time may pass
	}
	grants := l.log()
	for _, kept := range l.promises {
		if wrong := kept(grants); wrong != "" && !l.limiter.retuned {
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
	} else if l.sleeps() {
		return nil // a hook comes between a grant and its attempt
	} else {
		for _, a := range l.attempts {
			grants = append(grants, grant{a.granted, max(1, l.cost(a.id)), ratelimiter.Request{Key: keyOf(a.id)}})
		}
	}
	grants = append(slices.Clone(grants), l.outside...)
	slices.SortStableFunc(grants, func(a, b grant) int { return int(a.at - b.at) })
	return grants
}
