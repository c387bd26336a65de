package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"
)

// A contender is one way to do the work of its group.
type contender struct {
	name string
	turn func(*turn) error
}

// A group is one piece of work and everybody who does it. One of them is the baseline that the others are divided by.
type group struct {
	name       string // what -run matches, followed by a slash and the contender's name
	about      string
	unit       unit
	items      int
	workers    int
	handle     handler
	baseline   string
	contenders []contender
	check      func(*turn) error // of the output, outside the clock; nil when turns check their own
	exact      bool              // figures that do not depend on time and luck: three rounds tell
	notes      []string
}

// A turn is one contender doing the work once. What it makes is kept here, to be checked when the clock has stopped.
type turn struct {
	items   []int
	workers int
	handle  handler

	values   values // of a batch
	stream   []int  // of a stream, in the order in which it came
	done     int    // items, when that is not len(items)
	figure   *float64
	cleanups []func()
}

// emit takes a result of a stream. It is the consumer that all contenders share.
func (t *turn) emit(v int) { t.stream = append(t.stream, v) }

// after puts off what a contender has to tidy up until the clock has stopped.
func (t *turn) after(f func()) { t.cleanups = append(t.cleanups, f) }

// report sets the figure of a turn that measures something other than time per item.
func (t *turn) report(v float64) { t.figure = &v }

// A sample is what one turn came to, per item.
type sample struct {
	value  float64 // in the group's unit, nanoseconds for times
	allocs float64
	bytes  float64 // allocated
}

// A tally adds up what the clock saw of one turn, or of several.
type tally struct {
	elapsed       time.Duration
	items         int
	allocs, bytes uint64
	figure        *float64
}

// play gives a contender its turn, and more of them until the clock has seen enough: what is over in a millisecond would
// else be measured by a thousandth of what its slow rivals get.
func play(g *group, items []int, c contender, enough time.Duration) (sample, error) {
	var sum tally
	for sum.items == 0 || sum.elapsed < enough && sum.figure == nil {
		if err := sum.add(g, items, c); err != nil {
			return sample{}, fmt.Errorf("%s: %s: %w", g.name, c.name, err)
		}
	}
	n := float64(sum.items)
	s := sample{value: float64(sum.elapsed) / n, allocs: float64(sum.allocs) / n, bytes: float64(sum.bytes) / n}
	if sum.figure != nil {
		s.value = *sum.figure
	}
	return s, nil
}

// add plays one turn. Garbage of earlier ones is collected before the clock starts, and the check comes when it has stopped.
func (sum *tally) add(g *group, items []int, c contender) error {
	t := &turn{items: items, workers: g.workers, handle: g.handle, stream: make([]int, 0, len(items)), done: len(items)}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	err := c.turn(t)
	sum.elapsed += time.Since(start)
	runtime.ReadMemStats(&after)
	for _, f := range t.cleanups {
		f()
	}
	if err == nil && g.check != nil {
		err = g.check(t)
	}
	sum.items += max(1, t.done)
	sum.allocs += after.Mallocs - before.Mallocs
	sum.bytes += after.TotalAlloc - before.TotalAlloc
	sum.figure = t.figure
	return err
}

// A result is all samples of a group: by contender, then by round.
type result struct {
	*group
	samples map[string][]sample
}

// measure plays all rounds of a group. In each one every contender has one turn, in an order drawn anew, so that neither
// a slow minute of the machine nor the place behind a certain neighbour falls to one contender alone.
func measure(g *group, s sizes, rng *rand.Rand) (*result, error) {
	r := &result{group: g, samples: make(map[string][]sample)}
	items := numbers(g.items)
	order := slices.Clone(g.contenders)
	rounds := s.rounds
	if g.exact {
		rounds = min(rounds, 3)
	}
	for range rounds {
		rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, c := range order {
			s, err := play(g, items, c, s.enough)
			if err != nil {
				return nil, err
			}
			r.samples[c.name] = append(r.samples[c.name], s)
		}
	}
	return r, nil
}

// median is a contender's median of one property of its samples.
func (r *result) median(name string, property func(sample) float64) float64 {
	var all []float64
	for _, s := range r.samples[name] {
		all = append(all, property(s))
	}
	return quantile(all, 0.5)
}

func value(s sample) float64  { return s.value }
func allocs(s sample) float64 { return s.allocs }
func volume(s sample) float64 { return s.bytes }

// A ratio compares two contenders round by round: of each round's two neighbours, not of two medians, so that what slows a
// whole round down cancels out.
type ratio struct{ median, low, high float64 } // low and high are the quartiles

// ratio is how many times as long a contender takes as another. It is zero when one of them did not take part.
func (r *result) ratio(name, to string) ratio {
	a, b := r.samples[name], r.samples[to]
	if len(a) == 0 || len(a) != len(b) {
		return ratio{}
	}
	all := make([]float64, len(a))
	for i := range a {
		all[i] = a[i].value / b[i].value
	}
	return ratio{median: quantile(all, 0.5), low: quantile(all, 0.25), high: quantile(all, 0.75)}
}

// quantile interpolates between the two nearest values.
func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
