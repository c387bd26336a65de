package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// Arguments that were accepted and then hung, crashed, or never granted anything.

// badRates are rates by which nothing, or too much, would ever be granted.
var badRates = []ratelimiter.Rate{
	{}, {Count: 0, Per: time.Second}, {Count: -1, Per: time.Second}, {Count: 1, Per: 0}, {Count: 1, Per: -1}, {Count: math.MinInt, Per: math.MinInt64},
	{Count: math.MaxInt, Per: time.Second}, {Count: 2, Per: 1}, {Count: 1, Per: math.MaxInt64},
}

// limiterConstructors are those that take a rate.
var limiterConstructors = map[string]func(ratelimiter.Rate) error{
	"NewTokenBucket": func(r ratelimiter.Rate) error { _, err := ratelimiter.NewTokenBucket(r); return err },
	"NewTokenBucket with a burst": func(r ratelimiter.Rate) error {
		_, err := ratelimiter.NewTokenBucket(r, ratelimiter.WithBurst(2))
		return err
	},
	"NewSlidingWindow": func(r ratelimiter.Rate) error { _, err := ratelimiter.NewSlidingWindow(r); return err },
	"NewPerWorker":     func(r ratelimiter.Rate) error { _, err := ratelimiter.NewPerWorker(r); return err },
	"NewPerKey by name": func(r ratelimiter.Rate) error {
		_, err := ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"a": r}, ratelimiter.PerSecond(1))
		return err
	},
	"NewPerKey": func(r ratelimiter.Rate) error {
		if r == (ratelimiter.Rate{}) {
			_, err := ratelimiter.NewPerKey(nil, r) // beside named rates it means that there are no others
			return err
		}
		_, err := ratelimiter.NewPerKey(map[string]ratelimiter.Rate{"a": ratelimiter.PerSecond(1)}, r)
		return err
	},
	"NewRandomizedInterval": func(r ratelimiter.Rate) error { _, err := ratelimiter.NewRandomizedInterval(r); return err },
	"NewAdaptive, floor": func(r ratelimiter.Rate) error {
		_, err := ratelimiter.NewAdaptive(r, ratelimiter.PerSecond(1))
		return err
	},
	"NewAdaptive, ceiling": func(r ratelimiter.Rate) error {
		_, err := ratelimiter.NewAdaptive(ratelimiter.PerSecond(1), r)
		return err
	},
}

// B58, uber-go/ratelimit#74, for limiters: rate 0 crashed, and rate -1 waited strangely.
func TestB58BadRatesAreRefused(t *testing.T) {
	for name, make := range limiterConstructors {
		for _, r := range badRates {
			err := make(r)
			if err == nil {
				t.Errorf("%s(%+v) was taken", name, r)
				continue
			}
			names := func(what string) bool { return strings.Contains(strings.ToLower(err.Error()), what) }
			if !names("rate") && !names("floor") && !names("ceiling") && !names("fallback") || !names("must") && !names("at least") {
				t.Errorf("%s(%+v): %v, want an error that names the rate and says what would be right", name, r, err)
			}
		}
	}
	for _, burst := range []int{0, -1, math.MinInt} {
		if _, err := ratelimiter.NewTokenBucket(ratelimiter.PerSecond(1), ratelimiter.WithBurst(burst)); err == nil || !strings.Contains(err.Error(), "WithBurst") {
			t.Errorf("WithBurst(%d): %v", burst, err)
		}
	}
}

