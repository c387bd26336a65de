package ratelimiter

import (
	"math"
	"sync/atomic"
	"time"
)

// Instants inside the package are nanoseconds since the creation of the limiter
// they belong to, on the monotonic clock. There is no base for the whole package:
// in a testing/synctest bubble that would be a clock of another world.
const (
	// never is later than every instant that is ever reached.
	never int64 = 1 << 62
	// longAgo is earlier than every instant, also of a limiter that was made
	// before the clock it is used with, as in a bubble.
	longAgo int64 = -1 << 62
)

// A schedule is the arithmetic of one limit: when may the next grant happen, and
// record that it did. It never waits, keeps no time of its own, and is called
// with the lock of its domain held, with a now that never goes back.
type schedule interface {
	// earliest returns the first instant at which a request of this cost may be
	// granted if nothing else is granted before. It may lie in the past, and is
	// never when, as things stand, it does not come.
	earliest(now, cost int64) int64

	// after is the same if first requests of the cost ahead are granted, each as
	// early as possible. It is exact for equal costs and an estimate otherwise.
	after(now, ahead, cost int64) int64

	// take records a grant at now. The request could have been granted at ready,
	// which is earlier than now by as much as the queue's timer was late. The
	// tag tells requests apart for adjust.
	take(now, ready, cost int64, tag uint32)

	// fits reports whether after a grant of cost at now another of cost next is
	// still possible at the instant then. It must not become true by the mere
	// passing of time. A schedule that always says false is served strictly in
	// order of arrival, also beside other limits.
	fits(now, cost, next, then int64) bool

	// adjust changes the cost of the grant that had the given tag and cost.
	adjust(now, cost, actual int64, tag uint32)
}

// A stamper is a schedule that counts a grant from the instant at which its
// caller is awake. After each take for a caller that has to be woken the queue
// asks for its alarm and, when the caller is awake, stops it.
type stamper interface {
	asleep() *alarm
}

// An alarm is what a schedule knows of callers that have been granted something
// and are perhaps not awake yet. Callers stop it without the domain's lock: while
// they queue for that they might as well be asleep.
type alarm struct {
	sleepers atomic.Int32
	at       atomic.Int64 // when the last of them, so far, was awake
	wanted   atomic.Bool  // somebody waits for the alarm to be stopped
}

// stop says that a caller is awake at now. If it was the last and that has been
// waited for, it reports true, and whoever waits for the limit must be re-timed.
func (a *alarm) stop(now int64) (wanted bool) {
	for at := a.at.Load(); at < now && !a.at.CompareAndSwap(at, now); {
		at = a.at.Load()
	}
	return a.sleepers.Add(-1) == 0 && a.wanted.Load()
}

// stopped returns when the last caller was awake, if all are. If not, the last to
// wake up will say so: wanted is set before sleepers is read again, and stop
// does the two the other way round.
func (a *alarm) stopped() (at int64, ok bool) {
	if a.sleepers.Load() > 0 {
		a.wanted.Store(true)
		if a.sleepers.Load() > 0 {
			return 0, false
		}
	}
	return a.at.Load(), true
}

// A beginner is a schedule that serves one request after the other and does
// something when a turn begins, such as drawing a delay. Until the next begin,
// earliest is asked for the request whose turn it is only. What it says must not
// change by the mere passing of time, and fits must always be false.
type beginner interface {
	begin(now int64)

	// atBest is an instant before which a request whose turn it is not will not be
	// granted, even if everybody before it gives up.
	atBest(now, cost int64) int64
}

// A limit is a schedule together with the lines of those who want something of
// it. It may be wanted alone and as one of several, by many lines at once.
//
// All fields but the first block, which is set before first use, are guarded by
// the domain of its lines: all lines that share a limit share a domain.
type limit struct {
	base    time.Time // instant 0 of the schedule
	sched   schedule
	stamps  stamper  // sched, if it is one
	begins  beginner // sched, if it is one
	emptied func()   // called when the last pin is gone; may be nil

	name  string // for error texts; changes with the rate
	scope string // whom it is for; empty: all
	most  int64  // the highest cost that can ever be granted
	pins  int    // lines that were made for one occasion and refer to it
	turn  uint64 // of a beginner: number of the waiter whose turn has begun
	ended int64  // when the turn before it ended
	lines []*line
	// lines holds the lines with waiting callers, ordered by the arrival of the
	// caller at the head of each.
}

