package penstock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// ended is a context that has ended, with a cause.
func ended() context.Context {
	ctx, cancel := context.WithCancelCause(background)
	cancel(errWhy)
	return ctx
}

// A result of something that was begun in the background.
type result struct {
	id  string
	err error
}

func submitAsync(ctx context.Context, run *intRun, n int, opts ...penstock.SubmitOption) <-chan result {
	c := make(chan result, 1)
	go func() {
		id, err := run.Submit(ctx, n, opts...)
		c <- result{id, err}
	}()
	return c
}

// waiting reports that nothing has come yet, once everything is at rest.
func waiting[T any](c <-chan T) bool {
	synctest.Wait()
	return len(c) == 0
}

// fullRun is a run with one worker that holds item 0, and item 1 pending: the next Submit waits.
func fullRun(t *testing.T, handler intHandler, opts ...penstock.Option) *intRun {
	run := newInts(t, handler, 1, append(opts, penstock.WithInputCapacity(1))...).Start(background)
	mustSubmit(t, run, 0, 1)
	synctest.Wait()
	return run
}

func TestIDs(t *testing.T) {
	run := newInts(t, double, 1, penstock.WithInputCapacity(10), penstock.WithResultCapacity(10)).Start(background)
	t.Run("S1 I1 I2 I3 S15 ids count accepted items, and are labels", func(t *testing.T) {
		for i, c := range []struct{ given, want string }{{"", "0"}, {"x", "x"}, {"", "2"}, {"2", "2"}, {"x", "x"}} {
			var opts []penstock.SubmitOption
			if c.given != "" {
				opts = append(opts, penstock.WithID(c.given))
			} else if i == 0 {
				opts = append(opts, penstock.WithID("")) // means none
			}
			if id, err := run.Submit(background, i, opts...); id != c.want || err != nil {
				t.Errorf("item %d: %q, %v", i, id, err)
			}
		}
		if err := run.Finish(background); err != nil {
			t.Fatal(err)
		}
		tasks := run.Drain()
		if tally(t, tasks); len(tasks) != 5 || tasks[1].ID() != "x" || tasks[3].ID() != "2" || tasks[3].Index != 3 || tasks[4].ID() != "x" {
			t.Errorf("%+v", tasks)
		}
	})
	t.Run("I4 numbers are given out once, in order, without gaps", func(t *testing.T) {
		run := newInts(t, double, 3, penstock.WithResultCapacity(penstock.Unlimited)).Start(background)
		var wg sync.WaitGroup
		ids := make([]map[string]bool, 4)
		for g := range ids {
			ids[g] = map[string]bool{}
			wg.Go(func() {
				for i := range 500 {
					id, err := run.Submit(background, i)
					if err != nil {
						t.Error(err)
					}
					ids[g][id] = true
				}
			})
		}
		wg.Wait()
		all := map[string]bool{}
		for _, m := range ids {
			for id := range m {
				all[id] = true
			}
		}
		if len(all) != 2000 || !all["0"] || !all["1999"] {
			t.Errorf("%d different ids", len(all))
		}
		if err := run.Finish(background); err != nil || tally(t, run.Drain()).Succeeded != 2000 {
			t.Error(err)
		}
	})
	t.Run("I5 L1 each Start is a run of its own", func(t *testing.T) {
		e := newInts(t, double, 1, penstock.WithResultCapacity(penstock.Unlimited))
		a, b := e.Start(background), e.Start(background)
		for _, run := range []*intRun{a, b} {
			if id, err := run.Submit(background, 1); id != "0" || err != nil {
				t.Errorf("%q, %v", id, err)
			}
		}
		if err := a.Stop(background); err != nil && err != penstock.ErrStopped {
			t.Error(err)
		}
		mustSubmit(t, b, 2)
		if err := b.Finish(background); err != nil {
			t.Error(err)
		}
	})
}

func TestSubmitWaits(t *testing.T) {
	for _, c := range []struct{ workers, input int }{{1, 1}, {2, 1}, {2, 2}, {3, 2}, {3, 0}} {
		t.Run(fmt.Sprintf("S4 S5 with %d workers and room for %d", c.workers, c.input), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				var opts []penstock.Option
				room := c.workers // by default
				if c.input > 0 {
					room = c.input
					opts = append(opts, penstock.WithInputCapacity(c.input))
				}
				run := newInts(t, until(gate), c.workers, opts...).Start(background)
				mustSubmit(t, run, numbers(c.workers+room)...)
				next := submitAsync(background, run, 99)
				if !waiting(next) {
					t.Error("accepted one too many")
				}
				if n := run.Counters(); n != (penstock.Counters{Pending: room, Running: c.workers}) {
					t.Errorf("%+v", n)
				}
				gate <- struct{}{}
				if r := <-next; r.err != nil || r.id != fmt.Sprint(c.workers+room) {
					t.Errorf("%+v", r)
				}
				close(gate)
				go run.Finish(background)
				if tasks, err := drainRun(t, run); len(tasks) != c.workers+room+1 || err != penstock.ErrNoMoreResults {
					t.Errorf("%d tasks, %v", len(tasks), err)
				}
			})
		})
	}
	t.Run("S17 waiting submitters are admitted in order of arrival, whatever their priority", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			run := fullRun(t, until(gate), penstock.WithResultCapacity(penstock.Unlimited))
			var order []int
			for i := range 5 {
				go func() {
					if _, err := run.Submit(background, 2+i, penstock.AtPriority(-i)); err != nil {
						t.Error(err)
					}
					order = append(order, i)
				}()
				synctest.Wait()
			}
			for i := range 5 {
				gate <- struct{}{}
				if synctest.Wait(); len(order) != i+1 || order[i] != i {
					t.Fatalf("after %d handlers: %v", i+1, order)
				}
			}
			close(gate)
			if err := run.Finish(background); err != nil {
				t.Error(err)
			}
			for i, task := range run.Drain() {
				if task.Index != task.Data {
					t.Errorf("at %d: %+v", i, task)
				}
			}
		})
	})
}

