package sim

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock"
)

// ledgerHooks keep the ledger.
func (w *world) ledgerHooks() penstock.Hooks {
	return penstock.Hooks{
		AttemptStarted: func(ctx context.Context, a penstock.Attempt) {
			now := w.now()
			w.noteItem(ctx, a.ID(), a.Index, func(it *item) { it.started = append(it.started, now) })
		},
		AttemptEnded: func(ctx context.Context, a penstock.Attempt, err error) {
			if a.Worker < 0 || a.Worker >= w.workers {
				w.fail("worker %d of %d", a.Worker, w.workers)
			}
			w.noteItem(ctx, a.ID(), a.Index, func(it *item) { it.stopped++ })
		},
		RetryScheduled: func(ctx context.Context, a penstock.Attempt, err error, delay time.Duration) {
			w.noteItem(ctx, a.ID(), a.Index, func(it *item) { it.retries++ })
		},
		TaskDone: w.taskDone,
		RunEnded: w.runEnded,
	}
}

// noteItem writes something down about an item, at once or when it is known which one it is.
func (w *world) noteItem(ctx context.Context, id string, index int, note func(*item)) {
	r := contextRun(ctx)
	if r == nil {
		w.fail("a hook was called with a context that is not of its run")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if it := r.itemOf(id, index); it != nil {
		note(it)
	} else {
		r.orphans[index] = append(r.orphans[index], note)
	}
}

func (w *world) taskDone(ctx context.Context, t penstock.TaskInfo) {
	d := done{at: w.now(), info: t}
	w.noteItem(ctx, t.ID(), t.Index, func(it *item) { it.done = append(it.done, d) })
	r := contextRun(ctx)
	if r == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(r.told) > 0 {
		r.fail("TaskDone of task %d came after RunEnded", t.Index)
	}
	if t.Outcome == penstock.Failed {
		r.countFailure(d)
	}
}

// countFailure foresees the end of a run that reaches its failure limit.
func (r *run) countFailure(d done) {
	r.failed++
	if r.failureLimit > 0 && r.failed == r.failureLimit {
		atOnce := !r.sleeps() // else the run ends when the hooks have returned
		r.endings = append(r.endings, ending{at: d.at, kind: "failure limit", sure: atOnce, explains: isTooManyFailures})
	}
}

func (w *world) runEnded(ctx context.Context, c penstock.Counters, err error) {
	r := contextRun(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r == nil {
		w.fail("RunEnded was called with a context that is not of its run")
		return
	}
	r.told = append(r.told, told{at: w.now(), counters: c, err: err})
}

// A badHook is a hook that does not behave, now and then.
type badHook struct {
	kind, does string
	every      int64
	takes      time.Duration
}

// sleeps says that a hook delays the work, so that some instants are not known exactly.
func (s *Scenario) sleeps() bool { return s.badHook != nil && s.badHook.does == "sleep" }

func (w *world) brokenHooks() (h penstock.Hooks) {
	switch w.badHook.kind {
	case "AttemptStarted":
		h.AttemptStarted = func(ctx context.Context, a penstock.Attempt) { w.misbehave(ctx, a.ID(), a.Index) }
	case "AttemptEnded":
		h.AttemptEnded = func(ctx context.Context, a penstock.Attempt, _ error) { w.misbehave(ctx, a.ID(), a.Index) }
	case "RetryScheduled":
		h.RetryScheduled = func(ctx context.Context, a penstock.Attempt, _ error, _ time.Duration) {
			w.misbehave(ctx, a.ID(), a.Index)
		}
	case "TaskDone":
		h.TaskDone = func(ctx context.Context, t penstock.TaskInfo) { w.misbehave(ctx, t.ID(), t.Index) }
	case "RunEnded":
		h.RunEnded = func(ctx context.Context, _ penstock.Counters, _ error) { w.misbehave(ctx, "", -1) }
	}
	return h
}

func (w *world) misbehave(ctx context.Context, id string, index int) {
	if w.badHooks.Add(1)%w.badHook.every != 0 {
		return
	}
	switch w.badHook.does {
	case "panic":
		panic("a bad hook")
	case "exit":
		if index >= 0 {
			w.noteItem(ctx, id, index, func(it *item) { it.hookExit, it.uncalled = true, w.badHook.kind == "AttemptStarted" })
		}
		runtime.Goexit()
	case "sleep":
		time.Sleep(w.badHook.takes)
	}
}

// A loggerPlan is a logger that counts warnings, and what it does besides when an attempt has failed or is retried.
type loggerPlan struct{ does string }

func (w *world) newLogger() *slog.Logger { return slog.New(logHandler{w}) }

type logHandler struct{ *world }

func (logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h logHandler) WithGroup(string) slog.Handler          { return h }

func (h logHandler) Handle(ctx context.Context, rec slog.Record) error {
	if rec.Level == slog.LevelWarn {
		h.warnings.Add(1)
	}
	if strings.HasPrefix(rec.Message, "run started") || h.badHooks.Add(1)%3 != 0 {
		return nil
	}
	switch h.logger.does {
	case "panic":
		panic("a bad log handler")
	case "exit":
		rec.Attrs(func(a slog.Attr) bool {
			if a.Key == "task" {
				index, _ := strconv.Atoi(a.Value.String())
				h.noteItem(ctx, a.Value.String(), index, func(it *item) { it.hookExit = true })
			}
			return true
		})
		runtime.Goexit()
	}
	return nil
}
