package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// manners are the ways in which a caller can wait as long as it takes.
func (r *run) manners() []manner {
	if r.profile.tries {
		return []manner{{}, forever}
	}
	return []manner{{}}
}

// endedContext: rule 4. A limiter that leaves it to select whether it sees the
// end of the context or a free slot is right half the time, so each is asked often.
func (r *run) endedContext() {
	r.bubble(func(s *stage) {
		s.askDead("of a fresh limiter")
		s.sameLine(rule3, "Callers whose contexts had ended asked a fresh limiter. What came after them must be as if they had not.")
	})
	if r.profile.noLine != "" {
		return
	}
	r.bubble(func(s *stage) {
		cs := s.line(r.profile.n)
		s.askDead("with others waiting")
		s.sameInstants(rule3, s.instants(cs...), r.profile.at, "Callers whose contexts had ended asked while %d others "+
			"waited. These must be granted as if nobody had asked.", len(cs))
	})
}

// sameLine compares the line of a limiter, fresh but for what the story tells,
// with that of another fresh one.
func (s *stage) sameLine(broken rule, story string) {
	p := &s.profile
	if p.noLine != "" || s.random {
		return
	}
	s.next = 0
	s.blame = &finding{broken, story}
	s.sameInstants(broken, s.instants(s.line(p.n)...), p.at, "%s", story)
}

// askDead asks with contexts that have ended.
func (s *stage) askDead(when string) {
	const often = 50
	methods := []manner{{}}
	if s.try != nil {
		methods = append(methods, manner{within: true}, manner{within: true, most: time.Hour}, forever)
	}
	for _, m := range methods {
		for _, m.ends = range []ending{byCancel, byCause, byDeadline} {
			m.deadline = s.now() - time.Second
			s.askDeadAs(m, often, when)
		}
	}
}

func (s *stage) askDeadAs(m manner, often int, when string) {
	ctx, end := s.context(m)
	end()
	faulty := false
	req := s.request(s.next)
	dead := s.begin(m.what(), s.next, req, manner{}, func(context.Context) error {
		for range often {
			var err error
			if m.within {
				err = s.try.AcquireWithin(ctx, req, m.most)
			} else {
				err = s.l.Acquire(ctx, req)
			}
			if err == nil || !errors.Is(err, ctx.Err()) {
				faulty = true
				return err
			}
		}
		return nil
	})
	story := fmt.Sprintf("%s %s, with a context that %s and had ended before,", m.what(), when, m.ends)
	switch {
	case !dead.back():
		s.fatal(rule2, "%s has not returned while no time passed.", story)
	case faulty && dead.err == nil:
		s.fatal(rule4, "%s was granted. A select with several cases ready takes any of them: ask ctx.Err() first.", story)
	case faulty:
		s.fatal(rule2, "%s returned an error that is not %v to errors.Is: %v", story, ctx.Err(), dead.err)
	}
}

func (r *run) cancelHead()   { r.cancelOne(0) }
func (r *run) cancelMiddle() { r.cancelOne(r.profile.n / 2) }
func (r *run) cancelTail()   { r.cancelOne(r.profile.n - 1) }

// cancelOne has caller p of the line give up: at once, half-way to the first
// grant, and in the last moment before its own, in all manners.
func (r *run) cancelOne(p int) {
	prof := &r.profile
	first, last := prof.half(), prof.at[p]-1
	bound := prof.at[p]
	if r.unordered {
		bound = prof.at[0] // any one may be the first
	}
	if r.random {
		first, last, bound = prof.ask+prof.wait/2, prof.ask+prof.wait, never
	}
	for _, m := range r.manners() {
		for _, at := range slices.Compact([]time.Duration{prof.ask, first, max(last, first)}) {
			if at < prof.ask || at >= bound {
				continue
			}
			for _, m.ends = range []ending{byCancel, byCause, byDeadline} {
				if m.deadline = at; m.ends == byDeadline && at == prof.ask {
					continue // that would have ended before the call
				}
				r.cancelOneAt(p, at, m)
			}
		}
	}
}

