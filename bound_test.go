package penstock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/retry"
)

var boundCases = []struct{ workers, input, results int }{
	{1, 1, 1}, {2, 1, 1}, {2, 2, 2}, {4, 4, 4}, {3, 10, 1}, {3, 1, 10}, {32, 32, 32},
}

// B1 B2 B6: how many items there are between a source and a consumer that has let go of them.
func TestBound(t *testing.T) {
	for _, c := range boundCases {
		opts := []penstock.Option{penstock.WithInputCapacity(c.input), penstock.WithResultCapacity(c.results)}
		bound := int64(buffering.Bound(c.input, c.results, c.workers))
		for _, kind := range sourceKinds() {
			t.Run(fmt.Sprintf("%d workers, %d pending, %d results, %s", c.workers, c.input, c.results, kind.name), func(t *testing.T) {
				for name, extra := range map[string]penstock.Option{
					"plain":    penstock.WithLogger(nil),
					"retries":  penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Constant(time.Minute)}),
					"priority": penstock.WithPriority(func(n int) int { return -n }),
				} {
					synctest.Test(t, func(t *testing.T) {
						ctx, cancel := context.WithCancel(background)
						defer cancel()
						var held gauge
						took := held.enter
						handler := func(ctx context.Context, n int) (int, error) {
							if kind.name == "slice" { // a slice gives an item up when a worker claims it
								if penstock.AttemptNumber(ctx) == 1 {
									held.enter()
								}
							}
							if penstock.AttemptNumber(ctx) < 1+n%3 {
								return 0, errX
							}
							return n, nil
						}
						e := newInts(t, handler, c.workers, append(opts, extra)...)
						seen := 0
						for _, err := range e.IterResults(ctx, kind.make(ctx, -1, took)) {
							if err != nil {
								t.Fatal(err)
							}
							time.Sleep(time.Hour)
							synctest.Wait()
							// The pipeline has filled up: the results, the workers, the item in the consumer's hands, and
							// more than half of the input, since that is when a source that had to wait is woken.
							least := int64(c.workers + c.results + 1)
							if kind.queued {
								least += int64(c.input/2) + 1
							}
							if now := held.now.Load(); now < least || now > bound {
								t.Fatalf("%s: %d items are held, at least %d and at most %d should be", name, now, least, bound)
							}
							held.leave()
							if seen++; seen == 3*c.results+10 {
								break
							}
						}
						if peak := held.peak.Load(); peak > bound {
							t.Errorf("%s: %d items were held at one time, at most %d may be", name, peak, bound)
						}
					})
				}
			})
		}
	}
}

func TestBoundByHand(t *testing.T) {
	for _, c := range boundCases {
		synctest.Test(t, func(t *testing.T) {
			var held gauge
			run := newInts(t, double, c.workers, penstock.WithInputCapacity(c.input), penstock.WithResultCapacity(c.results)).Start(background)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			go func() {
				defer run.CloseInput()
				for i := 0; ; i++ {
					held.enter()
					if _, err := run.Submit(ctx, i); err != nil {
						return
					}
				}
			}()
			bound := int64(buffering.Bound(c.input, c.results, c.workers))
			for range 50 {
				time.Sleep(time.Hour)
				synctest.Wait()
				// One submitter's, and then exactly what the queues and the workers hold.
				if now, want := held.now.Load(), int64(1+c.input+c.workers+c.results); now != want || now > bound {
					t.Fatalf("%+v: %d items are held, it should be %d, and at most %d", c, now, want, bound)
				}
				if _, err := run.Next(background); err != nil {
					t.Fatal(err)
				}
				held.leave()
			}
			cancel()
			if tasks, err := drainRun(t, run); err != penstock.ErrNoMoreResults {
				t.Errorf("%d tasks, %v", len(tasks), err)
			}
		})
	}
}

