package retry_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
)

// The tests in this file are bugs that were reported from the field against other libraries, by their number in the
// project's list: the parts of them that this package answers. The parts that need running attempts are the engine's.

// B09, retry storm: the exponential delay overflowed after some 35 attempts, and the retries became a hot loop.
func TestB09ExponentialNeverOverflows(t *testing.T) {
	const base, limit = time.Second, 5 * time.Second
	plain := retry.Exponential(base, limit, retry.WithJitter(0))
	jittered := retry.Exponential(base, limit)

	attempts := []int{math.MaxInt / 2, math.MaxInt - 1, math.MaxInt}
	for failed := 200; failed >= 1; failed-- {
		attempts = slices.Insert(attempts, 0, failed)
	}
	last := time.Duration(0)
	for _, failed := range attempts {
		d := plain(failed, errBusy)
		if d <= 0 || d > limit || d < last {
			t.Errorf("attempt %d without jitter: %v after %v", failed, d, last)
		}
		last = d
		if d := jittered(failed, errBusy); d <= 0 || d > limit {
			t.Errorf("attempt %d with jitter: %v", failed, d)
		}
	}
}

// B12, Retry-After malformed: a fractional number of seconds was dropped, and the retries were burnt within seconds.
func TestB12FractionalSecondsAreNeverDropped(t *testing.T) {
	for header, stated := range map[string]time.Duration{
		"2.5":     2500 * time.Millisecond,
		"299.997": 299997 * time.Millisecond,
		" 3 ":     3 * time.Second,
	} {
		d, ok := retry.ParseRetryAfter(header, time.Now())
		if !ok || d < stated || d > stated+time.Second {
			t.Errorf("ParseRetryAfter(%q) = %v, %v, want %v or up to a second more", header, d, ok, stated)
		}
		p := retry.Policy{Max: 2, Backoff: retry.Exponential(time.Millisecond, time.Second)}
		for failed := 1; failed <= p.Max; failed++ {
			if d, err := p.Delay(failed, retry.After(errBusy, d)); err != nil || d < stated {
				t.Errorf("%q, retry %d: %v, %v, want at least %v", header, failed, d, err, stated)
			}
		}
	}
}

// B18, validation missing: an attempt counter that started negative retried without end.
func TestB18NegativeMaxIsRefused(t *testing.T) {
	p := retry.Policy{Max: -1}
	if err := p.Validate(); err == nil || !strings.Contains(err.Error(), "Policy.Max is -1") {
		t.Errorf("Validate = %v, want an error that names Policy.Max and -1", err)
	}
	p.Max = 0
	if err := p.Validate(); err != nil {
		t.Errorf("Max 0 means one attempt, and is refused: %v", err)
	}
}

// B26, retry storm: without jitter all tasks that failed together came back on the same tick.
func TestB26JitterSpreadsTheHerd(t *testing.T) {
	const tasks, limit = 50, 300 * time.Millisecond
	herd := func() []time.Duration {
		p := retry.Policy{Max: 1, Backoff: retry.Exponential(limit, limit, retry.WithRandom(rand.New(rand.NewPCG(7, 8))))}
		var starts []time.Duration
		for range tasks {
			d, err := p.Delay(1, errBusy)
			if err != nil {
				t.Fatal(err)
			}
			starts = append(starts, d)
		}
		return starts
	}

	starts := herd()
	buckets := map[time.Duration]int{}
	for _, d := range starts {
		if d <= 0 || d > limit {
			t.Errorf("a start at %v, outside of the documented range", d)
		}
		buckets[d/(10*time.Millisecond)]++
	}
	for bucket, n := range buckets {
		if n > tasks/5 {
			t.Errorf("%d of %d starts within 10 ms, at %v", n, tasks, bucket*10*time.Millisecond)
		}
	}
	if spread := slices.Max(starts) - slices.Min(starts); spread < limit/2 {
		t.Errorf("all starts within %v of %v", spread, limit)
	}
	if !slices.Equal(starts, herd()) {
		t.Error("the same seed gave other delays")
	}
}

