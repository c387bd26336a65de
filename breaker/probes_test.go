package breaker_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

func TestIgnoredProbesFreeTheirPlace(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		waiting := s.waits(8)
		s.wantBack(5, waiting)
		probes := s.enters(5)
		s.Leave(probes[2], breaker.Ignored)
		s.until(30 * sec)
		s.wantBack(6, waiting)
		s.Leave(probes[0], breaker.Report(99)) // unknown
		s.until(30 * sec)
		s.wantBack(7, waiting)
		s.Leave(probes[1], breaker.Succeeded) // used its place up
		s.until(30 * sec)
		s.wantBack(7, waiting)
		s.enters(2)
		s.refused()
		for _, c := range waiting {
			c.cancel()
		}
	})
}

// Only Ignored reports, for ever: half-open goes on for as long as it takes.
func TestHalfOpenHasNoEndOfItsOwn(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(time.Hour)
		s.want(breaker.HalfOpen)
		for range 100 {
			s.attempts(1, breaker.Ignored)
			s.until(s.at() + 29*sec)
		}
		s.attempts(4, breaker.Succeeded)
		s.want(breaker.Closed)
		if len(s.turns) != 3 {
			t.Fatalf("changes: %v", s.turns)
		}
	})
}

// A limiter that lets one attempt through in ten minutes must not keep the breaker from closing: a probe's time counts
// from when it begins.
func TestSlowLimiter(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		cs := s.waits(6)
		s.wantBack(5, cs)
		for i := range 4 {
			s.until(time.Duration(i+1) * 600 * sec)
			s.Leave(s.enter(), breaker.Succeeded)
		}
		s.want(breaker.Closed)
	})
}

func TestLateReportsCountForNothing(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		before := s.enters(20) // in flight when it opens
		for _, b := range before[:5] {
			s.Leave(b, breaker.Failed)
		}
		s.want(breaker.Open)
		s.Leave(before[5], breaker.Succeeded)
		s.Leave(before[6], breaker.Failed)
		s.want(breaker.Open)
		s.until(30 * sec)
		for _, b := range before[7:14] {
			s.Leave(b, breaker.Failed)
		}
		s.want(breaker.HalfOpen)
		probes := s.enters(5)
		for _, p := range probes[:2] {
			s.Leave(p, breaker.Failed)
		}
		s.until(60 * sec)
		again := s.enters(5)
		s.Leave(probes[2], breaker.Failed) // of the round before
		s.Leave(probes[3], breaker.Failed)
		s.want(breaker.HalfOpen)
		for _, p := range again[:4] {
			s.Leave(p, breaker.Succeeded)
		}
		s.want(breaker.Closed)
		for range 10 {
			s.Leave(again[4], breaker.Failed)
			s.Leave(probes[4], breaker.Failed)
			s.Leave(before[14], breaker.Failed) // of another closed
		}
		s.want(breaker.Closed)
	})
}

func TestTwiceLeftAndZeroTickets(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		for range 10 {
			s.Leave(breaker.Ticket{}, breaker.Failed)
		}
		s.want(breaker.Closed)
		s.trip()
		s.until(30 * sec)
		probes := s.enters(5)
		for range 10 {
			s.Leave(probes[2], breaker.Failed)
			s.Leave(breaker.Ticket{}, breaker.Succeeded)
		}
		s.want(breaker.HalfOpen)
		for _, i := range []int{0, 1, 3} {
			s.Leave(probes[i], breaker.Succeeded)
			s.Leave(probes[i], breaker.Succeeded)
			s.want(breaker.HalfOpen)
		}
		s.Leave(probes[4], breaker.Succeeded)
		s.want(breaker.Closed)
	})
}

// The reported bug of such breakers: attempts that take longer than the cooldown trip it, and it never closes again,
// since every probe is given up. Here the first late success shows how long they take.
func TestAttemptsLongerThanTheCooldown(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		probes := s.enters(5)
		s.until(60 * sec) // 30 s are not enough
		s.want(breaker.Open)
		s.until(80 * sec)
		for _, p := range probes {
			s.Leave(p, breaker.Succeeded) // took 50 s, so 100 s are allowed
		}
		s.want(breaker.Open)
		s.until(90 * sec)
		probes = s.enters(5)
		s.until(140 * sec)
		for _, p := range probes[:4] {
			s.Leave(p, breaker.Succeeded)
		}
		s.want(breaker.Closed)
		s.trip() // all is forgotten
		s.until(170 * sec)
		s.enter()
		s.until(200*sec - nano)
		s.want(breaker.HalfOpen)
		s.until(200 * sec)
		s.want(breaker.Open)
	})
}

