package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"pgregory.net/rapid"
)

// The model is the breaker as people describe it. It keeps everything that ever happened in lists, goes from event to
// event, and works all numbers out anew each time.
type model struct {
	threshold, probes, percent int
	window, cooldown           time.Duration

	now      time.Duration
	state    breaker.State
	epoch    int
	turns    []turn
	failures []time.Duration // of this closed
	opened   time.Duration
	begun    []*attempt      // of this half-open
	promises []time.Duration // of this half-open, not yet kept
	patience time.Duration
	line     []int
	through  map[int]bool // callers let through
}

type attempt struct {
	epoch  int
	probe  bool
	since  time.Duration
	report breaker.Report // 0: running
}

func (m *model) become(s breaker.State) {
	m.turns = append(m.turns, turn{m.now, m.state, s})
	m.state = s
	m.epoch++
	m.failures, m.begun, m.promises = nil, nil, nil
	m.opened = m.now // if it has
	if s == breaker.Closed {
		m.patience = m.cooldown
	}
	m.serve()
}

func (m *model) count(r breaker.Report) (n int) {
	for _, a := range m.begun {
		if a.report == r {
			n++
		}
	}
	return n
}

// places is how many more attempts could be begun, promises aside.
func (m *model) places() int {
	return m.probes - m.count(0) - m.count(breaker.Succeeded) - m.count(breaker.Failed)
}

func (m *model) serve() {
	for len(m.line) > 0 && (m.state == breaker.Closed || m.state == breaker.HalfOpen && m.places() > len(m.promises)) {
		m.through[m.line[0]] = true
		m.line = m.line[1:]
		if m.state == breaker.HalfOpen {
			m.promises = append(m.promises, m.now)
		}
	}
}

// run lets time pass, one event after the other.
func (m *model) run(until time.Duration) {
	for {
		at, event := until+1, func() {}
		consider := func(t time.Duration, f func()) {
			if t < at {
				at, event = t, f
			}
		}
		if m.state == breaker.Open {
			consider(m.opened+m.cooldown, func() { m.become(breaker.HalfOpen) })
		}
		for _, a := range m.begun {
			if a.report == 0 {
				consider(a.since+m.patience, func() { m.become(breaker.Open) })
			}
		}
		if len(m.promises) > 0 && len(m.line) > 0 {
			consider(slices.Max(m.promises)+m.cooldown, func() { m.promises = nil; m.serve() })
		}
		if at > until {
			m.now = until
			return
		}
		m.now = max(m.now, at)
		event()
	}
}

func (m *model) wait(id int) {
	m.line = append(m.line, id)
	m.serve()
	m.run(m.now) // it may be the first one to wait for promises that have lapsed long since
}

func (m *model) enter() *attempt {
	switch {
	case m.state == breaker.Closed:
		return &attempt{epoch: m.epoch}
	case m.state == breaker.Open || m.places() == 0:
		return nil
	}
	m.keep()
	a := &attempt{epoch: m.epoch, probe: true, since: m.now}
	m.begun = append(m.begun, a)
	return a
}

func (m *model) leave(a *attempt, r breaker.Report) {
	switch {
	case a.epoch != m.epoch:
		if took := m.now - a.since; a.probe && r == breaker.Succeeded && took >= m.patience && m.state != breaker.Closed {
			m.patience = 2 * took
		}
	case a.probe && a.report == 0:
		a.report = r
		switch {
		case m.count(breaker.Succeeded)*100 >= m.percent*m.probes:
			m.become(breaker.Closed)
		case (m.probes-m.count(breaker.Failed))*100 < m.percent*m.probes:
			m.become(breaker.Open)
		}
		m.serve()
	case !a.probe && r == breaker.Failed:
		m.failures = append(m.failures, m.now)
		recent := 0
		for _, f := range m.failures {
			if f > m.now-m.window {
				recent++
			}
		}
		if recent >= m.threshold {
			m.become(breaker.Open)
		}
	}
}

func (m *model) skip() {
	m.keep()
	m.serve()
}

// keep takes a promise off. Nobody can tell whose it was; the last one decides when all lapse, so it is the last to go.
func (m *model) keep() {
	if len(m.promises) > 0 {
		m.promises = m.promises[1:]
	}
}

// source is where a sequence of operations comes from: rapid or a fuzzer.
type source interface {
	// choose returns a number from 0 to n-1.
	choose(what string, n int) int
}

type rapidSource struct{ *rapid.T }

func (s rapidSource) choose(what string, n int) int { return rapid.IntRange(0, n-1).Draw(s.T, what) }

type byteSource struct{ rest []byte }

