package retry_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/penstock-go/penstock/retry"
)

func BenchmarkExponential(b *testing.B) {
	for name, opts := range map[string][]retry.ExponentialOption{
		"full jitter": nil,
		"no jitter":   {retry.WithJitter(0)},
		"seeded":      {retry.WithRandom(rand.New(rand.NewPCG(1, 2)))},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			backoff := retry.Exponential(time.Millisecond, time.Minute, opts...)
			b.RunParallel(func(pb *testing.PB) {
				for failed := 1; pb.Next(); failed = failed%20 + 1 {
					backoff(failed, errBusy)
				}
			})
		})
	}
}

// BenchmarkDecision is what the engine asks after a failed attempt, all of it.
func BenchmarkDecision(b *testing.B) {
	budget := newBudget(b, 1000, 1000)
	p := retry.Policy{
		Max:           3,
		Backoff:       retry.Exponential(time.Millisecond, time.Minute),
		If:            retry.As[*codeError](),
		Unless:        retry.Is(errGone),
		Budget:        budget,
		FreeThrottled: true,
	}
	err := fmt.Errorf("row 7: %w", retry.After(&codeError{code: 429}, time.Second))
	b.ReportAllocs()
	for b.Loop() {
		if !p.Retryable(err) || !p.Free(err) || !p.Budget.Withdraw() {
			b.Fatal("not retried")
		}
		if _, err := p.Delay(1, err); err != nil {
			b.Fatal(err)
		}
		budget.Deposit()
	}
}

func BenchmarkBudget(b *testing.B) {
	budget := newBudget(b, 0.1, 1000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			budget.Deposit()
			budget.Withdraw()
		}
	})
}

func BenchmarkParseRetryAfter(b *testing.B) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for _, header := range []string{"120", "2.5", "Wed, 04 Mar 2026 12:00:02 GMT", "Wed Mar  4 12:00:02 2026", "soon"} {
		b.Run(header, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				retry.ParseRetryAfter(header, now)
			}
		})
	}
}
