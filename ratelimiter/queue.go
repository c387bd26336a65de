package ratelimiter

import (
	"context"
	"sync"
	"time"
)

// A line is the first-in-first-out queue of the callers that want the same
// limits. Callers hold nothing while they wait: the limits are charged when the
// head of the line is granted, on all of them at one instant, and so a caller
// that gives up leaves nothing behind, wherever it stood.
//
// A line keeps no goroutine. While somebody waits, its one timer is set for the
// instant at which the head may go, unless a line before it in a shared limit
// holds it up.
type line struct {
	guard
	base   time.Time
	parts  []part
	stamps bool // some part's schedule is a stamper
	begins bool // some part's schedule is a beginner
	pool   *sync.Pool
	// pool belongs to the limiter, not to the package: a waiter's channel must
	// stay in the synctest bubble it was made in.
	idle func() // called when a request leaves nobody waiting; may be nil

	// Guarded by the domain. head is nil exactly when nobody waits; then the
	// timer is stopped and the line is in no limit's lines.
	head, tail *waiter
	since      int64 // the head could not have been granted before, whatever the limits say
	due        int64 // when the limits let the head go, as last worked out
	held       bool  // the head is held up by a line before it
	noted      bool  // in the domain's todo
	used       bool  // somebody has waited in it
	timer      *time.Timer
	armed      int64  // what the timer is set for; never when it is stopped
	fired      uint64 // how often the timer went off
}

// A waiter is a caller in a line. It leaves the line under the lock: granted, or
// refused, or because it gave up. Who sees left false under the lock decides.
type waiter struct {
	ready      chan struct{} // holds one signal: left the line by a decision of the line
	prev, next *waiter
	seq        uint64 // order of arrival in the domain
	asked      int64
	ask        ask
	left       bool
	err        error    // why it was refused; nil: granted
	alarms     []*alarm // by part, if the line has stampers; to be stopped when awake
}

func newWaiter() *waiter { return &waiter{ready: make(chan struct{}, 1)} }

// init makes l a line for the given limits on a clock of its own. The guard must
// have been set, to the domain of the limits.
func (l *line) init(base time.Time, pool *sync.Pool, parts []part) {
	l.base, l.pool, l.parts, l.armed = base, pool, parts, never
	l.stamps, l.begins = false, false
	for i := range parts {
		p := &parts[i]
		p.ahead = int64(base.Sub(p.base))
		l.stamps = l.stamps || p.stamps != nil
		l.begins = l.begins || p.begins != nil
	}
}

func (l *line) now() int64               { return int64(time.Since(l.base)) }
func (l *line) clock(at time.Time) int64 { return int64(at.Sub(l.base)) }
func (l *line) at(now int64) time.Time   { return l.base.Add(time.Duration(now)) }

// acquire waits without limit.
func (l *line) acquire(ctx context.Context, req Request) error {
	if ctx.Err() != nil {
		return gaveUp(ctx, l.String())
	}
	return l.enter(ctx, l.lock(), askOf(req), Never)
}

// acquireWithin waits no longer than most.
func (l *line) acquireWithin(ctx context.Context, req Request, most time.Duration) error {
	if ctx.Err() != nil {
		return gaveUp(ctx, l.String())
	}
	return l.enter(ctx, l.lock(), askOf(req), max(most, 0))
}

// tryAcquire does not wait at all.
func (l *line) tryAcquire(req Request) (bool, time.Duration) {
	return l.try(l.lock(), askOf(req))
}

// enter is a request's way through the line. It is called with the domain
// locked and returns with it unlocked.
func (l *line) enter(ctx context.Context, d *domain, a ask, most time.Duration) error {
	now := l.now()
	if l.head == nil && l.open(d, now, a) {
		l.take(now, now, a, nil)
		l.leaveIdle()
		d.mu.Unlock()
		return nil
	}
	if err := l.refuse(ctx, now, a, most); err != nil {
		l.leaveIdle()
		d.mu.Unlock()
		return err
	}
	w := l.join(d, now, a)
	if l.head == w {
		d.look(l)
		d.settle(l.at(now))
	}
	d.unlock()
	return l.await(ctx, w, most)
}

// try is enter for a request that does not wait.
func (l *line) try(d *domain, a ask) (ok bool, retryAfter time.Duration) {
	defer d.mu.Unlock()
	defer l.leaveIdle()
	now := l.now()
	if l.head == nil && l.open(d, now, a) {
		l.take(now, now, a, nil)
		return true, 0
	}
	if l.tooDear(a) != nil {
		return false, Never
	}
	t, _ := l.estimate(now, a)
	return false, max(wait(now, t), 1) // never "at once": that was just refused
}

