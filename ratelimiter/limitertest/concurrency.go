package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// noGoroutines looks for what is left when all callers have returned, before time
// passes: a goroutine that would end later has outlived its call.
func (r *run) noGoroutines() {
	r.bubble(func(s *stage) {
		cs := s.line(s.profile.n)
		for i, c := range cs {
			if i%2 == 1 {
				c.cancel()
			}
		}
		s.settle()
		for i, c := range cs {
			if i%2 == 0 {
				s.await(c)
			}
		}
		s.settle()
		if s.closer == nil && !slices.ContainsFunc(cs, func(c *call) bool { return !c.back() }) {
			s.leaks(goroutines(s.id()), "at the instant at which all callers had returned, some granted and some cancelled")
		}
	})
}

// crowd has all ask at once, from as many goroutines, which must come to the same
// as if they ask one after the other.
func (r *run) crowd() {
	const most, more = 64, 16
	p := &r.profile
	n := min(p.free, most)
	if p.noLine == "" {
		n += more
	}
	got, want := r.crowdOf(n, p.free-most, true), r.crowdOf(n, p.free-most, false)
	if !slices.Equal(got, want) {
		broken := rule7
		if slices.ContainsFunc(seq(min(len(got), len(want))), func(i int) bool { return got[i] < want[i] }) {
			broken = rule1
		}
		r.add(broken, "%d callers that asked at one instant, from as many goroutines, must be granted at the instants at "+
			"which they are if they ask one after the other.\n%s",
			n, difference(got, want))
	}
	if p.tries {
		r.crowdOfTries(min(p.free, most), more, p.free-most)
	}
}

// crowdOf is when n callers are granted, by a limiter that has granted some before,
// if they ask all at once, or one after the other.
func (r *run) crowdOf(n, before int, atOnce bool) (at []time.Duration) {
	r.bubble(func(s *stage) {
		s.drain(max(before, 0))
		ready := make(chan struct{})
		for i := range n {
			m := manner{}
			if s.try != nil && i%2 == 1 {
				m = forever
			}
			if atOnce {
				m.ready = ready
			}
			s.askAs(m)
		}
		close(ready)
		at = s.instants(s.calls[len(s.calls)-n:]...)
	})
	slices.Sort(at)
	return at
}

// crowdOfTries has so many TryAcquires, and more, at one instant.
func (r *run) crowdOfTries(n, more, before int) {
	r.bubble(func(s *stage) {
		s.drain(max(before, 0))
		var granted atomic.Int64
		ready := make(chan struct{})
		for i := range n + more {
			req := s.request(s.next + i)
			s.begin("TryAcquire", s.next+i, req, manner{ready: ready}, func(context.Context) error {
				if ok, _ := s.try.TryAcquire(req); ok {
					granted.Add(1)
				}
				return nil
			})
		}
		close(ready)
		s.settle()
		if got := int(granted.Load()); got < n || got > n && s.profile.free < maxFree {
			broken := rule7
			if got > n {
				broken = rule1
			}
			s.report(broken, "%d goroutines called TryAcquire at one instant. %d of them were granted, want %d, as if they had "+
				"asked one after the other.", n+more, got, n)
		}
	})
}

// storm calls all methods from many goroutines, and looks whether the limiter is
// as good as new when it has been left alone for long enough.
func (r *run) storm() {
	p := &r.profile
	var got, want []time.Duration
	for _, stormy := range []bool{true, false} {
		r.bubble(func(s *stage) {
			if first := s.ask(); p.noLine == "" {
				s.await(first) // so that time counts from here in both
			}
			if stormy {
				s.rage()
			}
			if p.noLine != "" || s.random {
				return
			}
			s.sleepUntil(p.idle())
			s.next = 1 << 20
			n, head := s.fill(maxFree)
			if head == nil {
				s.fatal(rule7, "Many goroutines used all methods of the limiter. Long after that nobody had to wait any more.")
			}
			at := s.instants(append([]*call{head}, s.more(p.n)...)...)
			if s.unordered {
				slices.Sort(at)
			}
			at = append([]time.Duration{time.Duration(n)}, at...)
			if want = at; stormy {
				got = at
			}
		})
	}
	if p.noLine != "" || r.random || slices.Equal(got, want) {
		return
	}
	r.add(rule7, "Many goroutines used all methods of the limiter. Long after that it must be as if they had not. "+
		"It granted %d requests at once, want %d, and to the rest:\n%s", int(got[0]), int(want[0]), difference(got[1:], want[1:]))
}

