package retry

import (
	"math"
	"strings"
	"time"
)

// ParseRetryAfter reads the value of an HTTP Retry-After header (RFC 9110, section 10.2.3): a number of seconds, or a
// date. It returns how long to wait from now on, never negative and never shorter than the service said, and whether the
// value could be read; if not, the duration is 0 and means nothing. now matters for dates only. Where the clocks of the
// two machines may differ, pass the time in the response's own Date header.
//
//	"2", " 2 "                          2 s; blanks and tabs around the value are ignored
//	"0", "0.0"                          0
//	"2.5", "2.0001"                     3 s; a fraction is no HTTP, but some send it: rounded up to the whole second
//	"99999999999999999999"              the longest time.Duration, about 292 years
//	"Sun, 06 Nov 1994 08:49:37 GMT"     until then; 0 when it is past
//	"Sunday, 06-Nov-94 08:49:37 GMT"    the same; of the years that end in 94 the latest that is at most 50 years ahead
//	"Sun Nov  6 08:49:37 1994"          the same, in UTC
//	"", "soon", "-3", "+3", "1e2"       refused, as is every number that is not digits, or digits "." digits:
//	"0x10", "1_0", "inf", ".5", "5."    no signs, exponents or names, no digits but 0 to 9
//	"Sun, 06 Nov 1994 08:49:37 +0200"   refused, as is every date in another zone or form
//
// Within these forms dates are read as leniently as net/http reads them: the day of the week is not compared with the
// date, upper and lower case do not matter in names, and the hour may have one digit.
//
// What to do about a header that is refused is up to the caller. To return the plain error, so that the policy's
// [Backoff] alone decides, or to assume a second are both sound; an immediate retry is not.
func ParseRetryAfter(header string, now time.Time) (time.Duration, bool) {
	value := strings.Trim(header, " \t")
	if d, ok := parseSeconds(value); ok {
		return d, true
	}
	at, ok := parseDate(value, now)
	if !ok {
		return 0, false
	}
	return max(at.Sub(now), 0), true // Sub saturates
}

// parseSeconds reads digits, or digits "." digits. It is written by hand because the number parsers of strconv take
// signs, exponents, underscores, hexadecimals and infinities as well.
func parseSeconds(s string) (time.Duration, bool) {
	whole, fraction, dotted := strings.Cut(s, ".")
	if !allDigits(whole) || dotted && !allDigits(fraction) {
		return 0, false
	}
	const most = int64(math.MaxInt64 / time.Second)
	var seconds int64
	for _, digit := range []byte(whole) {
		seconds = seconds*10 + int64(digit-'0')
		if seconds > most {
			return math.MaxInt64, true
		}
	}
	if strings.Trim(fraction, "0") != "" {
		seconds++
	}
	if seconds > most {
		return math.MaxInt64, true
	}
	return time.Duration(seconds) * time.Second, true
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

// The three forms of a date in HTTP. The zone is always written GMT, except that the last form has none and means it;
// a layout with time.Parse's own zone name, MST, would take any three letters for one, and guess.
const (
	imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850Date = "Monday, 02-Jan-06 15:04:05 GMT"
	asctime    = time.ANSIC
)

func parseDate(s string, now time.Time) (time.Time, bool) {
	if t, err := time.Parse(imfFixdate, s); err == nil {
		return t, true
	}
	if t, err := time.Parse(rfc850Date, s); err == nil {
		return fullYear(t, now), true
	}
	t, err := time.Parse(asctime, s)
	return t, err == nil
}

// fullYear gives a date whose year was written with two digits the century that RFC 9110, section 5.6.7, asks for: the
// latest in which the date is not more than 50 years in the future. time.Parse has a fixed rule instead, by which 70 is
// 1970 for ever.
func fullYear(t, now time.Time) time.Time {
	now = now.UTC()
	latest := now.AddDate(50, 0, 0)
	years := (latest.Year()/100 - t.Year()/100) * 100
	if t.AddDate(years, 0, 0).After(latest) {
		years -= 100
	}
	return t.AddDate(years, 0, 0)
}
