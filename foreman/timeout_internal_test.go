package foreman

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// withTimeout runs f as the handler of one item with an attempt timeout of a second, and returns the task.
func withTimeout(t *testing.T, parent context.Context, opts []Option, f func(context.Context) error) Task[int, int] {
	t.Helper()
	fm, err := New(func(ctx context.Context, n int) (int, error) { return n, f(ctx) }, 1,
		append(opts, WithAttemptTimeout(time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := fm.Start(parent); err != nil {
		t.Fatal(err)
	}
	if err := fm.Add(context.Background(), Task[int, int]{}); err != nil {
		t.Fatal(err)
	}
	task, err := fm.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_ = fm.Stop()
	return task
}

// startCrew makes a crew with boxes on both sides.
func startCrew(ctx context.Context, p *Plan[int, int]) (*Crew[int, int], *Inbox[int, int], Outbox[int, int]) {
	inbox, outbox := p.NewInbox(true), p.NewOutbox()
	crew := p.NewCrew(ctx, CrewConfig[int, int]{Intake: inbox, Outlet: outbox})
	inbox.Open(crew)
	crew.Start()
	return crew, inbox, outbox
}

func TestTimeoutContext(t *testing.T) {
	type key struct{}
	parent := context.WithValue(context.Background(), key{}, "v")
	for name, opts := range map[string][]Option{
		"of the crew": nil,
		"of a task":   {WithTaskTimeout(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kept, child context.Context
				start := time.Now()
				task := withTimeout(t, parent, opts, func(ctx context.Context) error {
					kept = ctx
					if d, ok := ctx.Deadline(); !ok || d.Sub(start) != time.Second {
						t.Errorf("Deadline in %v, %v", d.Sub(start), ok)
					}
					if ctx.Value(key{}) != "v" || ctx.Err() != nil {
						t.Error("values are lost, or it begins ended")
					}
					var cancel context.CancelFunc
					child, cancel = context.WithCancel(ctx)
					defer cancel()
					<-child.Done()
					if ctx.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded || context.Cause(child) != context.DeadlineExceeded {
						t.Errorf("Err = %v, child's = %v", ctx.Err(), child.Err())
					}
					return ctx.Err()
				})
				var timeout *TimeoutError
				if !errors.As(task.Err, &timeout) || timeout.Scope != "attempt" || time.Since(start) != time.Second {
					t.Errorf("%v after %v", task.Err, time.Since(start))
				}
				<-kept.Done()
				ran := make(chan struct{})
				if stop := context.AfterFunc(kept, func() { close(ran) }); stop() {
					t.Error("an AfterFunc on an ended context was stopped")
				}
				<-ran
			})
		})
	}
}

// A context kept by a goroutine of the handler's ends with the call, and so do those derived from it.
func TestTimeoutContextEndsWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		stopped, ran := false, make(chan struct{})
		withTimeout(t, context.Background(), nil, func(ctx context.Context) error {
			child, cancel := context.WithTimeout(ctx, time.Minute)
			_ = cancel
			kept = child
			stopped = context.AfterFunc(ctx, func() { t.Error("it was stopped") })()
			context.AfterFunc(ctx, func() { close(ran) })
			return nil
		})
		<-kept.Done()
		<-ran
		if kept.Err() != context.Canceled || !stopped {
			t.Errorf("Err = %v, stopped = %v", kept.Err(), stopped)
		}
	})
}

// A context that nobody has listened to while the call went on tells those who come later that it has ended.
func TestTimeoutContextAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late context.Context
		withTimeout(t, context.Background(), nil, func(ctx context.Context) error {
			late = ctx
			return nil
		})
		<-late.Done()
		ran := make(chan struct{})
		if stop := late.(*timeoutContext).AfterFunc(func() { close(ran) }); stop() {
			t.Error("it was stopped")
		}
		<-ran
	})
}

