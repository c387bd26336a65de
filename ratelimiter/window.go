package ratelimiter

import (
	"context"
	"fmt"
	"math"
	"time"
)

// A SlidingWindow never grants more than its Rate's Count in any period of Per,
// wherever the period starts, and lets everything up to that through at once. A
// period includes its start but not its end: what was granted at an instant is
// free again exactly Per later. Grants are made in order of arrival.
//
// It counts from the instants at which its callers were really let go, not from
// the instants that had been planned for them: a caller that had to wait counts
// from when it is awake, since a busy machine may take its time about that. What
// remains between that and the caller's next statement is a few instructions,
// unless the goroutine loses its processor just there.
//
// Costs add up; one above Count is a [*CostError]. Each grant is remembered for
// Per, in 24 bytes, in a ring that grows to what has been needed. If Count is above
// 65,536, grants that come within 1/65,534 of Per are remembered together as if all
// came with the last of them: still never more than Count, and less than 0.002 %
// below it, in 1.5 MiB at most.
//
// An Acquire that need not wait takes some 35 ns more than a look at the clock,
// which takes 30 to 60 ns, whatever Count is, and allocates nothing; one of cost k
// looks at the grants whose room it needs, at most k. The zero SlidingWindow is not
// usable. All methods are safe for concurrent use.
type SlidingWindow struct {
	single
	window window
}

// NewSlidingWindow returns an empty window of the given rate. It is an error if
// the rate's Count or Per is below 1, if it is more than one per nanosecond, or
// if Count is above 4,294,967,295; the error names the field and the bound.
func NewSlidingWindow(r Rate) (*SlidingWindow, error) {
	if err := checkWindow(r); err != nil {
		return nil, err
	}
	s := new(SlidingWindow)
	s.window.setRate(0, r)
	s.init(&s.window, windowName(r), s.window.count)
	return s, nil
}

func checkWindow(r Rate) error {
	if err := r.check("Rate"); err != nil {
		return err
	}
	if int64(r.Count) > math.MaxUint32 {
		return fmt.Errorf("ratelimiter: Rate.Count is %d, must be at most %d for a sliding window", r.Count, uint32(math.MaxUint32))
	}
	return nil
}

func windowName(r Rate) string {
	if r == (Rate{}) {
		return "stopped sliding window"
	}
	return fmt.Sprintf("sliding window %v", r)
}

// Acquire waits until req may go, in order of arrival. It returns nil then, a
// [*CostError] at once if the cost is above Count, or an error that is ctx's to
// errors.Is if ctx ends first or its deadline is certain to.
func (s *SlidingWindow) Acquire(ctx context.Context, req Request) error {
	if ctx.Err() != nil {
		return gaveUp(ctx, s.String())
	}
	d, contended := s.line.lockSensing()
	// As in TokenBucket.Acquire.
	if len(s.limit.lines) == 0 && req.Cost >= 0 {
		now, cost := s.line.now(), int64(max(req.Cost, 1))
		if cost <= s.limit.most && s.window.holds(now, cost) {
			s.window.add(granted{at: now, cost: uint32(cost), tag: tagOf(req)})
			if !contended {
				d.mu.Unlock()
				return nil
			}
			// A mutex that many want may take the processor from whoever unlocks it.
			k := s.window.asleep()
			d.mu.Unlock()
			if k.stop(s.line.now()) {
				s.line.retime(&s.limit)
			}
			return nil
		}
	}
	return s.line.enter(ctx, d, askOf(req), Never)
}

// TryAcquire implements [TryAcquirer].
func (s *SlidingWindow) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	return s.line.tryAcquire(req)
}

// AcquireWithin implements [TryAcquirer].
func (s *SlidingWindow) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return s.line.acquireWithin(ctx, req, maxWait)
}

// Adjust implements [Adjuster]. A lower cost is given back where it was counted,
// found by the Worker, Attempt, Index and Cost of req; if that has been longer
// ago than Per there is nothing to give back, and of grants that are remembered
// together nothing is. What a higher cost adds counts as granted now, even above
// Count, and holds up the grants to come. Callers that wait are re-timed.
func (s *SlidingWindow) Adjust(req Request, actual int) {
	s.line.adjust(s.line.lock(), askOf(req), actual)
}

// SetRate changes the rate for all grants to come, waiting callers included; one
// whose cost is above the new Count gets its [*CostError]. Grants of the last
// Per count on, those before it have been forgotten, also for a longer new
// period. The zero Rate stops the window: nothing is granted until the next
// SetRate. Any other rate must be one that [NewSlidingWindow] takes, or the error
// says why not and nothing changes.
func (s *SlidingWindow) SetRate(r Rate) error {
	if r != (Rate{}) {
		if err := checkWindow(r); err != nil {
			return err
		}
	}
	s.change(func(now int64) {
		s.window.setRate(now, r)
		s.limit.name, s.limit.most = windowName(r), s.window.count
	})
	return nil
}

// Stats returns the room in the window and who waits for it.
func (s *SlidingWindow) Stats() Stats { return s.stats(s.window.available) }

// String names the limit, for example "sliding window 100/m".
func (s *SlidingWindow) String() string { return s.line.String() }

// maxGrants is how many grants a window remembers one by one.
const maxGrants = 1 << 16

// A window is the schedule of a sliding window: a ring of what was granted in
// the last period, oldest first.
//
// Stamps may be out of order, since callers may be long in waking up. What counts
// is the order of the ring: a grant leaves it only after all before it have left,
// so nothing is ever forgotten too early.
type window struct {
	count, per int64
	slice      int64 // grants within a slice share an entry; 0: each has its own
	end        int64 // of the slice of the newest entry
	halted     bool  // the rate is zero

	ring []granted // its length is a power of two
	head int       // number of the oldest entry; its index is the remainder by the length
	n    int       // number of entries
	used int64     // sum of all costs
	odd  int       // entries whose cost is not 1
}

