package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// keyed is the smallest member whose limits depend on the request: a bucket for
// each key, kept only while somebody needs it.
type keyed struct {
	guard guard
	rate  Rate
	limit map[string]*single
	made  int
}

func newKeyed(r Rate) *keyed {
	k := &keyed{rate: r, limit: make(map[string]*single)}
	k.guard.init()
	return k
}

func (k *keyed) Acquire(context.Context, Request) error { panic("not asked alone here") }
func (k *keyed) whole() bool                            { return true }
func (k *keyed) share(g *guard)                         { merge(&k.guard, g) }
func (k *keyed) varies() fields                         { return fieldKey }
func (k *keyed) leaves(tell func(any))                  { tell(k) }

func (k *keyed) appendParts(parts []part, req Request) ([]part, error) {
	if req.Key == "" {
		return parts, &KeyError{Key: req.Key}
	}
	s := k.limit[req.Key]
	if s == nil {
		b, err := NewTokenBucket(k.rate)
		if err != nil {
			return parts, err
		}
		s = &b.single
		k.made++
		k.limit[req.Key] = s
		s.limit.scope = fmt.Sprintf("key %q", req.Key)
		s.limit.emptied = func() {
			if s.limit.sched.earliest(0, 1) <= s.line.now() {
				delete(k.limit, req.Key)
			}
		}
	}
	return append(parts, part{limit: &s.limit}), nil
}

