package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Pausable adds a pause to another limiter: until it is over, nobody who comes
// through the Pausable is granted anything. It is what a service's Retry-After
// asks for: the first caller to be told pauses all of them.
//
// Around a limiter of this package the pause is one more limit that is asked at
// the same instant, so grants after the pause come out as the limiter would have
// spaced them, and nothing of the inner limit is used up while the pause lasts.
// Others who use the inner limiter directly, or through another Pausable, are
// neither paused nor held up.
//
// Around any other limiter, which can only be asked for its grant as a whole, the
// Pausable waits for the pause, acquires the inner limiter, and waits again if a
// pause has begun meanwhile. It never acquires twice, so grants that a pause
// holds back go together when it ends. A caller that gives up in that second
// wait loses its grant, unless the inner limiter is an [Adjuster].
//
// All methods are safe for concurrent use.
type Pausable struct {
	composite
	inner   Limiter
	foreign bool // inner is not of this package; the composite is the pause alone
	limit   limit
	gate    gate
	until   time.Time // guarded by the domain: gate.until for people
}

// gate is the schedule of a pause: everything may pass, but not before an
// instant.
type gate struct{ until int64 }

func (g *gate) earliest(int64, int64) int64     { return g.until }
func (g *gate) after(int64, int64, int64) int64 { return g.until }
func (g *gate) take(_, _, _ int64, _ uint32)    {}
func (g *gate) fits(_, _, _, _ int64) bool      { return true }
func (g *gate) adjust(_, _, _ int64, _ uint32)  {}

// NewPausable returns inner with a pause that has not begun. It panics if inner
// is nil: that would be no limit at all.
func NewPausable(inner Limiter) *Pausable {
	if isNil(inner) {
		panic("ratelimiter: NewPausable: the inner limiter is nil")
	}
	p := &Pausable{inner: inner, gate: gate{until: longAgo}}
	p.limit.setSchedule(time.Now(), &p.gate)
	p.limit.name, p.limit.most = "pause", never
	var members []member
	if m, ok := asMember(inner); ok {
		members = []member{m}
	} else {
		p.foreign = true
	}
	if err := p.init(members, &p.limit); err != nil {
		panic(err) // inner has been checked when it was made
	}
	return p
}

// PauseFor pauses for d from now. A later end wins: a pause is never shortened.
// Zero changes nothing but PausedUntil. A negative d, or one of more than 100
// years, is an error, and the pause stays what it was.
func (p *Pausable) PauseFor(d time.Duration) error {
	if d < 0 || d > maxSpan {
		return fmt.Errorf("ratelimiter: PauseFor is %v, must be from 0 to %v", d, maxSpan)
	}
	now := time.Now()
	p.pause(now, now.Add(d))
	return nil
}

// PauseUntil pauses until t. A later end wins: a pause is never shortened. A t
// in the past holds nobody up. One more than 100 years ahead is an error, and the
// pause stays what it was.
func (p *Pausable) PauseUntil(t time.Time) error {
	now := time.Now()
	if t.Sub(now) > maxSpan {
		return fmt.Errorf("ratelimiter: PauseUntil is %v, must be at most %v ahead", t, maxSpan)
	}
	p.pause(now, t)
	return nil
}

// pause does the sums on the monotonic clock: only the distance from now to t,
// if t has no monotonic reading, is taken from the wall clock.
func (p *Pausable) pause(now, t time.Time) {
	end := int64(now.Sub(p.limit.base)) + int64(max(t.Sub(now), -maxSpan))
	d := p.guard.lock()
	if p.until.IsZero() || end > p.gate.until {
		p.gate.until, p.until = end, t
		d.changed(&p.limit, now)
		d.settle(now)
	}
	d.unlock()
}

// PausedUntil returns the end of the last pause, also when it is over; the zero
// Time if there has been none.
func (p *Pausable) PausedUntil() time.Time {
	d := p.guard.lock()
	defer d.mu.Unlock()
	return p.until
}

// Observe implements [Observer]: an error with a RetryAfter method, found by
// errors.As, that returns more than zero pauses for so long. The inner limiter is
// told as well if it is an Observer.
func (p *Pausable) Observe(req Request, err error) {
	if d := retryAfter(err); d > 0 {
		_ = p.PauseFor(min(d, maxSpan)) // it is in range
	}
	if o, ok := p.inner.(Observer); ok {
		o.Observe(req, err)
	}
}

// retryAfter is what err says about when to come back; 0 if it says nothing.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		return e.RetryAfter()
	}
	return 0
}

// Acquire waits until the pause is over and the inner limiter grants req. What
// it returns is what the inner limiter's Acquire does; a deadline before the end
// of the pause is hopeless and refused at once.
func (p *Pausable) Acquire(ctx context.Context, req Request) error {
	if !p.foreign {
		return p.acquire(ctx, req, Never)
	}
	if err := p.acquire(ctx, Request{}, Never); err != nil {
		return err
	}
	if err := p.inner.Acquire(ctx, req); err != nil {
		return err
	}
	return p.afterInner(ctx, req, Never)
}

// afterInner waits for a pause that has begun while the inner limiter, which
// has granted req, was being waited for.
func (p *Pausable) afterInner(ctx context.Context, req Request, most time.Duration) error {
	if p.left() <= 0 {
		return nil // whatever ctx has come to: the grant counts
	}
	err := p.acquire(ctx, Request{}, most)
	if err != nil {
		refund(p.inner, req)
	}
	return err
}

// left is how long the pause will still last.
func (p *Pausable) left() time.Duration {
	d := p.guard.lock()
	defer d.mu.Unlock()
	return time.Duration(p.gate.until - int64(time.Since(p.limit.base)))
}

// TryAcquire implements [TryAcquirer]. Around a foreign limiter that is none it
// always refuses; see [AsTryAcquirer].
func (p *Pausable) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	if !p.foreign {
		return p.tryAcquire(req)
	}
	if ok, retryAfter = p.tryAcquire(Request{}); !ok {
		return false, retryAfter
	}
	if t, can := AsTryAcquirer(p.inner); can {
		return t.TryAcquire(req)
	}
	return false, Never
}

// AcquireWithin implements [TryAcquirer]. Around a foreign limiter that is none
// it waits for maxWait before it refuses.
func (p *Pausable) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	if !p.foreign {
		return p.acquire(ctx, req, max(maxWait, 0))
	}
	start := time.Now()
	rest := func() time.Duration {
		if maxWait == Never {
			return Never
		}
		return max(maxWait-time.Since(start), 0)
	}
	if err := p.acquire(ctx, Request{}, rest()); err != nil {
		return err
	}
	if err := acquireWithin(ctx, p.inner, req, rest()); err != nil {
		return err
	}
	return p.afterInner(ctx, req, rest())
}

// Adjust implements [Adjuster] if the inner limiter does, and does nothing
// otherwise; see [AsAdjuster].
func (p *Pausable) Adjust(req Request, actual int) {
	if p.foreign {
		adjust(p.inner, req, actual)
		return
	}
	p.adjust(req, actual)
}

func (p *Pausable) whole() bool     { return !p.foreign }
func (p *Pausable) canTry() bool    { return !p.foreign || canTry(p.inner) }
func (p *Pausable) canAdjust() bool { return !p.foreign || canAdjust(p.inner) }

// String names the inner limiter.
func (p *Pausable) String() string { return "pausable " + describe(p.inner) }
