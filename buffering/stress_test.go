package buffering_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-go/penstock/buffering"
)

// The tests in this file run on the real scheduler, with contexts that end at any moment, and keep exact accounts.

// endSoon is a context that ends while somebody is at it, or has ended before, or never does.
func endSoon(r *rand.Rand) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	switch n := r.IntN(20); {
	case n == 0:
		cancel()
	case n < 14:
		go func() {
			for range n / 2 {
				runtime.Gosched()
			}
			cancel()
		}()
	}
	return ctx, cancel
}

func TestQueueStress(t *testing.T) {
	const pushers, feeders, each, takers, capacity = 8, 2, 300, 4, 3
	for name, priorities := range map[string]int{"plain": 1, "ranked": 3} {
		for _, abandon := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", closed", true: ", abandoned"}[abandon], func(t *testing.T) {
				var refused, accepted [pushers][each]atomic.Bool
				var seen [pushers][each]atomic.Int32
				var left atomic.Int32
				type item struct{ pusher, n int }
				var numbers sync.Map
				q := buffering.NewQueue[item](capacity)

				var work, push sync.WaitGroup
				handle := func(it *item, number int) {
					seen[it.pusher][it.n].Add(1)
					if _, again := numbers.LoadOrStore(number, true); again {
						t.Errorf("number %d was given out twice", number)
					}
				}
				take := func() {
					var last [pushers]int
					each := func(it *item, number int) {
						handle(it, number)
						if priorities == 1 && it.n < last[it.pusher] {
							t.Errorf("pusher %d: item %d came after item %d", it.pusher, it.n, last[it.pusher])
						}
						last[it.pusher] = it.n
					}
					for q.Take(2, takers, each) > 0 {
					}
				}
				for p := range pushers {
					push.Go(func() {
						r := rand.New(rand.NewPCG(uint64(p), rand.Uint64()))
						for n := range each {
							ctx, cancel := endSoon(r)
							var err error
							if p < feeders {
								err = q.Feed(item{p, n}, r.IntN(priorities))
							} else {
								_, err = q.Push(ctx, item{p, n}, r.IntN(priorities))
							}
							switch {
							case err == nil:
								accepted[p][n].Store(true)
							case errors.Is(err, errGone):
								refused[p][n].Store(true)
							case errors.Is(err, context.Canceled) && ctx.Err() != nil:
								refused[p][n].Store(true)
							default:
								t.Errorf("Push = %v", err)
							}
							cancel()
						}
					})
				}
				q.Recruit(takers/2, func(it *item, number int) {
					handle(it, number)
					work.Go(take)
				})
				for range takers - takers/2 {
					work.Go(take)
				}
				if abandon {
					work.Go(func() {
						for {
							if accepted, _ := q.Counts(); accepted >= pushers*each/4 {
								break
							}
							runtime.Gosched()
						}
						q.Abandon(errGone, func(it *item, number int) {
							handle(it, number)
							left.Add(1)
						})
					})
				}
				stop := make(chan struct{})
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					for {
						accepted, taken := q.Counts()
						// An item that an idle taker is on its way for is not taken yet and needs no room.
						if stored := accepted - taken; stored < 0 || stored > capacity+takers {
							t.Errorf("%d accepted and %d taken at a time", accepted, taken)
							return
						}
						select {
						case <-stop:
							return
						default:
							runtime.Gosched()
						}
					}
				}()

				push.Wait()
				q.Close(nil)
				work.Wait()
				close(stop)
				<-watched
				sum := 0
				for p := range pushers {
					for n := range each {
						ok := accepted[p][n].Load()
						if ok == refused[p][n].Load() || (seen[p][n].Load() != 0) != ok || seen[p][n].Load() > 1 {
							t.Errorf("item %d of %d: accepted %v, seen %d times", n, p, ok, seen[p][n].Load())
						}
						if ok {
							sum++
						}
					}
				}
				if a, n := q.Counts(); a != sum || n+int(left.Load()) != sum {
					t.Errorf("%d accepted, %d taken and %d abandoned, by the pushers' own count %d", a, n, left.Load(), sum)
				}
			})
		}
	}
}

