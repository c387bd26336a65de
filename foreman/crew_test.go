package foreman_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/ratelimiter"
)

// stack is somebody's own queue: jobs that are all there from the beginning, taken from the end.
type stack struct {
	mu         sync.Mutex
	jobs       []foreman.Job[int, int]
	all, taken int
	abandoned  error
}

func stackOf(items ...int) *stack {
	s := &stack{all: len(items)}
	for _, n := range items {
		task := item(n)
		s.jobs = append(s.jobs, foreman.Job[int, int]{Task: &task})
	}
	return s
}

func (s *stack) Take(_ int, jobs []foreman.Job[int, int]) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(jobs), len(s.jobs))
	for i := range n {
		last := len(s.jobs) - 1
		jobs[i].Task, jobs[i].Context, jobs[i].Reply = s.jobs[last].Task, s.jobs[last].Context, s.jobs[last].Reply
		s.jobs = s.jobs[:last]
	}
	s.taken += n
	return n
}

func (s *stack) Abandon(cause error, unfinished func(*foreman.Job[int, int])) {
	s.mu.Lock()
	left := s.jobs
	s.jobs, s.abandoned = nil, cause
	s.mu.Unlock()
	for i := range left {
		unfinished(&left[i])
	}
}

func (s *stack) Counts() (accepted, taken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.taken
}

// hands are n jobs with room for a task each, as a worker brings them.
func hands(n int) []foreman.Job[int, int] {
	jobs := make([]foreman.Job[int, int], n)
	for i := range jobs {
		jobs[i].Task = new(foreman.Task[int, int])
	}
	return jobs
}

// shelf is somebody's own outlet.
type shelf struct {
	mu     sync.Mutex
	tasks  []foreman.Task[int, int]
	lifted bool
	closed bool
}

func (s *shelf) Deliver(tasks []*foreman.Task[int, int]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		s.tasks = append(s.tasks, *t)
	}
}

func (s *shelf) Lift()  { s.lifted = true }
func (s *shelf) Close() { s.closed = true }

// watching is a shelf that somebody looks at.
type watching struct {
	shelf
	deliver func(foreman.Task[int, int])
}

func (w *watching) Deliver(tasks []*foreman.Task[int, int]) {
	for _, task := range tasks {
		w.deliver(*task)
	}
	w.shelf.Deliver(tasks)
}

