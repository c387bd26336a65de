package sim

import (
	"runtime"

	"github.com/penstock-go/penstock"
)

// sample looks at the counters all the time, until the runs have ended.
func (w *world) sample() {
	r := w.random("samples")
	var engine sampled
	runs := make([]sampled, len(w.runs))
	for pause := w.unit; ; pause = min(pause*5/4, 1000*w.unit) {
		for range r.IntN(4) {
			engine.look(w, "the engine", w.accepted, w.engine.Counters, w.offered, w.workers*len(w.runs))
			for i, r := range w.runs {
				if count := r.count.Load(); count != nil {
					runs[i].look(w, r.plan.name, r.taken.Load, *count, r.offered.Load, w.workers)
				}
			}
			runtime.Gosched()
		}
		if !w.nap(pause) {
			return
		}
	}
}

// accepted is how many items all runs of the engine have accepted, at least.
func (w *world) accepted() (n int64) {
	for _, r := range w.runs {
		if r.plan.way != "Foreman" {
			n += r.taken.Load()
		}
	}
	return n
}

// offered is how many items all runs of the engine were offered.
func (w *world) offered() (n int64) {
	for _, r := range w.runs {
		if r.plan.way != "Foreman" {
			n += r.offered.Load()
		}
	}
	return n
}

// sampled is what counters said last.
type sampled struct{ last penstock.Counters }

// look takes a sample and checks it against the one before, and against what is known to be accepted, at least before
// and at most after it was taken.
func (s *sampled) look(w *world, whose string, least func() int64, count func() penstock.Counters, most func() int64, workers int) {
	lo := int(least())
	c := count()
	hi := int(most())
	sum := c.Pending + c.Running + c.Ended()
	switch l := s.last; {
	case min(c.Pending, c.Running, c.Succeeded, c.Failed, c.Shed, c.Unfinished, c.Retries) < 0:
		w.fail("%s counts less than nothing: %+v", whose, c)
	case c.Running > workers:
		w.fail("%s counts more running tasks than there are workers: %+v", whose, c)
	case sum < lo || sum > hi:
		w.fail("%s counts %d tasks in all, between %d and %d there are: %+v", whose, sum, lo, hi, c)
	case sum < l.Pending+l.Running+l.Ended(), c.Succeeded < l.Succeeded, c.Failed < l.Failed, c.Shed < l.Shed,
		c.Unfinished < l.Unfinished, c.Retries < l.Retries:
		w.fail("%s has counted backwards, from %+v to %+v", whose, l, c)
	}
	s.last = c
}
