package buffering_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/buffering"
)

func mustPush[T any](t *testing.T, q *buffering.Queue[T], item T, priority int) (number int) {
	t.Helper()
	number, err := q.Push(context.Background(), item, priority)
	if err != nil {
		t.Fatalf("Push(%v) = %v", item, err)
	}
	return number
}

// pushLater pushes items one after the other, each from a goroutine of its own, and returns when all are in or wait.
// The channel gives, in the order in which they came back, those that were accepted; others, negated.
func pushLater(q *buffering.Queue[int], items ...int) <-chan int {
	back := make(chan int, len(items))
	for _, item := range items {
		go func() {
			if _, err := q.Push(context.Background(), item, 0); err != nil {
				item = -item
			}
			back <- item
		}()
		synctest.Wait()
	}
	return back
}

// take is Take into a slice.
func take[T any](q *buffering.Queue[T], n, shares int) (items []T) {
	q.Take(n, shares, func(item *T, _ int) { items = append(items, *item) })
	return items
}

func takeOne(q *buffering.Queue[int]) (item int, ok bool) {
	ok = q.Take(1, 1, func(taken *int, _ int) { item = *taken }) == 1
	return item, ok
}

// takeAll takes one by one until the queue is closed and empty.
func takeAll(q *buffering.Queue[int]) (items []int) {
	for {
		item, ok := takeOne(q)
		if !ok {
			return items
		}
		items = append(items, item)
	}
}

func wantCounts[T any](t *testing.T, q *buffering.Queue[T], accepted, taken int) {
	t.Helper()
	if a, n := q.Counts(); a != accepted || n != taken {
		t.Errorf("%d accepted and %d taken, want %d and %d", a, n, accepted, taken)
	}
}

func TestQueueTakesByPriorityAndArrival(t *testing.T) {
	tests := []struct {
		name       string
		priorities []int
		want       []int // positions in priorities
	}{
		{"none", []int{0, 0, 0, 0}, []int{0, 1, 2, 3}},
		{"one late, lower", []int{0, 0, 0, -1}, []int{3, 0, 1, 2}},
		{"one late, higher", []int{0, 0, 1, 0}, []int{0, 1, 3, 2}},
		{"equals", []int{2, 1, 2, 1, 2}, []int{1, 3, 0, 2, 4}},
		{"extremes", []int{math.MaxInt, 0, math.MinInt, math.MaxInt}, []int{2, 1, 0, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := buffering.NewQueue[int](len(tt.priorities))
			for round := range 2 { // the second time on what the first has left behind
				for i, priority := range tt.priorities {
					if n := mustPush(t, q, i, priority); n != round*len(tt.priorities)+i {
						t.Errorf("item %d got number %d", i, n)
					}
				}
				var got []int
				for range tt.priorities {
					item, _ := takeOne(q)
					got = append(got, item)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("round %d: took %v, want %v", round, got, tt.want)
				}
			}
		})
	}
}