// B58 and B18, openai/openai-cookbook#3013, for engines: workers of 0 or -1, negative limits and timeouts, no handler. Each
// is refused with an error that names it, all at once, and by the foreman as well.
func TestB58B18BadOptionsAreRefused(t *testing.T) {
	type fault struct {
		names   string
		handler handler
		workers int
		opts    []option
	}
	faults := []fault{{"handler", nil, 1, nil}}
	for _, workers := range []int{0, -1, math.MinInt} {
		faults = append(faults, fault{"workers", same, workers, nil})
	}
	for _, n := range []int{0, -1, math.MinInt} {
		d := time.Duration(n)
		for names, o := range map[string]option{
			"WithAttemptTimeout": penstock.WithAttemptTimeout(d), "WithTaskTimeout": penstock.WithTaskTimeout(d),
			"WithStartTimeout": penstock.WithStartTimeout(d), "WithFailureLimit": penstock.WithFailureLimit(n),
			"WithInputCapacity": penstock.WithInputCapacity(n), "WithResultCapacity": penstock.WithResultCapacity(n), "WithBatch": penstock.WithBatch(n),
		} {
			faults = append(faults, fault{names, same, 1, []option{o}})
		}
	}
	var noBucket *ratelimiter.TokenBucket
	bucket := newBucket(ratelimiter.PerSecond(1))
	for names, opts := range map[string][]option{
		"Max":           {penstock.WithRetry(retry.Policy{Max: -1})},
		"MaxRetryAfter": {penstock.WithRetry(retry.Policy{MaxRetryAfter: -1})},
		"Budget":        {penstock.WithRetry(retry.Policy{Budget: new(retry.Budget)})},
		"WithLimiter":   {penstock.WithLimiter(noBucket)},
		"WithKey":       {penstock.WithKey(func(string) string { return "" })},
		"WithCost":      {penstock.WithCost(func(string) int { return 1 })},
		"WithPriority":  {penstock.WithPriority[int](nil)},
		"WithShed":      {penstock.WithShed(0)},
	} {
		faults = append(faults, fault{names, same, 1, opts})
	}
	faults = append(faults,
		fault{"WithLimiter", same, 1, []option{penstock.WithLimiter(nil)}},
		fault{"WithShed", same, 1, []option{penstock.WithLimiter(bucket), penstock.WithShed(-1)}},
		fault{"WithShed", same, 1, []option{penstock.WithLimiter(limiterFunc(nil)), penstock.WithShed(0)}},
		fault{"nil", same, 1, []option{nil}},
	)
	var all []option
	for _, f := range faults {
		_, engineErr := penstock.New(f.handler, f.workers, f.opts...)
		_, foremanErr := foreman.New(f.handler, f.workers, f.opts...)
		for what, err := range map[string]error{"penstock": engineErr, "foreman": foremanErr} {
			if err == nil || !strings.Contains(err.Error(), f.names) {
				t.Errorf("%s.New with %d workers and %d options: %v, want an error that names %s", what, f.workers, len(f.opts), err, f.names)
			} else if _, ok := errors.AsType[*penstock.OptionError](err); !ok {
				t.Errorf("%s.New: no OptionError in %v", what, err)
			}
		}
		all = append(all, f.opts...)
	}
	_, err := penstock.New[int, int](nil, 0, all...)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 12 {
		t.Errorf("one error for every fault, want many: %v", err)
	}
}

// B18's other half: no retries means one attempt, and zeros that do mean something.
func TestB18ZeroThatIsRight(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for _, p := range []retry.Policy{{}, {Max: 0, Backoff: retry.Constant(time.Hour)}} {
			clock := startWatch(t)
			out := w.run(t.Context(), func(context.Context, int) (int, error) { return 0, errX }, 1, numbers(2), penstock.WithRetry(p))
			out.account(t, numbers(2))
			equal(t, "attempts", out.tasks[0].Attempts, 1)
			clock.is(0, "the end")
		}
	})
}

// The floor must not be above the ceiling.
func TestB58FloorAboveCeilingIsRefused(t *testing.T) {
	if _, err := ratelimiter.NewAdaptive(ratelimiter.PerSecond(11), ratelimiter.PerSecond(10)); err == nil {
		t.Error("it was taken")
	}
}

// The smallest and largest arguments that are accepted really work: they grant, and they end.
func TestB58AcceptedMeansItWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, r := range []ratelimiter.Rate{
			{Count: 1, Per: 1}, {Count: 1, Per: 10 * 365 * 24 * time.Hour}, {Count: 1_000_000_000, Per: time.Second}, {Count: 3, Per: 7},
			{Count: 1_000_000, Per: time.Hour}, {Count: 1, Per: time.Hour},
		} {
			for name, l := range map[string]ratelimiter.Limiter{"TokenBucket": newBucket(r), "SlidingWindow": newWindow(r)} {
				clock := startWatch(t)
				at := clock.grants(l, 4)
				interval := time.Duration((int64(r.Per) + int64(r.Count) - 1) / int64(r.Count))
				for i := 1; i < len(at); i++ {
					if gap := at[i] - at[i-1]; name == "TokenBucket" && (gap > interval || gap < r.Per/time.Duration(r.Count)) {
						t.Errorf("%s of %s: grants at %v", name, rateName(r), at)
					}
				}
				neverMore(t, at, r.Count, r.Per)
			}
		}
		out := processAll(t.Context(), same, math.MaxInt, numbers(3), penstock.WithInputCapacity(penstock.Unlimited),
			penstock.WithResultCapacity(penstock.Unlimited), penstock.WithFailureLimit(math.MaxInt), penstock.WithAttemptTimeout(math.MaxInt64),
			penstock.WithTaskTimeout(math.MaxInt64), penstock.WithStartTimeout(math.MaxInt64), penstock.WithRetry(retry.Policy{Max: math.MaxInt}))
		out.account(t, numbers(3))
	})
}

