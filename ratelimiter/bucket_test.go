package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
)

// Rates, arithmetic and boundaries, mostly of the token bucket. Everything is
// exact to the nanosecond.

func TestTB1FillsContinuously(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(4, 200*ms)
		s.acquire(l, any1, 0)
		s.acquire(l, any1, 50*ms)
		time.Sleep(time.Hour)
		at := s.at()
		s.acquire(l, any1, at) // idle time adds up to one token, not more
		s.acquire(l, any1, at+50*ms)
	})
}

func TestTB2Spaced(t *testing.T) {
	virtual(t, func(s *stage) {
		cs := s.calls(11, bucket(5, 200*ms), any1)
		for i, c := range cs {
			s.wantGrants([]*call{c}, time.Duration(i)*40*ms)
		}
	})
}

func TestTB3Burst(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(2, 200*ms, ratelimiter.WithBurst(2))
		s.wantGrants(s.calls(4, l, any1), 0, 0, 100*ms, 200*ms)
		time.Sleep(200 * ms)
		at := s.at()
		s.wantGrants(s.calls(2, l, any1), at, at)
	})
	virtual(t, func(s *stage) {
		l := bucket(4, 200*ms, ratelimiter.WithBurst(4))
		s.wantGrants(s.calls(8, l, any1), 0, 0, 0, 0, 50*ms, 100*ms, 150*ms, 200*ms)
	})
}

func TestTB4FractionsCount(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(2))
		s.acquire(l, cost(2), 0)
		time.Sleep(150 * ms)
		s.acquire(l, any1, 150*ms)
		s.acquire(l, any1, 200*ms) // the half token was kept
	})
}

// TestTB5BurstIsNoCap: a burst and the refill after it fall in one period.
func TestTB5BurstIsNoCap(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(100, time.Minute, ratelimiter.WithBurst(100))
		n := 0
		for _, c := range s.calls(250, l, any1) {
			<-c.done
			if c.when < time.Minute {
				n++
			}
		}
		if n != 199 { // 100 at once, and one each 0.6 s
			s.t.Errorf("%d in the first minute", n)
		}
	})
}

func TestB29OneAnHour(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Hour)
		for i := range 1000 {
			if ok, in := l.TryAcquire(any1); !ok {
				s.t.Fatalf("hour %d: refused for %v", i, in)
			}
			if ok, in := l.TryAcquire(any1); ok || in != time.Hour {
				s.t.Fatalf("hour %d: %v %v", i, ok, in)
			}
			time.Sleep(time.Hour)
		}
	})
}

func TestB30EveryRatio(t *testing.T) {
	virtual(t, func(s *stage) {
		for p := 1; p <= 50; p++ {
			for q := 1; q <= 50; q++ {
				l := bucket(p, time.Duration(q)*time.Second)
				start := s.at()
				for k := range 3 {
					// Slot k is at k*q/p seconds, rounded up.
					slot := start + time.Duration((int64(k)*int64(q)*int64(time.Second)+int64(p)-1)/int64(p))
					time.Sleep(slot - s.at() - 1)
					if s.at() < slot { // the first slot is now
						if ok, in := l.TryAcquire(any1); ok || in != 1 {
							s.t.Fatalf("%d/%ds: slot %d, 1 ns early: %v %v", p, q, k, ok, in)
						}
						time.Sleep(time.Nanosecond)
					}
					if ok, in := l.TryAcquire(any1); !ok {
						s.t.Fatalf("%d/%ds: slot %d: refused for %v", p, q, k, in)
					}
				}
			}
		}
	})
}

