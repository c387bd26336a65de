package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A RandomizedInterval never grants more than its Rate's Count in any period of Per, as a [SlidingWindow] does, and puts a
// random delay before each grant besides: also before the first, and after idle time. It is for services that look askance
// at calls in lock-step. It makes regular patterns less conspicuous; it does not imitate people and promises nothing about
// being noticed.
//
// It is serial. The request at the head of the line waits for the window, then for the whole of its delay, and is granted;
// only then does the turn of the next begin, also if they come through different limiters that share this one. So the
// throughput is at most the smaller of the rate and one per mean delay, and is below the rate in general. Grants are made in
// order of arrival. A request that gives up passes its turn on and counts for nothing.
//
// The delay is Per/Count, the interval, times a multiplier drawn anew for each request: with φ uniform in [0, 2π) and
// s = |sin φ|,
//
//	max(lower + s·f, min(upper - s·f, s·Normal(mean, stdDev)))
//
// that is, a bell curve scaled by a random amplitude and kept within bounds which the same amplitude moves inwards by up to
// the fluctuation f. With the defaults the multiplier's mean is about 0.57.
//
// TryAcquire draws a delay like any other request, and so grants only when that is zero. Costs add up in the window; one
// above Count is a [*CostError]. The zero RandomizedInterval is not usable. All methods are safe for concurrent use.
type RandomizedInterval struct {
	single
	sched randomized
}

// A RandomizedOption is an option of [NewRandomizedInterval].
type RandomizedOption func(*multiplier)

// WithMultiplier sets the bell curve of the multiplier, before it is scaled and bounded. The defaults are 0.9 and 0.2. Both
// must be finite, and stdDev at least 0.
func WithMultiplier(mean, stdDev float64) RandomizedOption {
	return func(m *multiplier) { m.mean, m.stdDev = mean, stdDev }
}

// WithBounds keeps the multiplier from lower to upper; a lower bound above 0 is a minimum delay. The defaults are 0 and
// 1.1. Both must be finite, and 0 <= lower <= upper.
func WithBounds(lower, upper float64) RandomizedOption {
	return func(m *multiplier) { m.lower, m.upper = lower, upper }
}

// WithFluctuation sets by how much the bounds move inwards at most. The default is 0.005. It must be at least 0, and at
// most half of the distance between the bounds.
func WithFluctuation(f float64) RandomizedOption {
	return func(m *multiplier) { m.fluctuation = f }
}

// WithRandom sets the source of randomness, for a sequence that can be repeated. It is used under the limiter's lock and
// must not be used elsewhere at the same time. The default is a source seeded at random.
func WithRandom(r *rand.Rand) RandomizedOption {
	return func(m *multiplier) { m.random = r }
}

// NewRandomizedInterval returns a limiter that has granted nothing yet. It is an error if the rate is not one that
// [NewSlidingWindow] takes or an option is out of its range; the error names the field, its value and the bound, and
// several are joined.
func NewRandomizedInterval(r Rate, opts ...RandomizedOption) (*RandomizedInterval, error) {
	l := new(RandomizedInterval)
	m := &l.sched.multiplier
	*m = multiplier{mean: 0.9, stdDev: 0.2, lower: 0, upper: 1.1, fluctuation: 0.005,
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	fault := apply(opts, m)
	err := checkWindow(r)
	if err == nil {
		m.interval = float64(r.Per) / float64(r.Count)
	}
	if err := errors.Join(fault, err, m.check()); err != nil {
		return nil, err
	}
	l.sched.setRate(0, r)
	l.init(&l.sched, fmt.Sprintf("randomized interval %v", r), l.sched.count)
	return l, nil
}

// Acquire waits for the window and then for a random delay, in order of arrival. It returns nil then, a [*CostError] at
// once if the cost is above Count, or an error that is ctx's to errors.Is if ctx ends first or its deadline is certain to.
func (l *RandomizedInterval) Acquire(ctx context.Context, req Request) error {
	return l.line.acquire(ctx, req)
}

// TryAcquire implements [TryAcquirer].
func (l *RandomizedInterval) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	return l.line.tryAcquire(req)
}