// The run's end reaches calls that are under way, and shows its cause.
func TestTimeoutContextEndsWithTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("cause")
		parent, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Millisecond, func() { cancel(cause) })
		start := time.Now()
		task := withTimeout(t, parent, nil, func(ctx context.Context) error {
			<-ctx.Done()
			if context.Cause(ctx) != cause || ctx.Err() != context.Canceled {
				t.Errorf("Cause = %v, Err = %v", context.Cause(ctx), ctx.Err())
			}
			return ctx.Err()
		})
		if task.Outcome != Unfinished || !errors.Is(task.Err, cause) || time.Since(start) != time.Millisecond {
			t.Errorf("%v after %v", task.Err, time.Since(start))
		}
	})
}

// The timer of a worker belongs to one attempt after the other, and never ends another one than its own.
func TestTimeoutsOfSuccessiveAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fm, err := New(func(ctx context.Context, d time.Duration) (time.Duration, error) {
			start := time.Now()
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return time.Since(start), nil
		}, 1, WithAttemptTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := fm.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			d := time.Duration(i*37%20) * 100 * time.Millisecond
			if d == time.Second {
				d-- // at the very instant either may win
			}
			_ = fm.Add(t.Context(), Task[time.Duration, time.Duration]{Data: d})
		}
		go fm.Finalize(t.Context())
		for {
			task, err := fm.Next(t.Context())
			if err != nil {
				break
			}
			if want := min(task.Data, time.Second); task.Result != want {
				t.Errorf("a call of %v took %v", task.Data, task.Result)
			}
		}
	})
}

// An attempt that returns at the instant of its timeout leaves the timeout's strike behind, which the next one must survive.
func TestTimeoutAtTheInstantOfTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		fm, err := New(func(ctx context.Context, d time.Duration) (time.Duration, error) {
			begun := time.Now()
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return time.Since(begun), nil
		}, 1, WithAttemptTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := fm.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		const rounds = 300
		for range rounds {
			_ = fm.Add(t.Context(), Task[time.Duration, time.Duration]{Data: time.Second})
			_ = fm.Add(t.Context(), Task[time.Duration, time.Duration]{Data: time.Second - 1})
		}
		go fm.Finalize(t.Context())
		for {
			task, err := fm.Next(t.Context())
			if err != nil {
				break
			}
			if task.Result != task.Data {
				t.Fatalf("call %d of %v took %v", task.Index, task.Data, task.Result)
			}
		}
		if took := time.Since(start); took != rounds*(2*time.Second-1) {
			t.Errorf("it took %v", took)
		}
	})
}

func BenchmarkAttemptTimeout(b *testing.B) {
	b.Run("WithTimeout", func(b *testing.B) {
		b.ReportAllocs()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for b.Loop() {
			_, cancel := context.WithTimeout(ctx, time.Minute)
			cancel()
		}
	})
	b.Run("Attempt", func(b *testing.B) {
		p, err := NewPlan(func(context.Context, int) (int, error) { return 0, nil }, 1, 1, 1, WithAttemptTimeout(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		inbox := p.NewInbox(true)
		crew := p.NewCrew(context.Background(), CrewConfig[int, int]{Intake: inbox})
		w := newWorker(crew, 0)
		w.ctx = crew.ctx
		b.ReportAllocs()
		for b.Loop() {
			w.beginCall(1, true)
			w.endCall()
		}
		crew.InputDone()
		crew.Start()
		<-crew.Done()
	})
}

// A task's timeout ends the attempt that is under way, and everything derived from it, as the run's end and the end of the
// task's own context do.
func TestTaskTimeoutContext(t *testing.T) {
	cause := errors.New("cause")
	for name, opts := range map[string][]Option{
		"alone":                     {WithTaskTimeout(time.Second)},
		"around an attempt timeout": {WithTaskTimeout(time.Second), WithAttemptTimeout(time.Hour)},
	} {
		for _, end := range []string{"timeout", "run", "own context"} {
			t.Run(name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					own, cancelOwn := context.WithCancelCause(ctx)
					defer cancelOwn(nil)
					switch end {
					case "run":
						time.AfterFunc(time.Millisecond, func() { cancel(cause) })
					case "own context":
						time.AfterFunc(time.Millisecond, func() { cancelOwn(cause) })
					}
					var kept context.Context
					p, err := NewPlan(func(ctx context.Context, n int) (int, error) {
						var release context.CancelFunc
						kept, release = context.WithTimeout(ctx, time.Hour)
						defer release()
						if d, ok := ctx.Deadline(); !ok || time.Until(d) != time.Second {
							t.Errorf("Deadline in %v, %v", time.Until(d), ok)
						}
						<-kept.Done()
						return n, kept.Err()
					}, 1, 1, 1, opts...)
					if err != nil {
						t.Fatal(err)
					}
					crew, inbox, _ := startCrew(ctx, p)
					var of context.Context
					done := make(chan *Task[int, int], 1)
					reply := func(t *Task[int, int]) { c := *t; done <- &c }
					if end == "own context" {
						of = own
					}
					start := time.Now()
					if _, err := inbox.Add(ctx, Task[int, int]{}, 0, of, reply); err != nil {
						t.Fatal(err)
					}
					task, took := <-done, time.Millisecond
					var timeout *TimeoutError
					switch {
					case end == "timeout":
						took = time.Second
						if !errors.As(task.Err, &timeout) || timeout.Scope != "task" || task.Outcome != Failed || kept.Err() != context.DeadlineExceeded {
							t.Errorf("%v: %v; the context: %v", task.Outcome, task.Err, kept.Err())
						}
					case task.Outcome != Unfinished || !errors.Is(task.Err, cause) || kept.Err() != context.Canceled || context.Cause(kept) != cause:
						t.Errorf("%v: %v; the context: %v because of %v", task.Outcome, task.Err, kept.Err(), context.Cause(kept))
					}
					if d := time.Since(start); d != took {
						t.Errorf("it ended after %v, not after %v", d, took)
					}
					inbox.Close(nil)
					<-crew.Done()
				})
			})
		}
	}
}

