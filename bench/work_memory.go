package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/alitto/pond/v2"
	"github.com/gammazero/workerpool"
	concpool "github.com/sourcegraph/conc/pool"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/buffering"
)

// memoryGroups show what an item takes that waits for a worker, and a result that waits for its reader.
func memoryGroups(s sizes) []*group { return []*group{pendingGroup(s), unreadGroup(s)} }

func pendingGroup(s sizes) *group {
	return &group{
		name: "memory/pending", about: "Memory per pending item: an int that waits for a worker",
		unit: bytesPerItem, exact: true, items: s.held, workers: 8, handle: noop, baseline: "by hand: buffered channel of items",
		contenders: []contender{
			{"by hand: buffered channel of items", pendingChannel},
			{"by hand: buffered channel of tasks", pendingTasks},
			{nameEngine, pendingRun(func(int) []penstock.SubmitOption { return nil })},
			{"Penstock, AtPriority", pendingRun(func(i int) []penstock.SubmitOption {
				return []penstock.SubmitOption{penstock.AtPriority(i % 10)}
			})},
			{"pond", pendingPond},
			{"workerpool", pendingWorkerpool},
		},
		notes: []string{
			"conc, errgroup, ants and rill have no queue: they hold the submitter instead. pond's and workerpool's hold " +
				"functions.",
			fmt.Sprintf("By default Penstock's queues are bounded: with 8 workers a run holds at most %d items, "+
				"buffering.Bound(8, 8, 8). Here they are Unlimited.", buffering.Bound(8, 8, 8)),
		},
	}
}

// hold measures what fill keeps alive, per item.
func hold(t *turn, fill func() (kept any, err error)) error {
	before := liveHeap()
	kept, err := fill()
	t.report(float64(liveHeap()-before) / float64(len(t.items)))
	runtime.KeepAlive(kept)
	return err
}

func pendingChannel(t *turn) error {
	return hold(t, func() (any, error) {
		ch := make(chan int, len(t.items))
		for _, item := range t.items {
			ch <- item
		}
		return ch, nil
	})
}

func pendingTasks(t *turn) error {
	return hold(t, func() (any, error) {
		ch := make(chan task, len(t.items))
		for i, item := range t.items {
			ch <- task{Index: i, Data: item}
		}
		return ch, nil
	})
}

// gate is a handler that holds all workers up until it is opened.
func gate() (handle handler, open func()) {
	gate := make(chan struct{})
	return func(_ context.Context, item int) (int, error) {
		<-gate
		return right(item), nil
	}, func() { close(gate) }
}

// pendingRun lets the items go afterwards and reads them all.
func pendingRun(opts func(item int) []penstock.SubmitOption) func(*turn) error {
	return func(t *turn) error {
		handle, open := gate()
		e, err := penstock.New(handle, t.workers,
			penstock.WithInputCapacity(penstock.Unlimited), penstock.WithResultCapacity(penstock.Unlimited))
		if err != nil {
			return err
		}
		ctx := context.Background()
		run := e.Start(ctx)
		err = hold(t, func() (any, error) {
			for _, item := range t.items {
				if _, err := run.Submit(ctx, item, opts(item)...); err != nil {
					return nil, err
				}
			}
			return run, nil
		})
		open()
		return errors.Join(err, run.Finish(ctx), readAll(t, run))
	}
}

func readAll(t *turn, run *penstock.Run[int, int]) error {
	for _, r := range run.Drain() {
		t.emit(r.Result)
	}
	return checkStream(t)
}

func pendingPond(t *turn) error {
	handle, open := gate()
	p := pond.NewPool(t.workers)
	err := hold(t, func() (any, error) {
		for _, item := range t.items {
			if err := p.Go(func() { _, _ = handle(context.Background(), item) }); err != nil {
				return nil, err
			}
		}
		return p, nil
	})
	open()
	p.StopAndWait()
	if done := p.CompletedTasks(); err == nil && done != uint64(len(t.items)) {
		return fmt.Errorf("%d of %d tasks are done", done, len(t.items))
	}
	return err
}

func pendingWorkerpool(t *turn) error {
	handle, open := gate()
	p := workerpool.New(t.workers)
	results := make([]int, len(t.items))
	err := hold(t, func() (any, error) {
		for i, item := range t.items {
			p.Submit(func() { results[i], _ = handle(context.Background(), item) })
		}
		return p, nil
	})
	open()
	p.StopWait()
	t.values = ints(results)
	return errors.Join(err, checkBatch(t))
}

func unreadGroup(s sizes) *group {
	return &group{
		name: "memory/result", about: "Memory per result: an int that waits for its reader, with its item",
		unit: bytesPerItem, exact: true, items: s.held, workers: 8, handle: noop, baseline: "by hand: slice of tasks",
		contenders: []contender{
			{"by hand: slice of tasks", unreadSlice},
			{"Penstock, ProcessAll", unreadBatch},
			{"Penstock, a run", unreadRun},
			{namePondGroup, unreadPond},
			{nameConcResult, unreadConc},
		},
		notes: []string{"pond and conc keep values alone, without their items; pond's figure is its whole group, which " +
			"has to stay until they are read."},
	}
}

func unreadSlice(t *turn) error {
	return hold(t, func() (any, error) {
		err := claimLoop(t)
		return t.values, err
	})
}

func unreadBatch(t *turn) error {
	return hold(t, func() (any, error) {
		err := processAll()(t)
		return t.values, err
	})
}

func unreadRun(t *turn) error {
	ctx := context.Background()
	e, err := engine(t, penstock.WithResultCapacity(penstock.Unlimited))
	if err != nil {
		return err
	}
	run := e.Start(ctx)
	err = hold(t, func() (any, error) {
		for _, item := range t.items {
			if _, err := run.Submit(ctx, item); err != nil {
				return nil, err
			}
		}
		return run, run.Finish(ctx)
	})
	return errors.Join(err, readAll(t, run))
}

func unreadPond(t *turn) error {
	p := pond.NewResultPool[int](t.workers)
	t.after(p.StopAndWait)
	group := p.NewGroup()
	err := hold(t, func() (any, error) {
		for _, item := range t.items {
			group.SubmitErr(func() (int, error) { return t.handle(context.Background(), item) })
		}
		<-group.Done()
		return group, nil
	})
	if err != nil {
		return err
	}
	out, err := group.Wait()
	t.values = ints(out)
	return errors.Join(err, checkBatch(t))
}

func unreadConc(t *turn) error {
	p := concpool.NewWithResults[int]().WithErrors().WithMaxGoroutines(t.workers)
	var out []int
	err := hold(t, func() (any, error) {
		for _, item := range t.items {
			p.Go(func() (int, error) { return t.handle(context.Background(), item) })
		}
		var err error
		out, err = p.Wait()
		return out, err
	})
	for _, v := range out {
		t.emit(v)
	}
	return errors.Join(err, checkStream(t))
}
