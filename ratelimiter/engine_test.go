package ratelimiter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Field bugs about limiters that need an engine to show.

// TestB86WaitingOccupiesItsWorker: as WithLimiter says. With as many workers as may wait for one key, others go on; with
// fewer they would not, so keys that are slow want workers, or an engine, of their own.
func TestB86WaitingOccupiesItsWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := must(ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"slow": ratelimiter.PerHour(1)},
			ratelimiter.PerSecond(1000)))
		start := time.Now()
		engine := must(penstock.New(func(_ context.Context, key string) (time.Duration, error) { return time.Since(start), nil }, 3,
			penstock.WithLimiter(limiter), penstock.WithKey(func(key string) string { return key })))
		tasks := must(engine.ProcessAll(t.Context(), []string{"slow", "slow", "slow", "a", "b", "c", "a"}))
		for i, want := range []time.Duration{0, time.Hour, 2 * time.Hour, 0, 0, 0, time.Millisecond} {
			if tasks[i].Err != nil || tasks[i].Result != want {
				t.Errorf("item %d: %v at %v, want %v", i, tasks[i].Err, tasks[i].Result, want)
			}
		}
	})
}

// TestB87RetriesDoNotDisturbThePace: attempts that come back after delays of their own are paced like all others.
func TestB87RetriesDoNotDisturbThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var starts []time.Time
		handler := func(_ context.Context, i int) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			starts = append(starts, time.Now())
			if len(starts)%3 == 0 {
				return 0, errors.New("again")
			}
			return i, nil
		}
		backoff := func(failed int, _ error) time.Duration { return time.Duration(failed*failed*37) * ms }
		engine := must(penstock.New(handler, 20, penstock.WithLimiter(bucket(10, time.Second)),
			penstock.WithRetry(retry.Policy{Max: 20, Backoff: backoff})))
		items := make([]int, 200)
		if _, err := penstock.Values(engine.ProcessAll(t.Context(), items)); err != nil {
			t.Fatal(err)
		}
		if len(starts) < 290 {
			t.Fatalf("only %d attempts", len(starts))
		}
		late := 0
		for i := 1; i < len(starts); i++ {
			switch gap := starts[i].Sub(starts[i-1]); {
			case gap < 100*ms:
				t.Fatalf("attempts %d and %d are %v apart", i-1, i, gap)
			case gap > 100*ms:
				late++
			}
		}
		if late > 10 { // the last few wait for their backoff
			t.Errorf("%d of %d attempts came late", late, len(starts))
		}
	})
}

// TestB89EmptyPollsCostNothing: workers that have nothing to do acquire nothing, so that the first items after an idle
// time find what is due to them; and every attempt costs exactly one.
func TestB89EmptyPollsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := window(5, time.Hour)
		start := time.Now()
		engine := must(penstock.New(func(context.Context, int) (time.Duration, error) { return time.Since(start), nil }, 4,
			penstock.WithLimiter(limit)))
		run := engine.Start(t.Context())
		time.Sleep(10 * time.Hour)
		if got := limit.Stats(); got != (ratelimiter.Stats{Available: 5}) {
			t.Errorf("%+v after idle hours", got)
		}
		var at []time.Duration
		for i := range 6 {
			if _, err := run.Submit(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		for range 6 {
			task, err := run.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, task.Result)
		}
		slices.Sort(at)
		if at[0] != 10*time.Hour || at[4] != 10*time.Hour || at[5] != 11*time.Hour {
			t.Errorf("started at %v", at)
		}
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