// Numbers count what was accepted, in that order, whatever the order in which it is taken.
func TestTakersAreToldTheNumber(t *testing.T) {
	q := buffering.NewQueue[int](3)
	if _, err := q.Push(ended(), 9, 0); err == nil {
		t.Error("accepted") // and it uses up no number
	}
	for i := range 3 {
		mustPush(t, q, 10+i, -i)
	}
	var got []job
	tell := func(item *int, number int) { got = append(got, job{*item, number}) }
	q.Recruit(1, tell)
	q.Take(1, 1, tell)
	q.Abandon(errGone, tell)
	if want := []job{{12, 2}, {11, 1}, {10, 0}}; !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestPushRefusesAnEndedContext(t *testing.T) {
	expired, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	caused, because := context.WithCancelCause(context.Background())
	because(errGone)
	for name, tt := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"cancelled":            {ended(), context.Canceled},
		"past its deadline":    {expired, context.DeadlineExceeded},
		"cancelled by a cause": {caused, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			q := buffering.NewQueue[int](1)
			if _, err := q.Push(tt.ctx, 1, 0); !errors.Is(err, tt.want) { // although there is room
				t.Errorf("Push = %v, want %v", err, tt.want)
			}
			wantCounts(t, q, 0, 0)
			q.Close(errOver)
			if _, err := q.Push(tt.ctx, 1, 0); !errors.Is(err, tt.want) { // the caller's own end comes first
				t.Errorf("Push after Close = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestPushWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](2)
		back := pushLater(q, 1, 2, 3)
		if len(back) != 2 {
			t.Fatalf("%d of 3 are in", len(back))
		}
		wantCounts(t, q, 2, 0) // one who waits is not counted
		takeOne(q)
		synctest.Wait()
		if len(back) != 3 {
			t.Error("the third is not in after one was taken")
		}
		wantCounts(t, q, 3, 1)
		q.Close(nil)
		if got, want := takeAll(q), []int{2, 3}; !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

func TestPushGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		mustPush(t, q, 0, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		_, err := q.Push(ctx, 1, 0)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
			t.Errorf("Push = %v after %v", err, time.Since(start))
		}
		q.Close(nil)
		if got := takeAll(q); !slices.Equal(got, []int{0}) {
			t.Errorf("took %v", got)
		}
		wantCounts(t, q, 1, 1)
	})
}

// Whoever gives up, first, middle or last in line, those who wait on are admitted in their order.
func TestCancelledPushLeavesTheLine(t *testing.T) {
	for quitter := range 3 {
		synctest.Test(t, func(t *testing.T) {
			q := buffering.NewQueue[int](1)
			mustPush(t, q, 100, 0)
			ctxs, cancels := make([]context.Context, 3), make([]context.CancelFunc, 3)
			errs := make([]error, 3)
			want := []int{100}
			for i := range 3 {
				ctxs[i], cancels[i] = context.WithCancel(t.Context())
				go func() { _, errs[i] = q.Push(ctxs[i], i, 0) }()
				synctest.Wait()
				if i != quitter {
					want = append(want, i)
				}
			}
			cancels[quitter]()
			synctest.Wait()
			var got []int
			for range want {
				item, _ := takeOne(q)
				got = append(got, item)
			}
			synctest.Wait()
			if !slices.Equal(got, want) {
				t.Errorf("without %d: took %v, want %v", quitter, got, want)
			}
			for i, err := range errs {
				if (err != nil) != (i == quitter) || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("without %d: Push of %d = %v", quitter, i, err)
				}
				cancels[i]()
			}
			wantCounts(t, q, 3, 3)
		})
	}
}

// Waiting is first come, first served: a priority orders what is in the queue, not who gets in.
func TestAdmissionIgnoresPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		mustPush(t, q, 0, 0)
		for i, priority := range []int{5, 0, -5} {
			go q.Push(t.Context(), i+1, priority)
			synctest.Wait()
		}
		var got []int
		for range 4 {
			item, _ := takeOne(q)
			got = append(got, item)
		}
		if want := []int{0, 1, 2, 3}; !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

// Nobody who comes later gets the room that is due to one who waits.
func TestPushDoesNotOvertakeAWaitingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		pushLater(q, 1, 2)
		takeOne(q)
		pushLater(q, 3)
		q.Close(nil)
		if got := takeAll(q); !slices.Equal(got, []int{2}) {
			t.Errorf("took %v, want [2]: 3 came last and was refused", got)
		}
	})
}

// The moment of admission: room is made and the context ends before the one who waits gets to look. Which it sees first
// is open, and if it gave up before, that is fine too; but what it is told and what happened to the item must agree.
func TestPushServedWhenItsContextEnds(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			q := buffering.NewQueue[int](1)
			mustPush(t, q, 0, 0)
			ctx, cancel := context.WithCancel(t.Context())
			var number int
			var err error
			go func() { number, err = q.Push(ctx, 1, 0) }()
			synctest.Wait()
			served := i%2 == 0
			if served {
				takeOne(q)
				cancel()
			} else {
				cancel()
				takeOne(q)
			}
			synctest.Wait()
			q.Close(nil)
			rest := takeAll(q)
			switch {
			case err == nil && number == 1 && slices.Equal(rest, []int{1}):
			case errors.Is(err, context.Canceled) && len(rest) == 0 && !served:
			default:
				t.Errorf("served first: %v; Push = %d, %v, and the queue held %v", served, number, err, rest)
			}
		})
	}
}

