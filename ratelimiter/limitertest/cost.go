package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// refusal is the error of a caller that is refused at once for its cost.
func (s *stage) refusal(cost int) error {
	c := s.askAs(manner{cost: &cost})
	if !c.back() {
		c.cancel()
		s.settle()
		return nil
	}
	return c.err
}

// cost is what the requests of the kit cost.
func (r *run) cost() int { return max(r.request(0).Cost, 1) }

// goesByCosts reports whether a cost of two is anything else for the limiter than
// a cost of one.
func (r *run) goesByCosts() bool {
	if p := &r.profile; !p.costsKnown {
		one, two := r.trace(r.cost()), r.trace(2*r.cost())
		p.costs, p.costsKnown = !slices.Equal(one, two), true
	}
	return r.profile.costs
}

// refusedAt is the instant of a grant that was refused for its cost.
const refusedAt = never - 1

// trace is when requests of the given cost are granted that ask when there is room
// left for a few.
func (r *run) trace(cost int) (at []time.Duration) {
	const room, callers = 4, 12
	r.bubble(func(s *stage) {
		if n := s.profile.free - room; n > 0 && s.profile.free < maxFree {
			s.drain(n)
		}
		for range callers {
			s.askAs(manner{cost: &cost})
		}
		for _, c := range s.calls {
			switch {
			case s.await(c) && c.err == nil, !c.back():
				at = append(at, c.granted())
			default:
				at = append(at, refusedAt)
			}
		}
	})
	if r.unordered {
		slices.Sort(at)
	}
	return at
}

// costZero: zero counts as 1.
func (r *run) costZero() {
	zero, one := r.trace(0), r.trace(1)
	if !slices.Equal(zero, one) {
		r.add(rule6, "Requests of cost 0 and requests of cost 1, of which the limiter grants some at once, were granted at "+
			"different instants.\n%s",
			difference(zero, one))
	}
}

// costNegative: one below zero is refused, whatever the state of the limiter.
func (r *run) costNegative() {
	ignored := !r.random && !r.goesByCosts()
	for _, cost := range []int{-1, -1 << 31} {
		r.refuses(cost, "a negative cost", ignored)
	}
}

// refuses checks that a cost is refused at once by a fresh limiter and by one for
// which others wait.
func (r *run) refuses(cost int, what string, ignored bool) {
	p := &r.profile
	r.bubble(func(s *stage) {
		if s.refusesNow(cost, what, "A fresh limiter", ignored) {
			s.sameLine(rule3, fmt.Sprintf("A fresh limiter had refused %s, %d. What came after must be as if nobody had asked "+
				"for it.", what, cost))
		}
	})
	if p.noLine != "" {
		return
	}
	r.bubble(func(s *stage) {
		cs := s.line(p.n)
		if s.refusesNow(cost, what, fmt.Sprintf("A limiter for which %d others waited", p.n), ignored) {
			s.sameInstants(rule3, s.instants(cs...), p.at, "%d callers were in line when %s, %d, was refused. They must be "+
				"granted as if nobody had asked for it.", p.n, what, cost)
		}
	})
}

func (s *stage) refusesNow(cost int, what, who string, ignored bool) bool {
	for _, m := range s.manners() {
		m.cost = &cost
		c := s.askAs(m)
		if ignored && (!c.back() || c.err == nil) {
			return false
		}
		if !c.back() {
			s.fatal(rule6, "%s was asked for %s, %d, by %v. That can never be granted, but it has not been refused at once.",
				who, what, cost, c)
		}
		if c.err == nil {
			s.fatal(rule6, "%s granted %s, %d.", who, what, cost)
		}
		s.isRefusal(c.err, fmt.Sprintf("%s refused %s, %d", who, what, cost))
	}
	if s.try != nil {
		req := s.request(s.next)
		req.Cost = cost
		if ok, in := s.tryFor(req); ok || in != ratelimiter.Never {
			s.fatal(retryAfter, "%s was asked by TryAcquire for %s, %d. It said %v and %v, want false and Never.", who, what,
				cost, ok, in)
		}
	}
	return true
}

// isRefusal checks that err says that a request can never be granted.
func (s *stage) isRefusal(err error, story string) {
	switch {
	case !errors.Is(err, ratelimiter.ErrNeverGranted):
		s.fatal(rule6, "%s with an error that is not ErrNeverGranted to errors.Is, so the limiter would be taken for broken: "+
			"%v", story, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		s.fatal(rule6, "%s with an error that is ErrNeverGranted to errors.Is, but a context's error too: %v", story, err)
	}
}

// costHuge: what can never be granted is refused, and what is granted is counted.
func (r *run) costHuge() {
	for _, cost := range []int{math.MaxInt, math.MaxInt/2 + 1, math.MaxInt / 3} {
		waits := false
		granted := false
		r.bubble(func(s *stage) {
			c := s.askAs(manner{cost: &cost})
			waits = !c.back()
			granted = c.back() && c.err == nil
			if waits && s.profile.noLine == "" {
				s.sleepUntil(patient)
				s.settle()
				if !c.back() {
					s.fatal(rule6, "A fresh limiter was asked for a cost of %d. It was neither granted nor refused in 400 days, and "+
						"has held up everybody behind it.", cost)
				}
			}
		})
		switch {
		case granted:
			r.hugeCounts(cost)
		case !waits:
			r.refuses(cost, "a cost", false)
		}
	}
}

// hugeCounts checks that a huge cost that was granted has not been granted for
// nothing, as happens when the sum wraps around.
func (r *run) hugeCounts(cost int) {
	const callers = 4
	if !r.goesByCosts() || r.profile.noLine != "" {
		return
	}
	r.bubble(func(s *stage) {
		c := s.askAs(manner{cost: &cost})
		cs := s.more(max(s.profile.free, 1) + callers)
		last := cs[len(cs)-1]
		s.sleepUntil(s.profile.at[s.profile.n-1])
		s.settle()
		if last.back() && last.err == nil {
			s.report(rule1, "%v was granted at once. After that %d callers that asked for %d each were granted all the same, the "+
				"last at %v. Has a sum wrapped around?",
				c, len(cs), s.cost(), last.when)
		}
	})
}