func newPlan(t *testing.T, workers int, h func(context.Context, int) (int, error), opts ...foreman.Option) *foreman.Plan[int, int] {
	t.Helper()
	p, err := foreman.NewPlan(h, workers, 7, 8, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// launch starts a crew with all its workers over jobs that are all there.
func launch(ctx context.Context, p *foreman.Plan[int, int], c foreman.CrewConfig[int, int]) *foreman.Crew[int, int] {
	crew := p.NewCrew(ctx, c)
	for range p.Workers() {
		crew.Hire(nil)
	}
	crew.Start()
	crew.InputDone()
	return crew
}

func TestPlan(t *testing.T) {
	p := newPlan(t, 3, double)
	expect(t, "defaults", []int{p.Workers(), p.InputCapacity(), p.ResultCapacity(), p.Batch()}, []int{3, 7, 8, 1})
	p = newPlan(t, 3, double, foreman.WithInputCapacity(1), foreman.WithResultCapacity(2), foreman.WithBatch(4), foreman.WithBatch(5))
	expect(t, "as set, the last wins", []int{p.InputCapacity(), p.ResultCapacity(), p.Batch()}, []int{1, 2, 5})

	priority, err := newPlan(t, 1, double).PriorityOf(5)
	if priority != 0 || err != nil {
		t.Error(priority, err)
	}
	priority, err = newPlan(t, 1, double, foreman.WithPriority(func(n int) int { return -n })).PriorityOf(5)
	if priority != -5 || err != nil {
		t.Error(priority, err)
	}
	_, err = newPlan(t, 1, double, foreman.WithPriority(func(int) int { panic(errOne) })).PriorityOf(5)
	is(t, err, errOne)
}

func TestCrew(t *testing.T) {
	bubble(t, "works through somebody's own queue into their own outlet", func(t *testing.T) {
		for _, batch := range []int{1, 2, 8} {
			var out shelf
			var ends []foreman.Counters
			crew := launch(t.Context(), newPlan(t, 2, double, foreman.WithBatch(batch)), foreman.CrewConfig[int, int]{
				Intake: stackOf(1, 2, 3, 4, 5), Outlet: &out,
				OnEnd: func(c foreman.Counters) { ends = append(ends, c) },
			})
			if err := crew.Wait(t.Context()); err != nil || crew.Err() != nil || crew.Cause() != nil {
				t.Error(err, crew.Err(), crew.Cause())
			}
			expect(t, "results", data(out.tasks), []int{1, 2, 3, 4, 5})
			expect(t, "OnEnd", ends, []foreman.Counters{{Succeeded: 5}})
			if !out.closed || out.lifted {
				t.Errorf("closed: %v, lifted: %v", out.closed, out.lifted)
			}
			if crew.Context().Err() == nil {
				t.Error("the crew's context has not ended")
			}
		}
	})

	bubble(t, "without an outlet the tasks stay where they are", func(t *testing.T) {
		s := stackOf(1, 2)
		places := []*foreman.Task[int, int]{s.jobs[0].Task, s.jobs[1].Task}
		<-launch(t.Context(), newPlan(t, 1, double), foreman.CrewConfig[int, int]{Intake: s}).Done()
		for i, task := range places {
			if task.Outcome != foreman.Succeeded || task.Result != 2*(i+1) {
				t.Errorf("got %v", *task)
			}
		}
	})

	bubble(t, "a job's reply takes its task instead of the outlet, its context ends it alone", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		s := stackOf(1, 2)
		var replied []foreman.Task[int, int]
		s.jobs[1].Context = ctx
		s.jobs[1].Reply = func(task *foreman.Task[int, int]) { replied = append(replied, *task) }
		var out shelf
		crew := launch(t.Context(), newPlan(t, 2, func(ctx context.Context, n int) (int, error) {
			select {
			case <-time.After(time.Minute):
				return n, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}), foreman.CrewConfig[int, int]{Intake: s, Outlet: &out})
		if err := crew.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		expect(t, "delivered", data(out.tasks), []int{1})
		if len(replied) != 1 || replied[0].Data != 2 || replied[0].Outcome != foreman.Unfinished {
			t.Fatalf("replied %v", replied)
		}
		is(t, replied[0].Err, context.DeadlineExceeded, errOne)
	})

	bubble(t, "Cancel abandons what is pending, and is the error if it cut anything off", func(t *testing.T) {
		s := stackOf(1, 2, 3)
		replied := 0
		s.jobs[0].Reply = func(task *foreman.Task[int, int]) { replied++; expect(t, "outcome", task.Outcome, foreman.Unfinished) }
		var out shelf
		crew := launch(t.Context(), newPlan(t, 1, hang), foreman.CrewConfig[int, int]{Intake: s, Outlet: &out})
		synctest.Wait()
		if crew.Err() != nil || crew.Cause() != nil {
			t.Error("while it goes on:", crew.Err(), crew.Cause())
		}
		crew.Cancel(errOne)
		crew.Cancel(foreman.ErrStopped) // too late
		<-crew.Done()
		is(t, crew.Err(), errOne)
		is(t, s.abandoned, errOne)
		expect(t, "delivered", data(out.tasks), []int{2, 3})
		expect(t, "replied", replied, 1)
		if !out.lifted || !out.closed {
			t.Errorf("lifted: %v, closed: %v", out.lifted, out.closed)
		}
		for _, task := range out.tasks {
			is(t, task.Err, errOne, context.Canceled)
		}
		expect(t, "counters", crew.Counters(), foreman.Counters{Unfinished: 3})
	})

	bubble(t, "Cancel that cuts nothing off is no failure", func(t *testing.T) {
		crew := newPlan(t, 1, double).NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: stackOf()})
		crew.Start()
		crew.Cancel(errOne)
		if err := crew.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})

	bubble(t, "Fail always is one, and several are joined", func(t *testing.T) {
		errTwo := errors.New("two")
		var out shelf
		release := make(chan struct{})
		h := func(ctx context.Context, _ int) (int, error) { <-release; return 0, ctx.Err() }
		crew := launch(t.Context(), newPlan(t, 1, h), foreman.CrewConfig[int, int]{Intake: stackOf(1), Outlet: &out})
		synctest.Wait()
		crew.Fail(errOne)
		crew.Fail(errTwo)
		close(release)
		<-crew.Done()
		is(t, crew.Err(), errOne, errTwo)
		is(t, out.tasks[0].Err, errOne, context.Canceled)
	})

	bubble(t, "the task that reaches the failure limit is delivered before anybody is cancelled", func(t *testing.T) {
		for _, batch := range []int{1, 8} {
			var crew *foreman.Crew[int, int]
			out := watching{deliver: func(task foreman.Task[int, int]) {
				if over := crew.Context().Err() != nil; over != (task.Outcome == foreman.Unfinished) {
					t.Errorf("%v was delivered; the crew's context has ended: %v", task, over)
				}
			}}
			p := newPlan(t, 1, func(context.Context, int) (int, error) { return 0, errOne }, foreman.WithFailureLimit(2), foreman.WithBatch(batch))
			crew = p.NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: stackOf(1, 2, 3), Outlet: &out})
			crew.Hire(nil)
			crew.Start()
			crew.InputDone()
			<-crew.Done()
			is(t, crew.Err(), errOne)
			expect(t, "delivered", data(out.tasks), []int{1, 2, 3})
		}
	})

	bubble(t, "a context that has ended: nothing is started", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errOne)
		var out shelf
		crew := launch(ctx, newPlan(t, 1, func(context.Context, int) (int, error) { t.Error("started"); return 0, nil }),
			foreman.CrewConfig[int, int]{Intake: stackOf(1, 2), Outlet: &out})
		is(t, crew.Wait(context.Background()), context.Canceled, errOne)
		expect(t, "delivered", data(out.tasks), []int{1, 2})
	})

	bubble(t, "Hire never goes beyond the plan's workers, nor beyond the end", func(t *testing.T) {
		crew := newPlan(t, 2, hang).NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: stackOf(1, 2, 3), Outlet: &shelf{}})
		crew.Start()
		expect(t, "hired", []bool{crew.Hire(nil), crew.Hire(nil), crew.Hire(nil)}, []bool{true, true, false})
		synctest.Wait()
		expect(t, "counters", crew.Counters(), foreman.Counters{Pending: 1, Running: 2})
		crew.Cancel(errOne)
		<-crew.Done()
		crew = launch(t.Context(), newPlan(t, 2, double), foreman.CrewConfig[int, int]{Intake: stackOf()})
		<-crew.Done()
		if crew.Hire(nil) {
			t.Error("hired after the end")
		}
	})

	bubble(t, "Hire with a first job", func(t *testing.T) {
		var out shelf
		crew := newPlan(t, 1, double).NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: stackOf(), Outlet: &out})
		task := item(5)
		crew.Hire(&foreman.Job[int, int]{Task: &task})
		crew.Start()
		crew.InputDone()
		<-crew.Done()
		expect(t, "delivered", data(out.tasks), []int{5})
	})

	bubble(t, "Go is waited for, and InputDone may come twice", func(t *testing.T) {
		began := time.Now()
		crew := newPlan(t, 1, double).NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: stackOf()})
		crew.Go(func() { crew.InputDone(); time.Sleep(time.Minute) })
		crew.Start()
		crew.InputDone()
		<-crew.Done()
		expect(t, "time", time.Since(began), time.Minute)
	})

	bubble(t, "Wait gives up with its context", func(t *testing.T) {
		crew := newPlan(t, 1, double).NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: stackOf()})
		crew.Start()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		is(t, crew.Wait(ctx), context.DeadlineExceeded, errOne)
		crew.InputDone()
		<-crew.Done()
		if err := crew.Wait(ctx); err != nil {
			t.Error("it has ended, which comes first:", err)
		}
	})

	bubble(t, "Running lists what workers hold, the longest first, waits included", func(t *testing.T) {
		l := ratelimiter.Func(func(ctx context.Context, r ratelimiter.Request) error {
			<-ctx.Done()
			return ctx.Err()
		})
		p := newPlan(t, 3, hang, foreman.WithLimiter(l))
		inbox := p.NewInbox(true)
		crew := p.NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: inbox, Outlet: p.NewOutbox(), Watch: true})
		inbox.Open(crew)
		crew.Start()
		expect(t, "at the start", crew.Running(), nil)
		for n := range 3 {
			inbox.Add(t.Context(), item(n).WithID([]string{"a", "", "c"}[n]), 0, nil, nil)
			time.Sleep(time.Second)
		}
		expect(t, "running", crew.Running(), []foreman.RunningTask{
			{Index: 0, ID: "a", For: 3 * time.Second}, {Index: 1, ID: "1", For: 2 * time.Second}, {Index: 2, ID: "c", For: time.Second},
		})
		crew.Cancel(errOne)
		<-crew.Done()
		expect(t, "after the end", crew.Running(), nil)
	})

	bubble(t, "one plan serves many crews at a time", func(t *testing.T) {
		p := newPlan(t, 2, double)
		var ended atomic.Int32
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				var out shelf
				<-launch(t.Context(), p, foreman.CrewConfig[int, int]{Intake: stackOf(1, 2, 3), Outlet: &out}).Done()
				ended.Add(int32(len(out.tasks)))
			})
		}
		wg.Wait()
		expect(t, "tasks", ended.Load(), 30)
	})
}

