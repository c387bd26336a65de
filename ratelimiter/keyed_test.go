package ratelimiter

import (
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
	return len(t.recent) + len(t.earlier), len(t.busy), len(t.lines)
}

// Lingering is how many limits stay because a timer was late, and whether a sweep is
// to come.
func (t *table[K]) Lingering() (n int, armed bool) {
	d := t.guard.lock()
	defer d.mu.Unlock()
	return len(t.lingering), t.armed
}

// FullSweep goes through all idle keys in steps as long as those of a sweep, and
// returns how long each took.
func (t *table[K]) FullSweep() (took []time.Duration) {
	d := t.guard.lock()
	defer d.mu.Unlock()
	for more := true; more; {
		start := time.Now()
		more = t.sweepIdle(t.now())
		took = append(took, time.Since(start))
	}
	return took
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
			l := p.lines[place{key: k}]
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
		x := p.busy["c"]
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
		if _, busy, lines := p.Held(); busy != n || lines != n || p.peak != n {
			t.Error(busy, lines, p.peak)
		}
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if p.peak != 0 {
			t.Error("the tables are as large as they were")
		}
	})
}
