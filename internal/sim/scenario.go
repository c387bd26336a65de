package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock"
)

// A Scenario is everything that is decided before a simulation starts. It is a function of its seed, of the clock, and of
// the parts that were dropped.
type Scenario struct {
	Seed    uint64
	Dropped []string
	Clock   Clock

	unit  time.Duration // of all durations
	parts []string      // the optional parts that it has
	notes []string      // the parts in words

	workers, batch  int
	inputs, results int // 0: the default
	priority        bool
	retry           *retryPlan
	attemptTimeout  time.Duration // 0: none, like the next two
	taskTimeout     time.Duration
	startTimeout    time.Duration
	failureLimit    int // 0: none
	limiter         *limiterPlan
	shed            time.Duration // -1: none
	breaker         *breakerPlan
	hooks           bool
	badHook         *badHook
	logger          *loggerPlan
	badCall         *badCall
	behaviours      []behaviour
	sampled         bool
	runs            []runPlan
}

// A Clock says how time passes in a simulation.
type Clock int

const (
	// Virtual time passes in a synctest bubble, which [Simulate] must then be called in.
	Virtual Clock = iota
	// Real time passes by itself.
	Real
)

// Unlimited stands for any capacity that is never reached.
const unlimited = penstock.Unlimited

// Draw decides the scenario of a seed, without the dropped parts.
func Draw(seed uint64, clock Clock, dropped ...string) *Scenario {
	s := &Scenario{Seed: seed, Dropped: dropped, Clock: clock, unit: time.Millisecond, shed: -1}
	if clock == Real {
		s.unit = 20 * time.Microsecond
	}
	s.drawSizes()
	s.drawTimes()
	s.drawRetry()
	s.drawLimits()
	s.drawTelling()
	s.drawBehaviours()
	s.drawRuns()
	return s
}

// random is the random source of one part, so that to drop one part changes no other.
func (s *Scenario) random(part string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(part))
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}

// part draws whether the scenario has an optional part, which percent of all do, and returns the part's random source if so.
func (s *Scenario) part(name string, percent int) *rand.Rand {
	r := s.random(name)
	if r.IntN(100) >= percent || slices.Contains(s.Dropped, name) {
		return nil
	}
	s.parts = append(s.parts, name)
	return r
}

func (s *Scenario) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// String lists the parts.
func (s *Scenario) String() string { return strings.Join(s.notes, "\n") }

// Parts are the names of the parts that can be dropped.
func (s *Scenario) Parts() []string { return slices.Clone(s.parts) }

// span draws a duration. There are only a few, so that many things happen at the same instant.
func (s *Scenario) span(r *rand.Rand) time.Duration {
	return s.unit * time.Duration(pick(r, 1, 2, 3, 5, 8, 13, 21, 34, 55))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (s *Scenario) drawSizes() {
	s.workers, s.batch = 2, 1
	if r := s.part("workers", 90); r != nil {
		s.workers = pick(r, 1, 1, 2, 3, 4, 5, 8, 16, 40)
	}
	if r := s.part("batch", 25); r != nil {
		s.batch = pick(r, 2, 3, 7, 64)
	}
	if r := s.part("inputs", 40); r != nil {
		s.inputs = pick(r, 1, 1, 2, 3, 10, unlimited)
	}
	if r := s.part("results", 40); r != nil {
		s.results = pick(r, 1, 1, 2, 3, 10, unlimited)
	}
	s.priority = s.part("priority", 25) != nil
	if r := s.part("failure limit", 20); r != nil {
		s.failureLimit = pick(r, 1, 1, 2, 3, 5, 10)
	}
	s.sampled = s.part("sampler", 70) != nil
	s.note("%d workers, batch %d, input capacity %d, result capacity %d (0: default), priority %v, failure limit %d",
		s.workers, s.batch, s.inputs, s.results, s.priority, s.failureLimit)
}

func (s *Scenario) drawTimes() {
	for _, t := range []struct {
		name    string
		percent int
		to      *time.Duration
	}{{"attempt timeout", 35, &s.attemptTimeout}, {"task timeout", 20, &s.taskTimeout}, {"start timeout", 12, &s.startTimeout}} {
		if r := s.part(t.name, t.percent); r != nil {
			*t.to = s.span(r)
			s.note("%s %v", t.name, *t.to)
		}
	}
}

func (s *Scenario) drawTelling() {
	s.hooks = s.part("hooks", 60) != nil
	if r := s.part("bad hook", 15); r != nil {
		s.badHook = &badHook{
			kind: pick(r, "AttemptStarted", "AttemptEnded", "RetryScheduled", "TaskDone", "RunEnded"),
			does: pick(r, "panic", "exit", "sleep"), every: int64(pick(r, 1, 2, 5)), takes: s.span(r),
		}
		s.note("bad hook %+v", *s.badHook)
	}
	if r := s.part("logger", 20); r != nil {
		s.logger = &loggerPlan{pick(r, "", "", "panic", "exit")}
		s.note("logger %+v", *s.logger)
	}
	s.note("hooks %v", s.hooks)
}

// A runPlan is one of the runs of a scenario.
type runPlan struct {
	name     string
	way      string
	after    time.Duration // starts so much later than the simulation
	items    int
	source   sourcePlan
	consumer consumerPlan
	hand     handPlan
	cancelAt time.Duration // 0: never
	deadline time.Duration // 0: none
}

var waysOfRunning = []string{"ProcessAll", "ProcessSource", "IterResults", "IterResults", "IterOrdered", "Start", "Start", "Start", "Foreman"}

func (s *Scenario) drawRuns() {
	n := 1
	if r := s.part("overlap", 30); r != nil {
		n = pick(r, 2, 2, 3)
	}
	for i := range n {
		p := s.drawRun(fmt.Sprintf("run%d", i))
		s.runs = append(s.runs, p)
		s.note("%s: %s of %d items after %v, cancelled at %v, deadline %v\n  source %v\n  consumer %+v\n  by hand %+v",
			p.name, p.way, p.items, p.after, p.cancelAt, p.deadline, p.source, p.consumer, p.hand)
	}
}

func (s *Scenario) drawRun(name string) runPlan {
	r := s.random(name)
	p := runPlan{name: name, way: pick(r, waysOfRunning...), items: 6}
	if i := s.part(name+" items", 95); i != nil {
		p.items = pick(i, 0, 1, 2, 5, 10, 20, 20, 40, 40, 80)
	}
	if name != "run0" && r.IntN(2) == 0 {
		p.after = s.span(r)
	}
	if c := s.part(name+" cancel", 15); c != nil {
		p.cancelAt = s.span(c)
	}
	if d := s.part(name+" deadline", 10); d != nil {
		p.deadline = s.span(d)
	}
	p.source = s.drawSource(name, p.way)
	p.consumer = s.drawConsumer(name)
	p.hand = s.drawHand(name)
	return p
}
