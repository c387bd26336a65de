package casetest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"golang.org/x/time/rate"
)

// Cancelled callers that used up what they never got: slots, tokens, places in line.

// quits are the ways to give up waiting for a limiter 49 ms after the start of the bubble.
var quits = []struct {
	name string
	ctx  func(parent context.Context) (context.Context, context.CancelFunc)
}{
	{"cancel", func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(49*ms, cancel)
		return ctx, cancel
	}},
	{"deadline", func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, 49*ms)
	}},
	{"cancelled before", func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx, cancel
	}},
}

// B01, grafana/rollout-operator#441: a crowd gave up while queued at a limiter, and its debt was inherited by the next
// caller. Here the next caller gets the next slot, as if nobody had ever queued.
func TestB01CancelLosesToken(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		for _, quit := range quits {
			for _, crowd := range []int{1, 5, 200} {
				l := make(every(50 * ms))
				take(t, l, 1)
				clock := startWatch(t)
				ctx, release := quit.ctx(t.Context())
				var quitters sync.WaitGroup
				for range crowd {
					quitters.Go(func() {
						err := acquire(ctx, l)
						if quit.name == "deadline" {
							isAll(t, err, context.DeadlineExceeded) // at once or at the deadline
						} else {
							isAll(t, err, context.Canceled)
						}
					})
				}
				quitters.Wait()
				release()
				if quit.name == "cancel" {
					clock.is(49*ms, "the crowd gave up")
				}
				time.Sleep(49*ms - clock.now())
				equalSlices(t, fmt.Sprintf("grants after %d quit by %s", crowd, quit.name), clock.grants(l, 3), steps(50*ms, 50*ms, 3))
			}
		}
	})
}

// The same for limiters that grant several at once: whatever was left, and nothing less, is there for the next caller.
func TestB01CancelLosesNothingOfABurst(t *testing.T) {
	rate := ratelimiter.Rate{Count: 4, Per: 200 * ms}
	for name, make := range map[string]func() ratelimiter.Limiter{
		"TokenBucket":   func() ratelimiter.Limiter { return newBucket(rate, ratelimiter.WithBurst(4)) },
		"SlidingWindow": func() ratelimiter.Limiter { return newWindow(rate) },
		"Pausable":      func() ratelimiter.Limiter { return ratelimiter.NewPausable(newWindow(rate)) },
		"All": func() ratelimiter.Limiter {
			return newAll(newBucket(ratelimiter.Rate{Count: 1000, Per: time.Second}, ratelimiter.WithBurst(1000)), newWindow(rate))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				next := 200 * ms
				if name == "TokenBucket" {
					next = 50 * ms
				}
				for taken := range 5 {
					l := make()
					take(t, l, taken)
					clock := startWatch(t)
					ctx, cancel := context.WithCancel(t.Context())
					dear := ratelimiter.Request{Cost: 4} // cannot go before everything is back
					var quitters sync.WaitGroup
					for range 50 {
						quitters.Go(func() {
							if taken > 0 {
								isAll(t, l.Acquire(ctx, dear), context.Canceled)
							}
						})
					}
					time.Sleep(ms)
					cancel()
					quitters.Wait()
					if taken < 4 {
						take(t, l, 4-taken)
					}
					if taken == 4 {
						if err := acquire(t.Context(), l); err != nil {
							t.Error(err)
						}
						clock.is(next, "the grant after four were taken")
					}
				}
			})
		})
	}
}

// The engine's own crowd: a run with two hundred workers at the limiter is cancelled; the next run, of another engine,
// starts in the next slot.
func TestB01CancelledRunLeavesNoDebt(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		l := newBucket(every(50 * ms))
		take(t, l, 1)
		clock := startWatch(t)
		ctx, cancel := context.WithTimeout(t.Context(), 49*ms)
		defer cancel()
		out := w.run(ctx, same, 200, numbers(200), penstock.WithLimiter(l))
		clock.is(49*ms, "the end of the first run")
		out.account(t, numbers(200))
		equal(t, "unfinished", out.having(penstock.Unfinished), len(out.tasks))

		_, err := newEngine(func(context.Context, int) (int, error) {
			clock.is(50*ms, "the first attempt of the next run")
			return 0, nil
		}, 1, penstock.WithLimiter(l)).ProcessAll(t.Context(), numbers(1))
		if err != nil {
			t.Error(err)
		}
	})
}

// B33, golang/go#56924 and #69419: cancelling in order of arrival gave back less than was taken. Every subset of five
// waiters quits, in both orders; those who stay move up and nobody after them waits longer.
func TestB33CancelledWaitersGiveUpTheirSlots(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		for quitters := range 1 << 5 {
			for _, backwards := range []bool{false, true} {
				l := make(every(100 * ms))
				take(t, l, 1)
				clock := startWatch(t)
				var waiters [5]*caller
				for i := range waiters {
					waiters[i] = clock.call(l)
				}
				time.Sleep(10 * ms)
				for i := range waiters {
					if backwards {
						i = len(waiters) - 1 - i
					}
					if quitters&(1<<i) != 0 {
						waiters[i].cancel(errCause)
						synctest.Wait()
					}
				}
				next := 100 * ms
				for i, w := range waiters {
					what := fmt.Sprintf("waiter %d, when %05b quit", i, quitters)
					if quitters&(1<<i) == 0 {
						w.grantedAt(t, what, next)
						next += 100 * ms
						continue
					}
					<-w.done
					equal(t, what, w.at, 10*ms)
					isAll(t, w.err, context.Canceled, errCause)
				}
				equalSlices(t, "the next new call", clock.grants(l, 1), []time.Duration{next})
			}
		}
	})
}

