package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// turns is the oracle of a RandomizedInterval: one caller after the other, whichever way it came, waits for room in the
// window and then for a delay, which the oracle draws for itself, by the formula in the documentation and from a source of
// the same seed.
type turns struct {
	window   history
	random   *rand.Rand
	interval float64
	lower    float64
	queue    []*asked
	begun    int64 // when the turn of the first in the queue began
	room     int64 // since when there has been room for it; -1: there is none
	delay    int64
}

func (o *turns) draw() int64 {
	s := math.Abs(math.Sin(o.random.Float64() * 2 * math.Pi))
	bell := s * (o.random.NormFloat64()*0.2 + 0.9)
	return int64(o.interval * max(o.lower+s*0.005, min(1.1-s*0.005, bell)))
}

func (o *turns) begin(now int64) {
	if len(o.queue) > 0 {
		o.begun, o.room, o.delay = now, -1, o.draw()
		o.look(now)
	}
}

// look finds out whether there is room now.
func (o *turns) look(now int64) {
	if len(o.queue) == 0 {
		return
	}
	switch fits := o.window.fits(now, o.queue[0].cost); {
	case !fits:
		o.room = -1
	case o.room < 0:
		o.room = now
	}
}

// advance grants all that falls due up to the instant to.
func (o *turns) advance(now, to int64) {
	for len(o.queue) > 0 {
		if o.room < 0 {
			next := int64(math.MaxInt64)
			for _, t := range o.window.candidates(now, 0) {
				if t > now && o.window.fits(t, o.queue[0].cost) {
					next = min(next, t)
				}
			}
			if next > to {
				return
			}
			now = next
			o.look(now)
		}
		if o.room+o.delay > to {
			return
		}
		now = o.room + o.delay
		a := o.queue[0]
		o.queue = o.queue[1:]
		a.granted = now
		o.window.grant(now, a.id, a.cost)
		o.begin(now)
	}
}

func (o *turns) join(now int64, a *asked) {
	o.queue = append(o.queue, a)
	if len(o.queue) == 1 {
		o.begin(now)
	}
}

func (o *turns) leave(now int64, a *asked) {
	i := slices.Index(o.queue, a)
	if i < 0 {
		return
	}
	o.queue = slices.Delete(o.queue, i, i+1)
	if i == 0 {
		o.begin(now)
	}
}

// try is a request that does not wait.
func (o *turns) try(now int64, cost int) bool {
	return len(o.queue) == 0 && o.draw() == 0 && o.window.fits(now, cost)
}

// TestRandomizedAgainstOracle: random arrivals by several ways, costs, cancellations and adjustments come out to the
// nanosecond.
func TestRandomizedAgainstOracle(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			virtual(t, func(s *stage) { randomizedAgainstOracle(s, rand.New(rand.NewPCG(seed, 9)), seed) })
		})
	}
}

func randomizedAgainstOracle(s *stage, rng *rand.Rand, seed uint64) {
	r := per(rng.IntN(5)+1, []time.Duration{time.Second, 100 * ms, 999_999_937}[rng.IntN(3)])
	lower := []float64{0, 0, 0.4}[rng.IntN(3)]
	l := must(ratelimiter.NewRandomizedInterval(r, ratelimiter.WithBounds(lower, 1.1),
		ratelimiter.WithRandom(rand.New(rand.NewPCG(seed, 1)))))
	o := &turns{window: history{rate: r}, random: rand.New(rand.NewPCG(seed, 1)),
		interval: float64(r.Per) / float64(r.Count), lower: lower}
	ways := []interface {
		ratelimiter.Limiter
		ratelimiter.TryAcquirer
		ratelimiter.Adjuster
	}{l, ratelimiter.NewPausable(l), must(ratelimiter.NewAll(bucket(1e9, time.Second), l))}
	type flight struct {
		*asked
		*call
		gone bool
	}
	var flights []flight
	now := func() int64 { return int64(s.at()) }
	request := func(a *asked) ratelimiter.Request { return ratelimiter.Request{Index: a.id, Cost: a.cost} }
	for id := range 200 {
		way := ways[rng.IntN(len(ways))]
		a := &asked{id: id, cost: rng.IntN(r.Count) + 1, granted: -1}
		switch rng.IntN(8) {
		case 0:
			if ok, in := way.TryAcquire(request(a)); ok != o.try(now(), a.cost) || !ok && in <= 0 {
				s.t.Fatalf("at %v: TryAcquire %v, %v", s.at(), ok, in)
			} else if ok {
				o.window.grant(now(), a.id, a.cost)
			}
		case 1:
			if len(flights) > 0 {
				f := &flights[rng.IntN(len(flights))]
				f.gone = f.gone || f.granted < 0
				o.leave(now(), f.asked)
				f.cancel()
			}
		case 2:
			if i := slices.IndexFunc(flights, func(f flight) bool { return f.granted >= 0 }); i >= 0 {
				f := flights[i]
				actual := rng.IntN(2 * r.Count)
				o.window.adjust(now(), f.id, f.cost, actual)
				o.look(now())
				way.Adjust(request(f.asked), actual)
				flights = slices.Delete(flights, i, i+1)
			}
		default:
			o.join(now(), a)
			flights = append(flights, flight{asked: a, call: s.call(way, request(a))})
		}
		synctest.Wait()
		if rng.IntN(3) == 0 {
			d := rng.Int64N(2 * int64(r.Per) / int64(r.Count))
			o.advance(now(), now()+d)
			time.Sleep(time.Duration(d))
			synctest.Wait()
		} else {
			o.advance(now(), now())
		}
		for i := range flights {
			f := &flights[i]
			back := f.back()
			if want := f.granted >= 0 || f.gone; back != want {
				s.t.Fatalf("at %v: request %d: back %v, want %v", s.at(), f.id, back, want)
			}
			if back && f.granted >= 0 != (f.err == nil) || back && f.err == nil && int64(f.when) != f.granted {
				s.t.Fatalf("request %d: %v at %v, want a grant at %d", f.id, f.err, f.when, f.granted)
			}
			if back && f.err != nil && !errors.Is(f.err, context.Canceled) {
				s.t.Fatal(f.err)
			}
		}
	}
	for _, f := range flights {
		f.cancel()
	}
}
