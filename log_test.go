package penstock_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// attLog is a slog.Handler that keeps what it gets.
type attLog struct {
	level slog.Level
	mu    sync.Mutex
	lines []attLine
}

type attLine struct {
	level slog.Level
	msg   string
	attrs map[string]slog.Value
}

func (l *attLog) Enabled(_ context.Context, level slog.Level) bool { return level >= l.level }
func (l *attLog) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *attLog) WithGroup(string) slog.Handler                    { return l }

func (l *attLog) Handle(_ context.Context, r slog.Record) error {
	line := attLine{level: r.Level, msg: r.Message, attrs: map[string]slog.Value{}}
	r.Attrs(func(a slog.Attr) bool { line.attrs[a.Key] = a.Value; return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *attLog) option() penstock.Option { return penstock.WithLogger(slog.New(l)) }

// at returns the lines of a level.
func (l *attLog) at(level slog.Level) []attLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line attLine) bool { return line.level != level })
}

func (l *attLog) messages(level slog.Level) []string {
	var msgs []string
	for _, line := range l.at(level) {
		msgs = append(msgs, line.msg)
	}
	return msgs
}

func (line attLine) expect(t *testing.T, want map[string]any) {
	t.Helper()
	attExpect(t, line.msg+": keys", slices.Sorted(maps.Keys(line.attrs)), slices.Sorted(maps.Keys(want)))
	for key, value := range want {
		if got := line.attrs[key].Any(); got != value {
			t.Errorf("%s: %s is %v, want %v", line.msg, key, got, value)
		}
	}
}

