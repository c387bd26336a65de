package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// attReply is what a call of Do came to.
type attReply struct {
	value int
	err   error
	at    time.Duration
}

// attDo calls Do on a goroutine of its own.
func attDo(ctx context.Context, run *penstock.Run[int, int], n int, opts ...penstock.SubmitOption) <-chan attReply {
	began := time.Now()
	reply := make(chan attReply, 1)
	go func() {
		value, err := run.Do(ctx, n, opts...)
		reply <- attReply{value, err, time.Since(began)}
	}()
	return reply
}

func TestDo(t *testing.T) {
	attTest(t, "many callers share one limiter, each gets its own reply, in the order they came", func(t *testing.T) {
		run := attNew(t, 4, attDouble, penstock.WithLimiter(attEvery(100*time.Millisecond))).Start(t.Context())
		var replies []<-chan attReply
		for n := range 50 {
			replies = append(replies, attDo(t.Context(), run, n))
			synctest.Wait()
		}
		for n, reply := range replies {
			r := <-reply
			if r.value != 2*n || r.err != nil || r.at != time.Duration(n)*100*time.Millisecond {
				t.Errorf("caller %d: %+v", n, r)
			}
		}
		run.Finish(t.Context())
	})

	attTest(t, "its task is not published, others are", func(t *testing.T) {
		run := attNew(t, 1, attDouble).Start(t.Context())
		run.Do(t.Context(), 1)
		run.Submit(t.Context(), 2)
		run.Do(t.Context(), 3)
		run.CloseInput()
		var read []int
		for task := range run.Results() {
			read = append(read, task.Data)
		}
		attExpect(t, "read", read, []int{2})
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 3})
	})

	attTest(t, "nobody need read results", func(t *testing.T) {
		run := attNew(t, 1, attDouble, penstock.WithResultCapacity(1)).Start(t.Context())
		for n := range 100 {
			if v, err := run.Do(t.Context(), n); v != 2*n || err != nil {
				t.Error(v, err)
			}
		}
		run.Finish(t.Context())
	})

	attTest(t, "the error is the task's own", func(t *testing.T) {
		run := attNew(t, 1, func(_ context.Context, n int) (int, error) { return 7, errAttOne }).Start(t.Context())
		if v, err := run.Do(t.Context(), 1); v != 0 || err != errAttOne {
			t.Error(v, err)
		}
		run.Finish(t.Context())
	})

	attTest(t, "retries, timeouts, panics, costs and shedding are as for any task", func(t *testing.T) {
		l := &attLimiter{within: func(_ context.Context, r ratelimiter.Request, _ time.Duration) error {
			switch r.Cost {
			case 100:
				return &ratelimiter.CostError{}
			case 200:
				return &ratelimiter.ExcessError{Limit: "l"}
			}
			return nil
		}}
		run := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			if n == 1 && penstock.AttemptNumber(ctx) < 3 {
				return 0, errAttOne
			}
			return attMisbehave(ctx, n)
		}, penstock.WithRetry(retry.Policy{Max: 2, If: retry.Is(errAttOne), Unless: retry.As[*penstock.PanicError]()}),
			penstock.WithAttemptTimeout(time.Second), penstock.WithLimiter(l), penstock.WithShed(0), penstock.WithCost(func(n int) int { return max(n, 0) })).Start(t.Context())
		v, err := run.Do(t.Context(), 1)
		if v != 2 || err != nil {
			t.Error(v, err)
		}
		_, err = run.Do(t.Context(), attHangs, penstock.WithID("mine"))
		attExpect(t, "task", attAs[*penstock.TimeoutError](t, err).Task, "mine")
		_, err = run.Do(t.Context(), attPanics)
		attAs[*penstock.PanicError](t, err)
		_, err = run.Do(t.Context(), attGoexits)
		attIs(t, err, penstock.ErrGoexit)
		_, err = run.Do(t.Context(), 100)
		attIs(t, err, ratelimiter.ErrNeverGranted)
		_, err = run.Do(t.Context(), 200)
		attAs[*penstock.ShedError](t, err)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 1, Failed: 4, Shed: 1, Retries: 2})
		run.Finish(t.Context())
	})

	attTest(t, "its reply does not wait for its batch", func(t *testing.T) {
		run := attNew(t, 1, func(ctx context.Context, n int) (int, error) { return n, attSleep(ctx, time.Second) },
			penstock.WithBatch(8), penstock.WithInputCapacity(8)).Start(t.Context())
		var replies []<-chan attReply
		for n := range 8 {
			replies = append(replies, attDo(t.Context(), run, n))
			synctest.Wait()
		}
		for n, reply := range replies {
			attExpect(t, "instant", (<-reply).at, time.Duration(n+1)*time.Second)
		}
		run.Finish(t.Context())
	})

	attTest(t, "priority and id are its own", func(t *testing.T) {
		o := attBusy(t)
		replies := []<-chan attReply{attDo(t.Context(), o.Run, 2, penstock.AtPriority(2)), attDo(t.Context(), o.Run, 1, penstock.AtPriority(1))}
		synctest.Wait()
		attExpect(t, "order", o.order(t), []int{1, 2})
		for _, reply := range replies {
			<-reply
		}
	})
}

