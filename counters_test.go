package penstock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

func TestCounters(t *testing.T) {
	attTest(t, "N2 pending is what was accepted and has no worker; who waits for room is not counted", func(t *testing.T) {
		run := attNew(t, 1, attHang, penstock.WithInputCapacity(2)).Start(t.Context())
		attExpect(t, "at the start", run.Counters(), penstock.Counters{})
		refused := make(chan error, 5)
		for n := range 5 {
			go func() {
				_, err := run.Submit(t.Context(), n)
				refused <- err
			}()
		}
		synctest.Wait()
		attExpect(t, "with two that wait for room", run.Counters(), penstock.Counters{Pending: 2, Running: 1})
		run.Stop(t.Context())
		accepted := 0
		for range 5 {
			if <-refused == nil {
				accepted++
			}
		}
		attExpect(t, "after the stop", run.Counters(), penstock.Counters{Unfinished: accepted})
	})

	attTest(t, "N3 N5 running is from limiter to last retry; a retry counts when its call begins", func(t *testing.T) {
		var run *penstock.Run[int, int]
		see := func(what string, want penstock.Counters) {
			t.Helper()
			synctest.Wait()
			attExpect(t, what, run.Counters(), want)
		}
		limiter := ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error { return attSleep(ctx, time.Minute) })
		run = attNew(t, 1, func(ctx context.Context, _ int) (int, error) {
			attSleep(ctx, time.Minute)
			return 0, errAttOne
		}, penstock.WithLimiter(limiter), penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Minute)})).Start(t.Context())
		run.Submit(t.Context(), 1)
		// Each phase takes a minute; look in the middle of each.
		time.Sleep(30 * time.Second)
		see("in the limiter", penstock.Counters{Running: 1})
		time.Sleep(time.Minute)
		see("in the handler", penstock.Counters{Running: 1})
		time.Sleep(time.Minute)
		see("in the backoff", penstock.Counters{Running: 1})
		time.Sleep(time.Minute)
		see("in the limiter before the retry", penstock.Counters{Running: 1})
		time.Sleep(time.Minute)
		see("in the handler again", penstock.Counters{Running: 1, Retries: 1})
		time.Sleep(time.Minute)
		see("after it", penstock.Counters{Failed: 1, Retries: 1})
		run.Finish(t.Context())
	})

	attTest(t, "N4 N7 ended tasks count before they are read, and reading changes nothing", func(t *testing.T) {
		run := attNew(t, 1, attDouble, penstock.WithResultCapacity(1), penstock.WithInputCapacity(9)).Start(t.Context())
		for n := range 4 {
			run.Submit(t.Context(), n)
		}
		synctest.Wait()
		// One result is in the buffer, one in the hand of the worker, which has ended that task and not begun the next.
		attExpect(t, "nothing read", run.Counters(), penstock.Counters{Pending: 2, Succeeded: 2})
		run.CloseInput()
		for range run.Results() {
		}
		attExpect(t, "all read", run.Counters(), penstock.Counters{Succeeded: 4})
	})

	attTest(t, "N6 the sums of a small run", func(t *testing.T) {
		e := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if n == 0 || n == 1 && penstock.AttemptNumber(ctx) == 1 {
				return 0, errAttOne
			}
			return n, nil
		}, penstock.WithRetry(retry.Policy{Max: 1}))
		e.ProcessAll(t.Context(), attUpTo(3))
		attExpect(t, "counters", e.Counters(), penstock.Counters{Succeeded: 2, Failed: 1, Retries: 2})
	})

	attTest(t, "N8 they outlive the run, whatever its end", func(t *testing.T) {
		run := attNew(t, 1, attEvensFail, penstock.WithFailureLimit(1)).Start(t.Context())
		run.Submit(t.Context(), 1)
		run.Submit(t.Context(), 2)
		<-run.Done()
		for range run.Results() {
		}
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 1, Failed: 1})
	})

	attTest(t, "N10 the engine's are the sum of all its runs, those under way too", func(t *testing.T) {
		e := attNew(t, 2, attMisbehave)
		e.ProcessAll(t.Context(), []int{1, attPanics, 3})
		run := e.Start(t.Context())
		run.Submit(t.Context(), attHangs)
		for range e.IterResults(t.Context(), penstock.FromSlice(attUpTo(4))) {
		}
		synctest.Wait()
		attExpect(t, "counters", e.Counters(), penstock.Counters{Running: 1, Succeeded: 6, Failed: 1})
		run.Stop(t.Context())
		attExpect(t, "counters", e.Counters(), penstock.Counters{Unfinished: 1, Succeeded: 6, Failed: 1})
		attExpect(t, "the run's", run.Counters(), penstock.Counters{Unfinished: 1})
	})

	t.Run("Ended and Plus add up", func(t *testing.T) {
		c := penstock.Counters{Pending: 1, Running: 2, Succeeded: 3, Failed: 4, Shed: 5, Unfinished: 6, Retries: 7}
		attExpect(t, "ended", c.Ended(), 18)
		attExpect(t, "twice", c.Plus(c), penstock.Counters{Pending: 2, Running: 4, Succeeded: 6, Failed: 8, Shed: 10, Unfinished: 12, Retries: 14})
	})
}