// A context's Err says that it has ended only when Done says so too, also to those who ask all the time.
func TestTimeoutContextErrAndDone(t *testing.T) {
	for range 2000 {
		c := &timeoutContext{Context: context.Background()}
		_ = c.Done()
		go c.end(struck)
		for c.Err() == nil {
		}
		select {
		case <-c.Done():
		default:
			t.Fatal("Err says that it has ended, and Done is open")
		}
	}
}

// The cause of a context that has ended stays what it was when the run ends later, for whatever reason.
func TestTimeoutContextKeepsItsCause(t *testing.T) {
	for name, opts := range map[string][]Option{"attempt": nil, "task": {WithTaskTimeout(time.Millisecond)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.Background())
				var kept context.Context
				withTimeout(t, parent, opts, func(ctx context.Context) error {
					kept = ctx
					<-ctx.Done()
					return ctx.Err()
				})
				cancel(errors.New("another cause"))
				child, release := context.WithCancel(kept)
				defer release()
				if kept.Err() != context.DeadlineExceeded || context.Cause(kept) != context.DeadlineExceeded || context.Cause(child) != context.DeadlineExceeded {
					t.Errorf("Err = %v, Cause = %v, that of a child %v", kept.Err(), context.Cause(kept), context.Cause(child))
				}
			})
		})
	}
}

