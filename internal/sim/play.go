package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Play lets a run made by hand happen call by call, as the bytes say, and returns the promises that were broken. The first
// bytes make the engine; each later one is a call, which is made at once, whether or not the calls before it have
// returned. It must be called in a synctest bubble, and is for the fuzzer.
func Play(data []byte) (broken []string) {
	t := &tape{data: data}
	s := &Scenario{unit: time.Millisecond, shed: -1, hooks: true, sampled: t.next(2) == 0}
	s.Seed = uint64(t.next(256))
	s.workers, s.batch = 1+t.next(3), 1+t.next(3)
	s.inputs, s.results = capacities[t.next(4)], capacities[t.next(4)]
	s.priority = t.next(2) == 0
	if n := t.next(8); n < 3 {
		s.retry = &retryPlan{max: n, constant: time.Duration(t.next(2)) * s.unit}
	}
	if n := t.next(8); n < 3 {
		s.failureLimit = 1 + n
	}
	if t.next(4) == 0 {
		s.attemptTimeout = 3 * s.unit
	}
	for i, with := 0, t.next(256)|t.next(256)<<8; i < len(allBehaviours); i++ {
		if with>>i&1 == 1 {
			s.behaviours = append(s.behaviours, allBehaviours[i].name)
		}
	}
	s.runs = []runPlan{{name: "run", way: "Start", source: sourcePlan{kind: "slice"}, hand: handPlan{tape: t, readers: []string{"next", "drain"}}}}
	return Simulate(s)
}

var capacities = []int{1, 2, 5, unlimited}

// A tape is where decisions come from. When it has ended they are all 0.
type tape struct{ data []byte }

func (t *tape) next(n int) int {
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return int(b) % n
}

// span is none, or a short duration.
func (t *tape) span(unit time.Duration) time.Duration {
	return max(0, time.Duration(t.next(8)-3)) * unit
}

// play makes the calls on the tape, and then reads all results.
func (r *run) play(t *tape) {
	var calls sync.WaitGroup
	for n := uint64(0); len(t.data) > 0 && n < 200; n++ {
		if call := r.call(t, rand.New(rand.NewPCG(r.Seed, n))); call != nil {
			calls.Go(call)
		}
	}
	r.closeInput()
	for !r.next(0, false) {
	}
	r.returned(r.hand.Err())
	calls.Wait()
	r.sweep()
}

// call decides the next call. It returns nil when it was only a pause.
func (r *run) call(t *tape, rnd *rand.Rand) func() {
	switch t.next(16) {
	case 0, 1, 2:
		d := t.span(r.unit)
		return func() { r.submit(context.Background(), d, rnd) }
	case 3:
		d := t.span(r.unit)
		return func() { r.do(d, rnd) }
	case 4, 5:
		d := t.span(r.unit)
		return func() { r.next(d, true) }
	case 6:
		return r.drain
	case 7:
		return func() { r.readSome("results", rnd) }
	case 8:
		return func() { r.hand.Counters() }
	case 9:
		return r.closeInput
	case 10:
		d := t.span(r.unit)
		return func() { r.finish(d) }
	case 11:
		d := t.span(r.unit)
		return func() { r.stop(d) }
	case 12:
		return func() { r.cancelNow(errCancelled) }
	default:
		time.Sleep(t.span(r.unit))
		return nil
	}
}