// cancelOneAt compares a line in which caller p gives up at an instant with one
// in which it does not come. Newcomers show whether the rear of the line has
// noticed. Sometimes there are none, since they also wake up a limiter that would
// have gone to sleep.
func (r *run) cancelOneAt(p int, at time.Duration, m manner) {
	newcomers := 2
	if m.ends == byCause {
		newcomers = 0
	}
	var got, want []time.Duration
	r.bubble(func(s *stage) {
		cs := s.line(r.profile.n, with(p, m))
		gone := cs[p]
		s.giveUp(gone, at, m)
		cs[p] = nil
		got = s.instants(append(cs, s.more(newcomers)...)...)
	})
	r.bubble(func(s *stage) {
		cs := s.line(r.profile.n, absent(p))
		s.sleepUntil(at)
		want = s.instants(append(cs, s.more(newcomers)...)...)
	})
	story := fmt.Sprintf("%d callers waited in line, from %v on. Number %d (%s) gave up at %v; its context %s.",
		r.profile.n, r.profile.ask, p+1, m.what(), at, m.ends)
	r.sameInstants(rule3, got, want, "%s The others, and %d newcomers, must be granted as if it had never asked.", story,
		newcomers)
}

// giveUp lets time pass until the context of c ends, and checks that c has
// returned then.
func (s *stage) giveUp(c *call, at time.Duration, m manner) {
	s.sleepUntil(at)
	if c.back() && s.random && c.err == nil {
		return // its delay was short
	}
	if m.ends != byDeadline {
		if c.back() {
			broken := rule6
			if c.err == nil {
				broken = basics
			}
			s.fatal(broken, "%v %s, before its context was cancelled at %v and before its turn.", c, c.outcome(), at)
		}
		c.cancel()
	}
	s.settle()
	if c.back() && s.random && c.err == nil {
		return // at this very instant
	}
	s.checkGone(c, at, m)
}

// checkGone checks that c, whose context ended at the instant at, has returned
// and with what.
func (s *stage) checkGone(c *call, at time.Duration, m manner) {
	want := context.Canceled
	if m.ends == byDeadline {
		want = context.DeadlineExceeded
	}
	switch {
	case !c.back():
		s.fatal(rule2, "%v has not returned when its context, which %s, ended at %v.", c, m.ends, at)
	case c.err == nil:
		s.fatal(rule2, "%v was granted at %v. It was not its turn, and its context, which %s, ended at %v.", c, c.when, m.ends, at)
	case !errors.Is(c.err, want):
		s.fatal(rule2, "The context of %v, which %s, ended at %v. It returned an error that is not %v to errors.Is: %v", c,
			m.ends, at, want, c.err)
	case errors.Is(c.err, ratelimiter.ErrNeverGranted):
		s.fatal(rule6, "The context of %v ended at %v. It returned an error that is ErrNeverGranted to errors.Is, which says "+
			"that the request is at fault: %v", c, at, c.err)
	case c.when > at:
		s.fatal(rule2, "The context of %v, which %s, ended at %v. It returned only at %v.", c, m.ends, at, c.when)
	}
}

// cancelAll has whole crowds give up: oldest first, newest first, in any order.
func (r *run) cancelAll() {
	newest := seq(r.crowdSize())
	slices.Reverse(newest)
	r.cancelCrowds("the oldest first", seq(len(newest)))
	r.cancelCrowds("the newest first", newest)
	r.cancelCrowds("in no order", rand.New(rand.NewPCG(1, 2)).Perm(len(newest)))
}

// crowdSize is enough for a slot lost with each of them to be noticed even if the
// limiter is random.
func (r *run) crowdSize() int { return max(r.profile.n, 40) }

func seq(n int) []int {
	o := make([]int, n)
	for i := range o {
		o[i] = i
	}
	return o
}

