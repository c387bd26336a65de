package ratelimiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// How to test a program that uses limiters: in a bubble of testing/synctest an hour of traffic takes milliseconds, and every
// instant is exact. Nothing has to be replaced or injected. All that a program needs for it is that the limiter is made
// inside the bubble, or at least not waited for before. Copy from here.

// remind is the program: it sends a reminder to each address and keeps to the limit. When the service is busy, everybody
// who uses the limiter pauses, and the reminder is sent again.
func remind(ctx context.Context, limiter *ratelimiter.Pausable, addresses int, send func(address int) error) error {
	for i := 0; i < addresses; {
		if err := limiter.Acquire(ctx, ratelimiter.Request{Index: i}); err != nil {
			return err
		}
		var busy *busyError
		switch err := send(i); {
		case errors.As(err, &busy):
			if err := limiter.PauseFor(busy.retryAfter); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			i++
		}
	}
	return nil
}

type busyError struct{ retryAfter time.Duration }

func (e *busyError) Error() string { return "busy, come back in " + e.retryAfter.String() }

// TestAnHourOfTraffic: 6,000 reminders at 100 a minute take 59 minutes and a bit, and no minute sees more than 100.
func TestAnHourOfTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		window, err := ratelimiter.NewSlidingWindow(ratelimiter.PerMinute(100))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now() // the bubble's clock: it moves when everybody in it waits
		var sent []time.Duration
		err = remind(t.Context(), ratelimiter.NewPausable(window), 6000, func(int) error {
			sent = append(sent, time.Since(start))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 59*time.Minute {
			t.Errorf("6000 reminders took %v, want 59m", took)
		}
		for i := 100; i < len(sent); i++ {
			if sent[i]-sent[i-100] < time.Minute {
				t.Fatalf("101 reminders within %v", sent[i]-sent[i-100])
			}
		}
	})
}

// TestABusyHour: a service that is busy after half of them costs exactly the pause it asked for.
func TestABusyHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, err := ratelimiter.NewTokenBucket(ratelimiter.PerMinute(60))
		if err != nil {
			t.Fatal(err)
		}
		start, calls := time.Now(), 0
		err = remind(t.Context(), ratelimiter.NewPausable(bucket), 3600, func(int) error {
			if calls++; calls == 1800 {
				return &busyError{retryAfter: 10 * time.Minute}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		// 3,599 intervals of a second; during the pause one of them has gone by.
		if took := time.Since(start); took != 3599*time.Second+10*time.Minute || calls != 3601 {
			t.Errorf("%d calls took %v", calls, took)
		}
	})
}

// TestGivingUp: deadlines are on the bubble's clock as well.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, err := ratelimiter.NewTokenBucket(ratelimiter.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Minute)
		defer cancel()
		sent := 0
		err = remind(ctx, ratelimiter.NewPausable(bucket), 100, func(int) error { sent++; return nil })
		if !errors.Is(err, context.DeadlineExceeded) || sent != 10 {
			t.Errorf("%v after %d reminders", err, sent)
		}
	})
}