func (s *byteSource) choose(_ string, n int) int {
	if len(s.rest) == 0 {
		return 0
	}
	b := int(s.rest[0])
	s.rest = s.rest[1:]
	return b % n
}

// play runs a random sequence of operations on a breaker and the model, and compares them after each. It is called in a
// bubble.
func play(t *testing.T, src source, steps int, fail func(format string, args ...any)) {
	m := &model{
		threshold: src.choose("threshold", 4) + 1, window: time.Duration(src.choose("window", 8)+1) * sec,
		cooldown: time.Duration(src.choose("cooldown", 6)+1) * sec,
		probes:   src.choose("probes", 5) + 1, percent: (src.choose("ratio", 10) + 1) * 10,
		through: map[int]bool{},
	}
	m.patience = m.cooldown
	s := &stage{t: t, start: time.Now()}
	s.Breaker = must(breaker.New(breaker.WithThreshold(m.threshold, m.window), breaker.WithCooldown(m.cooldown),
		breaker.WithProbes(m.probes, float64(m.percent)/100), breaker.WithOnChange(s.note)))

	var calls []*call
	var tickets []breaker.Ticket
	var attempts []*attempt
	defer func() {
		for _, c := range calls {
			c.cancel()
		}
		s.wg.Wait()
	}()
	for range steps {
		switch op := src.choose("op", 12); op {
		case 0, 1:
			time.Sleep(time.Duration(src.choose("sleep", 10)) * sec)
			m.run(s.at())
		case 2, 3:
			m.wait(len(calls))
			calls = append(calls, s.wait())
		case 4, 5, 6:
			ticket, ok := s.Enter()
			a := m.enter()
			if ok != (a != nil) {
				fail("at %v, %v: Enter is %v", s.at(), m.state, ok)
			}
			if ok {
				tickets, attempts = append(tickets, ticket), append(attempts, a)
			}
		case 7, 8, 9: // one of the last few, perhaps left before
			if len(tickets) == 0 {
				continue
			}
			i := len(tickets) - 1 - src.choose("ticket", min(len(tickets), 8))
			r := breaker.Report(src.choose("report", 4)) // 0 is unknown, and counts as Ignored
			s.Leave(tickets[i], r)
			if r == 0 {
				r = breaker.Ignored
			}
			m.leave(attempts[i], r)
		case 10:
			s.Skip()
			m.skip()
		case 11:
			if len(calls) == 0 {
				continue
			}
			i := src.choose("call", len(calls))
			if j := slices.Index(m.line, i); j >= 0 {
				m.line = slices.Delete(m.line, j, j+1)
				calls[i].cancel()
				synctest.Wait()
				if !calls[i].back() || !errors.Is(calls[i].err, context.Canceled) {
					fail("at %v: call %d was cancelled, and is back: %v", s.at(), i, calls[i].back())
				}
			}
		}
		synctest.Wait()
		compare(s, m, calls, fail)
	}
}

func compare(s *stage, m *model, calls []*call, fail func(format string, args ...any)) {
	if got := s.State(); got != m.state {
		fail("at %v: %v, want %v", s.at(), got, m.state)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.turns, m.turns) {
		fail("at %v: changes %v, want %v", s.at(), s.turns, m.turns)
	}
	through := map[int]bool{}
	for i, c := range calls {
		if c.back() && c.err == nil {
			through[i] = true
		}
	}
	if !maps.Equal(through, m.through) {
		fail("at %v, %v: let through %v, want %v", s.at(), m.state, through, m.through)
	}
}

// wrong is what went wrong, thrown out of a bubble.
type wrong string

// TestModel runs random sequences of operations against the model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.IntRange(1, 300).Draw(rt, "steps")
		var thrown any // rapid steers by panics, which must not stay in the bubble
		synctest.Test(t, func(t *testing.T) {
			defer func() { thrown = recover() }()
			play(t, rapidSource{rt}, steps, func(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) })
		})
		if w, ok := thrown.(wrong); ok {
			rt.Fatal(w)
		} else if thrown != nil {
			panic(thrown)
		}
	})
}

// FuzzModel is TestModel with the fuzzer's choices.
func FuzzModel(f *testing.F) {
	f.Add([]byte{1, 2, 2, 4, 7, 4, 7, 0, 2, 2, 2, 0, 9, 4, 4, 7, 0, 1, 7, 1, 1, 4, 7, 0, 1, 0, 8})
	f.Add([]byte{0, 0, 3, 2, 9, 4, 7, 0, 2, 2, 3, 2, 2, 11, 1, 0, 4, 10, 4, 0, 4, 7, 0, 1, 0, 9, 10})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			play(t, &byteSource{data}, len(data), t.Fatalf)
		})
	})
}
