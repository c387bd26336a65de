package buffering_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/buffering"
)

// pointers are what Put takes.
func pointers[T any](items ...T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// putLater puts from a goroutine of its own and returns when the items are in or wait, with a way to tell which.
func putLater(r *buffering.Results[int], items ...int) (done func() bool) {
	back := make(chan struct{})
	go func() {
		defer close(back)
		r.Put(pointers(items...))
	}()
	synctest.Wait()
	return func() bool {
		synctest.Wait()
		select {
		case <-back:
			return true
		default:
			return false
		}
	}
}

func wantNext(t *testing.T, r *buffering.Results[int], want int) {
	t.Helper()
	if item, ok, err := r.Next(context.Background()); item != want || !ok || err != nil {
		t.Errorf("Next = %v, %v, %v, want %v", item, ok, err, want)
	}
}

func TestResultsKeepTheOrderOfPuts(t *testing.T) {
	r := buffering.NewResults[int](10)
	r.Put(pointers(1, 2))
	r.Put(nil)
	r.Put(pointers(3))
	wantNext(t, r, 1)
	r.Put(pointers(4, 5))
	if n := r.Len(); n != 4 {
		t.Errorf("Len = %d", n)
	}
	if got, want := r.TakeAll(nil), []int{2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestPutWaitsWhileTheBufferIsFull(t *testing.T) {
	tests := []struct {
		name string
		read func(r *buffering.Results[int]) []int
		want []int
		left bool // the writer still waits
	}{
		{"Next", func(r *buffering.Results[int]) []int {
			item, _, _ := r.Next(context.Background())
			return []int{item}
		}, []int{1}, true},
		{"TakeAll", func(r *buffering.Results[int]) []int { return r.TakeAll(nil) }, []int{1, 2}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := buffering.NewResults[int](2)
				done := putLater(r, 1, 2, 3, 4)
				if done() || r.Len() != 2 {
					t.Fatalf("done: %v, with %d in the buffer", done(), r.Len())
				}
				if got := tt.read(r); !slices.Equal(got, tt.want) {
					t.Errorf("read %v, want %v", got, tt.want)
				}
				if done() == tt.left || r.Len() != 2 {
					t.Errorf("then done: %v, with %d in the buffer", done(), r.Len())
				}
				r.Lift()
			})
		})
	}
}

// The items of one that waits come before those of whoever comes later, although there would be room for them.
func TestNoPutOvertakesAWaitingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](2)
		first := putLater(r, 1, 2, 3, 4, 5)
		second := putLater(r, 6)
		wantNext(t, r, 1)
		wantNext(t, r, 2)
		third := putLater(r, 7)
		wantNext(t, r, 3)
		if !first() || second() || third() {
			t.Errorf("done: %v, %v, %v", first(), second(), third())
		}
		for want := 4; want <= 7; want++ {
			wantNext(t, r, want)
		}
		if !second() || !third() || r.Len() != 0 {
			t.Errorf("done: %v, %v, %d left", second(), third(), r.Len())
		}
	})
}

// Put copies: a worker uses the place of its result again as soon as Put has returned.
func TestPutCopiesTheItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](1)
		items := pointers(1, 2)
		go func() {
			r.Put(items)
			*items[0], *items[1] = -1, -1
		}()
		synctest.Wait()
		wantNext(t, r, 1)
		synctest.Wait()
		wantNext(t, r, 2)
	})
}

func TestReadersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](1)
		got := make([]int, 3)
		for i := range got {
			go func() { got[i], _, _ = r.Next(t.Context()) }()
			synctest.Wait()
		}
		r.Put(pointers(1, 2, 3, 4)) // more than the capacity: three of them go to readers
		synctest.Wait()
		if want := []int{1, 2, 3}; !slices.Equal(got, want) || r.Len() != 1 {
			t.Errorf("readers got %v, want %v; %d left", got, want, r.Len())
		}
	})
}

func TestNextGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		for _, wait := range []time.Duration{time.Hour, 0} { // the second time it has ended before
			item, ok, err := r.Next(ctx)
			if item != 0 || ok || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != wait {
				t.Errorf("Next = %v, %v, %v after %v", item, ok, err, time.Since(start))
			}
			start = time.Now()
		}
		r.Put(pointers(1))
		wantNext(t, r, 1) // it went to nobody who was gone
	})
}

func TestCancelledReaderLeavesTheLine(t *testing.T) {
	for quitter := range 3 {
		synctest.Test(t, func(t *testing.T) {
			r := buffering.NewResults[int](1)
			got, want := make([]int, 3), []int{1, 1, 1}
			var cancels []context.CancelFunc
			for i := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				cancels = append(cancels, cancel)
				go func() {
					item, _, err := r.Next(ctx)
					got[i] = item
					if (err != nil) != (i == quitter) {
						t.Errorf("without %d: reader %d got %v", quitter, i, err)
					}
				}()
				synctest.Wait()
			}
			cancels[quitter]()
			synctest.Wait()
			r.Put(pointers(1, 1))
			synctest.Wait()
			want[quitter] = 0
			if !slices.Equal(got, want) {
				t.Errorf("without %d: readers got %v", quitter, got)
			}
			for _, cancel := range cancels {
				cancel()
			}
		})
	}
}

// A result comes and the reader's context ends before it gets to look: it gets the result or leaves it for others.
func TestReaderServedWhenItsContextEnds(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := buffering.NewResults[int](1)
			ctx, cancel := context.WithCancel(t.Context())
			var item int
			var ok bool
			var err error
			go func() { item, ok, err = r.Next(ctx) }()
			synctest.Wait()
			served := i%2 == 0
			if served {
				r.Put(pointers(7))
				cancel()
			} else {
				cancel()
				r.Put(pointers(7))
			}
			synctest.Wait()
			switch rest := r.Drain(); {
			case item == 7 && ok && err == nil && len(rest) == 0:
			case item == 0 && !ok && errors.Is(err, context.Canceled) && slices.Equal(rest, []int{7}) && !served:
			default:
				t.Errorf("served first: %v; Next = %v, %v, %v, and the buffer held %v", served, item, ok, err, rest)
			}
		})
	}
}

func TestReaderToldTheEndWhenItsContextEnds(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			r := buffering.NewResults[int](1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				item, ok, err := r.Next(ctx)
				if item != 0 || ok || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("Next = %v, %v, %v", item, ok, err)
				}
			}()
			synctest.Wait()
			if i%2 == 0 {
				r.Close()
				cancel()
			} else {
				cancel()
				r.Close()
			}
			synctest.Wait()
		})
	}
}

func wantNextWith(t *testing.T, r *buffering.Results[int], ctx context.Context, want int, wantOK bool) {
	if item, ok, err := r.Next(ctx); item != want || ok != wantOK || err != nil {
		t.Errorf("Next = %v, %v, %v, want %v, %v, nil", item, ok, err, want, wantOK)
	}
}

// What is there is given out whatever the reader's context says.
func TestNextPrefersAnItemToAnEndedContext(t *testing.T) {
	r := buffering.NewResults[int](1)
	r.Put(pointers(1))
	wantNextWith(t, r, ended(), 1, true)
	r.Close()
	wantNextWith(t, r, ended(), 0, false)
}

func TestTakeAllWaitsForAnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](5)
		var got []int
		done := false
		go func() {
			got = r.TakeAll(nil)
			done = true
		}()
		synctest.Wait()
		if done {
			t.Fatal("TakeAll came back from an empty buffer")
		}
		r.Put(pointers(1, 2, 3))
		synctest.Wait()
		if want := []int{1, 2, 3}; !done || !slices.Equal(got, want) {
			t.Errorf("took %v (%v), want %v", got, done, want)
		}
	})
}

