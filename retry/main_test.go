package retry_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errBusy = errors.New("busy")
	errGone = errors.New("gone")
)

// codeError stands for a user's own error type.
type codeError struct{ code int }

func (e *codeError) Error() string { return "code error" }

// hintError stands for a user's own error type with a hint, given by value and without this package.
type hintError struct{ wait time.Duration }

func (e hintError) Error() string             { return "hint error" }
func (e hintError) RetryAfter() time.Duration { return e.wait }
