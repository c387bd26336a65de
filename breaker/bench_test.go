package breaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-go/penstock/breaker"
)

// What an attempt pays while all is well, with the kind of context that an engine has.
func BenchmarkClosed(b *testing.B) {
	br := must(breaker.New())
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		pay(b, ctx, br, breaker.Succeeded)
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	br := must(breaker.New())
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			pay(b, ctx, br, breaker.Succeeded)
		}
	})
}

// A failure that counts takes the lock and reads the clock.
func BenchmarkClosedFailed(b *testing.B) {
	br := must(breaker.New(breaker.WithThreshold(1_000_000, time.Nanosecond)))
	b.ReportAllocs()
	for b.Loop() {
		pay(b, b.Context(), br, breaker.Failed)
	}
}

func pay(b *testing.B, ctx context.Context, br *breaker.Breaker, r breaker.Report) {
	if err := br.Wait(ctx); err != nil {
		b.Fatal(err)
	}
	t, ok := br.Enter()
	if !ok {
		b.Fatal("not closed")
	}
	br.Leave(t, r)
}

func TestClosedDoesNotAllocate(t *testing.T) {
	br := must(breaker.New(breaker.WithThreshold(1_000, time.Nanosecond)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempt := func(r breaker.Report) func() {
		return func() {
			if err := br.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			p, _ := br.Enter()
			br.Leave(p, r)
		}
	}
	for range 1_000 {
		attempt(breaker.Failed)() // until the ring is full
	}
	for _, r := range []breaker.Report{breaker.Succeeded, breaker.Ignored, breaker.Failed} {
		if n := testing.AllocsPerRun(1_000, attempt(r)); n != 0 {
			t.Errorf("%v: %v allocations for each attempt", r, n)
		}
	}
}
