package casetest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Limits that were exceeded: of handlers at once, and of starts in a period.

// B20, sindresorhus/p-map#76: with a lazy source and a prefetch larger than the concurrency, two ran at once where one was
// allowed. Whatever the queues, batches, retries and panics, there are never more handlers than workers.
func TestB20NeverMoreHandlersThanWorkers(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, workers := range []int{1, 3} {
			for _, opts := range [][]option{
				{penstock.WithInputCapacity(8)},
				{penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited)},
				{penstock.WithBatch(5), penstock.WithInputCapacity(40)},
				{penstock.WithAttemptTimeout(2 * ms), penstock.WithRetry(retry.Policy{Max: 2})},
			} {
				var live, most atomic.Int64
				out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
					now := live.Add(1)
					defer live.Add(-1)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					time.Sleep(time.Duration(n%5) * ms) // some beyond their timeout
					switch n % 7 {
					case 3:
						panic("out of turn")
					case 5:
						return 0, errX
					}
					return n, nil
				}, workers, numbers(60), opts...)
				out.account(t, numbers(60))
				if most.Load() > int64(workers) {
					t.Errorf("%d handlers at once, with %d workers", most.Load(), workers)
				}
				equal(t, "handlers that have not returned", live.Load(), 0)
			}
		}
	})
}

// The case as it was reported: one worker, a lazy sequence, a consumer that is slow and then quick.
func TestB20OneWorkerWithASlowConsumer(t *testing.T) {
	eachStream(t, func(t *testing.T, s stream) {
		bubble(t, func(t *testing.T) {
			var live atomic.Int64
			e := newEngine(func(_ context.Context, n int) (int, error) {
				if live.Add(1) > 1 {
					t.Error("two handlers at once")
				}
				time.Sleep(ms)
				live.Add(-1)
				return n, nil
			}, 1, penstock.WithInputCapacity(8))
			f := newFeed(s.kind, 20)
			defer f.close()
			read := 0
			for _, err := range s.results(e, t.Context(), f.source) {
				if err != nil {
					t.Fatal(err)
				}
				if read++; read < 10 {
					time.Sleep(5 * ms)
				}
			}
			equal(t, "results", read, 20)
		})
	})
}

// B36, sindresorhus/p-queue#126: the cap per interval broke as soon as it was large or the interval short. Every rolling
// period is looked at, with one caller and with many, at the limiter and at the handlers.
func TestB36WindowHoldsInEveryRollingPeriod(t *testing.T) {
	for _, r := range []ratelimiter.Rate{
		{Count: 50, Per: 100 * ms}, {Count: 1, Per: ms}, {Count: 7, Per: 13 * time.Microsecond}, {Count: 200, Per: ms}, {Count: 3, Per: time.Hour},
	} {
		t.Run(rateName(r), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for name, l := range map[string]ratelimiter.Limiter{
					"SlidingWindow": newWindow(r),
					"Pausable":      ratelimiter.NewPausable(newWindow(r)),
					"All":           newAll(newWindow(r), newWindow(ratelimiter.Rate{Count: 10 * r.Count, Per: r.Per})),
				} {
					n := min(10*r.Count, 2*r.Count+100)
					clock := startWatch(t)
					at := clock.crowdGrants(l, n)
					neverMore(t, at, r.Count, r.Per)
					clock.is(time.Duration((n-1)/r.Count)*r.Per, name+": the last grant of the crowd")

					var mu sync.Mutex
					at = nil
					out := processAll(t.Context(), func(context.Context, int) (int, error) {
						mu.Lock()
						defer mu.Unlock()
						at = append(at, clock.now())
						return 0, nil
					}, 16, numbers(n), penstock.WithLimiter(l))
					out.account(t, numbers(n))
					neverMore(t, at, r.Count, r.Per)
				}
			})
		})
	}
}

// A limiter with random delays in it keeps to the same cap, and to its lower bound, whatever it draws; also with callers
// that give up in the middle of a delay.
func TestB36RandomDelaysKeepTheCap(t *testing.T) {
	r := ratelimiter.Rate{Count: 5, Per: 100 * ms}
	for name, opts := range map[string][]ratelimiter.RandomizedOption{
		"default": nil, "short": {ratelimiter.WithMultiplier(0.05, 0.05)}, "wild": {ratelimiter.WithMultiplier(1, 5), ratelimiter.WithBounds(0.1, 20)},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts = append(opts, ratelimiter.WithRandom(rand.New(rand.NewPCG(36, 36))))
				l := must(ratelimiter.NewRandomizedInterval(r, opts...))
				clock := startWatch(t)
				var quitters sync.WaitGroup
				for i := range 50 {
					quitters.Go(func() {
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						time.AfterFunc(time.Duration(i)*5*ms, cancel)
						_ = acquire(ctx, l)
					})
				}
				at := clock.crowdGrants(l, 200)
				quitters.Wait()
				neverMore(t, at, r.Count, r.Per)
				for i := 1; name == "wild" && i < len(at); i++ {
					if at[i]-at[i-1] < 2*ms {
						t.Fatalf("grants %v and %v, with a least delay of 2 ms", at[i-1], at[i])
					}
				}
			})
		})
	}
}

// On the real clock, with callers that race: so many grants take so many periods at least, however late anybody wakes.
func TestB36WindowHoldsOnTheRealClock(t *testing.T) {
	watch(t)
	const count, per, n = 20, 40 * ms, 100
	l := newWindow(ratelimiter.Rate{Count: count, Per: per})
	start := time.Now()
	var granted atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for granted.Add(1) <= n {
				if err := acquire(t.Context(), l); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if least := time.Duration((n-1)/count) * per; time.Since(start) < least {
		t.Errorf("%d grants of %d per %v within %v: want at least %v", n, count, per, time.Since(start), least)
	}
}

// B49, plausible/analytics#6497: a fixed window lets a full burst through at its end and another at the start of the next.
func TestB49NoDoubleBurstAcrossAnEdge(t *testing.T) {
	r := ratelimiter.Rate{Count: 5, Per: 200 * ms}
	for _, first := range []time.Duration{0, ms, 100 * ms, 190 * ms, 199 * ms, 200 * ms, 1234567 * time.Microsecond} {
		t.Run(fmt.Sprint("first burst at ", first), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for _, l := range []ratelimiter.Limiter{newWindow(r), ratelimiter.NewPausable(newWindow(r)), newAll(newWindow(r))} {
					clock := startWatch(t)
					time.Sleep(first)
					var want []time.Duration
					for i := range 4 {
						for range 5 {
							want = append(want, first+time.Duration(i)*200*ms)
						}
					}
					equalSlices(t, "grants", clock.grants(l, 20), want)
				}
			})
		})
	}
}

// The grants of a window come back one by one, each exactly a period after it was given, not all together.
func TestB49WindowRefillsGrantByGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newWindow(ratelimiter.Rate{Count: 3, Per: 200 * ms})
		clock := startWatch(t)
		for _, at := range []time.Duration{0, 70 * ms, 190 * ms} {
			time.Sleep(at - clock.now())
			take(t, l, 1)
		}
		equalSlices(t, "the next", clock.grants(l, 6), []time.Duration{200 * ms, 270 * ms, 390 * ms, 400 * ms, 470 * ms, 590 * ms})
	})
}
