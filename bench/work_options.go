package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

const (
	nameNone           = "no option"
	nameAllButTimeouts = "all but the timeouts"
	nameAllButAttempt  = "all but the attempt timeout"
	nameAttemptTimeout = "WithAttemptTimeout"
	nameContextPer     = "by hand: context.WithTimeout per call"
)

// fast is a rate at which nobody ever has to wait.
func fast() ratelimiter.Rate { return ratelimiter.PerSecond(1_000_000_000) }

// optionGroups show what each option costs when it is set and has nothing to do.
func optionGroups(s sizes) []*group {
	return []*group{optionGroup(s), timeoutGroup(s, 1), timeoutGroup(s, 8), doneGroup(s)}
}

func optionGroup(s sizes) *group {
	g := &group{
		name: "options/no-op/8", about: "ProcessAll with options that are set and have nothing to do, no-op handler, 8 workers",
		unit: perItem, items: s.items, workers: 8, handle: noop, baseline: nameNone, check: checkBatch,
		notes: []string{"The function grants everything. WithKey and WithCost come with it, as without a limiter they would " +
			"not be asked. All together are: limiter (token bucket), key, cost, retry, hooks, logger, breaker, failure limit, " +
			"task timeout, attempt timeout."},
	}
	for _, o := range optionSets() {
		g.contenders = append(g.contenders, contender{o.name, processAllWith(o.options)})
	}
	return g
}

// processAllWith makes the options anew for each turn: limiters and breakers remember.
func processAllWith(options func() ([]penstock.Option, error)) func(*turn) error {
	return func(t *turn) error {
		opts, err := options()
		if err != nil {
			return err
		}
		return processAll(opts...)(t)
	}
}

type optionSet struct {
	name    string
	options func() ([]penstock.Option, error)
}

func optionSets() []optionSet {
	grant := penstock.WithLimiter(ratelimiter.Func(func(context.Context, ratelimiter.Request) error { return nil }))
	key := penstock.WithKey(func(int) string { return "key" })
	cost := penstock.WithCost(func(int) int { return 1 })
	return []optionSet{
		{nameNone, options()},
		{"WithLimiter, a function", options(grant)},
		{"WithLimiter, a function, and WithKey", options(grant, key)},
		{"WithLimiter, a function, and WithCost", options(grant, cost)},
		{"WithLimiter, a token bucket", bucket},
		{"WithRetry", options(retries())},
		{"WithHooks", options(hooks())},
		{"WithLogger", options(logger())},
		{"WithFailureLimit", options(penstock.WithFailureLimit(1))},
		{"WithBreaker", broken},
		{nameAttemptTimeout, options(penstock.WithAttemptTimeout(time.Minute))},
		{"WithTaskTimeout", options(penstock.WithTaskTimeout(time.Minute))},
		{nameAllButTimeouts, allButTimeouts},
		{nameAllButAttempt, with(penstock.WithTaskTimeout(time.Minute))},
		{"all", with(penstock.WithTaskTimeout(time.Minute), penstock.WithAttemptTimeout(time.Minute))},
	}
}

func options(opts ...penstock.Option) func() ([]penstock.Option, error) {
	return func() ([]penstock.Option, error) { return opts, nil }
}

func retries() penstock.Option {
	return penstock.WithRetry(retry.Policy{Max: 3, Backoff: retry.Exponential(time.Second, time.Minute)})
}

func hooks() penstock.Option {
	return penstock.WithHooks(penstock.Hooks{
		AttemptStarted: func(context.Context, penstock.Attempt) {},
		AttemptEnded:   func(context.Context, penstock.Attempt, error) {},
		RetryScheduled: func(context.Context, penstock.Attempt, error, time.Duration) {},
		TaskDone:       func(context.Context, penstock.TaskInfo) {},
		RunEnded:       func(context.Context, penstock.Counters, error) {},
	})
}

func logger() penstock.Option { return penstock.WithLogger(slog.New(slog.DiscardHandler)) }

func bucket() ([]penstock.Option, error) {
	l, err := ratelimiter.NewTokenBucket(fast())
	return []penstock.Option{penstock.WithLimiter(l)}, err
}

func broken() ([]penstock.Option, error) {
	b, err := breaker.New()
	return []penstock.Option{penstock.WithBreaker(b)}, err
}

func allButTimeouts() ([]penstock.Option, error) {
	opts, err := bucket()
	if err != nil {
		return nil, err
	}
	guard, err := broken()
	if err != nil {
		return nil, err
	}
	return append(append(opts, guard...), retries(), hooks(), logger(), penstock.WithFailureLimit(1),
		penstock.WithKey(func(int) string { return "key" }), penstock.WithCost(func(int) int { return 1 })), nil
}

func with(more ...penstock.Option) func() ([]penstock.Option, error) {
	return func() ([]penstock.Option, error) {
		opts, err := allButTimeouts()
		return append(opts, more...), err
	}
}

// timeoutGroup is the whole time per item of a loop that gives each call a timeout, with and without an engine.
func timeoutGroup(s sizes, workers int) *group {
	byHand := plainLoop
	if workers > 1 {
		byHand = claimLoop
	}
	l := load{"no-op", "no-op handler", noop, workers, s.items, false}
	g := l.group("timeout", "A timeout for each attempt")
	g.baseline, g.check = nameContextPer, checkBatch
	g.contenders = []contender{
		{nameContextPer, func(t *turn) error {
			t.handle = withTimeout(t.handle)
			return byHand(t)
		}},
		{nameAttemptTimeout, processAll(penstock.WithAttemptTimeout(time.Minute))},
		{"WithTaskTimeout", processAll(penstock.WithTaskTimeout(time.Minute))},
		{"both", processAll(penstock.WithAttemptTimeout(time.Minute), penstock.WithTaskTimeout(time.Minute))},
	}
	return g
}

// doneGroup has a handler that asks for its context's channel, which both kinds of context make only when asked.
func doneGroup(s sizes) *group {
	g := timeoutGroup(s, 8)
	g.name, g.about = "timeout/done/8", "A timeout for each attempt, handler that looks at ctx.Done(), 8 workers"
	g.handle = func(ctx context.Context, item int) (int, error) {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		default:
			return right(item), nil
		}
	}
	return g
}