func TestResultsStress(t *testing.T) {
	const writers, each, readers, capacity = 6, 400, 5, 3
	type item struct{ writer, n int }
	// read gets everything there is, by whatever means, and reports each item.
	for name, read := range map[string]func(t *testing.T, r *buffering.Results[item], got func(reader int, it item)){
		"Next": func(t *testing.T, r *buffering.Results[item], got func(int, item)) {
			var all sync.WaitGroup
			for i := range readers {
				all.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(i), rand.Uint64()))
					for {
						ctx, cancel := endSoon(rnd)
						it, ok, err := r.Next(ctx)
						if err != nil && (ok || ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
							t.Errorf("Next = %v, %v, %v", it, ok, err)
						}
						cancel()
						if ok {
							got(i, it)
						} else if err == nil {
							return
						}
					}
				})
			}
			all.Wait()
		},
		"TakeAll and Drain": func(_ *testing.T, r *buffering.Results[item], got func(int, item)) {
			var drainer sync.WaitGroup
			stop := make(chan struct{})
			drainer.Go(func() {
				for {
					for _, it := range r.Drain() {
						got(1, it)
					}
					select {
					case <-stop:
						return
					default:
						runtime.Gosched()
					}
				}
			})
			var spare []item
			for {
				batch := r.TakeAll(spare)
				if batch == nil {
					break
				}
				for _, it := range batch {
					got(0, it)
				}
				clear(batch)
				spare = batch
			}
			close(stop)
			drainer.Wait()
		},
	} {
		for _, lift := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", lifted"}[lift], func(t *testing.T) {
				r := buffering.NewResults[item](capacity)
				limit := capacity
				if strings.HasPrefix(name, "TakeAll") {
					limit *= 2
				}
				var seen [writers][each]atomic.Int32
				var total atomic.Int32
				var lifted atomic.Bool
				var write sync.WaitGroup
				for w := range writers {
					write.Go(func() {
						items := make([]item, 1+w)
						for n := 0; n < each; {
							batch := items[:min(len(items), each-n)]
							for i := range batch {
								batch[i] = item{w, n}
								n++
							}
							r.Put(pointers(batch...))
							clear(batch)
							if n := r.Len(); n > limit && !lifted.Load() {
								t.Errorf("%d items in the buffer", n)
							}
						}
					})
				}
				if lift {
					write.Go(func() {
						for total.Load() < writers*each/3 {
							runtime.Gosched()
						}
						lifted.Store(true)
						r.Lift()
					})
				}
				go func() {
					write.Wait()
					r.Close()
				}()
				var last [readers][writers]int
				read(t, r, func(reader int, it item) {
					seen[it.writer][it.n].Add(1)
					total.Add(1)
					if it.n < last[reader][it.writer] {
						t.Errorf("writer %d: item %d came after item %d", it.writer, it.n, last[reader][it.writer])
					}
					last[reader][it.writer] = it.n
				})
				for w := range writers {
					for n := range each {
						if times := seen[w][n].Load(); times != 1 {
							t.Errorf("item %d of %d was read %d times", n, w, times)
						}
					}
				}
			})
		}
	}
}

func TestWindowStress(t *testing.T) {
	const workers, total, size = 8, 5000, 12
	w := buffering.NewWindow[int](size)
	var next, released atomic.Int64
	var work sync.WaitGroup
	for i := range workers {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), rand.Uint64()))
			for {
				n := w.Enter(1 + r.IntN(3))
				if n == 0 {
					return
				}
				end := int(next.Add(int64(n)))
				numbers := make([]int, n)
				for j := range numbers {
					numbers[j] = end - n + j
				}
				// Read after the numbers were given out, so it can only be too large, which is to the test's disadvantage.
				if open := end - int(released.Load()); open > size {
					t.Errorf("%d items are open", open)
				}
				r.Shuffle(n, func(a, b int) { numbers[a], numbers[b] = numbers[b], numbers[a] })
				for _, number := range numbers {
					for range r.IntN(4) {
						runtime.Gosched()
					}
					if number < total {
						putResult(w, number)
					}
					if number >= total-1 {
						w.Shut()
					}
				}
			}
		})
	}
	go func() {
		work.Wait()
		w.Close()
	}()
	var got, buf []int
	for buf = w.TakeReady(buf); buf != nil; buf = w.TakeReady(buf) {
		got = append(got, buf...)
		for range buf {
			released.Add(1) // before the window knows, so that nobody enters whom the count above does not allow
			w.Release(1)
		}
	}
	if len(got) != total || !slices.IsSorted(got) || got[total-1] != total-1 {
		t.Errorf("%d results, in order: %v", len(got), slices.IsSorted(got))
	}
}
