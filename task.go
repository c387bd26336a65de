package penstock

import (
	"context"

	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
)

// A Task is one item and what became of it: Index, Data, Result, Err, Attempts and Outcome. See [foreman.Task] for
// its fields and methods. A task that a helper or a run hands out has always ended.
type Task[D, R any] = foreman.Task[D, R]

// An Outcome is the way a task ended. See [foreman.Outcome].
type Outcome = foreman.Outcome

// The four ways a task can end. Every accepted task ends in exactly one of them.
const (
	// Succeeded: the handler returned a value and a nil error, however late.
	Succeeded = foreman.Succeeded
	// Failed: the last attempt failed, with no retry left or allowed, or a timeout struck.
	Failed = foreman.Failed
	// Shed: the limiter would have held an attempt longer than WithShed allows.
	Shed = foreman.Shed
	// Unfinished: the run ended, or the caller of Do gave up, before the task could end by itself.
	Unfinished = foreman.Unfinished
)

// Counters is a snapshot of how many tasks are where. See [foreman.Counters]: all but Retries always add up to the
// number of accepted tasks.
type Counters = foreman.Counters

// Hooks are functions that are told what happens. See [foreman.Hooks].
type Hooks = foreman.Hooks

// Attempt tells a hook about one handler call. See [foreman.Attempt].
type Attempt = foreman.Attempt

// TaskInfo tells a hook how a task ended. See [foreman.TaskInfo].
type TaskInfo = foreman.TaskInfo

// AttemptNumber tells a handler which attempt of its task this is, from 1, by the context it was called with. For other
// contexts of a run it is 1, and for one that does not come from a run 0.
func AttemptNumber(ctx context.Context) int { return foreman.AttemptNumber(ctx) }

// AttemptRequest tells a handler, by the context it was called with, what the limiter was asked for its attempt, for a
// limiter's Adjust once the true cost is known. It is known where WithCost is set; elsewhere ok is false.
func AttemptRequest(ctx context.Context) (req ratelimiter.Request, ok bool) {
	return foreman.AttemptRequest(ctx)
}
