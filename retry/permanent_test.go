package retry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
)

func TestPermanent(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"nil", nil, false},
		{"plain", errBusy, false},
		{"wrapped plain", fmt.Errorf("row 7: %w", errBusy), false},
		{"nil marked", retry.Permanent(nil), false},
		{"marked", retry.Permanent(errBusy), true},
		{"marked twice", retry.Permanent(retry.Permanent(errBusy)), true},
		{"marked, then wrapped", fmt.Errorf("row 7: %w", retry.Permanent(errBusy)), true},
		{"one of several", errors.Join(errGone, retry.Permanent(errBusy)), true},
		{"marked, then hinted", retry.After(retry.Permanent(errBusy), time.Second), true},
		{"hinted", retry.After(errBusy, time.Second), false},
		{"mark taken off", errors.Unwrap(retry.Permanent(errBusy)), false},
		{"twice marked, mark taken off", errors.Unwrap(retry.Permanent(retry.Permanent(errBusy))), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := retry.IsPermanent(tt.err); got != tt.want {
				t.Errorf("IsPermanent = %v, want %v", got, tt.want)
			}
		})
	}
}

// The mark is an answer to one question. Whatever else is asked about the error must be answered as without it.
func TestPermanentChangesNothingElse(t *testing.T) {
	code := &codeError{code: 404}
	marked := retry.Permanent(fmt.Errorf("row 7: %w", retry.After(code, time.Minute)))

	if got, want := marked.Error(), "row 7: code error"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	if !errors.Is(marked, code) {
		t.Error("errors.Is does not find the cause")
	}
	if got, ok := errors.AsType[*codeError](marked); !ok || got != code {
		t.Error("errors.As does not find the cause")
	}
	if d, ok := retry.RetryAfter(marked); d != time.Minute || !ok {
		t.Errorf("RetryAfter = %v, %v, want 1m0s, true", d, ok)
	}
	if errors.Is(marked, retry.Permanent(errBusy)) {
		t.Error("two marks make two errors the same")
	}
}

func TestPermanentNilIsNil(t *testing.T) {
	if err := retry.Permanent(nil); err != nil {
		t.Errorf("Permanent(nil) = %v", err)
	}
}
