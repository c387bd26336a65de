package ratelimiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// The sliding window: never more than Count in any Per.

func TestSL1TogetherThenTheNextPeriod(t *testing.T) {
	virtual(t, func(s *stage) {
		s.wantGrants(s.calls(11, window(5, 200*ms), any1),
			0, 0, 0, 0, 0, 200*ms, 200*ms, 200*ms, 200*ms, 200*ms, 400*ms)
	})
}

func TestSL2EachWaitsForTheOneCountBefore(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(2, time.Second)
		for i, arrive := range []time.Duration{0, 500 * ms, 600 * ms, 700 * ms} {
			time.Sleep(arrive - s.at())
			c := s.call(l, any1)
			s.wg.Go(func() { s.wantGrants([]*call{c}, time.Duration(i)*500*ms) })
		}
	})
}

func TestSL4IdleFreesEverything(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(5, 200*ms)
		for _, at := range []time.Duration{0, 200 * ms, time.Hour} {
			time.Sleep(at - s.at())
			s.wantGrants(s.calls(5, l, any1), at, at, at, at, at)
		}
	})
}

// TestB39WeightedWindows: random costs and arrivals from several callers, every
// period checked by brute force.
func TestB39WeightedWindows(t *testing.T) {
	for seed := range uint64(20) {
		virtual(t, func(s *stage) {
			rng := rand.New(rand.NewPCG(seed, 39))
			r := per(rng.IntN(50)+5, time.Duration(rng.IntN(1000)+1)*ms)
			l, led := must(ratelimiter.NewSlidingWindow(r)), windowLedger(r)
			var cs []*call
			var costs []int
			for range 200 {
				costs = append(costs, rng.IntN(r.Count)+1)
				cs = append(cs, s.call(l, cost(costs[len(costs)-1])))
				time.Sleep(time.Duration(rng.IntN(200)) * ms)
			}
			for i, c := range cs {
				<-c.done
				led.log = append(led.log, past{at: int64(c.when), cost: costs[i]})
			}
			if err := led.ok(led.log); err != nil {
				s.t.Error(r, err)
			}
		})
	}
}

func TestB46TheNextNeverBeforeThePeriod(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(100, time.Minute)
		for i, c := range s.calls(250, l, any1) {
			s.wantGrants([]*call{c}, time.Duration(i/100)*time.Minute)
		}
	})
}

func TestB48RefusedIsNotCounted(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(10, time.Second)
		s.acquire(l, cost(7), 0)
		for range 5 {
			if ok, in := l.TryAcquire(cost(4)); ok || in != time.Second {
				s.t.Fatal(ok, in)
			}
		}
		s.acquire(l, cost(3), 0)
		var dear *ratelimiter.CostError
		if err := l.Acquire(s.t.Context(), cost(11)); !errors.As(err, &dear) || dear.Max != 10 {
			s.t.Error(err)
		}
	})
}

func TestB49ExactlyCount(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(17, time.Second)
		n := 0
		for ok, _ := l.TryAcquire(any1); ok; ok, _ = l.TryAcquire(any1) {
			n++
		}
		if n != 17 {
			s.t.Error(n)
		}
	})
}

// TestB69NoSubWindows: hits at 0:00, 0:59 and 1:01 hours.
func TestB69NoSubWindows(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(10, time.Hour)
		s.acquire(l, cost(5), 0)
		time.Sleep(59 * time.Minute)
		s.acquire(l, cost(5), 59*time.Minute)
		time.Sleep(2 * time.Minute)
		s.acquire(l, cost(5), 61*time.Minute)
		s.acquire(l, any1, 119*time.Minute)
	})
}

// TestB70CountRestartsWhenItExpires: asked at the very instant at which everything expires, a window has all its room again,
// and what is granted then counts for a whole period.
func TestB70CountRestartsWhenItExpires(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(3, time.Second)
		s.acquire(l, cost(3), 0)
		time.Sleep(time.Second)
		s.acquire(l, any1, time.Second)
		if got := l.Stats().Available; got != 2 {
			s.t.Errorf("%d available, want 2: the count has restarted at 1", got)
		}
		s.acquire(l, cost(2), time.Second)
		s.acquire(l, any1, 2*time.Second)
	})
}

func TestB77NoEdge(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(5, 200*ms)
		time.Sleep(190 * ms)
		at := 190 * ms
		s.wantGrants(s.calls(10, l, any1), at, at, at, at, at, at+200*ms, at+200*ms, at+200*ms, at+200*ms, at+200*ms)
	})
}

// TestCaseExactlyOnePeriod: a grant exactly one period old is outside, one
// nanosecond earlier it is inside.
func TestCaseExactlyOnePeriod(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(1, 100*ms)
		for i := range 10 {
			s.acquire(l, any1, time.Duration(i)*100*ms)
		}
		time.Sleep(100*ms - 1)
		if ok, in := l.TryAcquire(any1); ok || in != 1 {
			s.t.Error(ok, in)
		}
	})
}

