package limitertest_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/ratelimiter/limitertest"
)

// Every grants one request in every interval, in order of arrival. A request of
// cost n takes n intervals.
type Every struct {
	interval time.Duration
	// slot holds the instant of the next grant, except while the head of the
	// line has it. The others wait for the channel, which serves them in order.
	slot chan time.Time
}

func NewEvery(interval time.Duration) *Every {
	e := &Every{interval: interval, slot: make(chan time.Time, 1)}
	e.slot <- time.Time{}
	return e
}

func (e *Every) Acquire(ctx context.Context, req ratelimiter.Request) error {
	if err := ctx.Err(); err != nil {
		return err // select would take the slot half the time
	}
	cost, most := max(req.Cost, 1), int(min(math.MaxInt64/16/e.interval, math.MaxInt))
	if req.Cost < 0 || cost > most {
		return &ratelimiter.CostError{Limit: "every " + e.interval.String(), Cost: req.Cost, Max: most}
	}

	var slot time.Time
	select {
	case slot = <-e.slot: // at the head of the line now
	case <-ctx.Done():
		return ctx.Err()
	}
	timer := time.NewTimer(time.Until(slot))
	defer timer.Stop()
	select {
	case now := <-timer.C:
		e.slot <- now.Add(time.Duration(cost) * e.interval)
		return nil
	case <-ctx.Done():
		e.slot <- slot // for the next in line, as if nothing had been
		return ctx.Err()
	}
}

// A limiter of one's own, and the test that it needs.
func Example() {
	test := func(t *testing.T) { // func TestEvery(t *testing.T)
		limitertest.Run(t, func() ratelimiter.Limiter { return NewEvery(time.Second) })
	}
	_ = test

	limiter := NewEvery(10 * time.Millisecond)
	fmt.Println(limiter.Acquire(context.Background(), ratelimiter.Request{}))
	fmt.Println(limiter.Acquire(context.Background(), ratelimiter.Request{Cost: -1}))
	// Output:
	// <nil>
	// ratelimiter: every 10ms: cost -1 is negative
}