// B37, openai/openai-cookbook#2907: a request that cost more than the whole bucket could never be sent and kept the loop
// alive for ever. It is refused at once, and those behind it are not held up.
func TestB37ImpossibleCostIsRefusedAtOnce(t *testing.T) {
	rate := ratelimiter.Rate{Count: 10, Per: time.Second}
	for name, make := range map[string]func() ratelimiter.Limiter{
		"TokenBucket":   func() ratelimiter.Limiter { return newBucket(rate, ratelimiter.WithBurst(10)) },
		"SlidingWindow": func() ratelimiter.Limiter { return newWindow(rate) },
		"Pausable":      func() ratelimiter.Limiter { return ratelimiter.NewPausable(newWindow(rate)) },
		"All": func() ratelimiter.Limiter {
			return newAll(newBucket(ratelimiter.PerSecond(1000), ratelimiter.WithBurst(1000)), newWindow(rate))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for _, empty := range []bool{false, true} {
					l := make()
					clock := startWatch(t)
					if empty {
						if err := l.Acquire(t.Context(), ratelimiter.Request{Cost: 10}); err != nil {
							t.Fatal(err)
						}
					}
					var waiters [3]*caller
					if empty {
						for i := range waiters {
							waiters[i] = clock.call(l)
						}
					}
					for _, cost := range []int{11, 1000, math.MaxInt, -1, math.MinInt} {
						err := l.Acquire(t.Context(), ratelimiter.Request{Cost: cost})
						isAll(t, err, ratelimiter.ErrNeverGranted)
						equal(t, "cost", as[*ratelimiter.CostError](t, err).Cost, cost)
						if ok, after := l.(ratelimiter.TryAcquirer).TryAcquire(ratelimiter.Request{Cost: cost}); ok || after != ratelimiter.Never {
							t.Errorf("TryAcquire of %d: %v, %v", cost, ok, after)
						}
					}
					clock.is(0, "the refusals")
					if !empty {
						take(t, l, 3)
						continue
					}
					for i, w := range waiters {
						want := time.Second
						if name == "TokenBucket" {
							want = time.Duration(i+1) * 100 * ms
						}
						w.grantedAt(t, fmt.Sprint("waiter ", i), want)
					}
				}
			})
		})
	}
}

// In an engine an impossible cost fails its own task and nobody else's; a negative one is the cost function's fault.
func TestB37ImpossibleCostFailsOneTask(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		cost := penstock.WithCost(func(n int) int {
			if n == 3 {
				return 11
			}
			return 1
		})
		for _, shed := range []bool{false, true} {
			opts := []option{cost, penstock.WithLimiter(newBucket(ratelimiter.PerSecond(10), ratelimiter.WithBurst(10))), penstock.WithRetry(retry.Policy{Max: 5})}
			if shed {
				opts = append(opts, penstock.WithShed(time.Hour))
			}
			var mu sync.Mutex
			var handled []int
			out := w.run(t.Context(), func(_ context.Context, n int) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				handled = append(handled, n)
				return n, nil
			}, 2, numbers(6), opts...)
			out.account(t, numbers(6))
			equal(t, "error", out.err, nil)
			equal(t, "counters", out.count, counters{Succeeded: 5, Failed: 1})
			equal(t, "handled", len(handled), 5)
			as[*ratelimiter.CostError](t, out.byIndex()[3].Err)
			equal(t, "attempts", out.byIndex()[3].Attempts, 0)
		}
		out := w.run(t.Context(), same, 2, numbers(6), penstock.WithCost(func(int) int { return -1 }),
			penstock.WithLimiter(newBucket(ratelimiter.PerSecond(10))))
		out.account(t, numbers(6))
		equal(t, "function at fault", as[*penstock.CallbackError](t, out.err).Callback, "cost")
	})
}

