package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/penstock-go/penstock"
)

// A sourcePlan is where the items of a run come from.
type sourcePlan struct {
	kind    string        // "slice", "seq", "seq2", "chan" or "func"
	pace    time.Duration // before each item
	stallAt int           // before this item, from 1, it stalls; 0: it does not
	stall   time.Duration
	deaf    bool   // it ignores what yield says; a func also ignores its context
	faultAt int    // after this many items something goes wrong; -1: nothing does
	fault   string // "error", "panic" or "exit"
	open    bool   // it does not end by itself
	buffer  int    // of a chan
	answer  string // what a func returns when it is told to stop: "nil", "context", "error"
}

func (p sourcePlan) String() string {
	return fmt.Sprintf("%s pace %v stall %v before %d deaf %v fault %q at %d open %v buffer %d answer %q",
		p.kind, p.pace, p.stall, p.stallAt, p.deaf, p.fault, p.faultAt, p.open, p.buffer, p.answer)
}

func (s *Scenario) drawSource(run, way string) sourcePlan {
	p := sourcePlan{kind: "slice", faultAt: -1, answer: "nil"}
	if way == "ProcessAll" || way == "Start" || way == "Foreman" {
		return p
	}
	if r := s.part(run+" source", 85); r != nil {
		p.kind = pick(r, "seq", "seq2", "chan", "chan", "func", "func")
		p.buffer = pick(r, 0, 0, 1, 5)
		p.answer = pick(r, "nil", "context", "error")
	}
	if r := s.part(run+" source pace", 30); r != nil {
		p.pace = s.span(r)
	}
	if r := s.part(run+" source stalls", 25); r != nil {
		p.stallAt, p.stall = pick(r, 1, 1, 2, 5), 3*s.span(r)
	}
	if r := s.part(run+" source deaf", 20); r != nil {
		p.deaf = true
	}
	if r := s.part(run+" source fails", 15); r != nil {
		p.faultAt, p.fault = pick(r, 0, 1, 3, 10), pick(r, "error", "panic", "exit")
	}
	p.open = s.part(run+" source open", 7) != nil
	return p
}

var errSource = errors.New("the source is broken")

// source makes the source. Its items have the ids from the run's first on, in this order.
func (r *run) source() penstock.Source[int] {
	switch r.plan.source.kind {
	case "seq":
		return penstock.FromSeq(r.seq)
	case "seq2":
		return penstock.FromSeq2(r.seq2)
	case "chan":
		return penstock.FromChan(r.channel())
	case "func":
		return penstock.FromFunc(r.produce)
	}
	return penstock.FromSlice(r.slice())
}