// TestLargeWindow: above 65,536 grants that come close together share a stamp.
// Never more than Count, hardly less, in bounded memory.
func TestLargeWindow(t *testing.T) {
	virtual(t, func(s *stage) {
		const n = 1_000_000
		l := window(n, time.Second)
		for range n {
			if ok, _ := l.TryAcquire(any1); !ok {
				s.t.Fatal("refused within Count")
			}
			if rand.IntN(1000) == 0 {
				time.Sleep(100 * time.Microsecond)
			}
		}
		if ok, in := l.TryAcquire(any1); ok || in > time.Second {
			s.t.Fatal(ok, in)
		}
		// What came within 0.1 s of the start leaves within 0.1 s after the period.
		time.Sleep(time.Second + 20*time.Microsecond - s.at())
		if got := l.Stats().Available; got < 1 {
			s.t.Errorf("nothing has left after a period and a slice")
		}
	})
}

// TestLargeWindowAgainstHistory compares a window that shares stamps with an
// exact one of the same size: never ahead, and behind by no more than a slice.
func TestLargeWindowAgainstHistory(t *testing.T) {
	virtual(t, func(s *stage) {
		rng := rand.New(rand.NewPCG(4, 5))
		const n = 100_000
		r := per(n, 655360*time.Microsecond) // a slice is 10 µs
		l, h := must(ratelimiter.NewSlidingWindow(r)), &history{rate: r}
		for range 4000 {
			c := rng.IntN(200) + 1
			if s.at() > 10*ms {
				c = rng.IntN(3000) + 1
			}
			now := int64(s.at())
			got, _ := l.TryAcquire(cost(c))
			if exact := h.fits(now, c); got && !exact {
				s.t.Fatalf("at %d: cost %d granted, %d used", now, c, h.used(now))
			} else if !got && exact && h.used(now-10_000)+c <= n && h.used(now)+c <= n-6000 {
				s.t.Fatalf("at %d: cost %d refused, only %d used", now, c, h.used(now))
			}
			if got {
				h.grant(now, 0, c)
			}
			h.log = pruned(h, now)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
		}
	})
}

func pruned(h *history, now int64) []past {
	i := 0
	for i < len(h.log) && h.log[i].at <= now-2*int64(h.rate.Per) {
		i++
	}
	return h.log[i:]
}

func TestWindowSetRate(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(4, time.Second)
		s.acquire(l, cost(3), 0)
		dear, cheap := s.call(l, cost(3)), s.call(l, any1)
		time.Sleep(100 * ms)
		if err := l.SetRate(per(2, time.Second)); err != nil {
			s.t.Fatal(err)
		}
		var tooDear *ratelimiter.CostError
		<-dear.done
		if !errors.As(dear.err, &tooDear) || tooDear.Max != 2 || dear.when != 100*ms {
			s.t.Errorf("%v at %v", dear.err, dear.when)
		}
		s.wantGrants([]*call{cheap}, time.Second) // 3 are still in the window
		if err := l.SetRate(ratelimiter.Rate{}); err != nil {
			s.t.Fatal(err)
		}
		c := s.call(l, any1)
		time.Sleep(time.Hour)
		if c.back() || l.String() != "stopped sliding window" || l.Stats().Available != 0 {
			s.t.Error(c.back(), l)
		}
		at := s.at()
		if err := l.SetRate(per(2, time.Second)); err != nil {
			s.t.Fatal(err)
		}
		s.wantGrants([]*call{c}, at)
	})
}

// TestWindowForgets: what was granted a period ago or before stays forgotten when
// the period is made longer.
func TestWindowForgets(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(2, time.Second)
		s.acquire(l, any1, 0)
		time.Sleep(500 * ms)
		s.acquire(l, any1, 500*ms)
		time.Sleep(500 * ms)
		if err := l.SetRate(per(2, time.Hour)); err != nil {
			s.t.Fatal(err)
		}
		s.acquire(l, any1, time.Second)
		s.acquire(l, any1, time.Hour+500*ms)
	})
}

// TestWindowMemory: what a window remembers is bounded, also when all of it comes
// as far apart as it can.
func TestWindowMemory(t *testing.T) {
	virtual(t, func(s *stage) {
		const n = 70_000
		l := window(n, n*time.Microsecond)
		for range 3 * n {
			if ok, in := l.TryAcquire(any1); !ok && in > time.Microsecond {
				s.t.Fatal(in)
			}
			time.Sleep(time.Microsecond)
		}
		if got := ratelimiter.Remembered(l); got > 1<<16 {
			s.t.Errorf("room for %d grants", got)
		}
	})
}

func TestWindowAdjust(t *testing.T) {
	virtual(t, func(s *stage) {
		l := window(10, time.Second)
		call := func(i, c int) ratelimiter.Request {
			return ratelimiter.Request{Index: i, Attempt: 1, Cost: c}
		}
		s.acquire(l, call(1, 6), 0)
		time.Sleep(100 * ms)
		s.acquire(l, call(2, 4), 100*ms)
		l.Adjust(call(2, 4), 1) // 3 back, of the second one
		s.acquire(l, call(3, 3), 100*ms)
		if _, in := l.TryAcquire(any1); in != 900*ms {
			s.t.Error(in)
		}
		time.Sleep(100 * ms)
		l.Adjust(call(1, 6), 9) // 3 more, from now on: 13 in the window
		if _, in := l.TryAcquire(any1); in != 800*ms {
			s.t.Error(in)
		}
		if _, in := l.TryAcquire(call(0, 8)); in != time.Second { // needs the 3 to leave as well
			s.t.Error(in)
		}
	})
}

func ExampleNewSlidingWindow() {
	l, err := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 4 {
		ok, _ := l.TryAcquire(ratelimiter.Request{})
		fmt.Println(i+1, ok)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 true
	// 4 false
}
