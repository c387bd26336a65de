package limitertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// tryAcquire asks a fresh limiter: what Acquire grants at once, TryAcquire does.
func (r *run) tryAcquire() {
	const most = 1000
	p := &r.profile
	r.bubble(func(s *stage) {
		if before := p.free - most; before > 0 && !s.random {
			s.drain(before)
		}
		want := min(p.free, most)
		n := 0
		for n <= want || s.random && n < maxFree {
			ok, in := s.tryNext()
			if ok {
				if n++; in != 0 && n == 1 {
					s.report(retryAfter, "TryAcquire granted, and said to try again after %v.", in)
				}
				continue
			}
			if in <= 0 {
				s.fatal(retryAfter, "TryAcquire refused, and said that the caller would have to wait for %v. Who believes that asks "+
					"again and again.", in)
			}
			if p.noLine == "" && !s.random && n == want && in != p.wait {
				s.report(retryAfter, "TryAcquire refused after %d grants at one instant, and said %v. A caller that asks then waits "+
					"for %v.", p.free, instant(in), p.wait)
			}
			break
		}
		if !s.random && (n < want || n > want && p.noLine == "") {
			s.report(tryGrants, "Of a fresh limiter TryAcquire granted %d requests at one instant, Acquire %d without a wait.",
				n+max(p.free-most, 0), p.free)
		}
	})
	r.bubble(func(s *stage) {
		if p.free == 0 || s.random {
			return
		}
		for _, most := range []time.Duration{0, -time.Hour, time.Hour, ratelimiter.Never}[:min(p.free, 4)] {
			if c := s.askAs(manner{within: true, most: most}); !c.back() || c.err != nil {
				s.fatal(withinWaits, "%v of a fresh limiter, which grants %d without a wait, %s.", c, p.free, c.outcome())
			}
		}
	})
}

// tryInLine asks while others wait: at the instants of their grants, when the
// limiter may not have got round to them, and in between.
func (r *run) tryInLine() {
	p := &r.profile
	r.bubble(func(s *stage) {
		cs := s.line(p.n)
		last := cs[p.n-1]
		s.triesRefused(s.now(), last)
		if s.random {
			for _, c := range cs {
				s.await(c)
				s.triesRefused(s.now(), last)
			}
			return
		}
		before := p.ask
		for _, at := range p.at {
			if at == before || at == p.at[p.n-1] {
				continue
			}
			s.triesRefused(before+(at-before)/2, last)
			s.triesRefused(at, last)
			before = at
		}
		s.sameInstants(tryUses, s.instants(cs...), p.at, "%d callers waited in line while TryAcquire refused again and again. "+
			"They must be granted as if it had not been called.", p.n)
	})
}

// triesRefused has some TryAcquires at an instant at which callers wait.
func (s *stage) triesRefused(at time.Duration, last *call) {
	const often = 4
	var ok [often]bool
	var in [often]time.Duration
	tries := make([]*call, often)
	for i := range tries {
		req := s.request(s.next + i)
		tries[i] = s.begin("TryAcquire", s.next+i, req, manner{at: at}, func(context.Context) error {
			ok[i], in[i] = s.try.TryAcquire(req)
			return nil
		})
	}
	s.sleepUntil(at)
	s.settle()
	if last.back() {
		return // there may have been nobody left to overtake
	}
	for i, c := range tries {
		switch {
		case !c.back():
			s.fatal(tryWaits, "%v has not returned while no time passed.", c)
		case ok[i]:
			s.fatal(tryOrder, "%v granted a request. %v stood in line then, and for longer.", c, last)
		case in[i] <= 0:
			s.fatal(retryAfter, "%v refused, and said that the caller would have to wait for %v.", c, in[i])
		}
	}
}

// retryAfter: with so many ahead, retryAfter is when the next in line is granted,
// and then, but not a nanosecond before, TryAcquire grants too.
func (r *run) retryAfter() {
	p := &r.profile
	ahead := []int{0, 1, 2, p.n - 1}
	if r.unordered {
		ahead = ahead[:1]
	}
	for _, k := range ahead {
		r.bubble(func(s *stage) {
			s.line(k)
			want := p.at[k] - p.ask
			story := fmt.Sprintf("With %d callers in line at %v", k, p.ask)
			s.refusesFor(want, story)
			for _, before := range []time.Duration{want / 2, 1} {
				if before > 0 && before < want {
					s.sleepUntil(p.at[k] - before)
					s.settle()
					s.refusesFor(before, fmt.Sprintf("%s retryAfter was %v. Asked again %v before that instant", story, want, before))
				}
			}
			s.sleepUntil(p.at[k])
			s.settle()
			if ok, in := s.tryNext(); !ok {
				s.report(retryAfter, "%s TryAcquire refused, and said %v. Asked again after exactly that time, it refused once "+
					"more, and said %v.", story, want, instant(in))
			}
		})
	}
}

func (s *stage) refusesFor(want time.Duration, story string) {
	switch ok, in := s.tryNext(); {
	case ok:
		s.fatal(retryAfter, "%s, TryAcquire granted. A caller that asks Acquire has to wait for %v.", story, want)
	case in != want:
		s.fatal(retryAfter, "%s, TryAcquire refused and said %s. A caller that asks Acquire is granted after %v.", story,
			instant(in), want)
	}
}

