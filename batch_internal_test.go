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

// TestPortionOfASlowOwner has a quick worker claim while another one has begun nothing of its portion for a while.
func TestPortionOfASlowOwner(t *testing.T) {
	d := &division[int, int]{items: make([]int, 1000), portions: make([]portion, 2)}
	slow, quicker := &d.portions[0], &d.portions[1]
	d.claimed = 100
	slow.left.Store(span{10, 40}.packed())
	d.list(slow)
	quicker.timedAt = 2*largestPortion*quick - 1
	if s := d.takeOver(quicker, true); s.len() != 0 {
		t.Errorf("%+v was taken from an owner that is likely to be quick", s)
	}
	quicker.timedAt++
	if s := d.takeOver(quicker, true); s != (span{10, 40}) {
		t.Errorf("%+v was taken over, want all that the slow owner has not begun", s)
	}
	if s := slow.begin(1); s.len() != 0 || d.first != nil || d.last != nil {
		t.Errorf("%+v is left to the owner, and listed: %v", s, d.first != nil)
	}
}

// TestPortionsAreApart keeps the size of a portion at what the caches want.
func TestPortionsAreApart(t *testing.T) {
	if size := unsafe.Sizeof(portion{}); size%128 != 0 && unsafe.Sizeof(0) == 8 {
		t.Errorf("a portion takes %d bytes, which is no multiple of 128", size)
	}
}
