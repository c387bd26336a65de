package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// Limits shared by several limiters at once. No simple oracle says what the best
// order is, so these tests check what must hold of any: no limit is exceeded, no
// request takes of one limit without the others, callers of one limiter come in
// order, everybody who stays is served, nothing is left behind.

// A ledger is everything that was granted of one limit.
type ledger struct {
	name string
	ok   func(log []past) error
	log  []past
}

func windowLedger(r ratelimiter.Rate) *ledger {
	return &ledger{name: "window " + r.String(), ok: func(log []past) error {
		for i := range log {
			sum := 0
			for _, p := range log[i:] {
				if p.at >= log[i].at+int64(r.Per) {
					break
				}
				sum += p.cost
			}
			if sum > r.Count {
				return fmt.Errorf("%d in the period from %d", sum, log[i].at)
			}
		}
		return nil
	}}
}

func spacedLedger(r ratelimiter.Rate) *ledger {
	return &ledger{name: "bucket " + r.String(), ok: func(log []past) error {
		for i := range log[:max(len(log)-1, 0)] {
			if gap := log[i+1].at - log[i].at; gap < int64(log[i].cost)*int64(r.Per)/int64(r.Count) {
				return fmt.Errorf("%d after %d for cost %d", gap, log[i].at, log[i].cost)
			}
		}
		return nil
	}}
}

func TestSharedLimits(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { sharedLimits(t, rand.New(rand.NewPCG(seed, 7)), seed%2 == 1) })
		})
	}
}

// sharedLimits runs one random scene. With changes the rates and costs change
// too; then only order and wake-ups are checked.
func sharedLimits(t *testing.T, rng *rand.Rand, changes bool) {
	start := time.Now()
	rpm, tpm, day := per(3, 300*ms), per(20, time.Second), per(10, 5*time.Second)
	a := must(ratelimiter.NewTokenBucket(rpm))
	b := must(ratelimiter.NewSlidingWindow(tpm))
	c := must(ratelimiter.NewSlidingWindow(day))
	la, lb, lc := spacedLedger(rpm), windowLedger(tpm), windowLedger(day)
	pab := ratelimiter.NewPausable(must(ratelimiter.NewAll(a, b)))
	type way struct {
		l       ratelimiter.Limiter
		ledgers []*ledger
		most    int
	}
	ways := []way{
		{a, []*ledger{la}, 3},
		{b, []*ledger{lb}, 15},
		{must(ratelimiter.NewAll(a, b)), []*ledger{la, lb}, 3},
		{must(ratelimiter.NewAll(b, c)), []*ledger{lb, lc}, 4},
		{must(ratelimiter.NewAll(c, b, a)), []*ledger{lc, lb, la}, 2},
		{pab, []*ledger{la, lb}, 3},
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	all, stop := context.WithCancel(context.Background())
	defer func() { stop(); wg.Wait() }() // also when a check has failed
	served, gaveUp := 0, 0
	last := make([]int64, len(ways)) // instant of each way's last grant, by arrival
	arrivals := make([][]*past, len(ways))
	n := 150
	for id := range n {
		w := rng.IntN(len(ways))
		cost := rng.IntN(ways[w].most) + 1
		ctx, cancel := context.WithCancel(all)
		if rng.IntN(4) == 0 {
			ctx, cancel = context.WithTimeout(all, time.Duration(rng.IntN(3000))*ms)
		}
		p := &past{at: -1, id: id, cost: cost}
		arrivals[w] = append(arrivals[w], p)
		wg.Go(func() {
			defer cancel()
			err := ways[w].l.Acquire(ctx, ratelimiter.Request{Index: id, Cost: cost})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if !errors.Is(err, context.DeadlineExceeded) && all.Err() == nil {
					t.Errorf("request %d: %v", id, err)
				}
				gaveUp++
				return
			}
			served++
			p.at = int64(time.Since(start))
			for _, l := range ways[w].ledgers {
				l.log = append(l.log, *p)
			}
		})
		synctest.Wait()
		switch rng.IntN(6) {
		case 0:
			time.Sleep(time.Duration(rng.IntN(400)) * ms)
		case 1:
			if rng.IntN(4) == 0 {
				_ = pab.PauseFor(time.Duration(rng.IntN(1000)) * ms)
			}
		}
		if changes {
			switch req := (ratelimiter.Request{Index: id, Cost: cost}); rng.IntN(8) {
			case 0:
				_ = a.SetRate(per(rng.IntN(20)+1, time.Second))
			case 1:
				_ = b.SetRate(per(rng.IntN(10)+15, time.Second))
			case 2:
				_ = c.SetRate(per(rng.IntN(10)+4, time.Duration(rng.IntN(5)+1)*time.Second))
			case 3:
				b.Adjust(req, rng.IntN(2*cost))
			case 4:
				a.Adjust(req, rng.IntN(2*cost))
			case 5:
				pab.Adjust(req, rng.IntN(2*cost))
			}
		}
		synctest.Wait()
		if err := ratelimiter.CheckLines(a, b, c); err != nil {
			t.Fatalf("at %v after request %d: %v", time.Since(start), id, err)
		}
	}
	for a.Stats().Waiting+b.Stats().Waiting+c.Stats().Waiting > 0 {
		time.Sleep(13 * ms)
		synctest.Wait()
		if err := ratelimiter.CheckLines(a, b, c); err != nil {
			t.Fatalf("at %v: %v", time.Since(start), err)
		}
	}
	wg.Wait()
	if served+gaveUp != n {
		t.Errorf("%d served and %d gave up of %d", served, gaveUp, n)
	}
	for _, l := range []*ledger{la, lb, lc} {
		slices.SortStableFunc(l.log, func(p, q past) int { return int(p.at - q.at) })
		if err := l.ok(l.log); err != nil && !changes {
			t.Errorf("%s: %v", l.name, err)
		}
	}
	for w, ps := range arrivals {
		for _, p := range ps {
			if p.at >= 0 {
				if p.at < last[w] {
					t.Errorf("way %d: request %d granted at %d, before an earlier one at %d", w, p.id, p.at, last[w])
				}
				last[w] = p.at
			}
		}
	}
	for _, s := range []interface{ Stats() ratelimiter.Stats }{a, b, c} {
		if got := s.Stats().Waiting; got != 0 {
			t.Errorf("%v still waiting in %v", got, s)
		}
	}
}
