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
	"github.com/penstock-go/penstock/ratelimiter"
)

// A handPlan says who does what with a run made by hand.
type handPlan struct {
	submitters, callers int
	readers             []string // "next", "results", "drain"
	impatient           bool     // contexts end while their calls wait
	calls               int      // of Do, for each caller
	early               bool     // the run is ended while others still submit
	closing             string   // "close", "finish", "stop" or "none"
	closeAt             time.Duration
	patience            time.Duration // of finish and stop; 0: unlimited
	unlabelled          bool          // items have no ids of their own
	rounds              int           // of a foreman
	tape                *tape         // decides everything, if set
}

func (s *Scenario) drawHand(run string) handPlan {
	p := handPlan{submitters: 1, readers: []string{"next"}, closing: "close", rounds: 1}
	if r := s.part(run+" submitters", 50); r != nil {
		p.submitters = pick(r, 2, 3, 8)
	}
	if r := s.part(run+" callers", 40); r != nil {
		p.callers, p.calls = pick(r, 1, 2, 5), pick(r, 1, 3, 10)
	}
	if r := s.part(run+" readers", 60); r != nil {
		p.readers = [][]string{{}, {"results"}, {"drain"}, {"next", "next"}, {"next", "results", "drain"}}[r.IntN(5)]
	}
	if r := s.part(run+" closing", 70); r != nil {
		p.closing, p.early = pick(r, "finish", "finish", "stop", "close", "none"), r.IntN(2) == 0
		p.closeAt, p.patience = s.span(r), s.maybe(r)
	}
	p.impatient = s.part(run+" impatience", 40) != nil
	p.unlabelled = s.part(run+" unlabelled", 40) != nil
	if s.part(run+" rounds", 40) != nil {
		p.rounds = 2
	}
	return p
}

// byHand is a run with Submit, Do, Next and so on.
func (r *run) byHand() {
	r.limitHolding()
	r.hand = r.engine.Start(r.ctx)
	count := r.hand.Counters
	r.count.Store(&count)
	if t := r.plan.hand.tape; t != nil {
		r.play(t)
		return
	}
	var producers, others sync.WaitGroup
	for i := range r.plan.hand.submitters {
		producers.Go(func() { r.submitter(i) })
	}
	for i := range r.plan.hand.callers {
		producers.Go(func() { r.caller(i) })
	}
	for i, kind := range r.plan.hand.readers {
		others.Go(func() { r.reader(kind, r.random(fmt.Sprint(r.plan.name, " reader ", i))) })
	}
	others.Go(func() { r.closer(&producers) })
	<-r.hand.Done()
	r.returned(r.hand.Err())
	producers.Wait()
	others.Wait()
	r.sweep()
}

// newID is the id of the next item of a run that has no source.
func (r *run) newID() int { return r.base + int(r.lastID.Add(1)) - 1 }

// draws is the patience of one call.
func (r *run) draws(rnd *rand.Rand) time.Duration {
	if !r.plan.hand.impatient || rnd.IntN(2) == 0 {
		return 0
	}
	return r.span(rnd)
}

// submitter submits its share of the items.
func (r *run) submitter(number int) {
	rnd := r.random(fmt.Sprint(r.plan.name, " submitter ", number))
	for i := number; i < r.plan.items; i += r.plan.hand.submitters {
		if d := r.plan.source.pace; d > 0 || rnd.IntN(8) == 0 {
			time.Sleep(d + r.maybe(rnd))
		}
		r.submit(context.Background(), r.draws(rnd), rnd)
	}
}

// submit submits one item and checks what comes of it.
func (r *run) submit(ctx context.Context, patience time.Duration, rnd *rand.Rand) {
	ctx, end := r.patient(ctx, patience, rnd.IntN(2) == 0)
	defer end()
	if rnd.IntN(20) == 0 {
		end() // one that has ended before
	}
	dead := ctx.Err() != nil
	it := r.offer(r.newID())
	opts, label := r.submitOptions(it, rnd)
	asked := r.now()
	id, err := r.hand.Submit(ctx, it.id, opts...)
	r.checkPromptness("Submit", asked, patience)
	if dead && err == nil {
		it.fail("it was accepted although its context had ended before")
	}
	if err == nil && label != "" && label != id {
		it.fail("its id is %q, Submit returned %q", label, id)
	}
	r.submitted(it, id, err, ctx)
}

func (r *run) submitOptions(it *item, rnd *rand.Rand) (opts []penstock.SubmitOption, label string) {
	if !r.plan.hand.unlabelled || rnd.IntN(2) == 0 {
		label = "item-" + strconv.Itoa(it.id)
		opts = append(opts, penstock.WithID(label))
	}
	if rnd.IntN(4) == 0 {
		opts = append(opts, penstock.AtPriority(rnd.IntN(3)))
	}
	return opts, label
}

