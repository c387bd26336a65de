package buffering_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/penstock-go/penstock/buffering"
	"pgregory.net/rapid"
)

func TestBound(t *testing.T) {
	tests := []struct {
		name    string
		i, r, w int
		want    int
	}{
		{"smallest", 1, 1, 1, 7},
		{"default, 2 workers", 2, 2, 2, 11},
		{"default, 4 workers", 4, 4, 4, 19},
		{"default, 32 workers", 32, 32, 32, 131},
		{"small buffers", 1, 1, 2, 8},
		{"unlimited input", math.MaxInt, 2, 2, math.MaxInt},
		{"unlimited results", 2, math.MaxInt, 2, math.MaxInt},
		{"everything unlimited", math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt},
		{"just fits", math.MaxInt - 7, 1, 2, math.MaxInt},
		{"one below", math.MaxInt - 8, 1, 2, math.MaxInt - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := buffering.Bound(tt.i, tt.r, tt.w); got != tt.want {
				t.Errorf("Bound(%d, %d, %d) = %d, want %d", tt.i, tt.r, tt.w, got, tt.want)
			}
		})
	}
}

// The sum is the formula's, and where that is too large for an int it is the largest int and never less.
func TestBoundDoesNotOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, math.MaxInt))
		i, r, w := size.Draw(t, "i"), size.Draw(t, "r"), size.Draw(t, "w")
		want := big.NewInt(3)
		for _, part := range []int{i, r, r, w} {
			want.Add(want, big.NewInt(int64(part)))
		}
		if !want.IsInt64() || want.Int64() > math.MaxInt {
			want.SetInt64(math.MaxInt)
		}
		if got := buffering.Bound(i, r, w); int64(got) != want.Int64() {
			t.Fatalf("Bound(%d, %d, %d) = %d, want %d", i, r, w, got, want)
		}
	})
}
