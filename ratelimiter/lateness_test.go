package ratelimiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestLateness runs a bucket's arithmetic under timers that are late at random, which they never are in a bubble. Whatever
// the callers do, no grants are closer than their slots by more than 5 ms, nor by more than twice the timers' lateness, and
// by nothing if those are punctual: the callers' own lateness is not made up. Callers that come straight back get what a
// punctual timer would have given them, as long as no timer is later than 5 ms.
func TestLateness(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 44))
		rate := Rate{Count: []int{10, 1000, 10_000, 300_000}[rng.IntN(4)], Per: time.Second}
		callers := []int{1, 3, 64}[rng.IntN(3)]
		late := []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond}[rng.IntN(4)]
		think := []time.Duration{0, 0, 2 * time.Millisecond, 100 * time.Millisecond}[rng.IntN(4)]
		t.Run(fmt.Sprintf("%d/%v callers=%d late=%v think=%v", seed, rate, callers, late, think), func(t *testing.T) {
			checkLateness(t, rng, rate, callers, late, think)
		})
	}
}

func checkLateness(t *testing.T, rng *rand.Rand, rate Rate, callers int, late, think time.Duration) {
	at := grantsUnderLateness(rng, rate, callers, int64(late), int64(think))
	interval := int64(rate.Per) / int64(rate.Count)
	madeUp := min(2*int64(late), maxLate) // once for the grant that was late, once for callers that it let go late
	for i := range at {
		for _, k := range []int{1, 2, 7, 100, len(at) - 1 - i} {
			if j := i + k; j < len(at) && at[j]-at[i] < int64(k)*interval-madeUp {
				t.Fatalf("grants %d to %d within %v, by more than %v closer than their slots", i, j, time.Duration(at[j]-at[i]),
					time.Duration(madeUp))
			}
		}
	}
	if last := int64(len(at)-1)*int64(rate.Per)/int64(rate.Count) + 1; think == 0 && late <= 5*time.Millisecond &&
		at[len(at)-1] > last+int64(late) {
		t.Errorf("the last grant came at %v, its slot was %v", time.Duration(at[len(at)-1]), time.Duration(last))
	}
}

// grantsUnderLateness is when a bucket makes 2,000 grants, or a second's, to callers that come back after a time of up to
// think, with a timer that is late by up to late. It is the queue in a few lines.
func grantsUnderLateness(rng *rand.Rand, rate Rate, callers int, late, think int64) (at []int64) {
	random := func(most int64) int64 { return rng.Int64N(most + 1) }
	b := freshBucket(rate)
	come := make([]int64, callers) // when each caller comes (back)
	now, since := int64(0), int64(0)
	for range 2000 {
		slices.Sort(come)
		if come[0] >= now { // nobody waited: no timer is involved
			now, since = come[0], come[0]
		}
		since = max(since, come[0])
		ready := max(since, b.earliest(now, 1))
		if ready > now { // the timer goes off
			now = ready + random(late)
		}
		b.take(now, ready, 1, 0)
		since = ready
		at = append(at, now)
		come[0] = now + random(think)
	}
	return at
}
