package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

// A service fails for a while. Its callers wait until it is back, instead of failing too.
func Example() {
	b, err := breaker.New(
		breaker.WithThreshold(3, time.Minute),
		breaker.WithCooldown(20*time.Millisecond), // in real life some seconds, or minutes
	)
	if err != nil {
		panic(err)
	}
	calls := 0
	call := func() error {
		if calls++; calls <= 5 {
			return errors.New("503 service unavailable")
		}
		return nil
	}

	for done := 0; done < 100; {
		if err := b.Wait(context.Background()); err != nil {
			panic(err)
		}
		// This is where a limiter would be asked.
		ticket, ok := b.Enter()
		if !ok {
			continue // it has opened meanwhile
		}
		if err := call(); b.Failure(err) {
			b.Leave(ticket, breaker.Failed)
			continue // try again
		}
		b.Leave(ticket, breaker.Succeeded)
		done++
	}
	fmt.Println(calls, "calls for 100 items, the breaker is", b.State())
	// Output: 105 calls for 100 items, the breaker is closed
}

// Bad options are all named at once.
func ExampleNew() {
	_, err := breaker.New(
		breaker.WithThreshold(0, time.Minute),
		breaker.WithProbes(5, 80),
	)
	fmt.Println(err)
	// Output:
	// breaker: WithThreshold: failures is 0, must be from 1 to 1000000
	// breaker: WithProbes: ratio is 80, must be more than 0 and at most 1
}

// Only errors that speak against the service count. A "not found" is the answer of a healthy one.
func ExampleWithTrip() {
	errNotFound := errors.New("404 not found")
	b, err := breaker.New(breaker.WithTrip(func(err error) bool { return !errors.Is(err, errNotFound) }))
	if err != nil {
		panic(err)
	}
	for _, err := range []error{nil, errNotFound, errors.New("502 bad gateway")} {
		fmt.Println(err, b.Failure(err))
	}
	// Output:
	// <nil> false
	// 404 not found false
	// 502 bad gateway true
}

// Changes of state are told as they happen.
func ExampleWithOnChange() {
	b, err := breaker.New(
		breaker.WithThreshold(2, time.Minute),
		breaker.WithOnChange(func(from, to breaker.State) { fmt.Println("breaker:", from, "->", to) }),
	)
	if err != nil {
		panic(err)
	}
	for range 2 {
		ticket, _ := b.Enter()
		b.Leave(ticket, breaker.Failed)
	}
	// Output: breaker: closed -> open
}

// While the breaker is open, Wait returns an error only when the caller's own context ends.
func ExampleBreaker_Wait() {
	b, err := breaker.New(breaker.WithThreshold(1, time.Minute))
	if err != nil {
		panic(err)
	}
	ticket, _ := b.Enter()
	b.Leave(ticket, breaker.Failed)

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err = b.Wait(ctx)
	fmt.Println(err)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output:
	// breaker: while waiting for an attempt (open): context deadline exceeded
	// true
}
