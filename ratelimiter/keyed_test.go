package ratelimiter

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Sweep takes the sweep of a limiter's idle keys n keys further, whenever the next
// step by itself would be due.
func (t *table[K]) Sweep(n int) {
	d := t.guard.lock()
	defer d.mu.Unlock()
	if t.sweeping == nil {
		t.begin()
	}
	t.step(n, t.full(t.now()))
}

// Held is how many keys a limiter has in memory: idle ones, ones in use, and lines.
func (t *table[K]) Held() (idle, busy, lines int) {
	d := t.guard.lock()
	defer d.mu.Unlock()
	return len(t.recent) + len(t.earlier), len(t.busy.of), len(t.lines.of)
}

// peaks is for how many the tables of those who wait, and of their lines, have room.
func (t *table[K]) peaks() int {
	d := t.guard.lock()
	defer d.mu.Unlock()
	return max(t.busy.peak, t.lines.peak)
}

// Lingering is how many limits stay because a timer was late, and whether a sweep is
// to come.
func (t *table[K]) Lingering() (n int, armed bool) {
	d := t.guard.lock()
	defer d.mu.Unlock()
	return len(t.lingering), t.armed
}

// StepKeys is how many keys a step of a sweep goes through at most.
const StepKeys = stepKeys

// FullSweep goes through all idle keys in steps as long as those of a sweep, and
// returns how long each took and how many keys it kept.
func (t *table[K]) FullSweep() (took []time.Duration, kept []int) {
	d := t.guard.lock()
	defer d.mu.Unlock()
	for more := true; more; {
		start, before := time.Now(), len(t.recent)
		if t.sweeping == nil {
			before = 0 // recent becomes the earlier one
		}
		more = t.sweepIdle(t.now())
		took, kept = append(took, time.Since(start)), append(kept, len(t.recent)-before)
	}
	return took, kept
}

// TestLateKeysLinger: a limit that makes up for a late timer stays for a while, so
// that a caller who comes back in time finds it, and goes then.
func TestLateKeysLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPerKey(nil, PerSecond(1000))
		if err != nil {
			t.Fatal(err)
		}
		// late has somebody wait for key k, and makes the timer late by 1 ms.
		late := func(k string) {
			req := Request{Key: k}
			if err := p.Acquire(t.Context(), req); err != nil {
				t.Error(err)
			}
			done := make(chan error)
			go func() { done <- p.Acquire(t.Context(), req) }()
			synctest.Wait()
			d := p.guard.lock()
			l := p.lines.of[place{key: k}]
			l.timer.Reset(2 * time.Millisecond)
			d.unlock()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		start := time.Now()
		late("a")
		if at := time.Since(start); at != 2*time.Millisecond {
			t.Fatal(at)
		}
		if n, armed := p.Lingering(); n != 1 || !armed {
			t.Fatal(n, armed)
		}
		// The second was due at 1 ms, so the third is now, and the fourth at 3 ms.
		for i := range 2 {
			if err := p.Acquire(t.Context(), Request{Key: "a"}); err != nil || time.Since(start) != time.Duration(2+i)*time.Millisecond {
				t.Error(err, time.Since(start))
			}
		}
		for i := range 3000 { // more than one step of a sweep
			late(fmt.Sprint(i))
		}
		time.Sleep(2*minSweep + time.Second)
		idle, busy, lines := p.Held()
		n, armed := p.Lingering()
		if idle+busy+lines+n != 0 || armed {
			t.Errorf("left: %d idle, %d busy, %d lines, %d lingering, armed: %v", idle, busy, lines, n, armed)
		}
		late("b") // in use and named while it lingers
		if err := p.SetRate("b", PerSecond(1)); err != nil {
			t.Error(err)
		}
		late("c")
		d := p.guard.lock()
		x := p.busy.of["c"]
		x.limit.pins++
		d.unlock()
		time.Sleep(2 * minSweep)
		if n, armed := p.Lingering(); n != 0 || armed {
			t.Errorf("%d lingering, armed: %v", n, armed)
		}
		d = p.guard.lock()
		x.limit.pins--
		x.limit.emptied()
		d.unlock()
		if _, busy, _ := p.Held(); busy != 0 {
			t.Errorf("%d busy", busy)
		}
	})
}

// TestLinesShrink: an All for which very many had to wait gives the memory back
// when only few are left.
func TestLinesShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, err := NewPerKey(nil, PerSecond(1))
		if err != nil {
			t.Fatal(err)
		}
		all, err := NewAll(keys)
		if err != nil {
			t.Fatal(err)
		}
		const n, few = 4 * small, 10
		ctx, cancel := context.WithCancel(t.Context())
		for i := range n {
			req := Request{Key: fmt.Sprint(i), Cost: 1}
			if i < few {
				req.Cost = 3600
			}
			if err := all.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			go func() { _ = all.Acquire(ctx, req) }()
		}
		synctest.Wait()
		held := func() (lines, linesPeak, busy, busyPeak int) {
			d := all.guard.lock() // which is that of keys, too
			defer d.mu.Unlock()
			return len(all.lines.of), all.lines.peak, len(keys.busy.of), keys.busy.peak
		}
		if lines, _, busy, _ := held(); lines != n || busy != n {
			t.Fatal(lines, busy)
		}
		time.Sleep(2 * time.Second)
		if lines, linesPeak, busy, busyPeak := held(); lines != few || linesPeak > small/4 || busyPeak > small/4 {
			t.Errorf("%d lines, in a map for %d; %d keys, in a map for %d", lines, linesPeak, busy, busyPeak)
		}
		for i := range few { // who still waits is found
			if ok, in := all.TryAcquire(Request{Key: fmt.Sprint(i)}); ok || in < time.Hour {
				t.Error(ok, in)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// TestKeyTablesShrink: that many had to wait is not remembered either.
func TestKeyTablesShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := NewPerWorker(PerSecond(1))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		const n = 2 * small
		for i := range n {
			if ok, in := p.TryAcquire(Request{Worker: i}); !ok {
				t.Fatal(in)
			}
			go func() { done <- p.Acquire(t.Context(), Request{Worker: i}) }()
		}
		synctest.Wait()
		if _, busy, lines := p.Held(); busy != n || lines != n || p.peaks() != n {
			t.Error(busy, lines, p.peaks())
		}
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if p.peaks() > small/4 {
			t.Error("the tables are as large as they were")
		}
	})
}