func TestSubmitIsRefused(t *testing.T) {
	t.Run("S6 a cancelled blocked submit never runs, and leaves no gap", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			run := fullRun(t, until(gate), penstock.WithResultCapacity(penstock.Unlimited))
			ctx, cancel := context.WithCancelCause(background)
			third := submitAsync(ctx, run, 666)
			fourth := submitAsync(background, run, 3)
			if !waiting(third) || !waiting(fourth) {
				t.Fatal("there should be no room")
			}
			cancel(errWhy)
			if r := <-third; r.id != "" || !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, errWhy) {
				t.Errorf("%+v", r)
			}
			close(gate)
			if r := <-fourth; r.id != "2" || r.err != nil {
				t.Errorf("%+v", r)
			}
			// L12: the run has not noticed.
			if err := run.Finish(background); err != nil {
				t.Error(err)
			}
			tasks := run.Drain()
			if tally(t, tasks); len(tasks) != 3 || slices.ContainsFunc(tasks, func(t intTask) bool { return t.Data == 666 }) {
				t.Errorf("%+v", tasks)
			}
		})
	})
	t.Run("B65 a blocked submit leaves at its deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := fullRun(t, slow(2*time.Second))
			ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
			defer cancel()
			start := time.Now()
			if _, err := run.Submit(ctx, 666); !blocked(err, "room") || time.Since(start) != 50*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			go run.Finish(background)
			if tasks, _ := drainRun(t, run); len(tasks) != 2 {
				t.Errorf("%d tasks", len(tasks))
			}
		})
	})
	t.Run("a context that has ended is refused, also when there is room", func(t *testing.T) {
		run := newInts(t, double, 1).Start(background)
		if id, err := run.Submit(ended(), 1); id != "" || !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
			t.Errorf("%q, %v", id, err)
		}
		if _, err := run.Do(ended(), 1); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
			t.Error(err)
		}
		if c := run.Counters(); c != (penstock.Counters{}) {
			t.Errorf("%+v", c)
		}
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
	})
	t.Run("S8 S14 after CloseInput and after Finish, before and after the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, closeInput := range []func(*intRun){(*intRun).CloseInput, func(run *intRun) { go run.Finish(background) }} {
				run := newInts(t, slow(time.Second), 1).Start(background)
				mustSubmit(t, run, 1)
				closeInput(run)
				synctest.Wait()
				for range 2 {
					if _, err := run.Submit(background, 2); err != penstock.ErrInputClosed {
						t.Error(err)
					}
					if _, err := run.Do(background, 2); err != penstock.ErrInputClosed {
						t.Error(err)
					}
					<-run.Done()
				}
				if tasks := run.Drain(); len(tasks) != 1 || tasks[0].Outcome != penstock.Succeeded {
					t.Errorf("%+v", tasks)
				}
			}
		})
	})
	t.Run("S13 a submit that waits is refused when the input is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			run := fullRun(t, until(gate))
			blocked := submitAsync(background, run, 666)
			if !waiting(blocked) {
				t.Fatal("there is room")
			}
			run.CloseInput()
			if r := <-blocked; r.err != penstock.ErrInputClosed {
				t.Errorf("%+v", r)
			}
			close(gate)
			if tasks, err := drainRun(t, run); len(tasks) != 2 || err != penstock.ErrNoMoreResults {
				t.Errorf("%d tasks, %v", len(tasks), err)
			}
			if c := run.Counters(); c != (penstock.Counters{Succeeded: 2}) {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("S9 S12 when the run fails, waiting or coming later, with the run's error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			run := fullRun(t, func(context.Context, int) (int, error) { <-gate; return 0, errX }, penstock.WithFailureLimit(1))
			blocked := submitAsync(background, run, 666)
			if !waiting(blocked) {
				t.Fatal("there is room")
			}
			close(gate)
			r := <-blocked
			var many *penstock.TooManyFailuresError
			if !errors.As(r.err, &many) || many.Err != errX {
				t.Errorf("%+v", r)
			}
			<-run.Done()
			for range 2 {
				if _, err := run.Submit(background, 667); err != r.err || err != run.Err() {
					t.Error(err)
				}
			}
		})
	})
	t.Run("S12 submitting on and on to a run that fails comes to an end", func(t *testing.T) {
		watch(t)
		run := newInts(t, func(context.Context, int) (int, error) { return 0, errX }, 1, penstock.WithInputCapacity(1), penstock.WithFailureLimit(1)).Start(background)
		var many *penstock.TooManyFailuresError
		for i := 0; ; i++ {
			if _, err := run.Submit(background, i); err != nil {
				if !errors.As(err, &many) {
					t.Error(err)
				}
				break
			}
		}
		<-run.Done()
	})
	t.Run("S10 S11 L21 when the run is stopped, waiting, during the cleanup and later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := fullRun(t, func(ctx context.Context, _ int) (int, error) {
				<-ctx.Done()
				time.Sleep(time.Second)
				return 0, ctx.Err()
			})
			blocked := submitAsync(background, run, 666)
			if !waiting(blocked) {
				t.Fatal("there is room")
			}
			start := time.Now()
			stopped := make(chan error, 1)
			go func() { stopped <- run.Stop(background) }()
			if r := <-blocked; r.err != penstock.ErrStopped || time.Since(start) != 0 {
				t.Errorf("%+v after %v", r, time.Since(start))
			}
			if _, err := run.Submit(background, 667); err != penstock.ErrStopped || !waiting(stopped) {
				t.Error(err)
			}
			if err := <-stopped; err != nil || time.Since(start) != time.Second {
				t.Errorf("Stop returned %v after %v", err, time.Since(start))
			}
			if _, err := run.Submit(background, 668); err != penstock.ErrStopped {
				t.Error(err)
			}
			if _, err := run.Do(background, 669); err != penstock.ErrStopped {
				t.Error(err)
			}
			run.CloseInput() // changes nothing
			if _, err := run.Submit(background, 670); err != penstock.ErrStopped {
				t.Error(err)
			}
		})
	})
	t.Run("S10 as soon as Stop has returned, also when it did not wait", func(t *testing.T) {
		for range 100 {
			run := newInts(t, double, 1).Start(background)
			run.Stop(ended())
			if _, err := run.Submit(background, 1); err != penstock.ErrStopped {
				t.Fatal(err)
			}
			<-run.Done()
		}
	})
	t.Run("L24 when the run's context has ended", func(t *testing.T) {
		for range 100 {
			ctx, cancel := context.WithCancelCause(background)
			run := newInts(t, double, 1).Start(ctx)
			cancel(errWhy)
			if _, err := run.Submit(background, 1); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
				t.Fatal(err)
			}
			<-run.Done()
			if _, err := run.Submit(background, 1); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
				t.Fatal(err)
			}
		}
	})
}

