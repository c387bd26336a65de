package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"pgregory.net/rapid"
)

// The oracle knows nothing of the package's arithmetic. It keeps, for each limit,
// a plain account (a bucket as a rational number of tokens, a window as the list
// of all grants), has the callers in a list, and works out the next grant by
// trying instants.

// account is the oracle of one limit.
type account interface {
	// fits reports whether cost may be granted at now.
	fits(now int64, cost int) bool
	// candidates returns instants after now of which the first that fits is the
	// first that fits at all. The account does not change before.
	candidates(now int64, cost int) []int64
	grant(now int64, id, cost int)
	adjust(now int64, id, cost, actual int)
	setRate(now int64, r ratelimiter.Rate)
}

// tokens is a token bucket as people describe it.
type tokens struct {
	rate   ratelimiter.Rate
	size   int
	level  *big.Rat
	at     int64 // when level was right
	spaced bool
}

func newTokens(r ratelimiter.Rate, size int) *tokens {
	return &tokens{rate: r, size: size, level: big.NewRat(int64(size), 1), spaced: size == 1}
}

// perNano is the refill per nanosecond.
func (k *tokens) perNano() *big.Rat {
	if k.rate.Per == 0 {
		return new(big.Rat)
	}
	return big.NewRat(int64(k.rate.Count), int64(k.rate.Per))
}

// refill brings the level up to now. Overflow is lost, but for what a clock of
// whole nanoseconds cannot show.
func (k *tokens) refill(now int64) {
	gain := new(big.Rat).Mul(k.perNano(), big.NewRat(now-k.at, 1))
	k.level.Add(k.level, gain)
	k.at = now
	full := big.NewRat(int64(k.size), 1)
	over := new(big.Rat).Sub(k.level, full)
	if over.Sign() > 0 && over.Cmp(k.perNano()) >= 0 {
		k.level.Set(full)
	}
}

func (k *tokens) need(cost int) *big.Rat {
	if k.spaced {
		return big.NewRat(1, 1)
	}
	return big.NewRat(int64(cost), 1)
}

func (k *tokens) fits(now int64, cost int) bool {
	k.refill(now)
	return k.rate.Per > 0 && k.level.Cmp(k.need(cost)) >= 0
}

func (k *tokens) candidates(now int64, cost int) []int64 {
	k.refill(now)
	if k.rate.Per == 0 {
		return nil
	}
	missing := new(big.Rat).Sub(k.need(cost), k.level)
	if missing.Sign() <= 0 {
		return nil
	}
	wait := missing.Quo(missing, k.perNano())
	n := new(big.Int).Add(wait.Num(), new(big.Int).Sub(wait.Denom(), big.NewInt(1)))
	return []int64{now + n.Div(n, wait.Denom()).Int64()}
}

func (k *tokens) grant(now int64, _, cost int) {
	k.refill(now)
	k.level.Sub(k.level, big.NewRat(int64(cost), 1))
}

func (k *tokens) adjust(now int64, _, cost, actual int) {
	k.refill(now)
	k.level.Add(k.level, big.NewRat(int64(cost-actual), 1))
	k.refill(now)
}

func (k *tokens) setRate(now int64, r ratelimiter.Rate) {
	k.refill(now)
	if full := big.NewRat(int64(k.size), 1); k.level.Cmp(full) > 0 {
		k.level.Set(full)
	}
	k.rate = r
	if r.Per > 0 {
		// What is owed is rounded up to the grid of the new rate.
		owed := new(big.Rat).Sub(big.NewRat(int64(k.size), 1), k.level)
		steps := owed.Quo(owed, k.perNano()).Mul(owed, big.NewRat(int64(r.Count), 1))
		n := new(big.Int).Add(steps.Num(), new(big.Int).Sub(steps.Denom(), big.NewInt(1)))
		owed = new(big.Rat).SetFrac(n.Div(n, steps.Denom()), big.NewInt(int64(r.Count)))
		k.level.Sub(big.NewRat(int64(k.size), 1), owed.Mul(owed, k.perNano()))
	}
}

