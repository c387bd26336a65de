package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// Settings are what the sliders set.
type settings struct {
	rate  int           // requests per second
	burst int           // of the token bucket that has one
	pause time.Duration // of the pausable limiter
	cost  int           // tokens that each request costs, where tokens are limited
}

func defaults() settings { return settings{rate: 10, burst: 5, pause: time.Second, cost: 4} }

// A control is a setting as the page and the flags know it.
type control struct {
	Name, Label, Unit string
	For               string // what it changes
	Min, Max, Step    float64
	get               func(settings) float64
	set               func(*settings, float64)
}

func (c control) Value(s settings) float64 { return c.get(s) }

var controls = []control{
	{"rate", "Rate", "/s", "every limiter", 5, 40, 1,
		func(s settings) float64 { return float64(s.rate) },
		func(s *settings, v float64) { s.rate = int(v) }},
	{"burst", "Burst", " at once", "the token bucket with burst", 1, 20, 1,
		func(s settings) float64 { return float64(s.burst) },
		func(s *settings, v float64) { s.burst = int(v) }},
	{"pause", "Pause", " s", "the pausable limiter", 0, 3, 0.1,
		func(s settings) float64 { return s.pause.Seconds() },
		func(s *settings, v float64) { s.pause = time.Duration(v*10+0.5) * 100 * time.Millisecond }},
	{"cost", "Cost", "/request", "all: requests and tokens", 1, 8, 1,
		func(s settings) float64 { return float64(s.cost) },
		func(s *settings, v float64) { s.cost = int(v) }},
}

// check names every setting that is out of its range; prefix is put before the names.
func (s settings) check(prefix string) error {
	var errs []error
	for _, c := range controls {
		if v := c.get(s); v < c.Min || v > c.Max {
			errs = append(errs, fmt.Errorf("%s%s is %v: it must be from %v to %v%s", prefix, c.Name, v, c.Min, c.Max, c.Unit))
		}
	}
	if s.pause%(100*time.Millisecond) != 0 {
		errs = append(errs, fmt.Errorf("%spause is %v: it must be a multiple of 100ms", prefix, s.pause))
	}
	return errors.Join(errs...)
}

// A lane is a limiter with what is needed to try it out.
type lane struct {
	id, name string
	about    string   // what it was told to do
	groups   []string // whose limits it has, if not one for all
	limiter  ratelimiter.Limiter
	pausable *ratelimiter.Pausable           // what is paused in the middle, if anything
	group    func(i int) int                 // of the i-th request; nil: there is one group
	tokens   bool                            // the request's cost is told
	answer   func(ratelimiter.Request) error // what a service says to a request that was let go; nil: nothing
}

// request is the i-th request and the group it belongs to.
func (l *lane) request(i int, s settings) (req ratelimiter.Request, group int) {
	req = ratelimiter.Request{Index: i, Attempt: 1}
	if l.group != nil {
		group = l.group(i)
		req.Worker, req.Key = group, l.groups[group]
	}
	if l.tokens {
		req.Cost = s.cost
	}
	return req, group
}

// newLanes makes the limiters to compare, all for the same number of requests per second.
func newLanes(s settings) ([]lane, error) {
	var lanes []lane
	for _, newLane := range []func(settings) (lane, error){
		spaced, withBurst, window, pausable, requestsAndTokens, perWorker, perKey, randomized, adaptive,
	} {
		l, err := newLane(s)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

func spaced(s settings) (lane, error) {
	l, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(s.rate))
	return lane{id: "spaced", name: "Token bucket", limiter: l,
		about: fmt.Sprintf("%d/s, evenly spaced", s.rate)}, err
}

func withBurst(s settings) (lane, error) {
	l, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(s.rate), ratelimiter.WithBurst(s.burst))
	return lane{id: "burst", name: "Token bucket with burst", limiter: l,
		about: fmt.Sprintf("%d/s, %d at once after a quiet time", s.rate, s.burst)}, err
}

func window(s settings) (lane, error) {
	l, err := ratelimiter.NewSlidingWindow(ratelimiter.PerSecond(s.rate))
	return lane{id: "window", name: "Sliding window", limiter: l,
		about: fmt.Sprintf("never more than %d in any second", s.rate)}, err
}

