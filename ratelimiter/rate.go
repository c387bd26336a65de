package ratelimiter

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// A Rate is Count per Per: a limit's long-run speed, and for a [SlidingWindow]
// also its window. It is exact: {3, time.Second} is three a second, not one per
// 333,333,333 ns. The zero Rate is no rate: constructors refuse it.
type Rate struct {
	// Count is how much may be granted in Per: requests, or cost.
	Count int
	// Per is the period.
	Per time.Duration
}

// maxSpan bounds every period and every debt. It keeps all sums of instants far
// from overflow, and nobody waits that long.
const maxSpan = 100 * 365 * 24 * time.Hour

// PerSecond is n per second.
func PerSecond(n int) Rate { return Rate{n, time.Second} }

// PerMinute is n per minute.
func PerMinute(n int) Rate { return Rate{n, time.Minute} }

// PerHour is n per hour.
func PerHour(n int) Rate { return Rate{n, time.Hour} }

// String is the rate as [ParseRate] reads it, for example "10/s"; periods other
// than a second, a minute or an hour, which ParseRate does not know, are written
// out, for example "5/200ms".
func (r Rate) String() string {
	switch r.Per {
	case time.Second:
		return fmt.Sprintf("%d/s", r.Count)
	case time.Minute:
		return fmt.Sprintf("%d/m", r.Count)
	case time.Hour:
		return fmt.Sprintf("%d/h", r.Count)
	}
	return fmt.Sprintf("%d/%v", r.Count, r.Per)
}

// check returns nil for a rate that every limiter can keep, else an error that
// names the field, its value and the bound. All constructors use it.
func (r Rate) check(name string) error {
	switch {
	case r.Count < 1:
		return fmt.Errorf("ratelimiter: %s.Count is %d, must be at least 1", name, r.Count)
	case r.Per <= 0:
		return fmt.Errorf("ratelimiter: %s.Per is %v, must be more than 0", name, r.Per)
	case r.Per > maxSpan:
		return fmt.Errorf("ratelimiter: %s.Per is %v, must be at most %v", name, r.Per, maxSpan)
	case int64(r.Count) > int64(r.Per):
		return fmt.Errorf("ratelimiter: %s is %v, must be at most one per nanosecond (Count at most %d)", name, r, int64(r.Per))
	}
	return nil
}

// units are the words for periods that ParseRate knows.
var units = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour,
}

// maxRateText is longer than any sensible rate. It keeps an exponent in the text
// from becoming a number of a million digits.
const maxRateText = 64

// ParseRate reads a rate written as count/period, for example "100/m", "10/s",
// "1.5/s" or "1e3/h". The period is one of s, sec, second, m, min, minute, h, hr
// and hour, in lower case and without a number before it. The count is a decimal
// number of at least 1; with a fraction it is kept exactly by lengthening the
// period: "1.5/s" is 3 per 2s. Blanks around the two parts are ignored. Anything
// else is an error that quotes the text.
func ParseRate(s string) (Rate, error) {
	count, period, ok := strings.Cut(s, "/")
	if !ok || len(s) > maxRateText {
		return Rate{}, rateTextError(s, "want count/period, for example 100/m")
	}
	per, ok := units[strings.TrimSpace(period)]
	if !ok {
		return Rate{}, rateTextError(s, "the period must be one of s, sec, second, m, min, minute, h, hr, hour")
	}
	n, why := parseCount(strings.TrimSpace(count))
	if why != "" {
		return Rate{}, rateTextError(s, why)
	}
	span := new(big.Int).Mul(n.Denom(), big.NewInt(int64(per)))
	if !n.Num().IsInt64() || !span.IsInt64() || int64(int(n.Num().Int64())) != n.Num().Int64() {
		return Rate{}, rateTextError(s, "the count has more digits than can be kept exactly")
	}
	r := Rate{Count: int(n.Num().Int64()), Per: time.Duration(span.Int64())}
	if err := r.check("Rate"); err != nil {
		return Rate{}, fmt.Errorf("ratelimiter: rate %q: %w", s, err)
	}
	return r, nil
}

// parseCount reads a finite decimal number of at least 1 exactly, or says why it
// cannot.
func parseCount(s string) (n *big.Rat, why string) {
	if strings.Trim(s, "0123456789.eE+-") != "" {
		return nil, "the count must be a decimal number"
	}
	// The float check comes first: it is what refuses a huge exponent, which
	// big.Rat would work out digit by digit.
	f, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return nil, "the count must be a decimal number"
	case f < 1:
		return nil, "the count must be at least 1"
	}
	n, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, "the count must be a decimal number"
	}
	if n.Cmp(big.NewRat(1, 1)) < 0 {
		return nil, "the count must be at least 1"
	}
	return n, ""
}

func rateTextError(s, why string) error {
	if len(s) > maxRateText {
		s = s[:maxRateText] + "…"
	}
	return fmt.Errorf("ratelimiter: rate %q: %s", s, why)
}
