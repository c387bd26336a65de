package penstock

import (
	"math"
	"testing"
	"unsafe"
)

// TestPortionsOfAHugeSlice claims at the far end of a slice whose indices do not fit into a portion.
func TestPortionsOfAHugeSlice(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("no slice is that long on this platform")
	}
	huge := uint64(1) << 33 // no constant, for platforms on which it is none of an int
	d := &division[struct{}, int]{items: make([]struct{}, huge), portions: make([]portion, 2)}
	d.claimed = len(d.items) - 10
	for want := d.claimed; want < len(d.items); want++ {
		if s := d.claimNew(1, largestPortion); s != (span{want, want + 1}) {
			t.Fatalf("claimed %+v, want the item %d", s, want)
		}
	}
	if s := d.claimNew(1, largestPortion); s.len() != 0 {
		t.Fatalf("claimed %+v beyond the end", s)
	}
}

// TestPortionsAreApart keeps the size of a portion at what the caches want.
func TestPortionsAreApart(t *testing.T) {
	if size := unsafe.Sizeof(portion{}); size%128 != 0 && unsafe.Sizeof(0) == 8 {
		t.Errorf("a portion takes %d bytes, which is no multiple of 128", size)
	}
}