// history is a sliding window as people describe it.
type history struct {
	rate    ratelimiter.Rate
	stopped bool
	least   int // the rate's count is never set to less
	log     []past
}

type past struct {
	at       int64
	id, cost int
}

func (h *history) used(now int64) (n int) {
	for _, p := range h.log {
		if p.at > now-int64(h.rate.Per) {
			n += p.cost
		}
	}
	return n
}

func (h *history) fits(now int64, cost int) bool {
	return !h.stopped && h.used(now)+cost <= h.rate.Count
}

func (h *history) candidates(now int64, _ int) (ts []int64) {
	if h.stopped {
		return nil
	}
	for _, p := range h.log {
		if t := p.at + int64(h.rate.Per); t > now {
			ts = append(ts, t)
		}
	}
	return ts
}

func (h *history) grant(now int64, id, cost int) { h.log = append(h.log, past{now, id, cost}) }

func (h *history) adjust(now int64, id, cost, actual int) {
	if actual > cost {
		h.log = append(h.log, past{now, -1, actual - cost})
		return
	}
	for i, p := range h.log {
		if p.id == id && p.at > now-int64(h.rate.Per) {
			h.log[i].cost = actual
		}
	}
}

func (h *history) setRate(now int64, r ratelimiter.Rate) {
	h.log = slices.DeleteFunc(h.log, func(p past) bool { return p.at <= now-int64(h.rate.Per) })
	if h.stopped = r == (ratelimiter.Rate{}); !h.stopped {
		h.rate = h.raised(r)
	}
}

// raised is r with a count that no request of the sequence is too dear for.
func (h *history) raised(r ratelimiter.Rate) ratelimiter.Rate {
	if r != (ratelimiter.Rate{}) {
		r.Count = max(r.Count, h.least)
		r.Per = max(r.Per, time.Duration(r.Count))
	}
	return r
}

// unit counts requests instead of costs.
type unit struct{ account }

func (u unit) fits(now int64, _ int) bool          { return u.account.fits(now, 1) }
func (u unit) candidates(now int64, _ int) []int64 { return u.account.candidates(now, 1) }
func (u unit) grant(now int64, id, _ int)          { u.account.grant(now, id, 1) }
func (u unit) adjust(now int64, id, _, actual int) {
	if actual <= 0 {
		u.account.adjust(now, id, 1, 0)
	}
}

// closed is a pause.
type closed struct{ until int64 }

func (c *closed) fits(now int64, _ int) bool          { return now >= c.until }
func (c *closed) candidates(now int64, _ int) []int64 { return []int64{c.until} }
func (c *closed) grant(int64, int, int)               {}
func (c *closed) adjust(int64, int, int, int)         {}
func (c *closed) setRate(int64, ratelimiter.Rate)     {}

// oracle is one first-in-first-out queue before some accounts.
type oracle struct {
	accounts []account
	waiting  []*asked
}

type asked struct {
	id, cost int
	granted  int64 // -1: not yet
}

func (o *oracle) fits(now int64, cost int) bool {
	for _, a := range o.accounts {
		if !a.fits(now, cost) {
			return false
		}
	}
	return true
}

func (o *oracle) settle(now int64) {
	for len(o.waiting) > 0 && o.fits(now, o.waiting[0].cost) {
		w := o.waiting[0]
		o.waiting = o.waiting[1:]
		w.granted = now
		o.grant(now, w)
	}
}

func (o *oracle) grant(now int64, w *asked) {
	for _, a := range o.accounts {
		a.grant(now, w.id, w.cost)
	}
}

// advance grants all that falls due up to the instant to.
func (o *oracle) advance(now, to int64) {
	for len(o.waiting) > 0 {
		next := int64(-1)
		for _, a := range o.accounts {
			for _, t := range a.candidates(now, o.waiting[0].cost) {
				if t > now && t <= to && (next < 0 || t < next) {
					next = t
				}
			}
		}
		if next < 0 {
			return
		}
		now = next
		o.settle(now)
	}
}

