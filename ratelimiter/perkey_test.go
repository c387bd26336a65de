package ratelimiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/ratelimiter/limitertest"
	"golang.org/x/time/rate"
)

var (
	_ ratelimiter.TryAcquirer = (*ratelimiter.PerKey)(nil)
	_ ratelimiter.TryAcquirer = (*ratelimiter.PerWorker)(nil)
	_ ratelimiter.Adjuster    = (*ratelimiter.PerKey)(nil)
	_ ratelimiter.Adjuster    = (*ratelimiter.PerWorker)(nil)
)

func key(k string) ratelimiter.Request { return ratelimiter.Request{Key: k} }
func worker(w int) ratelimiter.Request { return ratelimiter.Request{Worker: w} }

func perKey(fallback ratelimiter.Rate) *ratelimiter.PerKey {
	return must(ratelimiter.NewPerKey(nil, fallback))
}

func perWorker(n int, d time.Duration) *ratelimiter.PerWorker {
	return must(ratelimiter.NewPerWorker(per(n, d)))
}

// wantHeld checks how many keys are in memory.
func wantHeld(t *testing.T, l interface{ Held() (int, int, int) }, idle, busy, lines int) {
	t.Helper()
	if i, b, n := l.Held(); i != idle || b != busy || n != lines {
		t.Errorf("%d idle keys, %d busy ones, %d lines, want %d, %d, %d", i, b, n, idle, busy, lines)
	}
}

func TestPW1BucketForEachWorker(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perWorker(1, 100*ms)
		var cs []*call
		for i := range 20 {
			cs = append(cs, s.call(l, worker(i%10)))
		}
		for i, c := range cs {
			s.wantGrants([]*call{c}, time.Duration(i/10)*100*ms)
		}
	})
}

func TestPW2UnknownIsAnotherKey(t *testing.T) {
	virtual(t, func(s *stage) {
		l, w := perKey(per(1, 100*ms)), perWorker(1, 100*ms)
		s.wantGrants([]*call{s.call(l, key("")), s.call(l, key("a")), s.call(l, key(""))}, 0, 0, 100*ms)
		s.wantGrants([]*call{s.call(w, worker(0)), s.call(w, worker(-1)), s.call(w, worker(-1))}, 100*ms, 100*ms, 200*ms)
		time.Sleep(time.Minute) // but the map does shrink
		wantHeld(t, l, 0, 0, 0)
		wantHeld(t, w, 0, 0, 0)
	})
}

func TestPW3TotalScalesWithWorkers(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perWorker(1, 400*ms)
		for i := range 11 {
			c := s.call(l, worker(i%10))
			s.wantGrants([]*call{c}, time.Duration(i/10)*400*ms)
		}
	})
}

// TestKeyConformance runs the kit for one key, and for one worker.
func TestKeyConformance(t *testing.T) {
	for name, l := range map[string]func() ratelimiter.Limiter{
		"PerKey": func() ratelimiter.Limiter { return perKey(per(1, 100*ms)) },
		"Named": func() ratelimiter.Limiter {
			return must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"": per(1, 100*ms)}, ratelimiter.Rate{}))
		},
		"PerWorker": func() ratelimiter.Limiter { return perWorker(1, 100*ms) },
	} {
		t.Run(name, func(t *testing.T) { limitertest.Run(t, l) })
	}
}

func TestKeysNamedAndFallback(t *testing.T) {
	virtual(t, func(s *stage) {
		rates := map[string]ratelimiter.Rate{"fast": per(1, 100*ms), "slow": per(1, time.Second)}
		l := must(ratelimiter.NewPerKey(rates, per(1, 300*ms)))
		clear(rates) // has been copied
		for _, want := range []struct {
			key string
			gap time.Duration
		}{{"fast", 100 * ms}, {"slow", time.Second}, {"x", 300 * ms}, {"y", 300 * ms}} {
			start := s.at()
			for i, c := range s.calls(4, l, key(want.key)) {
				s.wantGrants([]*call{c}, start+time.Duration(i)*want.gap)
			}
		}
		if got := l.String(); got != "token bucket 1/300ms per key (2 named)" {
			t.Error(got)
		}
	})
}

func TestKeyError(t *testing.T) {
	virtual(t, func(s *stage) {
		l := must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"a": per(1, time.Second)}, ratelimiter.Rate{}))
		for range 2 {
			for _, err := range []error{
				l.Acquire(s.t.Context(), key("b")),
				l.AcquireWithin(s.t.Context(), key("b"), time.Hour),
				must(ratelimiter.NewAll(l, bucket(1, time.Hour))).Acquire(s.t.Context(), key("b")),
				ratelimiter.NewPausable(l).Acquire(s.t.Context(), key("b")),
			} {
				var e *ratelimiter.KeyError
				if !errors.As(err, &e) || e.Key != "b" || !errors.Is(err, ratelimiter.ErrNeverGranted) {
					t.Error(err)
				}
			}
			if ok, in := l.TryAcquire(key("b")); ok || in != ratelimiter.Never {
				t.Error(ok, in)
			}
			l.Adjust(key("b"), 7)
		}
		s.wantGrants(s.calls(2, l, key("a")), 0, time.Second)
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		if err := l.Acquire(ctx, key("b")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		wantHeld(t, l, 0, 0, 0)
		if got := l.String(); got != "token bucket per key (1 named, no others)" {
			t.Error(got)
		}
		// A key that has been given a rate is known, and so are all with a fallback.
		if err := errors.Join(l.SetRate("b", per(1, time.Second)), l.Acquire(s.t.Context(), key("b")), l.SetFallback(per(1,
			time.Second)), l.Acquire(s.t.Context(), key("c"))); err != nil {
			t.Error(err)
		}
		if ok, in := l.TryAcquire(key("c")); ok || in != time.Second {
			t.Error(ok, in)
		}
	})
}

