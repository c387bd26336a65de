package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// foreign hides what a limiter is, so that it is treated as one from elsewhere.
func foreign(l ratelimiter.Limiter) ratelimiter.Limiter { return ratelimiter.Func(l.Acquire) }

func pause(t testing.TB, p *ratelimiter.Pausable, d time.Duration) {
	t.Helper()
	if err := p.PauseFor(d); err != nil {
		t.Fatal(err)
	}
}

func TestPA1PassesTheRequestThrough(t *testing.T) {
	want := ratelimiter.Request{Worker: 3, Attempt: 2, Index: 7, Cost: 5, Key: "k"}
	var got ratelimiter.Request
	p := ratelimiter.NewPausable(ratelimiter.Func(func(_ context.Context, req ratelimiter.Request) error {
		got = req
		return nil
	}))
	if err := p.Acquire(t.Context(), want); err != nil || got != want {
		t.Errorf("%v: %+v, want %+v", err, got, want)
	}
}

func TestPA2WaitsBeforeAndAfterAForeignLimiter(t *testing.T) {
	virtual(t, func(s *stage) {
		var entered []time.Duration
		p := ratelimiter.NewPausable(ratelimiter.Func(func(context.Context, ratelimiter.Request) error {
			entered = append(entered, s.at())
			time.Sleep(10 * ms)
			return nil
		}))
		pause(s.t, p, 100*ms)
		c := s.call(p, any1)
		time.Sleep(105 * ms) // inside the inner limiter
		pause(s.t, p, 50*ms)
		s.wantGrants([]*call{c}, 155*ms)
		if len(entered) != 1 || entered[0] != 100*ms {
			s.t.Errorf("inner limiter asked at %v, want once at 100ms", entered)
		}
	})
}

func TestPA3LaterEndWins(t *testing.T) {
	for _, order := range [][]time.Duration{{300 * ms, 50 * ms}, {50 * ms, 300 * ms}} {
		virtual(t, func(s *stage) {
			p := ratelimiter.NewPausable(bucket(1000, time.Second))
			var wg sync.WaitGroup
			for _, d := range order {
				wg.Go(func() { pause(s.t, p, d) })
			}
			wg.Wait()
			if err := p.PauseUntil(s.start.Add(200 * ms)); err != nil {
				s.t.Fatal(err)
			}
			s.acquire(p, any1, 300*ms)
			if got := p.PausedUntil(); !got.Equal(s.start.Add(300 * ms)) {
				s.t.Error(got)
			}
		})
	}
}

func TestPA4BadPauses(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(1, time.Second))
		pause(s.t, p, time.Second)
		want := p.PausedUntil()
		for _, err := range []error{
			p.PauseFor(-1), p.PauseFor(math.MinInt64), p.PauseFor(math.MaxInt64),
			p.PauseUntil(time.Now().AddDate(200, 0, 0)), p.PauseUntil(time.Unix(1<<40, 0)),
		} {
			if err == nil {
				s.t.Error("accepted")
			}
		}
		if got := p.PausedUntil(); got != want {
			s.t.Errorf("pause changed from %v to %v", want, got)
		}
		s.acquire(p, any1, time.Second)
	})
}

func TestPA5PausedUntil(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(1, time.Second))
		if !p.PausedUntil().IsZero() {
			s.t.Error("not zero before the first pause")
		}
		pause(s.t, p, 0)
		if got := p.PausedUntil(); !got.Equal(s.start) {
			s.t.Error(got)
		}
		end := time.Now().Add(time.Minute)
		if err := p.PauseUntil(end); err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := p.PausedUntil(); got != end {
			s.t.Errorf("%v after it is over, want %v", got, end)
		}
	})
}

func TestPA6ZeroAndPastAreNoPause(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(1, time.Second))
		pause(s.t, p, 0)
		for _, end := range []time.Time{{}, s.start.Add(-time.Hour), s.start, time.Unix(0, 0)} {
			if err := p.PauseUntil(end); err != nil {
				s.t.Error(err)
			}
		}
		s.acquire(p, any1, 0)
	})
}