// Who keeps a context after its call keeps nothing of the run's.
func TestTimeoutContextKeepsNothing(t *testing.T) {
	for name, opts := range map[string][]Option{
		"attempt": {WithAttemptTimeout(time.Hour)},
		"task":    {WithTaskTimeout(time.Hour)},
		"both":    {WithAttemptTimeout(time.Hour), WithTaskTimeout(2 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			var kept context.Context
			gone := make(chan struct{})
			func() {
				type cargo [1 << 16]byte
				fm, err := New(func(ctx context.Context, c *cargo) (*cargo, error) {
					kept = ctx
					return c, nil
				}, 1, opts...)
				if err != nil {
					t.Fatal(err)
				}
				if err := fm.Start(context.Background()); err != nil {
					t.Fatal(err)
				}
				c := new(cargo)
				runtime.AddCleanup(c, func(gone chan struct{}) { close(gone) }, gone)
				if err := fm.Add(context.Background(), Task[*cargo, *cargo]{Data: c}); err != nil {
					t.Fatal(err)
				}
				_ = fm.Finalize(context.Background()) // the result stays unread
			}()
			for range 100 {
				runtime.GC()
				select {
				case <-gone:
					runtime.KeepAlive(kept)
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
			t.Error("the item is still reachable")
		})
	}
}

// Printing a context reads nothing that others change meanwhile, and names no address.
func TestTimeoutContextString(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &timeoutContext{Context: ctx, deadline: time.Unix(0, 0).UTC()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000 {
			c.AfterFunc(func() {})()
		}
	})
	for range 1000 {
		if s := fmt.Sprintf("%v", &attemptContext{c, mark{}}); s != "context.Background.WithCancel.WithDeadline(1970-01-01 00:00:00 +0000 UTC)" {
			t.Fatal(s)
		}
	}
	wg.Wait()
}

// The contexts of attempts say which attempt it is and what the limiter was asked, whatever kind of context that is.
func TestAttemptRequest(t *testing.T) {
	cost := WithCost(func(n int) int { return 7 + n })
	limiter := WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return nil }))
	key := WithKey(func(int) string { return "key" })
	for name, c := range map[string]struct {
		opts  []Option
		known bool
	}{
		"plain":                {[]Option{limiter, key, cost}, true},
		"with attempt timeout": {[]Option{limiter, key, cost, WithAttemptTimeout(time.Hour)}, true},
		"with task timeout":    {[]Option{limiter, key, cost, WithTaskTimeout(time.Hour)}, true},
		"with both":            {[]Option{limiter, key, cost, WithTaskTimeout(time.Hour), WithAttemptTimeout(time.Hour)}, true},
		"without cost":         {[]Option{limiter, key}, false},
		"without limiter":      {[]Option{cost}, false},
	} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, own context %v", name, own), func(t *testing.T) {
				calls := 0
				handler := func(ctx context.Context, n int) (int, error) {
					calls++
					derived, cancel := context.WithCancel(ctx)
					defer cancel()
					if n := AttemptNumber(derived); n != calls {
						t.Errorf("attempt %d says it is %d", calls, n)
					}
					want := ratelimiter.Request{}
					if c.known {
						want = ratelimiter.Request{Worker: 0, Index: 0, Attempt: calls, Cost: 10, Key: "key"}
					}
					if req, ok := AttemptRequest(derived); req != want || ok != c.known {
						t.Errorf("attempt %d: request %+v, %v, want %+v", calls, req, ok, want)
					}
					if calls < 3 {
						return 0, errors.New("again")
					}
					return n, nil
				}
				p, err := NewPlan(handler, 1, 1, 1, append(c.opts, WithRetry(retry.Policy{Max: 3}))...)
				if err != nil {
					t.Fatal(err)
				}
				crew, inbox, outbox := startCrew(t.Context(), p)
				var of context.Context
				if own {
					of = crew.Context()
				}
				if _, err := inbox.Add(t.Context(), Task[int, int]{Data: 3}, 0, of, nil); err != nil {
					t.Fatal(err)
				}
				if task, _, _ := outbox.Next(t.Context()); task.Outcome != Succeeded || calls != 3 {
					t.Errorf("%v after %d calls", task, calls)
				}
				inbox.Close(nil)
				<-crew.Done()
			})
		}
	}
	if req, ok := AttemptRequest(context.Background()); ok {
		t.Errorf("a context from elsewhere has the request %+v", req)
	}
}

// The run's end looks at the contexts of calls that are just being released. It is the race detector that checks this.
func TestTimeoutContextReleasedAsTheRunEnds(t *testing.T) {
	for range 300 {
		gate := make(chan struct{})
		p, err := NewPlan(func(_ context.Context, n int) (int, error) { <-gate; return n, nil }, 1, 1, 1,
			WithAttemptTimeout(time.Hour), WithTaskTimeout(2*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		crew, inbox, outbox := startCrew(t.Context(), p)
		own, cancel := context.WithCancel(crew.Context())
		if _, err := inbox.Add(t.Context(), Task[int, int]{}, 0, own, nil); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { crew.Cancel(ErrStopped) })
		close(gate)
		wg.Wait()
		<-crew.Done()
		cancel()
		if tasks := outbox.Drain(); len(tasks) != 1 || tasks[0].Outcome == 0 {
			t.Fatalf("%v", tasks)
		}
	}
}
