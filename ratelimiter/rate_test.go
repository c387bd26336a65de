package ratelimiter_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]ratelimiter.Rate{
		"100/m":        ratelimiter.PerMinute(100),
		"10/s":         ratelimiter.PerSecond(10),
		"3600/h":       ratelimiter.PerHour(3600),
		"1/h":          ratelimiter.PerHour(1),
		"1/sec":        ratelimiter.PerSecond(1),
		"1/second":     ratelimiter.PerSecond(1),
		"1/min":        ratelimiter.PerMinute(1),
		"1/minute":     ratelimiter.PerMinute(1),
		"1/hr":         ratelimiter.PerHour(1),
		"1/hour":       ratelimiter.PerHour(1),
		" 5 / s ":      ratelimiter.PerSecond(5),
		"\t7/m\n":      ratelimiter.PerMinute(7),
		"1.5/s":        per(3, 2*time.Second),
		"2.0/s":        ratelimiter.PerSecond(2),
		"1e3/m":        ratelimiter.PerMinute(1000),
		"1.25e1/s":     per(25, 2*time.Second),
		"+4/s":         ratelimiter.PerSecond(4),
		"0.01e3/s":     ratelimiter.PerSecond(10),
		"1.001/h":      per(1001, 1000*time.Hour),
		"1000000000/s": ratelimiter.PerSecond(1e9),
	} {
		got, err := ratelimiter.ParseRate(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	for _, text := range []string{
		"", "/", "10", "10/", "/s", "10/s/s", "10//s", "10/S", "10/d", "10/day", "10/5m", "10/ms", "10/1s", "10/seconds", "10 s",
		"0/s", "-1/s", "0.5/s", "0.99999999999999999999/s", "NaN/s", "nan/m", "inf/s", "+Inf/s", "-inf/s", "Infinity/h", "-0/s",
		"1e400/s", "1e308/s", "1e19/h", "2e9/s", "1_000/s", "0x10/s", "0b1/s", "1e/s", "1.2.3/s", "--1/s", "1,5/s", "1/2/s",
		"ten/s", "１/s",
		"1.00000000000000000000000001/s", "1e999999999/s", "0.1e-999999999/s", "1e-999999999/s",
		strings.Repeat("9", 100) + "/s", strings.Repeat("0", 100) + "1/s",
	} {
		if got, err := ratelimiter.ParseRate(text); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", text, got)
		} else if len(text) < 64 && !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("ParseRate(%q): the error does not quote the text: %v", text, err)
		}
	}
}

func TestRateString(t *testing.T) {
	for r, want := range map[ratelimiter.Rate]string{
		ratelimiter.PerSecond(10): "10/s",
		ratelimiter.PerMinute(3):  "3/m",
		ratelimiter.PerHour(1):    "1/h",
		per(5, 200*ms):            "5/200ms",
		per(3, 2*time.Second):     "3/2s",
	} {
		if got := r.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzParseRate: whatever is accepted means what the text says, can be used,
// and comes back from its own text.
func FuzzParseRate(f *testing.F) {
	for _, text := range []string{"100/m", "1.5/s", "1e3/h", " 2 / sec ", "0.5/s", "1e400/s", "nan/s", "10/s/s", "+1.0e0/hour"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ratelimiter.ParseRate(text)
		if err != nil {
			if r != (ratelimiter.Rate{}) {
				t.Errorf("%v together with %v", r, err)
			}
			return
		}
		count, period, _ := strings.Cut(text, "/")
		want, ok := new(big.Rat).SetString(strings.TrimSpace(count))
		if !ok {
			t.Fatalf("%q is no number", count)
		}
		span := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour}[strings.TrimSpace(period)[0]]
		got := big.NewRat(int64(r.Count), int64(r.Per))
		if got.Cmp(want.Quo(want, big.NewRat(int64(span), 1))) != 0 {
			t.Errorf("ParseRate(%q) = %v", text, r)
		}
		l, err := ratelimiter.NewTokenBucket(r)
		if err != nil {
			t.Fatalf("ParseRate(%q) = %v: %v", text, r, err)
		}
		if ok, _ := l.TryAcquire(any1); !ok {
			t.Errorf("%v refuses the first request", r)
		}
		if r.Per == span {
			if again, err := ratelimiter.ParseRate(r.String()); err != nil || again != r {
				t.Errorf("%v became %v, %v", r, again, err)
			}
		}
	})
}

func ExampleParseRate() {
	for _, text := range []string{"100/m", "1.5/s", "0.5/s"} {
		r, err := ratelimiter.ParseRate(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(r)
	}
	// Output:
	// 100/m
	// 3/2s
	// ratelimiter: rate "0.5/s": the count must be at least 1
}
