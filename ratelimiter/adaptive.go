package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// An Adaptive finds out what rate a service bears. It is a spaced [TokenBucket] whose rate moves between a floor and a
// ceiling, where it starts: additive increase, multiplicative decrease, as TCP does it (Chiu and Jain, 1989).
//
// It learns from the outcome of attempts, by Observe, which an engine calls after each. A throttling answer multiplies the
// rate by a factor, at most once for a burst of answers: those to attempts that were granted before the last decrease say
// nothing about the new rate. If the answer says when to come back, as retry.After does, nobody is granted anything before
// that. Then the rate grows again by so much per second, but only while it is the limit that holds callers up: a rate that
// nobody uses proves nothing.
//
// A grant is remembered until its outcome is told, up to 65,536 of them; with an engine those are the attempts under way.
//
// Grants are made in order of arrival. Costs are as in a spaced TokenBucket. An Acquire that need not wait takes some 80 ns
// more than one of that. The zero Adaptive is not usable. All methods are safe for concurrent use.
type Adaptive struct {
	single
	sched    adaptive
	throttle func(error) bool
}

// An AdaptiveOption is an option of [NewAdaptive].
type AdaptiveOption func(*adaptiveOptions)

type adaptiveOptions struct {
	decrease, increase float64
	hasIncrease        bool
	throttle           func(error) bool
}

// WithDecrease sets the factor by which a throttling answer multiplies the rate: more than 0 and less than 1. The default
// is 0.5.
func WithDecrease(factor float64) AdaptiveOption {
	return func(o *adaptiveOptions) { o.decrease = factor }
}

// WithIncrease sets by how many grants per second the rate grows in a second of saturation: more than 0. The default is a
// hundredth of the distance from floor to ceiling, or of the ceiling if they are equal.
func WithIncrease(perSecond float64) AdaptiveOption {
	return func(o *adaptiveOptions) { o.increase, o.hasIncrease = perSecond, true }
}

// WithThrottle says which errors are throttling answers. The default is those with a RetryAfter method, found by errors.As,
// that returns more than zero. Such an error pauses in any case, whatever the function says. The function is called without
// a lock held, maybe by several goroutines at once.
func WithThrottle(throttle func(error) bool) AdaptiveOption {
	return func(o *adaptiveOptions) { o.throttle = throttle }
}

// NewAdaptive returns a limiter whose rate is the ceiling, and full. It is an error if a rate is not one that
// [NewTokenBucket] takes, if the floor is above the ceiling, or if an option is out of its range; the error names the field,
// its value and the bound, and several are joined.
func NewAdaptive(floor, ceiling Rate, opts ...AdaptiveOption) (*Adaptive, error) {
	o := adaptiveOptions{decrease: 0.5, throttle: func(err error) bool { return retryAfter(err) > 0 }}
	if err := errors.Join(apply(opts, &o), o.check(floor, ceiling)); err != nil {
		return nil, err
	}
	if !o.hasIncrease {
		o.increase = (perSecond(ceiling) - perSecond(floor)) / 100
		if o.increase <= 0 {
			o.increase = perSecond(ceiling) / 100
		}
	}
	a := &Adaptive{throttle: o.throttle}
	a.sched = adaptive{
		bucket: bucket{pace: newPace(ceiling), burst: 1, tat: slot{ns: longAgo}, last: longAgo},
		floor:  floor, ceiling: ceiling, speed: perSecond(ceiling),
		decrease: o.decrease, increase: o.increase,
		until: longAgo, decreased: longAgo, granted: make(map[uint32]int64),
	}
	a.init(&a.sched, fmt.Sprintf("adaptive %v to %v", floor, ceiling), newPace(floor).within(maxSpan))
	return a, nil
}

func (o *adaptiveOptions) check(floor, ceiling Rate) error {
	errs := []error{floor.check("floor"), ceiling.check("ceiling")}
	if errs[0] == nil && errs[1] == nil && perSecond(floor) > perSecond(ceiling) {
		errs = append(errs, fmt.Errorf("ratelimiter: floor is %v, must be at most the ceiling of %v", floor, ceiling))
	}
	if finite(o.decrease) != nil || o.decrease <= 0 || o.decrease >= 1 {
		errs = append(errs, fmt.Errorf("ratelimiter: WithDecrease is %v, must be more than 0 and less than 1", o.decrease))
	}
	if o.hasIncrease && (finite(o.increase) != nil || o.increase <= 0 || o.increase > 1e9) {
		errs = append(errs, fmt.Errorf("ratelimiter: WithIncrease is %v, must be more than 0 and at most 1e9 per second", o.increase))
	}
	if o.throttle == nil {
		errs = append(errs, errors.New("ratelimiter: WithThrottle is nil, leave it out for errors with a Retry-After"))
	}
	return errors.Join(errs...)
}

// Acquire waits until req may go, in order of arrival. It returns nil then, a [*CostError] at once if the cost can never be
// granted, or an error that is ctx's to errors.Is if ctx ends first or its deadline is certain to.
func (a *Adaptive) Acquire(ctx context.Context, req Request) error { return a.line.acquire(ctx, req) }

