package penstock

import (
	"sync"

	"github.com/penstock-go/penstock/buffering"
)

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