// rage is the storm. All callers have returned when it does.
func (s *stage) rage() {
	const callers, each = 12, 16
	unit := max(s.profile.wait, time.Microsecond)
	if s.profile.noLine != "" {
		unit = time.Millisecond
	}
	var wg sync.WaitGroup
	for i := range callers {
		rng := rand.New(rand.NewPCG(uint64(i), 4))
		wg.Go(func() {
			for j := range each {
				time.Sleep(time.Duration(rng.Int64N(int64(unit)) / 4))
				s.anything(rng, s.request(1000+i*each+j), unit)
				s.steps.Add(1)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	c := &call{what: "a storm of calls", done: done}
	if !s.await(c) {
		s.left = true
		s.fatal(rule2, "Of many goroutines that used all methods at once, with contexts that ended soon, some have not "+
			"returned:\n%s", describe(goroutines(s.id())))
	}
}

// anything is a call of any of the methods, and of what comes after a grant.
func (s *stage) anything(rng *rand.Rand, req ratelimiter.Request, unit time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	most := time.Duration(rng.Int64N(3 * int64(unit)))
	var err error
	switch what := rng.IntN(6); {
	case what == 0 && s.try != nil:
		if ok, _ := s.try.TryAcquire(req); !ok {
			return
		}
	case what == 1 && s.try != nil:
		err = s.try.AcquireWithin(ctx, req, most)
	case what == 2:
		timed, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		err = s.l.Acquire(timed, req)
	default:
		timer := time.AfterFunc(most, cancel)
		defer timer.Stop()
		err = s.l.Acquire(ctx, req)
	}
	if err != nil {
		s.isEnd(err)
		return
	}
	if s.adj != nil {
		cost := max(req.Cost, 1)
		s.adj.Adjust(req, []int{0, cost, cost, cost + 1}[rng.IntN(4)])
	}
	if s.obs != nil {
		s.obs.Observe(req, nil)
	}
}

// isEnd checks that err is one that a caller whose wait is limited may get.
func (s *stage) isEnd(err error) {
	var excess *ratelimiter.ExcessError
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &excess) {
		s.report(rule6, "Many goroutines used all methods at once. One got an error that is neither its context's nor an "+
			"*ExcessError: %v", err)
	}
}

// realTime has cancels, grants and refusals meet in real time, where no instant is
// like another and timers are late. Each round has a fresh limiter.
func (r *run) realTime() {
	const rounds = 40
	if r.deaf {
		r.skipped = "not checked, since callers do not return when their contexts end"
		return
	}
	steady := r.profile.tries && !r.random && r.steady()
	for range rounds {
		r.meeting(steady)
		if r.found() > 0 {
			return
		}
	}
}

// meeting has as many ask as a fresh limiter grants at once, and some more. Their
// contexts end while they ask, or soon after.
func (r *run) meeting(steady bool) {
	const most, more = 12, 6
	s := &stage{run: r, start: time.Now()}
	s.l = r.newLimiter()
	if t, ok := ratelimiter.AsTryAcquirer(s.l); ok {
		s.try = t
	}
	var granted atomic.Int64
	var wg sync.WaitGroup
	ready := make(chan struct{})
	callers := min(r.profile.free, most) + more
	for i := range callers {
		wg.Go(func() {
			<-ready
			if s.meet(s.request(i), time.Duration(rand.IntN(40)-20)*time.Microsecond) {
				granted.Add(1)
			}
			s.steps.Add(1)
		})
	}
	ended := make(chan any, 1)
	r.bubbles.Go(func() {
		wg.Wait()
		ended <- nil
	})
	s.does(fmt.Sprintf("Acquire from %d goroutines in real time, with contexts that end soon", callers))
	close(ready)
	r.watch(s, ended)
	if s.try != nil && r.profile.free < maxFree && !r.random {
		s.nothingLost(callers, int(granted.Load()), steady)
	}
	if s.closer != nil {
		s.closer(s.l)
	}
}

// meet is an Acquire whose context is cancelled after a while, at once if that is
// negative.
func (s *stage) meet(req ratelimiter.Request, after time.Duration) (granted bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if after < 0 {
		go cancel()
	} else {
		timer := time.AfterFunc(after, cancel)
		defer timer.Stop()
	}
	err := s.l.Acquire(ctx, req)
	if err != nil && !errors.Is(err, context.Canceled) {
		s.report(rule2, "In real time, an Acquire whose context was cancelled returned an error that is not context.Canceled "+
			"to errors.Is: %v", err)
	}
	return err == nil
}

// steady reports whether the waits of a limiter are the same whenever it is first
// asked; they are not if it goes by the hour of the clock, for example.
func (r *run) steady() (ok bool) {
	if r.profile.noLine != "" {
		return false
	}
	r.bubble(func(s *stage) {
		time.Sleep(r.profile.wait*3/8 + 1)
		n, head := s.fill(maxFree)
		ok = n == s.profile.free && head != nil && s.await(head) && head.when-head.asked == s.profile.wait
	})
	return ok
}

// nothingLost checks, after some have been granted and others have given up, that
// what is left is what has not been granted. As long as nothing can have come in,
// it must not be more either.
func (s *stage) nothingLost(callers, granted int, steady bool) {
	p := &s.profile
	left := 0
	for left <= p.free {
		if ok, _ := s.try.TryAcquire(s.request(callers + left)); !ok {
			break
		}
		left++
	}
	story := fmt.Sprintf("In real time, %d goroutines asked, with contexts that were cancelled meanwhile. %d were granted, "+
		"and after that TryAcquire granted %d more.", callers, granted, left)
	if granted+left < p.free {
		s.report(rule3, "%s A fresh limiter grants %d at once: some have been lost.", story, p.free)
	}
	if steady && granted+left > p.free && time.Since(s.start) < p.wait {
		s.report(rule1, "%s A fresh limiter grants %d at once, and no more before %v, which have not passed.", story, p.free, p.wait)
	}
}
