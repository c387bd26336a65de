package ratelimiter_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

func newRandomized(t *testing.T, r ratelimiter.Rate, opts ...ratelimiter.RandomizedOption) *ratelimiter.RandomizedInterval {
	t.Helper()
	l, err := ratelimiter.NewRandomizedInterval(r, append([]ratelimiter.RandomizedOption{
		ratelimiter.WithRandom(rand.New(rand.NewPCG(1, 2))),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// waits acquires n requests one after the other and returns how long each took.
func waits(t *testing.T, l ratelimiter.Limiter, n int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := l.Acquire(context.Background(), ratelimiter.Request{Index: i}); err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(start)
	}
	return took
}

func TestRandomizedInterval(t *testing.T) {
	t.Run("RI4 the default multiplier's mean and bounds", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const n = 100_000
			// A huge quota: only the delay counts. An interval is a second.
			l := newRandomized(t, ratelimiter.Rate{Count: 1_000_000, Per: 1_000_000 * time.Second})
			sum := 0.0
			for _, d := range waits(t, l, n) {
				if d < 0 || d > 1100*time.Millisecond {
					t.Fatal("a multiplier of", d.Seconds())
				}
				sum += d.Seconds()
			}
			if mean := sum / n; math.Abs(mean-0.569) > 0.004 {
				t.Errorf("the mean is %v, want 0.569", mean)
			}
		})
	})
	t.Run("RI4 a lower bound of 0.3", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const n = 50_000
			l := newRandomized(t, ratelimiter.Rate{Count: 1_000_000, Per: 1_000_000 * time.Second}, ratelimiter.WithBounds(0.3, 1.1))
			sum := 0.0
			for _, d := range waits(t, l, n) {
				if d < 300*time.Millisecond {
					t.Fatal("a multiplier of", d.Seconds())
				}
				sum += d.Seconds()
			}
			if mean := sum / n; math.Abs(mean-0.603) > 0.005 {
				t.Errorf("the mean is %v, want 0.603", mean)
			}
		})
	})
	t.Run("RI3 the first grant and those after idle are delayed, a fixed delay exactly", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newRandomized(t, ratelimiter.PerSecond(10), ratelimiter.WithBounds(0.5, 0.5), ratelimiter.WithFluctuation(0))
			for _, d := range waits(t, l, 3) {
				if d != 50*time.Millisecond {
					t.Fatal(d)
				}
			}
			time.Sleep(time.Hour)
			if d := waits(t, l, 1)[0]; d != 50*time.Millisecond {
				t.Error(d)
			}
		})
	})
	t.Run("RI3 it waits for the quota and then for the whole delay, serially", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newRandomized(t, ratelimiter.Rate{Count: 2, Per: time.Second}, ratelimiter.WithBounds(0.2, 0.2),
				ratelimiter.WithFluctuation(0))
			start := time.Now()
			granted := make([]time.Duration, 5)
			for i := range granted {
				go func() {
					if err := l.Acquire(context.Background(), ratelimiter.Request{Index: i}); err == nil {
						granted[i] = time.Since(start)
					}
				}()
				synctest.Wait()
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			// Delay 100 ms. The third waits for the first's slot, free at 1100 ms; the fourth comes to the head at 1200 ms.
			for i, want := range []time.Duration{100, 200, 1200, 1300, 2300} {
				if granted[i] != want*time.Millisecond {
					t.Errorf("grant %d after %v, want %vms", i, granted[i], int(want))
				}
			}
		})
	})
	t.Run("RI2 never more than Count in any period, over 20,000 grants", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newRandomized(t, ratelimiter.Rate{Count: 5, Per: 100 * time.Millisecond})
			var log []time.Time
			for range 20_000 {
				waits(t, l, 1)
				log = append(log, time.Now())
				if n := len(log) - 6; n >= 0 && log[n+5].Sub(log[n]) < 100*time.Millisecond {
					t.Fatalf("six grants within %v", log[n+5].Sub(log[n]))
				}
			}
		})
	})
	t.Run("a fixed seed repeats", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := ratelimiter.PerSecond(1000)
			a, b := waits(t, newRandomized(t, r), 100), waits(t, newRandomized(t, r), 100)
			for i := range a {
				if a[i] != b[i] {
					t.Fatal(i, a[i], b[i])
				}
			}
		})
	})
	t.Run("one that gives up passes its turn on and counts for nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newRandomized(t, ratelimiter.Rate{Count: 1, Per: time.Second}, ratelimiter.WithBounds(0.5, 0.5),
				ratelimiter.WithFluctuation(0))
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			gone := make(chan error, 1)
			go func() { gone <- l.Acquire(ctx, ratelimiter.Request{}) }()
			synctest.Wait()
			var granted time.Duration
			go func() {
				if err := l.Acquire(context.Background(), ratelimiter.Request{Index: 1}); err == nil {
					granted = time.Since(start)
				}
			}()
			time.Sleep(300 * time.Millisecond)
			cancel()
			if <-gone == nil {
				t.Fatal("it was granted")
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			// It comes to the head at 300 ms, finds the quota free, and waits for its delay.
			if granted != 800*time.Millisecond {
				t.Errorf("granted after %v", granted)
			}
		})
	})
	t.Run("TryAcquire grants only without a delay, and a cost above Count never", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newRandomized(t, ratelimiter.PerSecond(2), ratelimiter.WithBounds(0.2, 0.2), ratelimiter.WithFluctuation(0))
			if ok, in := l.TryAcquire(ratelimiter.Request{}); ok || in != 100*time.Millisecond {
				t.Error(ok, in)
			}
			free := newRandomized(t, ratelimiter.PerSecond(2), ratelimiter.WithBounds(0, 0), ratelimiter.WithFluctuation(0))
			if ok, _ := free.TryAcquire(ratelimiter.Request{Cost: 2}); !ok {
				t.Error("refused without a delay")
			}
			if err := free.Acquire(t.Context(), ratelimiter.Request{Cost: 3}); err == nil || !strings.Contains(err.Error(), "cost 3") {
				t.Error(err)
			}
		})
	})
}

