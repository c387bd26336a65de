package foreman_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/foreman"
)

// letters is an Intake over somebody's own queue, here a channel. Workers receive from it directly.
type letters struct {
	queue chan string
	ended <-chan struct{} // the crew's context: Take must not outlast it
	taken atomic.Int64
}

func (l *letters) Take(_ int, jobs []foreman.Job[string, int]) int {
	select {
	case letter, ok := <-l.queue:
		if !ok {
			return 0
		}
		jobs[0].Task.Index = int(l.taken.Add(1) - 1)
		jobs[0].Task.Data = letter
		return 1
	case <-l.ended:
		return 0
	}
}

// Abandon has nothing to hand back: a letter counts as accepted when it is taken.
func (l *letters) Abandon(error, func(*foreman.Job[string, int])) {}

func (l *letters) Counts() (accepted, taken int) {
	n := int(l.taken.Load())
	return n, n
}

// receipts is an Outlet that files each task by its data.
type receipts struct {
	mu   sync.Mutex
	file map[string]int
}

func (r *receipts) Deliver(tasks []*foreman.Task[string, int]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range tasks {
		r.file[t.Data] = t.Result // copied: the crew uses the task's memory again
	}
}

func (r *receipts) Lift()  {} // Deliver never waits
func (r *receipts) Close() {}

// A crew works for those who have a queue and a place for results of their own.
func ExampleCrew() {
	plan, err := foreman.NewPlan(func(_ context.Context, letter string) (int, error) {
		return strings.Count(letter, "e"), nil
	}, 3, foreman.Unlimited, foreman.Unlimited)
	if err != nil {
		fmt.Println(err)
		return
	}
	in := &letters{queue: make(chan string)}
	out := &receipts{file: map[string]int{}}
	crew := plan.NewCrew(context.Background(), foreman.CrewConfig[string, int]{Intake: in, Outlet: out})
	in.ended = crew.Context().Done()
	for range plan.Workers() {
		crew.Hire(nil)
	}
	crew.Start()

	for _, letter := range []string{"here we are", "never", "no"} {
		in.queue <- letter
	}
	close(in.queue)
	crew.InputDone()
	<-crew.Done()
	fmt.Println(out.file, crew.Err(), crew.Counters().Succeeded)
	// Output: map[here we are:4 never:2 no:0] <nil> 3
}