func TestPushRefusedWhenItsContextEnds(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			q := buffering.NewQueue[int](1)
			mustPush(t, q, 0, 0)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if _, err := q.Push(ctx, 1, 0); !errors.Is(err, errOver) && !errors.Is(err, context.Canceled) {
					t.Errorf("Push = %v", err)
				}
			}()
			synctest.Wait()
			if i%2 == 0 {
				q.Close(errOver)
				cancel()
			} else {
				cancel()
				q.Close(errOver)
			}
			synctest.Wait()
			wantCounts(t, q, 1, 0)
		})
	}
}

func TestTakeWaitsForAnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		var got []int
		for range 2 {
			go func() {
				items := take(q, 4, 1)
				got = append(got, items...)
			}()
		}
		synctest.Wait()
		if len(got) != 0 {
			t.Fatalf("took %v from an empty queue", got)
		}
		for i := range 2 {
			mustPush(t, q, 100+i, 7)
			synctest.Wait()
		}
		if want := []int{100, 101}; !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
		wantCounts(t, q, 2, 2)
	})
}

// A burst goes to as many idle takers, not to the first one that wakes.
func TestEachIdleTakerGetsOneItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](10)
		sizes := make([]int, 5)
		for i := range sizes {
			go func() { sizes[i] = len(take(q, 8, 5)) }()
		}
		synctest.Wait()
		for i := range sizes {
			mustPush(t, q, i, 0)
		}
		synctest.Wait()
		if want := []int{1, 1, 1, 1, 1}; !slices.Equal(sizes, want) {
			t.Errorf("took %v, want %v", sizes, want)
		}
	})
}

func TestTakeLeavesAFairShare(t *testing.T) {
	tests := []struct {
		name                 string
		stored, room, shares int
		want                 int
	}{
		{"one by one", 10, 1, 1, 1},
		{"everything", 5, 8, 1, 5},
		{"as much as there is place for", 8, 5, 1, 5},
		{"a half", 8, 8, 2, 4},
		{"rounded down", 11, 8, 4, 2},
		{"never less than one", 3, 8, 100, 1},
		{"the last", 1, 8, 8, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := buffering.NewQueue[int](tt.stored)
			for i := range tt.stored {
				mustPush(t, q, i, 0)
			}
			got := take(q, tt.room, tt.shares)
			if len(got) != tt.want || !slices.IsSorted(got) || got[0] != 0 {
				t.Errorf("took %v, want the first %d", got, tt.want)
			}
			wantCounts(t, q, tt.stored, tt.want)
		})
	}
}

func TestTakeOfABatchAdmitsAsMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](3)
		back := pushLater(q, 1, 2, 3, 4, 5, 6, 7)
		got := take(q, 2, 1)
		synctest.Wait()
		if len(back) != 5 {
			t.Errorf("%d are in, want 5", len(back))
		}
		q.Close(nil)
		if got, want := append(got, takeAll(q)...), []int{1, 2, 3, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

func TestCloseRefusesAndLetsTakersFinish(t *testing.T) {
	for name, tt := range map[string]struct{ err, want error }{
		"with an error": {errOver, errOver},
		"without":       {nil, buffering.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := buffering.NewQueue[int](2)
				mustPush(t, q, 1, 1)
				mustPush(t, q, 0, 0)
				go func() {
					if _, err := q.Push(t.Context(), 2, 0); !errors.Is(err, tt.want) {
						t.Errorf("waiting Push = %v, want %v", err, tt.want)
					}
				}()
				synctest.Wait()
				q.Close(tt.err)
				q.Close(errGone) // too late to change anything
				if _, err := q.Push(t.Context(), 3, 0); !errors.Is(err, tt.want) {
					t.Errorf("later Push = %v, want %v", err, tt.want)
				}
				synctest.Wait()
				if got, want := takeAll(q), []int{0, 1}; !slices.Equal(got, want) {
					t.Errorf("took %v, want %v", got, want)
				}
				wantCounts(t, q, 2, 2)
			})
		})
	}
}

func TestCloseWakesIdleTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		var woken atomic.Int32
		for range 3 {
			go func() {
				if items := take(q, 2, 1); items != nil {
					t.Errorf("took %v", items)
				}
				woken.Add(1)
			}()
			synctest.Wait()
		}
		q.Close(nil)
		synctest.Wait()
		if n := woken.Load(); n != 3 {
			t.Errorf("%d of 3 takers are back", n)
		}
	})
}

func TestAbandonHandsOutWhatIsStored(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := buffering.NewQueue[int](3)
			for i, priority := range []int{1, 0, -1} {
				mustPush(t, q, i, priority)
			}
			if closed {
				q.Close(errOver)
			} else {
				go func() {
					if _, err := q.Push(t.Context(), 9, 0); !errors.Is(err, errGone) {
						t.Errorf("waiting Push = %v", err)
					}
				}()
				synctest.Wait()
			}
			var got []int
			q.Abandon(errGone, func(item *int, _ int) {
				got = append(got, *item)
				wantCounts(t, q, 3, 0) // the lock is free: each may look at the queue
			})
			if want := []int{2, 1, 0}; !slices.Equal(got, want) {
				t.Errorf("abandoned %v, want %v", got, want)
			}
			if _, err := q.Push(t.Context(), 3, 0); !errors.Is(err, errGone) {
				t.Errorf("Push = %v, want %v", err, errGone)
			}
			if _, ok := takeOne(q); ok {
				t.Error("took an abandoned item")
			}
			q.Abandon(errGone, func(item *int, _ int) { t.Errorf("%d was abandoned twice", *item) })
			synctest.Wait()
		})
	}
}

func TestAbandonWakesIdleTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		back := false
		go func() {
			_, ok := takeOne(q)
			back = !ok
		}()
		synctest.Wait()
		q.Abandon(errGone, func(*int, int) { t.Error("nothing is stored") })
		synctest.Wait()
		if !back {
			t.Error("the taker is not back")
		}
	})
}

// A push that returns no error has been accepted, whatever was given to Abandon.
func TestAbandonWithoutAnErrorRefusesToo(t *testing.T) {
	q := buffering.NewQueue[int](1)
	q.Abandon(nil, func(*int, int) {})
	if _, err := q.Push(t.Context(), 1, 0); !errors.Is(err, buffering.ErrClosed) {
		t.Errorf("Push = %v, want %v", err, buffering.ErrClosed)
	}
	wantCounts(t, q, 0, 0)
}

func TestRecruitStartsATakerOnlyForAnItemThatNeedsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](5)
		var started []int
		q.Recruit(2, func(item *int, _ int) { started = append(started, *item) })
		mustPush(t, q, 1, 9)
		got := 0
		go func() { got, _ = takeOne(q) }()
		synctest.Wait()
		mustPush(t, q, 2, 9) // the idle one takes it
		synctest.Wait()
		mustPush(t, q, 3, 9)
		mustPush(t, q, 4, 9) // both are at work
		if want := []int{1, 3}; !slices.Equal(started, want) || got != 2 {
			t.Errorf("started with %v, want %v; the idle one took %d", started, want, got)
		}
		wantCounts(t, q, 4, 3)
		q.Close(nil)
		if rest := takeAll(q); !slices.Equal(rest, []int{4}) {
			t.Errorf("left %v", rest)
		}
	})
}

func TestRecruitHandsOverWhatCameBefore(t *testing.T) {
	for n := range 5 {
		q := buffering.NewQueue[int](3)
		for i, priority := range []int{1, 0, -1} {
			mustPush(t, q, i, priority)
		}
		if n%2 == 1 {
			q.Close(nil) // what was accepted is still to be worked on
		}
		var started []int
		q.Recruit(n, func(item *int, _ int) { started = append(started, *item) })
		if want := []int{2, 1, 0}[:min(n, 3)]; !slices.Equal(started, want) {
			t.Errorf("%d recruits started with %v, want %v", n, started, want)
		}
		wantCounts(t, q, 3, min(n, 3))
	}
}

