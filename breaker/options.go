package breaker

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// The defaults of [New].
const (
	DefaultThreshold = 5
	DefaultWindow    = time.Minute
	DefaultCooldown  = 30 * time.Second
	DefaultProbes    = 5
	DefaultRatio     = 0.8
)

const (
	maxCount = 1_000_000                  // a failure that counts takes 8 bytes, a running probe 16
	maxSpan  = 100 * 365 * 24 * time.Hour // far from overflow, and nobody waits that long
)

// An Option sets one thing about a [Breaker]. Given twice, the last one counts. Options are values: they can be kept and
// used for many breakers.
type Option interface{ apply(*config) }

type option func(*config)

func (o option) apply(c *config) { o(c) }

type config struct {
	threshold        int
	window, cooldown time.Duration
	probes           int
	ratio            float64
	need             int // successes that close, worked out from probes and ratio
	trip             func(error) bool
	changed          func(from, to State)
}

// WithThreshold opens the breaker at the given number of failures within the window. The window slides, exactly: each
// failure counts from the instant it is reported until it is one window old, and no longer. Successes do not reset the
// count: with many attempts at a time there is always some success, and it would hide the failures.
// Failures are counted and not rated, so a busy service with a normal share of errors needs a threshold above what that
// share makes in one window. failures is from 1 to 1,000,000; window is positive and at most 100 years. The default is
// 5 failures within a minute.
func WithThreshold(failures int, window time.Duration) Option {
	return option(func(c *config) { c.threshold, c.window = failures, window })
}

// WithCooldown sets how long the breaker stays open before it tries again. It is also how long a probe may take: one that
// has not ended a cooldown after it began opens the breaker again, whatever it may still say. So d should be longer than
// an attempt that is still all right; see [Breaker.Leave] for what happens if it is not. It is positive and at most 100
// years. The default is 30 s: with a minute's window the service gets some rest, and those who wait for it lose at most
// half a minute after it is back. For a service that needs minutes to restart, or asks for peace, 5 min is a usual value.
func WithCooldown(d time.Duration) Option {
	return option(func(c *config) { c.cooldown = d })
}

// WithProbes sets how many attempts are made in half-open, all at once if there are as many, and which share of them
// must succeed. Each is decided as soon as it is certain: with 5 probes and a ratio of 0.8 the fourth success closes the
// breaker and the second failure opens it. n is from 1 to 1,000,000; ratio is more than 0 and at most 1. The default is
// 5 probes and 0.8.
func WithProbes(n int, ratio float64) Option {
	return option(func(c *config) { c.probes, c.ratio = n, ratio })
}

// WithTrip says which errors of attempts count as failures: those that mean that the service is ill, such as timeouts
// and 5xx answers, and not those that mean that the request is. It is asked by [Breaker.Failure], from many goroutines
// at once. nil, the default, counts every error.
func WithTrip(failure func(err error) bool) Option {
	return option(func(c *config) { c.trip = failure })
}

// WithOnChange has f called after each change of state: one call at a time, in the order of the changes, outside all
// locks, so f may use the breaker. f runs on a goroutine of its own, for which the attempt that made the change waits,
// so it should be quick. A panic in it, or a runtime.Goexit, is logged by slog.Default and otherwise ignored. nil, the
// default, is no function.
func WithOnChange(f func(from, to State)) Option {
	return option(func(c *config) { c.changed = f })
}

// configure puts the options together and returns an error that names every fault.
func configure(opts []Option) (config, error) {
	c := config{
		threshold: DefaultThreshold, window: DefaultWindow, cooldown: DefaultCooldown,
		probes: DefaultProbes, ratio: DefaultRatio,
	}
	var errs []error
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("breaker: option %d is nil: leave it out", i+1))
			continue
		}
		o.apply(&c)
	}
	errs = append(errs,
		checkCount("WithThreshold: failures", c.threshold),
		checkSpan("WithThreshold: window", c.window),
		checkSpan("WithCooldown", c.cooldown),
		checkCount("WithProbes: n", c.probes),
	)
	if !(c.ratio > 0 && c.ratio <= 1) { // put so that NaN fails
		errs = append(errs, fmt.Errorf("breaker: WithProbes: ratio is %v, must be more than 0 and at most 1", c.ratio))
	}
	if err := errors.Join(errs...); err != nil {
		return config{}, err
	}
	c.need = share(c.probes, c.ratio)
	return c, nil
}

func checkCount(name string, n int) error {
	if n < 1 || n > maxCount {
		return fmt.Errorf("breaker: %s is %d, must be from 1 to %d", name, n, maxCount)
	}
	return nil
}

func checkSpan(name string, d time.Duration) error {
	if d <= 0 || d > maxSpan {
		return fmt.Errorf("breaker: %s is %v, must be more than 0 and at most %v", name, d, maxSpan)
	}
	return nil
}

// share is the least k for which k of n is at least ratio. It compares quotients, since 0.07 is 7/100 as a float64 and
// 0.07*100 is more than 7.
func share(n int, ratio float64) int {
	k := max(int(math.Ceil(ratio*float64(n))), 1)
	if k > 1 && float64(k-1)/float64(n) >= ratio {
		k--
	}
	return k
}
