package main

import (
	"fmt"
	"strings"
)

// results are all groups that were measured.
type results []*result

func (all results) find(name string) *result {
	for _, r := range all {
		if r.name == name {
			return r
		}
	}
	return nil
}

// A target is a promise about one figure of a run.
type target struct {
	work    string
	want    string
	measure func(results) (ratio, bool) // the median counts; false when it was not measured
	limit   float64
	atLeast bool
	tie     bool // two things are to cost the same: then half of the rounds say "more", and the lower quartile counts
	show    func(ratio) string
}

func (t target) reached(v ratio) bool {
	switch {
	case t.atLeast:
		return v.median >= t.limit
	case t.tie:
		return v.low <= t.limit
	}
	return v.median <= t.limit
}

func times(v ratio) string { return fmt.Sprintf("%.2f × (%.2f … %.2f)", v.median, v.low, v.high) }

// ratioOf is the median ratio of two contenders of a group.
func ratioOf(group, name, to string) func(results) (ratio, bool) {
	return func(all results) (ratio, bool) {
		r := all.find(group)
		if r == nil {
			return ratio{}, false
		}
		v := r.ratio(name, to)
		return v, v.median != 0
	}
}

// slower: Penstock takes at most so many times as long as another.
func slower(work, group, name, to string, limit float64) target {
	return target{
		work: work, want: fmt.Sprintf("≤ %.4g × %s", limit, strings.TrimPrefix(to, "by hand: ")),
		measure: ratioOf(group, name, to), limit: limit, show: times,
	}
}

// faster: another takes at least so many times as long as Penstock.
func faster(work, group, name, than string, limit float64) target {
	return target{
		work: work, want: fmt.Sprintf("≥ %.4g × faster than %s", limit, strings.TrimPrefix(than, "by hand: ")),
		measure: ratioOf(group, than, name), limit: limit, atLeast: true, show: times,
	}
}

// allocations bounds what one item allocates. What a run allocates once, for its workers, is some thousandths of an item's.
func allocations(work, want, name string, limit float64) target {
	return target{
		work: work, want: want, limit: limit + 0.01, show: func(v ratio) string { return fmt.Sprintf("%.3f", v.median) },
		measure: func(all results) (ratio, bool) {
			r := all.find("options/no-op/8")
			if r == nil || len(r.samples[name]) == 0 {
				return ratio{}, false
			}
			return ratio{median: r.median(name, allocs)}, true
		},
	}
}

// targets are those that the library was tuned for, in the order of the README.
func targets() []target {
	batch, stream, ordered := "ordered batch, no-op, 8 workers", "stream, no-op, 8 workers", "ordered stream, no-op, 8 workers"
	return []target{
		slower(batch, "batch/no-op/8", nameEngine, nameClaimLoop, 1.2),
		faster(batch, "batch/no-op/8", nameEngine, nameConcResult, 4),
		faster(batch, "batch/no-op/8", nameEngine, namePondGroup, 4),
		faster(batch, "batch/no-op/8", nameEngine, nameRillOrdered, 4),
		slower("ordered batch, 1 µs, 8 workers", "batch/1us/8", nameEngine, nameClaimLoop, 1.1),
		faster(stream, "stream/no-op/8", nameEngine, nameRillMap, 3),
		faster(stream, "stream/no-op/8", nameEngine, nameChannelPool, 1.8),
		slower("stream, WithBatch(64)", "slices/no-op/8", nameBatch, nameSlicePool, 2),
		slower("stream, WithBatch(64), equal buffers", "slices/no-op/8", nameBatchDeep, nameSlicePool, 2),
		faster(ordered, "ordered/no-op/8", nameEngine, nameRillOrdered, 5),
		faster(ordered, "ordered/no-op/8", nameEngine, nameConcStream, 5),
		slower("ordered batch, 1 ms, 1,000 workers", "batch/1ms/1000", nameEngine, nameClaimLoop, 1.05),
		allocations("allocations per item, no option", "0", nameNone, 0.005), // a run of thousands of items makes a few
		allocations("allocations per attempt, every option but the timeouts", "≤ 1", nameAllButTimeouts, 1),
		allocations("allocations per attempt, every option but the attempt timeout", "≤ 1", nameAllButAttempt, 1),
		slower("attempt timeout, 8 workers", "timeout/no-op/8", nameAttemptTimeout, nameContextPer, 0.7),
		slower("attempt timeout, 1 worker", "timeout/no-op/1", nameAttemptTimeout, nameContextPer, 0.7),
		idleWorkers("workers/batch", "ProcessAll"),
		idleWorkers("workers/stream", "IterResults"),
		idleWorkers("workers/run", "Start … Finish"),
		growth(),
		flatness(),
		slower("lone item, Submit and Next", "latency/no-op/8", nameSubmitNext, nameRoundTrip, 2),
		slower("lone item, Do", "latency/no-op/8", nameDo, nameRoundTrip, 2),
	}
}

// idleWorkers compares runs of 10 items.
func idleWorkers(group, how string) target {
	t := slower("10 items on 100,000 workers, "+how, group, nameWorkers(100_000), nameWorkers(10), 1)
	t.tie = true
	return t
}

// growth is the largest time per item from 100,000 items upwards, divided by that of 100,000.
func growth() target {
	return target{
		work: "time per item from 100,000 items to the most", want: "≤ 1.1 × that of 100,000", limit: 1.1, show: times,
		measure: func(all results) (most ratio, ok bool) {
			for n := 1_000_000; ; n *= 10 {
				v, measured := ratioOf("items/time", nameItems(n), nameItems(100_000))(all)
				if !measured {
					return most, ok
				}
				if ok = true; v.median > most.median {
					most = v
				}
			}
		},
	}
}

// flatness is the largest live heap of a stream above that of the shortest one.
func flatness() target {
	return target{
		work: "live heap of the longest stream above that of 1,000 items", want: "≤ 64 KiB", limit: 65536,
		show: func(v ratio) string { return showBytes(v.median) },
		measure: func(all results) (most ratio, ok bool) {
			r := all.find("items/heap")
			if r == nil || len(r.contenders) < 2 {
				return most, false
			}
			least := r.median(r.contenders[0].name, value)
			for _, c := range r.contenders[1:] {
				most.median = max(most.median, r.median(c.name, value)-least)
			}
			return most, true
		},
	}
}