func TestB31B32B33BadRates(t *testing.T) {
	for _, r := range []ratelimiter.Rate{
		{}, {Count: 0, Per: time.Second}, {Count: -1, Per: time.Second}, {Count: 1, Per: 0}, {Count: 1, Per: -1},
		{Count: math.MinInt, Per: time.Second}, {Count: math.MaxInt, Per: time.Second}, {Count: 2, Per: 1},
		{Count: 1, Per: math.MaxInt64}, {Count: 1, Per: 200 * 365 * 24 * time.Hour},
	} {
		_, err1 := ratelimiter.NewTokenBucket(r)
		_, err2 := ratelimiter.NewSlidingWindow(r)
		l := bucket(1, time.Second)
		w := window(1, time.Second)
		err3, err4 := l.SetRate(r), w.SetRate(r)
		if r == (ratelimiter.Rate{}) {
			err3, err4 = err1, err2 // stops them: TestB17ZeroRate
		}
		for _, err := range []error{err1, err2, err3, err4} {
			if err == nil || !strings.HasPrefix(err.Error(), "ratelimiter: Rate") || !strings.Contains(err.Error(), "must be") {
				t.Errorf("%v: %v, want an error that names the field and the bound", r, err)
			}
		}
	}
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt} {
		if _, err := ratelimiter.NewTokenBucket(ratelimiter.PerHour(1), ratelimiter.WithBurst(n)); err == nil ||
			!strings.Contains(err.Error(), "WithBurst is") {
			t.Errorf("WithBurst(%d): %v", n, err)
		}
	}
	if _, err := ratelimiter.NewSlidingWindow(per(math.MaxUint32+1, time.Hour)); err == nil ||
		!strings.Contains(err.Error(), "Rate.Count is 4294967296, must be at most 4294967295") {
		t.Error(err)
	}
	_, err1 := ratelimiter.NewTokenBucket(ratelimiter.PerHour(1), ratelimiter.WithBurst(2), nil)
	_, err2 := ratelimiter.NewAdaptive(ratelimiter.PerHour(1), ratelimiter.PerHour(1), ratelimiter.WithDecrease(0.5), nil)
	_, err3 := ratelimiter.NewRandomizedInterval(ratelimiter.PerHour(1), ratelimiter.WithFluctuation(0), nil)
	for _, err := range []error{err1, err2, err3} {
		if err == nil || err.Error() != "ratelimiter: option 2 is nil: leave it out" {
			t.Error(err)
		}
	}
	// A low rate has a burst of one, not of none.
	if ok, _ := bucket(1, 30*24*time.Hour).TryAcquire(any1); !ok {
		t.Error("the first request of a slow bucket was refused")
	}
}

func TestB34Costs(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second)
		var dear *ratelimiter.CostError
		if err := l.Acquire(s.t.Context(), cost(-1)); !errors.As(err, &dear) || !errors.Is(err,
			ratelimiter.ErrNeverGranted) || dear.Cost != -1 {
			s.t.Error(err)
		}
		l.Adjust(cost(-5), 0) // was never granted
		if ok, in := l.TryAcquire(cost(-1)); ok || in != ratelimiter.Never {
			s.t.Error(ok, in)
		}
		s.acquire(l, cost(0), 0) // counts as 1
		s.acquire(l, any1, time.Second)
	})
}

func TestB35FirstIsImmediateAtAnyTime(t *testing.T) {
	virtual(t, func(s *stage) {
		rng := rand.New(rand.NewPCG(35, 0))
		for range 10000 {
			time.Sleep(time.Duration(rng.Int64N(int64(time.Hour))))
			at := s.at()
			r := per(rng.IntN(1000)+1, time.Duration(rng.Int64N(int64(time.Hour))+1000))
			s.acquire(must(ratelimiter.NewTokenBucket(r)), any1, at)
			s.acquire(must(ratelimiter.NewSlidingWindow(r)), any1, at)
		}
	})
}

// TestMadeOutsideTheBubble: a limiter that is older, on the bubble's clock, than
// the bubble. There its clock starts far in the past.
func TestMadeOutsideTheBubble(t *testing.T) {
	b, w := bucket(10, time.Second), window(2, time.Second)
	all := must(ratelimiter.NewAll(b, w))
	virtual(t, func(s *stage) {
		s.wantGrants(s.calls(4, all, any1), 0, 100*ms, time.Second, 1100*ms)
	})
}

func TestB36TenYearsIdle(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1e9, time.Second, ratelimiter.WithBurst(1000))
		s.acquire(l, cost(1000), 0)
		time.Sleep(10 * 365 * 24 * time.Hour)
		at := s.at()
		s.acquire(l, cost(1000), at)
		s.acquire(l, cost(1000), at+1000)
	})
}