func TestKeyRatesAreChecked(t *testing.T) {
	good := ratelimiter.PerSecond(1)
	for _, tt := range []struct {
		rates    map[string]ratelimiter.Rate
		fallback ratelimiter.Rate
		want     []string
	}{
		{nil, ratelimiter.Rate{}, []string{"no rates and no fallback"}},
		{map[string]ratelimiter.Rate{}, ratelimiter.Rate{}, []string{"no rates and no fallback"}},
		{map[string]ratelimiter.Rate{"a b": {}}, good, []string{`rates["a b"].Count is 0, must be at least 1`}},
		{map[string]ratelimiter.Rate{"a": {Count: -1, Per: 1}, "b": good, "c": {Count: 1}}, ratelimiter.Rate{Count: 2, Per: 1},
			[]string{`rates["a"].Count is -1`, `rates["c"].Per is 0s, must be more than 0`,
				"fallback is 2/1ns, must be at most one per nanosecond"}},
		{nil, ratelimiter.Rate{Per: time.Second}, []string{"fallback.Count is 0"}},
	} {
		_, err := ratelimiter.NewPerKey(tt.rates, tt.fallback)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	if _, err := ratelimiter.NewPerWorker(ratelimiter.Rate{}); err == nil || !strings.Contains(err.Error(), "Rate.Count is 0") {
		t.Error(err)
	}
	l, w := perKey(good), perWorker(1, time.Second)
	for _, err := range []error{l.SetRate("a", per(0, 1)), l.SetFallback(ratelimiter.Rate{}), l.SetFallback(per(2, 1)),
		w.SetRate(per(-1, 1))} {
		if err == nil || !strings.HasPrefix(err.Error(), "ratelimiter: ") {
			t.Error(err)
		}
	}
	if err := l.SetRate("a", per(0, 1)); err == nil || !strings.Contains(err.Error(), `Rate of key "a".Count is 0`) {
		t.Error(err)
	}
}

// TestB23KeysDoNotDelayEachOther: while 100 wait for one key, and through an All
// and a Pausable too, another is granted at once, at each instant.
func TestB23KeysDoNotDelayEachOther(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(per(1, 10*time.Second))
		everybody := bucket(1e9, time.Second, ratelimiter.WithBurst(1000))
		all := must(ratelimiter.NewAll(l, everybody))
		p := ratelimiter.NewPausable(l)
		waiting := s.calls(40, l, key("a"))
		waiting = append(waiting, s.calls(40, all, key("a"))...)
		waiting = append(waiting, s.calls(20, p, key("a"))...)
		for i, l := range []ratelimiter.Limiter{l, all, p} {
			s.acquire(l, key(fmt.Sprint("b", i)), s.at())
		}
		ctx, cancel := context.WithCancelCause(s.t.Context())
		time.AfterFunc(50*ms, func() { cancel(errors.New("bored")) })
		c := s.callCtx(ctx, l, key("a"))
		<-c.done
		if c.when != 50*ms || c.err == nil || !strings.Contains(c.err.Error(), `token bucket 1/10s for key "a": bored`) {
			t.Error(c.err, c.when)
		}
		for i, c := range waiting {
			s.wantGrants([]*call{c}, time.Duration(i)*10*time.Second)
			s.acquire(l, key(fmt.Sprint("c", i)), s.at())
		}
	})
}

func TestB21EveryWorkerIsServed(t *testing.T) {
	virtual(t, func(s *stage) {
		for i, c := range s.calls(100, perKey(ratelimiter.PerMinute(300)), key("tenant")) {
			s.wantGrants([]*call{c}, time.Duration(i)*200*ms)
		}
	})
}