func TestSubmitFromAHandler(t *testing.T) {
	t.Run("S16 what a handler submits belongs to the same run", func(t *testing.T) {
		var run *intRun
		run = newInts(t, func(ctx context.Context, n int) (int, error) {
			if n > 0 {
				_, err := run.Submit(ctx, n-1)
				return n, err
			}
			run.CloseInput()
			return 0, nil
		}, 1, penstock.WithResultCapacity(penstock.Unlimited)).Start(background)
		mustSubmit(t, run, 5)
		<-run.Done()
		tasks := run.Drain()
		if c := tally(t, tasks); c.Succeeded != 6 || tasks[5].Data != 0 || run.Err() != nil {
			t.Errorf("%+v, %v", tasks, run.Err())
		}
	})
	t.Run("B68 a handler that finds its own input full gives up at its deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var run *intRun
			inner := make(chan error, 2)
			run = newInts(t, func(ctx context.Context, n int) (int, error) {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				time.Sleep(time.Millisecond)
				if n == 0 {
					_, err := run.Submit(ctx, 100)
					inner <- err
				}
				return n, nil
			}, 1, penstock.WithResultCapacity(penstock.Unlimited)).Start(background)
			mustSubmit(t, run, 0, 1)
			if err := <-inner; !blocked(err, "room") {
				t.Error(err)
			}
			if err := run.Finish(background); err != nil || len(run.Drain()) != 2 {
				t.Error(err)
			}
		})
	})
}

// Accepted or refused, exactly once, whatever happens at the same moment: the end of the submitter's context or of the
// run's, Stop, CloseInput, a failure. An accepted item has exactly one outcome; a refused one is never seen again.
func TestSubmitRaces(t *testing.T) {
	watch(t)
	const submitters, each = 4, 100
	ends := map[string]func(run *intRun, cancel func()){
		"Stop":       func(run *intRun, _ func()) { run.Stop(background) },
		"ctx ends":   func(_ *intRun, cancel func()) { cancel() },
		"CloseInput": func(run *intRun, _ func()) { run.CloseInput() },
		"Finish":     func(run *intRun, _ func()) { run.Finish(background) },
		"failure":    nil, // see the handler
		"both":       func(run *intRun, cancel func()) { go cancel(); go run.CloseInput(); run.Stop(background) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			accepted, refused := 0, 0
			for round := range 25 {
				random := rand.New(rand.NewPCG(1, uint64(round)))
				endAt := int64(1 + random.IntN(submitters*each))
				var calls atomic.Int64
				due := make(chan struct{})
				handled := make([]atomic.Int32, submitters*each)
				opts := []penstock.Option{penstock.WithInputCapacity(1 + random.IntN(4)), penstock.WithResultCapacity(1 + random.IntN(4)), penstock.WithBatch(1 + random.IntN(3))}
				if end == nil {
					opts = append(opts, penstock.WithFailureLimit(1))
				}
				e := newInts(t, func(_ context.Context, n int) (int, error) {
					handled[n].Add(1)
					if calls.Add(1) == endAt/2+1 && end == nil {
						return 0, errX
					}
					return n, nil
				}, 1+random.IntN(3), opts...)
				runCtx, cancelRun := context.WithCancel(background)
				run := e.Start(runCtx)

				ok := make([]bool, submitters*each)
				var submitted atomic.Int64
				var wg sync.WaitGroup
				for s := range submitters {
					wg.Go(func() {
						for i := range each {
							n := s*each + i
							if submitted.Add(1) == endAt {
								close(due)
							}
							ctx, cancel := context.WithCancel(background)
							if n%3 == 0 {
								go cancel()
							}
							id, err := run.Submit(ctx, n)
							cancel()
							ok[n] = err == nil
							if (id == "") != (err != nil) {
								t.Errorf("id %q and error %v", id, err)
							}
						}
					})
				}
				if end != nil {
					wg.Go(func() { <-due; end(run, cancelRun) })
				}
				var tasks []intTask
				read := make(chan struct{})
				go func() {
					defer close(read)
					tasks, _ = drainRun(t, run)
				}()
				wg.Wait()
				run.CloseInput()
				<-read
				cancelRun()

				outcomes := make([]int, len(ok))
				c := tally(t, tasks)
				for _, task := range tasks {
					outcomes[task.Data]++
					if seen := handled[task.Data].Load(); int(seen) != task.Attempts || seen > 1 {
						t.Fatalf("item %d was handled %d times and says %d", task.Data, seen, task.Attempts)
					}
				}
				for n, ok := range ok {
					if ok && outcomes[n] != 1 || !ok && (outcomes[n] != 0 || handled[n].Load() != 0) {
						t.Fatalf("item %d: accepted %v, %d outcomes, handled %d times", n, ok, outcomes[n], handled[n].Load())
					}
					if ok {
						accepted++
					} else {
						refused++
					}
				}
				if got := run.Counters(); got != c {
					t.Fatalf("counters %+v, tasks %+v", got, c)
				}
			}
			if accepted == 0 || refused == 0 {
				t.Errorf("%d accepted, %d refused: that was no race", accepted, refused)
			}
		})
	}
}

func TestFinish(t *testing.T) {
	t.Run("L3 L4 L5 it waits until all is done, whether or not it was read", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Second), 2).Start(background)
			start := time.Now()
			mustSubmit(t, run, 1, 2)
			if err := run.Finish(background); err != nil || time.Since(start) != time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if tasks := run.Drain(); tally(t, tasks).Succeeded != 2 {
				t.Errorf("%+v", tasks)
			}
			empty := newInts(t, double, 2).Start(background)
			if err := empty.Finish(background); err != nil || empty.Drain() != nil {
				t.Error(err)
			}
			consumed := newInts(t, double, 2).Start(background)
			mustSubmit(t, consumed, 1)
			if _, err := consumed.Next(background); err != nil {
				t.Error(err)
			}
			if err := consumed.Finish(background); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("L6 L9 B53 twice and from several callers, with CloseInput and Stop before, beside and after", func(t *testing.T) {
		watch(t)
		for range 20 {
			run := newInts(t, double, 2).Start(background)
			mustSubmit(t, run, 1, 2)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if err := run.Finish(background); err != nil {
						t.Error(err)
					}
				})
				wg.Go(run.CloseInput)
			}
			wg.Wait()
			for range 2 {
				if run.Finish(background) != nil || run.Stop(background) != nil || run.Err() != nil {
					t.Error(run.Err())
				}
			}
			run.CloseInput()
		}
	})
	t.Run("L9 CloseInput alone ends a run when its work is done", func(t *testing.T) {
		run := newInts(t, double, 1).Start(background)
		mustSubmit(t, run, 1)
		run.CloseInput()
		run.CloseInput()
		<-run.Done()
		if len(run.Drain()) != 1 || run.Err() != nil {
			t.Error(run.Err())
		}
		run = newInts(t, double, 1).Start(background)
		run.CloseInput() // with nothing in it
		<-run.Done()
	})
	t.Run("L7 the run's error, each time", func(t *testing.T) {
		run := newInts(t, func(context.Context, int) (int, error) { return 0, errX }, 1, penstock.WithFailureLimit(1)).Start(background)
		mustSubmit(t, run, 1)
		first := run.Finish(background)
		var many *penstock.TooManyFailuresError
		if !errors.As(first, &many) {
			t.Error(first)
		}
		for range 2 {
			if run.Finish(background) != first || run.Err() != first || run.Stop(background) != first {
				t.Error(run.Err())
			}
		}
	})
	t.Run("L10 L11 when its context ends first it only stops waiting, the input stays closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Second), 1).Start(background)
			mustSubmit(t, run, 1)
			other := make(chan error, 1)
			go func() { other <- run.Finish(background) }()
			ctx, cancel := context.WithTimeoutCause(background, 20*time.Millisecond, errWhy)
			defer cancel()
			start := time.Now()
			if err := run.Finish(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) || time.Since(start) != 20*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if err := run.Finish(ended()); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
				t.Error(err)
			}
			if _, err := run.Submit(background, 2); err != penstock.ErrInputClosed {
				t.Error(err)
			}
			if err := <-other; err != nil || time.Since(start) != time.Second {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if err := run.Finish(ended()); err != nil { // all is done: there is nothing to wait for
				t.Error(err)
			}
			if tasks := run.Drain(); tally(t, tasks).Succeeded != 1 {
				t.Errorf("%+v", tasks)
			}
		})
	})
	t.Run("B32 an item that fails while Finish waits is delivered", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, func(context.Context, int) (int, error) { time.Sleep(100 * time.Millisecond); return 0, errX }, 1).Start(background)
			mustSubmit(t, run, 1)
			go run.Finish(background)
			tasks, err := collect(t, run.Results())
			if len(tasks) != 1 || tasks[0].Err != errX || err != nil {
				t.Errorf("%+v, %v", tasks, err)
			}
		})
	})
}