func TestInbox(t *testing.T) {
	bubble(t, "numbers what it accepts, or leaves the numbers alone", func(t *testing.T) {
		for number, want := range map[bool][]int{true: {0, 1, 2}, false: {7, 8, 7}} {
			p := newPlan(t, 1, double)
			inbox, outbox := p.NewInbox(number), p.NewOutbox()
			for i, n := range []int{7, 8, 7} {
				if got, err := inbox.Add(t.Context(), item(n), 0, nil, nil); got != i || err != nil {
					t.Error(got, err)
				}
			}
			crew := p.NewCrew(t.Context(), foreman.CrewConfig[int, int]{Intake: inbox, Outlet: outbox})
			inbox.Open(crew)
			crew.Start()
			inbox.Close(nil)
			crew.InputDone()
			<-crew.Done()
			var index []int
			for _, task := range outbox.Drain() {
				index = append(index, task.Index)
			}
			expect(t, "numbers", index, want)
		}
	})

	bubble(t, "orders by priority, keeps its capacity, and refuses with the reason for its end", func(t *testing.T) {
		p := newPlan(t, 2, double, foreman.WithInputCapacity(3))
		inbox := p.NewInbox(true)
		for _, n := range []int{5, 1, 5} {
			inbox.Add(t.Context(), item(n), n, nil, nil)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errOne)
		defer cancel()
		_, err := inbox.Add(ctx, item(9), 0, nil, nil)
		is(t, err, context.DeadlineExceeded, errOne)
		jobs := hands(4)
		n := inbox.Take(0, jobs)
		expect(t, "a fair share of three for two workers", n, 1)
		expect(t, "most urgent", jobs[0].Task.Data, 1)
		accepted, taken := inbox.Counts()
		expect(t, "counts", []int{accepted, taken}, []int{3, 1})

		var left []int
		inbox.Abandon(errOne, func(job *foreman.Job[int, int]) { left = append(left, job.Task.Index) })
		expect(t, "abandoned, as they came", left, []int{0, 2})
		_, err = inbox.Add(t.Context(), item(9), 0, nil, nil)
		is(t, err, errOne)
		expect(t, "taken after the end", inbox.Take(0, jobs), 0)
	})

	bubble(t, "Close refuses with its error and lets the rest be taken", func(t *testing.T) {
		inbox := newPlan(t, 1, double).NewInbox(true)
		inbox.Add(t.Context(), item(1), 0, nil, nil)
		inbox.Close(errOne)
		_, err := inbox.Add(t.Context(), item(2), 0, nil, nil)
		is(t, err, errOne)
		jobs := hands(2)
		expect(t, "taken", []int{inbox.Take(0, jobs), inbox.Take(0, jobs)}, []int{1, 0})
	})
}