// slice offers all items at once.
func (r *run) slice() []int {
	ids := make([]int, r.plan.items)
	for i := range ids {
		ids[i] = r.base + i
		r.offer(ids[i])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.first = r.now(), r.now()
	return ids
}

func (r *run) seq(yield func(int) bool) {
	defer r.enter()()
	if err := r.give(context.Background(), yield); err != nil {
		panic(err) // it has no other way to fail
	}
}

func (r *run) seq2(yield func(int, error) bool) {
	defer r.enter()()
	if err := r.give(context.Background(), func(id int) bool { return yield(id, nil) }); err != nil {
		yield(-1, err)
	}
}

func (r *run) produce(ctx context.Context, yield func(int) bool) error {
	defer r.enter()()
	if ctx.Value(runKey{}) != r {
		r.fail("the source got a context that is not of its run")
	}
	return r.give(ctx, yield)
}

// enter counts that the source runs.
func (r *run) enter() (leave func()) {
	r.busy.Add(1)
	return func() { r.busy.Add(-1) }
}

// give gives items until the plan says otherwise.
func (r *run) give(ctx context.Context, yield func(int) bool) error {
	p := r.plan.source
	for i := range r.plan.items {
		if p.faultAt == i {
			return r.sourceFails()
		}
		if !r.idle(ctx, i) || !r.giveOne(r.base+i, yield) && !(p.deaf && p.kind != "seq2") {
			return r.stopGiving(ctx)
		}
	}
	if p.faultAt >= r.plan.items {
		return r.sourceFails()
	}
	for p.open && !r.isOver() { // it has nothing more to give, and a func ends when its context does
		if !r.idle(ctx, -1) {
			return nil
		}
	}
	r.closeNow()
	return nil
}

func (r *run) giveOne(id int, yield func(int) bool) bool {
	it := r.offer(id)
	r.lock(func() { r.hold(it) })
	if yield(id) {
		r.accept(it)
		return true
	}
	r.lock(func() {
		if len(it.tries) == 0 { // it may still have been accepted, but will not be started
			r.release(it)
		}
	})
	return false
}

func (r *run) lock(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// idle waits as long as the source takes for item i, or a while for -1. It reports false when its context has ended and it
// listens.
func (r *run) idle(ctx context.Context, i int) bool {
	p := r.plan.source
	d := p.pace
	if i+1 == p.stallAt {
		d += p.stall
	}
	if i < 0 {
		d = 50 * r.unit
	}
	if d == 0 {
		return true
	}
	if p.deaf {
		time.Sleep(d)
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isOver reports whether there is a reason why the run should have ended. A source that cannot be told looks for one.
func (r *run) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.endings {
		if e.at <= r.now() {
			return true
		}
	}
	return false
}

// stopGiving is what the source returns when it was told to stop.
func (r *run) stopGiving(ctx context.Context) error {
	if r.plan.source.kind != "func" {
		return nil
	}
	switch r.plan.source.answer {
	case "context":
		return ctx.Err()
	case "error":
		r.noteSourceError("error", false)
		return errSource
	}
	return nil
}

func (r *run) sourceFails() error {
	p := r.plan.source
	r.noteSourceError(p.fault, true)
	switch p.fault {
	case "panic":
		panic(errSource)
	case "exit":
		runtime.Goexit()
	}
	return errSource
}

// noteSourceError notes that the source is about to fail.
func (r *run) noteSourceError(how string, sure bool) {
	want := errSource
	if how == "exit" {
		want = penstock.ErrGoexit
	}
	r.ends(ending{at: r.now(), kind: "source's " + how, sure: sure, explains: func(err error) bool {
		return walk(err, func(err error) bool {
			e, ok := err.(*penstock.SourceError)
			return ok && errors.Is(e, want)
		})
	}})
}

// closeNow notes that the input comes to its own end.
func (r *run) closeNow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = min(r.closed, r.now())
}

// channel is fed by a goroutine of its own, which ends with the run.
func (r *run) channel() <-chan int {
	ch := make(chan int, r.plan.source.buffer)
	ended := make(chan struct{})
	r.cleanup = append(r.cleanup, func() {
		close(ended)
		<-r.fed
		r.unsent(ch)
	})
	go func() {
		defer close(r.fed)
		r.feed(ch, ended)
	}()
	return ch
}

func (r *run) feed(ch chan<- int, ended <-chan struct{}) {
	for i := range r.plan.items {
		if !r.idleUntil(ended, i) {
			return
		}
		it := r.offer(r.base + i)
		select {
		case ch <- it.id:
			r.lock(func() { r.first = min(r.first, r.now()) })
		case <-ended:
			r.lock(func() { it.refusal = errNotTaken })
			return
		}
	}
	if r.plan.source.open {
		<-ended
		return
	}
	r.closeNow()
	close(ch)
}

func (r *run) idleUntil(ended <-chan struct{}, i int) bool {
	p := r.plan.source
	d := p.pace
	if i+1 == p.stallAt {
		d += p.stall
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ended:
		return false
	}
}

// errNotTaken is the refusal of an item that stayed in its channel.
var errNotTaken = errors.New("it was left in the channel")

// unsent finds what the run has left in the channel.
func (r *run) unsent(ch <-chan int) {
	for {
		select {
		case id, ok := <-ch:
			if !ok {
				return
			}
			r.lock(func() { r.items[id].refusal = errNotTaken })
		default:
			return
		}
	}
}
