package retry_test

import (
	"math"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
	"pgregory.net/rapid"
)

const longest = time.Duration(math.MaxInt64)

func TestParseRetryAfterSeconds(t *testing.T) {
	tests := []struct {
		header string
		want   time.Duration
	}{
		{"0", 0},
		{"00", 0},
		{"0.0", 0},
		{"0.000", 0},
		{"2", 2 * time.Second},
		{"007", 7 * time.Second},
		{" 3 ", 3 * time.Second},
		{"\t3\t ", 3 * time.Second},
		{"2.5", 3 * time.Second},
		{"2.0", 2 * time.Second},
		{"0.5", time.Second},
		{"0.0000000000000000000000000001", time.Second},
		{"299.997", 300 * time.Second},
		{"9223372036", 9223372036 * time.Second},
		{"9223372036.1", longest},
		{"9223372037", longest},
		{"9223372036854775807", longest},
		{"9223372036854775808", longest},
		{"18446744073709551617", longest}, // 2^64 + 1: must not wrap to 1
		{strings.Repeat("9", 1000), longest},
		{strings.Repeat("0", 1000) + "4", 4 * time.Second},
	}
	for _, tt := range tests {
		if got, ok := retry.ParseRetryAfter(tt.header, time.Time{}); got != tt.want || !ok {
			t.Errorf("ParseRetryAfter(%q) = %v, %v, want %v, true", tt.header, got, ok, tt.want)
		}
	}
}

func TestParseRetryAfterRefuses(t *testing.T) {
	now := time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)
	for _, header := range []string{
		"", " ", "soon", "-3", "-0", "+3", "- 3", "3 s", "3s", "1,5", "1 000", "3;",
		".", ".5", "5.", "1.2.3", "1..2", "1.-2", "1.+2", "1. 2",
		"1e2", "1E2", "1e309", "0x10", "0x1p4", "1_0", "0b1", "0o7", "nan", "NaN", "inf", "+Inf", "-inf", "infinity",
		"٣", "３", "3\n", "\u00a03", "3\x00",
		"2026-03-14T12:00:02Z",
		"2026-03-14 12:00:02",
		"Sat, 14 Mar 2026 12:00:02",
		"Sat, 14 Mar 2026 12:00:02 UTC",
		"Sat, 14 Mar 2026 12:00:02 EST",
		"Sat, 14 Mar 2026 12:00:02 gmt",
		"Sat, 14 Mar 2026 12:00:02 +0200",
		"Sat, 14 Mar 2026 12:00:02 -0000",
		"Sat, 99 Mar 2026 12:00:02 GMT",
		"Sat, 31 Feb 2026 12:00:02 GMT",
		"Sat, 4 Mar 2026 12:00:02 GMT",
		"Sat, 14 Mar 26 12:00:02 GMT",
		"Saturday, 14-Mar-26 12:00:02 EST",
		"Saturday, 14-Mar-2026 12:00:02 GMT",
		"Sat Mar 14 12:00:02 2026 GMT",
		"14 Mar 2026 12:00:02 GMT",
		"Sat, 14 Mar 2026 12:00:02 GMT, 3",
	} {
		if got, ok := retry.ParseRetryAfter(header, now); got != 0 || ok {
			t.Errorf("ParseRetryAfter(%q) = %v, %v, want 0, false", header, got, ok)
		}
	}
}