func TestPA7Extension(t *testing.T) {
	for name, inner := range map[string]func() ratelimiter.Limiter{
		"own":     func() ratelimiter.Limiter { return window(10, time.Hour) },
		"foreign": func() ratelimiter.Limiter { return foreign(window(10, time.Hour)) },
	} {
		virtual(t, func(s *stage) {
			p := ratelimiter.NewPausable(inner())
			pause(s.t, p, 100*ms)
			cs := s.calls(3, p, any1)
			time.Sleep(60 * ms)
			pause(s.t, p, 100*ms)
			time.Sleep(60 * ms)
			pause(s.t, p, 100*ms)
			for _, c := range cs {
				<-c.done
				if c.when != 220*ms {
					s.t.Errorf("%s: granted at %v", name, c.when)
				}
			}
		})
	}
}

// TestPA9ForeignGrantsResumeTogether: what the inner limiter has granted is not
// asked for again.
func TestPA9ForeignGrantsResumeTogether(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(foreign(bucket(100, time.Second)))
		cs := s.calls(5, p, any1)
		pause(s.t, p, 106*ms)
		s.wantGrants(cs, 0, 106*ms, 106*ms, 106*ms, 106*ms)
		s.acquire(p, any1, 106*ms)
	})
}

// TestPauseIsPartOfTheSchedule: over our own limiters grants after a pause are
// paced, and none has been used up meanwhile.
func TestPauseIsPartOfTheSchedule(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(100, time.Second))
		cs := s.calls(5, p, any1)
		pause(s.t, p, 106*ms)
		s.wantGrants(cs, 0, 106*ms, 116*ms, 126*ms, 136*ms)
		s.acquire(p, any1, 146*ms)
	})
	virtual(t, func(s *stage) {
		w := window(2, time.Second)
		p := ratelimiter.NewPausable(w)
		pause(s.t, p, 300*ms)
		cs := s.calls(3, p, any1)
		if got := w.Stats(); got != (ratelimiter.Stats{Available: 2, Waiting: 3}) {
			s.t.Errorf("%+v", got)
		}
		s.wantGrants(cs, 300*ms, 300*ms, 1300*ms)
	})
}

func TestPA10CancelDuringAPause(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(10, time.Second))
		pause(s.t, p, time.Second)
		end := p.PausedUntil()
		cs := s.calls(3, p, any1)
		cs[0].cancel()
		<-cs[0].done
		if !errors.Is(cs[0].err, context.Canceled) || cs[0].when != 0 || p.PausedUntil() != end {
			s.t.Error(cs[0].err, cs[0].when, p.PausedUntil())
		}
		s.wantGrants(cs[1:], time.Second, 1100*ms)
	})
	// In the second wait the inner grant is given back if that can be done.
	virtual(t, func(s *stage) {
		w := window(1, time.Hour)
		p := ratelimiter.NewPausable(adjustable{ratelimiter.Func(func(ctx context.Context, req ratelimiter.Request) error {
			time.Sleep(10 * ms)
			return w.Acquire(ctx, req)
		}), w})
		c := s.call(p, any1)
		time.Sleep(5 * ms)
		pause(s.t, p, time.Second)
		time.Sleep(10 * ms)
		if got := w.Stats().Available; got != 0 {
			s.t.Fatal(got)
		}
		c.cancel()
		<-c.done
		if got := w.Stats().Available; !errors.Is(c.err, context.Canceled) || got != 1 {
			s.t.Errorf("%v, %d available", c.err, got)
		}
	})
}

type adjustable struct {
	ratelimiter.Limiter
	ratelimiter.Adjuster
}

func TestPA12RateHoldsAfterAPause(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(10, time.Second))
		s.acquire(p, any1, 0)
		pause(s.t, p, 250*ms)
		s.acquire(p, any1, 250*ms)
		s.acquire(p, any1, 350*ms)
	})
}

// TestPA13ConcurrentPauses: pauses come from handlers, from anywhere.
func TestPA13ConcurrentPauses(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(window(1000, time.Hour))
		for i := range 100 {
			s.wg.Go(func() {
				pause(s.t, p, time.Duration(i)*ms)
				if err := p.Acquire(s.t.Context(), any1); err != nil || s.at() < time.Duration(i)*ms {
					s.t.Error(err, s.at())
				}
			})
		}
		synctest.Wait()
		s.acquire(p, any1, 99*ms)
	})
}