// TestRandomizedTurns: what others do, by this way or another, neither shortens nor lengthens anybody's delay.
func TestRandomizedTurns(t *testing.T) {
	make := func(t *testing.T, r ratelimiter.Rate) *ratelimiter.RandomizedInterval { // a delay of half an interval
		return newRandomized(t, r, ratelimiter.WithBounds(0.5, 0.5), ratelimiter.WithFluctuation(0))
	}
	t.Run("a look at the window does not forget when it had room", func(t *testing.T) {
		virtual(t, func(s *stage) {
			l := make(t, per(1, time.Second))
			s.acquire(l, any1, 500*ms)
			c := s.call(l, any1) // room at 1.5 s, so 2 s
			time.Sleep(1200 * ms)
			l.Adjust(ratelimiter.Request{Index: 7}, 1) // nothing changes, but everything is looked at
			s.wantGrants([]*call{c}, 2*time.Second)
		})
	})
	t.Run("refusals by another way do not restart the turn", func(t *testing.T) {
		virtual(t, func(s *stage) {
			l := make(t, per(1, time.Second))
			c := s.call(must(ratelimiter.NewAll(l, bucket(1e9, time.Second))), any1)
			for range 49 {
				time.Sleep(10 * ms)
				if ok, _ := l.TryAcquire(any1); ok {
					t.Error("overtaken")
				}
			}
			s.wantGrants([]*call{c}, 500*ms)
		})
	})
	t.Run("a turn begins when the one before, of another way, has ended", func(t *testing.T) {
		virtual(t, func(s *stage) {
			l := make(t, per(10, 10*time.Second))
			all := must(ratelimiter.NewAll(l, bucket(1e9, time.Second)))
			gone, first, second, third := s.call(l, any1), s.call(all, any1), s.call(l, any1), s.call(all, any1)
			time.Sleep(300 * ms)
			gone.cancel()
			s.wantGrants([]*call{first, second, third}, 800*ms, 1300*ms, 1800*ms)
		})
	})
	t.Run("the delay of another is no reason to give a deadline up", func(t *testing.T) {
		virtual(t, func(s *stage) {
			l := newRandomized(t, per(1, time.Second), ratelimiter.WithMultiplier(5, 0), ratelimiter.WithBounds(0, 2),
				ratelimiter.WithFluctuation(0))
			head := s.call(l, any1)
			ctx, cancel := context.WithTimeout(s.t.Context(), ms)
			defer cancel()
			c := s.callCtx(ctx, l, any1)
			time.Sleep(ms)
			synctest.Wait()
			if head.back() || !c.back() || c.when != ms {
				t.Errorf("head back %v; the one behind %v at %v, want it to wait until its deadline", head.back(), c.err, c.when)
			}
			head.cancel()
		})
	})
	t.Run("but the window and the least delay are", func(t *testing.T) {
		virtual(t, func(s *stage) {
			l := make(t, per(2, time.Minute))
			s.acquire(l, cost(2), 15*time.Second)
			head := s.call(l, any1) // room at 75 s, so 90 s
			for _, tt := range []struct {
				deadline, told time.Duration
			}{{75*time.Second - 1, 0}, {75 * time.Second, 75 * time.Second}} {
				start := s.at()
				ctx, cancel := context.WithTimeout(s.t.Context(), tt.deadline)
				err := l.Acquire(ctx, any1)
				if took := s.at() - start; !errors.Is(err, context.DeadlineExceeded) || took != tt.told {
					t.Errorf("a deadline in %v: %v after %v, want to be told after %v", tt.deadline, err, took, tt.told)
				}
				cancel()
			}
			s.wantGrants([]*call{head}, 90*time.Second)
		})
	})
	t.Run("whoever is held sets no timer", func(t *testing.T) {
		virtual(t, func(s *stage) {
			l := make(t, per(1, time.Hour))
			all := must(ratelimiter.NewAll(l, bucket(1e9, time.Second)))
			first, second := s.call(all, any1), s.call(l, any1)
			s.wantGrants([]*call{first, second}, 30*time.Minute, 2*time.Hour)
			if n := ratelimiter.Fired(l); n != 1 {
				t.Errorf("the timer of the second went off %d times", n)
			}
		})
	})
}