func TestKeyScope(t *testing.T) {
	virtual(t, func(s *stage) {
		for _, tt := range []struct {
			l     ratelimiter.TryAcquirer
			req   ratelimiter.Request
			scope string
		}{
			{perKey(per(1, time.Second)), key(`a"b`), `key "a\"b"`},
			{must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"a": per(1, time.Second)}, ratelimiter.Rate{})), key("a"),
				`key "a"`},
			{perWorker(1, time.Second), worker(3), "worker 3"},
			{ratelimiter.NewPausable(perWorker(1, time.Second)), worker(4), "worker 4"},
			{must(ratelimiter.NewAll(bucket(1e9, time.Second), perKey(per(1, time.Second)))), key("a"), `key "a"`},
		} {
			if err := tt.l.AcquireWithin(s.t.Context(), tt.req, 0); err != nil {
				t.Error(err)
			}
			err := tt.l.AcquireWithin(s.t.Context(), tt.req, 999*ms)
			if e, ok := errors.AsType[*ratelimiter.ExcessError](err); !ok || e.Scope != tt.scope ||
				e.Limit != "token bucket 1/s" || e.RetryAfter != time.Second {
				t.Errorf("%v, want scope %s", err, tt.scope)
			}
			if ok, in := tt.l.TryAcquire(tt.req); ok || in != time.Second {
				t.Error(ok, in)
			}
			dead, cancel := context.WithTimeout(s.t.Context(), ms)
			l := tt.l.(ratelimiter.Limiter)
			if err := l.Acquire(dead, tt.req); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), tt.scope) {
				t.Error(err)
			}
			cancel()
			if err := l.Acquire(dead, tt.req); err == nil || !strings.Contains(err.Error(), "token bucket 1/s") &&
				!strings.Contains(err.Error(), "per ") {
				t.Error(err)
			}
		}
	})
}

func TestKeyCosts(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(per(1, 100*ms))
		req := func(k string, cost int) ratelimiter.Request { return ratelimiter.Request{Key: k, Cost: cost} }
		s.wantGrants([]*call{s.call(l, req("a", 3)), s.call(l, req("a", 2)), s.call(l, key("a")), s.call(l, req("b", 2))}, 0,
			300*ms, 500*ms, 0)
		for _, k := range []string{"a", "fresh"} {
			for _, cost := range []int{-1, 1 << 62} {
				var e *ratelimiter.CostError
				if err := l.Acquire(s.t.Context(), req(k, cost)); !errors.As(err, &e) || e.Cost != cost ||
					!strings.Contains(e.Limit, fmt.Sprintf("key %q", k)) {
					t.Error(err)
				}
				if ok, in := l.TryAcquire(req(k, cost)); ok || in != ratelimiter.Never {
					t.Error(ok, in)
				}
				l.Adjust(req(k, -1), 50) // was never granted
			}
		}
		s.acquire(l, key("fresh"), s.at())
	})
}

// TestKeyAdjust: idle, waited for, through another limiter, and before its time.
func TestKeyAdjust(t *testing.T) {
	virtual(t, func(s *stage) {
		l := must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"named": per(1, 100*ms)}, per(1, 100*ms)))
		all := must(ratelimiter.NewAll(l))
		for _, k := range []string{"a", "named"} {
			for _, adjust := range []func(actual int){
				func(n int) { l.Adjust(key(k), n) },
				func(n int) { all.Adjust(key(k), n) },
			} {
				time.Sleep(time.Second)
				start := s.at()
				s.acquire(l, key(k), start)
				adjust(3) // a debt
				cs := s.calls(2, l, key(k))
				adjust(2) // with somebody waiting: one more
				s.wantGrants(cs[:1], start+400*ms)
				adjust(0) // a refund
				s.wantGrants(cs[1:], start+400*ms)
				adjust(0)
				adjust(0) // never above capacity
				adjust(-5)
				s.wantGrants(s.calls(2, l, key(k)), start+400*ms, start+500*ms)
				s.acquire(l, key("other"), s.at())
			}
		}
		time.Sleep(time.Minute)
		l.Adjust(key("new"), 6) // a debt of a key nobody knows, or knows any more
		s.acquire(l, key("new"), s.at()+500*ms)
		l.Adjust(key("newer"), 0)
		time.Sleep(time.Minute)
		wantHeld(t, l, 0, 0, 0)
	})
}

// TestKeySetRate: what is owed is converted, who waits is re-timed.
func TestKeySetRate(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(per(1, time.Second))
		s.acquire(l, key("idle"), 0)
		s.acquire(l, key("swept"), 0)
		cs := s.calls(3, l, key("busy"))
		l.Sweep(1) // leaves it half done
		time.Sleep(500 * ms)
		if err := l.SetFallback(per(1, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"idle", "swept"} {
			if ok, in := l.TryAcquire(key(k)); ok || in != 5*time.Second {
				t.Error(ok, in)
			}
		}
		if err := l.SetRate("idle", per(1, 2*time.Second)); err != nil {
			t.Fatal(err)
		}
		if ok, in := l.TryAcquire(key("idle")); ok || in != time.Second {
			t.Error(ok, in)
		}
		if err := l.SetRate("busy", per(1, 100*ms)); err != nil {
			t.Fatal(err)
		}
		s.wantGrants(cs, 0, 550*ms, 650*ms)
		if err := l.SetRate("busy", ratelimiter.Rate{}); err != nil {
			t.Fatal(err)
		}
		c := s.call(l, key("busy"))
		if ok, in := l.TryAcquire(key("busy")); ok || in != ratelimiter.Never {
			t.Error(ok, in)
		}
		time.Sleep(time.Hour)
		s.acquire(l, key("swept"), s.at())
		if err := l.SetRate("busy", per(1, 100*ms)); err != nil {
			t.Fatal(err)
		}
		s.wantGrants([]*call{c}, 650*ms+time.Hour+100*ms)
		s.acquire(l, key("x"), s.at())
		if ok, in := l.TryAcquire(key("x")); ok || in != 10*time.Second {
			t.Error(ok, in)
		}
	})
}

