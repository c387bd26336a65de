package breaker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sec  = time.Second
	nano = time.Nanosecond
)

var errIll = errors.New("ill")

func must(b *breaker.Breaker, err error) *breaker.Breaker {
	if err != nil {
		panic(err)
	}
	return b
}

// A turn is a change of state as OnChange was told of it.
type turn struct {
	at       time.Duration
	from, to breaker.State
}

// A stage is a bubble with a breaker, its callers, and a log of its changes.
type stage struct {
	*breaker.Breaker
	t     *testing.T
	start time.Time
	wg    sync.WaitGroup
	mu    sync.Mutex
	turns []turn
}

// virtual runs f in a bubble, in which all callers must have come back at the end.
func virtual(t *testing.T, f func(t *testing.T, s *stage), opts ...breaker.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, start: time.Now()}
		s.Breaker = must(breaker.New(append(opts, breaker.WithOnChange(s.note))...))
		f(t, s)
		s.wg.Wait()
	})
}

func (s *stage) note(from, to breaker.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = append(s.turns, turn{s.at(), from, to})
}

// at is how much time has passed.
func (s *stage) at() time.Duration { return time.Since(s.start) }

// until lets time pass.
func (s *stage) until(at time.Duration) {
	s.t.Helper()
	if at < s.at() {
		s.t.Fatalf("it is %v already, not %v", s.at(), at)
	}
	time.Sleep(at - s.at())
	synctest.Wait()
}

func (s *stage) want(state breaker.State) {
	s.t.Helper()
	if got := s.State(); got != state {
		s.t.Fatalf("%v at %v, want %v", got, s.at(), state)
	}
}

// wantTurns checks all changes so far.
func (s *stage) wantTurns(want ...turn) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.turns, want) {
		s.t.Fatalf("changes are %v, want %v", s.turns, want)
	}
}

// A call is a Wait on its way.
type call struct {
	cancel context.CancelFunc
	done   chan struct{}
	when   time.Duration // set before done is closed, like err
	err    error
}

// back reports whether the caller has come back.
func (c *call) back() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// wait starts a Wait and lets it get as far as it gets without time passing.
func (s *stage) wait() *call { return s.waitCtx(s.t.Context()) }

func (s *stage) waitCtx(ctx context.Context) *call {
	ctx, cancel := context.WithCancel(ctx)
	c := &call{cancel: cancel, done: make(chan struct{})}
	s.wg.Go(func() {
		defer cancel()
		c.err = s.Wait(ctx)
		c.when = s.at()
		close(c.done)
	})
	synctest.Wait()
	return c
}

func (s *stage) waits(n int) []*call {
	cs := make([]*call, n)
	for i := range cs {
		cs[i] = s.wait()
	}
	return cs
}

// wantBack checks that exactly the first n calls have come back, with nil.
func (s *stage) wantBack(n int, cs []*call) {
	s.t.Helper()
	for i, c := range cs {
		if c.back() != (i < n) {
			s.t.Fatalf("at %v call %d is back: %v, want the first %d of %d", s.at(), i, c.back(), n, len(cs))
		}
		if i < n && c.err != nil {
			s.t.Fatalf("call %d: %v", i, c.err)
		}
	}
}

// pass is a Wait that must not take any time.
func (s *stage) pass() {
	s.t.Helper()
	before := s.at()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Hour)
	defer cancel()
	if err := s.Wait(ctx); err != nil || s.at() != before {
		s.t.Fatalf("Wait: %v after %v, want nil at once", err, s.at()-before)
	}
}

// enter is an Enter that must succeed.
func (s *stage) enter() breaker.Ticket {
	s.t.Helper()
	t, ok := s.Enter()
	if !ok {
		s.t.Fatalf("Enter refused at %v, %v", s.at(), s.State())
	}
	return t
}

func (s *stage) enters(n int) []breaker.Ticket {
	s.t.Helper()
	ts := make([]breaker.Ticket, n)
	for i := range ts {
		ts[i] = s.enter()
	}
	return ts
}

// refused is an Enter that must fail.
func (s *stage) refused() {
	s.t.Helper()
	if _, ok := s.Enter(); ok {
		s.t.Fatalf("Enter succeeded at %v, %v", s.at(), s.State())
	}
}

// attempts makes n whole attempts that end as r says.
func (s *stage) attempts(n int, r breaker.Report) {
	s.t.Helper()
	for range n {
		s.pass()
		s.Leave(s.enter(), r)
	}
}

// trip opens the breaker now, from closed.
func (s *stage) trip() {
	s.t.Helper()
	s.want(breaker.Closed)
	for s.State() == breaker.Closed {
		s.attempts(1, breaker.Failed)
	}
	s.want(breaker.Open)
}

// ended is a context that has ended before anybody looks at it.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