func TestBackPressure(t *testing.T) {
	t.Run("B3 while all handlers are held, what is taken is what the queue and the workers hold", func(t *testing.T) {
		for _, kind := range sourceKinds() {
			if !kind.queued {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				var taken gauge
				e := newInts(t, until(gate), 2, penstock.WithInputCapacity(3))
				go func() {
					synctest.Wait()
					if n := taken.total.Load(); n != 3+2+1 {
						t.Errorf("%s: %d items were taken", kind.name, n)
					}
					close(gate)
				}()
				if tasks, err := e.ProcessSource(background, kind.make(background, 40, taken.enter)); err != nil || len(tasks) != 40 {
					t.Errorf("%d tasks, %v", len(tasks), err)
				}
			})
		}
	})
	t.Run("B4 an unlimited input takes everything", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			var taken gauge
			e := newInts(t, until(gate), 2, penstock.WithInputCapacity(penstock.Unlimited))
			go func() {
				synctest.Wait()
				if n := taken.total.Load(); n != 40 {
					t.Errorf("%d items were taken", n)
				}
				close(gate)
			}()
			if tasks, err := e.ProcessSource(background, sourceKinds()[2].make(background, 40, taken.enter)); err != nil || len(tasks) != 40 {
				t.Errorf("%d tasks, %v", len(tasks), err)
			}
		})
	})
	t.Run("B5 with unlimited results a run ends although nobody reads", func(t *testing.T) {
		run := newInts(t, double, 2, penstock.WithResultCapacity(penstock.Unlimited)).Start(background)
		mustSubmit(t, run, numbers(40)...)
		if err := run.Finish(background); err != nil {
			t.Fatal(err)
		}
		if tasks := run.Drain(); tally(t, tasks).Succeeded != 40 {
			t.Errorf("%d tasks", len(tasks))
		}
	})
	t.Run("A3 B8 a full result buffer stops the workers and then the submitter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var handled gauge
			run := newInts(t, handled.around(double), 3, penstock.WithInputCapacity(4), penstock.WithResultCapacity(5)).Start(background)
			ctx, cancel := context.WithTimeout(background, time.Hour)
			defer cancel()
			accepted := 0
			for {
				if _, err := run.Submit(ctx, accepted); err != nil {
					if !blocked(err, "room") {
						t.Error(err)
					}
					break
				}
				accepted++
			}
			if accepted != 4+3+5 || handled.total.Load() != 3+5 {
				t.Errorf("%d items accepted, %d handled", accepted, handled.total.Load())
			}
			// The three results that workers hold are results, but their tasks have ended.
			if c := run.Counters(); c != (penstock.Counters{Pending: 4, Succeeded: 8}) {
				t.Errorf("%+v", c)
			}
			// B8: Finish waits for a reader; its context is the way out.
			short, cancel2 := context.WithTimeout(background, time.Minute)
			defer cancel2()
			if err := run.Finish(short); !blocked(err, "end") {
				t.Error(err)
			}
			tasks, err := drainRun(t, run)
			if c := tally(t, tasks); c.Succeeded != accepted || err != penstock.ErrNoMoreResults {
				t.Errorf("%+v, %v", c, err)
			}
		})
	})
	t.Run("B28 submit first and read later works as far as the buffers go", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			run := newInts(t, double, 4).Start(background)
			i, refused := 0, false
			for ; i < 100; i++ {
				ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
				_, err := run.Submit(ctx, i)
				cancel()
				if refused = err != nil; refused {
					if !blocked(err, "room") {
						t.Error(err)
					}
					break
				}
			}
			if !refused || i != 12 {
				t.Fatalf("%d accepted", i)
			}
			var tasks []intTask
			done := make(chan struct{})
			go func() {
				defer close(done)
				tasks, _ = drainRun(t, run)
			}()
			for ; i < 100; i++ {
				mustSubmit(t, run, i)
			}
			if err := run.Finish(background); err != nil {
				t.Error(err)
			}
			<-done
			if c := tally(t, tasks); c.Succeeded != 100 {
				t.Errorf("%+v", c)
			}
		})
	})
	t.Run("B08 an endless sequence is read as far as needed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var taken gauge
			e := newInts(t, double, 4, penstock.WithInputCapacity(8))
			read := 0
			for range e.IterResults(background, sourceKinds()[2].make(background, -1, taken.enter)) {
				time.Sleep(10 * time.Millisecond)
				if read++; read == 10 {
					break
				}
			}
			if n := taken.total.Load(); n > int64(10+buffering.Bound(8, 4, 4)) {
				t.Errorf("%d items were taken for 10 results", n)
			}
		})
	})
	t.Run("B52 items that wait for a retry take up their places", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(background, 300*time.Millisecond)
			defer cancel()
			var taken gauge
			e := newInts(t, func(context.Context, int) (int, error) { return 0, errX }, 4, penstock.WithInputCapacity(8),
				penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(time.Hour)}))
			tasks, err := collect(t, e.IterResults(ctx, sourceKinds()[2].make(ctx, -1, taken.enter)))
			if n := taken.total.Load(); n != 8+4+1 || len(tasks) != 8+4 || err != context.DeadlineExceeded {
				t.Errorf("%d items were taken, %d tasks, %v", n, len(tasks), err)
			}
		})
	})
	t.Run("B20 one worker means one handler at a time", func(t *testing.T) {
		for _, kind := range sourceKinds() {
			var running gauge
			e := newInts(t, running.around(double), 1, penstock.WithInputCapacity(8))
			for range e.IterResults(background, kind.make(background, 20, func() {})) {
			}
			if running.peak.Load() != 1 || running.total.Load() != 20 {
				t.Errorf("%s: %d at once, %d in all", kind.name, running.peak.Load(), running.total.Load())
			}
		}
	})
	t.Run("never more handlers than workers, and as many when there is work", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, w := range ways() {
				for _, kind := range sourceKinds() {
					var running gauge
					e := newInts(t, running.around(slow(time.Second)), 7)
					start := time.Now()
					if _, err := w.run(t, background, e, kind.make(background, 70, func() {})); err != nil {
						t.Fatal(err)
					}
					if running.peak.Load() != 7 || time.Since(start) != 10*time.Second {
						t.Errorf("%s over a %s: %d handlers at most, took %v", w.name, kind.name, running.peak.Load(), time.Since(start))
					}
				}
			}
		})
	})
}
