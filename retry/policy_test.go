package retry_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
	"pgregory.net/rapid"
)

func always(error) bool { return true }
func never(error) bool  { return false }

func TestPolicyZeroIsValid(t *testing.T) {
	var p retry.Policy
	if err := p.Validate(); err != nil {
		t.Errorf("the zero Policy is refused: %v", err)
	}
	if p.Max != 0 || p.Free(retry.After(errBusy, time.Second)) {
		t.Error("the zero Policy retries")
	}
	if d, err := p.Delay(1, errBusy); d != 0 || err != nil {
		t.Errorf("Delay = %v, %v, want no delay", d, err)
	}
}

func TestPolicyValidate(t *testing.T) {
	tests := []struct {
		name   string
		policy retry.Policy
		want   []string // parts of the text; none: valid
	}{
		{"full", retry.Policy{Max: 3, Backoff: retry.Constant(0), If: always, Unless: never, MaxRetryAfter: 1,
			Budget: newBudget(t, 0.1, 10), FreeThrottled: true}, nil},
		{"largest", retry.Policy{Max: math.MaxInt, MaxRetryAfter: longest}, nil},
		{"Max", retry.Policy{Max: -1}, []string{"retry: Policy.Max is -1:", "0 or more"}},
		{"MaxRetryAfter", retry.Policy{MaxRetryAfter: -time.Second}, []string{"retry: Policy.MaxRetryAfter is -1s:", "0 for the default of 1h0m0s"}},
		{"Budget", retry.Policy{Budget: new(retry.Budget)}, []string{"retry: Policy.Budget is a zero Budget", "NewBudget"}},
		{"all", retry.Policy{Max: -2, MaxRetryAfter: -1, Budget: new(retry.Budget)},
			[]string{"Policy.Max is -2:", "Policy.MaxRetryAfter is -1ns:", "Policy.Budget is"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.policy.Validate()
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			text := fmt.Sprint(err)
			for _, part := range tt.want {
				if !strings.Contains(text, part) {
					t.Errorf("error %q does not have %q", text, part)
				}
			}
		})
	}
}

func TestPolicyValidateJoinsOneErrorPerField(t *testing.T) {
	p := retry.Policy{Max: -2, MaxRetryAfter: -1, Budget: new(retry.Budget)}
	joined, ok := p.Validate().(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("Validate = %v, want three joined errors", p.Validate())
	}
}

