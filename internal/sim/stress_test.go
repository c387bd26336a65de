package sim_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/sim"
)

// TestRealClock simulates engines on the real clock, on one, two and eight processors. All in all it takes a third of the
// time that virtual engines get.
func TestRealClock(t *testing.T) {
	if *seedFlag != 0 {
		replay(t, sim.Draw(*seedFlag, sim.Real, dropped()...))
		return
	}
	times := 60
	if testing.Short() {
		times = 10
	}
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(procs, " processors"), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			start := time.Now()
			for i := 0; i < times || time.Since(start) < *forFlag/9; i++ {
				s := sim.Draw(rand.Uint64(), sim.Real)
				if broken := simulate(t, s); broken != nil {
					report(t, s, broken)
					return
				}
			}
		})
	}
}
