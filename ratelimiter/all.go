package ratelimiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// An All grants a request when all of its limiters do: requests per minute and
// requests per day, or, with [CountRequests] for the former, requests and tokens
// per minute.
//
// The limiters of this package inside it are asked for everything at one
// instant: a request takes something of all of them or of none, and while it
// waits for one it holds nothing of another. Each of them may be used alone and
// in other Alls at the same time. In each, requests are granted in order of
// arrival, with one exception that delays nobody: while a request waits for
// another of its limits, those behind it may use what it could not use yet, as
// long as that is there again when its turn comes.
//
// Any other limiter can only be asked by itself. Such limiters are acquired last
// and in the order given, each caller by itself. So what the others have granted
// is held meanwhile, and callers that those let go at one instant may come to the
// foreign limiter in any order. If it returns an error, what the ones before it
// have granted is given back as far as they are [Adjuster]s, which the limiters of
// this package are.
//
// All methods are safe for concurrent use.
type All struct {
	composite
	limiters []Limiter
	foreign  []Limiter // those that are not members of the composite
}

// NewAll returns a limiter that grants what all the given ones grant. It is an
// error if there are none, if one is nil, or if a limit occurs twice, also inside
// another limiter; the error says which.
func NewAll(limiters ...Limiter) (*All, error) {
	if len(limiters) == 0 {
		return nil, errors.New("ratelimiter: NewAll was given no limiters, must be at least 1")
	}
	a := new(All)
	var members []member
	var faults []error
	for i, l := range limiters {
		if isNil(l) {
			faults = append(faults, fmt.Errorf("ratelimiter: NewAll: limiter %d is nil", i))
			continue
		}
		if m, ok := asMember(l); ok {
			members = append(members, m)
		} else {
			a.foreign = append(a.foreign, l)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	a.limiters = append(a.limiters, limiters...)
	if err := a.init(members); err != nil {
		return nil, err
	}
	return a, nil
}

// Acquire waits until all limiters grant req at once. It returns nil then, the
// error of the one that refuses req for good, or an error that is ctx's to
// errors.Is if ctx ends first or its deadline is certain to.
func (a *All) Acquire(ctx context.Context, req Request) error {
	return a.within(ctx, req, Never)
}

// AcquireWithin implements [TryAcquirer]. With a foreign limiter that is none it
// waits for maxWait before it refuses.
func (a *All) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return a.within(ctx, req, max(maxWait, 0))
}

func (a *All) within(ctx context.Context, req Request, most time.Duration) error {
	if a.foreign == nil {
		return a.acquire(ctx, req, most)
	}
	start := time.Now()
	if err := a.acquire(ctx, req, most); err != nil {
		return err
	}
	for i, l := range a.foreign {
		rest := most
		if most != Never {
			rest = max(most-time.Since(start), 0)
		}
		if err := acquireWithin(ctx, l, req, rest); err != nil {
			a.refund(req, i)
			return err
		}
	}
	return nil
}

// refund gives back what the members and the first n foreign limiters granted.
func (a *All) refund(req Request, n int) {
	a.adjust(req, 0)
	for _, l := range a.foreign[:n] {
		refund(l, req)
	}
}

// TryAcquire implements [TryAcquirer]. With a foreign limiter that is none it
// always refuses; see [AsTryAcquirer].
func (a *All) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	if !a.canTry() {
		return false, Never
	}
	if ok, retryAfter = a.tryAcquire(req); !ok {
		return false, retryAfter
	}
	for i, l := range a.foreign {
		if ok, retryAfter = l.(TryAcquirer).TryAcquire(req); !ok {
			a.refund(req, i)
			return false, retryAfter
		}
	}
	return true, 0
}

// Observe tells every limiter that is an [Observer].
func (a *All) Observe(req Request, err error) {
	for _, l := range a.limiters {
		if o, ok := l.(Observer); ok {
			o.Observe(req, err)
		}
	}
}

// Adjust tells every limiter that is an [Adjuster], those of this package at one
// instant. See [AsAdjuster].
func (a *All) Adjust(req Request, actual int) {
	a.adjust(req, actual)
	for _, l := range a.foreign {
		adjust(l, req, actual)
	}
}

func (a *All) whole() bool { return a.foreign == nil }

func (a *All) canTry() bool    { return every(a.foreign, canTry) }
func (a *All) canAdjust() bool { return every(a.foreign, canAdjust) }

func every(limiters []Limiter, can func(Limiter) bool) bool {
	return !slices.ContainsFunc(limiters, func(l Limiter) bool { return !can(l) })
}

// String names the limiters.
func (a *All) String() string { return "all of " + names(a.limiters) }

// CountRequests returns l for requests instead of costs: it grants every request
// as one of cost 1. In an [All] it is what tells a limit of requests from one of
// tokens:
//
//	NewAll(CountRequests(perMinute), tokensPerMinute)
//
// Adjust with an actual cost of 0, which says that there was no request after
// all, gives that 1 back; other costs are none of its business. It panics if l is
// nil.
func CountRequests(l Limiter) Limiter {
	if isNil(l) {
		panic("ratelimiter: CountRequests: the limiter is nil")
	}
	return &counter{l}
}

type counter struct{ inner Limiter }

func one(req Request) Request {
	if req.Cost > 0 {
		req.Cost = 1
	}
	return req
}

func (c *counter) Acquire(ctx context.Context, req Request) error {
	return c.inner.Acquire(ctx, one(req))
}

func (c *counter) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	if t, can := AsTryAcquirer(c.inner); can {
		return t.TryAcquire(one(req))
	}
	return false, Never
}

func (c *counter) AcquireWithin(ctx context.Context, req Request, maxWait time.Duration) error {
	return acquireWithin(ctx, c.inner, one(req), max(maxWait, 0))
}

func (c *counter) Observe(req Request, err error) {
	if o, ok := c.inner.(Observer); ok {
		o.Observe(req, err)
	}
}

func (c *counter) Adjust(req Request, actual int) {
	if actual <= 0 {
		adjust(c.inner, one(req), 0)
	}
}

func (c *counter) String() string { return describe(c.inner) }

func (c *counter) canTry() bool    { return canTry(c.inner) }
func (c *counter) canAdjust() bool { return canAdjust(c.inner) }

func (c *counter) whole() bool {
	_, ok := asMember(c.inner)
	return ok
}

// The following are called only if the inner limiter is a member.

func (c *counter) share(g *guard) { c.inner.(member).share(g) }
func (c *counter) varies() fields { return c.inner.(member).varies() }

func (c *counter) leaves(tell func(any)) { c.inner.(member).leaves(tell) }

func (c *counter) appendParts(parts []part, req Request) ([]part, error) {
	from := len(parts)
	parts, err := c.inner.(member).appendParts(parts, req)
	for i := from; i < len(parts); i++ {
		parts[i].unit = true
	}
	return parts, err
}