// A setup is a limiter, its oracle, and what can be changed.
type setup struct {
	limiter interface {
		ratelimiter.Limiter
		ratelimiter.TryAcquirer
		ratelimiter.Adjuster
	}
	accounts []account
	most     int // highest cost
	setRate  []func(ratelimiter.Rate) error
	rated    []account // the account of each setRate
	pause    func(time.Duration) error
	closed   *closed
}

// setups are what the random sequences run on.
var setups = map[string]func(r ratelimiter.Rate) setup{
	"spaced": func(r ratelimiter.Rate) setup {
		l, a := must(ratelimiter.NewTokenBucket(r)), newTokens(r, 1)
		return setup{limiter: l, accounts: []account{a}, most: 6, setRate: []func(ratelimiter.Rate) error{l.SetRate},
			rated: []account{a}}
	},
	"burst": func(r ratelimiter.Rate) setup {
		l, a := must(ratelimiter.NewTokenBucket(r, ratelimiter.WithBurst(5))), newTokens(r, 5)
		return setup{limiter: l, accounts: []account{a}, most: 5, setRate: []func(ratelimiter.Rate) error{l.SetRate},
			rated: []account{a}}
	},
	"window": func(r ratelimiter.Rate) setup {
		l, a := must(ratelimiter.NewSlidingWindow(r)), &history{rate: r, least: r.Count}
		setRate := func(q ratelimiter.Rate) error { return l.SetRate(a.raised(q)) }
		return setup{limiter: l, accounts: []account{a}, most: r.Count, setRate: []func(ratelimiter.Rate) error{setRate},
			rated: []account{a}}
	},
	"requests and tokens": func(r ratelimiter.Rate) setup {
		q := ratelimiter.Rate{Count: 2, Per: max(r.Per/3, 2)}
		w, h := must(ratelimiter.NewSlidingWindow(q)), &history{rate: q}
		b, a := must(ratelimiter.NewTokenBucket(r)), newTokens(r, 1)
		l := must(ratelimiter.NewAll(ratelimiter.CountRequests(w), b))
		return setup{limiter: l, accounts: []account{unit{h}, a}, most: 6,
			setRate: []func(ratelimiter.Rate) error{b.SetRate}, rated: []account{a}}
	},
	"paused": func(r ratelimiter.Rate) setup {
		b, a := must(ratelimiter.NewTokenBucket(r)), newTokens(r, 1)
		c, l := &closed{}, ratelimiter.NewPausable(b)
		return setup{limiter: l, accounts: []account{a, c}, most: 6, setRate: []func(ratelimiter.Rate) error{b.SetRate},
			rated: []account{a}, pause: l.PauseFor, closed: c}
	},
	"all": func(r ratelimiter.Rate) setup {
		q := ratelimiter.Rate{Count: 3, Per: r.Per / 2}
		if q.Per < 3 {
			q.Per = 3
		}
		b, a := must(ratelimiter.NewTokenBucket(r, ratelimiter.WithBurst(4))), newTokens(r, 4)
		w, h := must(ratelimiter.NewSlidingWindow(q)), &history{rate: q}
		s, k := must(ratelimiter.NewTokenBucket(q)), newTokens(q, 1)
		c, p := &closed{}, ratelimiter.NewPausable(s)
		l := must(ratelimiter.NewAll(b, w, p))
		return setup{limiter: l, accounts: []account{a, h, k, c}, most: 3, setRate: []func(ratelimiter.Rate) error{b.SetRate,
			s.SetRate}, rated: []account{a, k}, pause: p.PauseFor, closed: c}
	},
}

// source is where a sequence of operations comes from: rapid or a fuzzer.
type source interface {
	// choose returns a number from 0 to n-1.
	choose(what string, n int) int
}

type rapidSource struct{ *rapid.T }

func (s rapidSource) choose(what string, n int) int { return rapid.IntRange(0, n-1).Draw(s.T, what) }

type byteSource struct{ rest []byte }

func (s *byteSource) choose(_ string, n int) int {
	if len(s.rest) == 0 {
		return 0
	}
	b := int(s.rest[0])
	s.rest = s.rest[1:]
	if n > 256 && len(s.rest) > 0 {
		b = b<<8 | int(s.rest[0])
		s.rest = s.rest[1:]
	}
	return b % n
}