// attAudit keeps looking at counters while a run goes on. Each look must add up to the number of accepted tasks, which
// lies between what was accepted surely before it and what can have been accepted after it.
type attAudit struct {
	surely, perhaps atomic.Int64
	workers         int
	stop            atomic.Bool
	wg              sync.WaitGroup
}

func (a *attAudit) watch(t *testing.T, what string, look func() penstock.Counters) {
	a.wg.Go(func() {
		var before penstock.Counters
		for !a.stop.Load() && !t.Failed() {
			low := int(a.surely.Load())
			c := look()
			high := int(a.perhaps.Load())
			sum := c.Pending + c.Running + c.Ended()
			switch {
			case sum < low || sum > high:
				t.Errorf("%s: %+v add up to %d, but between %d and %d were accepted", what, c, sum, low, high)
			case c.Running > a.workers:
				t.Errorf("%s: %+v: more running than the %d workers", what, c, a.workers)
			case min(c.Pending, c.Running, c.Succeeded, c.Failed, c.Shed, c.Unfinished, c.Retries) < 0:
				t.Errorf("%s: %+v: below zero", what, c)
			case c.Succeeded < before.Succeeded || c.Failed < before.Failed || c.Shed < before.Shed ||
				c.Unfinished < before.Unfinished || c.Retries < before.Retries:
				t.Errorf("%s: from %+v to %+v: what has ended has ended", what, before, c)
			}
			before = c
			runtime.Gosched()
		}
	})
}

func (a *attAudit) end() {
	a.stop.Store(true)
	a.wg.Wait()
}

// attRandom makes a handler and options that do a bit of everything.
func attRandom(rng *rand.Rand) (attHandler, []penstock.Option) {
	h := func(ctx context.Context, n int) (int, error) {
		switch n % 7 {
		case 0:
			return 0, errAttOne
		case 1:
			runtime.Gosched()
		case 2:
			if n%5 == 0 {
				return attMisbehave(ctx, attPanics-n%2) // or attGoexits
			}
		}
		return n, nil
	}
	opts := []penstock.Option{
		penstock.WithRetry(retry.Policy{Max: rng.IntN(3)}), penstock.WithBatch([]int{1, 1, 2, 8}[rng.IntN(4)]),
		penstock.WithInputCapacity(1 + rng.IntN(8)), penstock.WithResultCapacity(1 + rng.IntN(8)),
	}
	if rng.IntN(2) == 0 {
		l := &attLimiter{within: func(_ context.Context, r ratelimiter.Request, _ time.Duration) error {
			if r.Index%11 == 3 {
				return &ratelimiter.ExcessError{}
			}
			return nil
		}}
		opts = append(opts, penstock.WithLimiter(l), penstock.WithShed(0))
	}
	if rng.IntN(4) == 0 {
		opts = append(opts, penstock.WithFailureLimit(1+rng.IntN(30)))
	}
	return h, opts
}

func TestCountersAddUpAlways(t *testing.T) {
	t.Parallel()
	for range 8 {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		workers, items := 1+rng.IntN(8), 1+rng.IntN(300)
		h, opts := attRandom(rng)
		stopAfter := rng.IntN(2 * items)

		t.Run(fmt.Sprintf("of a run by hand, seed %d", seed), func(t *testing.T) {
			e := attNew(t, workers, h, opts...)
			run := e.Start(context.Background())
			a := &attAudit{workers: workers}
			a.watch(t, "run", run.Counters)
			a.watch(t, "engine", e.Counters)
			a.wg.Go(func() {
				for n := range items {
					a.perhaps.Add(1)
					if _, err := run.Submit(context.Background(), n); err == nil {
						a.surely.Add(1)
					}
					if n == stopAfter {
						run.Stop(context.Background())
					}
				}
				run.CloseInput()
			})
			read := 0
			for _, err := range run.Results() {
				if err == nil {
					read++
				}
			}
			a.end()
			c := run.Counters()
			attExpect(t, "results read", read, c.Ended())
			attExpect(t, "accepted", c.Ended(), int(a.surely.Load()))
			attExpect(t, "engine", e.Counters(), c)
		})

		t.Run(fmt.Sprintf("of overlapping helpers, seed %d", seed), func(t *testing.T) {
			e := attNew(t, workers, h, opts...)
			a := &attAudit{workers: 2 * workers}
			a.watch(t, "engine", e.Counters)
			var helpers sync.WaitGroup
			for range 2 {
				a.perhaps.Add(int64(items))
				helpers.Go(func() { e.ProcessAll(context.Background(), attUpTo(items)) })
			}
			helpers.Wait()
			a.end()
			attExpect(t, "accepted", e.Counters().Ended(), 2*items)
		})
	}
}