// acquireWithin: the bounds, with nobody and with somebody ahead.
func (r *run) acquireWithin() {
	p := &r.profile
	if r.random {
		r.bubble((*stage).withinRandom)
		return
	}
	if !r.unordered {
		r.bubble((*stage).justInTime)
	}
	for _, k := range []int{0, 2} {
		if k > 0 && r.unordered {
			continue
		}
		wait := p.at[k] - p.ask
		for _, enough := range []time.Duration{wait, wait + 1, ratelimiter.Never} {
			r.bubble(func(s *stage) {
				cs := s.line(k)
				for _, most := range []time.Duration{0, -time.Hour, wait / 2, wait - 1} {
					s.exceeds(most, wait, k)
				}
				cs = append(cs, s.askAs(manner{within: true, most: enough}))
				for _, c := range cs {
					s.await(c)
				}
				if c := cs[k]; c.err != nil || c.granted() != p.at[k] {
					s.report(withinWaits, "With %d callers in line at %v, %v %s. Acquire is granted at %v.", k, p.ask, c, c.outcome(), p.at[k])
					return
				}
				s.sameInstants(withinUses, append(s.instants(cs[:k]...), p.at[k]), p.at[:k+1],
					"AcquireWithin was refused behind %d callers in line. They must be granted as if it had not been called.", k)
			})
		}
	}
}

// justInTime has callers wait each for as long as it takes, and no longer.
func (s *stage) justInTime() {
	p := &s.profile
	cs := s.line(p.n, func(i int) *manner { return &manner{within: true, most: p.at[i] - p.ask} })
	for _, c := range cs {
		if !s.await(c) || c.err != nil {
			s.fatal(withinWaits, "%v stood in line with %d others, each of which wanted to wait for as long as it would take. It "+
				"%s. Only what comes later than maxWait is refused.", c, p.n-1, c.outcome())
		}
	}
	s.sameInstants(withinWaits, grants(cs), p.at, "%d callers of AcquireWithin, which wanted to wait for as long as it "+
		"would take, must be granted like those of Acquire.", p.n)
}

// exceeds checks that what would take longer is refused at once.
func (s *stage) exceeds(most, wait time.Duration, k int) {
	const often = 5
	for i := range often {
		next := s.next
		c := s.askAs(manner{within: true, most: most})
		s.next = next
		story := fmt.Sprintf("With %d callers in line, and so a wait of %v, %v", k, wait, c)
		var excess *ratelimiter.ExcessError
		switch {
		case !c.back():
			s.fatal(withinBound, "%s was not refused at once.", story)
		case c.err == nil:
			s.fatal(withinBound, "%s was granted.", story)
		case !errors.As(c.err, &excess):
			s.fatal(withinBound, "%s was refused with an error that is no *ExcessError: %v", story, c.err)
		case i > 0 && excess.RetryAfter != wait:
			s.fatal(withinUses, "%s was refused with a RetryAfter of %v. The first time it was %v.", story,
				instant(excess.RetryAfter), wait)
		case excess.RetryAfter != wait:
			s.fatal(retryAfter, "%s was refused with a RetryAfter of %v.", story, instant(excess.RetryAfter))
		}
	}
}

// withinRandom has callers wait for a limited time, some longer than they want to.
func (s *stage) withinRandom() {
	p := &s.profile
	cs := s.line(p.n)
	var limited []*call
	for i := range p.n {
		limited = append(limited, s.askAs(manner{within: true, most: time.Duration(i) * p.wait / 2}))
	}
	s.instants(cs...)
	for i, c := range limited {
		most := time.Duration(i) * p.wait / 2
		var excess *ratelimiter.ExcessError
		switch {
		case !s.await(c) || c.when > c.asked+most:
			s.report(withinBound, "%v %s.", c, c.outcome())
		case c.err != nil && !errors.As(c.err, &excess):
			s.report(withinBound, "%v was refused with an error that is no *ExcessError: %v", c, c.err)
		}
	}
}

// withinWorse: somebody waits who was told that it would not take too long, and
// then a debt turns up.
func (r *run) withinWorse() {
	p := &r.profile
	if !r.goesByCosts() {
		r.skipped = "the limiter does not go by costs, and so its waits cannot be made longer"
		return
	}
	wait := p.at[0] - p.ask
	at := p.ask + wait/2
	gone := false
	play := func(present bool) (after []time.Duration) {
		r.bubble(func(s *stage) {
			c := s.line(1, func(int) *manner {
				if present {
					return &manner{within: true, most: wait}
				}
				return nil
			})[0]
			s.sleepUntil(at)
			s.adjustFirst(func(cost int) int { return 5 * cost })
			if present {
				s.sleepUntil(p.at[0])
				s.settle()
				gone = s.hasHadEnough(c, wait)
			}
			s.sleepUntil(p.at[0])
			after = s.instants(s.more(p.n)...)
		})
		return after
	}
	got, want := play(true), play(false)
	if gone {
		r.sameInstants(withinUses, got, want, "AcquireWithin %v gave up, since a debt had made the wait longer. Those who "+
			"came after must be granted as if it had not been called.", wait)
	}
}

// hasHadEnough checks a caller that has waited as long as it wants to, and reports
// whether it gave up.
func (s *stage) hasHadEnough(c *call, most time.Duration) bool {
	var excess *ratelimiter.ExcessError
	switch {
	case !c.back():
		s.fatal(withinBound, "%v was to be granted in time. Then a debt, made by Adjust, made its wait longer. It has not "+
			"returned after %v.", c, most)
	case c.err != nil && (!errors.As(c.err, &excess) || errors.Is(c.err, context.Canceled)):
		s.fatal(withinBound, "%v was to be granted in time. Then a debt, made by Adjust, made its wait longer. Its error is "+
			"no *ExcessError: %v", c, c.err)
	}
	return c.err != nil
}
