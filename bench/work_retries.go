package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/avast/retry-go/v4"
	"github.com/cenkalti/backoff/v5"

	"github.com/penstock-go/penstock"
	penstockretry "github.com/penstock-go/penstock/retry"
)

var errNotYet = errors.New("not yet")

const attempts = 3

// retryGroups have an operation that fails twice and then succeeds, with no time in between: what is left is the loop.
func retryGroups(s sizes) []*group {
	return []*group{{
		name: "retry/two-failures/1", about: "An operation that fails twice, is retried at once, and then succeeds; one worker",
		unit: perItem, items: s.items, workers: 1, baseline: "by hand: loop",
		contenders: []contender{
			{"by hand: loop", retried(retryByHand)},
			{nameEngine, retriedByEngine},
			{"backoff/v5", retried(retryBackoff())},
			{"retry-go/v4", retried(retryAvast())},
		},
		notes: []string{"Both peers set a timer for every retry, also for one that is due at once."},
	}}
}

// flaky is the operation. It counts the attempts of each item.
func flaky(tries []uint8) handler {
	return func(_ context.Context, item int) (int, error) {
		tries[item]++
		if tries[item] < attempts {
			return 0, errNotYet
		}
		return right(item), nil
	}
}

// A retryLoop calls a handler until it succeeds.
type retryLoop func(ctx context.Context, handle handler, item int) (int, error)

// retried runs a retry loop for each item and checks what came of it.
func retried(loop retryLoop) func(*turn) error {
	return func(t *turn) error {
		ctx := context.Background()
		tries := make([]uint8, len(t.items))
		handle := flaky(tries)
		for _, item := range t.items {
			v, err := loop(ctx, handle, item)
			if err != nil {
				return err
			}
			t.emit(v)
		}
		return checkTries(t, tries)
	}
}

// checkTries is quick enough to be within the clock, the same for everybody.
func checkTries(t *turn, tries []uint8) error {
	for i, n := range tries {
		if n != attempts {
			return fmt.Errorf("%d attempts of item %d", n, i)
		}
	}
	return checkOrdered(t)
}

func retryByHand(ctx context.Context, handle handler, item int) (v int, err error) {
	for range attempts {
		if v, err = handle(ctx, item); err == nil || ctx.Err() != nil {
			return v, err
		}
	}
	return 0, err
}

// retryBackoff and retryAvast make their options once: both take them again with every call, and neither keeps state there.
func retryBackoff() retryLoop {
	opts := []backoff.RetryOption{backoff.WithBackOff(&backoff.ZeroBackOff{}), backoff.WithMaxTries(attempts)}
	return func(ctx context.Context, handle handler, item int) (int, error) {
		return backoff.Retry(ctx, func() (int, error) { return handle(ctx, item) }, opts...)
	}
}

func retryAvast() retryLoop {
	opts := []retry.Option{
		retry.Context(context.Background()), retry.Attempts(attempts), retry.Delay(0), retry.DelayType(retry.FixedDelay),
	}
	return func(ctx context.Context, handle handler, item int) (int, error) {
		return retry.DoWithData(func() (int, error) { return handle(ctx, item) }, opts...)
	}
}

// retriedByEngine is a whole batch, of which the retries are a part.
func retriedByEngine(t *turn) error {
	tries := make([]uint8, len(t.items))
	e, err := penstock.New(flaky(tries), t.workers, penstock.WithRetry(penstockretry.Policy{Max: attempts - 1}))
	if err != nil {
		return err
	}
	out, err := e.ProcessAll(context.Background(), t.items)
	if err != nil {
		return err
	}
	for i := range out {
		v, err := out[i].Value()
		if err != nil {
			return err
		}
		t.emit(v)
	}
	return checkTries(t, tries)
}