// TestPauseDoesNotHoldUpOthers: the inner limiter is shared; only those who come
// through the paused limiter are paused.
func TestPauseDoesNotHoldUpOthers(t *testing.T) {
	virtual(t, func(s *stage) {
		shared := bucket(10, time.Second)
		a, b := ratelimiter.NewPausable(shared), ratelimiter.NewPausable(shared)
		s.acquire(a, any1, 0)
		waitsInA := s.calls(2, a, any1) // first in line, not paused yet
		waitsInB := s.calls(2, b, any1)
		direct := s.calls(2, shared, any1)
		time.Sleep(50 * ms)
		pause(s.t, a, 30*time.Minute)
		s.wantGrants(waitsInB, 100*ms, 200*ms)
		s.wantGrants(direct, 300*ms, 400*ms)
		if ok, in := shared.TryAcquire(any1); ok || in > 300*ms {
			s.t.Error(ok, in)
		}
		end := 50*ms + 30*time.Minute
		time.Sleep(end - 20*ms - s.at())
		// Nobody may take at the last moment what the paused ones wait for: in
		// 20 ms the bucket would not be free again.
		last := s.call(shared, any1)
		s.wantGrants(waitsInA, end, end+100*ms)
		s.wantGrants([]*call{last}, end+200*ms)
	})
}

func TestPausableObserve(t *testing.T) {
	virtual(t, func(s *stage) {
		inner := &observer{Limiter: bucket(10, time.Second)}
		p := ratelimiter.NewPausable(inner)
		p.Observe(any1, nil)
		p.Observe(any1, errors.New("no hint"))
		p.Observe(any1, fmt.Errorf("wrapped: %w", after(0)))
		p.Observe(any1, after(-time.Second))
		if !p.PausedUntil().IsZero() {
			s.t.Error("paused without a reason")
		}
		p.Observe(any1, fmt.Errorf("wrapped: %w", after(2*time.Second)))
		p.Observe(any1, after(time.Second))
		if inner.seen != 6 {
			s.t.Errorf("the inner limiter has seen %d", inner.seen)
		}
		s.acquire(p, any1, 2*time.Second)
		p.Observe(any1, after(math.MaxInt64)) // as long as a pause can be
		if got := time.Until(p.PausedUntil()); got < 99*365*24*time.Hour {
			s.t.Error(got)
		}
	})
}

type after time.Duration

func (a after) Error() string             { return "slow down" }
func (a after) RetryAfter() time.Duration { return time.Duration(a) }

type observer struct {
	ratelimiter.Limiter
	seen int
}

func (o *observer) Observe(ratelimiter.Request, error) { o.seen++ }

func TestPausableTry(t *testing.T) {
	virtual(t, func(s *stage) {
		for _, p := range []*ratelimiter.Pausable{
			ratelimiter.NewPausable(bucket(10, time.Second)),
			ratelimiter.NewPausable(try{bucket(10, time.Second)}),
		} {
			at := s.at()
			pause(s.t, p, time.Second)
			if ok, in := p.TryAcquire(any1); ok || in != time.Second {
				s.t.Error(ok, in)
			}
			var excess *ratelimiter.ExcessError
			if err := p.AcquireWithin(s.t.Context(), any1, time.Second-1); !errors.As(err, &excess) ||
				excess.Limit != "pause" || s.at() != at {
				s.t.Error(err)
			}
			if err := p.AcquireWithin(s.t.Context(), any1, time.Second); err != nil || s.at() != at+time.Second {
				s.t.Error(err, s.at())
			}
			if ok, in := p.TryAcquire(any1); ok || in != 100*ms {
				s.t.Error(ok, in)
			}
		}
		// A foreign limiter that cannot refuse at once.
		p := ratelimiter.NewPausable(foreign(bucket(10, time.Second)))
		if _, ok := ratelimiter.AsTryAcquirer(p); ok {
			s.t.Error("a TryAcquirer around none")
		}
		if ok, in := p.TryAcquire(any1); ok || in != ratelimiter.Never {
			s.t.Error(ok, in)
		}
		at := s.at()
		if err := p.AcquireWithin(s.t.Context(), any1, 0); !errors.Is(err, context.DeadlineExceeded) && err == nil {
			s.t.Error(err)
		}
		if err := p.AcquireWithin(s.t.Context(), any1, 50*ms); err != nil || s.at() != at {
			s.t.Error(err, s.at())
		}
		var excess *ratelimiter.ExcessError
		if err := p.AcquireWithin(s.t.Context(), any1, 50*ms); !errors.As(err, &excess) {
			s.t.Error(err)
		}
	})
}

