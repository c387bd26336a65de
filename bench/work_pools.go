package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock"
)

// The names of contenders that the targets speak of.
const (
	nameEngine      = "Penstock"
	nameFunc        = "Penstock, from a function"
	nameBatch       = "Penstock, WithBatch(64)"
	nameBatchDeep   = "Penstock, WithBatch(64), buffers of 512"
	nameClaimLoop   = "by hand: claim loop"
	nameChannelPool = "by hand: channel pool"
	nameSlicePool   = "by hand: pool of slices of 64"
	nameOrderedPool = "by hand: channel pool with a ring"
	nameConcResult  = "conc result pool"
	namePondGroup   = "pond result group"
	nameRillOrdered = "rill OrderedMap"
	nameRillMap     = "rill Map"
	nameConcStream  = "conc stream"
)

// A load is one kind of handler and number of workers.
type load struct {
	name    string // of the handler, in group names
	text    string
	handle  handler
	workers int
	items   int
	asleep  bool
}

func (l load) of(work string) string { return fmt.Sprintf("%s/%s/%d", work, l.name, l.workers) }

// loads are the handlers and workers that every kind of pool is measured with.
func loads(s sizes) []load {
	busy := spinner(time.Microsecond)
	var all []load
	for _, workers := range []int{8, 1000} {
		all = append(all,
			load{"no-op", "no-op handler", noop, workers, s.items, false},
			load{"1us", "handler busy for 1 µs", busy, workers, s.busy, false},
			load{"1ms", "handler asleep for 1 ms", nap, workers, s.naps * workers, true})
	}
	return all
}

// poolGroups are the batches and streams.
func poolGroups(s sizes) []*group {
	var groups []*group
	for _, l := range loads(s) {
		groups = append(groups, batchGroup(l), streamGroup(l), orderedGroup(l))
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return kindOf(a) - kindOf(b) })
	return append(groups, sliceGroup(s))
}

// kindOf puts the groups of one kind of work together.
func kindOf(g *group) int { return slices.Index([]string{"batch", "stream", "ordered"}, kind(g.name)) }

func (l load) group(work, about string) *group {
	return &group{
		name: l.of(work), about: fmt.Sprintf("%s, %s, %s", about, l.text, nameWorkers(l.workers)),
		unit: perItem, items: l.items, workers: l.workers, handle: l.handle,
	}
}

func batchGroup(l load) *group {
	g := l.group("batch", "Ordered batch")
	g.baseline, g.check = nameClaimLoop, checkBatch
	g.contenders = []contender{
		{nameClaimLoop, claimLoop},
		{nameEngine, processAll()},
		{"conc iter.Mapper", concMapper},
		{nameConcResult, concResults},
		{namePondGroup, pondBatch},
		{nameRillOrdered, rillBatch},
		{"errgroup", errgroupBatch},
		{"ants", antsBatch},
		{"workerpool", workerpoolBatch},
	}
	if l.asleep {
		g.notes = append(g.notes, "lo/parallel is left out: it has no limit on what runs at once, so all would sleep together.")
		return g
	}
	g.contenders = append(g.contenders, contender{"lo/parallel", loBatch})
	g.notes = append(g.notes, "lo/parallel starts a goroutine for each item: it has no limit on what runs at once.")
	return g
}

func streamGroup(l load) *group {
	g := l.group("stream", "Stream in order of completion")
	g.baseline, g.check = nameChannelPool, checkStream
	g.contenders = []contender{
		{nameChannelPool, channelPool},
		{nameEngine, iterResults(fromSlice)},
		{nameFunc, iterResults(fromFunc)},
		{"by hand: claim loop and a channel", claimStream},
		{nameRillMap, rillStream},
		{"conc pool and a channel", concPoolStream},
		{"pond and a channel", pondStream},
		{"errgroup and a channel", errgroupStream},
		{"ants and a channel", antsStream},
	}
	g.notes = []string{"workerpool is left out, as its queue has no bound; lo/parallel, as it only knows whole slices."}
	return g
}

func orderedGroup(l load) *group {
	g := l.group("ordered", "Stream in input order")
	g.baseline, g.check = nameOrderedPool, checkOrdered
	g.contenders = []contender{
		{nameOrderedPool, orderedPool},
		{nameEngine, iterOrdered(fromSlice)},
		{nameFunc, iterOrdered(fromFunc)},
		{nameRillOrdered, rillOrdered},
		{nameConcStream, concStream},
		{"pond futures in a channel", pondOrdered},
	}
	g.notes = []string{"errgroup, ants and workerpool are left out: they keep no order, and everything would be by hand; " +
		"lo/parallel, as it only knows whole slices."}
	return g
}

// sliceGroup moves 64 items at a time.
func sliceGroup(s sizes) *group {
	deep := []penstock.Option{
		penstock.WithBatch(stride), penstock.WithInputCapacity(8 * stride), penstock.WithResultCapacity(8 * stride),
	}
	return &group{
		name: "slices/no-op/8", about: "Stream in order of completion, 64 items at a time, no-op handler, 8 workers",
		unit: perItem, items: s.items, workers: 8, handle: noop, baseline: nameSlicePool, check: checkStream,
		contenders: []contender{
			{nameSlicePool, slicePool},
			{nameBatch, iterResults(fromSlice, penstock.WithBatch(stride))},
			{nameBatchDeep, iterResults(fromSlice, deep...)},
			{"Penstock, WithBatch(64), buffers of 512, from a function", iterResults(fromFunc, deep...)},
			{nameEngine, iterResults(fromSlice)},
		},
		notes: []string{"The pool by hand holds up to 8 slices in each channel, which is what buffers of 512 stand for. " +
			"No peer moves results of single items in slices."},
	}
}
