package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
)

// A limiterPlan is a limiter, made of other ones perhaps.
type limiterPlan struct {
	kind     string
	rate     ratelimiter.Rate
	floor    ratelimiter.Rate // a lower one
	burst    int
	takes    time.Duration // of a foreign one
	seed     uint64
	of       []*limiterPlan // inside it
	metered  bool           // the outermost one only, like the rest: its calls are counted
	weighted bool           // items have a cost
	retuned  bool           // its rate changes now and then
	shared   bool           // with somebody who has nothing to do with the engine
}

// A limit is a limiter and what it promises.
type limit struct {
	ratelimiter.Limiter
	promises []promise
	refuses  func(req ratelimiter.Request) bool // whether it can never grant a request
	rates    []func(ratelimiter.Rate) error     // set it to another rate
	pauses   []func(time.Duration) error
	hints    bool // an answer that says when to come back pauses it
}

// limiterKinds are the limiters that can be drawn. Those made of others say of how many.
var limiterKinds = []struct {
	name  string
	inner int
	make  func(p *limiterPlan, inner []limit) (limit, error)
}{
	{"spaced bucket", 0, newSpaced},
	{"bucket", 0, newBurst},
	{"window", 0, newWindow},
	{"per worker", 0, newPerWorker},
	{"per key", 0, newPerKey},
	{"randomized", 0, newRandomized},
	{"adaptive", 0, newAdaptive},
	{"from rate", 0, newFromRate},
	{"foreign", 0, newForeign},
	{"pausable", 1, newPausable},
	{"all", 2, newAll},
	{"count requests", 1, newCountRequests},
}

const leaves = 9 // the first of limiterKinds

func (s *Scenario) drawLimits() {
	defer s.drawBadCall()
	s.drawBreaker()
	r := s.part("limiter", 50)
	if r == nil {
		return
	}
	p := s.drawLimiter(r, 2)
	s.limiter = p
	p.metered = r.IntN(4) > 0 || p.has("per worker")
	p.weighted = s.part("costs", 30) != nil
	p.retuned = s.part("retuning", 10) != nil
	p.shared = s.part("limiter shared", 20) != nil
	if sh := s.part("shed", 25); sh != nil && !p.has("foreign") {
		s.shed = s.maybe(sh)
		s.note("shed after %v", s.shed)
	}
	s.note("limiter %v metered %v weighted %v retuned %v shared %v", p, p.metered, p.weighted, p.retuned, p.shared)
}

func (s *Scenario) drawLimiter(r *rand.Rand, depth int) *limiterPlan {
	kind := pick(r, limiterKinds...)
	if depth == 0 {
		kind = limiterKinds[r.IntN(leaves)]
	}
	p := &limiterPlan{
		kind:  kind.name,
		rate:  s.drawRate(r),
		burst: pick(r, 1, 2, 3, 10),
		takes: s.maybe(r),
		seed:  r.Uint64(),
	}
	p.floor = ratelimiter.Rate{Count: 1, Per: p.rate.Per * 5}
	for range kind.inner {
		p.of = append(p.of, s.drawLimiter(r, depth-1))
	}
	return p
}

func (s *Scenario) drawRate(r *rand.Rand) ratelimiter.Rate {
	return ratelimiter.Rate{Count: pick(r, 1, 2, 3, 7, 100), Per: s.unit * time.Duration(pick(r, 1, 5, 10, 30, 100))}
}

func (p *limiterPlan) String() string {
	s := fmt.Sprintf("%s(%v, burst %d, takes %v", p.kind, p.rate, p.burst, p.takes)
	for _, inner := range p.of {
		s += ", " + inner.String()
	}
	return s + ")"
}

func (p *limiterPlan) has(kind string) bool {
	return p.kind == kind || slices.ContainsFunc(p.of, func(p *limiterPlan) bool { return p.has(kind) })
}

func (p *limiterPlan) build() (limit, error) {
	var inner []limit
	for _, p := range p.of {
		l, err := p.build()
		if err != nil {
			return limit{}, err
		}
		inner = append(inner, l)
	}
	for _, k := range limiterKinds {
		if k.name == p.kind {
			return k.make(p, inner)
		}
	}
	panic("sim: no limiter " + p.kind)
}

func newSpaced(p *limiterPlan, _ []limit) (limit, error) {
	b, err := ratelimiter.NewTokenBucket(p.rate)
	return limit{Limiter: b, promises: []promise{spaced(p.rate)}, rates: rates(b.SetRate)}, err
}

func rates(set func(ratelimiter.Rate) error) []func(ratelimiter.Rate) error {
	return []func(ratelimiter.Rate) error{set}
}

func newBurst(p *limiterPlan, inner []limit) (limit, error) {
	if p.burst == 1 {
		return newSpaced(p, inner)
	}
	b, err := ratelimiter.NewTokenBucket(p.rate, ratelimiter.WithBurst(p.burst))
	return limit{Limiter: b, promises: []promise{withinBucket(p.rate, p.burst)}, refuses: costsMoreThan(p.burst), rates: rates(b.SetRate)}, err
}