func TestStop(t *testing.T) {
	t.Run("L13 L19 it cuts off whatever tasks wait for, and every result stays readable", func(t *testing.T) {
		for name, c := range map[string]struct {
			handler intHandler
			opts    []penstock.Option
			want    penstock.Counters
		}{
			"a handler": {handler: slow(time.Hour), want: penstock.Counters{Unfinished: 3}},
			"the limiter": {handler: double, want: penstock.Counters{Unfinished: 3},
				opts: []penstock.Option{penstock.WithLimiter(ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
					return pause(ctx, time.Hour)
				}))}},
			"a backoff": {handler: func(context.Context, int) (int, error) { return 0, errX }, want: penstock.Counters{Unfinished: 3},
				opts: []penstock.Option{penstock.WithRetry(retry.Policy{Max: 9, Backoff: retry.Constant(time.Hour)})}},
			"a reader": {handler: double, want: penstock.Counters{Succeeded: 2, Unfinished: 1},
				opts: []penstock.Option{penstock.WithResultCapacity(1)}},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					run := newInts(t, c.handler, 1, append(c.opts, penstock.WithInputCapacity(2))...).Start(background)
					mustSubmit(t, run, 0, 1, 2)
					synctest.Wait()
					start := time.Now()
					if err := run.Stop(background); err != nil || time.Since(start) != 0 {
						t.Errorf("after %v: %v", time.Since(start), err)
					}
					if run.Err() != penstock.ErrStopped {
						t.Error(run.Err())
					}
					if got := run.Counters(); got != c.want {
						t.Errorf("%+v", got)
					}
					tasks, err := drainRun(t, run)
					if got := tally(t, tasks); got != c.want || err != penstock.ErrStopped {
						t.Errorf("%+v, %v", got, err)
					}
					for _, task := range tasks {
						if task.Outcome == penstock.Unfinished && (!isUnfinished(task.Err) || !errors.Is(task.Err, penstock.ErrStopped) || !errors.Is(task.Err, context.Canceled)) {
							t.Error(task.Err)
						}
						if name == "a backoff" && task.Index == 0 && (!errors.Is(task.Err, errX) || task.Attempts != 1) {
							t.Errorf("the last attempt's error is lost: %+v", task)
						}
					}
				})
			})
		}
	})
	t.Run("B76 L17 done, cut off and not run can be told apart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(100*time.Millisecond), 2, penstock.WithInputCapacity(10)).Start(background)
			mustSubmit(t, run, numbers(10)...)
			time.Sleep(150 * time.Millisecond)
			if err := run.Stop(background); err != nil {
				t.Error(err)
			}
			var done, cut, untouched int
			for _, task := range run.Drain() {
				switch {
				case task.Outcome == penstock.Succeeded:
					done++
				case task.Attempts > 0:
					cut++
				default:
					untouched++
				}
			}
			if done != 2 || cut != 2 || untouched != 6 {
				t.Errorf("%d done, %d cut off, %d not run", done, cut, untouched)
			}
		})
	})
	t.Run("L14 L15 with nothing to cut off it is no failure", func(t *testing.T) {
		for name, prepare := range map[string]func(*intRun){
			"nothing submitted": func(*intRun) {},
			"all done":          func(run *intRun) { run.Submit(background, 1); run.Next(background) },
			"finished":          func(run *intRun) { run.Submit(background, 1); run.Finish(background) },
		} {
			run := newInts(t, double, 1).Start(background)
			prepare(run)
			for range 2 {
				if err := run.Stop(background); err != nil || run.Err() != nil {
					t.Errorf("%s: %v, %v", name, err, run.Err())
				}
			}
			if name == "finished" {
				run.Drain()
			}
			if _, err := run.Next(background); err != penstock.ErrNoMoreResults {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("L15 from several callers at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Hour), 1).Start(background)
			mustSubmit(t, run, 1)
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if err := run.Stop(background); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	})
	t.Run("L16 after a failure it returns the failure, each time", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(background)
		run := newInts(t, double, 1).Start(ctx)
		cancel(errWhy)
		<-run.Done()
		for range 2 {
			if err := run.Stop(background); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) || err != run.Err() {
				t.Error(err)
			}
		}
	})
	t.Run("a failure that comes while it stops does not replace ErrStopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, func(ctx context.Context, _ int) (int, error) {
				<-ctx.Done()
				panic("in the cleanup")
			}, 1, penstock.WithFailureLimit(1)).Start(background)
			mustSubmit(t, run, 1, 2)
			synctest.Wait()
			if err := run.Stop(background); err != nil {
				t.Error("Stop:", err)
			}
			if err := run.Err(); !errors.Is(err, penstock.ErrStopped) {
				t.Error("Err:", err)
			}
			if tasks := run.Drain(); tally(t, tasks) != (penstock.Counters{Failed: 1, Unfinished: 1}) {
				t.Errorf("%+v", tasks)
			}
		})
	})
	t.Run("L26 nothing is retried and nothing new starts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			run := newInts(t, func(ctx context.Context, n int) (int, error) {
				calls.Add(1)
				<-ctx.Done()
				return 0, errX
			}, 2, penstock.WithRetry(retry.Policy{Max: 9})).Start(background)
			mustSubmit(t, run, numbers(4)...)
			synctest.Wait()
			if err := run.Stop(background); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
			if calls.Load() != 2 {
				t.Errorf("%d handler calls", calls.Load())
			}
			for _, task := range run.Drain() {
				if task.Outcome != penstock.Unfinished || errors.Is(task.Err, errX) != (task.Attempts == 1) {
					t.Errorf("%+v", task)
				}
			}
		})
	})
	t.Run("L25 a handler that returns a value after all has succeeded, and the worker goes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, func(ctx context.Context, n int) (int, error) {
				<-ctx.Done()
				return n, nil
			}, 1).Start(background)
			mustSubmit(t, run, 7)
			synctest.Wait()
			if err := run.Stop(background); err != nil || run.Err() != nil { // it cut nothing off
				t.Errorf("%v, %v", err, run.Err())
			}
			if tasks := run.Drain(); len(tasks) != 1 || tasks[0].Outcome != penstock.Succeeded || tasks[0].Result != 7 {
				t.Errorf("%+v", tasks)
			}
		})
	})
	t.Run("L20 L25 B15 a handler that ignores its context: what still runs is named, and Done comes later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, func(_ context.Context, n int) (int, error) {
				time.Sleep(time.Duration(n) * time.Second)
				return n, nil
			}, 3).Start(background)
			run.Submit(background, 3, penstock.WithID("three"))
			time.Sleep(time.Second)
			mustSubmit(t, run, 4, 5, 1, 1)
			time.Sleep(time.Millisecond)
			ctx, cancel := context.WithTimeoutCause(background, 100*time.Millisecond, errWhy)
			defer cancel()
			start := time.Now()
			err := run.Stop(ctx)
			if time.Since(start) != 100*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			var still *penstock.StillRunningError
			if !errors.As(err, &still) || len(still.Tasks) != 3 {
				t.Fatalf("%v", err)
			}
			want := []penstock.RunningTask{
				{Index: 0, ID: "three", For: 1101 * time.Millisecond},
				{Index: 1, ID: "1", For: 101 * time.Millisecond},
				{Index: 2, ID: "2", For: 101 * time.Millisecond},
			}
			slices.SortFunc(still.Tasks[1:], func(a, b penstock.RunningTask) int { return a.Index - b.Index }) // equally long
			if !slices.Equal(still.Tasks, want) {
				t.Errorf("%+v", still.Tasks)
			}
			if text := err.Error(); !strings.Contains(text, "task three for 1.101s") || !strings.Contains(text, "3 tasks still running") {
				t.Error(text)
			}
			select {
			case <-run.Done():
				t.Error("done already")
			default:
			}
			if run.Err() != nil {
				t.Error("Err before the end:", run.Err())
			}
			if err := run.Stop(ended()); !errors.As(err, &still) { // a second one does not wait either
				t.Error(err)
			}
			<-run.Done()
			if since := time.Since(start); since != 5*time.Second-time.Millisecond {
				t.Errorf("Done after %v", since)
			}
			if err := run.Stop(ended()); err != nil || run.Err() != penstock.ErrStopped {
				t.Errorf("%v, %v", err, run.Err())
			}
			if c := run.Counters(); c != (penstock.Counters{Succeeded: 3, Unfinished: 2}) {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("a long list of running tasks is cut short in the text", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, func(context.Context, int) (int, error) { time.Sleep(time.Second); return 0, nil }, 50).Start(background)
			mustSubmit(t, run, numbers(50)...)
			synctest.Wait()
			err := run.Stop(ended())
			var still *penstock.StillRunningError
			if !errors.As(err, &still) || len(still.Tasks) != 50 || strings.Count(err.Error(), " for ") != 5 {
				t.Error(err)
			}
			<-run.Done()
		})
	})
}