func (r *run) cancelCrowds(name string, order []int) {
	const crowds, newcomers = 3, 4
	p := &r.profile
	half := p.half()
	numbers := 0
	var got, want []time.Duration
	r.bubble(func(s *stage) {
		for i := range crowds {
			ask := s.more
			if i == 0 {
				ask = func(n int) []*call { return s.line(n) }
			}
			s.crowdGivesUp(ask(len(order)), order)
			s.sleepUntil(half)
		}
		numbers = s.next
		from := s.now()
		got = s.instants(s.more(newcomers)...)
		if s.random {
			s.notMuchLater(from, got, crowds*len(order))
		}
	})
	if r.random {
		return
	}
	r.bubble(func(s *stage) {
		s.line(0)
		s.next = numbers
		s.sleepUntil(half)
		want = s.instants(s.more(newcomers)...)
	})
	r.sameInstants(rule3, got, want, "%d crowds of %d callers in line gave up one caller after the other, %s. %d newcomers "+
		"at %v must be granted as if none of them had ever asked.",
		crowds, len(order), name, newcomers, half)
}

// more has n more callers ask.
func (s *stage) more(n int) []*call {
	cs := make([]*call, n)
	for i := range cs {
		cs[i] = s.ask()
	}
	return cs
}

func (s *stage) crowdGivesUp(cs []*call, order []int) {
	for _, i := range order {
		if s.random && cs[i].back() {
			continue
		}
		cs[i].cancel()
		s.settle()
		s.checkGone(cs[i], s.now(), manner{})
	}
}

// notMuchLater is what can be said of the grants of newcomers if delays are
// random.
func (s *stage) notMuchLater(from time.Duration, at []time.Duration, gone int) {
	const much = 50
	p := &s.profile
	mean := max(p.wait, p.at[len(p.at)-1]/time.Duration(len(p.at)))
	for i, t := range at {
		if t == never || t > from+time.Duration(i+1)*much*mean {
			s.report(rule3, "%d callers in line gave up. Newcomer %d, at %v, was granted at %s, though a grant takes no more "+
				"than %v on average.", gone, i+1, from, instant(t), mean)
			return
		}
	}
}

// cancelAtGrant has contexts end at the very instants of grants. Either of the two
// may count, but only one: what those who give up do not take goes to the next at
// the same instant, and so all grants come at the known instants.
func (r *run) cancelAtGrant() {
	const rounds = 40
	for round := range rounds {
		r.cancelsAtGrants(rand.New(rand.NewPCG(uint64(round), 3)))
	}
}

func (r *run) cancelsAtGrants(rng *rand.Rand) {
	const stay = 2 // at the end of the line, so that every slot is wanted
	p := &r.profile
	r.bubble(func(s *stage) {
		ends := make([]time.Duration, p.n-stay)
		cs := s.line(p.n, func(i int) *manner {
			m := &manner{within: s.try != nil && rng.IntN(2) == 0, most: ratelimiter.Never}
			if i >= len(ends) {
				return m
			}
			// Its own slot if nobody gives up, or an earlier one.
			ends[i] = p.at[max(i-rng.IntN(3), 0)]
			if m.deadline = ends[i]; rng.IntN(4) == 0 {
				m.ends = byDeadline
			}
			return m
		})
		s.cancelTogether(cs, ends)
		at := s.instants(cs[len(ends):]...)
		s.sleepUntil(p.at[p.n-1])
		s.settle()
		for i, c := range cs[:len(ends)] {
			if at = append(at, c.granted()); !c.back() {
				s.fatal(rule2, "The context of %v ended at %v, at the instant of a grant. It has not returned at %v.", c, ends[i], s.now())
			}
			if c.when > ends[i] || c.err != nil && !errors.Is(c.err, context.Canceled) && !errors.Is(c.err, context.DeadlineExceeded) {
				s.fatal(rule2, "The context of %v ended at %v, at the instant of a grant. It %s.", c, ends[i], c.outcome())
			}
		}
		slices.Sort(at)
		if i := slices.Index(at, never); i >= 0 {
			at = at[:i]
		}
		s.sameInstants(rule3, at, p.at[:len(at)], "Of %d callers in line all but %d gave up at the instants of grants. %d "+
			"were granted, and so the first %d slots must have been used.", p.n, stay, len(at), len(at))
	})
}

