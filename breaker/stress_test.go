package breaker_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

// Many goroutines on the real clock: everybody comes through, and the changes are told one at a time and form a chain.
func TestStress(t *testing.T) {
	var inside atomic.Int32
	var mu sync.Mutex
	told, last, more := 0, breaker.Closed, sync.NewCond(&mu)
	b := must(breaker.New(
		breaker.WithThreshold(3, time.Second), breaker.WithCooldown(200*time.Microsecond), breaker.WithProbes(4, 0.5),
		breaker.WithOnChange(func(from, to breaker.State) {
			if inside.Add(1) != 1 {
				t.Error("two calls at a time")
			}
			mu.Lock()
			if from != last || to == from || from == breaker.Open && to != breaker.HalfOpen {
				t.Errorf("%v to %v, after %v", from, to, last)
			}
			told, last = told+1, to
			mu.Unlock()
			inside.Add(-1)
			more.Signal()
		})))
	const goroutines, each = 32, 300
	var done atomic.Int32
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for n := 0; n < each; {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000)+1)*time.Microsecond)
				if b.Wait(ctx) == nil {
					n += one(b, random)
				}
				cancel()
			}
			done.Add(each)
		})
	}
	wg.Wait()
	if done.Load() != goroutines*each {
		t.Errorf("%d attempts, want %d", done.Load(), goroutines*each)
	}
	for b.State() != breaker.Closed {
		if err := b.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, ok := b.Enter(); ok {
			b.Leave(p, breaker.Succeeded)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for told < b.Changes() {
		more.Wait()
	}
	if told < 10 || last != breaker.Closed {
		t.Errorf("%d changes, the last to %v", told, last)
	}
}

// one is what becomes of a caller who was let through. It returns how many attempts were made.
func one(b *breaker.Breaker, random *rand.Rand) int {
	switch random.IntN(20) {
	case 0:
		b.Skip()
		return 0
	case 1: // forgets about it
		return 0
	}
	ticket, ok := b.Enter()
	if !ok {
		return 0
	}
	if random.IntN(50) == 0 {
		time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond)
	}
	r := breaker.Succeeded
	switch random.IntN(40) {
	case 0, 1:
		r = breaker.Failed
	case 2:
		r = breaker.Ignored
	}
	b.Leave(ticket, r)
	return 1
}