// Somebody else may empty the buffer between the wake-up and the look.
func TestTakeAllWaitsOnWhenItComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](5)
		var got []int
		go func() { got = r.TakeAll(nil) }()
		synctest.Wait()
		r.Put(pointers(1))
		first := r.Drain() // mostly before the reader runs
		synctest.Wait()
		r.Put(pointers(2))
		synctest.Wait()
		if all := append(first, got...); !slices.Equal(append(all, r.Drain()...), []int{1, 2}) {
			t.Errorf("drained %v, took %v", first, got)
		}
	})
}

// Two slices go to and fro: the one that the reader looks at is never written to.
func TestTakeAllUsesTheSpareAgain(t *testing.T) {
	r := buffering.NewResults[int](4)
	var spare []int
	for round := range 100 {
		n := 1 + round%4
		for i := range n {
			r.Put(pointers(round*10 + i))
		}
		got := r.TakeAll(spare)
		r.Put(pointers(-1))
		if len(got) != n || got[0] != round*10 || got[n-1] != round*10+n-1 {
			t.Fatalf("round %d: took %v", round, got)
		}
		r.Drain()
		clear(got)
		spare = got
	}
}

func TestDrainDoesNotWait(t *testing.T) {
	r := buffering.NewResults[int](3)
	if got := r.Drain(); got != nil {
		t.Errorf("drained %v of nothing", got)
	}
	r.Put(pointers(1, 2, 3))
	wantNext(t, r, 1)
	if got, want := r.Drain(), []int{2, 3}; !slices.Equal(got, want) {
		t.Errorf("drained %v, want %v", got, want)
	}
	if got := r.Drain(); got != nil || r.Len() != 0 {
		t.Errorf("drained %v once more", got)
	}
}

func TestDrainLetsWritersOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](1)
		first, second := putLater(r, 1, 2, 3), putLater(r, 4)
		got := r.Drain()
		for len(got) < 4 {
			synctest.Wait()
			got = append(got, r.Drain()...)
		}
		if want := []int{1, 2, 3, 4}; !slices.Equal(got, want) || !first() || !second() {
			t.Errorf("drained %v, want %v; done: %v, %v", got, want, first(), second())
		}
	})
}

func TestLiftLetsEverybodyIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](1)
		first, second := putLater(r, 1, 2, 3), putLater(r, 4)
		r.Lift()
		third := putLater(r, 5, 6) // nobody waits again
		if !first() || !second() || !third() || r.Len() != 6 {
			t.Errorf("done: %v, %v, %v, with %d in the buffer", first(), second(), third(), r.Len())
		}
		r.Close()
		for want := range 6 {
			wantNext(t, r, want+1)
		}
		wantNextWith(t, r, t.Context(), 0, false)
	})
}

func TestCloseTellsAllReadersAndKeepsTheItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](3)
		for range 3 {
			go wantNextWith(t, r, t.Context(), 0, false)
		}
		synctest.Wait()
		r.Close()
		synctest.Wait()
		r.Close() // as before
		if got := r.TakeAll(nil); got != nil {
			t.Errorf("took %v after the end", got)
		}

		r = buffering.NewResults[int](3)
		r.Put(pointers(1, 2))
		r.Close()
		wantNext(t, r, 1)
		if got := r.TakeAll(nil); !slices.Equal(got, []int{2}) {
			t.Errorf("took %v", got)
		}
		if got := r.TakeAll(nil); got != nil {
			t.Errorf("took %v after the end", got)
		}
	})
}

func TestCloseWakesTakeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := buffering.NewResults[int](1)
		done := false
		go func() {
			if got := r.TakeAll(make([]int, 3)); got != nil {
				t.Errorf("took %v", got)
			}
			done = true
		}()
		synctest.Wait()
		r.Close()
		synctest.Wait()
		if !done {
			t.Error("TakeAll is not back")
		}
	})
}