// TestLifetime: what would come later than the 146 years that can be counted never
// comes, instead of early.
func TestLifetime(t *testing.T) {
	virtual(t, func(s *stage) {
		const year = 365 * 24 * time.Hour
		l := bucket(1, 50*year)
		s.wantGrants(s.calls(3, l, any1), 0, 50*year, 100*year)
		if ok, in := l.TryAcquire(any1); ok || in != ratelimiter.Never {
			s.t.Errorf("%v, %v", ok, in)
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), 45*year)
		defer cancel()
		if err := l.Acquire(ctx, any1); !errors.Is(err, context.DeadlineExceeded) || s.at() != 145*year {
			s.t.Error(err, s.at()/year)
		}
	})
	virtual(t, func(s *stage) { // a debt of so many tokens that the new rate never pays it off
		l := bucket(1e9, time.Second)
		s.acquire(l, cost(1e18), 0)
		if err := l.SetRate(per(1, 300*24*time.Hour)); err != nil {
			s.t.Fatal(err)
		}
		if ok, in := l.TryAcquire(any1); ok || in != ratelimiter.Never || l.Stats().Available != 0 {
			s.t.Errorf("%v, %v, %+v", ok, in, l.Stats())
		}
	})
}

func TestB37PartOfATokenShortensTheWait(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, time.Second)
		s.acquire(l, any1, 0)
		time.Sleep(200 * ms)
		if _, in := l.TryAcquire(any1); in != 800*ms {
			s.t.Error(in)
		}
	})
}

func TestB38RefillsExactly(t *testing.T) {
	virtual(t, func(s *stage) {
		for _, n := range []int{1, 3, 65535, 999_999, 1e8} {
			l := bucket(n, 100*ms, ratelimiter.WithBurst(n))
			at := s.at()
			s.acquire(l, cost(n), at)
			time.Sleep(100*ms - 1)
			if ok, in := l.TryAcquire(cost(n)); ok || in != 1 {
				s.t.Errorf("%d: %v %v", n, ok, in)
			}
			time.Sleep(time.Nanosecond)
			if got := l.Stats().Available; got != n {
				s.t.Errorf("%d: %d available after a period", n, got)
			}
			if ok, in := l.TryAcquire(cost(n)); !ok {
				s.t.Errorf("%d: %v %v", n, ok, in)
			}
		}
	})
}

func TestB40FreshLimiterGrants(t *testing.T) {
	virtual(t, func(s *stage) {
		s.acquire(bucket(1, 24*time.Hour), any1, 0)
		s.acquire(window(1, 24*time.Hour), any1, 0)
	})
}

func TestB41NoGrid(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(100, time.Second)
		s.acquire(l, any1, 0)
		time.Sleep(10*ms - 1 + 10*ms)
		s.acquire(l, any1, 20*ms-1)
		s.acquire(l, any1, 30*ms-1)
	})
}

func TestB42B43NoBurstAfterIdle(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		for _, idle := range []time.Duration{500 * ms, time.Hour, 250 * ms, 101 * ms} {
			time.Sleep(idle)
			at := s.at()
			for i, c := range s.calls(20, l, any1) {
				s.wantGrants([]*call{c}, at+time.Duration(i)*100*ms)
			}
		}
	})
}

func TestB44HighRates(t *testing.T) {
	virtual(t, func(s *stage) {
		for _, n := range []int{600e6, 999_999_999, 1e9} {
			l := bucket(n, time.Second)
			first := s.at()
			for k := range 1000 {
				want := first + time.Duration((int64(k)*int64(time.Second)+int64(n)-1)/int64(n))
				if err := l.Acquire(s.t.Context(), any1); err != nil || s.at() != want {
					s.t.Fatalf("%d/s: grant %d at %v, want %v", n, k, s.at(), want)
				}
			}
		}
	})
}

