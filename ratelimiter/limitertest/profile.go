package limitertest

import (
	"reflect"
	"slices"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// A profile is what the kit has found out about how a limiter behaves, so that the
// checks know what to expect of another one like it.
type profile struct {
	free   int           // so many are granted at once by a fresh limiter
	noLine string        // why there is no line of waiting callers; empty if there is
	wait   time.Duration // how long the first one that must wait, waits

	// The line that most checks have: the plan is followed, and then, at the
	// instant ask, n callers ask, who all have to wait.
	plan []step
	ask  time.Duration
	n    int
	at   []time.Duration // the instants at which they are granted

	tries, adjusts, observes bool

	costs, costsKnown bool // the limiter goes by the cost of a request
}

// A step of a plan: at an instant, so many are granted.
type step struct {
	at time.Duration
	n  int
}

const (
	// maxFree is how many are granted at once before the kit gives up to make
	// anybody wait.
	maxFree = 1 << 14
	// longest is how long a wait may be for the kit to work with it. Virtual time
	// is free, but it ends after 262 years, and limiters may count for less.
	longest = 30 * 24 * time.Hour
	// patient is how long the kit waits to see.
	patient = 400 * 24 * time.Hour
	// settled is after how many waits a limiter has forgotten all that happened.
	settled = 500
)

// lengths are how many callers the line may have; of these the first with which
// they are not all granted at the same one or two instants.
var lengths = []int{8, 40, 300}

// distinct is how many different instants are needed to see who came first.
const distinct = 3

// horizon is an instant by which all that is to come has come.
func (p *profile) horizon() time.Duration {
	if p.at == nil {
		return patient + 2*time.Duration(p.n)*p.wait
	}
	const end, second = 100 * 365 * 24 * time.Hour, time.Second
	if wait := max(p.wait, second); wait < end/(4*settled) {
		return min(8*p.at[len(p.at)-1]+2*settled*wait, end)
	}
	return end
}

// last is when the last one in line is granted.
func (p *profile) last() time.Duration {
	if p.at == nil {
		return p.wait
	}
	return p.at[len(p.at)-1]
}

// grants is how many are granted before the line.
func (p *profile) grants() (n int) {
	for _, st := range p.plan {
		n += st.n
	}
	return n
}

// idle is an instant at which a limiter that has been left alone since the line
// has long been as if it were fresh.
func (p *profile) idle() time.Duration { return p.ask + settled*max(p.wait, time.Microsecond) }

// lacks says why a check that needs something cannot be made.
func (p *profile) lacks(needs need, c *config) string {
	for _, n := range []struct {
		need need
		miss bool
		why  string
	}{
		{trying, !p.tries, "the limiter is no TryAcquirer"},
		{adjust, !p.adjusts, "the limiter is no Adjuster"},
		{observe, !p.observes, "the limiter is no Observer"},
		{exact, c.random, "the limiter is Random"},
		{aLine, p.noLine != "", p.noLine},
		{granted, p.grants() == 0, "the limiter grants nothing without a wait"},
	} {
		if needs&n.need != 0 && n.miss {
			return n.why
		}
	}
	return ""
}

// look finds out how the limiter behaves.
func (r *run) look() {
	p := &r.profile
	r.bubble(func(s *stage) { s.look(p) })
	if p.noLine != "" {
		return
	}
	for _, p.n = range lengths {
		r.bubble(func(s *stage) { s.lookAtLine(p) })
		if p.visible() {
			break
		}
	}
	if !r.unordered && !slices.IsSorted(p.at) {
		r.add(rule8, "%d callers, which asked one after the other, were granted in another order. If the limiter promises "+
			"none, use the option Unordered.\n"+
			"All grants in order of arrival: %s", p.n, list(p.at, 0))
		return
	}
	if r.random {
		p.plan, p.ask = nil, 0
		return
	}
	var again []time.Duration
	r.bubble(func(s *stage) { again = s.instants(s.line(p.n)...) })
	if !r.unordered && !slices.IsSorted(again) {
		r.add(rule8, "%d callers, which asked one after the other, were granted in another order; in a run just like it they "+
			"were granted in order. "+
			"If the limiter promises none, use the option Unordered.\n%s", p.n, difference(again, p.at))
		return
	}
	r.sameInstants(basics, again, p.at, "%d callers that waited in one run and %d callers in a run just like it were "+
		"granted at different instants. "+
		"If the delays are drawn at random by intention, use the option Random.", p.n, p.n)
}

// visible reports whether the order of grants can be seen.
func (p *profile) visible() bool {
	at := slices.Clone(p.at)
	slices.Sort(at)
	return len(slices.Compact(at)) >= distinct
}

func (s *stage) look(p *profile) {
	if same(s.l, s.fresh()) {
		s.made = s.made[:1]
		s.fatal(basics, "newLimiter returned the same limiter twice. It must make a new one each time, inside of the function.")
	}
	p.tries, p.adjusts, p.observes = s.try != nil, s.adj != nil, s.obs != nil
	var head *call
	p.free, head = s.fill(maxFree)
	switch {
	case head == nil:
		p.noLine = "the limiter lets everybody go: nobody had to wait, and there were 16,384 requests at one instant"
		return
	case !s.await(head):
		p.noLine = "a request that had to wait was not granted within 400 days"
		return
	}
	s.mustGrant(head)
	if p.wait = head.when - head.asked; p.wait > longest {
		p.noLine = "the first request that had to wait was granted only after more than 30 days"
	}
}

// same reports whether a and b are pointers to the same thing.
func same(a, b ratelimiter.Limiter) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if v.Kind() != reflect.Pointer || w.Kind() != reflect.Pointer || v.Type() != w.Type() {
		return false
	}
	return v.Type().Elem().Size() > 0 && v.Pointer() == w.Pointer()
}

