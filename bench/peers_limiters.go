package main

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/sethvargo/go-limiter/memorystore"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	penstock "github.com/penstock-go/penstock/ratelimiter"
)

func peerGatekeepers() []gatekeeper {
	return []gatekeeper{
		{"x/time/rate", func(perSecond int) (acquire, func(), error) {
			l := rate.NewLimiter(rate.Limit(perSecond), 1)
			return func(ctx context.Context, _ int) error { return l.Wait(ctx) }, nothing, nil
		}},
		{"uber/ratelimit", func(perSecond int) (acquire, func(), error) {
			l := uber.New(perSecond, uber.WithoutSlack) // slack is its word for a burst
			return func(context.Context, int) error {
				l.Take()
				return nil
			}, nothing, nil
		}},
		{"failsafe-go", func(perSecond int) (acquire, func(), error) {
			l := ratelimiter.NewSmoothWithMaxRate[any](time.Second / time.Duration(perSecond))
			return func(ctx context.Context, _ int) error { return l.AcquirePermit(ctx) }, nothing, nil
		}},
	}
}

// fromRate is x/time/rate behind Penstock's interface.
func fromRate() gatekeeper {
	return gatekeeper{"Penstock FromRate(x/time/rate)", func(perSecond int) (acquire, func(), error) {
		return acquireFrom(penstock.FromRate(rate.NewLimiter(rate.Limit(perSecond), 1))), nothing, nil
	}}
}

// goLimiter gives each second a budget. As it does not wait, it is only asked what a grant costs.
func goLimiter() gatekeeper {
	return gatekeeper{"go-limiter memorystore", func(perSecond int) (acquire, func(), error) {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(perSecond), Interval: time.Second})
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, _ int) error {
			_, _, _, ok, err := store.Take(ctx, "key")
			if !ok && err == nil {
				return errRefused
			}
			return err
		}, func() { _ = store.Close(context.Background()) }, nil
	}}
}

var errRefused = errors.New("refused although there is plenty")
