package ratelimiter

import "fmt"

// CheckLines returns what is wrong with the lines of those who wait for any of
// the limits, at an instant at which everything has come to rest: somebody who
// could go, or who would not be woken when they can.
func CheckLines(limits ...interface{ theLimit() *single }) error {
	for _, x := range limits {
		s := x.theLimit()
		d := s.line.lock()
		err := check(d, s)
		d.mu.Unlock()
		if err != nil {
			return fmt.Errorf("%s: %w", s.limit.name, err)
		}
	}
	return nil
}

func check(d *domain, s *single) error {
	for i, l := range s.limit.lines {
		now := l.now()
		if l.head == nil {
			return fmt.Errorf("line %d has nobody in it", i)
		}
		if i > 0 && s.limit.lines[i-1].head.seq > l.head.seq {
			return fmt.Errorf("line %d is out of order", i)
		}
		due, held := l.since, false
		for j := range l.parts {
			p := &l.parts[j]
			if p.begins != nil && !p.first(l) {
				held = true
				continue
			}
			due = max(due, p.earliest(now, l.head.ask))
			held = held || !l.turn(p, now, p.cost(l.head.ask), l.head.seq)
		}
		switch {
		case held:
		case due <= now:
			return fmt.Errorf("line %d could go since %d, it is %d", i, due, now)
		case due < never && l.armed > due:
			return fmt.Errorf("line %d can go at %d, its timer is set for %d", i, due, l.armed)
		}
	}
	if len(d.todo) > 0 || d.granted.first != nil {
		return fmt.Errorf("something was left to do")
	}
	return nil
}

func (s *single) theLimit() *single { return s }

// Fired is how often the timer of a single limit's own line has gone off.
func Fired(x interface{ theLimit() *single }) uint64 {
	s := x.theLimit()
	d := s.line.lock()
	defer d.mu.Unlock()
	return s.line.fired
}

// Base is the instant that a single limit counts from, as text.
func Base(x interface{ theLimit() *single }) string { return x.theLimit().line.base.String() }

// Remembered is how many grants a window has room to remember.
func Remembered(w *SlidingWindow) int { return len(w.window.ring) }
