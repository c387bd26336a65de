package ratelimiter

import (
	"sync"
	"time"
)

// A single is the common part of the limiters that are one limit: the limit, the
// line of those who ask for it alone, and the methods that need to know nothing
// of the schedule.
type single struct {
	limit   limit
	line    line
	part    [1]part // the line's only part
	waiters sync.Pool
}

// init makes s ready for use.
func (s *single) init(sched schedule, name string, most int64) {
	base := time.Now()
	s.limit.setSchedule(base, sched)
	s.limit.name, s.limit.most = name, most
	s.waiters.New = func() any { return newWaiter() }
	s.part[0].limit = &s.limit
	s.line.guard.init()
	s.line.init(base, &s.waiters, s.part[:])
}

// whole, share, varies and appendParts make every single limit a member.
func (s *single) whole() bool    { return true }
func (s *single) share(g *guard) { merge(&s.line.guard, g) }
func (s *single) varies() fields { return none }

func (s *single) leaves(tell func(any)) { tell(&s.limit) }
func (s *single) appendParts(parts []part, _ Request) ([]part, error) {
	return append(parts, part{limit: &s.limit}), nil
}

// change makes f's change to the limit, at its instant now and under the lock,
// and re-times whoever waits.
func (s *single) change(f func(now int64)) {
	d := s.line.lock()
	now := s.line.now()
	f(now)
	d.changed(&s.limit, s.line.at(now))
	d.settle(s.line.at(now))
	d.unlock()
}

// stats asks the schedule, by way of available, for what would be granted now.
func (s *single) stats(available func(now int64) int64) Stats {
	d := s.line.lock()
	defer d.mu.Unlock()
	n := 0
	for _, l := range s.limit.lines {
		for w := l.head; w != nil; w = w.next {
			n++
		}
	}
	return Stats{Available: toInt(available(s.line.now())), Waiting: n}
}

// Stats is a look at a limit.
type Stats struct {
	// Available is the cost that would be granted at this instant: for a spaced
	// bucket 0 or 1, for one with bursts the tokens in it, for a window its room.
	// While callers wait, it is theirs.
	Available int
	// Waiting is the number of callers that wait for the limit, also as one of
	// several.
	Waiting int
}
