package penstock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// A breaker that opens after two failures within a minute, for ten seconds, with two probes of which both must succeed.
func newBreaker(t *testing.T, opts ...breaker.Option) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(append([]breaker.Option{
		breaker.WithThreshold(2, time.Minute), breaker.WithCooldown(10 * time.Second), breaker.WithProbes(2, 1),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBreaker(t *testing.T) {
	errDown := errors.New("down")

	t.Run("while it is open attempts wait, take nothing of the limiter, and are not shed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var calls, grants []time.Duration
			bucket, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(10))
			if err != nil {
				t.Fatal(err)
			}
			limiter := spy{bucket, func() { grants = append(grants, time.Since(start)) }}
			e, err := penstock.New(func(_ context.Context, n int) (int, error) {
				calls = append(calls, time.Since(start))
				if time.Since(start) < 5*time.Second {
					return 0, errDown
				}
				return n, nil
			}, 1, penstock.WithBreaker(newBreaker(t)), penstock.WithLimiter(limiter), penstock.WithShed(0))
			if err != nil {
				t.Fatal(err)
			}
			tasks, err := e.ProcessAll(t.Context(), []int{0, 1, 2, 3, 4})
			if err != nil {
				t.Fatal(err)
			}
			for i, task := range tasks {
				if want := map[bool]penstock.Outcome{true: penstock.Failed, false: penstock.Succeeded}[i < 2]; task.Outcome != want {
					t.Errorf("task %d: %v, %v", i, task.Outcome, task.Err)
				}
			}
			if len(calls) != 5 || calls[1] != 0 || calls[2] != 10*time.Second || len(grants) != 5 || grants[2] != 10*time.Second {
				t.Errorf("calls at %v, grants at %v", calls, grants)
			}
		})
	})

	t.Run("it opens while an attempt waits for the limiter: the grant is given back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			bucket, err := ratelimiter.NewTokenBucket(ratelimiter.Rate{Count: 1, Per: 6 * time.Second}, ratelimiter.WithBurst(2))
			if err != nil {
				t.Fatal(err)
			}
			var last time.Duration
			e, err := penstock.New(func(_ context.Context, n int) (int, error) {
				if n < 2 {
					time.Sleep(1500 * time.Millisecond)
					return 0, errDown
				}
				last = time.Since(start)
				return n, nil
			}, 3, penstock.WithBreaker(newBreaker(t)), penstock.WithLimiter(bucket))
			if err != nil {
				t.Fatal(err)
			}
			tasks, err := e.ProcessSource(t.Context(), penstock.FromSeq(func(yield func(int) bool) {
				_ = yield(0) && yield(1)
				time.Sleep(time.Second) // until they have had their grants
				yield(2)
			}))
			if err != nil || tasks[2].Outcome != penstock.Succeeded || tasks[2].Attempts != 1 {
				t.Fatal(tasks, err)
			}
			// It opens at 1.5 s, the grant of 6 s comes too late, and at 11.5 s the bucket has it still. The next one is due at 12 s.
			if last != 11500*time.Millisecond {
				t.Errorf("called at %v", last)
			}
		})
	})

	t.Run("cancelled attempts and shed tasks do not count, retries do", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t)
			e, err := penstock.New(func(ctx context.Context, n int) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}, 4, penstock.WithBreaker(b))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := e.ProcessAll(ctx, make([]int, 4)); !errors.Is(err, context.DeadlineExceeded) || b.State() != breaker.Closed {
				t.Fatal(err, b.State())
			}
			e, err = penstock.New(func(context.Context, int) (int, error) { return 0, errDown }, 1,
				penstock.WithBreaker(b), penstock.WithRetry(retry.Policy{Max: 1}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.ProcessAll(t.Context(), make([]int, 1)); err != nil || b.State() != breaker.Open {
				t.Fatal(err, b.State())
			}
		})
	})

	t.Run("the end of the run and the task timeout reach those who wait for it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t)
			e, err := penstock.New(func(context.Context, int) (int, error) { return 0, errDown }, 1, penstock.WithBreaker(b))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			tasks, _ := e.ProcessAll(ctx, make([]int, 3))
			var unfinished *penstock.UnfinishedError
			if !errors.As(tasks[2].Err, &unfinished) || unfinished.During != "breaker" {
				t.Error(tasks[2].Err)
			}
			e, err = penstock.New(func(context.Context, int) (int, error) { return 0, nil }, 1,
				penstock.WithBreaker(b), penstock.WithTaskTimeout(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			tasks, err = e.ProcessAll(t.Context(), make([]int, 1))
			var timeout *penstock.TimeoutError
			if err != nil || !errors.As(tasks[0].Err, &timeout) || timeout.During != "breaker" || tasks[0].Attempts != 0 {
				t.Error(tasks, err)
			}
		})
	})

	t.Run("a Trip function that panics ends the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(t, breaker.WithTrip(func(error) bool { panic("trip") }))
			e, err := penstock.New(func(context.Context, int) (int, error) { return 0, errDown }, 2, penstock.WithBreaker(b))
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.ProcessAll(t.Context(), make([]int, 3))
			var callback *penstock.CallbackError
			if !errors.As(err, &callback) || callback.Callback != "breaker" {
				t.Error(err)
			}
		})
	})

	t.Run("nil is refused", func(t *testing.T) {
		if _, err := penstock.New(noop, 1, penstock.WithBreaker(nil)); err == nil {
			t.Error("no error")
		}
	})
}

