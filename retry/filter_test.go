package retry_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-go/penstock/retry"
)

func TestIs(t *testing.T) {
	wrapped := fmt.Errorf("row 7: %w", errBusy)
	tests := []struct {
		name    string
		targets []error
		err     error
		want    bool
	}{
		{"itself", []error{errBusy}, errBusy, true},
		{"second target", []error{errGone, errBusy}, errBusy, true},
		{"wrapped", []error{errBusy}, wrapped, true},
		{"joined", []error{errBusy}, errors.Join(errGone, wrapped), true},
		{"another", []error{errGone}, errBusy, false},
		{"no targets match nothing", nil, errBusy, false},
		{"nil target matches nothing", []error{nil}, errBusy, false},
		{"nil error", []error{errBusy}, nil, false},
		{"nil error, nil target", []error{nil}, nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := retry.Is(tt.targets...)(tt.err); got != tt.want {
				t.Errorf("Is(%v)(%v) = %v, want %v", tt.targets, tt.err, got, tt.want)
			}
		})
	}
}

func TestIsKeepsItsOwnTargets(t *testing.T) {
	targets := []error{errBusy}
	filter := retry.Is(targets...)
	targets[0] = errGone
	if !filter(errBusy) || filter(errGone) {
		t.Error("the filter follows later changes of the caller's slice")
	}
}

func TestAs(t *testing.T) {
	err := &codeError{code: 503}
	tests := []struct {
		name   string
		filter func(error) bool
		err    error
		want   bool
	}{
		{"itself", retry.As[*codeError](), err, true},
		{"wrapped", retry.As[*codeError](), fmt.Errorf("row 7: %w", err), true},
		{"joined", retry.As[*codeError](), errors.Join(errGone, err), true},
		{"marked", retry.As[*codeError](), retry.Permanent(err), true},
		{"value type", retry.As[hintError](), fmt.Errorf("row 7: %w", hintError{}), true},
		{"interface", retry.As[interface {
			error
			Unwrap() []error
		}](), errors.Join(errGone, err), true},
		{"any error", retry.As[error](), errBusy, true},
		{"another", retry.As[*codeError](), errBusy, false},
		{"nil error", retry.As[*codeError](), nil, false},
		{"nil error, any error", retry.As[error](), nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.filter(tt.err); got != tt.want {
				t.Errorf("filter(%v) = %v, want %v", tt.err, got, tt.want)
			}
		})
	}
}
