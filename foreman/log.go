package foreman

import (
	"context"
	"log/slog"
	"time"
)

// logger writes the few lines that Penstock logs. All of it is silent when the user gave no logger, except that a
// broken hook must not go unnoticed.
type logger struct{ l *slog.Logger }

func (g *logger) attemptFailed(ctx context.Context, a Attempt, err error) {
	defer ignorePanic()
	if g.l == nil || !g.l.Enabled(ctx, slog.LevelWarn) {
		return
	}
	g.l.LogAttrs(ctx, slog.LevelWarn, "attempt failed",
		slog.String("task", a.ID()), slog.Int("worker", a.Worker), slog.Int("attempt", a.Number),
		slog.Duration("elapsed", a.Elapsed), slog.Any("error", err))
}

func (g *logger) retryScheduled(ctx context.Context, a Attempt, delay time.Duration) {
	defer ignorePanic()
	if g.l == nil || !g.l.Enabled(ctx, slog.LevelDebug) {
		return
	}
	g.l.LogAttrs(ctx, slog.LevelDebug, "retry scheduled",
		slog.String("task", a.ID()), slog.Int("worker", a.Worker), slog.Int("attempt", a.Number), slog.Duration("delay", delay))
}

func (g *logger) runStarted(ctx context.Context, workers int) {
	defer ignorePanic()
	if g.l != nil {
		g.l.LogAttrs(ctx, slog.LevelDebug, "run started", slog.Int("workers", workers))
	}
}

func (g *logger) runEnded(ctx context.Context, c Counters, err error) {
	defer ignorePanic()
	if g.l == nil || !g.l.Enabled(ctx, slog.LevelDebug) {
		return
	}
	g.l.LogAttrs(ctx, slog.LevelDebug, "run ended",
		slog.Int("succeeded", c.Succeeded), slog.Int("failed", c.Failed), slog.Int("shed", c.Shed),
		slog.Int("unfinished", c.Unfinished), slog.Int("retries", c.Retries), slog.Any("error", err))
}

// hookFailed speaks even without a logger: nobody else would. Its callers are on their way out of a broken hook, with nothing
// behind them that could also deal with a broken log handler.
func (g *logger) hookFailed(k hookKind, err error) {
	l := g.l
	if l == nil {
		l = slog.Default()
	}
	_ = apart(func() {
		l.Error("penstock: a hook failed and was ignored", slog.String("hook", k.String()), slog.Any("error", err))
	})
}

// ignorePanic is deferred around log handlers: there is nobody left to tell that the telling failed.
func ignorePanic() { _ = recover() }
