package retry_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
	"pgregory.net/rapid"
)

func TestConstant(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Second, longest, -1} {
		backoff := retry.Constant(d)
		for _, failed := range []int{1, 2, math.MaxInt} {
			if got := backoff(failed, errBusy); got != d {
				t.Errorf("Constant(%v)(%d) = %v", d, failed, got)
			}
		}
	}
}

func TestExponentialWithoutJitter(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name        string
		base, limit time.Duration
		factor      float64
		want        []time.Duration // after 1, 2, 3, … failed attempts
	}{
		{"doubling", 100 * ms, time.Second, 2, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second}},
		{"by half", 100 * ms, time.Second, 1.5, []time.Duration{100 * ms, 150 * ms, 225 * ms, 337_500_000, 506_250_000}},
		{"tenfold", ms, time.Minute, 10, []time.Duration{ms, 10 * ms, 100 * ms, time.Second, 10 * time.Second, time.Minute}},
		{"not at all", 100 * ms, time.Second, 1, []time.Duration{100 * ms, 100 * ms, 100 * ms}},
		{"base is the limit", time.Second, time.Second, 2, []time.Duration{time.Second, time.Second}},
		{"shortest", 1, 4, 2, []time.Duration{1, 2, 4, 4}},
		{"longest", longest - 1, longest, 1.001, []time.Duration{longest - 1, longest, longest}},
		{"longest, met as a float64", 1 << 62, longest, 2, []time.Duration{1 << 62, longest, longest}},
		{"longest, no growth", longest - 1, longest, 1, []time.Duration{longest - 1, longest - 1}},
		{"at once", 1, longest, math.MaxFloat64, []time.Duration{1, longest, longest}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			backoff := retry.Exponential(tt.base, tt.limit, retry.WithFactor(tt.factor), retry.WithJitter(0))
			for i, want := range tt.want {
				if got := backoff(i+1, errBusy); got != want {
					t.Errorf("after %d failed attempts: %v, want %v", i+1, got, want)
				}
			}
			for _, failed := range []int{0, -1, math.MinInt} {
				if got := backoff(failed, nil); got != tt.base {
					t.Errorf("after %d failed attempts: %v, want base", failed, got)
				}
			}
		})
	}
}

// Whatever the arguments: longer than zero, at most the limit, within the jitter, never shorter without jitter.
func TestExponentialStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "limit"))
		base := time.Duration(rapid.Int64Range(1, int64(limit)).Draw(t, "base"))
		factor := rapid.OneOf(rapid.Just(1.0), rapid.Just(1.001), rapid.Just(2.0),
			rapid.Float64Range(1.001, 4), rapid.Float64Range(1.001, math.MaxFloat64)).Draw(t, "factor")
		share := rapid.OneOf(rapid.Just(0.0), rapid.Just(1.0), rapid.Float64Range(0, 1)).Draw(t, "share")
		plain := retry.Exponential(base, limit, retry.WithFactor(factor), retry.WithJitter(0))
		jittered := retry.Exponential(base, limit, retry.WithFactor(factor), retry.WithJitter(share))

		failed := rapid.OneOf(rapid.IntRange(1, 200), rapid.IntRange(1, math.MaxInt-1)).Draw(t, "failed")
		ceiling := plain(failed, nil)
		if ceiling < base || ceiling > limit {
			t.Fatalf("without jitter: %v, not from %v to %v", ceiling, base, limit)
		}
		if next := plain(failed+1, nil); next < ceiling {
			t.Fatalf("without jitter: %v, then %v", ceiling, next)
		}
		floor := float64(ceiling)*(1-share)*(1-1e-12) - 1
		if got := jittered(failed, nil); got <= 0 || got > ceiling || float64(got) < floor {
			t.Fatalf("with jitter: %v, not from %v to %v", got, time.Duration(floor), ceiling)
		}
	})
}

