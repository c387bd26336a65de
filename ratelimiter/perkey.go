package ratelimiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A PerKey is a spaced [TokenBucket] of its own for each [Request].Key: a rate for
// each customer, host or API key. Keys may have rates by name; all others have the
// fallback's, each for itself, and need not be known beforehand. The empty Key is a
// key like any other.
//
// The keys have nothing to do with each other: in each, grants are spaced and made
// in order of arrival, as [TokenBucket] describes, and a key for which callers wait
// delays no other one. To have a limit for all keys together besides, use [All].
//
// An [*ExcessError] of a PerKey has the key in its Scope, as `key "a"`.
//
// # Memory
//
// A key without a name takes up memory only until its bucket is full again, that
// is, one interval (Per/Count) after its last grant, or cost intervals after one of
// a higher cost. Then it is like one that was never seen, and it is only such keys
// that are forgotten: however many keys there are, none gets a new bucket before
// its old one is full. While it takes up memory that is at most 64 bytes (measured:
// 56 at worst, 45 on average over all numbers of keys) and the bytes of the key
// itself; up to twice as much while a sweep is under way. A key for which somebody
// waits takes up some 2 KB.
//
// The sweep comes by itself, without any traffic, from a timer that is set only
// while there is something to be swept. It keeps no goroutine, and comes at most
// every 10 s and at least once in the longer of 10 s and an interval, or in 1 h if
// the interval is longer than that. It goes through 80,000 to 300,000 keys a second,
// at most 1,024 in a step, which takes less than 0.1 ms, and in between requests are
// granted.
//
// There is no upper limit to the number of keys. If keys come from strangers, a
// limit in front of the PerKey, for all keys together, bounds them: no more are in
// memory than that lets through in two intervals and the time of a sweep.
//
// # Cost
//
// An Acquire that need not wait takes 150 to 200 ns, more as the keys no longer fit
// into the processor's cache, and allocates nothing if the key is in memory. All
// keys share one lock, which nobody holds while waiting. Through an [All] it takes
// about 1 µs.
//
// All methods are safe for concurrent use.
type PerKey struct{ table[string] }

// NewPerKey returns a limiter with a bucket of its own for each key: those in rates
// at their rate, all others at the fallback rate. If fallback is the zero Rate,
// other keys are refused with a [*KeyError]. All buckets are full. The map is not
// kept. It is an error if there is no rate at all, or if one is out of range, see
// [NewTokenBucket]; the error names the key, the field and the bound.
func NewPerKey(rates map[string]Rate, fallback Rate) (*PerKey, error) {
	if err := checkRates(rates, fallback); err != nil {
		return nil, err
	}
	p := new(PerKey)
	if err := p.init(fieldKey, func(req Request) string { return req.Key }, scope[string]("key %q"), fallback); err != nil {
		return nil, err
	}
	for key, r := range rates {
		p.setNamed(key, r)
	}
	p.text = fmt.Sprintf("token bucket per key (%d named, no others)", len(rates))
	if fallback != (Rate{}) {
		p.text = fmt.Sprintf("token bucket %v per key (%d named)", fallback, len(rates))
	}
	return p, nil
}

func checkRates(rates map[string]Rate, fallback Rate) error {
	if len(rates) == 0 && fallback == (Rate{}) {
		return errors.New("ratelimiter: NewPerKey was given no rates and no fallback, must be at least one")
	}
	var faults []error
	for _, key := range slices.SortedFunc(maps.Keys(rates), cmp.Compare[string]) {
		faults = append(faults, rates[key].check(fmt.Sprintf("rates[%q]", key)))
	}
	if fallback != (Rate{}) {
		faults = append(faults, fallback.check("fallback"))
	}
	return errors.Join(faults...)
}

// Acquire waits until req may go, in order of arrival among the requests with its
// Key. It returns nil then, a [*KeyError] at once if there is no limit for the key,
// a [*CostError] at once if the cost can never be granted, or an error that is
// ctx's to errors.Is if ctx ends first or its deadline is certain to.
func (p *PerKey) Acquire(ctx context.Context, req Request) error { return p.table.Acquire(ctx, req) }

// TryAcquire implements [TryAcquirer]. For a key without a limit retryAfter is
// [Never].
func (p *PerKey) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	return p.table.TryAcquire(req)
}

