package breaker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

func TestWaitIsFirstComeFirstServed(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		cs := s.waits(20)
		s.until(30 * sec)
		s.wantBack(5, cs)
		late := s.wait()
		for n := 6; n <= 12; n++ {
			s.Leave(s.enter(), breaker.Ignored)
			s.until(30 * sec)
			s.wantBack(n, cs)
		}
		if late.back() {
			t.Fatal("a late caller overtook")
		}
		for range 4 {
			s.Leave(s.enter(), breaker.Succeeded)
		}
		s.until(30 * sec)
		s.wantBack(20, cs)
		if !late.back() {
			t.Fatal("closed, and one still waits")
		}
	})
}

// Whoever gives up leaves the others as if it had never asked.
func TestCancelAtHeadMiddleAndTail(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		cs := s.waits(9)
		for _, i := range []int{0, 4, 8} {
			cs[i].cancel()
			<-cs[i].done
			if !errors.Is(cs[i].err, context.Canceled) || cs[i].when != 0 {
				t.Fatalf("call %d: %v at %v", i, cs[i].err, cs[i].when)
			}
		}
		s.until(30 * sec)
		left := []*call{cs[1], cs[2], cs[3], cs[5], cs[6], cs[7]}
		s.wantBack(5, left)
		left[5].cancel()
	})
}

func TestWaitErrors(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		if err := s.Wait(ended()); !errors.Is(err, context.Canceled) {
			t.Errorf("closed, with an ended context: %v", err)
		}
		s.trip()
		if err := s.Wait(ended()); !errors.Is(err, context.Canceled) {
			t.Errorf("open, with an ended context: %v", err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*sec, errIll)
		defer cancel()
		err := s.Wait(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errIll) || s.at() != 10*sec {
			t.Errorf("%v at %v, want the deadline and its cause at 10s", err, s.at())
		}
		if want := "breaker: while waiting for an attempt (open): ill"; err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		s.until(30 * sec)
		if err := s.Wait(ended()); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "half-open") {
			t.Errorf("half-open, with an ended context: %v", err)
		}
		s.enters(5) // an ended context takes no place
	})
}

func TestSkipOffersThePlaceToTheNext(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.Skip() // nothing to it when closed
		s.trip()
		cs := s.waits(8)
		s.Skip() // nor when open
		s.until(30 * sec)
		s.wantBack(5, cs)
		s.Skip()
		s.until(30 * sec)
		s.wantBack(6, cs)
		s.enters(5)
		s.Skip() // all who were let through are under way
		s.until(30 * sec)
		s.wantBack(6, cs)
		for _, c := range cs {
			c.cancel()
		}
	})
}

// Callers that are let through and neither enter nor skip hold the others up, but not for ever.
func TestForgottenPromisesLapse(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		cs := s.waits(12)
		s.until(30 * sec)
		s.wantBack(5, cs)
		s.until(60*sec - nano)
		s.wantBack(5, cs)
		s.until(60 * sec)
		s.wantBack(10, cs)
		s.want(breaker.HalfOpen)
		s.until(90 * sec)
		s.wantBack(12, cs)
		s.until(time.Hour) // five promises, nobody waits: the next one need not wait either
		s.waits(3)
		s.until(2 * time.Hour)
		s.pass()
		s.enters(5)
		s.refused()
	})
}

// A place that is won and a context that ends, at one instant: whichever the caller sees, no place is lost.
func TestCancelAtTheInstantOfTheGrant(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		var cs []*call
		for i := range 20 {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if i%2 == 0 {
				ctx, cancel = context.WithTimeout(ctx, 30*sec)
			}
			defer cancel()
			cs = append(cs, s.waitCtx(ctx))
		}
		s.until(30 * sec)
		back := 0
		for i, c := range cs {
			switch {
			case !c.back() && i%2 == 0:
				t.Fatalf("call %d is not back at its deadline", i)
			case c.back() && c.err == nil:
				back++
			case c.back() && i%2 == 1:
				t.Fatalf("call %d: %v", i, c.err)
			}
		}
		if back != 5 {
			t.Fatalf("%d were let through, want 5", back)
		}
		for range 4 {
			s.Leave(s.enter(), breaker.Succeeded)
		}
	})
}

// A context that ends while Wait is on its way: there is a place, but it is not for this caller.
func TestContextEndsWithinWait(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.trip()
		s.until(30 * sec)
		for range 50 {
			if err := s.Wait(&ending{Context: ended()}); !errors.Is(err, context.Canceled) {
				t.Fatalf("%v, want the context's error", err)
			}
		}
		cs := s.waits(6) // none of the places is gone
		s.wantBack(5, cs)
		cs[5].cancel()
	})
}

// ending is a context that ends after it has been asked once.
type ending struct {
	context.Context
	asked bool
}

func (c *ending) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return c.Context.Err()
}

// The engine's loop with a limiter that is slower than the breaker: nobody is lost, everybody is called once.
func TestManyCallersComeThroughAnIllness(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		called := make([]int, 200)
		ill := func() bool { return s.at() < 100*sec }
		for i := range called {
			s.wg.Go(func() {
				for called[i] == 0 {
					if err := s.Wait(t.Context()); err != nil {
						panic(err)
					}
					time.Sleep(time.Duration(i%7) * sec) // the limiter
					ticket, ok := s.Enter()
					if !ok {
						continue
					}
					time.Sleep(time.Duration(i%5) * sec) // the call
					if ill() {
						s.Leave(ticket, breaker.Failed)
						continue // a retry
					}
					called[i]++
					s.Leave(ticket, breaker.Succeeded)
				}
			})
		}
		s.wg.Wait()
		for i, n := range called {
			if n != 1 {
				t.Errorf("caller %d was served %d times", i, n)
			}
		}
		s.want(breaker.Closed)
		if s.at() > 200*sec {
			t.Errorf("it took %v", s.at())
		}
	})
}