// AcquireWithin implements [TryAcquirer]. How long those ahead will take is an estimate.
func (l *RandomizedInterval) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return l.line.acquireWithin(ctx, req, maxWait)
}

// Adjust implements [Adjuster] for the window, as [SlidingWindow.Adjust] does.
func (l *RandomizedInterval) Adjust(req Request, actual int) {
	l.line.adjust(l.line.lock(), askOf(req), actual)
}

// String names the limit, for example "randomized interval 100/m".
func (l *RandomizedInterval) String() string { return l.line.String() }

// randomized is the schedule: a window, and the delay of the request whose turn it is.
type randomized struct {
	window
	multiplier
	begun int64 // when its turn began
	room  int64 // when the window had room for it, or will have
	delay int64
}

func (r *randomized) begin(now int64) { r.begun, r.room, r.delay = now, now, r.draw() }

// earliest is for the request whose turn it is: the window first, then the delay. A window with room does not say since when
// it has it, so that is kept.
func (r *randomized) earliest(now, cost int64) int64 {
	t := r.window.earliest(now, cost)
	switch {
	case t >= never:
		return never
	case t <= now:
		t = min(r.room, now)
	}
	r.room = max(t, r.begun)
	return r.room + r.delay
}

// atBest is for a request whose delay has not been drawn.
func (r *randomized) atBest(now, cost int64) int64 {
	t := r.window.earliest(now, cost)
	if t >= never {
		return never
	}
	return max(t, now) + int64(r.lower*r.interval)
}

// after reckons with the mean delay of those ahead.
func (r *randomized) after(now, ahead, cost int64) int64 {
	t := r.window.after(now, ahead, cost)
	if t >= never {
		return never
	}
	mean := math.Max(r.lower, math.Min(r.upper, r.mean*2/math.Pi)) * r.interval * float64(ahead)
	return max(t, max(now, r.begun)+int64(math.Min(mean, float64(maxSpan)))) + r.delay
}

// fits is always false: one request after the other.
func (r *randomized) fits(_, _, _, _ int64) bool { return false }

// A multiplier draws delays.
type multiplier struct {
	mean, stdDev float64
	lower, upper float64
	fluctuation  float64
	random       *rand.Rand
	interval     float64 // in ns
}

func (m *multiplier) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("ratelimiter: "+format, args...)) }
	switch {
	case finite(m.mean) != nil || finite(m.stdDev) != nil:
		bad("WithMultiplier is %v, %v, both must be finite numbers", m.mean, m.stdDev)
	case m.stdDev < 0:
		bad("WithMultiplier's stdDev is %v, must be at least 0", m.stdDev)
	}
	bounds := false
	switch {
	case finite(m.lower) != nil || finite(m.upper) != nil:
		bad("WithBounds is %v, %v, both must be finite numbers", m.lower, m.upper)
	case m.lower < 0 || m.lower > m.upper:
		bad("WithBounds is %v, %v, must be 0 <= lower <= upper", m.lower, m.upper)
	case m.upper*m.interval > float64(maxSpan):
		bad("WithBounds' upper is %v, a delay of %v intervals must be at most %v", m.upper, m.upper, maxSpan)
	default:
		bounds = true
	}
	switch {
	case finite(m.fluctuation) != nil:
		bad("WithFluctuation is %v, %v", m.fluctuation, errNotFinite)
	case m.fluctuation < 0:
		bad("WithFluctuation is %v, must be at least 0", m.fluctuation)
	case bounds && 2*m.fluctuation > m.upper-m.lower:
		bad("WithFluctuation is %v, must be at most half of the distance between the bounds %v and %v", m.fluctuation,
			m.lower, m.upper)
	}
	if m.random == nil {
		bad("WithRandom is nil, leave it out for a source seeded at random")
	}
	return errors.Join(errs...)
}

// draw returns the next delay in ns.
func (m *multiplier) draw() int64 {
	s := math.Abs(math.Sin(m.random.Float64() * 2 * math.Pi))
	v := (m.random.NormFloat64()*m.stdDev + m.mean) * s
	f := s * m.fluctuation
	return int64(m.interval * math.Max(m.lower+f, math.Min(m.upper-f, v)))
}