func TestOutbox(t *testing.T) {
	bubble(t, "holds up its writers at the plan's capacity, until it is lifted", func(t *testing.T) {
		outbox := newPlan(t, 1, double, foreman.WithResultCapacity(2)).NewOutbox()
		var tasks []*foreman.Task[int, int]
		for n := range 5 {
			task := item(n)
			tasks = append(tasks, &task)
		}
		delivered := false
		go func() { outbox.Deliver(tasks); delivered = true }()
		synctest.Wait()
		if delivered || outbox.Len() != 2 {
			t.Errorf("delivered: %v, %d there", delivered, outbox.Len())
		}
		first, ok, err := outbox.Next(t.Context())
		if first.Data != 0 || !ok || err != nil {
			t.Error(first, ok, err)
		}
		outbox.Lift()
		synctest.Wait()
		if !delivered {
			t.Error("not delivered")
		}
		outbox.Close()
		expect(t, "the rest", data(outbox.Drain()), []int{1, 2, 3, 4})
		if _, ok, err := outbox.Next(t.Context()); ok || err != nil {
			t.Error("after the end:", ok, err)
		}
	})
	bubble(t, "copies what is delivered", func(t *testing.T) {
		outbox := newPlan(t, 1, double).NewOutbox()
		task := item(1)
		outbox.Deliver([]*foreman.Task[int, int]{&task})
		task.Data = 99
		got := outbox.TakeAll(nil)
		expect(t, "data", slices.Collect(func(yield func(int) bool) { yield(got[0].Data) }), []int{1})
	})
}