// cancelTogether cancels callers at the given instants, all those of one instant
// from one goroutine. That goroutine then wakes up another one: the scheduler runs
// who was woken last first, and what is looked for shows when the limiter is run
// between the end of a context and its caller.
func (s *stage) cancelTogether(cs []*call, ends []time.Duration) {
	for _, at := range slices.Compact(slices.Sorted(slices.Values(ends))) {
		last := make(chan struct{})
		go func() { <-last }()
		time.AfterFunc(at-s.now(), func() {
			for i, end := range ends {
				if end == at {
					cs[i].cancel()
				}
			}
			close(last)
		})
	}
}

// deadline: rule 5.
func (r *run) deadline() {
	for _, m := range r.manners() {
		m.ends = byDeadline
		r.hopeless(m)
		r.enough(m, r.profile.at[0]+1)
		r.enough(m, r.profile.at[0]+100*365*24*time.Hour)
		r.enoughIfOthersGo(m)
	}
}

// hopeless has callers ask whose deadline comes just before the first grant.
func (r *run) hopeless(m manner) {
	const often = 10
	p := &r.profile
	if m.deadline = p.at[0] - 1; m.deadline <= p.ask {
		return
	}
	r.bubble(func(s *stage) {
		s.line(0)
		early := false
		for range often {
			c := s.askAs(m)
			if early && !c.back() {
				s.fatal(rule5, "A caller at %v was refused at once, because its deadline, at %v, was hopeless. Asking again, %v "+
					"waits: the first answer was not final.", p.ask, m.deadline, c)
			}
			early = c.back()
		}
		gone := s.calls[len(s.calls)-often:]
		s.next = p.grants()
		stays := s.more(p.n)
		s.sleepUntil(m.deadline)
		s.settle()
		for _, c := range gone {
			if c.back() && c.err != nil && !errors.Is(c.err, context.DeadlineExceeded) {
				s.fatal(rule5, "%v had a deadline at %v, before the first grant at %v. Its error is not context.DeadlineExceeded to "+
					"errors.Is: %v", c, m.deadline, p.at[0], c.err)
			}
			s.checkGone(c, m.deadline, m)
		}
		s.sameInstants(rule3, s.instants(stays...), p.at, "%d callers whose deadline, at %v, came before the first grant were "+
			"refused. Those behind them must be granted as if they had never asked.", often, m.deadline)
	})
}

// enough has a caller ask whose deadline comes after its grant.
func (r *run) enough(m manner, deadline time.Duration) {
	m.deadline = deadline
	p := &r.profile
	r.bubble(func(s *stage) {
		c := s.line(1, with(0, m))[0]
		if !s.await(c) || c.err != nil || c.when != p.at[0] {
			s.report(rule5, "%v has a deadline at %v, after its grant at %v. It %s.", c, deadline, p.at[0], c.outcome())
		}
	})
}

// enoughIfOthersGo has a caller ask behind another, with a deadline that can be
// met only if that one gives up, which it then does.
func (r *run) enoughIfOthersGo(m manner) {
	p := &r.profile
	m.deadline = p.at[0] + 1
	r.bubble(func(s *stage) {
		cs := s.line(2, with(1, m))
		cs[0].cancel()
		if c := cs[1]; !s.await(c) || c.err != nil || c.when != p.at[0] {
			s.report(rule5, "%v stood behind another caller, which gave up at once. So it could be granted at %v, before its "+
				"deadline, at %v. It %s. That those ahead stay is not certain.",
				c, p.at[0], m.deadline, c.outcome())
		}
	})
}