// TryAcquire implements [TryAcquirer].
func (a *Adaptive) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	return a.line.tryAcquire(req)
}

// AcquireWithin implements [TryAcquirer].
func (a *Adaptive) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return a.line.acquireWithin(ctx, req, maxWait)
}

// Adjust implements [Adjuster], as [TokenBucket.Adjust] does.
func (a *Adaptive) Adjust(req Request, actual int) {
	a.line.adjust(a.line.lock(), askOf(req), actual)
}

// Observe implements [Observer]: it slows down on a throttling answer and pauses for a Retry-After. The attempt is known by
// the Worker, Attempt and Index of req.
func (a *Adaptive) Observe(req Request, err error) {
	var pause time.Duration
	throttled := false
	if err != nil {
		pause = min(retryAfter(err), maxSpan)
		throttled = a.throttle(err)
	}
	tag := tagOf(req)
	if !throttled && pause <= 0 {
		d := a.line.lock()
		delete(a.sched.granted, tag)
		d.mu.Unlock()
		return
	}
	a.change(func(now int64) { a.sched.answer(now, tag, throttled, int64(pause)) })
}

// PauseFor pauses for d from now, as [Pausable.PauseFor] does.
func (a *Adaptive) PauseFor(d time.Duration) error {
	if d < 0 || d > maxSpan {
		return fmt.Errorf("ratelimiter: PauseFor is %v, must be from 0 to %v", d, maxSpan)
	}
	a.change(func(now int64) { a.sched.until = max(a.sched.until, now+int64(d)) })
	return nil
}

// PauseUntil pauses until t, as [Pausable.PauseUntil] does.
func (a *Adaptive) PauseUntil(t time.Time) error {
	d := time.Until(t)
	if d > maxSpan {
		return fmt.Errorf("ratelimiter: PauseUntil is %v, must be at most %v ahead", t, maxSpan)
	}
	return a.PauseFor(max(d, 0))
}

// PerSecond is the present rate in grants per second.
func (a *Adaptive) PerSecond() float64 {
	d := a.line.lock()
	defer d.mu.Unlock()
	return a.sched.speed
}

// String names the limit, for example "adaptive 1/s to 10/s".
func (a *Adaptive) String() string { return a.line.String() }

// adaptive is the schedule: a bucket whose rate moves.
type adaptive struct {
	bucket
	floor, ceiling     Rate
	speed              float64 // the present rate per second
	decrease, increase float64
	until              int64 // of the pause
	decreased          int64 // when it last slowed down

	// granted has the instants of grants whose outcome is not known yet, by tag, to tell which answers are old news.
	granted map[uint32]int64
}

// maxUnknown bounds granted for those who never call Observe. Forgetting only means that an old answer may slow down once
// more.
const maxUnknown = 1 << 16

func (a *adaptive) earliest(now, cost int64) int64 { return max(a.until, a.bucket.earliest(now, cost)) }

func (a *adaptive) after(now, ahead, cost int64) int64 {
	return a.bucket.after(max(now, a.until), ahead, cost)
}

// take lets the rate grow with the time for which it was the limit that held callers up: that since the last grant, when
// this one comes as soon as the bucket allows.
func (a *adaptive) take(now, ready, cost int64, tag uint32) {
	due, last := a.tat.ceil(), a.last
	saturated := due > last && now-due <= maxLate && a.until <= last
	a.bucket.take(now, ready, cost, tag)
	if len(a.granted) >= maxUnknown {
		clear(a.granted)
	}
	a.granted[tag] = now
	if saturated {
		a.setSpeed(now, a.speed+a.increase*float64(now-last)/float64(time.Second))
	}
}

func (a *adaptive) fits(now, cost, next, then int64) bool {
	return a.bucket.fits(now, cost, next, max(then, a.until))
}

// answer deals with a throttling answer, or a pause, to the attempt with this tag.
func (a *adaptive) answer(now int64, tag uint32, throttled bool, pause int64) {
	granted, known := a.granted[tag]
	delete(a.granted, tag)
	if pause > 0 {
		a.until = max(a.until, now+pause)
	}
	if throttled && (!known || granted >= a.decreased) {
		a.decreased = now
		a.setSpeed(now, a.speed*a.decrease)
	}
}

// setSpeed changes the rate, within bounds. What is owed stays owed, in tokens.
func (a *adaptive) setSpeed(now int64, speed float64) {
	lowest, highest := perSecond(a.floor), perSecond(a.ceiling)
	r := rateOf(speed)
	switch {
	case speed <= lowest:
		speed, r = lowest, a.floor
	case speed >= highest:
		speed, r = highest, a.ceiling
	}
	if speed != a.speed {
		a.speed = speed
		a.bucket.setRate(now, r)
	}
}

func perSecond(r Rate) float64 { return float64(r.Count) / r.Per.Seconds() }

// rateOf is a speed as a Rate, to nine digits or so: a long period makes room for a large count.
func rateOf(speed float64) Rate {
	const per = 1e8 * time.Second
	return Rate{Count: int(math.Max(1, math.Min(speed*1e8, float64(per)))), Per: per}
}
