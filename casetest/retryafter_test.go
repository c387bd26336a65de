package casetest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Retry-After that was misread, ignored, or kept to oneself.

// throttled is the documented recipe: what a handler makes of a response's Retry-After.
func throttled(header string) error {
	if d, ok := retry.ParseRetryAfter(header, time.Now()); ok {
		return retry.After(errX, d)
	}
	return errX
}

// waits are the pauses between the attempts of one task that is always throttled.
func waits(t *testing.T, w way, header func() string, p retry.Policy) []time.Duration {
	var last time.Time
	var gaps []time.Duration
	out := w.run(t.Context(), func(context.Context, int) (int, error) {
		if !last.IsZero() {
			gaps = append(gaps, time.Since(last))
		}
		last = time.Now()
		return 0, throttled(header())
	}, 1, numbers(1), penstock.WithRetry(p))
	out.account(t, numbers(1))
	isAll(t, out.tasks[0].Err, errX)
	if len(gaps) != p.Max {
		t.Fatalf("%d retries, want %d", len(gaps), p.Max)
	}
	return gaps
}

// B12, opensearch-project/data-prepper#6927: a fractional number of seconds was dropped, and all retries were burnt within
// seconds. Whatever the header says, the next attempt comes at the stated time or later, or after the policy's backoff.
func TestB12NeverAnImmediateRetry(t *testing.T) {
	const fallback = 7 * time.Second
	eachWay(t, func(t *testing.T, w way) {
		for header, want := range map[string]time.Duration{
			"2.5": 3 * time.Second, "299.997": 300 * time.Second, " 3 ": 3 * time.Second, "0.0001": time.Second, "3": 3 * time.Second,
			"\t12 ": 12 * time.Second, "3600": time.Hour, "99999999999999999999": time.Hour, "1800": 30 * time.Minute,
		} {
			is := func() string { return header }
			equalSlices(t, header, waits(t, w, is, retry.Policy{Max: 2}), []time.Duration{want, want})
			equalSlices(t, header+" with a backoff", waits(t, w, is, retry.Policy{Max: 2, Backoff: retry.Constant(ms)}), []time.Duration{want + ms, want + ms})
		}
		for _, header := range []string{"", "soon", "-3", "+3", "2,5", "1e3", "0x10", "NaN", "inf", "3s", ".5", "5.", "３"} {
			got := waits(t, w, func() string { return header }, retry.Policy{Max: 2, Backoff: retry.Constant(fallback)})
			equalSlices(t, "malformed "+header, got, []time.Duration{fallback, fallback})
		}
	})
}

// B62, hashicorp/go-retryablehttp#144: only seconds were understood; dates were ignored, and past ones were errors or stale
// waits.
func TestB62EveryFormOfADate(t *testing.T) {
	const fallback = 7 * time.Second
	eachWay(t, func(t *testing.T, w way) {
		for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", "Mon Jan _2 15:04:05 2006"} {
			for ahead, want := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, -time.Hour: 0, 0: 0, 59 * time.Minute: 59 * time.Minute} {
				got := waits(t, w, func() string { return time.Now().UTC().Add(ahead).Format(layout) }, retry.Policy{Max: 2})
				equalSlices(t, fmt.Sprint(layout, ", ", ahead, " ahead"), got, []time.Duration{want, want})
			}
		}
		for header, want := range map[string]time.Duration{"0": 0, "-3": fallback, "": fallback, "Mon, 32 Jan 2026 00:00:00 GMT": fallback} {
			p := retry.Policy{Max: 2, Backoff: func(_ int, err error) time.Duration {
				if _, hinted := retry.RetryAfter(err); hinted {
					return 0
				}
				return fallback
			}}
			equalSlices(t, header, waits(t, w, func() string { return header }, p), []time.Duration{want, want})
		}
	})
}

// B27, ndycode/codex-multi-auth#349: of two waits the later written, shorter one could replace the longer.
func TestB27TheLaterEndWins(t *testing.T) {
	inners := map[string]func() ratelimiter.Limiter{
		"TokenBucket":   func() ratelimiter.Limiter { return newBucket(every(time.Microsecond)) },
		"SlidingWindow": func() ratelimiter.Limiter { return newWindow(ratelimiter.PerSecond(1000)) },
		"All": func() ratelimiter.Limiter {
			return newAll(newBucket(every(time.Microsecond)), newWindow(ratelimiter.PerSecond(1000)))
		},
		"Pausable": func() ratelimiter.Limiter { return ratelimiter.NewPausable(newBucket(every(time.Microsecond))) },
		"foreign": func() ratelimiter.Limiter {
			return limiterFunc(func(ctx context.Context, _ int) error { return ctx.Err() })
		},
	}
	for name, inner := range inners {
		for order, pause := range map[string]func(p *ratelimiter.Pausable){
			"long first":  func(p *ratelimiter.Pausable) { pauseFor(p, 300*ms, 50*ms) },
			"short first": func(p *ratelimiter.Pausable) { pauseFor(p, 50*ms, 300*ms) },
			"until": func(p *ratelimiter.Pausable) {
				_ = p.PauseUntil(time.Now().Add(300 * ms))
				_ = p.PauseUntil(time.Now().Add(50 * ms))
			},
			"nothing after it":  func(p *ratelimiter.Pausable) { pauseFor(p, 300*ms, 0, 0) },
			"the past after it": func(p *ratelimiter.Pausable) { pauseFor(p, 300*ms); _ = p.PauseUntil(time.Now().Add(-time.Hour)) },
			"refused after it":  func(p *ratelimiter.Pausable) { pauseFor(p, 300*ms, -time.Second) },
			"while it waits": func(p *ratelimiter.Pausable) {
				pauseFor(p, 50*ms)
				time.AfterFunc(49*ms, func() { pauseFor(p, 251*ms) })
				time.AfterFunc(200*ms, func() { pauseFor(p, 50*ms) })
			},
			"observed": func(p *ratelimiter.Pausable) {
				p.Observe(ratelimiter.Request{}, retry.After(errX, 300*ms))
				p.Observe(ratelimiter.Request{}, retry.After(errX, 50*ms))
				p.Observe(ratelimiter.Request{}, errX)
				p.Observe(ratelimiter.Request{}, nil)
			},
			"at once": func(p *ratelimiter.Pausable) {
				var callers sync.WaitGroup
				for i := range 20 {
					callers.Go(func() { pauseFor(p, time.Duration(i%2*250+50)*ms) })
				}
				callers.Wait()
			},
		} {
			t.Run(name+"/"+order, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					clock := startWatch(t)
					p := ratelimiter.NewPausable(inner())
					pause(p)
					for _, at := range clock.crowdGrants(p, 5) {
						if at < 300*ms || at > 301*ms {
							t.Errorf("a grant at %v, want 300 ms or the inner limiter's step later", at)
						}
					}
					equal(t, "PausedUntil", p.PausedUntil().Sub(clock.start), 300*ms)
				})
			})
		}
	}
}

