package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
)

// byForeman is a run of the low-level pool, and perhaps another one of the same.
func (r *run) byForeman() {
	if r.pool == nil {
		var err error
		if r.pool, err = foreman.New(r.handle, r.workers, r.opts...); err != nil {
			r.fail("the foreman was refused: %v", err)
			return
		}
	}
	r.employ()
	if r.again != nil {
		r.again.pool = r.pool
		r.again.live()
	}
}

// employ has the foreman work from one start to the end.
func (r *run) employ() {
	r.limitHolding()
	rnd := r.random(r.plan.name + " foreman")
	early := 0
	if r.again != nil || r.plan.hand.rounds == 1 { // between two rounds nothing is accepted
		early = rnd.IntN(3) * rnd.IntN(r.plan.items+1) / 2
	}
	r.early.Store(true)
	for range early {
		r.add(r.unit, rnd)
	}
	r.early.Store(false)
	r.lock(func() { r.startedAt = r.now() })
	if err := r.pool.Start(r.ctx); err != nil {
		r.fail("the foreman did not start: %v", err)
		return
	}
	count := r.pool.Counters
	r.count.Store(&count)
	var producers, readers sync.WaitGroup
	for i := range r.plan.hand.submitters {
		producers.Go(func() { r.adder(i, r.plan.items-early) })
	}
	for i := range min(1, len(r.plan.hand.readers)) {
		readers.Go(func() { r.poolReader(r.random(fmt.Sprint(r.plan.name, " reader ", i))) })
	}
	r.closePool(&producers)
	producers.Wait()
	readers.Wait()
	r.sweepPool()
}

func (r *run) adder(number, items int) {
	rnd := r.random(fmt.Sprint(r.plan.name, " submitter ", number))
	for i := number; i < items; i += r.plan.hand.submitters {
		if rnd.IntN(8) == 0 {
			time.Sleep(r.maybe(rnd))
		}
		r.add(r.draws(rnd), rnd)
	}
}

func (r *run) add(patience time.Duration, rnd *rand.Rand) {
	ctx, end := r.patient(context.Background(), patience, rnd.IntN(2) == 0)
	defer end()
	it := r.offer(r.newID())
	t := penstock.Task[int, int]{Index: it.id - r.base, Data: it.id, Attempts: 7, Outcome: penstock.Failed, Err: errFatal}
	label := strconv.Itoa(t.Index)
	if rnd.IntN(2) == 0 {
		label = "item-" + strconv.Itoa(it.id)
		t = t.WithID(label)
	}
	asked := r.now()
	err := r.pool.Add(ctx, t)
	r.checkPromptness("Add", asked, patience)
	r.submitted(it, label, err, ctx)
}

// poolReader reads until there are no more results.
func (r *run) poolReader(rnd *rand.Rand) {
	for !r.poolNext(r.draws(rnd)) {
		if r.plan.consumer.pace > 0 {
			time.Sleep(r.plan.consumer.pace)
		}
	}
}

// poolNext reports whether all was read.
func (r *run) poolNext(patience time.Duration) (over bool) {
	ctx, end := r.patient(context.Background(), patience, true)
	defer end()
	asked := r.now()
	t, err := r.pool.Next(ctx)
	r.checkPromptness("Next", asked, patience)
	switch {
	case err == nil:
		r.got(t)
		return false
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return false
	}
	return true
}

// closePool returns when the foreman's work is done, or was stopped.
func (r *run) closePool(producers *sync.WaitGroup) {
	p := r.plan.hand
	if p.early {
		time.Sleep(p.closeAt)
	} else {
		producers.Wait()
	}
	if p.closing != "stop" {
		ctx, end := r.patient(context.Background(), p.patience, true)
		defer end()
		r.closeNow()
		asked := r.now()
		err := r.pool.Finalize(ctx)
		r.checkPromptness("Finalize", asked, p.patience)
		if ctx.Err() == nil || err == nil {
			return
		}
	}
	r.ends(ending{at: r.now(), kind: "stop", sure: true, soft: true, explains: isStopped})
	if err := r.pool.Stop(); err != nil && isStopped(err) {
		r.fail("Stop returned %v", err)
	}
}

// sweepPool reads what was not read, and the error that comes after it.
func (r *run) sweepPool() {
	var last error
	for last == nil {
		var t penstock.Task[int, int]
		if t, last = r.pool.Next(context.Background()); last == nil {
			r.got(t)
		}
	}
	if last == penstock.ErrNoMoreResults {
		last = nil
	}
	r.returned(last)
	if err := r.pool.Finalize(context.Background()); err != last {
		r.fail("Finalize returns %v after the end, and its error is %v", err, last)
	}
	late := r.offer(r.newID())
	if err := r.pool.Add(context.Background(), penstock.Task[int, int]{Data: late.id}); err == nil {
		r.fail("it has accepted an item after the end")
	} else {
		r.lock(func() { late.refusal = err })
	}
	c := r.pool.Counters()
	r.lock(func() { r.counters = &c })
	r.count.Store(nil) // the next one counts from zero
}