// TestB45NeverOneTooMany: in every half-open period there are at most Count
// slots, and not fewer than Count while somebody waits.
func TestB45NeverOneTooMany(t *testing.T) {
	rng := rand.New(rand.NewPCG(45, 0))
	for range 40 {
		virtual(t, func(s *stage) {
			n := rng.IntN(40) + 1
			d := time.Duration(rng.Int64N(int64(time.Second))) + time.Duration(n)
			l := bucket(n, d)
			var at []time.Duration
			for len(at) < 5*n {
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(d))))
				}
				if err := l.Acquire(s.t.Context(), any1); err != nil {
					s.t.Fatal(err)
				}
				at = append(at, s.at())
			}
			for i := range at[:len(at)-n] {
				if at[i+n]-at[i] < d {
					s.t.Fatalf("%d/%v: grants %d and %d are %v apart", n, d, i, i+n, at[i+n]-at[i])
				}
			}
		})
	}
	virtual(t, func(s *stage) {
		cs := s.calls(10, bucket(3, time.Second), any1)
		s.wantGrants(cs[3:4], time.Second)
		s.wantGrants(cs[9:], 3*time.Second)
	})
}

func TestB47B51B83CostAndCapacity(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(5, time.Second, ratelimiter.WithBurst(10))
		s.acquire(l, cost(10), 0)
		var dear *ratelimiter.CostError
		err := l.Acquire(s.t.Context(), cost(11))
		if !errors.As(err, &dear) || *dear != (ratelimiter.CostError{Limit: "token bucket 5/s, burst 10", Cost: 11,
			Max: 10}) || s.at() != 0 {
			s.t.Errorf("%#v", err)
		}
		if want := "ratelimiter: token bucket 5/s, burst 10: cost 11 can never be granted, the highest is 10"; err.Error() != want {
			s.t.Errorf("%q, want %q", err, want)
		}
		if ok, in := l.TryAcquire(cost(11)); ok || in != ratelimiter.Never {
			s.t.Error(ok, in)
		}
		if err := l.AcquireWithin(s.t.Context(), cost(11), time.Hour); !errors.As(err, &dear) {
			s.t.Error(err)
		}
		others := s.call(l, any1)
		s.wantGrants([]*call{others}, 200*ms) // not held up
		s.acquire(l, cost(10), 200*ms+2*time.Second)
	})
	virtual(t, func(s *stage) { // spaced: the cost is paid off afterwards
		l := bucket(5, time.Second)
		s.acquire(l, cost(5000), 0)
		s.acquire(l, any1, 1000*time.Second)
		var dear *ratelimiter.CostError
		if err := l.Acquire(s.t.Context(), cost(math.MaxInt)); !errors.As(err, &dear) {
			s.t.Error(err)
		}
	})
}

func TestB50Stats(t *testing.T) {
	virtual(t, func(s *stage) {
		check := func(l interface{ Stats() ratelimiter.Stats }, available, waiting int) {
			s.t.Helper()
			if got, want := l.Stats(), (ratelimiter.Stats{Available: available, Waiting: waiting}); got != want {
				s.t.Errorf("%v: %+v, want %+v", l, got, want)
			}
		}
		spaced, burst, w := bucket(1, time.Second), bucket(1, time.Second, ratelimiter.WithBurst(3)), window(3, time.Second)
		check(spaced, 1, 0)
		check(burst, 3, 0)
		check(w, 3, 0)
		for _, l := range []ratelimiter.Limiter{spaced, burst, w} {
			s.acquire(l, any1, 0)
		}
		check(spaced, 0, 0)
		check(burst, 2, 0)
		check(w, 2, 0)
		s.acquire(burst, cost(2), 0)
		time.Sleep(time.Second - 1)
		check(spaced, 0, 0)
		check(burst, 0, 0)
		c := s.call(burst, cost(3))
		check(burst, 0, 1)
		time.Sleep(time.Nanosecond)
		check(spaced, 1, 0)
		check(burst, 1, 1)
		check(w, 3, 0)
		s.wantGrants([]*call{c}, 3*time.Second)
	})
}

func TestB52EarliestInstant(t *testing.T) {
	virtual(t, func(s *stage) {
		for _, l := range []interface {
			ratelimiter.Limiter
			ratelimiter.TryAcquirer
		}{bucket(3, time.Second), bucket(3, time.Second, ratelimiter.WithBurst(4)), window(3, time.Second)} {
			for ok, in := l.TryAcquire(any1); ok; ok, in = l.TryAcquire(any1) {
				if in != 0 {
					s.t.Fatal(in)
				}
			}
			_, in := l.TryAcquire(any1)
			time.Sleep(in - 1)
			if ok, left := l.TryAcquire(any1); ok || left != 1 {
				s.t.Errorf("%v: 1 ns early: %v %v", l, ok, left)
			}
			time.Sleep(time.Nanosecond)
			if ok, _ := l.TryAcquire(any1); !ok {
				s.t.Errorf("%v: refused at its instant", l)
			}
		}
	})
}