// AcquireWithin implements [TryAcquirer]. The Scope of its [*ExcessError] names
// the key.
func (p *PerKey) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return p.table.AcquireWithin(ctx, req, maxWait)
}

// Adjust implements [Adjuster] for the bucket of req's Key. For a key without a
// limit it does nothing.
func (p *PerKey) Adjust(req Request, actual int) { p.table.Adjust(req, actual) }

// SetRate gives a key a rate by name, or changes the one it has, as
// [TokenBucket.SetRate] does: what the key owes it still owes, counted in tokens,
// its waiting callers are re-timed, and the zero Rate stops it. A key that has been
// given a rate keeps it, and takes up some 500 bytes for ever.
func (p *PerKey) SetRate(key string, r Rate) error {
	if r != (Rate{}) {
		if err := r.check(fmt.Sprintf("Rate of key %q", key)); err != nil {
			return err
		}
	}
	p.setNamed(key, r)
	return nil
}

// SetFallback changes the rate of all keys without a rate by name, each of them as
// SetRate would. It does not stop them: the zero Rate is an error, and so is one
// out of range. It goes through all keys in memory at once, which holds up everybody
// for about 0.5 ms for each 1,000 of them.
func (p *PerKey) SetFallback(r Rate) error {
	if err := r.check("fallback"); err != nil {
		return err
	}
	p.setAll(r)
	return nil
}

// String names the limit as it was made, for example
// "token bucket 10/s per key (2 named)".
func (p *PerKey) String() string { return p.table.String() }

// A PerWorker is a spaced [TokenBucket] of its own for each [Request].Worker, all
// of the same rate: what one worker does never delays another. So the rate of all
// workers together is not r but the number of workers times r, and it changes when
// that number does. For a limit of the whole use a TokenBucket, or both in an [All].
//
// Nothing needs to know the number of workers: any int is a worker, and is given a
// bucket when it first asks. An [*ExcessError] of a PerWorker has the worker in its
// Scope, as "worker 3".
//
// A worker takes up memory, at most 40 bytes, only until its bucket is full again;
// see [PerKey], which also says how that comes back. An Acquire that need not wait
// takes about 130 ns and allocates nothing if the worker is in memory. All methods
// are safe for concurrent use.
type PerWorker struct{ table[int] }

// NewPerWorker returns a limiter with a full bucket of rate r for each worker. It is
// an error if r is out of range, see [NewTokenBucket]; the error names the field and
// the bound.
func NewPerWorker(r Rate) (*PerWorker, error) {
	if err := r.check("Rate"); err != nil {
		return nil, err
	}
	p := new(PerWorker)
	if err := p.init(fieldWorker, func(req Request) int { return req.Worker }, scope[int]("worker %d"), r); err != nil {
		return nil, err
	}
	p.text = fmt.Sprintf("token bucket %v per worker", r)
	return p, nil
}

// Acquire waits until req may go, in order of arrival among the requests of its
// Worker. It returns nil then, a [*CostError] at once if the cost can never be
// granted, or an error that is ctx's to errors.Is if ctx ends first or its deadline
// is certain to.
func (p *PerWorker) Acquire(ctx context.Context, req Request) error { return p.table.Acquire(ctx, req) }

// TryAcquire implements [TryAcquirer].
func (p *PerWorker) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	return p.table.TryAcquire(req)
}

// AcquireWithin implements [TryAcquirer]. The Scope of its [*ExcessError] names
// the worker.
func (p *PerWorker) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return p.table.AcquireWithin(ctx, req, maxWait)
}

// Adjust implements [Adjuster] for the bucket of req's Worker.
func (p *PerWorker) Adjust(req Request, actual int) { p.table.Adjust(req, actual) }

// SetRate changes the rate of every worker as [TokenBucket.SetRate] does: what a
// worker owes it still owes, counted in tokens, waiting callers are re-timed, and
// the zero Rate stops them all. A rate out of range is an error, and nothing
// changes.
func (p *PerWorker) SetRate(r Rate) error {
	if r != (Rate{}) {
		if err := r.check("Rate"); err != nil {
			return err
		}
	}
	p.setAll(r)
	return nil
}

// String names the limit as it was made, for example "token bucket 10/s per worker".
func (p *PerWorker) String() string { return p.table.String() }
