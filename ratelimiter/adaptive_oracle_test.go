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

// aimd is the oracle of an Adaptive, in floating point: until when it is paying off what it has granted, at what speed, and
// what is known of those that were granted. It follows the grants that it is told of, and predicts the next.
type aimd struct {
	floor, ceiling, decrease, increase float64

	speed     float64 // tokens per ns
	free      float64 // when everything granted is paid off
	last      float64 // instant of the last grant
	until     float64 // of the pause
	decreased float64
	granted   map[int]float64
	queue     []*asked
}

// due is when the first in the queue is granted, which came to the head at head.
func (o *aimd) due(head float64) float64 { return max(head, o.free, o.until) }

func (o *aimd) grant(now float64) {
	a := o.queue[0]
	o.queue = o.queue[1:]
	saturated := o.free > o.last+2 && now-o.free <= 5e6 && o.until <= o.last // 2 ns: floating point
	o.free = max(o.free, now) + float64(a.cost)/o.speed
	if saturated {
		o.setSpeed(now, o.speed+o.increase*(now-o.last))
	}
	o.last = now
	o.granted[a.id] = now
}

// setSpeed keeps what is owed, in tokens.
func (o *aimd) setSpeed(now, speed float64) {
	speed = min(max(speed, o.floor), o.ceiling)
	if o.free > now {
		o.free = now + (o.free-now)*o.speed/speed
	}
	o.speed = speed
}

func (o *aimd) adjust(now float64, cost, actual int) {
	if actual > cost {
		o.free = max(o.free, now)
	}
	o.free += float64(actual-cost) / o.speed
}

func (o *aimd) observe(now float64, id int, throttled bool, pause time.Duration) {
	at, known := o.granted[id]
	delete(o.granted, id)
	if pause > 0 {
		o.until = max(o.until, now+float64(pause))
	}
	if throttled && (!known || at >= o.decreased) {
		o.setSpeed(now, o.speed*o.decrease)
		o.decreased = now
	}
}

// TestAdaptiveAgainstOracle: random arrivals, costs, cancellations, answers, pauses and adjustments. Speeds are floating
// point, so instants are compared to a millionth of an interval.
func TestAdaptiveAgainstOracle(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			virtual(t, func(s *stage) { adaptiveAgainstOracle(s, rand.New(rand.NewPCG(seed, 84))) })
		})
	}
}

func adaptiveAgainstOracle(s *stage, rng *rand.Rand) {
	ceiling := rng.IntN(50) + 10
	floor := rng.IntN(ceiling) + 1
	decrease, increase := 0.3+rng.Float64()*0.6, rng.Float64()*10+0.01
	l := must(ratelimiter.NewAdaptive(ratelimiter.PerSecond(floor), ratelimiter.PerSecond(ceiling),
		ratelimiter.WithDecrease(decrease), ratelimiter.WithIncrease(increase), ratelimiter.WithThrottle(isSlow)))
	o := &aimd{floor: float64(floor) / 1e9, ceiling: float64(ceiling) / 1e9, decrease: decrease, increase: increase / 1e18,
		speed: float64(ceiling) / 1e9, free: math.Inf(-1), last: math.Inf(-1), decreased: math.Inf(-1), granted: map[int]float64{}}
	now := func() float64 { return float64(s.at()) }
	request := func(a *asked) ratelimiter.Request { return ratelimiter.Request{Index: a.id, Attempt: 1, Cost: a.cost} }
	flights := map[int]*call{}
	var head float64      // since when the first in the queue is that
	var answered []*asked // granted, and not yet answered
	follow := func() {    // compares what has been granted with what was due
		for len(o.queue) > 0 {
			a := o.queue[0]
			due, c := o.due(head), flights[a.id]
			slack := 10 + 1e-6/o.floor
			switch {
			case c.back() && (c.err != nil || math.Abs(float64(c.when)-due) > slack):
				s.t.Fatalf("request %d: %v at %v, want a grant at %v", a.id, c.err, c.when, time.Duration(due))
			case !c.back() && due < now()-slack:
				s.t.Fatalf("at %v: request %d was due at %v", s.at(), a.id, time.Duration(due))
			case !c.back():
				head = max(head, now()) // so it will not be granted before now
				return
			}
			head = float64(c.when)
			o.grant(head)
			answered = append(answered, a)
		}
	}
	for id := range 300 {
		a := &asked{id: id, cost: rng.IntN(3) + 1}
		switch rng.IntN(8) {
		case 0:
			if i := len(o.queue); i > 0 {
				i = rng.IntN(i)
				gone := o.queue[i]
				o.queue = slices.Delete(o.queue, i, i+1)
				if i == 0 {
					head = now()
				}
				flights[gone.id].cancel()
				synctest.Wait()
				if err := flights[gone.id].err; !errors.Is(err, context.Canceled) {
					s.t.Fatal(err)
				}
			}
		case 1, 2:
			if len(answered) > 0 {
				i := rng.IntN(len(answered))
				b := answered[i]
				answered = slices.Delete(answered, i, i+1)
				err, pause := error(nil), time.Duration(0)
				switch rng.IntN(6) {
				case 0:
					err = errSlow
				case 1:
					pause = time.Duration(rng.IntN(300)) * ms
					err = throttled{pause}
				}
				o.observe(now(), b.id, err == errSlow, pause)
				l.Observe(request(b), err)
			}
		case 3:
			if len(answered) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(answered))
				b, actual := answered[i], rng.IntN(4)
				answered = slices.Delete(answered, i, i+1) // once for each grant
				o.adjust(now(), b.cost, actual)
				l.Adjust(request(b), actual)
			}
		case 4:
			d := time.Duration(rng.IntN(100)) * ms
			o.until = max(o.until, now()+float64(d))
			if err := l.PauseFor(d); err != nil {
				s.t.Fatal(err)
			}
		default:
			if len(o.queue) == 0 {
				head = now()
			}
			o.queue = append(o.queue, a)
			flights[id] = s.call(l, request(a))
		}
		synctest.Wait()
		follow()
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second) / int64(floor))))
			synctest.Wait()
			follow()
		}
		if got := l.PerSecond(); math.Abs(got-o.speed*1e9) > 1e-6*got || got < float64(floor) || got > float64(ceiling) {
			s.t.Fatalf("at %v: %v per second, want %v", s.at(), got, o.speed*1e9)
		}
	}
	for _, c := range flights {
		c.cancel()
	}
}