// TestB27DelayAndDeadline: a random delay never makes a caller sleep past its deadline, and one that cannot fit before it is
// refused at once.
func TestB27DelayAndDeadline(t *testing.T) {
	virtual(t, func(s *stage) {
		rng := rand.New(rand.NewPCG(27, 0))
		l := newRandomized(t, per(1000, 1000*time.Second), ratelimiter.WithBounds(0.2, 1.1)) // 0.2 s to 1.1 s each
		early, late := 0, 0
		for range 1000 {
			start, most := s.at(), time.Duration(rng.IntN(1200))*ms
			ctx, cancel := context.WithTimeout(s.t.Context(), most)
			err := l.Acquire(ctx, any1)
			cancel()
			switch took := s.at() - start; {
			case took > most:
				t.Fatalf("%v with a deadline in %v", took, most)
			case err != nil && took == 0:
				early++
			case err != nil:
				t.Fatalf("%v after %v, want to be told at once", err, took)
			default:
				late++
			}
		}
		if early < 100 || late < 100 {
			t.Errorf("%d refused, %d granted", early, late)
		}
	})
}

func TestRandomizedValidation(t *testing.T) {
	for _, c := range []struct {
		rate ratelimiter.Rate
		opt  ratelimiter.RandomizedOption
		want string
	}{
		{ratelimiter.PerSecond(0), ratelimiter.WithFluctuation(0), "Rate.Count is 0"},
		{ratelimiter.PerSecond(1), ratelimiter.WithMultiplier(math.NaN(), 1), "WithMultiplier is NaN"},
		{ratelimiter.PerSecond(1), ratelimiter.WithMultiplier(1, -1), "stdDev is -1"},
		{ratelimiter.PerSecond(1), ratelimiter.WithBounds(-0.1, 1), "WithBounds is -0.1, 1,"},
		{ratelimiter.PerSecond(1), ratelimiter.WithBounds(2, 1), "0 <= lower <= upper"},
		{ratelimiter.PerSecond(1), ratelimiter.WithBounds(0, math.Inf(1)), "+Inf"},
		{ratelimiter.PerSecond(1), ratelimiter.WithBounds(0, 1e18), "a delay of 1e+18 intervals"},
		{ratelimiter.PerSecond(1), ratelimiter.WithFluctuation(-1), "WithFluctuation is -1"},
		{ratelimiter.PerSecond(1), ratelimiter.WithFluctuation(1), "half of the distance"},
		{ratelimiter.PerSecond(1), ratelimiter.WithFluctuation(math.NaN()), "WithFluctuation is NaN"},
		{ratelimiter.PerSecond(1), ratelimiter.WithRandom(nil), "WithRandom is nil"},
	} {
		if _, err := ratelimiter.NewRandomizedInterval(c.rate, c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