func TestRunContext(t *testing.T) {
	t.Run("B44 L24 its end cancels the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, after := range []func(*intRun, context.Context) error{(*intRun).Finish, (*intRun).Stop} {
				ctx, cancel := context.WithCancelCause(background)
				run := newInts(t, slow(time.Hour), 1, penstock.WithInputCapacity(5)).Start(ctx)
				mustSubmit(t, run, 0, 1, 2)
				synctest.Wait()
				cancel(errWhy)
				if err := after(run, background); !errors.Is(err, context.Canceled) || !errors.Is(err, errWhy) {
					t.Error(err)
				}
				tasks, err := drainRun(t, run)
				if c := tally(t, tasks); c != (penstock.Counters{Unfinished: 3}) || !errors.Is(err, errWhy) || err != run.Err() {
					t.Errorf("%+v, %v", c, err)
				}
				for _, task := range tasks {
					if task.Attempts != 0 != (task.Index == 0) || !errors.Is(task.Err, context.Canceled) || !errors.Is(task.Err, errWhy) {
						t.Errorf("%+v", task)
					}
				}
			}
		})
	})
	t.Run("its deadline, with the deadline's cause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(background, time.Second, errWhy)
			defer cancel()
			run := newInts(t, slow(time.Hour), 1).Start(ctx)
			mustSubmit(t, run, 0)
			tasks, err := drainRun(t, run)
			for _, err := range []error{err, run.Err(), tasks[0].Err} {
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) || errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				var timeout *penstock.TimeoutError
				if errors.As(err, &timeout) {
					t.Error("it is the caller's deadline, not a timeout of ours:", err)
				}
			}
		})
	})
	t.Run("a run that was idle when it ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		run := newInts(t, double, 1).Start(ctx)
		if _, err := run.Do(background, 1); err != nil {
			t.Error(err)
		}
		cancel()
		<-run.Done()
		if run.Err() != context.Canceled {
			t.Error(run.Err())
		}
	})
	t.Run("a run that was finished before is not touched", func(t *testing.T) {
		ctx, cancel := context.WithCancel(background)
		run := newInts(t, double, 1).Start(ctx)
		mustSubmit(t, run, 1)
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
		cancel()
		if task, err := run.Next(background); err != nil || task.Result != 2 {
			t.Errorf("%+v, %v", task, err)
		}
		if _, err := run.Next(background); err != penstock.ErrNoMoreResults || run.Err() != nil || run.Finish(background) != nil {
			t.Error(err, run.Err())
		}
	})
	t.Run("handlers see the values of the context of Start", func(t *testing.T) {
		type key struct{}
		e := newInts(t, func(ctx context.Context, n int) (int, error) { return ctx.Value(key{}).(int) + n, nil }, 1)
		run := e.Start(context.WithValue(background, key{}, 40))
		mustSubmit(t, run, 2)
		if task, err := run.Next(background); err != nil || task.Result != 42 {
			t.Errorf("%+v, %v", task, err)
		}
		run.CloseInput()
		<-run.Done()
	})
}

