package foreman

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// Errors that callers compare with [errors.Is].
var (
	// ErrInputClosed refuses a task that came after the input was closed. The task was not accepted.
	ErrInputClosed = errors.New("penstock: the input is closed, so no more tasks are accepted")
	// ErrNoMoreResults follows the last result of a run in which everything was done.
	ErrNoMoreResults = errors.New("penstock: no more results: every task has ended and was handed out")
	// ErrStopped refuses a task after Stop, and is the error of a run whose work a Stop cut off.
	ErrStopped = errors.New("penstock: stopped")
	// ErrStartTimeout is the error of a run whose first item did not come in time.
	ErrStartTimeout = errors.New("penstock: no input came within the start timeout")
	// ErrNotStarted refuses a call that needs a started [Foreman].
	ErrNotStarted = errors.New("penstock: the foreman is not started: call Start first")
	// ErrGoexit is the error of a task whose handler ended its goroutine with runtime.Goexit,
	// as testing's FailNow does. It is never retried.
	ErrGoexit = errors.New("penstock: runtime.Goexit was called")
)

// A TimeoutError says that Penstock's own attempt or task timeout struck. It is [context.DeadlineExceeded] to
// errors.Is. A deadline of the caller's, or one that the handler made for itself, is never reported as a TimeoutError.
type TimeoutError struct {
	// Task is the id of the task.
	Task string
	// Scope says which timeout struck: "attempt" or "task".
	Scope string
	// Limit is the timeout as it was set.
	Limit time.Duration
	// During says what the task was doing: "handler", "limiter", "breaker" or "backoff"; an attempt is always in its
	// handler.
	During string
	// Err is what the handler returned last, or nil when it was never called.
	Err error
}

// Error names the task, the timeout and its length, and the handler's last error if there is one.
func (e *TimeoutError) Error() string {
	s := fmt.Sprintf("penstock: task %s: %s timed out after %v", e.Task, e.Scope, e.Limit)
	switch e.During {
	case duringBreaker:
		s += " while waiting for the breaker to close"
	case duringLimiter:
		s += " while waiting for the limiter"
	case duringBackoff:
		s += " while waiting to retry"
	}
	return withLast(s, e.Err)
}

// Unwrap gives [context.DeadlineExceeded] and the handler's last error.
func (e *TimeoutError) Unwrap() []error { return compact(context.DeadlineExceeded, e.Err) }

// Timeout is always true: a TimeoutError is a timeout in the sense of package net.
func (e *TimeoutError) Timeout() bool { return true }

// Where a task was when something struck it.
const (
	duringHandler = "handler"
	duringBreaker = "breaker"
	duringLimiter = "limiter"
	duringBackoff = "backoff"
	duringQueue   = "queue"
)

// An UnfinishedError is the Err of every task whose Outcome is [Unfinished]. To errors.Is it is
// [context.Canceled] or [context.DeadlineExceeded], the cause, and the handler's last error.
type UnfinishedError struct {
	// During says what the task was doing when it was cut off: "queue", "breaker", "limiter", "handler" or "backoff".
	During string
	// Context is context.Canceled or context.DeadlineExceeded.
	Context error
	// Cause says why: the run's failure, [ErrStopped], or the cause of the caller's context.
	Cause error
	// Err is what the handler returned last, or nil when it was never called.
	Err error
}

// Error says what the task was doing and why it did not finish.
func (e *UnfinishedError) Error() string {
	var s string
	switch e.During {
	case duringQueue:
		s = "penstock: not started: "
	case duringBreaker:
		s = "penstock: unfinished, waiting for the breaker to close: "
	case duringLimiter:
		s = "penstock: unfinished, waiting for the limiter: "
	case duringBackoff:
		s = "penstock: unfinished, waiting to retry: "
	default:
		s = "penstock: unfinished: "
	}
	return withLast(s+trimPrefix(e.Cause), e.Err)
}

// Unwrap gives the context's error, the cause, and the handler's last error.
func (e *UnfinishedError) Unwrap() []error { return compact(e.Context, e.Cause, e.Err) }

// A PanicError is the error of a task whose handler panicked. It is never retried.
// It also stands inside [CallbackError], [LimiterError] and SourceError when one of those panicked.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the panicking goroutine, as runtime/debug.Stack writes it.
	Stack []byte
}

// Error shows the panic's value. The stack is left to the field, to %+v and to structured logs.
func (e *PanicError) Error() string { return fmt.Sprintf("penstock: panic: %v", e.Value) }

// Unwrap gives the panic's value when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Format writes the stack after the text for %+v.
func (e *PanicError) Format(f fmt.State, verb rune) {
	switch {
	case verb == 'v' && f.Flag('+'):
		fmt.Fprintf(f, "%s\n\n%s", e.Error(), e.Stack)
	case verb == 'q':
		fmt.Fprintf(f, "%q", e.Error())
	default:
		fmt.Fprint(f, e.Error())
	}
}

// LogValue gives a logger the panic's value and the stack as two attributes.
func (e *PanicError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("panic", fmt.Sprint(e.Value)), slog.String("stack", string(e.Stack)))
}

// A ShedError is the error of a task whose Outcome is [Shed]: the limiter would have held it longer than WithShed allows.
type ShedError struct {
	// Task is the id of the task.
	Task string
	// MaxWait is the wait that WithShed allows.
	MaxWait time.Duration
	// Err is the limiter's refusal. It names the limit and its scope and says when a grant would have come.
	Err *ratelimiter.ExcessError
	// Last is what the handler returned last, or nil when it was never called.
	Last error
}

// Error starts with "rate_limit:" and names the limit.
func (e *ShedError) Error() string {
	s := "rate_limit: " + strings.TrimPrefix(e.Err.Error(), "rate_limit: ") + ": task " + e.Task + " was shed"
	return withLast(s, e.Last)
}