func TestParseRetryAfterDates(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		header string
		now    time.Time
		want   time.Duration
	}{
		{"RFC 1123, ahead", "Wed, 04 Mar 2026 12:00:02 GMT", now, 2 * time.Second},
		{"RFC 1123, past", "Wed, 04 Mar 2026 11:00:00 GMT", now, 0},
		{"RFC 1123, this very moment", "Wed, 04 Mar 2026 12:00:00 GMT", now, 0},
		{"RFC 850, ahead", "Wednesday, 04-Mar-26 12:00:02 GMT", now, 2 * time.Second},
		{"RFC 850, past", "Wednesday, 04-Mar-26 11:00:00 GMT", now, 0},
		{"asctime, ahead", "Wed Mar  4 12:00:02 2026", now, 2 * time.Second},
		{"asctime, past", "Wed Mar  4 11:00:00 2026", now, 0},
		{"blanks around it", " Wed, 04 Mar 2026 12:00:02 GMT\t", now, 2 * time.Second},
		{"wrong day of the week", "Mon, 04 Mar 2026 12:00:02 GMT", now, 2 * time.Second},
		{"names in lower case", "wed, 04 mar 2026 12:00:02 GMT", now, 2 * time.Second},
		{"hour of one digit", "Wed, 04 Mar 2026 9:00:02 GMT", now.Add(-3 * time.Hour), 2 * time.Second},
		{"fraction of a second", "Wed, 04 Mar 2026 12:00:02.5 GMT", now, 2500 * time.Millisecond},
		{"no rounding", "Wed, 04 Mar 2026 12:00:02 GMT", now.Add(time.Millisecond), 1999 * time.Millisecond},
		{"now in another zone", "Wed, 04 Mar 2026 12:00:02 GMT", now.In(time.FixedZone("", 5*3600)), 2 * time.Second},
		{"asctime is UTC in any zone", "Wed Mar  4 12:00:02 2026", now.In(time.FixedZone("", 5*3600)), 2 * time.Second},
		{"beyond the longest duration", "Fri, 31 Dec 9999 23:59:59 GMT", now, longest},
		{"long past", "Mon, 01 Jan 0001 00:00:00 GMT", now, 0},
		{"no now", "Wed, 04 Mar 2026 12:00:02 GMT", time.Time{}, longest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := retry.ParseRetryAfter(tt.header, tt.now); got != tt.want || !ok {
				t.Errorf("ParseRetryAfter(%q) = %v, %v, want %v, true", tt.header, got, ok, tt.want)
			}
		})
	}
}

// The two digits of an RFC 850 year mean the latest such year that is not more than 50 years ahead.
func TestParseRetryAfterTwoDigitYears(t *testing.T) {
	tests := []struct {
		header string
		now    time.Time
		want   time.Time // zero: past
	}{
		{"Sunday, 06-Nov-94 08:49:37 GMT", date(2026, 1, 1), time.Time{}},
		{"Sunday, 06-Nov-94 08:49:37 GMT", date(1994, 1, 1), time.Date(1994, 11, 6, 8, 49, 37, 0, time.UTC)},
		{"Sunday, 06-Nov-94 08:49:37 GMT", date(2050, 1, 1), time.Date(2094, 11, 6, 8, 49, 37, 0, time.UTC)},
		{"Thursday, 01-Jan-70 00:00:00 GMT", date(2026, 1, 1), date(2070, 1, 1)}, // time.Parse says 1970
		{"Thursday, 01-Jan-76 00:00:00 GMT", date(2026, 1, 1), date(2076, 1, 1)}, // 50 years to the second
		{"Thursday, 01-Jan-76 00:00:01 GMT", date(2026, 1, 1), time.Time{}},      // a second more
		{"Friday, 01-Jan-00 00:00:00 GMT", date(2099, 12, 31), date(2100, 1, 1)}, // over the turn of the century
		{"Friday, 01-Jan-00 00:30:00 GMT", time.Date(2049, 12, 31, 20, 0, 0, 0, time.FixedZone("", -5*3600)), // 01:00 in GMT
			time.Date(2100, 1, 1, 0, 30, 0, 0, time.UTC)},
		{"Thursday, 31-Dec-99 00:00:00 GMT", date(2100, 1, 1), time.Time{}},
		{"Tuesday, 29-Feb-00 00:00:00 GMT", date(2000, 2, 28), date(2000, 2, 29)},
		{"Thursday, 29-Feb-68 00:00:00 GMT", date(2026, 1, 1), date(2068, 2, 29)},
	}
	for _, tt := range tests {
		got, ok := retry.ParseRetryAfter(tt.header, tt.now)
		var want time.Duration
		if !tt.want.IsZero() {
			want = tt.want.Sub(tt.now)
		}
		if got != want || !ok {
			t.Errorf("ParseRetryAfter(%q, %v) = %v, %v, want %v, true", tt.header, tt.now, got, ok, want)
		}
	}
}

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// Any moment, written in any of the three forms, is read back exactly, as long as two digits are enough for its year.
func TestParseRetryAfterReadsWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(rapid.Int64Range(0, 7258118400).Draw(t, "now"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
		ahead := time.Duration(rapid.Int64Range(-40*365*24*3600, 40*365*24*3600).Draw(t, "ahead")) * time.Second
		at := now.Add(ahead).UTC().Truncate(time.Second)
		layout := rapid.SampledFrom([]string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}).Draw(t, "layout")

		got, ok := retry.ParseRetryAfter(at.Format(layout), now)
		if want := max(at.Sub(now), 0); got != want || !ok {
			t.Fatalf("ParseRetryAfter(%q, %v) = %v, %v, want %v, true", at.Format(layout), now, got, ok, want)
		}
	})
}

