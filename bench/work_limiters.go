package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// An acquire takes one grant; it waits for it if it has to.
type acquire func(ctx context.Context, worker int) error

// A gatekeeper makes a limiter that grants perSecond, evenly spaced, with no burst. done tidies up after it.
type gatekeeper struct {
	name string
	make func(perSecond int) (get acquire, done func(), err error)
}

const (
	nameTokenBucket = "Penstock TokenBucket"
	nameByHandSlots = "by hand: mutex and next slot"
)

// limiterGroups measure what a grant costs when nobody has to wait, and how near the grants come to the rate asked for.
func limiterGroups(s sizes) []*group {
	var groups []*group
	for _, callers := range []int{1, 8, 1000} {
		groups = append(groups, acquireGroup(s, callers))
	}
	for _, perSecond := range []int{1_000, 20_000} {
		groups = append(groups, rateGroup(s, perSecond))
	}
	return groups
}

func acquireGroup(s sizes, callers int) *group {
	g := &group{
		name:  fmt.Sprintf("limiter/acquire/%d", callers),
		about: fmt.Sprintf("Limiter: a grant for which nobody has to wait, callers at once: %d", callers),
		unit:  perGrant, items: s.items, workers: callers, baseline: nameByHandSlots,
		notes: []string{"uber/ratelimit takes no context. go-limiter does not wait: it says no, and when to ask again."},
	}
	keepers := append(gatekeepers(), slidingWindow(), fromRate(), goLimiter())
	for _, k := range keepers {
		g.contenders = append(g.contenders, contender{k.name, func(t *turn) error {
			get, done, err := k.make(fast().Count)
			if err != nil {
				return err
			}
			t.after(done)
			return callAll(t.workers, len(t.items), get)
		}})
	}
	return g
}

// callAll takes n grants with so many callers at once.
func callAll(callers, n int, get acquire) error {
	ctx := context.Background()
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for w := range callers {
		share := n / callers
		if w < n%callers {
			share++
		}
		wg.Go(func() {
			for range share {
				if err := get(ctx, w); err != nil {
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func rateGroup(s sizes, perSecond int) *group {
	g := &group{
		name:  fmt.Sprintf("limiter/rate/%d", perSecond),
		about: fmt.Sprintf("Limiter: rate achieved of %d/s asked for, 8 callers", perSecond),
		unit:  share, workers: 8,
		notes: []string{"More than was asked for is an error and fails the command. go-limiter is left out: it does not wait."},
	}
	for _, k := range gatekeepers() {
		g.contenders = append(g.contenders, contender{k.name, func(t *turn) error {
			get, done, err := k.make(perSecond)
			if err != nil {
				return err
			}
			t.after(done)
			n := max(20, int(s.waiting.Seconds()*float64(perSecond)))
			start := time.Now()
			if err := callAll(t.workers, n, get); err != nil {
				return err
			}
			achieved := float64(n-1) / time.Since(start).Seconds() / float64(perSecond)
			t.report(achieved)
			if achieved > 1.001 { // the thousandth is for clocks that are rounded
				return fmt.Errorf("%.4f times the rate that was asked for", achieved)
			}
			return nil
		}})
	}
	return g
}

// gatekeepers are the limiters that space grants evenly and wait.
func gatekeepers() []gatekeeper {
	return append([]gatekeeper{{nameByHandSlots, nextSlot}, {nameTokenBucket, tokenBucket}}, peerGatekeepers()...)
}

func nothing() {}

// nextSlot is the least that an evenly spaced limiter can do. Unlike the others it cannot give back what a caller that
// gave up had reserved, and it grants in no particular order.
func nextSlot(perSecond int) (acquire, func(), error) {
	var mu sync.Mutex
	var next time.Duration
	base, interval := time.Now(), time.Second/time.Duration(perSecond)
	return func(ctx context.Context, _ int) error {
		mu.Lock()
		now := time.Since(base)
		at := max(now, next)
		next = at + interval
		mu.Unlock()
		if at <= now {
			return ctx.Err()
		}
		timer := time.NewTimer(at - now)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, nothing, nil
}

func acquireFrom(l ratelimiter.Limiter) acquire {
	return func(ctx context.Context, worker int) error {
		return l.Acquire(ctx, ratelimiter.Request{Worker: worker, Attempt: 1})
	}
}

func tokenBucket(perSecond int) (acquire, func(), error) {
	l, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(perSecond))
	if err != nil {
		return nil, nil, err
	}
	return acquireFrom(l), nothing, nil
}

// slidingWindow allows a burst by its nature, so it is only asked what a grant costs.
func slidingWindow() gatekeeper {
	return gatekeeper{"Penstock SlidingWindow", func(perSecond int) (acquire, func(), error) {
		l, err := ratelimiter.NewSlidingWindow(ratelimiter.PerSecond(perSecond))
		if err != nil {
			return nil, nil, err
		}
		return acquireFrom(l), nothing, nil
	}}
}
