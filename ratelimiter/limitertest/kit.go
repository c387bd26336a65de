package limitertest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// A kit checks one kind of limiter. It reports nothing itself: what a check found
// is its outcome, so that the kit can be tested with limiters that are broken.
type kit struct {
	config
	newLimiter func() ratelimiter.Limiter
	profile    profile
	profiled   bool
	over       string // the check that found that nothing more can be checked
	leaking    bool   // goroutines are left, and a check has said so
	deaf       bool   // callers do not return when their contexts end

	bubbles sync.WaitGroup // those that have not come to an end
}

// A check is one subtest.
type check struct {
	name  string
	needs need
	run   func(r *run)
}

// need is what a limiter must be or do for a check to make sense.
type need uint

const (
	aLine   need = 1 << iota // makes callers wait
	exact                    // behaves the same in each run
	trying                   // is a TryAcquirer
	adjust                   // is an Adjuster
	observe                  // is an Observer
	granted                  // grants something at once
)

// An outcome is what came out of a check: nothing if the limiter passed.
type outcome struct {
	findings []finding
	skipped  string // why the check was not made, or not all of it
}

// enough findings of one check tell what is wrong.
const enough = 3

// A run is a check being made.
type run struct {
	*kit
	t    *testing.T
	name string

	mu sync.Mutex
	outcome
}

// stopped is what a check panics with when there is no sense in going on.
type stopped struct{}

// check makes a check. t is there for the bubbles; it does not fail, unless the
// race detector makes it.
func (k *kit) check(t *testing.T, c check) outcome {
	if why, ok := k.without[c.name]; ok {
		return outcome{skipped: "left out: " + why}
	}
	if k.over != "" {
		return outcome{skipped: "not checked, since the limiter failed " + k.over}
	}
	r := &run{kit: k, t: t, name: c.name}
	r.guard(func() {
		if !k.profiled {
			k.over = c.name // unless all goes well
			if r.look(); !r.sane() {
				return
			}
			k.over, k.profiled = "", true
		}
		if why := k.profile.lacks(c.needs, &k.config); why != "" {
			r.skipped = why
			return
		}
		c.run(r)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome
}

// sane reports whether nothing was found but goroutines that are left, which does
// not keep the limiter from being checked.
func (r *run) sane() bool {
	return r.found() == 0 || r.leaking && r.found() == 1
}

// guard calls f until it panics with stopped.
func (r *run) guard(f func()) {
	defer func() {
		if v := recover(); v != nil && v != (stopped{}) {
			panic(v)
		}
	}()
	f()
}

// add notes a finding.
func (r *run) add(broken rule, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = r.deaf || broken == rule2
	if len(r.findings) < enough {
		r.findings = append(r.findings, finding{broken, fmt.Sprintf(format, args...)})
	}
}

func (r *run) found() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.findings)
}

// bubble runs f with a fresh limiter in a bubble of its own, to the end or until
// it is stuck. It does not return if after that there is nothing more to check.
func (r *run) bubble(f func(s *stage)) {
	s := &stage{run: r}
	r.bubbles.Add(1)
	ended := make(chan any, 1)
	go func() {
		defer r.bubbles.Done()
		defer func() { ended <- recover() }()
		synctest.Test(r.t, func(*testing.T) { s.live(f) })
	}()
	r.watch(s, ended)
	if s.cut || r.found() >= enough {
		panic(stopped{})
	}
}

// watch waits for the end of a bubble, for as long as something happens in it.
func (r *run) watch(s *stage, ended <-chan any) {
	const looks = 8
	tick := time.NewTicker(max(r.patience/looks, 1))
	defer tick.Stop()
	// Ticks are counted, since one that is late, or a process that was stopped
	// for a while, says nothing about the limiter.
	last, idle := uint64(0), 0
	for {
		select {
		case v := <-ended:
			r.ended(s, v)
			return
		case <-tick.C:
			if now := s.steps.Load(); now != last {
				last, idle = now, 0
			} else if idle++; idle >= looks {
				s.abandoned.Store(true)
				r.over = r.name
				r.add(rule9, "Nothing has happened for %v of real time. %s", r.patience, s.busy())
				panic(stopped{})
			}
		}
	}
}

// ended deals with what a bubble panicked with, if it did.
func (r *run) ended(s *stage, v any) {
	err, isErr := v.(error)
	switch {
	case v == nil:
	case !isErr || !strings.HasPrefix(err.Error(), "deadlock:"):
		panic(v)
	case !s.left:
		r.leak(goroutines(s.id()), "when all callers had returned and time stood still")
	}
}

// leaks reports goroutines if there are any.
func (r *run) leaks(gs []goroutine, when string) {
	if len(gs) > 0 {
		r.leak(gs, when)
	}
}

// leak reports goroutines that are left, once.
func (r *run) leak(gs []goroutine, when string) {
	if !r.leaking {
		r.leaking = true
		r.add(rule9, "There were goroutines left %s:\n%s", when, describe(gs))
	}
}