func TestLogging(t *testing.T) {
	const s = time.Second
	attTest(t, "G1 one warning for each failed attempt, those that are retried too", func(t *testing.T) {
		var log attLog
		attOne(t, func(ctx context.Context, _ int) (int, error) {
			time.Sleep(s)
			switch penstock.AttemptNumber(ctx) {
			case 1:
				return 0, errAttOne
			case 2:
				return 0, errAttTwo
			}
			return 1, nil
		}, log.option(), penstock.WithRetry(retry.Policy{Max: 3}))
		warnings := log.at(slog.LevelWarn)
		if len(warnings) != 2 {
			t.Fatalf("got %v", warnings)
		}
		warnings[0].expect(t, map[string]any{"task": "0", "worker": int64(0), "attempt": int64(1), "elapsed": s, "error": errAttOne})
		warnings[1].expect(t, map[string]any{"task": "0", "worker": int64(0), "attempt": int64(2), "elapsed": s, "error": errAttTwo})
	})

	attTest(t, "G1 timeouts and panics are failed attempts, and ids are the caller's", func(t *testing.T) {
		var log attLog
		run := attNew(t, 1, attMisbehave, log.option(), penstock.WithAttemptTimeout(s), penstock.WithResultCapacity(3)).Start(t.Context())
		run.Submit(t.Context(), attHangs, penstock.WithID("hangs"))
		run.Submit(t.Context(), attPanics, penstock.WithID("panics"))
		run.Submit(t.Context(), attGoexits, penstock.WithID("goes"))
		run.Finish(t.Context())
		ids := map[string]error{}
		for _, line := range log.at(slog.LevelWarn) {
			ids[line.attrs["task"].String()], _ = line.attrs["error"].Any().(error)
		}
		if len(ids) != 3 {
			t.Fatalf("got %v", ids)
		}
		attAs[*penstock.TimeoutError](t, ids["hangs"])
		attAs[*penstock.PanicError](t, ids["panics"])
		attIs(t, ids["goes"], penstock.ErrGoexit)
	})

	attTest(t, "a panic is logged with its stack", func(t *testing.T) {
		var log attLog
		attNew(t, 1, attMisbehave, log.option()).ProcessAll(t.Context(), []int{attPanics})
		group := log.at(slog.LevelWarn)[0].attrs["error"].Resolve().Group()
		if len(group) != 2 || group[0].Value.String() != "one" || group[1].Key != "stack" || group[1].Value.String() == "" {
			t.Errorf("got %v", group)
		}
	})

	attTest(t, "G2 everything else is at debug", func(t *testing.T) {
		log := attLog{level: slog.LevelDebug}
		calls := 0
		attOne(t, attFails(1, errAttOne, &calls), log.option(), penstock.WithRetry(retry.Policy{Max: 1, Backoff: retry.Constant(s)}))
		attExpect(t, "messages", log.messages(slog.LevelDebug), []string{"run started", "retry scheduled", "run ended"})
		lines := log.at(slog.LevelDebug)
		lines[0].expect(t, map[string]any{"workers": int64(1)})
		lines[1].expect(t, map[string]any{"task": "0", "worker": int64(0), "attempt": int64(1), "delay": s})
		lines[2].expect(t, map[string]any{"succeeded": int64(1), "failed": int64(0), "shed": int64(0), "unfinished": int64(0), "retries": int64(1), "error": nil})
	})

	attTest(t, "G3 silence changes nothing", func(t *testing.T) {
		silent := attLog{level: slog.LevelError + 1}
		for _, o := range []penstock.Option{silent.option(), penstock.WithLogger(nil), penstock.WithLogger(slog.New(slog.DiscardHandler))} {
			calls := 0
			task, err := attOne(t, attFails(1, errAttOne, &calls), o, penstock.WithRetry(retry.Policy{Max: 1}))
			if err != nil || task.Attempts != 2 || task.Err != nil {
				t.Errorf("%v, %v", task, err)
			}
		}
		attExpect(t, "lines", len(silent.lines), 0)
	})

	attTest(t, "G4 what is cut off is not warned about, nor is a run that fails", func(t *testing.T) {
		var log attLog
		run := attNew(t, 1, attHang, log.option()).Start(t.Context())
		run.Submit(t.Context(), 1)
		synctest.Wait()
		run.Stop(t.Context())

		ctx, cancel := context.WithTimeout(t.Context(), s)
		defer cancel()
		run = attNew(t, 1, attHang, log.option()).Start(t.Context())
		run.Do(ctx, 1)
		run.Finish(t.Context())

		attNew(t, 1, attDouble, log.option(), penstock.WithLimiter(attBrokenAt(0, 1, errAttTwo))).ProcessAll(t.Context(), []int{1})
		attExpect(t, "messages", log.messages(slog.LevelWarn), nil)
	})

	attTest(t, "a shed task and one that can never be granted are no failed attempts", func(t *testing.T) {
		var log attLog
		l := &attLimiter{within: func(_ context.Context, r ratelimiter.Request, _ time.Duration) error {
			return []error{&ratelimiter.ExcessError{}, &ratelimiter.CostError{}}[r.Index]
		}}
		attNew(t, 1, attDouble, log.option(), penstock.WithLimiter(l), penstock.WithShed(0)).ProcessAll(t.Context(), attUpTo(2))
		attExpect(t, "messages", log.messages(slog.LevelWarn), nil)
	})

	attTest(t, "a task that times out in the handler is warned about", func(t *testing.T) {
		var log attLog
		attOne(t, attHang, log.option(), penstock.WithTaskTimeout(s))
		attExpect(t, "messages", log.messages(slog.LevelWarn), []string{"attempt failed"})
	})
}

// What a broken slog.Handler does must not be worse than what a broken hook does.
func TestBrokenLogger(t *testing.T) {
	for way, do := range map[string]func(){"panics": func() { panic(errAttTwo) }, "calls Goexit": runtime.Goexit} {
		for _, msg := range []string{"attempt failed", "retry scheduled", "run ended"} {
			for name, h := range map[string]attHandler{
				"returns an error": func(context.Context, int) (int, error) { return 0, errAttOne },
				"panics":           func(context.Context, int) (int, error) { panic(errAttOne) },
			} {
				attTest(t, fmt.Sprintf("%s on %q, when the handler %s", way, msg, name), func(t *testing.T) {
					log := slog.New(attBadLog{msg: msg, do: do})
					e := attNew(t, 1, h, penstock.WithRetry(retry.Policy{Max: 1}), penstock.WithLogger(log))
					tasks, _ := e.ProcessAll(t.Context(), attUpTo(3))
					attExpect(t, "outcomes", attCount(tasks), map[string]int{"failed": 3})
					attExpect(t, "ended", e.Counters().Ended(), 3)
				})
			}
		}
	}
}

type attBadLog struct {
	slog.Handler
	msg string
	do  func()
}

func (attBadLog) Enabled(context.Context, slog.Level) bool { return true }

func (l attBadLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.msg {
		l.do()
	}
	return nil
}