// submitted notes what became of an item that was offered.
func (r *run) submitted(it *item, id string, err error, ctx context.Context) {
	if err == nil {
		r.accept(it)
		r.lock(func() { it.label = id; r.hold(it) })
		return
	}
	why := r.whyRefused(err, ctx)
	r.lock(func() {
		it.refusal = err
		if why == "" {
			it.fail("it was refused with %v, for no reason (%s)", err, kinds(r.endings))
		}
		if len(it.tries) > 0 || len(it.done) > 0 {
			it.fail("it was refused with %v, and worked on", err)
		}
	})
}

// whyRefused explains a refusal.
func (r *run) whyRefused(err error, ctx context.Context) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return "its context"
	case errors.Is(err, penstock.ErrInputClosed) && r.closed != never:
		return "input closed"
	case explained(err, r.endings):
		return "the run's end"
	case r.failureLimit > 0 && isTooManyFailures(err), r.startTimeout > 0 && isStartTimeout(err):
		return "the run's end"
	}
	return ""
}

// checkPromptness checks that a call which waits has come back as soon as its context has ended.
func (r *run) checkPromptness(what string, asked, patience time.Duration) {
	if took := r.now() - asked; r.exact() && patience > 0 && took > patience {
		r.fail("%s took %v, and its context ended after %v", what, took, patience)
	}
}

// caller calls Do.
func (r *run) caller(number int) {
	rnd := r.random(fmt.Sprint(r.plan.name, " caller ", number))
	for range r.plan.hand.calls {
		if rnd.IntN(4) == 0 {
			time.Sleep(r.span(rnd))
		}
		r.do(r.draws(rnd), rnd)
	}
}

func (r *run) do(patience time.Duration, rnd *rand.Rand) {
	deadline := rnd.IntN(2) == 0
	it := r.offer(r.newID())
	r.lock(func() {
		it.do, it.deadline, it.label = true, deadline && patience > 0, "item-"+strconv.Itoa(it.id)
		if patience > 0 {
			it.patience = r.now() + patience
		}
	})
	asked := r.now()
	ctx, end := r.patient(context.Background(), patience, deadline)
	defer end()
	v, err := r.hand.Do(ctx, it.id, penstock.WithID(it.label))
	r.checkPromptness("Do", asked, patience)
	r.replied(it, v, err, ctx)
}

// replied notes the reply to a Do.
func (r *run) replied(it *item, v int, err error, ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.gotAt = r.now()
	n := len(it.tries)
	switch {
	case err == nil:
		it.reply = penstock.Succeeded
		if n == 0 || v != resultOf(it.id, it.tries[n-1].number) {
			it.fail("the reply is %d after %d attempts", v, n)
		}
	case isOwn(err):
		it.reply = outcomeOf(err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		// It may have been accepted, and may still be worked on.
	case n > 0 && it.tries[n-1].err == err:
		it.reply = penstock.Failed
	case n > 0:
		it.fail("the reply is %v, and the last attempt's error %v", err, it.tries[n-1].err)
	default:
		it.refusal = err
	}
	if it.reply != 0 {
		it.isAccepted()
	}
}

// isOwn reports whether an error is one that the library gives to a task. A run's error may wrap such a one.
func isOwn(err error) bool { return outcomeOf(err) != 0 }

func outcomeOf(err error) penstock.Outcome {
	switch err.(type) {
	case *penstock.UnfinishedError:
		return penstock.Unfinished
	case *penstock.ShedError:
		return penstock.Shed
	case *penstock.TimeoutError, *penstock.PanicError, *ratelimiter.CostError, *ratelimiter.KeyError:
		return penstock.Failed
	}
	if err == penstock.ErrGoexit {
		return penstock.Failed
	}
	return 0
}

// reader reads results, until there are none.
func (r *run) reader(kind string, rnd *rand.Rand) {
	for !r.readSome(kind, rnd) {
		if r.plan.consumer.pace > 0 {
			time.Sleep(r.plan.consumer.pace)
		}
	}
}

// readSome reads in one of the ways and reports whether all was read.
func (r *run) readSome(kind string, rnd *rand.Rand) (over bool) {
	switch kind {
	case "next":
		return r.next(r.draws(rnd), rnd.IntN(2) == 0)
	case "results":
		for t, err := range r.hand.Results() {
			if err != nil {
				r.checkLast(err)
				return true
			}
			r.got(t)
			if rnd.IntN(5) == 0 {
				return false
			}
		}
		return true
	default:
		r.drain()
		select {
		case <-r.hand.Done():
			return true
		case <-time.After(r.span(rnd)):
			return false
		}
	}
}

func (r *run) got(t penstock.Task[int, int]) {
	it := r.deliver(t)
	r.lock(func() { r.release(it) })
}

func (r *run) next(patience time.Duration, deadline bool) (over bool) {
	ctx, end := r.patient(context.Background(), patience, deadline)
	defer end()
	asked := r.now()
	t, err := r.hand.Next(ctx)
	r.checkPromptness("Next", asked, patience)
	switch {
	case err == nil:
		r.got(t)
		return false
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && err != r.hand.Err():
		return false
	}
	r.checkLast(err)
	return true
}

// checkLast checks the error that comes after the last result.
func (r *run) checkLast(err error) {
	select {
	case <-r.hand.Done():
	default:
		r.fail("there were no more results before its end: %v", err)
	}
	if want := r.hand.Err(); err != want && !(want == nil && err == penstock.ErrNoMoreResults) {
		r.fail("after the last result came %v, and its error is %v", err, want)
	}
}

func (r *run) drain() {
	for _, t := range r.hand.Drain() {
		r.got(t)
	}
}

// closer ends the run.
func (r *run) closer(producers *sync.WaitGroup) {
	p := r.plan.hand
	if p.early {
		time.Sleep(p.closeAt)
	} else {
		producers.Wait()
	}
	switch p.closing {
	case "close":
		r.closeInput()
	case "finish":
		if !r.finish(p.patience) {
			r.stop(0)
		}
	case "stop":
		if !r.stop(p.patience) {
			r.stop(0)
		}
	}
}

func (r *run) closeInput() {
	r.closeNow()
	r.hand.CloseInput()
}

// finish reports whether the run has ended.
func (r *run) finish(patience time.Duration) bool {
	ctx, end := r.patient(context.Background(), patience, true)
	defer end()
	r.closeNow()
	asked := r.now()
	err := r.hand.Finish(ctx)
	r.checkPromptness("Finish", asked, patience)
	if r.isDone() {
		return true
	}
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		r.fail("Finish returned %v before its end", err)
	}
	return false
}

