package buffering_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/penstock-go/penstock/buffering"
	"pgregory.net/rapid"
)

func TestHeapLowestFirstAndEqualsInOrder(t *testing.T) {
	tests := []struct {
		name       string
		priorities []int
		want       []int // positions in priorities
	}{
		{"one", []int{3}, []int{0}},
		{"rising", []int{1, 2, 3}, []int{0, 1, 2}},
		{"falling", []int{3, 2, 1}, []int{2, 1, 0}},
		{"equals", []int{5, 5, 5, 5, 5, 5, 5}, []int{0, 1, 2, 3, 4, 5, 6}},
		{"mixed", []int{1, 0, 1, 0, -1, 1, 0}, []int{4, 1, 3, 6, 0, 2, 5}},
		{"extremes", []int{math.MaxInt, math.MinInt, 0, math.MinInt, math.MaxInt}, []int{1, 3, 2, 0, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h buffering.Heap[int]
			for i, priority := range tt.priorities {
				h.Push(i, priority)
			}
			var got []int
			for h.Len() > 0 {
				got = append(got, h.Pop())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("popped %v, want %v", got, tt.want)
			}
		})
	}
}

func TestHeapPanicsWhenEmpty(t *testing.T) {
	var fresh, used buffering.Heap[int]
	used.Push(1, 1)
	used.Pop()
	for name, h := range map[string]*buffering.Heap[int]{"fresh": &fresh, "used": &used} {
		t.Run(name, func(t *testing.T) {
			mustPanic(t, func() { h.Peek() })
			mustPanic(t, func() { h.Pop() })
			mustPanic(t, h.Drop)
			h.Push(7, 0)
			if got := h.Pop(); got != 7 || h.Len() != 0 {
				t.Errorf("popped %d, %d left", got, h.Len())
			}
		})
	}
}

func TestHeapIsGoodAfterABacklog(t *testing.T) {
	var h buffering.Heap[int]
	for round := range 3 {
		for i := range 5000 {
			h.Push(i, -i)
		}
		for i := 4999; i >= 0; i-- {
			if got := h.Pop(); got != i {
				t.Fatalf("round %d: popped %d, want %d", round, got, i)
			}
		}
	}
}

func TestHeapModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if err := playHeap(script(rt)); err != nil {
			rt.Fatal(err)
		}
	})
}

func FuzzHeap(f *testing.F) {
	f.Add([]byte{3, 1, 2, 128, 128, 128})
	f.Add([]byte{5, 5, 5, 5, 128, 5, 130, 5, 200})
	f.Add([]byte{0, 127, 1, 126, 255, 2, 125, 255, 3, 124})
	f.Fuzz(func(t *testing.T, script []byte) {
		if err := playHeap(script); err != nil {
			t.Fatal(err)
		}
	})
}

// playHeap plays a script on a heap and on a slice that is stably sorted at each arrival. A byte below 128 is the priority
// of an item, among few so that there are equals; any other takes out some items.
func playHeap(script []byte) error {
	type item struct{ id, priority int }
	var h buffering.Heap[item]
	var model []item
	pop := func() error {
		want := model[0]
		if got := *h.Peek(); got != want {
			return fmt.Errorf("peeked %v, want %v", got, want)
		}
		if want.id%3 == 0 {
			h.Drop()
		} else if got := h.Pop(); got != want {
			return fmt.Errorf("popped %v, want %v", got, want)
		}
		model = model[1:]
		return nil
	}
	for i, b := range script {
		if b < 128 {
			it := item{i, int(b%16) - 8}
			h.Push(it, it.priority)
			model = append(model, it)
			slices.SortStableFunc(model, func(a, b item) int { return cmp.Compare(a.priority, b.priority) })
		} else {
			for range min(len(model), 1+int(b)%4) {
				if err := pop(); err != nil {
					return fmt.Errorf("step %d: %w", i, err)
				}
			}
		}
		if h.Len() != len(model) {
			return fmt.Errorf("step %d: Len = %d, want %d", i, h.Len(), len(model))
		}
	}
	for len(model) > 0 {
		if err := pop(); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return nil
}
