package limitertest

import (
	"fmt"
	"slices"
	"time"
)

// order: rule 8.
func (r *run) order() {
	switch {
	case r.unordered:
		r.skipped = "the limiter is Unordered"
	case !r.profile.visible():
		r.skipped = fmt.Sprintf("the order cannot be seen: of %d callers in line all were granted at the same one or two "+
			"instants. Give the kit a limiter of a smaller limit", r.profile.n)
	default:
		for _, m := range r.manners() {
			r.bubble(func(s *stage) {
				cs := s.line(s.profile.n, func(i int) *manner {
					if i%3 == 1 {
						return &m
					}
					return &manner{}
				})
				s.instants(cs...)
				s.inOrder(cs, "They asked one after the other.", 1, 0)
			})
		}
		for _, m := range r.manners() {
			r.bubble(func(s *stage) { s.newcomers(m) })
		}
	}
}

// inOrder checks that callers, given in order of arrival, were granted in it. The
// last ones arrived in groups of so many at one instant; there is no order among
// those of a group.
func (s *stage) inOrder(cs []*call, story string, group int, last int) {
	var latest *call // of those before
	for i := 0; i < len(cs); {
		next := i + 1
		if i >= len(cs)-last {
			next = i + group
		}
		for _, c := range cs[i:next] {
			if latest != nil && latest.granted() > c.granted() {
				s.report(rule8, "%v came before %v, but was granted at %s and the other at %s. %s\nAll grants in order of arrival: %s",
					latest, c, instant(latest.granted()), instant(c.granted()), story, list(grants(cs), i))
				return
			}
		}
		for _, c := range cs[i:next] {
			if latest == nil || c.granted() > latest.granted() {
				latest = c
			}
		}
		i = next
	}
}

func grants(cs []*call) (at []time.Duration) {
	for _, c := range cs {
		at = append(at, c.granted())
	}
	return at
}

// newcomers come at the very instants at which slots become free, when the limiter
// may not have got round yet to those who wait for them. They come in groups, since
// whose timer goes off first is a matter of chance.
func (s *stage) newcomers(m manner) {
	const group = 3
	p := &s.profile
	cs := s.line(p.n)
	var late []*call
	for i, c := range cs {
		switch {
		case s.random: // the instants are not known before
			s.await(c)
		case i > 0 && p.at[i] == p.at[i-1]:
			continue
		default:
			m.at = p.at[i]
		}
		for range group {
			late = append(late, s.askAs(m))
		}
		s.settle()
	}
	all := append(slices.Clone(cs), late...)
	s.instants(all...)
	story := fmt.Sprintf("The first %d had been in line; the others came %d at a time, at the instants of grants.", len(cs), group)
	s.sameInstants(rule8, grants(cs), p.at, "%d callers in line must be granted as if no newcomers had come behind them at "+
		"the instants of grants.", p.n)
	s.inOrder(all, story, group, len(late))
}

// orderOfCosts has large and small costs queue behind each other.
func (r *run) orderOfCosts() {
	switch {
	case r.unordered:
		r.skipped = "the limiter is Unordered"
		return
	case !r.goesByCosts():
		r.skipped = "the limiter does not go by costs"
		return
	}
	one := r.cost()
	two := 2 * one
	r.bubble(func(s *stage) {
		if err := s.refusal(two); err != nil {
			s.skipped = fmt.Sprintf("a cost of %d is too high for the limiter, and one of %d is what all others ask for", two, one)
		}
	})
	if r.skipped != "" {
		return
	}
	r.bubble(func(s *stage) {
		cs := s.line(2*s.profile.n, func(i int) *manner { return &manner{cost: []*int{&two, &one, &one}[i%3]} })
		s.instants(cs...)
		s.inOrder(cs, fmt.Sprintf("The costs are %d, %d, %d, and so on.", two, one, one), 1, 0)
	})
}
