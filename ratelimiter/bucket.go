package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"time"
)

// A TokenBucket lets through its Rate on average and spaces its grants evenly:
// any two are at least Per/Count apart, whatever happened before. (Slots between
// two nanoseconds are rounded up to the later one.) With [WithBurst] up to n may
// go at once after a quiet time, and then the rate holds again; mind that this is
// not "n per Per": a burst and the refill after it can come in the same period.
// [SlidingWindow] is a cap.
//
// Grants are made in order of arrival. A fresh bucket is full: the first request
// goes at once.
//
// Costs: a spaced bucket grants a request of cost k when one interval is due and
// then grants nothing for k intervals, so the mean holds. A bucket with bursts
// has the cost paid before, so it must not be above the burst; then it is a
// [*CostError].
//
// Lateness: a timer goes off late, on Linux up to about 1 ms, and under load
// later. The bucket makes up for that, and for nothing else: after a grant that
// its own timer made late by up to 5 ms the following ones keep to the times
// that a punctual timer would have given, which may put them closer together,
// but never by more than 5 ms in all. After a punctual grant a caller's own late
// arrival is never made up, no idle time is saved up, and in virtual time, where
// timers are punctual, grants are exactly spaced.
//
// An Acquire that need not wait takes some 20 ns more than a look at the clock,
// which takes 30 to 60 ns, and allocates nothing. The algorithm is the generic cell
// rate algorithm (ITU-T I.371) in exact integer arithmetic. The zero TokenBucket is
// not usable. All methods are safe for concurrent use.
type TokenBucket struct {
	single
	bucket bucket
}

// A BucketOption is an option of [NewTokenBucket].
type BucketOption func(*bucketOptions)

type bucketOptions struct{ burst int }

// WithBurst lets a bucket hold n tokens instead of one: up to n go at once after
// a time in which none went. n is at least 1, which is the default and spaces
// the grants, and at most what the rate makes in 100 years. A bucket that is to
// start empty is emptied by TryAcquire of cost n.
func WithBurst(n int) BucketOption {
	return func(o *bucketOptions) { o.burst = n }
}

// NewTokenBucket returns a full bucket of the given rate. It is an error if the
// rate's Count or Per is below 1, if it is more than one per nanosecond, or if
// an option is out of its range; the error names the field and the bound.
func NewTokenBucket(r Rate, opts ...BucketOption) (*TokenBucket, error) {
	o := bucketOptions{burst: 1}
	if err := errors.Join(r.check("Rate"), apply(opts, &o)); err != nil {
		return nil, err
	}
	b := new(TokenBucket)
	b.bucket = bucket{pace: newPace(r), burst: int64(o.burst), tat: slot{ns: longAgo}, last: longAgo}
	if highest := b.bucket.pace.within(maxSpan); o.burst < 1 || int64(o.burst) > highest {
		return nil, fmt.Errorf("ratelimiter: WithBurst is %d, must be from 1 to %d at a rate of %v", o.burst, highest, r)
	}
	b.init(&b.bucket, b.bucket.name(r), b.bucket.most())
	return b, nil
}

// Acquire waits until req may go, in order of arrival. It returns nil then, a
// [*CostError] at once if the cost can never be granted, or an error that is
// ctx's to errors.Is if ctx ends first or its deadline is certain to.
func (b *TokenBucket) Acquire(ctx context.Context, req Request) error {
	if ctx.Err() != nil {
		return gaveUp(ctx, b.String())
	}
	d := b.line.lock()
	// What enter would do for a request that need not wait, without the way
	// through the schedule's interface, which costs as much as all the rest but
	// the clock.
	if len(b.limit.lines) == 0 && req.Cost >= 0 {
		now, cost := b.line.now(), int64(max(req.Cost, 1))
		if cost <= b.limit.most && (b.bucket.full(now) || b.bucket.earliest(now, cost) <= now) {
			b.bucket.take(now, now, cost, 0)
			d.mu.Unlock()
			return nil
		}
	}
	return b.line.enter(ctx, d, askOf(req), Never)
}

// TryAcquire implements [TryAcquirer].
func (b *TokenBucket) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	return b.line.tryAcquire(req)
}

// AcquireWithin implements [TryAcquirer].
func (b *TokenBucket) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return b.line.acquireWithin(ctx, req, maxWait)
}

// Adjust implements [Adjuster]: a lower cost brings the grants to come forward,
// a higher one puts them off. Callers that wait are re-timed.
func (b *TokenBucket) Adjust(req Request, actual int) {
	b.line.adjust(b.line.lock(), askOf(req), actual)
}

