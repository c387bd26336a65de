package buffering_test

import (
	"slices"
	"testing"

	"github.com/penstock-go/penstock/buffering"
	"pgregory.net/rapid"
)

func TestFIFOKeepsTheOrder(t *testing.T) {
	var q buffering.FIFO[int]
	pushed, popped := 0, 0
	// Two in, one out, so that the ring grows with its oldest item at every place in it.
	for range 10_000 {
		q.Push(pushed)
		q.Push(pushed + 1)
		pushed += 2
		if got := q.Pop(); got != popped {
			t.Fatalf("popped %d, want %d", got, popped)
		}
		popped++
	}
	for ; q.Len() > 0; popped++ {
		if got := q.Pop(); got != popped {
			t.Fatalf("popped %d, want %d", got, popped)
		}
	}
	if popped != pushed {
		t.Errorf("%d in, %d out", pushed, popped)
	}
}

func TestFIFOPeekShowsTheOldestInPlace(t *testing.T) {
	var q buffering.FIFO[int]
	q.Push(1)
	q.Push(2)
	*q.Peek() += 10
	if a, b := q.Pop(), q.Pop(); a != 11 || b != 2 {
		t.Errorf("popped %d and %d, want 11 and 2", a, b)
	}
}

func TestFIFOPanicsWhenEmpty(t *testing.T) {
	var fresh, used buffering.FIFO[int]
	used.Push(1)
	used.Pop()
	for name, q := range map[string]*buffering.FIFO[int]{"fresh": &fresh, "used": &used} {
		t.Run(name, func(t *testing.T) {
			mustPanic(t, func() { q.Peek() })
			mustPanic(t, func() { q.Pop() })
			mustPanic(t, q.Drop)
			q.Push(7) // no harm done
			if got := q.Pop(); got != 7 || q.Len() != 0 {
				t.Errorf("popped %d, %d left", got, q.Len())
			}
		})
	}
}

// A large ring goes when it is empty; what comes next must not notice.
func TestFIFOIsGoodAfterABacklog(t *testing.T) {
	var q buffering.FIFO[int]
	for round := range 3 {
		for i := range 5000 {
			q.Push(i)
		}
		for i := range 5000 {
			if got := q.Pop(); got != i {
				t.Fatalf("round %d: popped %d, want %d", round, got, i)
			}
		}
	}
}

func TestFIFOModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q buffering.FIFO[int]
		var model []int
		next := 0
		for range rapid.IntRange(0, 60).Draw(t, "phases") {
			for range rapid.IntRange(0, 40).Draw(t, "pushes") {
				q.Push(next)
				model = append(model, next)
				next++
			}
			for range min(len(model), rapid.IntRange(0, 50).Draw(t, "pops")) {
				peeked := *q.Peek()
				if peeked != model[0] {
					t.Fatalf("peeked %d, want %d", peeked, model[0])
				}
				if peeked%3 == 0 {
					q.Drop()
				} else if got := q.Pop(); got != peeked {
					t.Fatalf("popped %d, want %d", got, peeked)
				}
				model = model[1:]
			}
			if q.Len() != len(model) {
				t.Fatalf("Len = %d, want %d", q.Len(), len(model))
			}
		}
		var rest []int
		for q.Len() > 0 {
			rest = append(rest, q.Pop())
		}
		if !slices.Equal(rest, model) {
			t.Fatalf("left %v, want %v", rest, model)
		}
	})
}