func TestNext(t *testing.T) {
	t.Run("Q1 Q3 Q5 the oldest result, waiting for it, and then the end, each time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Second), 1).Start(background)
			start := time.Now()
			mustSubmit(t, run, 1, 2)
			for i := range 2 {
				task, err := run.Next(background)
				if err != nil || task.Index != i || time.Since(start) != time.Duration(i+1)*time.Second {
					t.Errorf("after %v: %+v, %v", time.Since(start), task, err)
				}
			}
			run.CloseInput()
			for range 2 {
				if task, err := run.Next(background); err != penstock.ErrNoMoreResults || task != (intTask{}) {
					t.Errorf("%+v, %v", task, err)
				}
			}
		})
	})
	t.Run("Q4 after a failure first everything, then the run's error, each time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			run := newInts(t, func(_ context.Context, n int) (int, error) {
				<-gate
				if n == 2 {
					return 0, errX
				}
				return n, nil
			}, 1, penstock.WithFailureLimit(1), penstock.WithResultCapacity(1), penstock.WithInputCapacity(9)).Start(background)
			mustSubmit(t, run, numbers(5)...)
			close(gate)
			synctest.Wait()                                 // one result in the buffer, and the worker waits with the next
			if _, err := run.Next(background); err != nil { // makes room for it, and the one that fails needs none
				t.Error(err)
			}
			<-run.Done()
			for i := 1; i < 5; i++ {
				task, err := run.Next(background)
				want := penstock.Succeeded
				if i == 2 {
					want = penstock.Failed
				} else if i > 2 {
					want = penstock.Unfinished
				}
				if err != nil || task.Index != i || task.Outcome != want {
					t.Errorf("%+v, %v", task, err)
				}
			}
			for range 2 {
				if _, err := run.Next(background); err == nil || err != run.Err() {
					t.Error(err)
				}
			}
		})
	})
	t.Run("Q6 a waiting reader is released by the end of the run, with the right error", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, c := range []struct {
				end  func(*intRun)
				want error
			}{
				{func(run *intRun) { run.CloseInput() }, penstock.ErrNoMoreResults},
				{func(run *intRun) { run.Stop(background) }, penstock.ErrNoMoreResults}, // nothing was cut off
			} {
				run := newInts(t, double, 1).Start(background)
				next := make(chan error, 1)
				go func() { _, err := run.Next(background); next <- err }()
				if !waiting(next) {
					t.Error("there is no result yet")
				}
				c.end(run)
				if err := <-next; err != c.want {
					t.Error(err)
				}
			}
			run := newInts(t, slow(time.Hour), 1).Start(background)
			mustSubmit(t, run, 1)
			next := make(chan error, 2)
			go func() {
				for range 2 {
					_, err := run.Next(background)
					next <- err
				}
			}()
			synctest.Wait()
			if err := run.Stop(background); err != nil {
				t.Error(err)
			}
			if first, second := <-next, <-next; first != nil || second != penstock.ErrStopped {
				t.Error(first, second)
			}
		})
	})
	t.Run("Q7 a reader that gives up takes nothing with it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Second), 1).Start(background)
			mustSubmit(t, run, 7)
			ctx, cancel := context.WithTimeoutCause(background, time.Millisecond, errWhy)
			defer cancel()
			start := time.Now()
			if task, err := run.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) || task != (intTask{}) || time.Since(start) != time.Millisecond {
				t.Errorf("after %v: %+v, %v", time.Since(start), task, err)
			}
			if task, err := run.Next(background); err != nil || task.Result != 14 {
				t.Errorf("%+v, %v", task, err)
			}
			run.CloseInput()
			<-run.Done()
		})
	})
	t.Run("B41 nothing is lost between a result and a deadline of the same moment", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Millisecond), 4).Start(background)
			go func() {
				for i := range 500 {
					run.Submit(background, i)
				}
				run.CloseInput()
			}()
			var tasks []intTask
			for gaveUp := 0; ; {
				ctx, cancel := context.WithTimeout(background, time.Millisecond)
				task, err := run.Next(ctx)
				cancel()
				if err == nil {
					tasks = append(tasks, task)
				} else if err == context.DeadlineExceeded {
					gaveUp++
				} else if err == penstock.ErrNoMoreResults {
					break
				} else {
					t.Fatal(err)
				}
			}
			if c := tally(t, tasks); c.Succeeded != 500 {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("Q8 several readers share the results", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, double, 1).Start(background)
			type got struct {
				task intTask
				err  error
			}
			all := make(chan got, 3)
			for range 3 {
				go func() {
					task, err := run.Next(background)
					all <- got{task, err}
				}()
				synctest.Wait()
			}
			mustSubmit(t, run, 1, 2)
			run.CloseInput()
			ends, sum := 0, 0
			for range 3 {
				if g := <-all; g.err == penstock.ErrNoMoreResults {
					ends++
				} else {
					sum += g.task.Data
				}
			}
			if ends != 1 || sum != 3 {
				t.Errorf("%d ends, sum %d", ends, sum)
			}
		})
	})
	t.Run("X16 many readers by Next, Results and Drain at once, and nothing lost or twice", func(t *testing.T) {
		watch(t)
		run := newInts(t, double, 4).Start(background)
		var mu sync.Mutex
		var tasks []intTask
		keep := func(more ...intTask) {
			mu.Lock()
			defer mu.Unlock()
			tasks = append(tasks, more...)
		}
		var wg sync.WaitGroup
		wg.Go(func() { more, _ := drainRun(t, run); keep(more...) })
		wg.Go(func() {
			for task, err := range run.Results() {
				if err == nil {
					keep(task)
				}
			}
		})
		wg.Go(func() {
			for {
				select {
				case <-run.Done():
					return
				default:
					keep(run.Drain()...)
				}
			}
		})
		mustSubmit(t, run, numbers(3000)...)
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if c := tally(t, tasks); c.Succeeded != 3000 {
			t.Errorf("%+v", c)
		}
	})
}