// lookAtLine makes the plan. Of what is granted at once it takes some at different
// instants, so that a limiter which gives everything back after a period gives it
// back at different instants too.
func (s *stage) lookAtLine(p *profile) {
	const spread, fine = 7, 32
	p.plan = nil
	var line []*call
	for len(p.plan) < spread && line == nil && p.wait >= fine {
		if c := s.ask(); c.back() {
			s.mustGrant(c)
			p.plan = append(p.plan, step{c.asked, 1})
			time.Sleep(p.wait / fine)
		} else {
			line = append(line, c)
		}
	}
	if line == nil {
		n, head := s.fill(maxFree)
		if head == nil {
			s.fatal(basics, "In one run %d requests were granted before one had to wait; in one just like it more than %d "+
				"were.", p.free, maxFree)
		}
		p.plan = append(p.plan, step{head.asked, n})
		line = append(line, head)
	}
	p.ask = line[0].asked
	for len(line) < p.n {
		line = append(line, s.ask())
	}
	p.at = s.instants(line...)
	if s.unordered {
		slices.Sort(p.at)
	}
	for i, at := range p.at {
		if at == never {
			s.fatal(rule1, "Of %d callers in line, all with contexts that do not end, %s still waits at %v; the first was "+
				"granted after %v.", p.n, line[i], s.now(), p.wait)
		}
	}
}

// line has n callers wait. Callers for whom how returns nil do not come, though
// they keep their number and their place in the result.
func (s *stage) line(n int, how ...func(i int) *manner) []*call {
	cs := make([]*call, n)
	for _, st := range s.profile.plan {
		s.sleepUntil(st.at)
		s.drain(st.n)
	}
	s.sleepUntil(s.profile.ask)
	for i := range n {
		m := &manner{}
		if len(how) > 0 {
			m = how[0](i)
		}
		if m == nil {
			s.next++
			continue
		}
		cs[i] = s.askAs(*m)
		for tries := 0; s.random && i == 0 && cs[0].back() && tries < maxFree; tries++ {
			cs[0] = s.askAs(*m) // there is no plan that says when one has to wait
		}
	}
	return cs
}

// absent is a line in which caller p does not come.
func absent(p int) func(i int) *manner {
	return func(i int) *manner {
		if i == p {
			return nil
		}
		return &manner{}
	}
}

// with is a line in which caller p asks in the manner m.
func with(p int, m manner) func(i int) *manner {
	return func(i int) *manner {
		if i == p {
			return &m
		}
		return &manner{}
	}
}