func TestDoContext(t *testing.T) {
	type key string
	attTest(t, "the handler has the values of both contexts, the caller's first, and the caller's deadline", func(t *testing.T) {
		runCtx := context.WithValue(context.WithValue(t.Context(), key("run"), 1), key("both"), "run")
		run := attNew(t, 1, func(ctx context.Context, _ int) (int, error) {
			for k, want := range map[string]any{"run": 1, "caller": 2, "both": "caller", "none": nil} {
				if got := ctx.Value(key(k)); got != want {
					t.Errorf("value %q is %v, want %v", k, got, want)
				}
			}
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || left != time.Minute {
				t.Errorf("%v left until the deadline, if any: %v", left, ok)
			}
			return 0, nil
		}, penstock.WithAttemptTimeout(time.Hour)).Start(runCtx)
		ctx, cancel := context.WithTimeout(context.WithValue(context.WithValue(context.Background(), key("caller"), 2), key("both"), "caller"), time.Minute)
		defer cancel()
		if _, err := run.Do(ctx, 1); err != nil {
			t.Error(err)
		}
		run.Finish(t.Context())
	})

	attTest(t, "when the caller gives up it is told at once, the handler too, and the run waits for the handler", func(t *testing.T) {
		clock := attClock()
		run := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			if n == 2 {
				return n, nil
			}
			<-ctx.Done()
			attExpect(t, "the handler is told at", clock(), time.Second)
			attIs(t, context.Cause(ctx), errAttTwo)
			time.Sleep(time.Minute)
			return 0, ctx.Err()
		}, penstock.WithRetry(retry.Policy{Max: 5})).Start(t.Context())
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAttTwo)
		defer cancel()
		r := <-attDo(ctx, run, 1)
		attExpect(t, "the caller is told at", r.at, time.Second)
		attIs(t, r.err, context.DeadlineExceeded, errAttTwo)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Running: 1})

		if _, err := run.Do(t.Context(), 2); err != nil { // others are not concerned, but must wait for the worker
			t.Error(err)
		}
		attExpect(t, "instant", clock(), time.Second+time.Minute)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 1, Unfinished: 1})
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
		attExpect(t, "results", len(run.Drain()), 0)
	})

	attTest(t, "one who gives up while the item is pending: the handler never sees it", func(t *testing.T) {
		o := attBusy(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := <-attDo(ctx, o.Run, 1)
		attExpect(t, "instant", r.at, time.Second)
		attIs(t, r.err, context.DeadlineExceeded)
		attExpect(t, "seen after it", len(o.order(t)), 0)
		attExpect(t, "counters", o.Counters(), penstock.Counters{Succeeded: 1, Unfinished: 1})
	})

	attTest(t, "one who gives up while waiting for room: the item was never accepted", func(t *testing.T) {
		o := attBusy(t, penstock.WithInputCapacity(1))
		o.Submit(t.Context(), 5)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errAttTwo)
		defer cancel()
		r := <-attDo(ctx, o.Run, 1)
		attIs(t, r.err, context.DeadlineExceeded, errAttTwo)
		attExpect(t, "order", o.order(t), []int{5})
		attExpect(t, "counters", o.Counters(), penstock.Counters{Succeeded: 2})
	})

	attTest(t, "one who gives up in the limiter or in the backoff", func(t *testing.T) {
		for _, opts := range [][]penstock.Option{
			{penstock.WithLimiter(attNever)},
			{penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Hour)})},
		} {
			run := attNew(t, 1, func(context.Context, int) (int, error) { return 0, errAttOne }, opts...).Start(t.Context())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			r := <-attDo(ctx, run, 1)
			cancel()
			attExpect(t, "instant", r.at, time.Second)
			attIs(t, r.err, context.DeadlineExceeded)
			synctest.Wait()
			attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 1})
			if err := run.Finish(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})

	attTest(t, "one whose context has ended before: refused, also when there is room", func(t *testing.T) {
		run := attNew(t, 1, attDouble).Start(t.Context())
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errAttTwo)
		_, err := run.Do(ctx, 1)
		attIs(t, err, context.Canceled, errAttTwo)
		attExpect(t, "counters", run.Counters(), penstock.Counters{})
		run.Finish(t.Context())
	})

	attTest(t, "a value that comes after the caller has gone is a success that nobody sees", func(t *testing.T) {
		run := attNew(t, 1, func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Nanosecond)
			return 7, nil
		}).Start(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := <-attDo(ctx, run, 1)
		attIs(t, r.err, context.DeadlineExceeded)
		run.Finish(t.Context())
		attExpect(t, "counters", run.Counters(), penstock.Counters{Succeeded: 1})
	})

	attTest(t, "the handler's context ends when the run is stopped, and the caller is told why", func(t *testing.T) {
		run := attNew(t, 1, func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, errAttOne }, penstock.WithRetry(retry.Policy{Max: 5})).Start(t.Context())
		running, pending := attDo(context.Background(), run, 1), attDo(context.Background(), run, 2)
		synctest.Wait()
		run.Stop(t.Context())
		replies := []attReply{<-running, <-pending}
		attIs(t, errors.Join(replies[0].err, replies[1].err), errAttOne)
		for _, r := range replies {
			attAs[*penstock.UnfinishedError](t, r.err)
			attIs(t, r.err, context.Canceled, penstock.ErrStopped)
		}
		_, err := run.Do(t.Context(), 3)
		attIs(t, err, penstock.ErrStopped)
		attExpect(t, "error", run.Err(), penstock.ErrStopped, attCmpErrors)
		attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 2})
	})

	attTest(t, "what the handler returns after the run's end is unfinished, however soon, and is not retried", func(t *testing.T) {
		// The item's own context may hear of the end later than the run's.
		for range 50 {
			ctx, cancel := context.WithCancelCause(context.Background())
			release := make(chan struct{})
			run := attNew(t, 1, func(context.Context, int) (int, error) { <-release; return 0, errAttOne },
				penstock.WithRetry(retry.Policy{Max: 5})).Start(ctx)
			reply := attDo(context.Background(), run, 1)
			synctest.Wait()
			cancel(errAttTwo)
			close(release)
			attIs(t, (<-reply).err, errAttTwo, context.Canceled, errAttOne)
			<-run.Done()
			attExpect(t, "counters", run.Counters(), penstock.Counters{Unfinished: 1})
		}
	})

	attTest(t, "a failed run says so to everyone who waits, and to those who come later", func(t *testing.T) {
		run := attNew(t, 2, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return 0, errAttOne
			}
			return attHang(ctx, n)
		}, penstock.WithFailureLimit(1)).Start(t.Context())
		other := attDo(t.Context(), run, 1)
		synctest.Wait()
		if _, err := run.Do(t.Context(), 0); err != errAttOne {
			t.Errorf("the one that reached the limit got %v", err)
		}
		r := <-other
		limit := attAs[*penstock.TooManyFailuresError](t, r.err)
		attIs(t, r.err, errAttOne, context.Canceled)
		<-run.Done()
		_, err := run.Do(t.Context(), 2)
		if err != error(limit) || run.Err() != error(limit) {
			t.Errorf("later ones got %v, the run %v", err, run.Err())
		}
	})

	attTest(t, "after CloseInput it is refused, as are those who wait for room", func(t *testing.T) {
		o := attBusy(t, penstock.WithInputCapacity(1))
		accepted := attDo(t.Context(), o.Run, 1)
		synctest.Wait()
		waiting := attDo(t.Context(), o.Run, 2)
		synctest.Wait()
		o.CloseInput()
		attIs(t, (<-waiting).err, penstock.ErrInputClosed)
		_, err := o.Do(t.Context(), 3)
		attIs(t, err, penstock.ErrInputClosed)
		attExpect(t, "order", o.order(t), []int{1})
		if r := <-accepted; r.err != nil {
			t.Error(r.err)
		}
	})

	attTest(t, "a caller that gave up is no reason for the run to have failed", func(t *testing.T) {
		run := attNew(t, 1, attHang).Start(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		run.Do(ctx, 1)
		synctest.Wait()
		if err := run.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := run.Err(); err != nil {
			t.Errorf("Stop cut nothing off, but Err is %v", err)
		}
	})

	attTest(t, "the end of the run's context reaches callers with contexts of their own", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errAttTwo)
		defer cancel()
		run := attNew(t, 1, attHang).Start(ctx)
		r := <-attDo(context.Background(), run, 1)
		attExpect(t, "instant", r.at, time.Second)
		attAs[*penstock.UnfinishedError](t, r.err)
		attIs(t, r.err, errAttTwo)
		<-run.Done()
		attIs(t, run.Err(), context.DeadlineExceeded, errAttTwo)
	})
}