func costsMoreThan(n int) func(ratelimiter.Request) bool {
	return func(req ratelimiter.Request) bool { return req.Cost > n }
}

func newWindow(p *limiterPlan, _ []limit) (limit, error) {
	w, err := ratelimiter.NewSlidingWindow(p.rate)
	return limit{Limiter: w, promises: []promise{withinWindow(p.rate)}, refuses: costsMoreThan(p.rate.Count), rates: rates(w.SetRate)}, err
}

func newPerWorker(p *limiterPlan, _ []limit) (limit, error) {
	w, err := ratelimiter.NewPerWorker(p.rate)
	kept := each(func(g grant) any { return g.req.Worker }, spaced(p.rate))
	return limit{Limiter: w, promises: []promise{kept}, rates: rates(w.SetRate)}, err
}

// newPerKey has a rate for two of the three keys, and sometimes for the third.
func newPerKey(p *limiterPlan, _ []limit) (limit, error) {
	named := map[string]ratelimiter.Rate{keyOf(0): p.rate, keyOf(1): p.floor}
	var fallback ratelimiter.Rate
	if p.burst > 1 {
		fallback = p.rate
	}
	k, err := ratelimiter.NewPerKey(named, fallback)
	kept := each(func(g grant) any { return g.req.Key }, func(grants []grant) string {
		r, ok := named[grants[0].req.Key]
		if !ok {
			r = fallback
		}
		return spaced(r)(grants)
	})
	refuses := func(req ratelimiter.Request) bool { _, ok := named[req.Key]; return !ok && p.burst == 1 }
	return limit{Limiter: k, promises: []promise{kept}, refuses: refuses, rates: rates(func(r ratelimiter.Rate) error {
		return k.SetRate(keyOf(0), r)
	})}, err
}

func newRandomized(p *limiterPlan, _ []limit) (limit, error) {
	l, err := ratelimiter.NewRandomizedInterval(p.rate, ratelimiter.WithRandom(rand.New(rand.NewPCG(p.seed, 0))))
	return limit{Limiter: l, promises: []promise{withinWindow(p.rate)}, refuses: costsMoreThan(p.rate.Count)}, err
}

func newAdaptive(p *limiterPlan, _ []limit) (limit, error) {
	a, err := ratelimiter.NewAdaptive(p.floor, p.rate)
	return limit{Limiter: a, promises: []promise{spaced(p.rate)}, pauses: []func(time.Duration) error{a.PauseFor}, hints: true}, err
}

func newFromRate(p *limiterPlan, _ []limit) (limit, error) {
	l := ratelimiter.FromRate(rate.NewLimiter(rate.Every(p.rate.Per/time.Duration(p.rate.Count)), p.burst))
	roughly := ratelimiter.Rate{Count: p.rate.Count, Per: p.rate.Per * 99 / 100} // it reckons with floats, and in whole nanoseconds
	return limit{Limiter: l, promises: []promise{withinBucket(roughly, p.burst)}, refuses: costsMoreThan(p.burst)}, nil
}

// newForeign is a limiter that is not of the library: it holds everybody up for as long.
func newForeign(p *limiterPlan, _ []limit) (limit, error) {
	return limit{Limiter: ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
		timer := time.NewTimer(p.takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return ctx.Err()
	})}, nil
}

func newPausable(_ *limiterPlan, inner []limit) (limit, error) {
	l := inner[0]
	p := ratelimiter.NewPausable(l.Limiter)
	l.Limiter, l.hints = p, true
	l.pauses = append(l.pauses, p.PauseFor)
	return l, nil
}

func newAll(_ *limiterPlan, inner []limit) (limit, error) {
	a, b := inner[0], inner[1]
	all, err := ratelimiter.NewAll(a.Limiter, b.Limiter)
	return limit{
		Limiter: all, promises: append(a.promises, b.promises...), rates: append(a.rates, b.rates...),
		pauses: append(a.pauses, b.pauses...), hints: a.hints || b.hints,
		refuses: func(req ratelimiter.Request) bool {
			return a.refuses != nil && a.refuses(req) || b.refuses != nil && b.refuses(req)
		},
	}, err
}

func newCountRequests(_ *limiterPlan, inner []limit) (limit, error) {
	l := inner[0]
	for i, kept := range l.promises {
		l.promises[i] = func(grants []grant) string {
			ones := slices.Clone(grants)
			for i := range ones {
				ones[i].cost = 1
			}
			return kept(ones)
		}
	}
	if refuses := l.refuses; refuses != nil {
		l.refuses = func(req ratelimiter.Request) bool { req.Cost = 1; return refuses(req) }
	}
	l.Limiter = ratelimiter.CountRequests(l.Limiter)
	return l, nil
}