func TestResults(t *testing.T) {
	t.Run("leaving the loop stops only the reading", func(t *testing.T) {
		run := newInts(t, double, 2).Start(background)
		mustSubmit(t, run, 1, 2, 3)
		for _, err := range run.Results() {
			if err != nil {
				t.Error(err)
			}
			break
		}
		mustSubmit(t, run, 4)
		run.CloseInput()
		tasks, err := collect(t, run.Results())
		if len(tasks) != 3 || err != nil {
			t.Errorf("%d tasks, %v", len(tasks), err)
		}
		if tasks, err := collect(t, run.Results()); len(tasks) != 0 || err != nil {
			t.Errorf("%d tasks, %v", len(tasks), err)
		}
	})
	t.Run("a failed run's error comes last, in each loop", func(t *testing.T) {
		run := newInts(t, func(context.Context, int) (int, error) { return 0, errX }, 1, penstock.WithFailureLimit(1)).Start(background)
		mustSubmit(t, run, 1)
		if tasks, err := collect(t, run.Results()); len(tasks) != 1 || tasks[0].Err != errX || err != run.Err() || err == nil {
			t.Errorf("%+v, %v", tasks, err)
		}
		if tasks, err := collect(t, run.Results()); len(tasks) != 0 || err != run.Err() {
			t.Errorf("%+v, %v", tasks, err)
		}
	})
	t.Run("after a Stop that cut work off, the cut off tasks and ErrStopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Hour), 1).Start(background)
			mustSubmit(t, run, 1, 2)
			if err := run.Stop(background); err != nil {
				t.Error(err)
			}
			if tasks, err := collect(t, run.Results()); tally(t, tasks).Unfinished != 2 || err != penstock.ErrStopped {
				t.Errorf("%+v, %v", tasks, err)
			}
		})
	})
	t.Run("X20 Finish in the loop's body", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, double, 2, penstock.WithResultCapacity(penstock.Unlimited)).Start(background)
			mustSubmit(t, run, 1, 2, 3)
			n := 0
			for _, err := range run.Results() {
				if err != nil {
					t.Error(err)
				}
				if n++; n == 1 {
					if err := run.Finish(background); err != nil {
						t.Error(err)
					}
				}
			}
			if n != 3 {
				t.Error(n)
			}
		})
	})
	t.Run("X19 Stop by somebody else while iterating", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Second), 1).Start(background)
			mustSubmit(t, run, 1, 2)
			time.AfterFunc(1500*time.Millisecond, func() { run.Stop(background) })
			tasks, err := collect(t, run.Results())
			if c := tally(t, tasks); c != (penstock.Counters{Succeeded: 1, Unfinished: 1}) || err != penstock.ErrStopped {
				t.Errorf("%+v, %v", c, err)
			}
		})
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newInts(t, slow(time.Second), 2, penstock.WithResultCapacity(1)).Start(background)
		if tasks := run.Drain(); tasks != nil { // Q10: before anything
			t.Errorf("%+v", tasks)
		}
		mustSubmit(t, run, 1, 2, 3, 4)
		time.Sleep(1500 * time.Millisecond)
		before := run.Counters()
		// One result is in the buffer, and the other worker waits with its own.
		if tasks := run.Drain(); tally(t, tasks).Succeeded != 2 {
			t.Errorf("%+v", tasks)
		}
		synctest.Wait()
		if after := run.Counters(); after.Succeeded != 2 || before.Succeeded != 2 { // Q11
			t.Errorf("%+v, then %+v", before, after)
		}
		run.CloseInput()
		<-time.After(time.Hour)
		if tasks := run.Drain(); len(tasks) != 2 {
			t.Errorf("%+v", tasks)
		}
		<-run.Done()
		if tasks := run.Drain(); tasks != nil {
			t.Errorf("%+v", tasks)
		}
	})
}

func TestDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := newInts(t, slow(time.Second), 1).Start(background)
		mustSubmit(t, run, 1)
		run.CloseInput()
		select {
		case <-run.Done():
			t.Error("done while a handler runs")
		default:
		}
		if run.Err() != nil {
			t.Error(run.Err())
		}
		<-run.Done()
		if c := run.Counters(); c != (penstock.Counters{Succeeded: 1}) || run.Err() != nil {
			t.Errorf("%+v, %v", c, run.Err())
		}
	})
}