func TestRecruitDoesNotLetAWaitingPushOvertakeStoredItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](2)
		pushLater(q, 0, 1, 2) // the last one waits for room
		var started []int
		q.Recruit(2, func(item *int, _ int) { started = append(started, *item) })
		synctest.Wait()
		if want := []int{0, 1}; !slices.Equal(started, want) {
			t.Errorf("started with %v, want %v", started, want)
		}
		q.Close(nil)
	})
}

func TestRecruitAdmitsUntilTheQueueIsFullAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](1)
		pushLater(q, 0, 1, 2)
		q.Recruit(2, func(*int, int) {})
		synctest.Wait()
		wantCounts(t, q, 3, 2)
		q.Close(nil)
		synctest.Wait()
	})
}

func TestRecruitTakesTheWholeLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](2)
		pushLater(q, 0, 1, 2, 3, 4)
		var started []int
		q.Recruit(10, func(item *int, _ int) { started = append(started, *item) })
		pushLater(q, 5)
		if want := []int{0, 1, 2, 3, 4, 5}; !slices.Equal(started, want) {
			t.Errorf("started with %v, want %v", started, want)
		}
		wantCounts(t, q, 6, 6)
		q.Close(nil)
		synctest.Wait()
	})
}

func TestFeedIsToldWhenHalfTheQueueIsFree(t *testing.T) {
	for _, tt := range []struct{ capacity, takes int }{{1, 2}, {2, 2}, {3, 3}, {4, 3}, {8, 5}} {
		synctest.Test(t, func(t *testing.T) {
			q := buffering.NewQueue[int](tt.capacity)
			for i := range tt.capacity {
				if err := q.Feed(i, 0); err != nil { // with room it does not wait
					t.Fatal(err)
				}
			}
			told := false
			go func() {
				if err := q.Feed(tt.capacity, 0); err != nil {
					t.Errorf("Feed = %v", err)
				}
				told = true
			}()
			synctest.Wait()
			wantCounts(t, q, tt.capacity, 0)
			for n := range tt.takes {
				if told {
					t.Errorf("capacity %d: told after %d were taken, want %d", tt.capacity, n, tt.takes)
				}
				if item, _ := takeOne(q); item != n {
					t.Errorf("took %d, want %d", item, n)
				}
				synctest.Wait()
				wantCounts(t, q, tt.capacity+1, n+1) // the item is in as soon as there is room
			}
			if !told {
				t.Errorf("capacity %d: not told after %d were taken", tt.capacity, tt.takes)
			}
		})
	}
}

func TestCloseTellsFeeders(t *testing.T) {
	for name, taken := range map[string]int{"refused": 0, "admitted before": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := buffering.NewQueue[int](3)
				pushLater(q, 1, 2, 3)
				want := errOver
				if taken > 0 {
					want = nil
				}
				var err error
				told := false
				go func() {
					err = q.Feed(4, 0)
					told = true
				}()
				synctest.Wait()
				for range taken {
					takeOne(q)
				}
				q.Close(errOver)
				synctest.Wait()
				if !told || !errors.Is(err, want) {
					t.Errorf("Feed = %v (%v), want %v", err, told, want)
				}
				if err := q.Feed(5, 0); !errors.Is(err, errOver) {
					t.Errorf("later Feed = %v", err)
				}
				wantCounts(t, q, 3+taken, taken)
			})
		})
	}
}

// A source that is not woken at once is still only one in the line.
func TestFeedHoldsUpNobodyBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := buffering.NewQueue[int](4)
		pushLater(q, 0, 1, 2, 3)
		go q.Feed(4, 0)
		synctest.Wait()
		pushLater(q, 5)
		takeOne(q) // room for 4
		takeOne(q) // room for 5
		synctest.Wait()
		wantCounts(t, q, 6, 2)
		pushLater(q, 6)
		q.Close(nil)
		if got, want := takeAll(q), []int{2, 3, 4, 5}; !slices.Equal(got, want) {
			t.Errorf("took %v, want %v: 6 came last and was refused", got, want)
		}
	})
}