// A service that has had enough says so once, and everybody waits. Here nobody says it but the clock.
func pausable(s settings) (lane, error) {
	inner, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(s.rate))
	if err != nil {
		return lane{}, err
	}
	l := ratelimiter.NewPausable(inner)
	about := fmt.Sprintf("%d/s, paused for %v", s.rate, s.pause)
	if s.pause == 0 {
		about = fmt.Sprintf("%d/s, no pause", s.rate)
	}
	return lane{id: "pausable", name: "Pausable", limiter: l, pausable: l, about: about}, nil
}

// As the services of language models have it: so many requests, and so many tokens. At a cost of two both limits are the
// same; when requests cost more, the tokens that are there at first are soon used up, and from then on they set the pace.
func requestsAndTokens(s settings) (lane, error) {
	requests, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(s.rate))
	if err != nil {
		return lane{}, err
	}
	tokens, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(2*s.rate), ratelimiter.WithBurst(2*s.rate))
	if err != nil {
		return lane{}, err
	}
	l, err := ratelimiter.NewAll(ratelimiter.CountRequests(requests), tokens)
	return lane{id: "all", name: "All: requests and tokens", limiter: l, tokens: true,
		about: fmt.Sprintf("%d/s and %d tokens/s; each costs %d", s.rate, 2*s.rate, s.cost)}, err
}

func perWorker(s settings) (lane, error) {
	const workers = 3
	l, err := ratelimiter.NewPerWorker(ratelimiter.Rate{Count: s.rate, Per: workers * time.Second})
	return lane{id: "worker", name: "Per worker", limiter: l,
		groups: []string{"1", "2", "3"},
		group:  func(i int) int { return i % workers },
		about:  fmt.Sprintf("%s/s for each of %d workers", decimal(s.rate, workers), workers)}, err
}

func perKey(s settings) (lane, error) {
	l, err := ratelimiter.NewPerKey(
		map[string]ratelimiter.Rate{"a": {Count: s.rate, Per: 2 * time.Second}},
		ratelimiter.Rate{Count: s.rate, Per: 4 * time.Second})
	return lane{id: "key", name: "Per key", limiter: l,
		groups: []string{"a", "b", "c"},
		group:  func(i int) int { return i % 3 },
		about:  fmt.Sprintf("a: %s/s; every other key: %s/s", decimal(s.rate, 2), decimal(s.rate, 4))}, err
}

// The same random numbers each time, so that moving a slider shows what the slider does and not what chance does.
func randomized(s settings) (lane, error) {
	l, err := ratelimiter.NewRandomizedInterval(ratelimiter.PerSecond(s.rate),
		ratelimiter.WithMultiplier(1.5, 0.3), ratelimiter.WithBounds(0.2, 2),
		ratelimiter.WithRandom(rand.New(rand.NewPCG(1, 2))))
	return lane{id: "random", name: "Randomised interval", limiter: l,
		about: fmt.Sprintf("at most %d/s, out of step", s.rate)}, err
}

var errThrottled = errors.New("the service has had enough")

// A limiter that is told what a service thinks of its rate. The service bears half of it, and what it refuses is not
// sent again here.
func adaptive(s settings) (lane, error) {
	service, err := ratelimiter.NewTokenBucket(ratelimiter.Rate{Count: s.rate, Per: 2 * time.Second}, ratelimiter.WithBurst(4))
	if err != nil {
		return lane{}, err
	}
	l, err := ratelimiter.NewAdaptive(
		ratelimiter.Rate{Count: s.rate, Per: 5 * time.Second}, ratelimiter.PerSecond(s.rate),
		ratelimiter.WithIncrease(float64(s.rate)/10),
		ratelimiter.WithThrottle(func(err error) bool { return errors.Is(err, errThrottled) }))
	return lane{id: "adaptive", name: "Adaptive", limiter: l,
		answer: func(req ratelimiter.Request) error {
			var err error
			if ok, _ := service.TryAcquire(req); !ok {
				err = errThrottled
			}
			l.Observe(req, err)
			return err
		},
		about: fmt.Sprintf("%s to %d/s; the service bears %s/s", decimal(s.rate, 5), s.rate, decimal(s.rate, 2))}, err
}

// decimal is n/d in at most one decimal place.
func decimal(n, d int) string {
	s := strconv.FormatFloat(float64(n)/float64(d), 'f', 1, 64)
	if s[len(s)-2:] == ".0" {
		return s[:len(s)-2]
	}
	return s
}
