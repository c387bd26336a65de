package breaker

import "fmt"

// State is what a [Breaker] does at present.
type State int

const (
	// Closed: all is well, attempts go through.
	Closed State = iota
	// Open: the service is left alone, everybody waits.
	Open
	// HalfOpen: a few attempts, the probes, find out how the service is; everybody else waits.
	HalfOpen
)

// String is "closed", "open" or "half-open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// A Report says how an attempt ended, as far as the breaker is concerned.
type Report int

const (
	// Succeeded: the service did its work, or gave an answer that shows that it can. An error for which
	// [Breaker.Failure] is false belongs here: a service that says "not found" is up.
	Succeeded Report = iota + 1
	// Failed: the attempt ended with an error for which [Breaker.Failure] is true.
	Failed
	// Ignored: the attempt says nothing about the service, as when it was cancelled. A probe's place is free again.
	Ignored
)

// String is "succeeded", "failed" or "ignored".
func (r Report) String() string {
	switch r {
	case Succeeded:
		return "succeeded"
	case Failed:
		return "failed"
	case Ignored:
		return "ignored"
	}
	return fmt.Sprintf("Report(%d)", int(r))
}

// An epoch is the time from one change of state to the next: its number, and the state in the lowest two bits. It is
// one word, so that closed can be seen without a lock, and what began in one epoch is known as foreign in every other.
type epoch uint64

// firstEpoch is number 1, closed. It is not 0: the zero Ticket belongs to no epoch.
const firstEpoch epoch = 1 << 2

func (e epoch) state() State       { return State(e & 3) }
func (e epoch) next(s State) epoch { return (e>>2+1)<<2 | epoch(s) }

// A Ticket stands for one attempt between [Breaker.Enter] and [Breaker.Leave]. It remembers the state in which the
// attempt began, so that a report that comes after the state has changed does no harm. The zero Ticket stands for no
// attempt; Leave takes it and does nothing.
type Ticket struct {
	epoch epoch
	probe probe // zero: began in closed
}

// A probe is an attempt that was begun in half-open.
type probe struct {
	id    uint64 // from 1, ascending
	since int64
}