// setSchedule gives the limit its schedule and its clock.
func (x *limit) setSchedule(base time.Time, s schedule) {
	x.base, x.sched, x.ended = base, s, longAgo
	x.stamps, _ = s.(stamper)
	x.begins, _ = s.(beginner)
}

// String names the limit and its scope.
func (x *limit) String() string {
	if x.scope == "" {
		return x.name
	}
	return x.name + " for " + x.scope
}

// first reports whether no line is before l, which may have nobody in it yet.
func (x *limit) first(l *line) bool { return len(x.lines) == 0 || x.lines[0] == l }

// yields reports whether g, whose head came before, is not harmed when a
// request of cost is granted now: it is held up by another of its limits at
// least until some instant, and at that instant finds this limit free all the
// same. Without this rule an exhausted daily limit of one line, or a pause,
// would hold up everybody it shares another limit with; with less than this
// rule a request that needs two limits could be starved by those that need one.
func (x *limit) yields(g *line, now, cost int64) bool {
	p := g.partOf(x)
	until := p.heldUntil()
	return until > now && x.sched.fits(now, cost, p.cost(g.head.ask), until)
}

// place puts l where it belongs in x.lines, or takes it out when nobody waits in
// it.
func (x *limit) place(l *line) {
	if len(x.lines) == 1 && x.lines[0] == l && l.head != nil {
		return // the common case: nobody else there
	}
	for i, g := range x.lines {
		if g == l {
			copy(x.lines[i:], x.lines[i+1:])
			x.lines[len(x.lines)-1] = nil
			x.lines = x.lines[:len(x.lines)-1]
			break
		}
	}
	if l.head == nil {
		return
	}
	i := len(x.lines)
	for i > 0 && x.lines[i-1].head.seq > l.head.seq {
		i--
	}
	x.lines = append(x.lines, nil)
	copy(x.lines[i+1:], x.lines[i:])
	x.lines[i] = l
}

// A part is one of the limits that the requests of a line have to pass. The last
// three fields are what is known of the head of the line, on the line's clock,
// since it was last looked at.
type part struct {
	*limit
	ahead int64 // how far the limit's clock is ahead of the line's
	unit  bool  // counts requests, whatever their cost

	queued int64 // cost of all who wait in the line

	due   int64 // when the limit lets the head go
	held  bool  // a line before this one in the limit holds it up
	until int64 // until when other limits hold it up
}

// heldUntil is until, on the limit's clock.
func (p *part) heldUntil() int64 {
	if p.until >= never {
		return never
	}
	return p.until + p.ahead
}

func (p *part) cost(a ask) int64 {
	if p.unit {
		return 1
	}
	return a.cost
}

// earliest is the schedule's answer on the line's clock.
func (p *part) earliest(now int64, a ask) int64 {
	return p.toLine(p.sched.earliest(now+p.ahead, p.cost(a)))
}

func (p *part) toLine(t int64) int64 {
	if t >= never {
		return never
	}
	return t - p.ahead
}

// An ask is what a schedule needs to know of a request.
type ask struct {
	cost int64
	tag  uint32
}

func askOf(req Request) ask {
	a := ask{cost: int64(req.Cost), tag: tagOf(req)}
	if a.cost == 0 {
		a.cost = 1
	}
	return a
}

// tagOf tells the requests of a run apart, well enough to find the one whose
// cost is adjusted. It is never 0, the tag of what is no single request. The
// multipliers are odd constants that mix the bits.
func tagOf(req Request) uint32 {
	h := uint64(req.Index)*0x9e3779b97f4a7c15 + uint64(req.Attempt)*0xc2b2ae3d27d4eb4f + uint64(req.Worker)*0x165667b19e3779f9
	return uint32(h>>32) | 1
}

// wait is the time from now until t as a duration, Never if t does not come.
func wait(now, t int64) time.Duration {
	if t >= never {
		return Never
	}
	return time.Duration(max(t-now, 0))
}

// toInt is n as an int on every platform.
func toInt(n int64) int {
	return int(min(n, math.MaxInt))
}
