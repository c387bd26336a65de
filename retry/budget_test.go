package retry_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-go/penstock/retry"
	"pgregory.net/rapid"
)

func newBudget(t testing.TB, ratio float64, burst int) *retry.Budget {
	t.Helper()
	b, err := retry.NewBudget(ratio, burst)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBudget(t *testing.T) {
	b := newBudget(t, 0.5, 2)
	steps := []struct {
		do      string
		granted bool
		balance float64
	}{
		{"deposit", false, 2}, // full already
		{"withdraw", true, 1},
		{"withdraw", true, 0},
		{"withdraw", false, 0},
		{"deposit", false, 0.5},
		{"withdraw", false, 0.5}, // half a retry is none, and is not lost
		{"deposit", false, 1},
		{"withdraw", true, 0},
		{"deposit", false, 0.5},
		{"deposit", false, 1},
		{"deposit", false, 1.5},
		{"deposit", false, 2},
		{"deposit", false, 2},
	}
	for i, step := range steps {
		if step.do == "deposit" {
			b.Deposit()
		} else if got := b.Withdraw(); got != step.granted {
			t.Fatalf("step %d: Withdraw = %v", i, got)
		}
		if got := b.Balance(); got != step.balance {
			t.Fatalf("step %d, %s: balance %v, want %v", i, step.do, got, step.balance)
		}
	}
}

// Tenths add up exactly, however many: ten of them are one retry, never 0.9999999999999999.
func TestBudgetDoesNotDrift(t *testing.T) {
	b := newBudget(t, 0.1, 1)
	b.Withdraw()
	for round := range 10_000 {
		for range 9 {
			b.Deposit()
		}
		if b.Withdraw() {
			t.Fatalf("round %d: a retry for nine tasks", round)
		}
		b.Deposit()
		if !b.Withdraw() {
			t.Fatalf("round %d: no retry for ten tasks", round)
		}
	}
}

// In any order of calls the grants never exceed burst + tasks·ratio, the balance stays between 0 and burst, and what is
// neither spent nor above burst is still there.
func TestBudgetKeepsItsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.OneOf(rapid.Int64Range(1, 2_000_000), rapid.Int64Range(1, 1_000_000_000)).Draw(t, "micros")
		burst := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 1_000_000_000)).Draw(t, "burst")
		b, err := retry.NewBudget(float64(micros)/1e6, burst)
		if err != nil {
			t.Fatal(err)
		}
		model := int64(burst) * 1e6
		var tasks, grants int64
		for _, deposit := range rapid.SliceOf(rapid.Bool()).Draw(t, "deposits") {
			if deposit {
				b.Deposit()
				tasks++
				model = min(model+micros, int64(burst)*1e6)
			} else {
				want := model >= 1e6
				if want {
					grants++
					model -= 1e6
				}
				if got := b.Withdraw(); got != want {
					t.Fatalf("Withdraw = %v at %d millionths", got, model)
				}
			}
			if got := b.Balance(); got != float64(model)/1e6 {
				t.Fatalf("balance %v, want %v", got, float64(model)/1e6)
			}
		}
		if grants*1e6 > int64(burst)*1e6+tasks*micros {
			t.Fatalf("%d retries for %d tasks", grants, tasks)
		}
	})
}

func TestBudgetIsSafeForConcurrentUse(t *testing.T) {
	const workers, each, burst = 8, 1000, 100
	b := newBudget(t, 0.25, burst)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				b.Deposit()
				if b.Withdraw() {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	for b.Withdraw() {
		granted.Add(1)
	}
	// What is paid into a full budget is lost, so the total is not exact; but each worker draws as often as it pays in,
	// so only the very first payments can find the budget full.
	const most = burst + workers*each/4
	if got := granted.Load(); got > most || got < most-2*workers {
		t.Errorf("%d retries granted, want about and at most %d", got, most)
	}
}

func TestNewBudgetRefuses(t *testing.T) {
	tests := []struct {
		name  string
		ratio float64
		burst int
		want  []string // parts of the text
	}{
		{"ratio zero", 0, 1, []string{"ratio is 0:"}},
		{"ratio negative", -0.1, 1, []string{"ratio is -0.1:"}},
		{"ratio too small to count", 1e-7, 1, []string{"ratio is 1e-07:", "0.000001"}},
		{"ratio too large", 1001, 1, []string{"ratio is 1001:", "to 1000"}},
		{"ratio NaN", math.NaN(), 1, []string{"ratio is NaN:"}},
		{"ratio infinite", math.Inf(1), 1, []string{"ratio is +Inf:"}},
		{"ratio -infinite", math.Inf(-1), 1, []string{"ratio is -Inf:"}},
		{"burst zero", 0.1, 0, []string{"burst is 0:", "from 1"}},
		{"burst negative", 0.1, -1, []string{"burst is -1:"}},
		{"burst too large", 0.1, math.MaxInt, []string{fmt.Sprintf("burst is %d:", math.MaxInt), "to 1000000000"}},
		{"both", -1, -1, []string{"ratio is -1:", "burst is -1:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := retry.NewBudget(tt.ratio, tt.burst)
			if err == nil || b != nil {
				t.Fatalf("NewBudget(%v, %d) = %v, %v, want an error alone", tt.ratio, tt.burst, b, err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not have %q", err, part)
				}
			}
		})
	}
}

func TestNewBudgetTakesTheEnds(t *testing.T) {
	for _, ratio := range []float64{1e-6, 0.1, 1, 1000} {
		for _, burst := range []int{1, 1_000_000_000} {
			b := newBudget(t, ratio, burst)
			if got := b.Balance(); got != float64(burst) {
				t.Errorf("NewBudget(%v, %d) starts with %v", ratio, burst, got)
			}
			if !b.Withdraw() {
				t.Errorf("NewBudget(%v, %d) grants nothing", ratio, burst)
			}
			b.Deposit()
			if got, want := b.Balance(), min(float64(burst)-1+ratio, float64(burst)); math.Abs(got-want) > 1e-6 {
				t.Errorf("NewBudget(%v, %d): balance %v after one retry and one task, want %v", ratio, burst, got, want)
			}
		}
	}
}

func TestBudgetNilIsNoCap(t *testing.T) {
	var b *retry.Budget
	for range 100 {
		if !b.Withdraw() {
			t.Fatal("a nil Budget refused a retry")
		}
	}
	b.Deposit()
	if got := b.Balance(); !math.IsInf(got, 1) {
		t.Errorf("balance %v, want +Inf", got)
	}
}

func TestBudgetZeroGrantsNothing(t *testing.T) {
	var b retry.Budget
	for range 100 {
		b.Deposit()
	}
	if b.Withdraw() || b.Balance() != 0 {
		t.Errorf("a zero Budget granted a retry, or holds %v", b.Balance())
	}
}