func TestB53Units(t *testing.T) {
	virtual(t, func(s *stage) {
		l := must(ratelimiter.NewSlidingWindow(must(ratelimiter.ParseRate("2/m"))))
		s.acquire(l, cost(2), 0)
		if _, in := l.TryAcquire(any1); in != time.Minute {
			s.t.Error(in)
		}
	})
}

func TestB54FractionsAreNotSpent(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(10))
		s.acquire(l, cost(10), 0)
		n := 0
		for range 100 {
			time.Sleep(190 * ms) // 1.9 tokens
			for ok, _ := l.TryAcquire(any1); ok; ok, _ = l.TryAcquire(any1) {
				n++
			}
		}
		if n != 190 {
			s.t.Errorf("%d granted of 190 due", n)
		}
	})
}

func TestB55B56HammeringChangesNothing(t *testing.T) {
	for _, make := range []func() ratelimiter.TryAcquirer{
		func() ratelimiter.TryAcquirer { return bucket(10, time.Second) },
		func() ratelimiter.TryAcquirer { return window(1, 100*ms) },
	} {
		virtual(t, func(s *stage) {
			l, n := make(), 0
			for s.at() < 30*time.Second {
				if ok, _ := l.TryAcquire(any1); ok {
					n++
				}
				time.Sleep(10 * ms)
			}
			if n != 300 {
				s.t.Errorf("%d admitted in 30 s at 10/s", n)
			}
		})
	}
}

// TestB71SameInstant: calls at one instant are counted one by one.
func TestB71SameInstant(t *testing.T) {
	virtual(t, func(s *stage) {
		for _, l := range []interface {
			ratelimiter.TryAcquirer
			Stats() ratelimiter.Stats
		}{window(1000, time.Second), window(1_000_000, time.Second), bucket(1, time.Hour, ratelimiter.WithBurst(1000))} {
			before := l.Stats().Available
			for range 1000 {
				if ok, _ := l.TryAcquire(any1); !ok {
					s.t.Fatal("refused")
				}
			}
			if got := l.Stats().Available; got != before-1000 {
				s.t.Errorf("%d available of %d", got, before)
			}
		}
	})
}

func TestB76ChangingTheRate(t *testing.T) {
	virtual(t, func(s *stage) { // raised a hundredfold: debt is counted in tokens
		l := bucket(1, time.Second)
		s.acquire(l, cost(10), 0)
		c := s.calls(2, l, any1)
		time.Sleep(time.Second)
		if err := l.SetRate(ratelimiter.PerSecond(100)); err != nil {
			s.t.Fatal(err)
		}
		s.wantGrants(c, 1090*ms, 1100*ms)
	})
	virtual(t, func(s *stage) { // lowered: waiters are put off
		l := bucket(10, time.Second)
		s.acquire(l, any1, 0)
		c := s.calls(2, l, any1)
		time.Sleep(50 * ms)
		if err := l.SetRate(ratelimiter.PerSecond(1)); err != nil {
			s.t.Fatal(err)
		}
		s.wantGrants(c, 550*ms, 1550*ms)
	})
	virtual(t, func(s *stage) { // a burst stays a number of tokens
		l := bucket(10, time.Second, ratelimiter.WithBurst(5))
		time.Sleep(time.Hour)
		if err := l.SetRate(ratelimiter.PerHour(1)); err != nil {
			s.t.Fatal(err)
		}
		if got := l.Stats().Available; got != 5 {
			s.t.Error(got)
		}
	})
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(1e6))
		if err := l.SetRate(per(1, 24*365*time.Hour)); err == nil || l.String() != "token bucket 10/s, burst 1000000" {
			s.t.Error(err, l)
		}
	})
}