// Unwrap gives the limiter's refusal and the handler's last error.
func (e *ShedError) Unwrap() []error { return compact(e.Err, e.Last) }

// A LimiterError ends a run: its limiter failed by itself, neither because a context ended nor because of one request.
type LimiterError struct {
	// Task is the id of the task that asked.
	Task string
	// Err is what the limiter returned; a [PanicError] when it panicked.
	Err error
}

// Error names the task that asked and shows what the limiter returned.
func (e *LimiterError) Error() string {
	return fmt.Sprintf("penstock: the limiter failed for task %s: %s", e.Task, trimPrefix(e.Err))
}

// Unwrap gives what the limiter returned.
func (e *LimiterError) Unwrap() error { return e.Err }

// A CallbackError ends a run: a function that the user passed as an option panicked or gave an invalid answer.
// A panicking hook is only logged.
type CallbackError struct {
	// Callback names the function: "key", "cost", "priority", "retry" (a policy's If and Unless), "backoff" or "breaker"
	// (its Trip).
	Callback string
	// Task is the id of the task it was called for; empty for a priority, which an item has before it is a task.
	Task string
	// Err is what was wrong; a [PanicError] when the function panicked.
	Err error
}

// Error names the function and the task.
func (e *CallbackError) Error() string {
	of := " for task " + e.Task
	if e.Task == "" {
		of = " for a new item"
	}
	return fmt.Sprintf("penstock: the %s function failed%s: %s", e.Callback, of, trimPrefix(e.Err))
}

// Unwrap gives what was wrong.
func (e *CallbackError) Unwrap() error { return e.Err }

// A TooManyFailuresError ends a run in which as many tasks failed as WithFailureLimit allows.
type TooManyFailuresError struct {
	// Limit is the number of failed tasks that ended the run.
	Limit int
	// Task is the id of the task that reached it.
	Task string
	// Err is that task's error.
	Err error
}

// Error gives the limit and the last failure.
func (e *TooManyFailuresError) Error() string {
	return fmt.Sprintf("penstock: failure limit of %d reached with task %s: %s", e.Limit, e.Task, trimPrefix(e.Err))
}

// Unwrap gives the error of the task that reached the limit.
func (e *TooManyFailuresError) Unwrap() error { return e.Err }

// A BlockedError says that a context ended while its owner waited for a run, and how the run stood then, which mostly shows
// what it waited for.
type BlockedError struct {
	// For is what was waited for: "room" for another item, or the "end" of the run.
	For string
	// Pending and Running are as in [Counters], and Unread is how many results nobody has read.
	Pending, Running, Unread int
	// Err is the error of the context, its cause included.
	Err error
}

// Error says what was waited for and how the run stood.
func (e *BlockedError) Error() string {
	s := "no room for another item"
	if e.For == "end" {
		s = "the run has not ended"
	}
	return fmt.Sprintf("penstock: %s: %d pending, %d running, %d results unread: %v", s, e.Pending, e.Running, e.Unread, e.Err)
}

// Unwrap gives the context's error.
func (e *BlockedError) Unwrap() error { return e.Err }

// A StillRunningError is what Stop returns when its context ends before the handlers do.
type StillRunningError struct {
	// Tasks are the tasks still running, the longest first.
	Tasks []RunningTask
	// Err is the error of Stop's context.
	Err error
}

// A RunningTask names a task that a worker holds and says for how long.
type RunningTask struct {
	Index int
	ID    string
	For   time.Duration
}

// Error names up to five of the tasks and says how many there are.
func (e *StillRunningError) Error() string {
	var b strings.Builder
	tasks, silent := "tasks", "their handlers have not returned since they were cancelled"
	if len(e.Tasks) == 1 {
		tasks, silent = "task", "its handler has not returned since it was cancelled"
	}
	fmt.Fprintf(&b, "penstock: stop gave up waiting (%v) with %d %s still running", e.Err, len(e.Tasks), tasks)
	for i, t := range e.Tasks {
		if i == 5 {
			b.WriteString(", …")
			break
		}
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%stask %s for %v", sep, t.ID, t.For.Round(time.Millisecond))
	}
	b.WriteString("; " + silent)
	return b.String()
}

// Unwrap gives the error of Stop's context.
func (e *StillRunningError) Unwrap() error { return e.Err }

// An OptionError says which option of New was wrong, with which value, and what would be right.
// New joins one for every fault.
type OptionError struct {
	// Option is the option's or the argument's name.
	Option string
	// Problem says what was wrong and what would be right.
	Problem string
}

// Error gives the option and the problem.
func (e *OptionError) Error() string { return "penstock: " + e.Option + ": " + e.Problem }

// ContextError is the error of a context that has ended, its cause included: both are found by errors.Is.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(cause, err) {
		return cause
	}
	return &endedError{err, cause}
}

type endedError struct{ err, cause error }

func (e *endedError) Error() string   { return e.err.Error() + ": " + e.cause.Error() }
func (e *endedError) Unwrap() []error { return []error{e.err, e.cause} }

func newPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

func withLast(s string, last error) string {
	if last == nil {
		return s
	}
	return s + " (last error: " + trimPrefix(last) + ")"
}

// trimPrefix gives an error's text without a package name that the surrounding text already has.
func trimPrefix(err error) string { return strings.TrimPrefix(fmt.Sprint(err), "penstock: ") }

// compact leaves out what is nil, or the same as what stands before it.
func compact(errs ...error) []error {
	kept := errs[:0]
	for i, err := range errs {
		if err != nil && (i == 0 || err != errs[0]) {
			kept = append(kept, err)
		}
	}
	return kept
}
