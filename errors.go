package penstock

import (
	"fmt"
	"strings"

	"github.com/penstock-go/penstock/foreman"
)

// Errors that callers compare with errors.Is.
var (
	// ErrInputClosed refuses an item that came after CloseInput or Finish. The item was not accepted.
	ErrInputClosed = foreman.ErrInputClosed
	// ErrNoMoreResults follows the last result of a run in which everything was done.
	ErrNoMoreResults = foreman.ErrNoMoreResults
	// ErrStopped refuses an item after Stop, and is the error of a run whose work a Stop cut off.
	ErrStopped = foreman.ErrStopped
	// ErrStartTimeout is the error of a run whose first item did not come within WithStartTimeout.
	ErrStartTimeout = foreman.ErrStartTimeout
	// ErrGoexit is the error of a task whose handler called runtime.Goexit. It is never retried.
	ErrGoexit = foreman.ErrGoexit
)

// The error types of package foreman, by the names that users of this package write. Their fields are shown there, for
// example by `go doc foreman.TimeoutError`.
type (
	// TimeoutError says that an attempt or task timeout struck; it is context.DeadlineExceeded to errors.Is.
	TimeoutError = foreman.TimeoutError
	// UnfinishedError is the error of every task whose Outcome is Unfinished.
	UnfinishedError = foreman.UnfinishedError
	// PanicError is the error of a task whose handler panicked: the value and the stack.
	PanicError = foreman.PanicError
	// ShedError is the error of a task that was shed. Its text starts with "rate_limit:".
	ShedError = foreman.ShedError
	// LimiterError ends a run whose limiter failed by itself.
	LimiterError = foreman.LimiterError
	// CallbackError ends a run when a function passed as an option panicked or gave an invalid answer.
	CallbackError = foreman.CallbackError
	// TooManyFailuresError ends a run that reached its failure limit.
	TooManyFailuresError = foreman.TooManyFailuresError
	// BlockedError says that a context ended while its owner waited for room or for the end of a run, and how that stood.
	BlockedError = foreman.BlockedError
	// StillRunningError is what Stop returns when its context ends before the handlers do.
	StillRunningError = foreman.StillRunningError
	// RunningTask names a task that a worker holds and says for how long.
	RunningTask = foreman.RunningTask
	// OptionError says which argument or option of New was wrong.
	OptionError = foreman.OptionError
)

// A SourceError ends a run whose source failed.
type SourceError struct {
	// Err is what the source returned or yielded; a [PanicError] when it panicked, ErrGoexit when it ended its goroutine.
	Err error
}

// Error shows what the source returned.
func (e *SourceError) Error() string {
	return "penstock: the source failed: " + strings.TrimPrefix(fmt.Sprint(e.Err), "penstock: ")
}

// Unwrap gives what the source returned.
func (e *SourceError) Unwrap() error { return e.Err }

// A TaskError is one failure in what [Values] returns.
type TaskError struct {
	// Task is the id of the task.
	Task string
	// Err is the task's error.
	Err error
	// More is how many other tasks were left unfinished, too: there is one TaskError for all of these.
	More int
}

// Error gives the task's id and its error.
func (e *TaskError) Error() string {
	text := strings.TrimPrefix(e.Err.Error(), "penstock: ")
	if id := "task " + e.Task + ": "; !strings.HasPrefix(text, id) {
		text = id + text
	}
	if e.More > 0 {
		text += fmt.Sprintf(" (and %d more left unfinished)", e.More)
	}
	return text
}

// Unwrap gives the task's error.
func (e *TaskError) Unwrap() error { return e.Err }
