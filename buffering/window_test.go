package buffering_test

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/penstock-go/penstock/buffering"
)

// putResult stores a result that says its number.
func putResult(w *buffering.Window[int], number int) { w.Put(number, &number) }

func wantReady(t *testing.T, w *buffering.Window[int], want ...int) {
	t.Helper()
	if got := w.TakeReady(nil); !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
}

func TestWindowPutsResultsInOrder(t *testing.T) {
	tests := []struct {
		name string
		puts []int
		want [][]int // what is ready after all puts, take by take
	}{
		{"in order", []int{0, 1, 2}, [][]int{{0, 1, 2}}},
		{"reversed", []int{2, 1, 0}, [][]int{{0, 1, 2}}},
		{"with a gap", []int{0, 2, 3}, [][]int{{0}}},
		{"without the first", []int{1, 2, 3}, nil},
		{"nothing", nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := buffering.NewWindow[int](4)
			w.Enter(4)
			for _, number := range tt.puts {
				putResult(w, number)
			}
			w.Close()
			for _, want := range tt.want {
				wantReady(t, w, want...)
			}
			if got := w.TakeReady(nil); got != nil {
				t.Errorf("took %v behind a gap", got)
			}
		})
	}
}

func TestReaderWaitsForTheNextInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := buffering.NewWindow[int](3)
		w.Enter(3)
		var got []int
		go func() { got = w.TakeReady(nil) }()
		synctest.Wait()
		for _, number := range []int{2, 1} {
			putResult(w, number)
			synctest.Wait()
			if got != nil {
				t.Fatalf("took %v before 0 was there", got)
			}
		}
		putResult(w, 0)
		synctest.Wait()
		if want := []int{0, 1, 2}; !slices.Equal(got, want) {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

func TestEnterGivesAsMuchAsThereIsRoomFor(t *testing.T) {
	w := buffering.NewWindow[int](5)
	for i, want := range []int{2, 2, 1} {
		if n := w.Enter(2); n != want {
			t.Errorf("entry %d: %d, want %d", i, n, want)
		}
	}
}

// What the reader was given still counts as open until it lets go of it.
func TestEnterWaitsUntilTheOldestIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := buffering.NewWindow[int](2)
		w.Enter(2)
		entered := make([]atomic.Int32, 3)
		for i := range entered {
			go func() { entered[i].Store(int32(w.Enter(5))) }()
			synctest.Wait()
		}
		check := func(what string, want ...int32) {
			t.Helper()
			synctest.Wait()
			for i := range entered {
				if n := entered[i].Load(); n != want[i] {
					t.Errorf("%s: entry %d got %d, want %d", what, i, n, want[i])
				}
			}
		}
		putResult(w, 1)
		putResult(w, 0)
		check("put", 0, 0, 0)
		wantReady(t, w, 0, 1)
		check("taken", 0, 0, 0)
		w.Release(1)
		check("one released", 1, 0, 0)
		w.Release(1)
		check("both released", 1, 1, 0)
		putResult(w, 3)
		putResult(w, 2)
		wantReady(t, w, 2, 3)
		w.Release(2)
		check("all released", 1, 1, 1)
		if n := w.Enter(5); n != 1 {
			t.Errorf("the last place went to %d", n)
		}
	})
}

func TestShutRefusesEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := buffering.NewWindow[int](1)
		w.Enter(1)
		var refused atomic.Int32
		for range 2 {
			go func() {
				if w.Enter(1) == 0 {
					refused.Add(1)
				}
			}()
		}
		synctest.Wait()
		w.Shut()
		w.Shut()
		synctest.Wait()
		if refused.Load() != 2 {
			t.Errorf("%d of 2 were refused", refused.Load())
		}
		putResult(w, 0) // what has entered is still worked on
		wantReady(t, w, 0)
		w.Release(1)
		if n := w.Enter(1); n != 0 {
			t.Errorf("%d entered, although there is room", n)
		}
	})
}

// An entry that was let in and then sees the window shut has entered.
func TestEntryLetInBeforeShutCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := buffering.NewWindow[int](1)
		w.Enter(1)
		n := 0
		go func() { n = w.Enter(1) }()
		synctest.Wait()
		putResult(w, 0)
		wantReady(t, w, 0)
		w.Release(1)
		w.Shut()
		synctest.Wait()
		if n != 1 {
			t.Errorf("entered %d", n)
		}
	})
}

func TestCloseWakesTheWindowsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := buffering.NewWindow[int](2)
		w.Enter(2)
		putResult(w, 1)
		done := false
		go func() {
			if got := w.TakeReady(make([]int, 0, 2)); got != nil {
				t.Errorf("took %v", got)
			}
			done = true
		}()
		synctest.Wait()
		w.Close()
		w.Close()
		synctest.Wait()
		if !done {
			t.Error("the reader is not back")
		}
	})
}

// The window grows from small while it is in use, at every place that its oldest result may have in it.
func TestWindowGrowsUnderWay(t *testing.T) {
	for _, size := range []int{40, 1000, math.MaxInt} {
		for offset := range 20 {
			w := buffering.NewWindow[int](size)
			w.Enter(offset + 40)
			for number := range offset {
				putResult(w, number)
			}
			if offset > 0 {
				w.TakeReady(nil)
				w.Release(offset)
			}
			if size == 40 && offset > 0 {
				w.Enter(offset) // what did not fit before
			}
			want := make([]int, 40)
			for i := range want {
				want[i] = offset + i
				putResult(w, offset+39-i) // backwards, so the distance is the largest at once
			}
			wantReady(t, w, want...)
		}
	}
}

func TestUnlimitedWindowHoldsNobodyBack(t *testing.T) {
	w := buffering.NewWindow[int](math.MaxInt)
	const n = 100_000
	if got := w.Enter(n); got != n {
		t.Fatalf("entered %d", got)
	}
	for number := 1; number < n; number++ {
		putResult(w, number)
	}
	putResult(w, 0)
	if got := w.TakeReady(nil); len(got) != n || !slices.IsSorted(got) {
		t.Errorf("took %d", len(got))
	}
	w.Release(n)
	if got := w.Enter(math.MaxInt); got != math.MaxInt {
		t.Errorf("entered %d", got)
	}
}

func TestTakeReadyUsesTheBufferAgain(t *testing.T) {
	w := buffering.NewWindow[int](2)
	w.Enter(2)
	buf := make([]int, 1, 8)
	putResult(w, 0)
	putResult(w, 1)
	got := w.TakeReady(buf)
	if !slices.Equal(got, []int{0, 1}) || &got[0] != &buf[0] {
		t.Errorf("took %v", got)
	}
}
