package retry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
)

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want time.Duration
		ok   bool
	}{
		{"nil", nil, 0, false},
		{"plain", errBusy, 0, false},
		{"After", retry.After(errBusy, time.Second), time.Second, true},
		{"After, zero", retry.After(errBusy, 0), 0, true},
		{"After, negative", retry.After(errBusy, -time.Second), 0, true},
		{"wrapped", fmt.Errorf("row 7: %w", retry.After(errBusy, time.Second)), time.Second, true},
		{"joined", errors.Join(errGone, retry.After(errBusy, time.Second)), time.Second, true},
		{"own type", fmt.Errorf("row 7: %w", hintError{time.Second}), time.Second, true},
		{"own type, negative", hintError{-time.Second}, 0, true},
		{"outermost hint counts", retry.After(retry.After(errBusy, time.Minute), time.Second), time.Second, true},
		{"over an own type", retry.After(hintError{time.Minute}, time.Second), time.Second, true},
		{"not capped", retry.After(errBusy, 1000*time.Hour), 1000 * time.Hour, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d, ok := retry.RetryAfter(tt.err); d != tt.want || ok != tt.ok {
				t.Errorf("RetryAfter = %v, %v, want %v, %v", d, ok, tt.want, tt.ok)
			}
		})
	}
}

func TestAfterKeepsTheError(t *testing.T) {
	code := &codeError{code: 429}
	hinted := retry.After(fmt.Errorf("row 7: %w", code), time.Second)

	if got, want := hinted.Error(), "row 7: code error"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if !errors.Is(hinted, code) {
		t.Error("errors.Is does not find the cause")
	}
	if got, ok := errors.AsType[*codeError](hinted); !ok || got != code {
		t.Error("errors.As does not find the cause")
	}
}

// Whoever finds the method without this package's help gets no negative duration either.
func TestAfterNegativeIsZero(t *testing.T) {
	hinted, ok := retry.After(errBusy, -time.Second).(interface{ RetryAfter() time.Duration })
	if !ok || hinted.RetryAfter() != 0 {
		t.Errorf("%v, %v", hinted, ok)
	}
}

func TestAfterNilIsNil(t *testing.T) {
	if err := retry.After(nil, time.Second); err != nil {
		t.Errorf("After(nil, 1s) = %v", err)
	}
}