// Quitting in the very instant of the grant is a grant or none, and the next caller's time says which.
func TestB33CancelAtTheInstantOfTheGrant(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		for range 50 {
			l := make(every(100 * ms))
			take(t, l, 1)
			clock := startWatch(t)
			first, second := clock.call(l), clock.call(l)
			time.AfterFunc(100*ms, func() { first.cancel(errCause) })
			<-first.done
			if first.err == nil {
				second.grantedAt(t, "the second, the first having been granted", 200*ms)
			} else {
				second.grantedAt(t, "the second, the first having quit", 100*ms)
			}
		}
	})
}

// B55, songzhibin97/gkit#134: an already cancelled caller took the last permit and was told that all was well.
func TestB55CancelledCallerTakesNothing(t *testing.T) {
	ended := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		},
		"expired": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, -time.Second)
		},
		"expires now": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 0)
		},
	}
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		for name, end := range ended {
			l := make(every(time.Hour))
			ctx, cancel := end(t.Context())
			for range 100 {
				isAll(t, acquire(ctx, l), ctx.Err())
				if try, ok := l.(ratelimiter.TryAcquirer); ok {
					isAll(t, try.AcquireWithin(ctx, ratelimiter.Request{}, time.Minute), ctx.Err())
				} else {
					t.Errorf("%T is no TryAcquirer", l)
				}
			}
			cancel()
			clock := startWatch(t)
			equalSlices(t, "the live caller after one that was "+name, clock.grants(l, 2), steps(0, time.Hour, 2))
		}
	})
}

// A refusal costs nothing either: not one that sheds, not one for a hopeless deadline, not one for a cost too high.
func TestB55RefusalsTakeNothing(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		l := make(every(100 * ms))
		try := l.(ratelimiter.TryAcquirer)
		take(t, l, 1)
		clock := startWatch(t)
		for range 100 {
			ok, after := try.TryAcquire(ratelimiter.Request{})
			if ok || after != 100*ms {
				t.Fatalf("TryAcquire: %v, %v", ok, after)
			}
			err := try.AcquireWithin(t.Context(), ratelimiter.Request{}, 99*ms)
			equal(t, "retry after", as[*ratelimiter.ExcessError](t, err).RetryAfter, 100*ms)
			isAll(t, l.Acquire(t.Context(), ratelimiter.Request{Cost: -1}), ratelimiter.ErrNeverGranted)
			ctx, cancel := context.WithTimeout(t.Context(), 99*time.Microsecond)
			isAll(t, acquire(ctx, l), context.DeadlineExceeded)
			cancel()
		}
		if now := clock.now(); now > 99*100*time.Microsecond {
			t.Errorf("the refusals took %v", now)
		}
		equalSlices(t, "the grants", clock.grants(l, 2), steps(100*ms, 100*ms, 2))
	})
}

// A limiter of package x/time/rate cannot give back what its waiting callers had reserved, and FromRate says so; but what
// was refused, or had ended before, takes nothing of it either.
func TestB55RefusalsTakeNothingOfXTimeRate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := ratelimiter.FromRate(rate.NewLimiter(rate.Every(100*ms), 1))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		isAll(t, acquire(ended, l), context.Canceled)
		take(t, l, 1)
		clock := startWatch(t)
		try := l.(ratelimiter.TryAcquirer)
		for range 100 {
			if ok, after := try.TryAcquire(ratelimiter.Request{}); ok || after != 100*ms {
				t.Fatalf("TryAcquire: %v, %v", ok, after)
			}
			as[*ratelimiter.ExcessError](t, try.AcquireWithin(t.Context(), ratelimiter.Request{}, 99*ms))
			isAll(t, l.Acquire(t.Context(), ratelimiter.Request{Cost: 2}), ratelimiter.ErrNeverGranted)
			soon, cancel := context.WithTimeout(t.Context(), 99*ms)
			isAll(t, acquire(soon, l), context.DeadlineExceeded)
			cancel()
		}
		clock.is(0, "the refusals")
		equalSlices(t, "the grants", clock.grants(l, 2), steps(100*ms, 100*ms, 2))
	})
}

// Shed and unfinished tasks of an engine take nothing of the limit that the next run needs.
func TestB55ShedTasksTakeNothing(t *testing.T) {
	eachSpaced(t, func(t *testing.T, make func(ratelimiter.Rate) ratelimiter.Limiter) {
		l := make(every(100 * ms))
		clock := startWatch(t)
		out := processAll(t.Context(), same, workersFor(l), numbers(50), penstock.WithLimiter(l), penstock.WithShed(0))
		out.account(t, numbers(50))
		clock.is(0, "the run that sheds")
		equal(t, "counters", out.count, counters{Succeeded: 1, Shed: 49})
		equalSlices(t, "the grants", clock.grants(l, 2), steps(100*ms, 100*ms, 2))
	})
}
