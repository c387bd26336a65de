package limitertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// Run checks, in subtests of t, that the limiters made by newLimiter keep the
// rules of [ratelimiter.Limiter] and of the optional interfaces that they
// implement. See the package comment for what is checked.
//
// Each call of newLimiter must return a fresh limiter of the same kind. It is
// called inside of the bubbles, and for one check that runs in real time outside.
// The subtests do not run in parallel with each other; those of several Runs may.
func Run(t *testing.T, newLimiter func() ratelimiter.Limiter, opts ...Option) {
	t.Helper()
	k, err := newKit(newLimiter, opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			o := k.check(t, c)
			for _, f := range o.findings {
				t.Error(f)
			}
			if o.skipped != "" {
				t.Skip(o.skipped)
			}
		})
	}
}

// An Option is an option of [Run].
type Option func(*config)

type config struct {
	request   func(i int) ratelimiter.Request
	unordered bool
	random    bool
	without   map[string]string
	closer    func(ratelimiter.Limiter)
	patience  time.Duration
}

// WithRequest sets what the limiter is asked for: f(i) is the request of caller
// i, from 0. It must return the same for the same i. All the requests must have
// to wait for each other, so they must be of one key or one worker, if it is that
// what the limiter goes by, and of the same cost; they may differ in the rest. The
// kit changes the Cost of some. f is called by many goroutines at once. The
// default is a request of cost 1 with Index i and Attempt 1.
func WithRequest(f func(i int) ratelimiter.Request) Option {
	return func(c *config) { c.request = f }
}

// Unordered is for limiters that do not promise to grant in order of arrival.
// Nothing is then expected of the order of those who wait, only of the instants at
// which any of them is granted. TryAcquire must not overtake them all the same.
func Unordered() Option { return func(c *config) { c.unordered = true } }

// Random is for limiters that draw their delays at random. Runs then cannot be
// compared to the nanosecond, and what depends on that is not checked, such as
// retryAfter. What remains is that everybody returns, when and with which error,
// in order, and that those who give up do not delay the others for long.
func Random() Option { return func(c *config) { c.random = true } }

// Without leaves out the check of that name, one of the subtests of [Run]. The
// subtest is skipped, and says why: a fault that is known, an issue, what it
// would take. An unknown name fails the test, and an empty why does too.
func Without(check, why string) Option {
	return func(c *config) { c.without[check] = why }
}

// WithClose sets a function that ends what a limiter keeps going until it is
// closed, such as a goroutine of its own. It is called with each limiter when all
// of its callers have returned; then no goroutine may be left.
func WithClose(f func(ratelimiter.Limiter)) Option {
	return func(c *config) { c.closer = f }
}

// WithPatience sets how long, in real time, a check may go on without anything
// happening before it counts as stuck: because something spins, polls, or is
// blocked where a bubble cannot see it. The default is 30 seconds, which is ample
// on a machine that is busy with other things as well; d must be more than zero.
func WithPatience(d time.Duration) Option {
	return func(c *config) { c.patience = d }
}

func newKit(newLimiter func() ratelimiter.Limiter, opts []Option) (*kit, error) {
	k := &kit{newLimiter: newLimiter, config: config{
		request:  func(i int) ratelimiter.Request { return ratelimiter.Request{Index: i, Attempt: 1} },
		without:  make(map[string]string),
		patience: 30 * time.Second,
	}}
	for _, opt := range opts {
		opt(&k.config)
	}
	switch {
	case newLimiter == nil:
		return nil, fmt.Errorf("limitertest: newLimiter is nil")
	case k.request == nil:
		return nil, fmt.Errorf("limitertest: WithRequest is nil")
	case k.patience <= 0:
		return nil, fmt.Errorf("limitertest: WithPatience is %v, must be more than 0", k.patience)
	}
	for name, why := range k.without {
		if why == "" {
			return nil, fmt.Errorf("limitertest: Without(%q) gives no reason", name)
		}
		if checkNamed(name) == nil {
			return nil, fmt.Errorf("limitertest: Without names the check %q, must be one of %s", name, strings.Join(names(), ", "))
		}
	}
	return k, nil
}

func checkNamed(name string) *check {
	for i := range checks {
		if checks[i].name == name {
			return &checks[i]
		}
	}
	return nil
}

func names() (all []string) {
	for _, c := range checks {
		all = append(all, c.name)
	}
	return all
}
