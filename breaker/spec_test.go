package breaker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

// The lines of the specification on circuit breakers, by number. flexiq's defaults are written out where they differ
// from ours.

var flexiq = breaker.WithCooldown(300 * sec)

// 40: opens at 5 failures within 60 s, stays open 300 s, then half-open with up to 5 probes, closes at a success rate of
// 0.8.
func TestSpec40OpensAtTheThresholdAndClosesAtTheRatio(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		for i := range 5 {
			s.want(breaker.Closed)
			s.until(time.Duration(i) * 14 * sec)
			s.attempts(1, breaker.Failed)
		}
		s.want(breaker.Open) // at 56 s
		waiting := s.waits(7)
		s.until(356*sec - nano)
		s.want(breaker.Open)
		s.wantBack(0, waiting)
		s.until(356 * sec)
		s.want(breaker.HalfOpen)
		s.wantBack(5, waiting)
		probes := s.enters(5)
		s.refused()
		s.until(360 * sec)
		s.Leave(probes[0], breaker.Failed)
		for i := 1; i <= 4; i++ {
			s.want(breaker.HalfOpen)
			s.Leave(probes[i], breaker.Succeeded)
		}
		s.want(breaker.Closed)
		s.until(360 * sec)
		s.wantBack(7, waiting)
		s.wantTurns(
			turn{56 * sec, breaker.Closed, breaker.Open},
			turn{356 * sec, breaker.Open, breaker.HalfOpen},
			turn{360 * sec, breaker.HalfOpen, breaker.Closed},
		)
	}, flexiq)
}

// 40: re-opens at once when the rate is out of reach.
func TestSpec40ReopensWhenTheRatioIsOutOfReach(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(300 * sec)
		probes := s.enters(5)
		s.until(301 * sec)
		s.Leave(probes[0], breaker.Failed)
		s.want(breaker.HalfOpen)
		s.until(302 * sec)
		s.Leave(probes[1], breaker.Failed) // 3 of 5 is the best that can come of it
		s.want(breaker.Open)
		s.until(602*sec - nano)
		s.want(breaker.Open)
		s.until(602 * sec)
		s.want(breaker.HalfOpen)
	}, flexiq)
}

// 40: re-opens when the probes do not finish within the cooldown.
func TestSpec40ReopensWhenProbesHang(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(300 * sec)
		probes := s.enters(5)
		for _, p := range probes[:3] {
			s.Leave(p, breaker.Succeeded)
		}
		s.until(600*sec - nano)
		s.want(breaker.HalfOpen)
		s.until(600 * sec)
		s.want(breaker.Open)
		s.wantTurns(
			turn{0, breaker.Closed, breaker.Open},
			turn{300 * sec, breaker.Open, breaker.HalfOpen},
			turn{600 * sec, breaker.HalfOpen, breaker.Open},
		)
	}, flexiq)
}

// 41: only what is reported as a failure counts, and the state can be inspected. (flexiq counts a job's final failures;
// here the engine reports every attempt.)
func TestSpec41CountsFailuresOnly(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		for range 4 {
			s.attempts(10, breaker.Succeeded)
			s.attempts(10, breaker.Ignored)
			s.attempts(1, breaker.Failed)
			s.want(breaker.Closed)
		}
		s.attempts(1, breaker.Failed)
		s.want(breaker.Open)
	})
}

// 42: in the older code a success resets the count. Here it does not: among many concurrent attempts there is always
// some success.
func TestSpec42SuccessDoesNotResetTheCount(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.attempts(4, breaker.Failed)
		s.attempts(100, breaker.Succeeded)
		s.attempts(1, breaker.Failed)
		s.want(breaker.Open)
	})
}

// 42: failures outside the window do not count; the count goes on with those inside.
func TestSpec42FailuresOutsideTheWindowDoNotCount(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.attempts(1, breaker.Failed)
		s.until(1 * sec)
		s.attempts(3, breaker.Failed)
		s.until(60 * sec) // the first one is a window old: four are left, then
		s.attempts(1, breaker.Failed)
		s.want(breaker.Closed)
		s.until(61*sec - nano) // nothing has left since
		s.attempts(1, breaker.Failed)
		s.want(breaker.Open)
	})
	virtual(t, func(t *testing.T, s *stage) { // one after the other, each alone in its window
		for i := range 100 {
			s.until(time.Duration(i) * 60 * sec)
			s.attempts(1, breaker.Failed)
		}
		s.want(breaker.Closed)
	}, breaker.WithThreshold(2, 60*sec))
}

// 43 and 45: who finds no place in half-open waits; it is not refused, and nothing is dropped.
func TestSpec43And45HalfOpenAndOpenMakeWait(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(300 * sec)
		probes := s.enters(5)
		waiting := s.waits(3)
		s.until(599 * sec)
		s.wantBack(0, waiting)
		s.Leave(probes[0], breaker.Failed)
		s.Leave(probes[1], breaker.Failed) // open again
		waiting = append(waiting, s.waits(5)...)
		s.until(899*sec - nano)
		s.wantBack(0, waiting)
		s.until(899 * sec)
		s.wantBack(5, waiting)
		for range 4 {
			s.Leave(s.enter(), breaker.Succeeded)
		}
		s.until(899 * sec)
		s.wantBack(8, waiting) // everybody got through, nobody an error
	}, flexiq)
}

// 44: the breaker stands before the limit: no token is taken while it is open.
func TestSpec44NoTokenIsTakenWhileOpen(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		var tokens, calls atomic.Int64
		attempt := func(fail bool) {
			for {
				if err := s.Wait(t.Context()); err != nil {
					panic(err)
				}
				tokens.Add(1)
				if ticket, ok := s.Enter(); ok {
					calls.Add(1)
					var err error
					if fail {
						err = errIll
					}
					r := breaker.Succeeded
					if s.Failure(err) {
						r = breaker.Failed
					}
					s.Leave(ticket, r)
					return
				}
				tokens.Add(-1)
			}
		}
		for range 5 {
			attempt(true)
		}
		for range 20 {
			s.wg.Go(func() { attempt(false) })
		}
		s.until(300*sec - nano)
		if tokens.Load() != 5 || calls.Load() != 5 {
			t.Fatalf("%d tokens taken and %d calls made, want the 5 from before", tokens.Load(), calls.Load())
		}
		s.until(300 * sec)
		if tokens.Load() != 25 || calls.Load() != 25 {
			t.Fatalf("%d tokens taken and %d calls made, want 25 of each", tokens.Load(), calls.Load())
		}
	}, flexiq)
}