func TestRunDo(t *testing.T) {
	t.Run("its own reply, which nobody else gets", func(t *testing.T) {
		watch(t)
		run := newInts(t, func(_ context.Context, n int) (int, error) {
			if n%10 == 3 {
				return 0, errX
			}
			return 2 * n, nil
		}, 4).Start(background)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 100 {
					n := 100*g + i
					v, err := run.Do(background, n)
					if n%10 == 3 && err != errX || n%10 != 3 && (err != nil || v != 2*n) {
						t.Errorf("%d: %d, %v", n, v, err)
					}
				}
			})
		}
		mustSubmit(t, run, 1) // one for Next among them
		wg.Wait()
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
		if tasks := run.Drain(); len(tasks) != 1 || tasks[0].Data != 1 {
			t.Errorf("%d tasks were published", len(tasks))
		}
		if c := run.Counters(); c != (penstock.Counters{Succeeded: 721, Failed: 80}) {
			t.Errorf("%+v", c)
		}
	})
	t.Run("RC13 its ctx's end cancels the attempt, and nobody else", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var seen error
			run := newInts(t, func(ctx context.Context, n int) (int, error) {
				if n == 1 {
					<-ctx.Done()
					seen = context.Cause(ctx)
					time.Sleep(time.Second)
					return 0, ctx.Err()
				}
				return n, pause(ctx, 2*time.Second)
			}, 2, penstock.WithRetry(retry.Policy{Max: 5})).Start(background)
			other := make(chan error, 1)
			go func() { _, err := run.Do(background, 2); other <- err }()
			ctx, cancel := context.WithTimeoutCause(background, 20*time.Millisecond, errWhy)
			defer cancel()
			start := time.Now()
			_, err := run.Do(ctx, 1)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errWhy) || time.Since(start) != 20*time.Millisecond {
				t.Errorf("after %v: %v", time.Since(start), err)
			}
			if err := <-other; err != nil || time.Since(start) != 2*time.Second {
				t.Errorf("the other one after %v: %v", time.Since(start), err)
			}
			if seen != errWhy {
				t.Error("the handler saw the cause", seen)
			}
			if err := run.Finish(background); err != nil {
				t.Error(err)
			}
			if c := run.Counters(); c != (penstock.Counters{Succeeded: 1, Unfinished: 1}) {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("an item whose caller has gone before a worker came is never handled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			var running gauge
			run := newInts(t, running.around(until(gate)), 1, penstock.WithInputCapacity(1)).Start(background)
			mustSubmit(t, run, 0)
			synctest.Wait()
			ctx, cancel := context.WithTimeout(background, time.Second)
			defer cancel()
			errs := make(chan error, 2)
			for i := range 2 { // one pending, one that waits for room
				go func() { _, err := run.Do(ctx, 1+i); errs <- err }()
			}
			for range 2 {
				if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
			close(gate)
			if err := run.Finish(background); err != nil || running.total.Load() != 1 {
				t.Errorf("%d handled, %v", running.total.Load(), err)
			}
			if c := run.Counters(); c != (penstock.Counters{Succeeded: 1, Unfinished: 1}) {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("when the run ends, with the reason", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			runCtx, cancelRun := context.WithCancelCause(background)
			for _, c := range []struct {
				end  func(*intRun)
				want []error
			}{
				{func(run *intRun) { run.Stop(background) }, []error{penstock.ErrStopped, context.Canceled}},
				{func(*intRun) { cancelRun(errWhy) }, []error{errWhy, context.Canceled}},
			} {
				run := newInts(t, slow(time.Hour), 1).Start(runCtx)
				errs := make(chan error, 2)
				for i := range 2 { // one with its handler, one pending
					go func() { _, err := run.Do(background, i); errs <- err }()
				}
				synctest.Wait()
				c.end(run)
				for range 2 {
					err := <-errs
					for _, want := range c.want {
						if !errors.Is(err, want) || !isUnfinished(err) {
							t.Error(err)
						}
					}
				}
				<-run.Done()
			}
		})
	})
	t.Run("a handler that fails right after Stop leaves it unfinished", func(t *testing.T) {
		for range 50 {
			var run *intRun
			run = newInts(t, func(context.Context, int) (int, error) {
				run.Stop(ended()) // cancels, and does not wait for itself
				return 0, errX
			}, 1, penstock.WithRetry(retry.Policy{Max: 3})).Start(background)
			_, err := run.Do(background, 1)
			if !errors.Is(err, penstock.ErrStopped) || !errors.Is(err, errX) {
				t.Fatal(err)
			}
			<-run.Done()
			if c := run.Counters(); c != (penstock.Counters{Unfinished: 1}) {
				t.Fatalf("%+v", c)
			}
		}
	})
	t.Run("the handler sees the values and the deadline of both contexts", func(t *testing.T) {
		type key string
		ctx, cancel := context.WithTimeout(context.WithValue(background, key("caller"), 1), time.Hour)
		defer cancel()
		deadline, _ := ctx.Deadline()
		e := newInts(t, func(ctx context.Context, _ int) (int, error) {
			if got, ok := ctx.Deadline(); !ok || !got.Equal(deadline) {
				t.Error("deadline", got, ok)
			}
			if ctx.Value(key("caller")) != 1 || ctx.Value(key("run")) != 2 || ctx.Value(key("both")) != 3 || penstock.AttemptNumber(ctx) != 1 {
				t.Error("a value is missing")
			}
			return 0, nil
		}, 1)
		run := e.Start(context.WithValue(context.WithValue(background, key("run"), 2), key("both"), 4))
		if _, err := run.Do(context.WithValue(ctx, key("both"), 3), 0); err != nil {
			t.Error(err)
		}
		if err := run.Finish(background); err != nil {
			t.Error(err)
		}
	})
	t.Run("RC14 Finish lets everybody have their reply", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, slow(time.Second), 2, penstock.WithInputCapacity(10)).Start(background)
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					if v, err := run.Do(background, i); v != 2*i || err != nil {
						t.Errorf("%d, %v", v, err)
					}
				})
			}
			synctest.Wait()
			if err := run.Finish(background); err != nil {
				t.Error(err)
			}
			wg.Wait()
		})
	})
	t.Run("Do races with everything: each call comes back, and the counters add up", func(t *testing.T) {
		watch(t)
		for round := range 30 {
			runCtx, cancelRun := context.WithCancel(background)
			run := newInts(t, double, 2, penstock.WithInputCapacity(1)).Start(runCtx)
			var ok atomic.Int64
			var wg sync.WaitGroup
			for g := range 6 {
				wg.Go(func() {
					for i := range 30 {
						ctx, cancel := context.WithCancel(background)
						if i%2 == 0 {
							go cancel()
						}
						if v, err := run.Do(ctx, i); err == nil {
							ok.Add(1)
							if v != 2*i {
								t.Error(v)
							}
						}
						cancel()
						if g == 0 && i == 20 {
							if round%2 == 0 {
								cancelRun()
							} else {
								run.Stop(background)
							}
						}
					}
				})
			}
			wg.Wait()
			cancelRun()
			<-run.Done()
			c := run.Counters()
			if int64(c.Succeeded) < ok.Load() || c.Pending+c.Running+c.Failed+c.Shed != 0 || len(run.Drain()) != 0 {
				t.Fatalf("%d replies, %+v", ok.Load(), c)
			}
		}
	})
}

// L28: everything from everywhere, at once.
func TestRunFromManyGoroutines(t *testing.T) {
	watch(t)
	t.Run("L28 counters while workers are hired", func(t *testing.T) {
		for range 5 {
			e := newInts(t, double, 500, penstock.WithResultCapacity(penstock.Unlimited))
			run := e.Start(background)
			finished := make(chan struct{})
			var wg sync.WaitGroup
			for _, count := range []func() penstock.Counters{run.Counters, e.Counters} {
				wg.Go(func() {
					for {
						select {
						case <-finished:
							return
						default:
						}
						c := count()
						if sum := c.Pending + c.Running + c.Ended(); c.Pending < 0 || c.Running < 0 || c.Running > 500 || sum > 1000 {
							t.Errorf("%+v", c)
						}
					}
				})
			}
			mustSubmit(t, run, numbers(1000)...)
			if err := run.Finish(background); err != nil {
				t.Error(err)
			}
			close(finished)
			wg.Wait()
		}
	})
	t.Run("B60 cancelling a run that is full to the brim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(background)
			// Two results nobody reads, one worker that waits with a third, one in its handler, two pending, one waits.
			run := newInts(t, func(ctx context.Context, n int) (int, error) {
				if n >= 3 {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				return n, nil
			}, 2).Start(ctx)
			mustSubmit(t, run, numbers(6)...)
			blocked := submitAsync(background, run, 6)
			if !waiting(blocked) {
				t.Error("there is room")
			}
			start := time.Now()
			cancel()
			if r := <-blocked; r.err != context.Canceled {
				t.Errorf("%+v", r)
			}
			<-run.Done()
			if time.Since(start) != 0 {
				t.Errorf("took %v", time.Since(start))
			}
			if c := tally(t, run.Drain()); c != (penstock.Counters{Succeeded: 3, Unfinished: 3}) {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("all methods from a handler", func(t *testing.T) {
		var run *intRun
		run = newInts(t, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				run.Counters()
				run.Drain()
				run.Err()
				run.Done()
				if _, err := run.Next(ended()); err == nil {
					return 0, errors.New("a result")
				}
				if err := run.Finish(ended()); !errors.Is(err, errWhy) {
					return 0, err
				}
				if err := run.Stop(ended()); !errors.Is(err, errWhy) {
					return 0, err
				}
			}
			return n, nil
		}, 1).Start(background)
		mustSubmit(t, run, 0)
		<-run.Done()
		if tasks := run.Drain(); len(tasks) != 1 || tasks[0].Err != nil {
			t.Errorf("%+v", tasks)
		}
	})
}