// SetRate changes the rate for all grants to come, waiting callers included.
// What has been taken stays taken, counted in tokens: a bucket that owes ten
// tokens still owes ten, and pays them at the new rate. The burst stays what it
// is. The zero Rate stops the bucket: nothing is granted, and nothing refills,
// until the next SetRate; any other rate must be one that [NewTokenBucket]
// takes, or the error says why not and nothing changes.
func (b *TokenBucket) SetRate(r Rate) error {
	if r != (Rate{}) {
		if err := r.check("Rate"); err != nil {
			return err
		}
		if highest := newPace(r).within(maxSpan); b.bucket.burst > highest {
			return fmt.Errorf("ratelimiter: Rate is %v, must fill the burst of %d within %v", r, b.bucket.burst, maxSpan)
		}
	}
	b.change(func(now int64) {
		b.bucket.setRate(now, r)
		b.limit.name, b.limit.most = b.bucket.name(r), b.bucket.most()
	})
	return nil
}

// Stats returns what the bucket holds and who waits for it.
func (b *TokenBucket) Stats() Stats {
	return b.stats(b.bucket.available)
}

// String names the limit, for example "token bucket 10/s, burst 5".
func (b *TokenBucket) String() string { return b.line.String() }

// maxLate is how much lateness of the queue's timer a bucket makes up. What the
// runtime needs to wake up on a busy machine is below it nearly always; more
// would be a burst worth noticing.
const maxLate = int64(5 * time.Millisecond)

// A bucket is the schedule of a token bucket.
//
// tat, the theoretical arrival time, is when the bucket will be full: each token
// taken puts it off by one interval. In the past it means full, however far.
type bucket struct {
	pace
	burst   int64 // tokens it holds; 1: spaced
	tat     slot
	stopped bool // the rate is zero, since the instant stop
	stop    int64
	last    int64 // instant of the last grant
	lag     int64 // how far the last grant was behind its slot
	credit  int64 // how late the queue's timer has been, as far as not pardoned
}

func (b *bucket) name(r Rate) string {
	switch {
	case r == Rate{}:
		return "stopped token bucket"
	case b.burst > 1:
		return fmt.Sprintf("token bucket %v, burst %d", r, b.burst)
	}
	return fmt.Sprintf("token bucket %v", r)
}

// most is the burst, paid before, or whatever can be paid off afterwards.
func (b *bucket) most() int64 {
	if b.burst > 1 {
		return b.burst
	}
	return b.within(maxSpan)
}

func (b *bucket) earliest(_, cost int64) int64 {
	switch {
	case b.stopped:
		return never
	case b.burst == 1:
		return b.tat.ceil()
	}
	return b.sub(b.tat, b.burst-cost).ceil()
}

// full reports whether the bucket is full at now, and so has what any cost needs.
func (b *bucket) full(now int64) bool { return !b.stopped && b.tat.ceil() <= now }

func (b *bucket) after(now, ahead, cost int64) int64 {
	if b.stopped {
		return never
	}
	t := b.add(b.from(now), ahead)
	if b.burst > 1 {
		t = b.sub(t, b.burst-cost)
	}
	return t.ceil()
}

// from is where the cost of a grant at now is added: tokens beyond a full bucket
// are lost.
func (b *bucket) from(now int64) slot {
	if now > b.tat.ceil() {
		return slot{ns: now}
	}
	return b.tat
}

// take adds the cost, to the end of what is owed or, when nothing is owed, to
// the instant of the grant.
func (b *bucket) take(now, ready, cost int64, _ uint32) {
	from := b.from(now)
	if now-b.last > maxLate {
		b.lag, b.credit = 0, 0 // idle
	}
	if ready < now || b.lag > 0 || b.credit > 0 {
		from = b.makeUp(now, ready)
	}
	b.last = now
	b.tat = b.add(from, cost)
}

// makeUp returns where take adds the cost when something is or has been late.
// What the queue's timer is to blame for is taken off the instant of the grant:
// first the lag of the last grant, since a caller that comes straight back from a
// late grant is on time; then what is left of the credit, since callers that were
// all let go at once, and late, come back in disorder.
func (b *bucket) makeUp(now, ready int64) (from slot) {
	came := ready - b.lag
	if over := came - b.tat.ceil(); over > 0 {
		pardon := min(over, b.credit)
		b.credit -= pardon
		came -= pardon
	}
	from = b.from(max(came, now-maxLate))
	b.credit = max(b.credit, min(now-ready, maxLate))
	b.lag = max(now-from.ceil(), 0)
	return from
}

func (b *bucket) fits(now, cost, next, then int64) bool {
	if b.stopped {
		return false
	}
	t := b.add(b.from(now), cost)
	if b.burst > 1 {
		t = b.sub(t, b.burst-next)
	}
	return t.ceil() <= then
}