// A late success stretches the time of probes that are already running; late failures, ignored ones, and those that
// were not late themselves do not.
func TestOnlyLateSuccessesTeach(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		first := s.enters(3)
		s.until(59 * sec)
		young := s.enter()
		s.until(60 * sec)
		s.want(breaker.Open)
		s.until(70 * sec)
		s.Leave(first[0], breaker.Failed)
		s.Leave(first[1], breaker.Ignored)
		s.Leave(young, breaker.Succeeded) // took 11 s
		s.until(90 * sec)
		s.enter()
		s.until(119 * sec)
		s.Leave(first[2], breaker.Succeeded) // took 89 s
		s.until(90*sec + 178*sec - nano)
		s.want(breaker.HalfOpen)
		s.until(90*sec + 178*sec)
		s.want(breaker.Open)
	})
}

// What is learned of late successes serves the present trouble only.
func TestNothingIsLearnedWhileClosed(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		hung := s.enter()
		s.until(90 * sec)
		s.attempts(4, breaker.Succeeded)
		s.until(100 * sec)
		s.Leave(hung, breaker.Succeeded)
		s.trip()
		s.until(130 * sec)
		s.enter()
		s.until(160*sec - nano)
		s.want(breaker.HalfOpen)
		s.until(160 * sec)
		s.want(breaker.Open)
	})
}

// Promises of one half-open do not take places of the next.
func TestPromisesEndWithTheirRound(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		cs := s.waits(5)
		for range 2 {
			s.Leave(s.enter(), breaker.Failed)
		}
		s.want(breaker.Open)
		cs = append(cs, s.waits(6)...)
		s.until(60 * sec)
		s.wantBack(10, cs)
		cs[10].cancel()
	})
}

func TestTheOldestRunningProbeDecides(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		a := s.enter()
		s.until(40 * sec)
		b := s.enter()
		s.until(50 * sec)
		s.enter()
		s.until(55 * sec)
		s.Leave(b, breaker.Succeeded)
		s.Leave(a, breaker.Succeeded)
		s.until(80*sec - nano)
		s.want(breaker.HalfOpen)
		s.until(80 * sec)
		s.want(breaker.Open)
	})
}

// A probe that ends at the very end of its time is late, whichever is seen first: the report or the timer.
func TestTheVeryEndIsLate(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		s.attempts(3, breaker.Succeeded)
		s.wg.Go(func() {
			p := s.enter()
			time.Sleep(30 * sec)
			s.Leave(p, breaker.Succeeded)
		})
		s.until(60 * sec)
		s.want(breaker.Open)
	})
}

// All shares of many numbers of probes: the decision comes exactly when it is certain. 7 of 100 are 0.07, though
// 0.07*100 is more than 7.
func TestDecidedAsSoonAsCertain(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 11, 100} {
		for percent := 1; percent <= 100; percent++ {
			decided(t, n, percent)
		}
	}
}

func decided(t *testing.T, n, percent int) {
	virtual(t, func(t *testing.T, s *stage) {
		random := rand.New(rand.NewPCG(uint64(n), uint64(percent)))
		s.trip()
		s.until(30 * sec)
		succeeded, failed := 0, 0
		for succeeded*100 < percent*n && (n-failed)*100 >= percent*n {
			s.want(breaker.HalfOpen)
			if random.IntN(100) < percent {
				succeeded++
				s.attempts(1, breaker.Succeeded)
			} else {
				failed++
				s.attempts(1, breaker.Failed)
			}
		}
		if succeeded*100 >= percent*n {
			s.want(breaker.Closed)
		} else {
			s.want(breaker.Open)
		}
	}, breaker.WithThreshold(1, sec), breaker.WithProbes(n, float64(percent)/100))
}

func TestEnterSeesThatItHasOpened(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.pass() // now in the limiter's queue
		s.trip()
		s.refused()
		s.until(30 * sec)
		s.Leave(s.enter(), breaker.Succeeded) // a probe like any other
		s.attempts(3, breaker.Succeeded)
		s.want(breaker.Closed)
	})
}

// After a closing, everything starts from nothing.
func TestRoundAndRound(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		for range 50 {
			s.attempts(4, breaker.Failed)
			s.want(breaker.Closed)
			s.attempts(1, breaker.Failed)
			s.want(breaker.Open)
			s.until(s.at() + 30*sec)
			s.attempts(3, breaker.Succeeded)
			s.want(breaker.HalfOpen)
			s.attempts(1, breaker.Succeeded)
			s.want(breaker.Closed)
		}
	})
}
