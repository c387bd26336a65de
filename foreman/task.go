package foreman

import (
	"fmt"
	"strconv"
)

// A Task is one item on its way through the workers: what came in, and, once it has ended, what became of it.
//
// A task that a caller gets back has always ended: its Outcome is one of the four constants and never zero.
// Err is nil exactly when Outcome is [Succeeded].
type Task[D, R any] struct {
	// Index is the position of the item in its run, from 0. A run numbers the items it accepted, without gaps.
	// A [Foreman] leaves the number that its caller chose.
	Index int
	// Data is the item itself, as it was submitted.
	Data D
	// Result is what the handler returned. It is meaningful only when Outcome is Succeeded.
	Result R
	// Err says why the task did not succeed. An error that came from the handler's last attempt is stored as it
	// was returned, not wrapped.
	Err error
	// Attempts is the number of handler calls that started, the first one included.
	Attempts int
	// Outcome says how the task ended.
	Outcome Outcome

	id string
}

// ID returns the caller's id for the task, or the index in decimal when the caller gave none.
func (t Task[D, R]) ID() string { return taskID(t.id, t.Index) }

// WithID returns a copy of the task that carries the caller's own id. An empty id means the index.
// Ids are labels: they need not be unique, and nothing is looked up or ordered by them.
func (t Task[D, R]) WithID(id string) Task[D, R] {
	t.id = id
	return t
}

// Value returns the result of a task that succeeded and the error of one that did not, ready for
// `return task.Value()`. A task that has not ended yet gives an error that says so.
func (t Task[D, R]) Value() (R, error) {
	if t.Outcome == 0 {
		var zero R
		return zero, fmt.Errorf("penstock: task %s has not ended", t.ID())
	}
	return t.Result, t.Err
}

// clear makes the task blank. It is cheaper than assigning a zero Task.
func (t *Task[D, R]) clear() {
	var (
		data   D
		result R
	)
	t.Index, t.Data, t.Result, t.Attempts, t.Outcome = 0, data, result, 0, 0
	if t.Err != nil || t.id != "" { // mostly not, and a pointer is dear to write while the collector is at work
		t.Err, t.id = nil, ""
	}
}

func taskID(id string, index int) string {
	if id != "" {
		return id
	}
	return strconv.Itoa(index)
}

// An Outcome is the way a task ended. The zero Outcome means that it has not ended yet.
type Outcome uint8

// The four ways a task can end. Every accepted task ends in exactly one of them.
const (
	// Succeeded: the handler returned a value and a nil error, however late.
	Succeeded Outcome = 1 + iota
	// Failed: the last attempt failed, with no retry left or allowed, or a timeout struck.
	Failed
	// Shed: the limiter would have held an attempt longer than the caller was willing to wait.
	Shed
	// Unfinished: the run ended, or the caller gave up, before the task could end by itself.
	Unfinished
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	switch o {
	case 0:
		return "pending"
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	case Shed:
		return "shed"
	case Unfinished:
		return "unfinished"
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}