var number = regexp.MustCompile(`^[ \t]*([0-9]+(\.[0-9]+)?)[ \t]*$`)

// FuzzParseRetryAfter compares the parser with slower ones that are not its own: a regular expression with exact
// fractions for numbers, and net/http for dates.
func FuzzParseRetryAfter(f *testing.F) {
	for _, header := range []string{
		"", "0", " 3 ", "2.5", "299.997", "-3", "+3", "1e309", "0x10", "1_0", "nan", "9223372036.5", "99999999999999999999",
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
		"Tuesday, 29-Feb-00 00:00:00 GMT", "Sun, 06 Nov 1994 08:49:37 +0200",
	} {
		f.Add(header, int64(784111770))
		f.Add(header, int64(1772625600))
	}
	f.Fuzz(func(t *testing.T, header string, unix int64) {
		now := time.Unix(unix, 0)
		got, ok := retry.ParseRetryAfter(header, now)
		if again, okAgain := retry.ParseRetryAfter(" \t"+header+" ", now); again != got || okAgain != ok {
			t.Fatalf("blanks around %q change %v, %v to %v, %v", header, got, ok, again, okAgain)
		}
		switch {
		case got < 0:
			t.Fatalf("ParseRetryAfter(%q) = %v: negative", header, got)
		case !ok && got != 0:
			t.Fatalf("ParseRetryAfter(%q) = %v, false: refused, but not zero", header, got)
		}
		if m := number.FindStringSubmatch(header); m != nil {
			if !ok {
				t.Fatalf("ParseRetryAfter(%q) refused a number", header)
			}
			checkSeconds(t, m[1], got)
			return
		}
		if !ok {
			return
		}
		at, err := http.ParseTime(strings.Trim(header, " \t"))
		if err != nil {
			t.Fatalf("ParseRetryAfter(%q) = %v, true: net/http says %v", header, got, err)
		}
		if !strings.Contains(header, "-") { // with a four-digit year the two must agree
			if want := max(at.Sub(now), 0); got != want {
				t.Fatalf("ParseRetryAfter(%q, %v) = %v, want %v", header, now, got, want)
			}
		}
	})
}

// checkSeconds wants got to be the seconds in text, rounded up, or the longest duration where that is too short.
func checkSeconds(t *testing.T, text string, got time.Duration) {
	t.Helper()
	stated, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("big.Rat cannot read %q", text)
	}
	up := new(big.Int).Add(stated.Num(), stated.Denom())
	up.Div(up.Sub(up, big.NewInt(1)), stated.Denom())
	want := longest
	if nanos := up.Mul(up, big.NewInt(int64(time.Second))); nanos.IsInt64() {
		want = time.Duration(nanos.Int64())
	}
	if got != want {
		t.Fatalf("ParseRetryAfter(%q) = %v, want %v", text, got, want)
	}
}