func chooseRate(s source) ratelimiter.Rate {
	count := s.choose("count", 7) + 1
	per := []time.Duration{time.Second, 100 * ms, 7, 1000, 999_999_937, time.Hour}[s.choose("per", 6)]
	return ratelimiter.Rate{Count: count, Per: per}
}

// play makes random operations on a limiter in virtual time and compares every
// outcome with the oracle's. fail must not return.
func play(src source, name string, steps int, fail func(format string, args ...any)) {
	r := chooseRate(src)
	s := setups[name](r)
	o := &oracle{accounts: s.accounts}
	start := time.Now()
	now := func() int64 { return int64(time.Since(start)) }
	unit := int64(r.Per) / int64(r.Count)

	type flight struct {
		*asked
		cancel  context.CancelFunc
		back    bool
		when    int64
		err     error
		outcome error // what the oracle expects when it is not granted
	}
	var flights []*flight
	var mu sync.Mutex // guards what the callers write
	ctx, cancelAll := context.WithCancel(context.Background())
	defer func() { cancelAll(); synctest.Wait() }()

	remove := func(f *flight) bool {
		i := slices.Index(o.waiting, f.asked)
		if i >= 0 {
			o.waiting = slices.Delete(o.waiting, i, i+1)
		}
		return i >= 0
	}
	compare := func(what string) {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for _, f := range flights {
			want := f.granted >= 0 || f.outcome != nil
			switch {
			case f.back != want:
				fail("%s: at %d request %d (cost %d): back %v (err %v), want %v (granted %d, outcome %v)", what, now(), f.id,
					f.cost, f.back, f.err, want, f.granted, f.outcome)
			case f.back && f.outcome == nil && (f.err != nil || f.when != f.granted):
				fail("%s: request %d (cost %d): %v at %d, want a grant at %d", what, f.id, f.cost, f.err, f.when, f.granted)
			case f.back && f.outcome != nil && !errors.Is(f.err, f.outcome):
				fail("%s: request %d (cost %d): got %v, want %v", what, f.id, f.cost, f.err, f.outcome)
			}
		}
		flights = slices.DeleteFunc(flights, func(f *flight) bool { return f.back })
	}
	launch := func(f *flight, acquire func(ctx context.Context) error) {
		var c context.Context
		c, f.cancel = context.WithCancel(ctx)
		flights = append(flights, f)
		go func() {
			defer f.cancel()
			err := acquire(c)
			mu.Lock()
			defer mu.Unlock()
			f.err, f.when, f.back = err, now(), true
		}()
	}
	var grantedReqs []*asked // for Adjust
	request := func(a *asked) ratelimiter.Request {
		return ratelimiter.Request{Index: a.id, Attempt: 1, Cost: a.cost}
	}

	for id := 1; id <= steps; id++ {
		op := src.choose("op", 12)
		switch op {
		case 0, 1, 2: // Acquire
			f := &flight{asked: &asked{id: id, cost: src.choose("cost", s.most) + 1, granted: -1}}
			o.waiting = append(o.waiting, f.asked)
			o.settle(now())
			launch(f, func(ctx context.Context) error { return s.limiter.Acquire(ctx, request(f.asked)) })
			grantedReqs = append(grantedReqs, f.asked)
			compare("acquire")
		case 3: // TryAcquire: granted exactly if nobody waits and it fits
			a := &asked{id: id, cost: src.choose("cost", s.most) + 1, granted: -1}
			want := len(o.waiting) == 0 && o.fits(now(), a.cost)
			if want {
				a.granted = now()
				o.grant(now(), a)
				grantedReqs = append(grantedReqs, a)
			}
			got, in := s.limiter.TryAcquire(request(a))
			if got != want || got != (in == 0) {
				fail("try: at %d cost %d: %v %v, want %v", now(), a.cost, got, in, want)
			}
		case 4: // cancel somebody
			if len(flights) > 0 {
				f := flights[src.choose("whom", len(flights))]
				if remove(f) {
					f.outcome = context.Canceled
				}
				f.cancel()
				o.settle(now())
				compare("cancel")
			}
		case 5, 6, 7: // time passes, by nothing special or up to just before, at or after a slot
			d := []int64{1, unit, unit - 1, unit + 1, unit / 3, int64(r.Per), int64(r.Per) - 1, 5 * unit}[src.choose("dt", 8)]
			if d <= 0 {
				d = 1
			}
			o.advance(now(), now()+d)
			time.Sleep(time.Duration(d))
			compare("sleep")
		case 8: // the true cost becomes known
			if len(grantedReqs) > 0 {
				i := src.choose("which", len(grantedReqs))
				a := grantedReqs[i]
				if a.granted >= 0 {
					grantedReqs = slices.Delete(grantedReqs, i, i+1)
					actual := src.choose("actual", 2*s.most)
					for _, k := range o.accounts {
						k.adjust(now(), a.id, a.cost, actual)
					}
					o.settle(now())
					s.limiter.Adjust(request(a), actual)
					compare("adjust")
				}
			}
		case 9: // another rate
			if len(s.setRate) > 0 {
				i := src.choose("rate of", len(s.setRate))
				q := chooseRate(src)
				if src.choose("stop", 8) == 0 {
					q = ratelimiter.Rate{}
				}
				s.rated[i].setRate(now(), q)
				o.settle(now())
				if err := s.setRate[i](q); err != nil {
					fail("SetRate(%v): %v", q, err)
				}
				compare("rate")
			}
		case 10: // a pause
			if s.pause != nil {
				d := unit * int64(src.choose("pause", 5))
				s.closed.until = max(s.closed.until, now()+d)
				if err := s.pause(time.Duration(d)); err != nil {
					fail("PauseFor: %v", err)
				}
				compare("pause")
			}
		case 11: // a request that waits for no longer than the queue is empty, or not at all
			a := &asked{id: id, cost: src.choose("cost", s.most) + 1, granted: -1}
			err := s.limiter.AcquireWithin(ctx, request(a), 0)
			var excess *ratelimiter.ExcessError
			switch want := len(o.waiting) == 0 && o.fits(now(), a.cost); {
			case want && err != nil, !want && !errors.As(err, &excess):
				fail("within 0: at %d cost %d: %v, want a grant: %v", now(), a.cost, err, want)
			case want:
				a.granted = now()
				o.grant(now(), a)
				grantedReqs = append(grantedReqs, a)
			}
		}
	}
}

