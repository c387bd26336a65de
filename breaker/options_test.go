package breaker_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		opt  breaker.Option
		want string
	}{
		{breaker.WithThreshold(0, sec), "WithThreshold: failures is 0, must be from 1 to 1000000"},
		{breaker.WithThreshold(-1, sec), "WithThreshold: failures is -1, must be from 1 to 1000000"},
		{breaker.WithThreshold(1_000_001, sec), "WithThreshold: failures is 1000001, must be from 1 to 1000000"},
		{breaker.WithThreshold(1, 0), "WithThreshold: window is 0s, must be more than 0 and at most 876000h0m0s"},
		{breaker.WithThreshold(1, math.MaxInt64), "WithThreshold: window is 2562047h47m16.854775807s, must be more than 0 and " +
			"at most 876000h0m0s"},
		{breaker.WithCooldown(0), "WithCooldown is 0s, must be more than 0 and at most 876000h0m0s"},
		{breaker.WithCooldown(-sec), "WithCooldown is -1s, must be more than 0 and at most 876000h0m0s"},
		{breaker.WithCooldown(math.MaxInt64), "WithCooldown is 2562047h47m16.854775807s, must be more than 0 and at most " +
			"876000h0m0s"},
		{breaker.WithProbes(0, 1), "WithProbes: n is 0, must be from 1 to 1000000"},
		{breaker.WithProbes(1, 0), "WithProbes: ratio is 0, must be more than 0 and at most 1"},
		{breaker.WithProbes(1, 1.01), "WithProbes: ratio is 1.01, must be more than 0 and at most 1"},
		{breaker.WithProbes(1, math.NaN()), "WithProbes: ratio is NaN, must be more than 0 and at most 1"},
		{breaker.WithProbes(1, math.Inf(1)), "WithProbes: ratio is +Inf, must be more than 0 and at most 1"},
		{nil, "option 1 is nil: leave it out"},
	} {
		b, err := breaker.New(c.opt)
		if b != nil || err == nil || err.Error() != "breaker: "+c.want {
			t.Errorf("got %v, %v; want the error %q", b, err, c.want)
		}
	}
}

func TestAllBadOptionsAtOnce(t *testing.T) {
	_, err := breaker.New(breaker.WithThreshold(0, 0), breaker.WithCooldown(0), nil, breaker.WithProbes(0, 2))
	if err == nil {
		t.Fatal("no error")
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 6 {
		t.Errorf("%d faults are named, want 6:\n%v", n, err)
	}
}

func TestTheLastOptionWins(t *testing.T) {
	virtual(t, func(t *testing.T, s *stage) {
		s.attempts(1, breaker.Failed)
		s.want(breaker.Closed)
		s.attempts(1, breaker.Failed)
		s.want(breaker.Open)
	}, breaker.WithThreshold(0, 0), breaker.WithThreshold(2, sec))
}

func TestExtremesAreKept(t *testing.T) {
	const most = 100 * 365 * 24 * time.Hour
	virtual(t, func(t *testing.T, s *stage) {
		s.attempts(1, breaker.Failed)
		s.until(most - 1)
		s.attempts(1, breaker.Failed)
		s.want(breaker.Open)
		s.until(2*most - 2)
		s.want(breaker.Open)
		s.until(2*most - 1)
		s.want(breaker.HalfOpen)
	}, breaker.WithThreshold(2, most), breaker.WithCooldown(most))
	virtual(t, func(t *testing.T, s *stage) {
		s.attempts(1, breaker.Failed)
		s.want(breaker.Open)
		s.until(1)
		s.attempts(1, breaker.Succeeded)
		s.want(breaker.Closed)
	}, breaker.WithThreshold(1, 1), breaker.WithCooldown(1), breaker.WithProbes(1, math.SmallestNonzeroFloat64))
}

func TestFailure(t *testing.T) {
	b := must(breaker.New())
	if b.Failure(nil) || !b.Failure(errIll) {
		t.Error("without WithTrip every error counts, and nothing else")
	}
	b = must(breaker.New(breaker.WithTrip(nil)))
	if !b.Failure(errIll) {
		t.Error("WithTrip(nil) is the default")
	}
	b = must(breaker.New(breaker.WithTrip(func(err error) bool { return errors.Is(err, errIll) })))
	if b.Failure(nil) || !b.Failure(errIll) || b.Failure(errors.New("not found")) {
		t.Error("WithTrip's answer is not what counts")
	}
	b = must(breaker.New(breaker.WithTrip(func(error) bool { panic(errIll) })))
	defer func() {
		if recover() != errIll {
			t.Error("the panic did not pass through")
		}
	}()
	b.Failure(errIll)
}

func TestStrings(t *testing.T) {
	for want, got := range map[string]string{
		"closed": breaker.Closed.String(), "open": breaker.Open.String(), "half-open": breaker.HalfOpen.String(),
		"State(7)": breaker.State(7).String(), "succeeded": breaker.Succeeded.String(), "failed": breaker.Failed.String(),
		"ignored": breaker.Ignored.String(), "Report(0)": breaker.Report(0).String(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
