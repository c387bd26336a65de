package sim

import (
	"math/rand/v2"
	"time"
)

// A behaviour is a way in which handlers depart from succeeding at once. A scenario has some of them, and each of its
// items at most one.
type behaviour string

const (
	slow       behaviour = "slow"       // takes its time
	failing    behaviour = "failing"    // fails some times before it succeeds
	hopeless   behaviour = "hopeless"   // fails, and says that there is no use in trying again
	throttled  behaviour = "throttled"  // is told to come back later
	hanging    behaviour = "hanging"    // hangs until its context ends
	deaf       behaviour = "deaf"       // does not listen to its context for a while
	panicking  behaviour = "panicking"  //
	exiting    behaviour = "exiting"    // calls runtime.Goexit
	borrowing  behaviour = "borrowing"  // returns a context's error although its own context is alive
	submitting behaviour = "submitting" // submits more work to its own run
	meddling   behaviour = "meddling"   // ends or reads its own run
)

var allBehaviours = []struct {
	name    behaviour
	percent int
}{
	{slow, 50}, {failing, 60}, {hopeless, 20}, {throttled, 20}, {hanging, 25}, {deaf, 25}, {panicking, 20}, {exiting, 10},
	{borrowing, 15}, {submitting, 30}, {meddling, 8},
}

func (s *Scenario) drawBehaviours() {
	for _, b := range allBehaviours {
		if s.part("handlers: "+string(b.name), b.percent) != nil {
			s.behaviours = append(s.behaviours, b.name)
		}
	}
	s.note("handlers %v", s.behaviours)
}

// A script says what an item's handler does, attempt by attempt; the last step is repeated.
type script []step

func (s script) at(attempt int) step { return s[min(attempt, len(s))-1] }

// A step is one call of the handler.
type step struct {
	do    behaviour     // "" succeeds
	takes time.Duration // before it does it
	deaf  bool          // without listening to its context meanwhile
	late  lateness
	hint  time.Duration // of a throttled one
	how   int           // a variant
}

// A lateness is what a handler returns when its context has ended.
type lateness int

const (
	contextError lateness = iota
	wrappedError
	contextCause
	ownError
	value
	latenesses
)

// script is what the handler does with an item: a function of the seed and the item.
func (s *Scenario) script(id int) script {
	r := rand.New(rand.NewPCG(s.Seed, uint64(id)))
	end := step{late: lateness(r.IntN(int(latenesses)))}
	if len(s.behaviours) == 0 || r.IntN(100) < 40 {
		return script{end}
	}
	b := pick(r, s.behaviours...)
	bad := end
	bad.do, bad.how = b, r.IntN(4)
	bad.takes, bad.hint = s.maybe(r), s.span(r)
	switch b {
	case slow:
		end.takes = s.span(r)
		return script{end}
	case deaf:
		bad.do, bad.takes, bad.deaf = pick(r, "", failing), s.span(r), true
		return script{bad, end}
	case hanging:
		bad.deaf = r.IntN(2) == 0 // lingers when its context has ended
	case panicking, exiting:
		if r.IntN(2) == 0 {
			return script{{do: failing}, bad}
		}
		return script{bad}
	case submitting, meddling:
		return script{bad}
	}
	var steps script
	for range pick(r, 1, 1, 2, 3, 4, 30) {
		steps = append(steps, bad)
	}
	return append(steps, end)
}

// maybe draws a duration that is mostly zero.
func (s *Scenario) maybe(r *rand.Rand) time.Duration {
	if r.IntN(3) > 0 {
		return 0
	}
	return s.span(r)
}