// In half-open there are as many places as probes, here two, and both must be used for the breaker to close.
func TestBreakerPlaces(t *testing.T) {
	// trip opens a breaker and waits until it lets two attempts through.
	trip := func(t *testing.T, b *breaker.Breaker) {
		t.Helper()
		if _, err := attNew(t, 1, attFails(2, errAttOne, new(int)), penstock.WithBreaker(b)).ProcessAll(t.Context(), attUpTo(2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if b.State() != breaker.HalfOpen {
			t.Fatal(b.State())
		}
	}
	// closes checks that both places are there.
	closes := func(t *testing.T, b *breaker.Breaker) {
		t.Helper()
		clock := attClock()
		tasks, err := attNew(t, 2, attDouble, penstock.WithBreaker(b)).ProcessAll(t.Context(), attUpTo(3))
		if err != nil || clock() != 0 || b.State() != breaker.Closed {
			t.Errorf("after %v: %v, %v; the breaker is %v", clock(), tasks, err, b.State())
		}
	}

	for name, limiter := range map[string]ratelimiter.Func{
		"refuses": func(context.Context, ratelimiter.Request) error { return ratelimiter.ErrNeverGranted },
		"fails":   func(context.Context, ratelimiter.Request) error { return errAttOne },
		"panics":  func(context.Context, ratelimiter.Request) error { panic("limiter") },
		"exits":   func(context.Context, ratelimiter.Request) error { runtime.Goexit(); return nil },
	} {
		attTest(t, "is given back when the limiter "+name, func(t *testing.T) {
			b := newBreaker(t)
			trip(t, b)
			task, _ := attOne(t, attDouble, penstock.WithBreaker(b), penstock.WithLimiter(limiter))
			if task.Attempts != 0 || task.Err == nil {
				t.Error(task)
			}
			closes(t, b)
		})
	}

	attTest(t, "is used by a handler that panics, and Trip decides what that means", func(t *testing.T) {
		for _, means := range []bool{true, false} {
			b := newBreaker(t, breaker.WithTrip(func(err error) bool {
				_, panicked := errors.AsType[*penstock.PanicError](err)
				return !panicked || means
			}))
			trip(t, b)
			if _, err := attNew(t, 2, attPanic, penstock.WithBreaker(b)).ProcessAll(t.Context(), attUpTo(2)); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]breaker.State{true: breaker.Open, false: breaker.Closed}[means]; b.State() != want {
				t.Errorf("the breaker is %v, want %v", b.State(), want)
			}
		}
	})
}

func attPanic(context.Context, int) (int, error) { panic("handler") }

// spy tells of the grants of a limiter.
type spy struct {
	*ratelimiter.TokenBucket
	granted func()
}

func (s spy) AcquireWithin(ctx context.Context, req ratelimiter.Request, d time.Duration) error {
	err := s.TokenBucket.AcquireWithin(ctx, req, d)
	if err == nil {
		s.granted()
	}
	return err
}