// TestOracle runs random sequences of operations against the oracle.
func TestOracle(t *testing.T) {
	for name := range setups {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				steps := rapid.IntRange(1, 60).Draw(rt, "steps")
				var thrown any // rapid steers by panics, which must not stay in the bubble
				t.Run("", func(t *testing.T) {
					synctest.Test(t, func(*testing.T) {
						defer func() { thrown = recover() }()
						play(rapidSource{rt}, name, steps, func(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) })
					})
				})
				if w, ok := thrown.(wrong); ok {
					rt.Fatal(w)
				} else if thrown != nil {
					panic(thrown)
				}
			})
		})
	}
}

// wrong is what went wrong, thrown out of a bubble.
type wrong string

// FuzzQueue is TestOracle with the fuzzer's choices.
func FuzzQueue(f *testing.F) {
	names := slices.Sorted(func(yield func(string) bool) {
		for n := range setups {
			if !yield(n) {
				return
			}
		}
	})
	for i := range names {
		f.Add([]byte{byte(i), 2, 0, 0, 3, 0, 1, 0, 5, 5, 4, 0, 9, 0, 3, 1, 1, 5, 7, 8, 0, 2, 10, 3, 5, 0, 11, 2})
		f.Add([]byte{byte(i), 0, 1, 0, 0, 0, 1, 0, 0, 4, 1, 5, 1, 3, 0, 8, 0, 5, 5, 3, 0, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 || len(data) > 400 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			play(&byteSource{data[1:]}, names[int(data[0])%len(names)], len(data), t.Fatalf)
		})
	})
}
