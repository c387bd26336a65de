package ratelimiter

import (
	"sync"
	"sync/atomic"
	"time"
)

// A domain is a lock over limits that can be wanted together, and over all lines
// of callers who want them. A limiter used alone is a domain of its own; NewAll
// and NewPausable merge the domains of what they are given, so that a request
// for several limits is decided at one instant under one lock, also when a limit
// is shared by several of them and used alone besides.
//
// The lock is never held while anybody waits.
type domain struct {
	mu      sync.Mutex
	into    *domain // non-nil once this domain has been merged into another
	size    int     // domains merged into this one, itself included
	seq     uint64  // number of the newest waiter
	todo    []*line // lines to be looked at before the lock is released
	granted struct{ first, last *waiter }
	// granted lists waiters to be woken when the lock has been released.
}

// A guard finds the domain that something belongs to at present.
type guard struct{ p atomic.Pointer[domain] }

func (g *guard) init() { g.p.Store(&domain{size: 1}) }

// lock locks the domain. The pointer is only a hint, since the domain may have
// been merged away; the field into, read under its lock, is the truth.
func (g *guard) lock() *domain {
	d := g.p.Load()
	d.mu.Lock()
	if d.into != nil {
		return g.follow(d)
	}
	return d
}

// follow unlocks d, which has been merged away, and locks what it is part of.
func (g *guard) follow(d *domain) *domain {
	for d.into != nil {
		next := d.into
		d.mu.Unlock()
		g.p.Store(next)
		d = next
		d.mu.Lock()
	}
	return d
}

// lockSensing is lock, and reports whether somebody else had the lock.
func (g *guard) lockSensing() (d *domain, contended bool) {
	d = g.p.Load()
	if d.mu.TryLock() {
		if d.into == nil {
			return d, false
		}
		d.mu.Unlock()
	}
	return g.lock(), true
}

// merging serialises merges, each of which holds two domains. It is never held
// while anybody waits.
var merging sync.Mutex

// merge makes g and other guards of one domain. The smaller domain goes into the
// larger one, so that a limit shared by many short-lived limiters does not
// collect a chain of them.
func merge(g, other *guard) {
	merging.Lock()
	defer merging.Unlock()
	a, b := g.root(), other.root()
	if a == b {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.size < b.size {
		a, b = b, a
	}
	b.into = a
	a.size += b.size
	a.seq = max(a.seq, b.seq)
}

// root is the domain of g, for as long as nothing is merged.
func (g *guard) root() *domain {
	d := g.lock()
	d.mu.Unlock()
	return d
}

// unlock releases the lock and then wakes whoever was granted something under
// it.
func (d *domain) unlock() {
	w := d.granted.first
	d.granted.first, d.granted.last = nil, nil
	d.mu.Unlock()
	for w != nil {
		next := w.next // after the send w belongs to its caller
		w.ready <- struct{}{}
		w = next
	}
}

// wake has w woken when the lock is released. w is in no line any more.
func (d *domain) wake(w *waiter) {
	w.left = true
	w.next = nil
	if d.granted.last == nil {
		d.granted.first = w
	} else {
		d.granted.last.next = w
	}
	d.granted.last = w
}

// look notes that l must be looked at before the lock is released.
func (d *domain) look(l *line) {
	if !l.noted && l.head != nil {
		l.noted = true
		d.todo = append(d.todo, l)
	}
}

// lookBeside notes the lines that may gain from the head of l having left: those
// that share a limit with it.
func (d *domain) lookBeside(l *line, at time.Time) {
	for i := range l.parts {
		x := l.parts[i].limit
		d.lookThrough(x, x.lines, l, at)
	}
}

// lookBehind notes the lines behind l in x that may gain from l being held up.
func (d *domain) lookBehind(x *limit, l *line, at time.Time) {
	for i, g := range x.lines {
		if g == l {
			d.lookThrough(x, x.lines[i+1:], l, at)
			return
		}
	}
}

// lookThrough notes the given lines of x but except in order, up to the first that
// no other limit holds up: either it can go now, and then others are noted in its
// turn, or it waits for this very limit and is not overtaken.
func (d *domain) lookThrough(x *limit, lines []*line, except *line, at time.Time) {
	now := int64(at.Sub(x.base))
	for _, g := range lines {
		if g != except {
			d.look(g)
		}
		if g.partOf(x).heldUntil() <= now {
			return
		}
	}
}

// changed notes all lines that want something of x, which has changed.
func (d *domain) changed(x *limit, at time.Time) {
	for _, g := range x.lines {
		if now := g.clock(at); g.due > now {
			g.since = max(g.since, now) // a new reason to wait or not starts now
		}
		d.look(g)
	}
}

// settle grants whatever can be granted at the instant at, starting from the
// lines noted in todo, and leaves every line with waiters in one of two states:
// either its timer is set for the instant its head may go, or the head is
// held up by a line before it in one of its limits, which notes it when it moves.
func (d *domain) settle(at time.Time) {
	for len(d.todo) > 0 {
		l := d.first()
		l.advance(d, at)
	}
}

// first takes the line out of todo whose head came first.
func (d *domain) first() *line {
	best := 0
	for i, l := range d.todo {
		if b := d.todo[best]; l.head != nil && (b.head == nil || l.head.seq < b.head.seq) {
			best = i
		}
	}
	l := d.todo[best]
	last := len(d.todo) - 1
	d.todo[best] = d.todo[last]
	d.todo[last] = nil
	d.todo = d.todo[:last]
	l.noted = false
	return l
}
