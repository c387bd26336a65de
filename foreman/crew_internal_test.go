package foreman

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ended is a context that has ended, as a worker may see it a moment before those who watch it are told.
type ended struct{ context.Context }

func (ended) Err() error { return context.Canceled }

// TestEndBeforeTheWatcher plays the moment between the end of a crew's context and the start of its watchers: the last worker
// has noticed and left, its input has come to an end, and what is pending must be abandoned all the same.
func TestEndBeforeTheWatcher(t *testing.T) {
	fm, err := New(func(_ context.Context, n int) (int, error) { return n, nil }, 1, WithInputCapacity(3))
	if err != nil {
		t.Fatal(err)
	}
	p := fm.plan
	inbox, outbox := p.NewInbox(true), p.NewOutbox()
	crew := p.NewCrew(t.Context(), CrewConfig[int, int]{Intake: inbox, Outlet: outbox})
	for n := range 3 {
		if _, err := inbox.Add(t.Context(), Task[int, int]{Data: n}, 0, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	crew.Start()
	crew.mu.Lock()
	crew.ctx = ended{crew.ctx}
	crew.mu.Unlock()
	crew.InputDone()
	<-crew.Done()
	if n := crew.Counters(); n.Unfinished != 3 || n.Ended() != 3 {
		t.Errorf("want 3 Unfinished tasks, have %+v", n)
	}
	if tasks := outbox.Drain(); len(tasks) != 3 {
		t.Errorf("want 3 tasks delivered, have %v", tasks)
	}
}

// TestContextEndsWithTheInput has a run's context end at the moment at which its only worker is done with a task and its
// input is closed already.
func TestContextEndsWithTheInput(t *testing.T) {
	rounds := 5000
	if testing.Short() {
		rounds = 500
	}
	for range rounds {
		gate := make(chan struct{})
		fm, err := New(func(_ context.Context, n int) (int, error) { <-gate; return n, nil }, 1, WithInputCapacity(3), WithResultCapacity(3))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := fm.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			if err := fm.Add(t.Context(), Task[int, int]{Data: n}); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { _ = fm.Finalize(context.Background()) })
		wg.Go(cancel)
		close(gate)
		wg.Wait()
		if n := fm.Counters(); n.Ended() != 3 {
			t.Fatalf("want 3 tasks with an outcome, have %+v", n)
		}
	}
}

type exitingHandler struct{ slog.Handler }

func (exitingHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level == slog.LevelError
}

func (exitingHandler) Handle(context.Context, slog.Record) error {
	runtime.Goexit()
	return nil
}

// TestLogOfABrokenHookExits has the log handler end its goroutine when it is told of a failed hook, wherever hooks are called.
func TestLogOfABrokenHookExits(t *testing.T) {
	boom := func() { panic("a bad hook") }
	hooks := Hooks{
		AttemptStarted: func(context.Context, Attempt) { boom() },
		AttemptEnded:   func(context.Context, Attempt, error) { boom() },
		TaskDone:       func(context.Context, TaskInfo) { boom() },
		RunEnded:       func(context.Context, Counters, error) { boom() },
	}
	log := slog.New(exitingHandler{slog.DiscardHandler})
	gate := make(chan struct{})
	fm, err := New(func(_ context.Context, n int) (int, error) { <-gate; return n, nil }, 1,
		WithHooks(hooks), WithLogger(log), WithInputCapacity(3), WithResultCapacity(3))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := fm.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if err := fm.Add(t.Context(), Task[int, int]{Data: n}); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	close(gate)
	_ = fm.Finalize(context.Background())
	if n := fm.Counters(); n.Ended() != 3 {
		t.Errorf("want 3 tasks with an outcome, have %+v", n)
	}
}

// TestNilPanic has a handler panic with nil where the process is set up to allow that: recover then says nothing, as it does
// during a Goexit, but the goroutine goes on.
func TestNilPanic(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	var now, most atomic.Int32
	fm, err := New(func(_ context.Context, n int) (int, error) {
		defer now.Add(-1)
		if c := now.Add(1); c > most.Load() {
			most.Store(c)
		}
		if n == 0 {
			panic(nil)
		}
		time.Sleep(time.Millisecond)
		return n, nil
	}, 1, WithInputCapacity(20), WithResultCapacity(20))
	if err != nil {
		t.Fatal(err)
	}
	if err := fm.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if err := fm.Add(t.Context(), Task[int, int]{Data: n}); err != nil {
			t.Fatal(err)
		}
	}
	if err := fm.Finalize(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := fm.Counters(); n.Failed != 1 || n.Succeeded != 19 || most.Load() != 1 {
		t.Errorf("%+v, and %d at once", n, most.Load())
	}
}

// slowLift is an outlet that takes its time when it hears that the run is ending.
type slowLift struct{ lifting func() }

func (slowLift) Deliver([]*Task[int, int]) {}
func (o slowLift) Lift()                   { o.lifting() }
func (slowLift) Close()                    {}

// TestNothingBeginsAtTheFailureLimit has the worker that reached the limit be held up before it can end the run: the others
// must not use the bound that is lifted, and begin nothing more.
func TestNothingBeginsAtTheFailureLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lifted, late atomic.Int32
		p, err := NewPlan(func(_ context.Context, n int) (int, error) {
			late.Add(lifted.Load())
			time.Sleep(time.Millisecond)
			if n == 5 {
				return 0, errors.New("a failure")
			}
			return n, nil
		}, 3, 1000, 1000, WithFailureLimit(1))
		if err != nil {
			t.Fatal(err)
		}
		inbox := p.NewInbox(true)
		for n := range 1000 {
			if _, err := inbox.Add(t.Context(), Task[int, int]{Data: n}, 0, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		lift := func() {
			lifted.Store(1)
			time.Sleep(time.Second)
		}
		crew := p.NewCrew(t.Context(), CrewConfig[int, int]{Intake: inbox, Outlet: slowLift{lift}})
		inbox.Open(crew)
		crew.Start()
		<-crew.Done()
		if n := late.Load(); n > 2 { // what the two others were just about to begin
			t.Errorf("%d tasks were begun after the failure limit was reached", n)
		}
	})
}