// Both ends of the range can be drawn, and no value outside.
func TestExponentialDrawsTheWholeRange(t *testing.T) {
	tests := []struct {
		share float64
		want  []time.Duration
	}{
		{1, []time.Duration{1, 2, 3, 4}},
		{0.5, []time.Duration{2, 3, 4}},
		{0.25, []time.Duration{3, 4}},
		{0, []time.Duration{4}},
	}
	for _, tt := range tests {
		backoff := retry.Exponential(4, 4, retry.WithJitter(tt.share), retry.WithRandom(rand.New(rand.NewPCG(1, 2))))
		var got []time.Duration
		for range 200 {
			if d := backoff(1, nil); !slices.Contains(got, d) {
				got = append(got, d)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("share %v draws %v, want %v", tt.share, got, tt.want)
		}
	}
}

// The longest duration has no float64 of its own; the next one is too long for a time.Duration.
func TestExponentialJitterOfTheLongestDuration(t *testing.T) {
	for _, share := range []float64{1, math.Nextafter(1, 0), 0.5, 0} {
		backoff := retry.Exponential(longest, longest, retry.WithJitter(share))
		for range 100 {
			if got := backoff(1, nil); got <= 0 || share <= 0.5 && got < longest/2 {
				t.Fatalf("share %v: %v", share, got)
			}
		}
	}
}

func TestExponentialIsSpreadEvenly(t *testing.T) {
	const draws, buckets = 10_000, 10
	backoff := retry.Exponential(time.Second, time.Minute, retry.WithRandom(rand.New(rand.NewPCG(3, 4))))
	var count [buckets]int
	for range draws {
		count[(backoff(3, nil)-1)*buckets/(4*time.Second)]++
	}
	for i, n := range count {
		if n < 900 || n > 1100 { // more than three standard deviations
			t.Errorf("bucket %d has %d of %d draws, want about %d", i, n, draws, draws/buckets)
		}
	}
}

// A seeded source is used by many goroutines; the race detector and the unchanged set of draws show that it is guarded.
func TestExponentialSeededIsSafeForConcurrentUse(t *testing.T) {
	const workers, each = 8, 100
	seeded := func() retry.Backoff {
		return retry.Exponential(time.Second, time.Minute, retry.WithRandom(rand.New(rand.NewPCG(5, 6))))
	}
	var want []time.Duration
	alone := seeded()
	for range workers * each {
		want = append(want, alone(1, nil))
	}

	shared := seeded()
	var mu sync.Mutex
	var got []time.Duration
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				d := shared(1, nil)
				mu.Lock()
				got = append(got, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()

	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Error("the draws of eight goroutines are not those of one")
	}
}

func TestExponentialLastOptionWins(t *testing.T) {
	backoff := retry.Exponential(1, 100, retry.WithJitter(2), retry.WithFactor(2), retry.WithJitter(0), retry.WithFactor(3))
	if got := backoff(3, nil); got != 9 {
		t.Errorf("got %v, want 9ns", got)
	}
}

func TestExponentialPanics(t *testing.T) {
	s := time.Second
	tests := []struct {
		name string
		call func() retry.Backoff
		want []string // parts of the text
	}{
		{"base zero", func() retry.Backoff { return retry.Exponential(0, s) }, []string{"base is 0s", "longer than zero"}},
		{"base negative", func() retry.Backoff { return retry.Exponential(-s, s) }, []string{"base is -1s"}},
		{"limit below base", func() retry.Backoff { return retry.Exponential(2*s, s) }, []string{"limit is 1s", "base, 2s"}},
		{"limit zero", func() retry.Backoff { return retry.Exponential(s, 0) }, []string{"limit is 0s"}},
		{"factor below 1", factor(0.5), []string{"WithFactor", "0.5", "at least 1.001"}},
		{"factor a hair above 1", factor(math.Nextafter(1, 2)), []string{"WithFactor", "1.0000000000000002"}},
		{"factor zero", factor(0), []string{"WithFactor"}},
		{"factor negative", factor(-2), []string{"WithFactor", "-2"}},
		{"factor NaN", factor(math.NaN()), []string{"WithFactor", "NaN"}},
		{"factor infinite", factor(math.Inf(1)), []string{"WithFactor", "+Inf"}},
		{"factor -infinite", factor(math.Inf(-1)), []string{"WithFactor", "-Inf"}},
		{"jitter negative", jitter(-0.1), []string{"WithJitter", "-0.1", "from 0 to 1"}},
		{"jitter above 1", jitter(1.1), []string{"WithJitter", "1.1"}},
		{"jitter NaN", jitter(math.NaN()), []string{"WithJitter", "NaN"}},
		{"jitter infinite", jitter(math.Inf(1)), []string{"WithJitter", "+Inf"}},
		{"random nil", func() retry.Backoff { return retry.Exponential(s, s, retry.WithRandom(nil)) }, []string{"WithRandom", "nil"}},
		{"option nil", func() retry.Backoff { return retry.Exponential(s, s, retry.WithJitter(0), nil) }, []string{"option 2 is nil"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				text := fmt.Sprint(recover())
				for _, part := range append(tt.want, "retry: ") {
					if !strings.Contains(text, part) {
						t.Errorf("panic text %q does not have %q", text, part)
					}
				}
			}()
			tt.call()
		})
	}
}

func factor(f float64) func() retry.Backoff {
	return func() retry.Backoff { return retry.Exponential(1, 1, retry.WithFactor(f)) }
}

func jitter(share float64) func() retry.Backoff {
	return func() retry.Backoff { return retry.Exponential(1, 1, retry.WithJitter(share)) }
}