func TestAdjustBucket(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second)
		s.acquire(l, cost(5), 0)
		l.Adjust(cost(5), 2)
		s.acquire(l, cost(2), 200*ms)
		next := s.call(l, any1)
		l.Adjust(cost(2), 6)
		s.wantGrants([]*call{next}, 800*ms)
		l.Adjust(any1, -7) // as 0
		s.acquire(l, any1, 800*ms)
	})
	virtual(t, func(s *stage) {
		l := bucket(10, time.Second, ratelimiter.WithBurst(10))
		s.acquire(l, cost(4), 0)
		l.Adjust(cost(4), 1)
		if got := l.Stats().Available; got != 9 {
			s.t.Error(got)
		}
		l.Adjust(cost(5), 0) // more than there was: never above capacity
		if got := l.Stats().Available; got != 10 {
			s.t.Error(got)
		}
		l.Adjust(any1, 21)
		s.acquire(l, any1, 1100*ms)
		l.Adjust(any1, math.MaxInt) // a debt for ever, but no overflow
		if ok, in := l.TryAcquire(any1); ok || in < 100*365*24*time.Hour {
			s.t.Error(ok, in)
		}
	})
}

// TestXTimeRate compares with golang.org/x/time/rate where that is right:
// reservations that nobody cancels, at rates it can hold exactly.
func TestXTimeRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for range 50 {
		virtual(t, func(s *stage) {
			n, b := 1<<rng.IntN(8), rng.IntN(8)+2
			l := bucket(n, time.Second, ratelimiter.WithBurst(b))
			x := rate.NewLimiter(rate.Limit(n), b)
			for range 60 {
				time.Sleep(time.Duration(rng.IntN(8)) * time.Second / 256)
				k := rng.IntN(b) + 1
				at := s.at() + x.ReserveN(time.Now(), k).Delay()
				c := s.call(l, cost(k))
				s.wg.Go(func() {
					<-c.done
					if c.when != at {
						s.t.Errorf("%d/s burst %d: granted at %v, x/time/rate at %v", n, b, c.when, at)
					}
				})
			}
		})
	}
}

// TestNothingDrifts is about the long run: nothing drifts.
func TestNothingDrifts(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	virtual(t, func(s *stage) {
		l := bucket(7, time.Millisecond)
		for k := range 50_000 {
			if err := l.Acquire(s.t.Context(), any1); err != nil {
				s.t.Fatal(err)
			}
			if want := time.Duration((k*int(time.Millisecond) + 6) / 7); s.at() != want {
				s.t.Fatalf("grant %d at %v, want %v", k, s.at(), want)
			}
		}
	})
}

func TestCaseTickerSlot(t *testing.T) {
	virtual(t, func(s *stage) {
		l := bucket(1, 100*ms)
		s.acquire(l, any1, 0)
		time.Sleep(250 * ms)
		s.wantGrants(s.calls(2, l, any1), 250*ms, 350*ms)
	})
}

// TestCaseFreshAndIdle: what a fresh limiter and one after ten idle hours let
// through.
func TestCaseFreshAndIdle(t *testing.T) {
	for _, tt := range []struct {
		l    func() ratelimiter.Limiter
		want []time.Duration
	}{
		{func() ratelimiter.Limiter { return bucket(10, time.Second) }, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms,
			400 * ms, 500 * ms}},
		{func() ratelimiter.Limiter { return bucket(10, time.Second, ratelimiter.WithBurst(5)) }, []time.Duration{0, 0, 0, 0,
			0, 100 * ms, 200 * ms}},
		{func() ratelimiter.Limiter { return window(3, time.Second) }, []time.Duration{0, 0, 0, time.Second}},
	} {
		virtual(t, func(s *stage) {
			l := tt.l()
			for range 2 {
				at := s.at()
				for i, c := range s.calls(len(tt.want), l, any1) {
					<-c.done
					if c.when-at != tt.want[i] {
						s.t.Errorf("%v: call %d after %v, want %v", l, i, c.when-at, tt.want[i])
					}
				}
				time.Sleep(10 * time.Hour)
			}
		})
	}
}

func ExampleNewTokenBucket() {
	l, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(10))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l)
	ok, _ := l.TryAcquire(ratelimiter.Request{})
	fmt.Println("the first at once:", ok)
	ok, in := l.TryAcquire(ratelimiter.Request{})
	fmt.Println("the second at once:", ok, "but within 100ms:", in <= 100*time.Millisecond)
	// Output:
	// token bucket 10/s
	// the first at once: true
	// the second at once: false but within 100ms: true
}
