package breaker

import (
	"cmp"
	"container/list"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// never is later than every instant.
const never = int64(math.MaxInt64)

// A Breaker is a circuit breaker; see the package comment for what it does, and [New] for how to make one.
//
// It may be shared by any number of engines, and all its methods are safe for concurrent use. While it is closed a
// successful attempt costs a few atomic loads and no allocation, about 12 ns for Wait, Enter and Leave together; only
// failures take its lock. It must not be copied.
type Breaker struct {
	config
	base time.Time // of its clock, which counts nanoseconds

	epoch atomic.Uint64 // an epoch; changed under mu only

	mu       sync.Mutex
	failures []int64 // closed: when the latest ones were, a ring once it is threshold long
	oldest   int     // its oldest entry
	until    int64   // open: when the cooldown is over

	// Half-open has a number of places, the probes. A place is promised to the one who leaves Wait, used from Enter on,
	// and free again if nothing comes of it.
	succeeded, failed int
	promised          int
	promisedAt        int64   // the last of them
	running           []probe // in order of entering, which is that of their ids
	probeID           uint64  // the last one
	allowance         int64   // how long a probe may take

	waiters list.List // of *waiter: those in Wait

	timer *time.Timer
	alarm int64 // what it is set for; never: nothing

	changes []change // that have not been told yet
	telling bool     // somebody is at it
}

// New returns a closed breaker. Without options it opens at 5 failures within a minute, stays open for 30 s, and closes
// again when 4 of 5 probes succeed. An option out of its range is an error that names it, its value and the range;
// several are joined.
func New(opts ...Option) (*Breaker, error) {
	c, err := configure(opts)
	if err != nil {
		return nil, err
	}
	b := &Breaker{config: c, base: time.Now(), alarm: never, allowance: int64(c.cooldown)}
	b.epoch.Store(uint64(firstEpoch))
	return b, nil
}

// State returns the present state.
func (b *Breaker) State() State {
	if s := b.current().state(); s == Closed {
		return s
	}
	now := b.lock()
	defer b.unlock(now)
	return b.current().state()
}

// Failure reports whether err counts as a failure: never for nil, else as [WithTrip] says. A panic in its function
// passes through.
func (b *Breaker) Failure(err error) bool {
	return err != nil && (b.trip == nil || b.trip(err))
}

// Enter begins an attempt, at the moment at which the service is about to be called. It never waits. It returns false
// when the attempt must not be made: the breaker has opened since [Breaker.Wait], or all probes are under way. Then the
// caller gives back what it holds and calls Wait again. After true it must call [Breaker.Leave] with the ticket,
// whatever happens.
//
// An attempt that left Wait before the breaker opened and comes to Enter in half-open is a probe like any other.
func (b *Breaker) Enter() (Ticket, bool) {
	if e := b.current(); e.state() == Closed {
		return Ticket{epoch: e}, true
	}
	return b.enter()
}

// enter is Enter when it was not seen to be closed.
func (b *Breaker) enter() (Ticket, bool) {
	now := b.lock()
	defer b.unlock(now)
	e := b.current()
	switch {
	case e.state() == Closed:
		return Ticket{epoch: e}, true
	case e.state() == Open || b.free()+b.promised == 0:
		return Ticket{}, false
	}
	b.promised = max(b.promised-1, 0)
	b.probeID++
	p := probe{id: b.probeID, since: now}
	b.running = append(b.running, p)
	return Ticket{epoch: e, probe: p}, true
}

// Leave ends the attempt that t stands for and counts it. An unknown report counts as [Ignored]; a probe's second
// Leave does nothing.
//
// When the state has changed since the attempt began its report counts for nothing: neither do the last failures before
// a trip spoil the probes, nor does a probe that was given up speak for the ones after it. One thing is learned from it
// though: a probe that took longer than it was allowed, and succeeded after all, shows that this work simply takes so
// long. Probes may then take twice as long as it did, until the breaker has closed. Otherwise a breaker whose cooldown
// is shorter than the attempts would never close again.
func (b *Breaker) Leave(t Ticket, r Report) {
	if r == Failed || t.probe.id != 0 {
		b.leave(t, r)
	}
}

// leave is Leave for a report that may change something: a failure, or a probe's.
func (b *Breaker) leave(t Ticket, r Report) {
	now := b.lock()
	defer b.unlock(now)
	switch {
	case t.probe.id != 0 && t.epoch == b.current():
		b.endProbe(now, t.probe, r)
	case t.probe.id != 0:
		if took := now - t.probe.since; r == Succeeded && took >= b.allowance && b.current().state() != Closed {
			b.allowance = 2 * took
		}
	case t.epoch == b.current():
		b.fail(now)
	}
}

// Skip says that nothing comes of the last [Breaker.Wait]: the caller was let through and will not get to
// [Breaker.Enter], because its limiter refused or its context ended. In half-open the place that was promised to it goes
// to the next in line at once. Without Skip that happens too, but only when no place was promised for a whole cooldown.
func (b *Breaker) Skip() {
	if b.current().state() == Closed {
		return
	}
	now := b.lock()
	b.unpromise(now)
	b.unlock(now)
}

func (b *Breaker) current() epoch { return epoch(b.epoch.Load()) }

// lock makes what time has brought about true before anybody looks.
func (b *Breaker) lock() (now int64) {
	b.mu.Lock()
	now = int64(time.Since(b.base))
	b.advance(now)
	return now
}

func (b *Breaker) unlock(now int64) {
	b.setTimer(now)
	tell := len(b.changes) > 0 && !b.telling
	b.telling = b.telling || tell
	b.mu.Unlock()
	if tell {
		b.tell()
	}
}

// advance does what is due.
func (b *Breaker) advance(now int64) {
	if now < b.due() {
		return
	}
	switch {
	case b.current().state() == Open:
		b.become(HalfOpen, now)
	case len(b.running) > 0 && now >= b.running[0].since+b.allowance:
		b.become(Open, now)
	default: // those who were promised a place do not come
		b.promised = 0
		b.admit(now)
	}
}

// due is when time changes something next.
func (b *Breaker) due() int64 {
	due := never
	switch b.current().state() {
	case Open:
		due = b.until
	case HalfOpen:
		if len(b.running) > 0 {
			due = b.running[0].since + b.allowance
		}
		if b.promised > 0 && b.waiters.Len() > 0 {
			due = min(due, b.promisedAt+int64(b.cooldown))
		}
	}
	return due
}

func (b *Breaker) setTimer(now int64) {
	due := b.due()
	if due == b.alarm {
		return
	}
	b.alarm = due
	switch {
	case due == never:
		b.timer.Stop()
	case b.timer == nil:
		b.timer = time.AfterFunc(time.Duration(due-now), b.fire)
	default:
		b.timer.Reset(time.Duration(due - now))
	}
}

// fire is the timer going off. It may come for a setting that has been replaced since; then it finds nothing due.
func (b *Breaker) fire() {
	now := b.lock()
	b.alarm = never
	b.unlock(now)
}

// become begins a new epoch.
func (b *Breaker) become(to State, now int64) {
	e := b.current()
	b.epoch.Store(uint64(e.next(to)))
	b.failures, b.oldest = b.failures[:0], 0
	b.succeeded, b.failed, b.promised, b.running = 0, 0, 0, b.running[:0]
	switch to {
	case Open:
		b.until = now + int64(b.cooldown)
	case Closed:
		b.allowance = int64(b.cooldown)
	}
	if b.changed != nil {
		b.changes = append(b.changes, change{e.state(), to})
	}
	b.admit(now)
}

// fail counts a failure in closed. The last threshold failures are within the window exactly when the oldest of them is.
func (b *Breaker) fail(now int64) {
	if len(b.failures) < b.threshold {
		b.failures = append(b.failures, now)
	} else {
		b.failures[b.oldest] = now
		b.oldest = (b.oldest + 1) % b.threshold
	}
	if len(b.failures) == b.threshold && now-b.failures[b.oldest] < int64(b.window) {
		b.become(Open, now)
	}
}

// endProbe counts a probe in half-open, and decides when it can.
func (b *Breaker) endProbe(now int64, p probe, r Report) {
	i, ok := slices.BinarySearchFunc(b.running, p.id, func(p probe, id uint64) int { return cmp.Compare(p.id, id) })
	if !ok {
		return
	}
	b.running = slices.Delete(b.running, i, i+1)
	switch r {
	case Succeeded:
		b.succeeded++
	case Failed:
		b.failed++
	}
	switch {
	case b.succeeded >= b.need:
		b.become(Closed, now)
	case b.failed > b.probes-b.need:
		b.become(Open, now)
	default:
		b.admit(now)
	}
}

// free is how many probes may still be let out of Wait.
func (b *Breaker) free() int {
	return b.probes - b.succeeded - b.failed - len(b.running) - b.promised
}

// unpromise takes a promise back and offers the place to the next.
func (b *Breaker) unpromise(now int64) {
	if b.promised > 0 {
		b.promised--
		b.admit(now)
	}
}