type granted struct {
	at    int64
	alarm *alarm // of callers that may not be awake yet; nil: they are, since at
	cost  uint32
	tag   uint32 // 0: several requests, or none
}

func (w *window) setRate(now int64, r Rate) {
	w.expire(now)
	if w.halted = r == (Rate{}); w.halted {
		return
	}
	w.count, w.per, w.slice, w.end = int64(r.Count), int64(r.Per), 0, longAgo
	if w.count > maxGrants { // a period touches two slices more than it is long
		w.slice = w.per/(maxGrants-2) + 1
	}
}

func (w *window) entry(i int) *granted { return &w.ring[(w.head+i)&(len(w.ring)-1)] }

// expire forgets what was granted a period ago or before.
func (w *window) expire(now int64) {
	last, ring := now-w.per, w.ring
	for w.n > 0 {
		e := &ring[w.head&(len(ring)-1)]
		if e.at > last || e.alarm != nil && !e.over(last) {
			return
		}
		w.used -= int64(e.cost)
		if e.cost != 1 {
			w.odd--
		}
		w.head++
		w.n--
	}
}

// over reports whether all callers of e were awake at the instant last or before.
func (e *granted) over(last int64) bool {
	at, ok := e.alarm.stopped()
	if ok {
		e.at, e.alarm = max(e.at, at), nil
	}
	return ok && e.at <= last
}

func (w *window) earliest(now, cost int64) int64 {
	if w.halted {
		return never
	}
	w.expire(now)
	t := w.freed(w.used + cost - w.count)
	if t > longAgo && w.entry(0).at <= now-w.per {
		return never // until the one that should be awake by now is
	}
	return t
}

// freed is when so much of what has been granted will have left the window; at
// most all of it.
func (w *window) freed(cost int64) int64 {
	if cost <= 0 || w.n == 0 {
		return longAgo
	}
	i := 0
	if w.odd == 0 {
		i = int(min(cost, int64(w.n))) - 1
	} else {
		for cost -= int64(w.entry(0).cost); cost > 0 && i < w.n-1; {
			i++
			cost -= int64(w.entry(i).cost)
		}
	}
	return max(w.entry(0).at, w.entry(i).at) + w.per
}

// after counts whole turns of the window, each of which takes a period: the
// queue fills the window in the order in which its grants expire.
func (w *window) after(now, ahead, cost int64) int64 {
	if w.halted {
		return never
	}
	w.expire(now)
	turns, rest := (ahead+cost-1)/w.count, (ahead+cost-1)%w.count+1
	if turns > never/w.per/2 {
		return never
	}
	return max(now, w.freed(w.used+rest-w.count)) + turns*w.per
}

// holds reports whether cost may be granted at now. While there is room for it
// beside everything that is remembered, nothing need be forgotten.
func (w *window) holds(now, cost int64) bool {
	if !w.halted && w.used+cost > w.count {
		w.expire(now)
	}
	return !w.halted && w.used+cost <= w.count
}

func (w *window) take(now, _, cost int64, tag uint32) {
	w.add(granted{at: now, cost: uint32(cost), tag: tag})
}

// asleep returns the alarm of the newest entry.
func (w *window) asleep() *alarm {
	e := w.entry(w.n - 1)
	if e.alarm == nil {
		e.alarm = new(alarm)
		e.alarm.at.Store(e.at)
	}
	e.alarm.sleepers.Add(1)
	return e.alarm
}

// add makes e the newest entry, or part of it.
func (w *window) add(e granted) {
	w.used += int64(e.cost)
	if w.slice > 0 {
		if e.at < w.end && w.join(e) {
			return
		}
		w.end = e.at + w.slice
	}
	if w.n == len(w.ring) {
		w.expire(e.at)
		w.grow()
	}
	w.n++
	*w.entry(w.n - 1) = e
	if e.cost != 1 {
		w.odd++
	}
}

// join makes e part of the newest entry, if there is one that it fits into.
func (w *window) join(e granted) bool {
	if w.n == 0 {
		return false
	}
	last := w.entry(w.n - 1)
	sum := uint64(last.cost) + uint64(e.cost)
	if sum > math.MaxUint32 {
		return false
	}
	if last.cost == 1 {
		w.odd++
	}
	last.at, last.cost, last.tag = e.at, uint32(sum), 0
	return true
}

// grow makes room for an entry if there is none.
func (w *window) grow() {
	if w.n < len(w.ring) {
		return
	}
	ring := make([]granted, max(2*w.n, 8))
	for i := range w.n {
		ring[i] = *w.entry(i)
	}
	w.ring, w.head = ring, 0
}

func (w *window) fits(now, cost, next, then int64) bool {
	switch {
	case w.halted || next > w.count:
		return false
	case then >= now+w.per:
		return true // all that is in the window now will have left it
	}
	w.expire(now)
	need := w.used + cost + next - w.count
	return need <= w.used && w.freed(need) <= then
}

func (w *window) adjust(now, cost, actual int64, tag uint32) {
	w.expire(now)
	if actual > cost {
		w.add(granted{at: now, cost: uint32(min(actual-cost, math.MaxUint32))})
		return
	}
	for i := range w.n {
		e := w.entry(i)
		if e.tag != tag || int64(e.cost) != cost {
			continue
		}
		w.used -= cost - actual
		if cost == 1 {
			w.odd++
		}
		if actual == 1 {
			w.odd--
		}
		e.cost = uint32(actual)
		return
	}
}

func (w *window) available(now int64) int64 {
	if w.halted {
		return 0
	}
	w.expire(now)
	return max(w.count-w.used, 0)
}
