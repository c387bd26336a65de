package sim_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-go/penstock/internal/sim"
)

// FuzzRun calls Submit, Do, Next, Drain, Results, Counters, CloseInput, Finish, Stop and the run's cancel function in any
// order and at any time, and checks everything that the simulator checks.
func FuzzRun(f *testing.F) {
	plain := []byte{1, 1, 1, 0, 1, 1, 1, 7, 7, 1, 0, 0} // two workers, room for two, nothing special
	for _, calls := range [][]byte{
		{},
		{0, 0, 0, 0, 4, 0, 4, 0, 9},     // submit twice, read twice, close
		{4, 7, 4, 7, 0, 0, 13, 7, 0, 0}, // readers first, which give up
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 13, 7},      // more than there is room for, then close
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 0, 13, 7},  // and then stop
		{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 13, 7, 4, 0},     // and then cancel
		{3, 0, 3, 5, 13, 4, 3, 0, 10, 5, 11, 5},             // Do, some of them in vain; finish in vain; stop
		{0, 0, 10, 0, 0, 0, 11, 0, 12, 9, 4, 0, 6, 7, 8, 0}, // everything at once
	} {
		for _, with := range [][]byte{plain, {0, 7, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0xff, 0xff}, {1, 9, 2, 2, 3, 0, 1, 7, 2, 1, 0x3e, 0x04}} {
			f.Add(append(with[:len(with):len(with)], calls...))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			if broken := sim.Play(data); broken != nil {
				t.Error(strings.Join(broken, "\n"))
			}
		})
	})
}