// adjust tells all limits the true cost of a grant, at one instant. It is called
// with the domain locked and returns with it unlocked.
func (l *line) adjust(d *domain, a ask, actual int) {
	now, actual := l.now(), max(actual, 0)
	for i := range l.parts {
		p := &l.parts[i]
		if a.cost < 0 || p.unit && actual > 0 {
			continue // was never granted; or was one request, and still is
		}
		p.sched.adjust(now+p.ahead, p.cost(a), int64(actual), a.tag)
		d.changed(p.limit, l.at(now))
	}
	d.settle(l.at(now))
	l.leaveIdle()
	d.unlock()
}

// open reports whether a request that finds the line empty may go at once.
func (l *line) open(d *domain, now int64, a ask) bool {
	if l.begins {
		l.begin(now, d.seq+1) // its number if it has to wait
	}
	for i := range l.parts {
		p := &l.parts[i]
		c := p.cost(a)
		if p.begins != nil && len(p.lines) > 0 { // somebody else's turn
			return false
		}
		if c < 0 || c > p.most || p.sched.earliest(now+p.ahead, c) > now+p.ahead {
			return false
		}
		if len(p.lines) > 0 && !l.turn(p, now, c, ^uint64(0)) {
			return false
		}
	}
	return true
}

// turn reports whether a request of this line, numbered seq, may be granted cost
// by p at now without harm to the lines before it there.
func (l *line) turn(p *part, now, cost int64, seq uint64) bool {
	for _, g := range p.lines {
		if g == l || g.head.seq > seq {
			return true
		}
		if !p.yields(g, now+p.ahead, cost) {
			return false
		}
	}
	return true
}

// take charges all limits, for the waiter w unless it is nil.
func (l *line) take(now, ready int64, a ask, w *waiter) {
	for i := range l.parts {
		p := &l.parts[i]
		p.sched.take(now+p.ahead, ready+p.ahead, p.cost(a), a.tag)
		if w == nil || !l.stamps {
			continue
		}
		var k *alarm
		if p.stamps != nil {
			k = p.stamps.asleep()
		}
		w.alarms = append(w.alarms, k)
	}
}