// try is a foreign limiter that is a TryAcquirer.
type try struct{ *ratelimiter.TokenBucket }

func (t try) Acquire(ctx context.Context, req ratelimiter.Request) error {
	return t.TokenBucket.Acquire(ctx, req)
}

func TestNewPausableOfNothing(t *testing.T) {
	for _, inner := range []ratelimiter.Limiter{nil, (*ratelimiter.TokenBucket)(nil), ratelimiter.Func(nil)} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%T was accepted", inner)
				}
			}()
			ratelimiter.NewPausable(inner)
		}()
	}
}

// TestCaseTwoPausesAtOnce: told 90 minutes and 1 minute together, the long one
// counts whatever the order.
func TestCaseTwoPausesAtOnce(t *testing.T) {
	virtual(t, func(s *stage) {
		p := ratelimiter.NewPausable(bucket(1000, time.Second))
		s.wg.Go(func() { pause(s.t, p, time.Minute) })
		s.wg.Go(func() { pause(s.t, p, 90*time.Minute) })
		synctest.Wait()
		s.acquire(p, any1, 90*time.Minute)
	})
}

func ExamplePausable() {
	l, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(100))
	if err != nil {
		fmt.Println(err)
		return
	}
	p := ratelimiter.NewPausable(l)
	// A handler that was told to come back later pauses everybody. An engine does
	// this by itself for errors that carry a Retry-After.
	if err := p.PauseFor(50 * time.Millisecond); err != nil {
		fmt.Println(err)
	}
	start := time.Now()
	if err := p.Acquire(context.Background(), ratelimiter.Request{}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(time.Since(start) >= 49*time.Millisecond)
	// Output: true
}

// TestPauseIsNoReasonToShed: those who wait out a pause of their own do not
// count for those who share only the inner limiter.
func TestPauseIsNoReasonToShed(t *testing.T) {
	virtual(t, func(s *stage) {
		shared := bucket(10, time.Second)
		a := ratelimiter.NewPausable(shared)
		pause(s.t, a, time.Hour)
		paused := s.calls(100, a, any1)
		s.acquire(shared, any1, 0)
		if ok, in := shared.TryAcquire(any1); ok || in != 100*ms {
			s.t.Error(ok, in)
		}
		cs := []*call{s.within(shared, any1, 100*ms), s.within(shared, any1, 200*ms)}
		if c := s.within(shared, any1, 200*ms); !c.back() {
			s.t.Error("the third does not fit into 200 ms")
		}
		s.wantGrants(cs, 100*ms, 200*ms)
		for _, c := range paused {
			c.cancel()
		}
	})
}

// TestPausedForeignAgainstLog: around a limiter from elsewhere nobody is let go during a pause, each grant is acquired
// once, and who gives up has it given back.
func TestPausedForeignAgainstLog(t *testing.T) {
	for seed := range uint64(40) {
		virtual(t, func(s *stage) {
			rng := rand.New(rand.NewPCG(seed, 5))
			w := window(1000, 10_000*time.Hour)
			inner := must(ratelimiter.NewAll(w, bucket(20, time.Second)))
			p := ratelimiter.NewPausable(adjustable{foreign(inner), inner})
			type span struct{ from, until time.Duration }
			var pauses []span
			var cs []*call
			for range 150 {
				switch rng.IntN(4) {
				case 0:
					d := time.Duration(rng.IntN(1000)) * ms
					pauses = append(pauses, span{s.at(), s.at() + d})
					pause(s.t, p, d)
				case 1:
					if len(cs) > 0 {
						cs[rng.IntN(len(cs))].cancel()
					}
				default:
					cs = append(cs, s.call(p, any1))
				}
				time.Sleep(time.Duration(rng.IntN(100)) * ms)
			}
			granted := 0
			for i, c := range cs {
				<-c.done
				if c.err != nil {
					continue
				}
				granted++
				for _, x := range pauses {
					if c.when > x.from && c.when < x.until {
						s.t.Errorf("call %d was let go at %v, in the pause from %v to %v", i, c.when, x.from, x.until)
					}
				}
			}
			if got := 1000 - w.Stats().Available; got != granted {
				s.t.Errorf("%d granted, but %d used up", granted, got)
			}
		})
	}
}