// TestCompositeThatVaries: an All with a limit per key and one for everybody.
func TestCompositeThatVaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		k := newKeyed(PerSecond(1))
		global, err := NewSlidingWindow(Rate{Count: 100, Per: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		all, err := NewAll(k, NewPausable(global))
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		got := make(map[string][]time.Duration)
		var mu sync.Mutex
		for i := range 12 {
			wg.Go(func() {
				key := string(rune('a' + i%3))
				if err := all.Acquire(t.Context(), Request{Key: key}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				got[key] = append(got[key], time.Since(start))
				mu.Unlock()
			})
			synctest.Wait()
		}
		if n := len(all.lines.of); n != 3 {
			t.Errorf("%d lines, want one for each key", n)
		}
		if ok, in := all.TryAcquire(Request{Key: "a"}); ok || in != 4*time.Second {
			t.Error(ok, in)
		}
		if ok, in := all.TryAcquire(Request{Key: "x"}); !ok {
			t.Error(ok, in)
		}
		var excess *ExcessError
		if err := all.AcquireWithin(t.Context(), Request{Key: "a"}, 0); !errors.As(err, &excess) || excess.Scope != `key "a"` {
			t.Error(err)
		}
		var unknown *KeyError
		if err := all.Acquire(t.Context(), Request{}); !errors.As(err, &unknown) || !errors.Is(err, ErrNeverGranted) {
			t.Error(err)
		}
		wg.Wait()
		for key, at := range got {
			for i, at := range at {
				if at != time.Duration(i)*time.Second {
					t.Errorf("key %s: %v", key, got[key])
				}
			}
		}
		if n := len(all.lines.of); n != 0 {
			t.Errorf("%d lines left", n)
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			all.Adjust(Request{Key: "a"}, 1)
			all.Adjust(Request{Key: "b"}, 1)
			all.Adjust(Request{Key: "c"}, 1)
			all.Adjust(Request{Key: "x"}, 1)
		}
		if n := len(k.limit); n != 0 {
			t.Errorf("%d keys left of which nobody has anything", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			wg.Go(func() { _ = all.Acquire(ctx, Request{Key: "a"}) })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if n := len(all.lines.of); n != 0 {
			t.Errorf("%d lines left", n)
		}
		for range 1000 { // the price of a request that need not wait: no new line each time
			if err := all.Acquire(t.Context(), Request{Key: "b"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
	})
}

// TestCompositeErrorUnpins: what a member made for a request that another one
// refuses is not kept.
func TestCompositeErrorUnpins(t *testing.T) {
	first, second := newKeyed(PerSecond(1)), newKeyed(PerSecond(1))
	second.rate = Rate{} // refuses every request
	all, err := NewAll(first, second)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := all.Acquire(t.Context(), Request{Key: "a"}); err == nil {
			t.Error("granted")
		}
		if ok, in := all.TryAcquire(Request{Key: "a"}); ok || in != Never {
			t.Error(ok, in)
		}
		all.Adjust(Request{Key: "a"}, 0)
	}
	if len(first.limit) != 0 || len(all.lines.of) != 0 {
		t.Errorf("%d keys, %d lines left", len(first.limit), len(all.lines.of))
	}
}

// TestMergeWhileInUse: limiters are put together while they are used and
// waited for.
func TestMergeWhileInUse(t *testing.T) {
	limits := make([]*TokenBucket, 16)
	for i := range limits {
		b, err := NewTokenBucket(PerSecond(20000))
		if err != nil {
			t.Fatal(err)
		}
		limits[i] = b
	}
	var wg sync.WaitGroup
	for i := range limits {
		wg.Go(func() {
			for range 300 {
				if err := limits[i].Acquire(t.Context(), Request{}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond / 4)
			all, err := NewAll(limits[i], limits[(i+1)%len(limits)])
			if err != nil {
				t.Error(err)
				return
			}
			for range 100 {
				if err := all.Acquire(t.Context(), Request{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	root := limits[0].line.root()
	for i, l := range limits {
		if l.line.root() != root {
			t.Errorf("limiter %d has a domain of its own", i)
		}
	}
	if root.size != 32 {
		t.Errorf("%d domains merged, want 32", root.size)
	}
}

// slow is a schedule that holds each request at the head of its line for a time
// drawn when it gets there.
type slow struct {
	next time.Duration
	due  int64
}

func (s *slow) begin(now int64)                            { s.due = now + int64(s.next); s.next += time.Second }
func (s *slow) atBest(now, _ int64) int64                  { return now }
func (s *slow) earliest(int64, int64) int64                { return s.due }
func (s *slow) after(int64, int64, int64) int64            { return s.due }
func (s *slow) take(int64, int64, int64, uint32)           {}
func (s *slow) fits(int64, int64, int64, int64) bool       { return false }
func (s *slow) adjust(_ int64, _ int64, _ int64, _ uint32) {}

// TestBeginner: a schedule is told when a request comes to the head, also after a
// cancellation.
func TestBeginner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var s single
		s.init(&slow{next: time.Second}, "slow", never)
		var wg sync.WaitGroup
		for _, want := range []time.Duration{time.Second, 0, 4500 * time.Millisecond} {
			ctx, cancel := context.WithCancel(t.Context())
			if want == 0 {
				time.AfterFunc(1500*time.Millisecond, cancel)
			}
			wg.Go(func() {
				defer cancel()
				err := s.line.acquire(ctx, Request{})
				if at := time.Since(start); want == 0 != (err != nil) || want > 0 && at != want {
					t.Errorf("%v at %v", err, at)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

// TestAlarm: a grant counts from when its caller is awake, however long that
// takes, and when it takes too long the caller itself re-times who waits.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w, err := NewSlidingWindow(Rate{Count: 1, Per: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		for _, late := range []time.Duration{time.Millisecond, 99 * time.Millisecond, 100 * time.Millisecond,
			500 * time.Millisecond} {
			if err := w.Acquire(t.Context(), Request{}); err != nil {
				t.Fatal(err)
			}
			d := w.line.lock()
			alarm := w.window.asleep() // as if the caller had been woken, but got no processor
			d.mu.Unlock()
			back := make(chan time.Duration)
			go func() {
				if err := w.Acquire(t.Context(), Request{}); err != nil {
					t.Error(err)
				}
				back <- time.Since(start)
			}()
			time.Sleep(late)
			synctest.Wait()
			awake := time.Since(start)
			if alarm.stop(w.line.now()) {
				w.line.retime(&w.limit)
			}
			if at := <-back; at != awake+100*time.Millisecond {
				t.Errorf("late by %v: next at %v after the caller was awake", late, at-awake)
			}
			time.Sleep(time.Second)
		}
	})
}