// TestRefundDuringASweep: what a sweep under way has not yet come to is no longer
// true of a key that has been given its cost back, and does not come back with
// another rate.
func TestRefundDuringASweep(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(per(1, time.Second))
		req := ratelimiter.Request{Key: "a", Cost: 100}
		s.acquire(l, req, 0)
		l.Sweep(0)
		l.Adjust(req, 0)
		if err := l.SetFallback(per(1, 2*time.Second)); err != nil {
			t.Fatal(err)
		}
		s.acquire(l, key("a"), 0)
	})
}

// TestWorkersStopAndGo: a stop keeps what is owed, of idle workers too, however
// long it lasts and whatever is swept meanwhile.
func TestWorkersStopAndGo(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perWorker(1, time.Second)
		s.acquire(l, worker(1), 0)
		cs := s.calls(2, l, worker(2))
		time.Sleep(400 * ms)
		if err := l.SetRate(ratelimiter.Rate{}); err != nil {
			t.Fatal(err)
		}
		waiting := []*call{cs[1], s.call(l, worker(1)), s.call(l, worker(3))}
		for i := range 4 {
			if ok, in := l.TryAcquire(worker(i)); ok || in != ratelimiter.Never {
				t.Error(ok, in)
			}
		}
		time.Sleep(time.Hour)
		waiting[1].cancel()
		synctest.Wait()
		time.Sleep(time.Hour) // worker 1 is idle again
		at := s.at()
		if err := l.SetRate(per(1, 2*time.Second)); err != nil {
			t.Fatal(err)
		}
		if ok, in := l.TryAcquire(worker(1)); ok || in != 1200*ms {
			t.Error(ok, in)
		}
		s.wantGrants([]*call{waiting[2], waiting[0]}, at, at+1200*ms)
		time.Sleep(2 * time.Minute)
		wantHeld(t, l, 0, 0, 0)
	})
}

// TestB66TwoRatesOnOneKey: two limits for the same key know nothing of each other.
func TestB66TwoRatesOnOneKey(t *testing.T) {
	virtual(t, func(s *stage) {
		second, minute := perKey(per(1, time.Second)), perKey(per(1, time.Minute))
		s.acquire(second, key("a"), 0)
		s.acquire(minute, key("a"), 0)
		s.acquire(second, key("a"), time.Second)
		if ok, in := minute.TryAcquire(key("a")); ok || in != 59*time.Second {
			t.Error(ok, in)
		}
		both := must(ratelimiter.NewAll(second, minute))
		s.wantGrants(s.calls(2, both, key("a")), time.Minute, 2*time.Minute)
		s.acquire(both, key("b"), 2*time.Minute)
	})
}

// TestKeysInAllAndPausable: all or nothing, at one instant; who gives up leaves
// nothing of either.
func TestKeysInAllAndPausable(t *testing.T) {
	virtual(t, func(s *stage) {
		l, everybody := perKey(per(1, 10*time.Second)), window(2, time.Minute)
		w := perWorker(1, time.Second)
		all := must(ratelimiter.NewAll(l, everybody, w))
		p := ratelimiter.NewPausable(all)
		req := func(k string, w int) ratelimiter.Request { return ratelimiter.Request{Key: k, Worker: w} }
		if _, err := ratelimiter.NewAll(l, l); err == nil {
			t.Error("twice the same")
		}
		s.wantGrants([]*call{s.call(p, req("a", 1)), s.call(all, req("b", 2))}, 0, 0)
		// The window is full. Nobody who waits for it has taken anything of their key.
		var gone []*call
		for i := range 12 {
			gone = append(gone, s.call(p, req(fmt.Sprint("c", i%4), i%3)))
		}
		time.Sleep(20 * time.Second)
		s.acquire(l, key("c0"), 20*time.Second)
		s.acquire(w, worker(1), 20*time.Second)
		for _, i := range rand.Perm(len(gone)) {
			gone[i].cancel()
			<-gone[i].done
			if !errors.Is(gone[i].err, context.Canceled) {
				t.Error(gone[i].err)
			}
		}
		for _, k := range []string{"c1", "c2", "c3", "a"} {
			s.acquire(l, key(k), 20*time.Second)
		}
		if got := everybody.Stats(); got.Available != 0 || got.Waiting != 0 {
			t.Errorf("%+v", got)
		}
		// Whoever waits for a key holds nothing of the window, and delays nobody.
		time.Sleep(40 * time.Second)
		s.acquire(l, key("d"), time.Minute)
		d := s.call(all, req("d", 1))
		if got := everybody.Stats(); got.Available != 2 {
			t.Errorf("%+v", got)
		}
		s.acquire(all, req("e", 2), time.Minute)
		s.wantGrants([]*call{d}, 70*time.Second)
		if err := p.PauseFor(time.Minute); err != nil {
			t.Error(err)
		}
		paused := []*call{s.call(p, req("f", 1)), s.call(p, req("f", 2)), s.call(p, req("g", 1))}
		s.wantGrants(paused, 130*time.Second, 140*time.Second, 190*time.Second)
		time.Sleep(5 * time.Minute)
		wantHeld(t, l, 0, 0, 0)
		wantHeld(t, w, 0, 0, 0)
	})
}