// B62, Retry-After ignored: only seconds were understood, and dates already past became errors or stale waits.
func TestB62EveryFormOfADate(t *testing.T) {
	now := time.Date(2026, 7, 14, 9, 30, 0, 0, time.UTC)
	for _, layout := range []string{
		"Mon, 02 Jan 2006 15:04:05 GMT",
		"Monday, 02-Jan-06 15:04:05 GMT",
		"Mon Jan _2 15:04:05 2006",
	} {
		for ahead, want := range map[time.Duration]time.Duration{2 * time.Second: 2 * time.Second, -time.Hour: 0} {
			header := now.Add(ahead).Format(layout)
			if d, ok := retry.ParseRetryAfter(header, now); d != want || !ok {
				t.Errorf("ParseRetryAfter(%q) = %v, %v, want %v", header, d, ok, want)
			}
		}
	}
	if d, ok := retry.ParseRetryAfter("0", now); d != 0 || !ok {
		t.Errorf(`ParseRetryAfter("0") = %v, %v, want 0, true`, d, ok)
	}
	for _, header := range []string{"-3", ""} {
		if d, ok := retry.ParseRetryAfter(header, now); d != 0 || ok {
			t.Errorf("ParseRetryAfter(%q) = %v, %v, want 0, false", header, d, ok)
		}
	}
}

// B73, retry storm: a backoff's "stop" signal, -1, was used as a delay, and the retries ran without any wait.
func TestB73NegativeBackoffIsAnError(t *testing.T) {
	for _, hint := range []time.Duration{0, time.Hour} { // a hint must not hide the bad value
		p := retry.Policy{Max: 3, Backoff: retry.Constant(-1)}
		d, err := p.Delay(2, retry.After(errBusy, hint))
		if d != 0 || err == nil || !strings.Contains(err.Error(), "returned -1ns after failed attempt 2") {
			t.Errorf("Delay = %v, %v, want an error that names -1ns and attempt 2", d, err)
		}
	}
	for _, backoff := range []time.Duration{0, longest} {
		p := retry.Policy{Max: 3, Backoff: retry.Constant(backoff)}
		if d, err := p.Delay(1, errBusy); d != backoff || err != nil {
			t.Errorf("Delay = %v, %v, want %v", d, err, backoff)
		}
	}
}

// B90, validation missing: NaN loses every comparison, so a bad number slipped through and nothing was ever granted.
func TestB90BadNumbersAreRefused(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		if b, err := retry.NewBudget(bad, 1); b != nil || err == nil {
			t.Errorf("NewBudget(%v, 1) was taken", bad)
		}
		for name, call := range map[string]func() retry.Backoff{"WithFactor": factor(bad), "WithJitter": jitter(bad)} {
			if !panics(func() { call() }) {
				t.Errorf("%s(%v) was taken", name, bad)
			}
		}
	}
	b := newBudget(t, 0.5, 1) // half a retry per task really works: one for two tasks
	b.Withdraw()
	b.Deposit()
	first := b.Withdraw()
	b.Deposit()
	if second := b.Withdraw(); first || !second {
		t.Errorf("retries for one task %v, for two %v, want false and true", first, second)
	}
}

func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// A policy keeps nothing between calls: the same one, used for a second task or by a second worker, gives the same
// answers. (Backoff objects with a memory gave the second task one attempt instead of three.)
func TestOnePolicyServesManyTasks(t *testing.T) {
	p := retry.Policy{Max: 2, Backoff: retry.Exponential(time.Second, time.Minute, retry.WithJitter(0))}
	for task := range 3 {
		for failed := 1; failed <= p.Max; failed++ {
			want := time.Duration(failed) * time.Second
			if d, err := p.Delay(failed, errBusy); d != want || err != nil {
				t.Errorf("task %d, failed %d: %v, %v, want %v", task, failed, d, err, want)
			}
		}
	}
}
