package retry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// A Backoff says how long to wait before the next attempt of a task. failed is how many attempts of this task have
// failed so far, from 1, free ones (see [Policy.FreeThrottled]) included; err is the error of the last one, as the
// handler returned it.
//
// A Backoff is called by many workers at once and must be safe for that. It should be a function of its arguments, with
// no memory of earlier calls, so that one Backoff serves any number of tasks. It must not return a negative duration:
// the engine refuses that with a *CallbackError, which ends the run. There is no value for "stop"; what must not be
// retried is the business of the policy's filters and of [Permanent].
type Backoff func(failed int, err error) time.Duration

// Constant returns a Backoff that always answers d. It has no jitter: tasks that fail together come back together. Use
// it where a limiter spreads the attempts anyway, or in tests.
//
// d is passed on as it is. A negative one is refused by the engine when it is first used, like any other negative
// answer of a Backoff.
func Constant(d time.Duration) Backoff {
	return func(int, error) time.Duration { return d }
}

// Exponential returns a Backoff whose ceiling is base after the first failed attempt and grows by a factor, 2 unless
// [WithFactor] says otherwise, with each further one, up to limit. The delay is drawn evenly between zero (excluded) and
// that ceiling (included): "full jitter", which spreads callers that failed together best and makes the fewest calls in
// all (Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). [WithJitter] changes how much of
// the delay is left to chance.
//
// Every delay is longer than zero and at most limit, for any number of failed attempts up to math.MaxInt; without jitter
// it never gets shorter from one attempt to the next. A number of failed attempts below 1 counts as 1.
//
// The Backoff is safe for concurrent use. It costs some tens of nanoseconds and does not allocate.
//
// Exponential has no error result, and its arguments are nearly always constants in the program: it panics, with a text
// that names the argument, its value and what would be right, when base is not positive, when limit is shorter than
// base, and when an option is nil or has a value out of its range.
func Exponential(base, limit time.Duration, opts ...ExponentialOption) Backoff {
	e := exponential{base: base, limit: limit, factor: 2, jitter: 1, draw: rand.Int64N}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("retry: Exponential: option %d is nil", i+1))
		}
		opt(&e)
	}
	e.check()
	return e.delay
}

// An ExponentialOption changes what [Exponential] returns. Given twice, the last one wins.
type ExponentialOption func(*exponential)

// minFactor is the slowest growth that Exponential takes, other than none. Rounding errors in the power are far smaller
// than a step of a thousandth, so that delays without jitter really never get shorter; closer to 1 that would be luck.
const minFactor = 1.001

// WithFactor sets how many times longer the ceiling gets with each failed attempt. The factor must be finite and 1, for
// no growth, or at least 1.001; the default is 2. Otherwise Exponential panics.
func WithFactor(factor float64) ExponentialOption {
	return func(e *exponential) { e.factor = factor }
}

// WithJitter sets which share of the delay is left to chance, from 0 to 1. With a share of 0.2 and a ceiling of 10 s the
// delay is drawn evenly between 8 s and 10 s. 1, the default, is full jitter; 0 is none: the delay is always the
// ceiling, and tasks that fail together come back together. Outside that range, or NaN, Exponential panics.
func WithJitter(share float64) ExponentialOption {
	return func(e *exponential) { e.jitter = share }
}

// WithRandom draws the jitter from r instead of from the random source of package math/rand/v2, so that a fixed seed
// gives the same delays in the same order of calls. A lock guards r, because a Backoff is called by many workers at once
// and a *rand.Rand is not safe for that; so r must not be used for anything else, another Backoff included. With a nil r
// Exponential panics.
func WithRandom(r *rand.Rand) ExponentialOption {
	if r == nil {
		return func(e *exponential) { e.draw = nil }
	}
	var mu sync.Mutex
	return func(e *exponential) {
		e.draw = func(n int64) int64 {
			mu.Lock()
			defer mu.Unlock()
			return r.Int64N(n)
		}
	}
}

type exponential struct {
	base, limit time.Duration
	factor      float64
	jitter      float64
	draw        func(n int64) int64 // evenly from [0, n), safe for concurrent use
}

func (e *exponential) check() {
	switch {
	case e.base <= 0:
		panic(fmt.Sprintf("retry: Exponential: base is %v: it must be longer than zero", e.base))
	case e.limit < e.base:
		panic(fmt.Sprintf("retry: Exponential: limit is %v: it must not be shorter than base, %v", e.limit, e.base))
	case e.factor != 1 && !(e.factor >= minFactor && e.factor <= math.MaxFloat64): // put so that NaN fails
		panic(fmt.Sprintf("retry: WithFactor: factor is %v: it must be finite and 1, or at least %v", e.factor, minFactor))
	case !(e.jitter >= 0 && e.jitter <= 1):
		panic(fmt.Sprintf("retry: WithJitter: share is %v: it must be from 0 to 1", e.jitter))
	case e.draw == nil:
		panic("retry: WithRandom: the *rand.Rand is nil: leave the option out for a random seed")
	}
}

func (e *exponential) delay(failed int, _ error) time.Duration {
	ceiling := e.ceiling(failed)
	// span is how far below the ceiling the delay may fall; never all the way, so that no delay is zero. The full
	// jitter is not left to the multiplication: a float64 near the longest Duration would round up and overflow.
	span := ceiling - 1
	if e.jitter < 1 {
		span = min(span, time.Duration(e.jitter*float64(ceiling)))
	}
	if span == 0 {
		return ceiling
	}
	return ceiling - time.Duration(e.draw(int64(span)+1))
}

// ceiling is min(limit, base·factor^(failed-1)), worked out so that it cannot overflow: the power may become infinite,
// and is compared with the limit before it becomes a Duration.
func (e *exponential) ceiling(failed int) time.Duration {
	if failed <= 1 || e.factor == 1 {
		return e.base
	}
	grown := float64(e.base) * math.Pow(e.factor, float64(failed-1))
	if grown >= float64(e.limit) {
		return e.limit
	}
	return time.Duration(grown)
}