// keyLog is the oracle of one key: who arrived, and who of them may go when.
type keyLog struct {
	gap   int64 // for a cost of 1
	free  int64 // when everything granted has been paid for
	floor int64 // when free was last changed by an adjustment
	queue []*arrival
}

type arrival struct {
	at, cost, gone int64 // gone: when it gives up
	got            int64 // oracle: instant of the grant, -1: none
	saw            int64 // likewise by the limiter
}

// advance grants what can be granted until now.
func (k *keyLog) advance(now int64) {
	for len(k.queue) > 0 {
		a := k.queue[0]
		switch at := max(k.free, k.floor, a.at); {
		case a.gone < at && a.gone <= now:
			a.got = -1
		case at <= now:
			a.got, k.free = at, at+a.cost*k.gap
		default:
			k.queue = slices.DeleteFunc(k.queue, func(a *arrival) bool { return a.gone <= now })
			return
		}
		k.queue = k.queue[1:]
	}
}

// setGap keeps what is owed, in tokens. Gaps are whole milliseconds.
func (k *keyLog) setGap(now, gap int64) {
	if owed := k.free - now; owed > 0 {
		was, is := k.gap/int64(ms), gap/int64(ms)
		k.free = now + (owed*is+was-1)/was
	}
	k.gap, k.floor = gap, now
	k.advance(now)
}

// TestB64B65KeysAgainstOracle: random arrivals, costs, cancellations, adjustments,
// changes of the rate and sweeps at any point come out to the nanosecond as if each key's bucket had
// always been there.
func TestB64B65KeysAgainstOracle(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			virtual(t, func(s *stage) { keysAgainstOracle(s, rand.New(rand.NewPCG(seed, 64)), false) })
		})
		t.Run(fmt.Sprint("workers ", seed), func(t *testing.T) {
			virtual(t, func(s *stage) { keysAgainstOracle(s, rand.New(rand.NewPCG(seed, 65)), true) })
		})
	}
}

// keyTable is what a PerKey and a PerWorker have in common.
type keyTable interface {
	ratelimiter.Limiter
	ratelimiter.TryAcquirer
	ratelimiter.Adjuster
	Sweep(n int)
	Held() (idle, busy, lines int)
	Lingering() (n int, armed bool)
}

