package penstock

import (
	"sync"

	"github.com/penstock-go/penstock/buffering"
)

// places is an outlet with a place for each task. Every index is delivered once, so nobody shares a place.
type places[D, R any] []Task[D, R]

func (p places[D, R]) Deliver(tasks []*Task[D, R]) {
	for _, t := range tasks {
		place := &p[t.Index] // field by field: cheaper than copying the whole, and a task of a slice has no id
		place.Index, place.Data, place.Result, place.Attempts, place.Outcome = t.Index, t.Data, t.Result, t.Attempts, t.Outcome
		if t.Err != nil {
			place.Err = t.Err
		}
	}
}

func (places[D, R]) Lift()  {}
func (places[D, R]) Close() {}

// taskList is an outlet that keeps everything, each task at its index.
type taskList[D, R any] struct {
	mu    sync.Mutex
	tasks []Task[D, R]
}

func (l *taskList[D, R]) Deliver(tasks []*Task[D, R]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tasks {
		if missing := t.Index + 1 - len(l.tasks); missing > 0 {
			l.tasks = append(l.tasks, make([]Task[D, R], missing)...)
		}
		l.tasks[t.Index] = *t
	}
}

func (*taskList[D, R]) Lift()  {}
func (*taskList[D, R]) Close() {}

// reorder is an outlet that puts tasks back into input order.
type reorder[D, R any] struct {
	window *buffering.Window[Task[D, R]]
}

func (r reorder[D, R]) Deliver(tasks []*Task[D, R]) {
	for _, t := range tasks {
		r.window.Put(t.Index, t)
	}
}

func (r reorder[D, R]) Lift()  {} // the window never makes a worker wait with a result in hand
func (r reorder[D, R]) Close() { r.window.Close() }
