package retry

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// A Budget caps the retries of many tasks together. A limit per task is not enough when a service fails for everybody:
// with three retries each, a thousand failing tasks make four thousand calls, and that is what keeps a service down
// that is trying to get up again. A Budget lets a run of single failures be retried, and stops retrying when failing
// becomes the rule.
//
// It works like a bank account for retries. The account is opened full, with burst retries in it. The first attempt of
// every task pays in a fraction of a retry, the ratio, but never above burst; every retry draws one. A retry that finds
// less than one is not made, and its task fails with the error that it has. So over any stretch of work with n tasks
// there are at most burst + n·ratio retries. (The idea is that of the per-client retry budget in "Handling Overload",
// Site Reliability Engineering, O'Reilly 2016, and of retry throttling in gRPC.)
//
// A Budget has no clock and no goroutine: it is refilled by work, not by time. It is safe for concurrent use, takes one
// atomic operation or a few, does not allocate, and may be shared by any number of policies, engines and runs; it must
// not be copied. Make it with [NewBudget]; the zero Budget never grants a retry and is refused by [Policy.Validate]. On
// a nil *Budget, which stands for no cap, every method works.
type Budget struct {
	ratio   int64 // in micros, like all three
	burst   int64
	balance atomic.Int64
}

// micro is the unit in which a Budget counts: whole numbers, so that the books balance after any number of payments.
// Ten payments of a tenth make exactly one retry, which they do not as float64.
const micro = 1_000_000

const (
	minRatio = 1.0 / micro
	maxRatio = 1000.0
	maxBurst = 1_000_000_000
)

// NewBudget returns a full Budget of burst retries that gains ratio retries with each first attempt of a task.
//
// The ratio says how many retries per task are sound in the long run: 0.1 is one retry for ten tasks, a common choice,
// and 1 as many retries as tasks. It must be from 0.000001 to 1000 and is rounded to millionths. The burst says how many
// retries may come on top of that, at the start or after a quiet time; it must be from 1 to 1,000,000,000. Anything else
// is an error that names each argument, its value, and what would be right.
func NewBudget(ratio float64, burst int) (*Budget, error) {
	var errs []error
	if !(ratio >= minRatio && ratio <= maxRatio) { // put so that NaN fails
		errs = append(errs, fmt.Errorf("retry: NewBudget: ratio is %v: it counts retries per task and must be from 0.000001 to 1000", ratio))
	}
	if burst < 1 || burst > maxBurst {
		errs = append(errs, fmt.Errorf("retry: NewBudget: burst is %d: it counts retries and must be from 1 to %d", burst, maxBurst))
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	b := &Budget{ratio: int64(math.Round(ratio * micro)), burst: int64(burst) * micro}
	b.balance.Store(b.burst)
	return b, nil
}

// Deposit pays in for the first attempt of one task. The engine calls it once for each task whose first attempt starts.
func (b *Budget) Deposit() {
	if b == nil {
		return
	}
	for {
		old := b.balance.Load()
		if old == b.burst || b.balance.CompareAndSwap(old, min(old+b.ratio, b.burst)) {
			return
		}
	}
}

// Withdraw draws one retry and reports whether there was one; if not, it takes nothing. The engine calls it when a task
// may be retried by all other rules, before it works out and waits the delay. A retry that was granted and then not made,
// because the run or the task's time ended during the delay, is not paid back.
func (b *Budget) Withdraw() bool {
	if b == nil {
		return true
	}
	for {
		old := b.balance.Load()
		if old < micro {
			return false
		}
		if b.balance.CompareAndSwap(old, old-micro) {
			return true
		}
	}
}

// Balance returns how many retries are there at this moment, with fractions, from 0 to burst; on a nil Budget it is
// positive infinity. It is meant for metrics and tests: by the time the caller looks at it others may have drawn.
func (b *Budget) Balance() float64 {
	if b == nil {
		return math.Inf(1)
	}
	return float64(b.balance.Load()) / micro
}