func TestDoManyAtOnce(t *testing.T) {
	// On the real clock and under the race detector: callers come, give up and fail at random while the run goes on and
	// is stopped in the end. Each must get its own value, its own failure, or a reason.
	for round := range 5 {
		run := attNew(t, 4, func(ctx context.Context, n int) (int, error) {
			switch n % 5 {
			case 0:
				return 0, fmt.Errorf("item %d: %w", n, errAttOne)
			case 1:
				return attMisbehave(ctx, attPanics)
			case 2:
				if err := attSleep(ctx, time.Microsecond); err != nil {
					return 0, err
				}
			}
			return 2 * n, nil
		}, penstock.WithInputCapacity(1+round), penstock.WithBatch(1+round%2*7)).Start(context.Background())
		var wg sync.WaitGroup
		for n := range 200 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				if n%7 == 0 {
					go cancel()
				}
				v, err := run.Do(ctx, n)
				switch {
				case err == nil:
					if v != 2*n || n%5 < 2 {
						t.Errorf("item %d got %d", n, v)
					}
				case errors.Is(err, context.Canceled) || errors.Is(err, penstock.ErrStopped):
				case n%5 == 0 && strings.HasPrefix(err.Error(), fmt.Sprintf("item %d: ", n)):
				case n%5 == 1 && err.Error() == "penstock: panic: one":
				default:
					t.Errorf("item %d got %v", n, err)
				}
				if n == 150 {
					go run.Stop(context.Background())
				}
			})
		}
		wg.Wait()
		run.Stop(context.Background())
		c := run.Counters()
		if c.Pending != 0 || c.Running != 0 {
			t.Errorf("left over: %+v", c)
		}
		if left := run.Drain(); len(left) != 0 {
			t.Errorf("published: %v", slices.Collect(func(yield func(int) bool) {
				for _, task := range left {
					yield(task.Data)
				}
			}))
		}
	}
}

// Many callers come and go while a run goes on, and so do the contexts that join a caller's to the run's.
func TestDoLeavesNothingBehind(t *testing.T) {
	attTest(t, "neither with the run nor with the caller", func(t *testing.T) {
		var kept context.Context
		run := attNew(t, 1, func(ctx context.Context, n int) (int, error) {
			kept = ctx
			return n, nil
		}).Start(t.Context())
		if _, err := run.Do(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if kept.Err() != context.Canceled {
			t.Errorf("after the reply the handler's context goes on: %v", kept.Err())
		}
		if err := run.Finish(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