// refuse returns why a request must not even queue: its cost is too high, its
// deadline is too near, or it would wait longer than most.
func (l *line) refuse(ctx context.Context, now int64, a ask, most time.Duration) error {
	if p := l.tooDear(a); p != nil {
		return p.costError(a)
	}
	if most != Never {
		t, p := l.estimate(now, a)
		if in := wait(now, t); in > most {
			return &ExcessError{Limit: p.name, Scope: p.scope, RetryAfter: in}
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		// Callers ahead may give up, so only what holds without them is certain.
		// A limit that grants nothing at present may be changed at any time.
		t, p := l.soonest(now, a)
		if in := wait(now, t); in != Never && in > time.Until(deadline) {
			return hopeless(p.String(), in)
		}
	}
	return nil
}

// tooDear returns the part that can never grant a, or nil.
func (l *line) tooDear(a ask) *part {
	for i := range l.parts {
		if p := &l.parts[i]; a.cost < 0 || p.cost(a) > p.most {
			return p
		}
	}
	return nil
}

func (p *part) costError(a ask) error {
	return &CostError{Limit: p.String(), Cost: toInt(a.cost), Max: toInt(p.most)}
}

// soonest is when a could be granted if nobody was ahead, and the limit that
// decides it.
func (l *line) soonest(now int64, a ask) (t int64, by *part) {
	t = longAgo
	for i := range l.parts {
		p := &l.parts[i]
		var e int64
		if p.begins != nil && len(p.lines) > 0 {
			e = p.toLine(p.begins.atBest(now+p.ahead, p.cost(a)))
		} else {
			e = p.earliest(now, a)
		}
		if by == nil || e > t {
			t, by = e, p
		}
	}
	return t, by
}

// estimate is when a will be granted if it queues now, nobody gives up and
// nothing changes, and the limit that decides it.
func (l *line) estimate(now int64, a ask) (t int64, by *part) {
	t = longAgo
	for i := range l.parts {
		p := &l.parts[i]
		c := p.cost(a)
		e := p.toLine(p.sched.after(now+p.ahead, l.ahead(p, now+p.ahead, c), c))
		if by == nil || e > t {
			t, by = e, p
		}
	}
	return t, by
}

// ahead is the cost of all who would be granted by p before a newcomer to the
// line that asks for cost. Lines that something else holds up may let it pass.
func (l *line) ahead(p *part, now, cost int64) (sum int64) {
	for _, g := range p.lines {
		if g == l || !p.yields(g, now, cost) {
			sum += g.partOf(p.limit).queued
		}
	}
	return sum
}

// join appends a waiter.
func (l *line) join(d *domain, now int64, a ask) *waiter {
	w := l.pool.Get().(*waiter)
	d.seq++
	w.seq, w.asked, w.ask = d.seq, now, a
	w.prev, w.next = l.tail, nil
	l.used = true
	if l.tail != nil {
		l.tail.next = w
	}
	l.tail = w
	for i := range l.parts {
		p := &l.parts[i]
		p.queued += p.cost(a)
	}
	if l.head == nil {
		l.head = w
		l.newHead(now)
	}
	return w
}

// leave takes w out. since is when the caller behind it, if it was the head,
// could have become the head.
func (l *line) leave(w *waiter, since int64) {
	for i := range l.parts {
		p := &l.parts[i]
		p.queued -= p.cost(w.ask)
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.tail = w.prev
	}
	if w.prev != nil {
		w.prev.next = w.next
		return
	}
	if l.begins {
		l.end(since)
	}
	l.head = w.next
	if l.head == nil {
		l.newHead(longAgo)
		l.disarm()
		l.leaveIdle()
		return
	}
	l.newHead(max(since, l.head.asked))
}

// begin begins the turn of the line's request numbered seq, unless it has begun,
// with all beginners for whom nobody is before it.
func (l *line) begin(now int64, seq uint64) {
	for i := range l.parts {
		p := &l.parts[i]
		if p.begins != nil && p.first(l) && (l.head == nil || p.turn != seq) {
			p.turn = seq
			p.begins.begin(max(now+p.ahead, p.ended))
		}
	}
}

// end ends the turns of the head of the line.
func (l *line) end(now int64) {
	for i := range l.parts {
		if p := &l.parts[i]; p.first(l) {
			p.ended = now + p.ahead
		}
	}
}

func (l *line) leaveIdle() {
	if l.idle != nil && l.head == nil {
		l.idle()
	}
}

// advance grants the requests at the head of the line that may go, works out
// what holds up the next, and sets the timer for it. It notes the lines that may
// gain by it.
func (l *line) advance(d *domain, at time.Time) {
	now := l.clock(at)
	for w := l.head; w != nil; w = l.head {
		if p := l.tooDear(w.ask); p != nil { // the limit has been changed
			w.err = p.costError(w.ask)
			l.leave(w, now)
			d.wake(w)
			d.lookBeside(l, at)
			continue
		}
		known, wasHeld := l.due, l.held
		l.examine(now, w)
		if l.due <= now && l.held && l.lookBefore(d, now) {
			d.look(l)
			return
		}
		if l.due > now || l.held {
			l.tell(d, at)
			l.arm(now)
			return
		}
		// The instant at which w could have gone had the timer been punctual.
		ready := l.due
		switch {
		case wasHeld:
			ready = now // it was not the timer that made it late
		case known <= now:
			ready = max(ready, known) // a limit may not remember when it became free
		}
		l.take(now, ready, w.ask, w)
		l.leave(w, ready)
		d.wake(w)
		d.lookBeside(l, at)
	}
}

// lookBefore notes the lines before l that could go at this very instant but have
// not been looked at, since their timers have not gone off yet.
func (l *line) lookBefore(d *domain, now int64) (found bool) {
	at := l.at(now)
	for i := range l.parts {
		for _, g := range l.parts[i].lines {
			if g == l {
				break
			}
			if !g.held && g.due <= g.clock(at) && g.due > longAgo {
				d.look(g)
				found = true
			}
		}
	}
	return found
}

// examine works out for w, the head, when each limit lets it go and in which of
// them a line before this one holds it up.
func (l *line) examine(now int64, w *waiter) {
	l.due, l.held = l.since, false
	if l.begins {
		l.begin(l.since, w.seq)
	}
	for i := range l.parts {
		p := &l.parts[i]
		if p.begins != nil && !p.first(l) {
			p.due, p.held = longAgo, true
		} else {
			p.due = p.earliest(now, w.ask)
			p.held = len(p.lines) > 1 && !l.turn(p, now, p.cost(w.ask), w.seq)
		}
		l.due = max(l.due, p.due)
		l.held = l.held || p.held
	}
}

// tell notes in each limit until when the head is held up by the others, for
// those behind it there, and has them looked at if that is later than it was.
func (l *line) tell(d *domain, at time.Time) {
	for i := range l.parts {
		p := &l.parts[i]
		until := l.heldBut(i)
		if until > p.until {
			d.lookBehind(p.limit, l, at)
		}
		p.until = until
	}
}

// heldBut is until when the head is held up by all limits but that of part i.
func (l *line) heldBut(i int) int64 {
	until := longAgo
	for j := range l.parts {
		switch p := &l.parts[j]; {
		case i == j:
		case p.held:
			return never
		default:
			until = max(until, p.due)
		}
	}
	return until
}

// newHead forgets what was known of the head that was.
func (l *line) newHead(since int64) {
	l.since, l.due, l.held = since, longAgo, false
	for i := range l.parts {
		p := &l.parts[i]
		p.due, p.until, p.held = longAgo, longAgo, false
		p.place(l)
	}
}

// partOf is the line's part on x.
func (l *line) partOf(x *limit) *part {
	for i := range l.parts {
		if p := &l.parts[i]; p.limit == x {
			return p
		}
	}
	panic("ratelimiter: a line is listed with a limit it has not")
}

// arm sets the timer for due, or stops it when time alone changes nothing.
func (l *line) arm(now int64) {
	if l.due <= now || l.due >= never {
		l.disarm()
		return
	}
	if l.armed == l.due {
		return
	}
	l.armed = l.due
	in := time.Duration(l.due - now)
	if l.timer == nil {
		l.timer = time.AfterFunc(in, l.fire)
	} else {
		l.timer.Reset(in)
	}
}

func (l *line) disarm() {
	if l.armed != never {
		l.timer.Stop()
		l.armed = never
	}
}

// fire is the timer going off. It may come for a setting that has been replaced
// since; then it only finds the right one.
func (l *line) fire() {
	d := l.lock()
	l.armed = never
	l.fired++
	now := l.now()
	d.look(l)
	d.settle(l.at(now))
	d.unlock()
}

// await blocks until w has been granted or refused, its context has ended, or
// it has waited as long as it wants to.
func (l *line) await(ctx context.Context, w *waiter, most time.Duration) error {
	var tired <-chan time.Time
	if most != Never {
		t := time.NewTimer(most)
		defer t.Stop()
		tired = t.C
	}
	var gone error
	select {
	case <-w.ready:
	case <-ctx.Done():
		gone = l.giveUp(w, func(_ time.Duration, p *part) error { return gaveUp(ctx, p.String()) })
	case <-tired:
		gone = l.giveUpTired(w)
	}
	if gone != nil {
		l.put(w)
		return gone
	}
	err := w.err
	for i, k := range w.alarms {
		if p := &l.parts[i]; k != nil && k.stop(l.now()+p.ahead) {
			l.retime(p.limit)
		}
	}
	l.put(w)
	return err
}

// giveUp takes w out of the line and returns the error that why makes of it,
// given how long w would still have had to wait and for what. It returns nil if
// w has been granted or refused before: then that counts, and its signal has
// been received.
func (l *line) giveUp(w *waiter, why func(in time.Duration, p *part) error) (err error) {
	d := l.lock()
	if w.left {
		d.unlock()
		<-w.ready
		return nil
	}
	now := l.now()
	wasHead := l.head == w
	l.leave(w, now)
	t, p := l.estimate(now, w.ask)
	err = why(wait(now, t), p)
	if wasHead {
		d.look(l)
		d.lookBeside(l, l.at(now))
		d.settle(l.at(now))
	}
	d.unlock()
	return err
}

// giveUpTired is giveUp for a waiter that has waited as long as it wanted to. If
// that is the very instant of its grant, and the line's timer merely was not the
// first of the two to go off, it is granted: only later is too late.
func (l *line) giveUpTired(w *waiter) error {
	d := l.lock()
	now := l.now()
	for i := range l.parts {
		for _, g := range l.parts[i].lines {
			d.look(g)
		}
	}
	d.settle(l.at(now))
	d.unlock()
	return l.giveUp(w, func(in time.Duration, p *part) error {
		return &ExcessError{Limit: p.name, Scope: p.scope, RetryAfter: max(in, 1)}
	})
}

// retime has those looked at who wait for x, one of the line's limits.
func (l *line) retime(x *limit) {
	d := l.lock()
	at := l.at(l.now())
	d.changed(x, at)
	d.settle(at)
	d.unlock()
}

func (l *line) put(w *waiter) {
	clear(w.alarms)
	*w = waiter{ready: w.ready, alarms: w.alarms[:0]}
	l.pool.Put(w)
}

// String names the limits of the line, for error texts.
func (l *line) String() string {
	s := ""
	d := l.lock()
	for i := range l.parts {
		if i > 0 {
			s += " and "
		}
		s += l.parts[i].String()
	}
	d.mu.Unlock()
	return s
}