func pauseFor(p *ratelimiter.Pausable, durations ...time.Duration) {
	for _, d := range durations {
		_ = p.PauseFor(d) // a negative one is refused
	}
}

// What changes nothing when nobody is paused: no time at all, and times that are past.
func TestB27NoPauseIsNoPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := ratelimiter.NewPausable(newBucket(every(ms)))
		if !p.PausedUntil().IsZero() {
			t.Error("paused from the start until", p.PausedUntil())
		}
		if p.PauseFor(-1) == nil {
			t.Error("a negative pause was accepted")
		}
		if !p.PausedUntil().IsZero() {
			t.Error("a refused pause left a trace:", p.PausedUntil())
		}
		pauseFor(p, 0)
		_ = p.PauseUntil(time.Now().Add(-time.Hour))
		clock := startWatch(t)
		equalSlices(t, "grants", clock.grants(p, 3), steps(0, ms, 3))
	})
}

// B83, angoyd/ha-lksystems#83: one caller obeyed the service's wait, and the others went straight into the same refusal.
// A pause, told by hand or by the error alone, holds every attempt of every engine behind the limiter, and cuts none that
// runs.
func TestB83OneIsToldAllWait(t *testing.T) {
	for name, tell := range map[string]func(p *ratelimiter.Pausable) error{
		"PauseFor":    func(p *ratelimiter.Pausable) error { pauseFor(p, 200*ms); return errX },
		"retry.After": func(*ratelimiter.Pausable) error { return retry.After(errX, 200*ms) },
		"own type":    func(*ratelimiter.Pausable) error { return fmt.Errorf("call: %w", hintedError{200 * ms}) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range ways {
				t.Run(first.name, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						p := ratelimiter.NewPausable(newBucket(every(ms)))
						clock := startWatch(t)
						var toldAt, ended atomic.Int64
						var starts sync.Map
						work := func(told bool) handler {
							return func(ctx context.Context, n int) (int, error) {
								starts.Store(clock.now(), true)
								if err := sleep(ctx, 10*ms); err != nil {
									t.Error("an attempt that ran was cut:", err)
								}
								if told && n == 3 && penstock.AttemptNumber(ctx) == 1 {
									toldAt.Store(int64(clock.now()))
									return 0, tell(p)
								}
								ended.Add(1)
								return n, nil
							}
						}
						opts := []option{penstock.WithLimiter(p), penstock.WithRetry(retry.Policy{Max: 1})}
						var both sync.WaitGroup
						both.Go(func() { first.run(t.Context(), work(true), 4, numbers(20), opts...).account(t, numbers(20)) })
						both.Go(func() { processAll(t.Context(), work(false), 4, numbers(20), opts...).account(t, numbers(20)) })
						both.Wait()
						equal(t, "attempts that ended well", ended.Load(), 40)
						told := time.Duration(toldAt.Load())
						synctest.Wait()
						starts.Range(func(at, _ any) bool {
							if at := at.(time.Duration); at > told && at < told+200*ms {
								t.Errorf("an attempt started at %v, the pause being from %v", at, told)
							}
							return true
						})
						if clock.now() < told+200*ms {
							t.Errorf("the end was at %v, within the pause", clock.now())
						}
					})
				})
			}
		})
	}
}

// hintedError is a service client's own error type.
type hintedError struct{ after time.Duration }

func (e hintedError) Error() string             { return "throttled" }
func (e hintedError) RetryAfter() time.Duration { return e.after }

// The pause that an engine tells its limiter of is capped by the policy, so one hostile header does not stop everybody.
func TestB83PauseIsCappedByThePolicy(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		p := ratelimiter.NewPausable(newBucket(every(ms)))
		var told time.Time
		out := w.run(t.Context(), func(ctx context.Context, n int) (int, error) {
			if n == 0 && penstock.AttemptNumber(ctx) == 1 {
				told = time.Now()
				return 0, retry.After(errX, 100000*time.Hour)
			}
			return n, nil
		}, 2, numbers(4), penstock.WithLimiter(p), penstock.WithRetry(retry.Policy{Max: 1, MaxRetryAfter: time.Minute}))
		out.account(t, numbers(4))
		equal(t, "succeeded", out.having(penstock.Succeeded), 4)
		equal(t, "paused for", p.PausedUntil().Sub(told), time.Minute)
	})
}
