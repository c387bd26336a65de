package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// A plan is what happens to every lane. Times count from the start of the flood.
type plan struct {
	waves   []wave
	pauseAt time.Duration // when the pausable limiter is paused
	horizon time.Duration // when whoever still waits is sent home
}

// A wave is a number of requests that arrive at one instant.
type wave struct {
	at time.Duration
	n  int
}

// standard is what the page and the picture show: a flood, and a smaller one after a quiet time, since limiters differ
// in what they make of quiet times.
var standard = plan{
	waves:   []wave{{0, 24}, {4 * time.Second, 12}},
	pauseAt: 1250 * time.Millisecond,
	horizon: 8 * time.Second,
}

func (p plan) requests() (n int) {
	for _, w := range p.waves {
		n += w.n
	}
	return n
}

// An event is something that happened in a lane.
type event struct {
	kind  kind
	lane  int
	at    time.Duration // of a pause: when it began
	group int           // of a grant: an index into the lane's groups
	until time.Duration // of a pause
	err   error         // of a refusal; or of a grant that the service did not like
}

type kind int

const (
	granted kind = iota + 1
	refused      // for good: the limiter would never grant this request
	paused
)

// flood sends the plan's requests to all lanes at the same time, and closes the channel it returns when every one of
// them has been let go or sent home, at once if ctx ends. The channel has room for everything that can happen, so nobody
// waits for its reader, and whoever cancels may stop reading.
func flood(ctx context.Context, p plan, s settings, lanes []lane) <-chan event {
	events := make(chan event, len(lanes)*(p.requests()+1))
	// Not a deadline: a limiter may refuse at once what has a deadline it cannot meet, and here we want to see it wait.
	ctx, cancel := context.WithCancel(ctx)
	stop := time.AfterFunc(p.horizon, cancel)
	began := time.Now()

	var running sync.WaitGroup
	running.Go(func() {
		i := 0
		for _, w := range p.waves {
			if !sleepUntil(ctx, began.Add(w.at)) {
				return
			}
			for range w.n {
				index := i
				for n := range lanes {
					running.Go(func() {
						if e, ok := send(ctx, &lanes[n], index, s, began); ok {
							e.lane = n
							events <- e
						}
					})
				}
				i++
			}
		}
	})
	for n, l := range lanes {
		if l.pausable == nil || s.pause == 0 {
			continue
		}
		running.Go(func() {
			if !sleepUntil(ctx, began.Add(p.pauseAt)) {
				return
			}
			if err := l.pausable.PauseFor(s.pause); err != nil {
				events <- event{kind: refused, lane: n, at: time.Since(began), err: err}
				return
			}
			until := l.pausable.PausedUntil().Sub(began)
			events <- event{kind: paused, lane: n, at: until - s.pause, until: until}
		})
	}
	go func() {
		running.Wait()
		stop.Stop()
		cancel()
		close(events)
	}()
	return events
}

// send is one request: it waits for its grant, and says when that came. ok is false if it was sent home.
func send(ctx context.Context, l *lane, i int, s settings, began time.Time) (e event, ok bool) {
	req, group := l.request(i, s)
	err := l.limiter.Acquire(ctx, req)
	at := time.Since(began)
	switch {
	case err == nil:
		e = event{kind: granted, at: at, group: group}
		if l.answer != nil {
			e.err = l.answer(req)
		}
		return e, true
	case ctx.Err() != nil:
		return event{}, false
	default:
		return event{kind: refused, at: at, group: group, err: err}, true
	}
}

// sleepUntil reports false if ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// A result is what has become of a lane.
type result struct {
	lane   lane
	events []event // in order of time
}

// record floods the limiters and keeps what happened.
func record(ctx context.Context, p plan, s settings) ([]result, error) {
	lanes, err := newLanes(s)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(lanes))
	for i, l := range lanes {
		results[i].lane = l
	}
	for e := range flood(ctx, p, s, lanes) {
		results[e.lane].events = append(results[e.lane].events, e)
	}
	for _, r := range results {
		// What came at the same instant is put in an order that does not depend on who was scheduled first.
		slices.SortFunc(r.events, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.group, b.group))
		})
	}
	return results, ctx.Err()
}

// grants are the times of the grants to one group of the lane's requests, or to all if group is negative.
func (r result) grants(group int) []time.Duration {
	var at []time.Duration
	for _, e := range r.events {
		if e.kind == granted && (group < 0 || e.group == group) {
			at = append(at, e.at)
		}
	}
	return at
}

// mostIn is the highest number of times, which are in order, in any period of this length; the period includes its start
// but not its end, as a SlidingWindow's does.
func mostIn(period time.Duration, times []time.Duration) (most int) {
	from := 0
	for to, t := range times {
		for t-times[from] >= period {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}