func keysAgainstOracle(s *stage, rng *rand.Rand, workers bool) {
	t := s.t
	gap := []time.Duration{3 * ms, time.Second, 7 * time.Second, time.Minute}[rng.IntN(4)]
	named := map[string]ratelimiter.Rate{"0": per(1, gap*2)}
	table := must(ratelimiter.NewPerKey(named, per(1, gap)))
	var l keyTable = table
	setRate := table.SetFallback
	if workers {
		w := must(ratelimiter.NewPerWorker(per(1, gap)))
		l, named, setRate = w, nil, w.SetRate
	}
	present := gap // the rate is one in this
	ways := []interface {
		ratelimiter.Limiter
		ratelimiter.TryAcquirer
	}{l, l, must(ratelimiter.NewAll(l)), ratelimiter.NewPausable(l)}
	logs := make(map[string]*keyLog)
	var arrivals []*arrival
	keys := 1 + rng.IntN(30)
	for range 1500 {
		number := rng.IntN(keys)
		k := fmt.Sprint(number)
		log := logs[k]
		if log == nil {
			log = &keyLog{gap: int64(present)}
			if r, ok := named[k]; ok {
				log.gap = int64(r.Per)
			}
			logs[k] = log
		}
		// The giving up happens at instants at which nothing else does: whichever of
		// the two came first at one instant would be right.
		time.Sleep(time.Duration(rng.Int64N(int64(gap)*4/int64(keys)+1)) / ms * ms)
		synctest.Wait()
		now := int64(s.at())
		for _, log := range logs {
			log.advance(now)
		}
		a := &arrival{at: now, cost: int64(rng.IntN(3) + 1), gone: 1 << 62, got: -1, saw: -1}
		// The ways have lines of their own, which are served in order of arrival
		// together.
		way := ways[rng.IntN(len(ways))]
		req := ratelimiter.Request{Key: k, Worker: number, Cost: int(a.cost)}
		if workers {
			req.Key = "whatever"
		}
		switch rng.IntN(9) {
		case 8:
			present = gap * time.Duration(rng.IntN(4)+1)
			for k, log := range logs {
				if _, ok := named[k]; !ok {
					log.setGap(now, int64(present))
				}
			}
			if err := setRate(per(1, present)); err != nil {
				t.Fatal(err)
			}
		case 0:
			ok, in := way.TryAcquire(req)
			if may := len(log.queue) == 0 && log.free <= now; ok != may {
				t.Fatalf("%v: key %s: TryAcquire %v %v, want %v", s.at(), k, ok, in, may)
			}
			if ok {
				log.free = now + a.cost*log.gap
			} else {
				at := max(log.free, log.floor)
				for _, a := range log.queue {
					at += a.cost * log.gap
				}
				if in != time.Duration(at-now) {
					t.Fatalf("%v: key %s: retryAfter %v, want %v", s.at(), k, in, at-now)
				}
			}
		case 1:
			actual := int64(rng.IntN(4))
			l.Adjust(req, int(actual))
			if actual > a.cost {
				log.free = max(log.free, now)
			}
			log.free += (actual - a.cost) * log.gap
			log.floor = now
			log.advance(now)
		case 2:
			l.Sweep(rng.IntN(2 * keys))
		default:
			ctx, cancel := context.WithCancel(t.Context())
			if rng.IntN(3) == 0 {
				a.gone = now + rng.Int64N(int64(gap)*8)/int64(ms)*int64(ms) + 123_457
				time.AfterFunc(time.Duration(a.gone-now), cancel)
			}
			arrivals = append(arrivals, a)
			log.queue = append(log.queue, a)
			s.wg.Go(func() {
				defer cancel()
				if err := way.Acquire(ctx, req); err == nil {
					a.saw = int64(s.at())
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
	}
	s.wg.Wait()
	for _, log := range logs {
		log.advance(1 << 61)
	}
	for i, a := range arrivals {
		if a.got != a.saw {
			t.Fatalf("arrival %d (%+v): granted at %d, want %d", i, *a, a.saw, a.got)
		}
	}
	time.Sleep(time.Duration(keys) * time.Hour)
	wantHeld(t, l, 0, 0, 0)
	if n, armed := l.Lingering(); n > 0 || armed {
		t.Errorf("a timer is kept, for %d", n)
	}
}

// TestB64GetAgainstEvict hammers a few keys while they are swept all the time: no
// key is granted more than its share, by the limiter's own clock.
func TestB64GetAgainstEvict(t *testing.T) {
	const gap, span = 2 * ms, 300 * ms
	l := perKey(per(1, gap))
	all := must(ratelimiter.NewAll(l, bucket(1e9, time.Second)))
	var granted [4]atomic.Int64
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for ctx.Err() == nil {
				k := rng.IntN(len(granted))
				req := key(fmt.Sprint(k))
				ok := false
				switch rng.IntN(4) {
				case 0:
					ok, _ = l.TryAcquire(req)
				case 1:
					ok = l.AcquireWithin(ctx, req, gap) == nil
				case 2:
					ok = all.Acquire(ctx, req) == nil
				case 3:
					short, cancel := context.WithCancel(ctx)
					time.AfterFunc(gap/2, cancel)
					ok = l.Acquire(short, req) == nil
					cancel()
				}
				if ok {
					granted[k].Add(1)
				}
				l.Sweep(rng.IntN(4))
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	// The last 5 ms may have been made up for a late timer.
	most := int64(time.Since(start)/gap) + 1 + int64(5*ms/gap)
	for k := range granted {
		if n := granted[k].Load(); n > most || n == 0 {
			t.Errorf("key %d: %d grants, at most %d are right", k, n, most)
		}
	}
	if n, _ := l.Lingering(); n > len(granted) {
		t.Errorf("%d linger", n)
	}
}

// heap is what is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// keysBefore are n keys whose own bytes are not counted.
func keysBefore(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	return keys
}

// TestB63OneShotKeys: a million keys, each used once, give their memory back when
// their buckets are full again, without any further call.
func TestB63OneShotKeys(t *testing.T) {
	const n = 1e6
	keys := keysBefore(n)
	synctest.Test(t, func(t *testing.T) {
		l := perKey(per(1, time.Minute))
		before := heap()
		for _, k := range keys {
			if ok, in := l.TryAcquire(key(k)); !ok {
				t.Fatal(in)
			}
		}
		used := heap()
		if each := float64(used-before) / n; each > 64 {
			t.Errorf("%.1f bytes for an idle key", each)
		}
		time.Sleep(time.Minute - 1)
		for _, k := range keys[:1000] {
			if ok, in := l.TryAcquire(key(k)); ok || in != 1 {
				t.Fatal(k, ok, in)
			}
		}
		time.Sleep(time.Minute + 10*time.Second) // two intervals, and the sweep itself
		wantHeld(t, l, 0, 0, 0)
		left := heap()
		t.Logf("%.1f bytes for an idle key, %d left of %d", float64(used-before)/n, left-before, used-before)
		if left > before+64<<10 {
			t.Errorf("%d bytes left", left-before)
		}
		if _, armed := l.Lingering(); armed {
			t.Error("a timer is kept")
		}
		runtime.KeepAlive(l)
	})
	runtime.KeepAlive(keys)
}

// TestBytesForAnIdleKey: also where the maps are at their emptiest.
func TestBytesForAnIdleKey(t *testing.T) {
	keys := keysBefore(100_000)
	l, w := perKey(ratelimiter.PerHour(1)), perWorker(1, time.Hour)
	var worst, sum, worstW float64
	times, from := 0, 0
	before := heap()
	for n := 2000; n <= len(keys); n += n / 8 {
		for _, k := range keys[from:n] {
			l.TryAcquire(key(k))
		}
		from = n
		each := float64(heap()-before) / float64(n)
		worst, sum, times = max(worst, each), sum+each, times+1
	}
	before = heap()
	from = 0
	for n := 2000; n <= 100_000; n += n / 4 {
		for i := from; i < n; i++ {
			w.TryAcquire(worker(i))
		}
		from = n
		worstW = max(worstW, float64(heap()-before)/float64(n))
	}
	t.Logf("%.1f bytes for a key at worst, %.1f on average; %.1f for a worker at worst", worst, sum/float64(times), worstW)
	if worst > 64 || worstW > 44 {
		t.Error("that is too much")
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(w)
	runtime.KeepAlive(keys)
}

// TestB60DebtSurvivesTheSweep: a key whose bucket will be full only long after the sweep is kept by it.
func TestB60DebtSurvivesTheSweep(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(per(1, time.Second))
		s.acquire(l, ratelimiter.Request{Key: "debt", Cost: 3600}, 0)
		for s.at() < time.Hour-time.Second {
			l.TryAcquire(key(fmt.Sprint(s.at()))) // so that there is always something to sweep
			l.Sweep(7)
			if ok, in := l.TryAcquire(key("debt")); ok || in != time.Hour-s.at() {
				t.Fatalf("at %v: %v, %v", s.at(), ok, in)
			}
			time.Sleep(10 * time.Second)
		}
		s.acquire(l, key("debt"), time.Hour)
	})
}

// TestB68LowRateForManyPeriods: a key asked ten times too often at a low rate gets exactly its rate, however often it is
// swept meanwhile.
func TestB68LowRateForManyPeriods(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(per(1, 10*time.Second)) // 0.1/s, no burst
		n := 0
		for s.at() < 1000*time.Second {
			if ok, _ := l.TryAcquire(key("a")); ok {
				n++
			}
			time.Sleep(time.Second)
		}
		if n != 100 {
			t.Errorf("%d in 100 intervals", n)
		}
	})
}

// TestSweepPause counts the keys that a step of a sweep goes through, with the lock held: 1,024, or a quarter of that if they
// are kept, which takes longer. So a step takes the same time however many keys there are: 20 to 80 µs, which is only reported
// here, since the machine may be busy.
func TestSweepPause(t *testing.T) {
	for _, tt := range []struct {
		name     string
		interval time.Duration
		weight   int // of a key
	}{{"all are kept", time.Hour, 4}, {"all are full", 1, 1}} {
		for _, n := range []int{1, 255, 256, 1023, 1024, 1025, 100_000} {
			l := perKey(per(1, tt.interval))
			for _, k := range keysBefore(n) {
				l.TryAcquire(key(k))
			}
			took, kept := l.FullSweep()
			if want := n*tt.weight/ratelimiter.StepKeys + 1; len(took) != want {
				t.Errorf("%s: %d steps for %d keys, want %d", tt.name, len(took), n, want)
			}
			if tt.weight > 1 && slices.Max(kept) > ratelimiter.StepKeys/tt.weight {
				t.Errorf("%s: a step went through %d keys", tt.name, slices.Max(kept))
			}
			slices.Sort(took)
			if n == 100_000 {
				t.Logf("%s: median %v, 99 %% %v, most %v of %d steps", tt.name, took[len(took)/2], took[len(took)*99/100],
					took[len(took)-1], len(took))
			}
			if realClock && took[len(took)/2] > time.Millisecond {
				t.Errorf("%s: half of the steps take more than %v", tt.name, took[len(took)/2])
			}
		}
	}
}

// TestUnusedLimiterIsCollected: the sweep keeps nothing alive, whatever is owed.
func TestUnusedLimiterIsCollected(t *testing.T) {
	gone := make(chan struct{})
	func() {
		l := perKey(per(1, 365*24*time.Hour))
		l.TryAcquire(key("a"))
		runtime.AddCleanup(l, func(int) { close(gone) }, 0)
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-gone:
			return
		case <-time.After(10 * ms):
		}
	}
	t.Error("it is still there")
}

// TestRareKeysCostNoTime: keys of one an hour are looked at once an hour.
func TestRareKeysCostNoTime(t *testing.T) {
	virtual(t, func(s *stage) {
		l := perKey(ratelimiter.PerHour(1))
		for i := range 5000 {
			l.TryAcquire(key(fmt.Sprint(i)))
		}
		time.Sleep(30 * time.Minute)
		for i := range 5000 {
			l.TryAcquire(key(fmt.Sprint(5000 + i)))
		}
		time.Sleep(30*time.Minute - 1)
		wantHeld(t, l, 10000, 0, 0)
		time.Sleep(time.Second)
		wantHeld(t, l, 5000, 0, 0)
		time.Sleep(time.Hour)
		wantHeld(t, l, 0, 0, 0)
	})
}

// TestKeysAtFullRate: on a real clock a late timer is made up for, key by key.
func TestKeysAtFullRate(t *testing.T) {
	const n = 300
	l := perKey(ratelimiter.PerSecond(1000))
	start := time.Now()
	for range n {
		if err := l.Acquire(t.Context(), key("a")); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(start)
	if took < (n-1)*ms-5*ms {
		t.Errorf("%d grants in %v", n, took)
	}
	t.Logf("%.1f %% of the rate", float64(n-1)*float64(ms)/float64(took)*100)
}

// TestKeyAcquireDoesNotAllocate: neither to grant nor to refuse a key in memory.
func TestKeyAcquireDoesNotAllocate(t *testing.T) {
	l := perKey(per(1e9, time.Second))
	slow := perKey(ratelimiter.PerHour(1))
	slow.TryAcquire(key("a"))
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		if err := l.Acquire(ctx, key("a")); err != nil {
			t.Error(err)
		}
		if ok, _ := slow.TryAcquire(key("a")); ok {
			t.Error("granted")
		}
		slow.Adjust(key("a"), 1)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPerKey(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		keys := keysBefore(n)
		ctx := b.Context()
		run := func(name string, f func(k string) error) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if err := f(keys[i]); err != nil {
						b.Fatal(err)
					}
					if i++; i == n {
						i = 0
					}
				}
			})
		}
		l := perKey(fast)
		run("PerKey", func(k string) error { return l.Acquire(ctx, key(k)) })
		all := must(ratelimiter.NewAll(l, bucket(1e9, time.Second)))
		run("InAll", func(k string) error { return all.Acquire(ctx, key(k)) })
		var mu sync.Mutex
		m := make(map[string]*rate.Limiter)
		run("MapOfXTimeRate", func(k string) error {
			mu.Lock()
			x := m[k]
			if x == nil {
				x = rate.NewLimiter(1e9, 1)
				m[k] = x
			}
			mu.Unlock()
			return x.Wait(ctx)
		})
	}
	w := perWorker(1e9, time.Second)
	b.Run("PerWorker", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := w.Acquire(b.Context(), worker(3)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func ExampleNewPerKey() {
	limiter, err := ratelimiter.NewPerKey(map[string]ratelimiter.Rate{
		"acme": ratelimiter.PerSecond(100), // has paid
	}, ratelimiter.PerMinute(6))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		err := limiter.AcquireWithin(context.Background(), ratelimiter.Request{Key: "bob"}, time.Second)
		var excess *ratelimiter.ExcessError
		fmt.Println(errors.As(err, &excess) && excess.Scope == `key "bob"`)
	}
	fmt.Println(limiter.Acquire(context.Background(), ratelimiter.Request{Key: "acme"}))
	// Output:
	// false
	// true
	// <nil>
}

// Without a fallback only keys with a rate are let through.
func ExampleKeyError() {
	limiter, err := ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"acme": ratelimiter.PerSecond(100)}, ratelimiter.Rate{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = limiter.Acquire(context.Background(), ratelimiter.Request{Key: "mallory"})
	fmt.Println(err)
	fmt.Println(errors.Is(err, ratelimiter.ErrNeverGranted))
	// Output:
	// ratelimiter: no limit for key "mallory"
	// true
}

// Two a second for each worker, and three for all of them together.
func ExampleNewPerWorker() {
	each, err := ratelimiter.NewPerWorker(ratelimiter.PerSecond(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	together, err := ratelimiter.NewSlidingWindow(ratelimiter.PerSecond(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := ratelimiter.NewAll(each, together)
	if err != nil {
		fmt.Println(err)
		return
	}
	for worker := range 4 {
		ok, _ := limiter.TryAcquire(ratelimiter.Request{Worker: worker})
		fmt.Println(worker, ok)
	}
	// Output:
	// 0 true
	// 1 true
	// 2 true
	// 3 false
}

// A limit that occurs twice would be charged twice, also where it varies with the request.
func TestKeysThatOccurTwice(t *testing.T) {
	k := must(ratelimiter.NewPerKey(nil, per(1, time.Second)))
	for _, twice := range [][]ratelimiter.Limiter{
		{k, k}, {k, ratelimiter.NewPausable(k)}, {must(ratelimiter.NewAll(k)), ratelimiter.CountRequests(k)},
	} {
		if _, err := ratelimiter.NewAll(twice...); err == nil || !strings.Contains(err.Error(), "occurs twice") {
			t.Error(err)
		}
	}
}
