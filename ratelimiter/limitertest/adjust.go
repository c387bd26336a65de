package limitertest

import (
	"errors"
	"slices"
	"time"
)

// adjustFirst tells the limiter what the first request that was granted has cost.
func (s *stage) adjustFirst(actual func(cost int) int) {
	req := s.request(0)
	to := actual(max(req.Cost, 1))
	s.prompt("Adjust", adjustWaits, func() { s.adj.Adjust(req, to) })
}

// adjusted is when the callers in line are granted if at the instant at, while
// they wait, the cost of the first request is corrected.
func (r *run) adjusted(n int, at time.Duration, actual func(cost int) int) (got []time.Duration) {
	r.bubble(func(s *stage) {
		cs := s.line(n)
		s.sleepUntil(at)
		s.adjustFirst(actual)
		got = s.instants(cs...)
	})
	if r.unordered {
		slices.Sort(got)
	}
	return got
}

func (r *run) plain(n int) (got []time.Duration) {
	r.bubble(func(s *stage) { got = s.instants(s.line(n)...) })
	if r.unordered {
		slices.Sort(got)
	}
	return got
}

// half is an instant at which all in line wait.
func (p *profile) half() time.Duration { return p.ask + (p.at[0]-p.ask)/2 }

// adjustRefund: what is given back goes to the next in line.
func (r *run) adjustRefund() {
	p := &r.profile
	at := p.half()
	want := r.plain(p.n)
	got := r.adjusted(p.n, at, func(int) int { return 0 })
	for i := range got {
		if got[i] > want[i] || i == 0 && got[i] >= want[i] {
			r.add(adjustBack, "The first request was refunded at %v while %d callers waited. The first of them must be granted "+
				"before %v, and nobody later than without the refund.\n%s",
				at, p.n, want[0], difference(got, want))
			break
		}
	}
	negative := r.adjusted(p.n, at, func(int) int { return -7 })
	if !slices.Equal(negative, got) {
		r.add(adjustBack, "An actual cost of -7 had another effect on the callers in line than one of 0.\n%s",
			difference(negative, got))
	}
}

// adjustCapacity: however much is given back, no more is granted at once than
// before.
func (r *run) adjustCapacity() {
	const most = 50
	p := &r.profile
	n := min(p.free, most)
	for _, at := range []time.Duration{0, p.idle()} {
		count := func(refund bool) (granted int) {
			r.bubble(func(s *stage) {
				s.drain(n)
				s.sleepUntil(at)
				for i := range n {
					if refund {
						s.prompt("Adjust", adjustWaits, func() { s.adj.Adjust(s.request(i), 0) })
					}
				}
				granted, _ = s.fill(maxFree)
			})
			return granted
		}
		want := p.free
		if at > 0 {
			want = count(false)
		}
		if got := count(true); got > want {
			r.add(adjustFull, "%d requests that were granted at 0s were all refunded at %v. Then %d were granted at once, want "+
				"no more than %d.", n, at, got, want)
		}
	}
}

// adjustDebt: what a request has cost more is paid by those to come.
func (r *run) adjustDebt() {
	const most = 100
	p := &r.profile
	if !r.goesByCosts() {
		r.skipped = "the limiter does not go by costs"
		return
	}
	if p.half() == p.ask {
		r.skipped = "the limiter is too fast for a debt to be seen"
		return
	}
	n := p.n
	if p.free <= most {
		n = max(n, p.free+2) // so long that all that is granted at once has to be waited for
	}
	want := r.plain(n)
	got := r.adjusted(n, p.half(), func(cost int) int { return 2 * cost })
	later := false
	for i := range got {
		later = later || got[i] > want[i]
		if got[i] < want[i] {
			r.add(adjustDebt, "The first request turned out to have cost twice as much. Somebody in line was granted earlier for "+
				"it.\n%s", difference(got, want))
			return
		}
	}
	if !later && p.free <= most {
		r.add(adjustDebt, "The first request turned out, at %v, to have cost twice as much. None of %d callers in line was "+
			"granted later than without that.", p.half(), n)
	}
}

// adjustSame: the truth that was known before changes nothing, also of a request
// that left its cost at 0.
func (r *run) adjustSame() {
	p := &r.profile
	want := r.plain(p.n)
	if got := r.adjusted(p.n, p.half(), func(cost int) int { return cost }); !slices.Equal(got, want) {
		r.add(adjustSame, "The first request turned out to have cost what it had asked for (zero counts as 1). The callers in "+
			"line must be granted as without that.\n%s", difference(got, want))
	}
}

// observe: it must not block, whatever is going on.
func (r *run) observe() {
	r.bubble(func(s *stage) {
		s.observeAll()
		if s.profile.noLine == "" {
			s.line(s.profile.n)
			s.observeAll()
		}
	})
}

func (s *stage) observeAll() {
	for _, err := range []error{nil, errors.New("limitertest: an attempt failed"), nil} {
		req := s.request(s.next)
		s.prompt("Observe", observeWaits, func() { s.obs.Observe(req, err) })
	}
}