func (b *bucket) adjust(now, cost, actual int64, _ uint32) {
	if b.stopped {
		now = b.stop
	}
	if actual > cost {
		b.tat = b.add(b.from(now), actual-cost)
	} else {
		b.tat = b.sub(b.tat, cost-actual)
	}
}

// setRate keeps the number of tokens missing and converts their time.
func (b *bucket) setRate(now int64, r Rate) {
	if b.stopped {
		if b.tat.ceil() > b.stop { // the time that stood still does not count
			b.tat.ns = min(b.tat.ns+now-b.stop, never)
		}
		b.stopped = false
	}
	if r == (Rate{}) {
		b.stopped, b.stop = true, now
		return
	}
	next := newPace(r)
	if b.tat.ns >= now {
		b.tat = b.convert(slot{ns: b.tat.ns - now, frac: b.tat.frac}, next)
		b.tat.ns = min(b.tat.ns+now, never)
	} else {
		b.tat.frac = 0
	}
	b.pace = next
}

// available is how many tokens are in the bucket.
func (b *bucket) available(now int64) int64 {
	if b.stopped {
		return 0
	}
	if b.tat.ceil() <= now {
		return b.burst
	}
	missing := slot{ns: b.tat.ns - now, frac: b.tat.frac}
	return max(b.burst-b.tokens(missing), 0)
}

// A pace is a rate as exact arithmetic: the interval Per/Count is whole ns and
// part/count of one.
type pace struct {
	per, count  int64
	whole, part int64
}

// A slot is an instant, or a span, of ns + frac/count nanoseconds.
type slot struct{ ns, frac int64 }

func newPace(r Rate) pace {
	per, count := int64(r.Per), int64(r.Count)
	return pace{per: per, count: count, whole: per / count, part: per % count}
}

// ceil is the first whole nanosecond that is not before s. Grants are rounded up
// to it, so that no period sees one too many.
func (s slot) ceil() int64 {
	if s.frac > 0 {
		return s.ns + 1
	}
	return s.ns
}

// add puts s off by k intervals, or to never: what cannot be counted must not
// come early.
func (p *pace) add(s slot, k int64) slot {
	whole, part := p.whole, p.part
	if k != 1 {
		whole, part = p.intervals(k)
	}
	s.frac += part
	if s.frac >= p.count {
		s.frac -= p.count
		whole++
	}
	if s.ns >= never-whole {
		return slot{ns: never}
	}
	s.ns += whole
	return s
}

// sub brings s forward by k intervals, or to longAgo at most.
func (p *pace) sub(s slot, k int64) slot {
	whole, part := p.intervals(k)
	s.frac -= part
	if s.frac < 0 {
		s.frac += p.count
		whole++
	}
	if s.ns -= whole; s.ns < longAgo {
		return slot{ns: longAgo}
	}
	return s
}

// intervals is k intervals, k >= 0, or a span longer than every other.
func (p *pace) intervals(k int64) (whole, part int64) {
	hi, lo := bits.Mul64(uint64(k), uint64(p.per))
	if hi >= uint64(p.count) {
		return never, 0
	}
	q, r := bits.Div64(hi, lo, uint64(p.count))
	if q >= uint64(never) {
		return never, 0
	}
	return int64(q), int64(r)
}

// within is how many whole intervals there are in d.
func (p pace) within(d time.Duration) int64 {
	hi, lo := bits.Mul64(uint64(d), uint64(p.count))
	if hi >= uint64(p.per) {
		return never
	}
	q, _ := bits.Div64(hi, lo, uint64(p.per))
	return int64(min(q, uint64(never)))
}

// tokens is how many intervals there are in the span s, the last one begun.
func (p *pace) tokens(s slot) int64 {
	n := new(big.Int).Mul(big.NewInt(s.ns), big.NewInt(p.count))
	n.Add(n, big.NewInt(s.frac))
	n.Add(n, big.NewInt(p.per-1))
	n.Quo(n, big.NewInt(p.per))
	return n.Int64()
}

// convert is the span s, which is so many intervals of p, as so many intervals
// of q, rounded up to q's fraction.
func (p *pace) convert(s slot, q pace) slot {
	// s = (ns + frac/count) / (per/count) intervals = (ns*count + frac) / per,
	// and an interval of q is per/count.
	n := new(big.Int).Mul(big.NewInt(s.ns), big.NewInt(p.count))
	n.Add(n, big.NewInt(s.frac))
	n.Mul(n, big.NewInt(q.per))
	// n / p.per is the span in units of 1/q.count ns.
	n.Add(n, big.NewInt(p.per-1))
	n.Quo(n, big.NewInt(p.per))
	ns, frac := n.QuoRem(n, big.NewInt(q.count), new(big.Int))
	if !ns.IsInt64() || ns.Int64() >= never {
		return slot{ns: never}
	}
	return slot{ns: ns.Int64(), frac: frac.Int64()}
}