// B90, flexiq's rate-limit docs: zero, fractions, NaN and infinities silently built a bucket that never held a token. Where
// a rate is a text or a float, each is refused, or really works.
func TestB90OddNumbersAreRefused(t *testing.T) {
	for _, text := range []string{
		"NaN/s", "nan/s", "Inf/s", "+Inf/s", "-Inf/s", "inf/s", "infinity/s", "0/s", "-0/s", "0.0/s", "0.5/s", "-1/s", "-1.5/m", "1e-9/s", "1e400/s", "1e999999999/s",
		"0x10/s", "1_000/s", "", "/", "/s", "10", "10/", "10/0s", "10/-1s", "10/x", "ten/s", "10/s/s", "1,5/s", "9223372036854775808/s", "1e30/h",
	} {
		if r, err := ratelimiter.ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %+v", text, r)
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0} {
		if b, err := retry.NewBudget(bad, 1); b != nil || err == nil {
			t.Errorf("NewBudget(%v, 1) was taken", bad)
		}
		for name, make := range map[string]func() retry.Backoff{
			"WithFactor": func() retry.Backoff { return retry.Exponential(1, 2, retry.WithFactor(bad)) },
			"WithJitter": func() retry.Backoff { return retry.Exponential(1, 2, retry.WithJitter(bad)) },
		} {
			if name == "WithJitter" && bad == 0 {
				continue // none
			}
			if panicked(func() { make() }) == nil {
				t.Errorf("%s(%v) was taken", name, bad)
			}
		}
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for name, o := range map[string]ratelimiter.RandomizedOption{
			"WithMultiplier, mean": ratelimiter.WithMultiplier(bad, 0), "WithMultiplier, stdDev": ratelimiter.WithMultiplier(1, bad),
			"WithBounds, lower": ratelimiter.WithBounds(bad, 2), "WithBounds, upper": ratelimiter.WithBounds(0, bad), "WithFluctuation": ratelimiter.WithFluctuation(bad),
		} {
			refused(t, fmt.Sprint(name, " ", bad), errorOf(ratelimiter.NewRandomizedInterval(ratelimiter.PerSecond(1), o)))
		}
	}
	for name, o := range map[string]ratelimiter.RandomizedOption{
		"a negative stdDev": ratelimiter.WithMultiplier(1, -1), "a negative bound": ratelimiter.WithBounds(-1, 1), "bounds the wrong way round": ratelimiter.WithBounds(2, 1),
		"a negative fluctuation": ratelimiter.WithFluctuation(-1), "more fluctuation than there is between the bounds": ratelimiter.WithFluctuation(0.6),
	} {
		refused(t, name, errorOf(ratelimiter.NewRandomizedInterval(ratelimiter.PerSecond(1), o)))
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0} {
		refused(t, fmt.Sprint("WithDecrease ", bad), errorOf(ratelimiter.NewAdaptive(ratelimiter.PerSecond(1), ratelimiter.PerSecond(2), ratelimiter.WithDecrease(bad))))
		refused(t, fmt.Sprint("WithIncrease ", bad), errorOf(ratelimiter.NewAdaptive(ratelimiter.PerSecond(1), ratelimiter.PerSecond(2), ratelimiter.WithIncrease(bad))))
	}
	refused(t, "WithDecrease 1", errorOf(ratelimiter.NewAdaptive(ratelimiter.PerSecond(1), ratelimiter.PerSecond(2), ratelimiter.WithDecrease(1))))
	if panicked(func() { ratelimiter.FromRate(nil) }) == nil {
		t.Error("FromRate(nil) was taken")
	}
	p := ratelimiter.NewPausable(newBucket(ratelimiter.PerSecond(1)))
	for _, pause := range []time.Duration{-1, math.MinInt64, math.MaxInt64} {
		if p.PauseFor(pause) == nil {
			t.Errorf("PauseFor(%v) was taken", pause)
		}
	}
	if p.PauseUntil(time.Now().AddDate(5000, 0, 0)) == nil {
		t.Error("a pause of 5000 years was taken")
	}
	if panicked(func() { ratelimiter.NewPausable(nil) }) == nil {
		t.Error("NewPausable(nil) was taken")
	}
	if _, err := ratelimiter.NewAll(); err == nil {
		t.Error("NewAll of none was taken")
	}
	if _, err := ratelimiter.NewAll(newBucket(ratelimiter.PerSecond(1)), nil); err == nil {
		t.Error("NewAll with nil was taken")
	}
}

// errorOf is the error alone.
func errorOf[T any](_ T, err error) error { return err }

func refused(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s was taken", what)
	}
}

func panicked(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// A rate of a half per second, said as one in two, and rates with fractions: they really work, exactly.
func TestB90FractionsReallyWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct {
			rate ratelimiter.Rate
			want []time.Duration
		}{
			{ratelimiter.Rate{Count: 1, Per: 2 * time.Second}, steps(0, 2*time.Second, 4)},
			{must(ratelimiter.ParseRate("1.5/s")), []time.Duration{0, 666666667, 1333333334, 2 * time.Second}},
			{must(ratelimiter.ParseRate("30/m")), steps(0, 2*time.Second, 4)},
			{must(ratelimiter.ParseRate("1/h")), steps(0, time.Hour, 4)},
		} {
			equalSlices(t, c.rate.String(), startWatch(t).grants(newBucket(c.rate), 4), c.want)
		}
	})
}