func TestPolicyRetryable(t *testing.T) {
	busy := retry.Is(errBusy)
	tests := []struct {
		name   string
		policy retry.Policy
		err    error
		want   bool
	}{
		{"no filter: every error", retry.Policy{}, errBusy, true},
		{"nil error", retry.Policy{If: always}, nil, false},
		{"If", retry.Policy{If: busy}, errBusy, true},
		{"If, wrapped", retry.Policy{If: busy}, fmt.Errorf("row 7: %w", errBusy), true},
		{"not If", retry.Policy{If: busy}, errGone, false},
		{"If of no targets: none", retry.Policy{If: retry.Is()}, errBusy, false},
		{"Unless", retry.Policy{Unless: busy}, errBusy, false},
		{"not Unless", retry.Policy{Unless: busy}, errGone, true},
		{"Unless of no targets: every error", retry.Policy{Unless: retry.Is()}, errBusy, true},
		{"Unless wins over If", retry.Policy{If: busy, Unless: busy}, errBusy, false},
		{"neither", retry.Policy{If: busy, Unless: busy}, errGone, false},
		{"permanent wins over If", retry.Policy{If: always, Unless: never}, retry.Permanent(errBusy), false},
		{"permanent, wrapped", retry.Policy{If: always}, fmt.Errorf("row 7: %w", retry.Permanent(errBusy)), false},
		{"a hint does not make it retryable", retry.Policy{If: busy}, retry.After(errGone, time.Second), false},
		{"hinted", retry.Policy{If: busy}, retry.After(errBusy, time.Second), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.policy.Retryable(tt.err); got != tt.want {
				t.Errorf("Retryable(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}

// A filter is asked at most once, with the very error, and only when its answer matters.
func TestPolicyRetryableAsksNoMoreThanItMust(t *testing.T) {
	var asked []string
	p := retry.Policy{
		Unless: func(err error) bool { asked = append(asked, "Unless"); return err == errGone },
		If:     func(err error) bool { asked = append(asked, "If"); return err == errBusy },
	}
	tests := []struct {
		err  error
		want string
	}{
		{nil, "[]"},
		{retry.Permanent(errBusy), "[]"},
		{errGone, "[Unless]"},
		{errBusy, "[Unless If]"},
	}
	for _, tt := range tests {
		asked = nil
		p.Retryable(tt.err)
		if got := fmt.Sprint(asked); got != tt.want {
			t.Errorf("Retryable(%v) asked %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestPolicyLetsPanicsPass(t *testing.T) {
	boom := func(error) bool { panic("boom") }
	calls := map[string]func(){
		"If":      func() { (&retry.Policy{If: boom}).Retryable(errBusy) },
		"Unless":  func() { (&retry.Policy{Unless: boom}).Retryable(errBusy) },
		"Backoff": func() { (&retry.Policy{Backoff: func(int, error) time.Duration { panic("boom") }}).Delay(1, errBusy) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if got := recover(); got != "boom" {
					t.Errorf("recovered %v, want boom", got)
				}
			}()
			call()
		})
	}
}

func TestPolicyHint(t *testing.T) {
	tests := []struct {
		name string
		cap  time.Duration
		err  error
		want time.Duration
		ok   bool
	}{
		{"none", 0, errBusy, 0, false},
		{"nil error", 0, nil, 0, false},
		{"below the default cap", 0, retry.After(errBusy, 30*time.Minute), 30 * time.Minute, true},
		{"at the default cap", 0, retry.After(errBusy, time.Hour), time.Hour, true},
		{"above the default cap", 0, retry.After(errBusy, 90*time.Minute), time.Hour, true},
		{"below a cap", time.Minute, retry.After(errBusy, time.Second), time.Second, true},
		{"above a cap", time.Minute, retry.After(errBusy, time.Hour), time.Minute, true},
		{"cap above the default", 24 * time.Hour, retry.After(errBusy, 2*time.Hour), 2 * time.Hour, true},
		{"cap switched off", longest, retry.After(errBusy, longest), longest, true},
		{"zero", 0, retry.After(errBusy, 0), 0, true},
		{"negative", 0, hintError{-time.Hour}, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := retry.Policy{MaxRetryAfter: tt.cap}
			if d, ok := p.Hint(tt.err); d != tt.want || ok != tt.ok {
				t.Errorf("Hint = %v, %v, want %v, %v", d, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestPolicyDelay(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		policy retry.Policy
		err    error
		want   time.Duration
	}{
		{"neither", retry.Policy{}, errBusy, 0},
		{"backoff alone", retry.Policy{Backoff: retry.Constant(s)}, errBusy, s},
		{"hint alone", retry.Policy{}, retry.After(errBusy, 10*s), 10 * s},
		{"the backoff is added to the hint", retry.Policy{Backoff: retry.Constant(s)}, retry.After(errBusy, 10*s), 11 * s},
		{"a longer backoff too", retry.Policy{Backoff: retry.Constant(20 * s)}, retry.After(errBusy, 10*s), 30 * s},
		{"zero hint", retry.Policy{Backoff: retry.Constant(s)}, retry.After(errBusy, 0), s},
		{"zero backoff", retry.Policy{Backoff: retry.Constant(0)}, retry.After(errBusy, 10*s), 10 * s},
		{"the cap is for the hint alone", retry.Policy{Backoff: retry.Constant(20 * s), MaxRetryAfter: 5 * s}, retry.After(errBusy, 10*s), 25 * s},
		{"huge backoff", retry.Policy{Backoff: retry.Constant(longest)}, errBusy, longest},
		{"the sum saturates", retry.Policy{Backoff: retry.Constant(longest)}, retry.After(errBusy, 1), longest},
		{"the sum just fits", retry.Policy{Backoff: retry.Constant(longest - 1)}, retry.After(errBusy, 1), longest},
		{"both huge", retry.Policy{Backoff: retry.Constant(longest), MaxRetryAfter: longest}, retry.After(errBusy, longest), longest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := tt.policy.Delay(1, tt.err); got != tt.want || err != nil {
				t.Errorf("Delay = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestPolicyDelayCallsTheBackoffOnce(t *testing.T) {
	type call struct {
		failed int
		err    error
	}
	var calls []call
	p := retry.Policy{Backoff: func(failed int, err error) time.Duration {
		calls = append(calls, call{failed, err})
		return 0
	}}
	want := fmt.Errorf("row 7: %w", errBusy)
	p.Delay(3, want)
	if len(calls) != 1 || calls[0] != (call{3, want}) {
		t.Errorf("calls %v, want one with 3 and the very error", calls)
	}
}

// Jitter may make a retry later than the service asked, never earlier.
func TestPolicyDelayIsNeverShorterThanTheHint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := retry.Policy{
			Backoff:       retry.Exponential(time.Millisecond, time.Minute),
			MaxRetryAfter: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "cap")),
		}
		err := retry.After(errBusy, time.Duration(rapid.Int64().Draw(t, "hint")))
		hint, ok := p.Hint(err)
		got, delayErr := p.Delay(rapid.Int().Draw(t, "failed"), err)
		if !ok || delayErr != nil || got < hint || got-hint > time.Minute {
			t.Fatalf("hint %v, %v; delay %v, %v", hint, ok, got, delayErr)
		}
	})
}

func TestPolicyFree(t *testing.T) {
	free := retry.Policy{FreeThrottled: true}
	tests := []struct {
		name   string
		policy retry.Policy
		err    error
		want   bool
	}{
		{"not asked for", retry.Policy{}, retry.After(errBusy, time.Second), false},
		{"nil error", free, nil, false},
		{"no hint", free, errBusy, false},
		{"hint", free, retry.After(errBusy, time.Second), true},
		{"hint, wrapped", free, fmt.Errorf("row 7: %w", retry.After(errBusy, 1)), true},
		{"own type", free, errors.Join(errGone, hintError{time.Second}), true},
		{"zero hint would be a free retry without a wait", free, retry.After(errBusy, 0), false},
		{"own type that has a hint only sometimes", free, hintError{}, false},
		{"negative hint", free, hintError{-1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.policy.Free(tt.err); got != tt.want {
				t.Errorf("Free = %v, want %v", got, tt.want)
			}
			if hint, _ := tt.policy.Hint(tt.err); tt.policy.Free(tt.err) && hint <= 0 {
				t.Error("free, and no wait")
			}
		})
	}
}
