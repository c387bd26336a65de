package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alitto/pond/v2"
	"github.com/destel/rill"
	"github.com/gammazero/workerpool"
	"github.com/panjf2000/ants/v2"
	concpool "github.com/sourcegraph/conc/pool"

	"github.com/penstock-go/penstock"
)

const (
	nameRoundTrip  = "by hand: unbuffered channels, there and back"
	nameSubmitNext = "Penstock, Submit and Next"
	nameDo         = "Penstock, Do"
)

// latencyGroups send one item at a time through something that is idle.
func latencyGroups(s sizes) []*group {
	return []*group{{
		name: "latency/no-op/8", about: "A lone item on something idle: from handing it in to holding its result, 8 workers",
		unit: perTrip, items: s.trips, workers: 8, handle: noop, baseline: nameRoundTrip, check: checkOrdered,
		contenders: []contender{
			{nameRoundTrip, channelTrips},
			{nameSubmitNext, submitTrips},
			{nameDo, doTrips},
			{"Penstock, IterResults over a channel", iterTrips},
			{"rill Map", rillTrips},
			{"pond Submit, Wait", pondTrips},
			{"conc pool and a channel", concTrips},
			{"ants and a channel", antsTrips},
			{"workerpool SubmitWait", workerpoolTrips},
		},
		notes: []string{"errgroup is left out: it has no workers that could be idle, and starts a goroutine for each item."},
	}}
}

// trip sends the items one by one.
func trip(t *turn, send func(item int) (int, error)) error {
	for _, item := range t.items {
		v, err := send(item)
		if err != nil {
			return err
		}
		t.emit(v)
	}
	return nil
}

func channelTrips(t *turn) error {
	ctx := context.Background()
	in, out := make(chan int), make(chan answer)
	go func() {
		defer close(out)
		for item := range in {
			out <- answerOf(t.handle(ctx, item))
		}
	}()
	defer close(in)
	return trip(t, func(item int) (int, error) {
		in <- item
		a := <-out
		return a.value, a.err
	})
}

func submitTrips(t *turn) error {
	e, err := engine(t)
	if err != nil {
		return err
	}
	ctx := context.Background()
	run := e.Start(ctx)
	err = trip(t, func(item int) (int, error) {
		if _, err := run.Submit(ctx, item); err != nil {
			return 0, err
		}
		r, err := run.Next(ctx)
		if err != nil {
			return 0, err
		}
		return r.Value()
	})
	if err != nil {
		return err
	}
	return run.Finish(ctx)
}

func doTrips(t *turn) error {
	e, err := engine(t)
	if err != nil {
		return err
	}
	ctx := context.Background()
	run := e.Start(ctx)
	if err := trip(t, func(item int) (int, error) { return run.Do(ctx, item) }); err != nil {
		return err
	}
	return run.Finish(ctx)
}

// iterTrips gives the next item to a channel when the result of the last one has come.
func iterTrips(t *turn) error {
	e, err := engine(t)
	if err != nil {
		return err
	}
	in := make(chan int, 1)
	in <- t.items[0]
	for r, err := range e.IterResults(context.Background(), penstock.FromChan(in)) {
		if err != nil {
			return err
		}
		t.emit(r.Result)
		if len(t.stream) == len(t.items) {
			close(in)
			continue
		}
		in <- t.items[len(t.stream)]
	}
	return nil
}

func rillTrips(t *turn) error {
	ctx := context.Background()
	in := make(chan rill.Try[int])
	defer close(in)
	out := rill.Map(in, t.workers, func(item int) (int, error) { return t.handle(ctx, item) })
	return trip(t, func(item int) (int, error) {
		in <- rill.Wrap(item, nil)
		r := <-out
		return r.Value, r.Error
	})
}

func pondTrips(t *turn) error {
	ctx := context.Background()
	p := pond.NewResultPool[int](t.workers)
	t.after(p.StopAndWait)
	return trip(t, func(item int) (int, error) {
		return p.SubmitErr(func() (int, error) { return t.handle(ctx, item) }).Wait()
	})
}

func concTrips(t *turn) error {
	ctx := context.Background()
	out := make(chan answer)
	p := concpool.New().WithMaxGoroutines(t.workers)
	t.after(p.Wait)
	return trip(t, func(item int) (int, error) {
		p.Go(func() { out <- answerOf(t.handle(ctx, item)) })
		a := <-out
		return a.value, a.err
	})
}

func antsTrips(t *turn) error {
	ctx := context.Background()
	out := make(chan answer)
	p, err := ants.NewPoolWithFuncGeneric(t.workers, func(item int) { out <- answerOf(t.handle(ctx, item)) })
	if err != nil {
		return err
	}
	t.after(func() { _ = p.ReleaseTimeout(time.Minute) })
	return trip(t, func(item int) (int, error) {
		if err := p.Invoke(item); err != nil {
			return 0, fmt.Errorf("ants: %w", err)
		}
		a := <-out
		return a.value, a.err
	})
}

func workerpoolTrips(t *turn) error {
	ctx := context.Background()
	p := workerpool.New(t.workers)
	t.after(p.StopWait)
	return trip(t, func(item int) (v int, err error) {
		p.SubmitWait(func() { v, err = t.handle(ctx, item) })
		return v, err
	})
}