func (r *run) isDone() bool {
	select {
	case <-r.hand.Done():
		return true
	default:
		return false
	}
}

// stop reports whether the run has ended.
func (r *run) stop(patience time.Duration) bool {
	ctx, end := r.patient(context.Background(), patience, true)
	defer end()
	r.ends(ending{at: r.now(), kind: "stop", sure: !r.isDone(), soft: true, explains: isStopped})
	asked := r.now()
	err := r.hand.Stop(ctx)
	r.checkPromptness("Stop", asked, patience)
	if still, ok := err.(*penstock.StillRunningError); ok {
		if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
			r.fail("Stop gave up although its context goes on: %v", err)
		}
		for _, t := range still.Tasks {
			if t.For < 0 || t.ID == "" {
				r.fail("Stop names the task %+v", t)
			}
		}
		return false
	}
	if !r.isDone() {
		r.fail("Stop returned %v before its end", err)
	} else if want := r.hand.Err(); err != want && !(err == nil && want == penstock.ErrStopped) {
		r.fail("Stop returned %v, and its error is %v", err, want)
	}
	return true
}

// sweep reads what was not read and checks that a run which has ended stays as it is.
func (r *run) sweep() {
	for !r.next(0, false) {
	}
	err := r.hand.Err()
	for range 2 {
		if _, again := r.hand.Next(r.ctx); again == nil || err != nil && again != err {
			r.fail("Next returns %v after the end, and its error is %v", again, err)
		}
		if got := r.hand.Finish(context.Background()); got != err {
			r.fail("Finish returns %v after the end, and its error is %v", got, err)
		}
		if err := r.hand.Stop(context.Background()); err != r.hand.Err() && err != nil {
			r.fail("Stop returns %v after the end, and its error is %v", err, r.hand.Err())
		}
		if tasks := r.hand.Drain(); tasks != nil {
			r.fail("Drain returns %v after the last result", tasks)
		}
	}
	late := r.offer(r.newID())
	if id, err := r.hand.Submit(context.Background(), late.id); err == nil {
		r.fail("it has accepted %s after the end", id)
	} else {
		r.lock(func() { late.refusal = err })
	}
	c := r.hand.Counters()
	r.lock(func() { r.counters = &c })
}

// submitMore submits an item from a handler, which waits for room no longer than its patience. In runs that cannot be
// submitted to it does nothing.
func (r *run) submitMore(ctx context.Context, a *attempt) {
	if r.plan.way != "Start" {
		return
	}
	rnd := r.random(fmt.Sprint("submitted by ", a.id, a.number))
	if a.step.how == 0 {
		r.submit(ctx, 0, rnd)
		return
	}
	r.submit(ctx, r.span(rnd), rnd)
}

// meddle does something to the own run from a handler.
func (r *run) meddle(a *attempt) {
	if r.plan.way != "Start" {
		return
	}
	switch a.step.how {
	case 0:
		r.closeInput()
	case 1:
		r.drain()
	case 2:
		r.stop(r.unit)
	case 3:
		r.hand.Counters()
		r.next(r.unit, true)
	}
}
