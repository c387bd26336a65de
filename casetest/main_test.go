package casetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetTraceback("all") // what the watchdog shows must show who hangs
	goleak.VerifyTestMain(m)
}

type (
	handler  = func(context.Context, int) (int, error)
	engine   = penstock.Engine[int, int]
	task     = penstock.Task[int, int]
	option   = penstock.Option
	counters = penstock.Counters
)

const ms = time.Millisecond

var (
	errX     = errors.New("x failed")
	errCause = errors.New("the cause that the test gave")
)

// patience is how long a test or a bubble may take on the real clock before it counts as hung.
const patience = 5 * time.Second

// watch ends the process, with all stacks, when the test hangs.
func watch(t *testing.T) {
	t.Helper()
	name := t.Name()
	timer := time.AfterFunc(patience, func() { panic(fmt.Sprintf("%s hangs: it runs for more than %v", name, patience)) })
	t.Cleanup(func() { timer.Stop() })
}

// bubble runs f in virtual time. Goroutines that are left when f returns fail the test: synctest sees to that.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	watch(t)
	synctest.Test(t, f)
}

// stopwatch measures exact times.
type stopwatch struct {
	t     *testing.T
	start time.Time
}

func startWatch(t *testing.T) stopwatch { return stopwatch{t, time.Now()} }

func (s stopwatch) now() time.Duration { return time.Since(s.start) }

// is checks that it is exactly so late.
func (s stopwatch) is(want time.Duration, what string) {
	s.t.Helper()
	if now := s.now(); now != want {
		s.t.Errorf("%s at %v, want exactly %v", what, now, want)
	}
}

// must is for constructors whose arguments are right.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func newEngine(h handler, workers int, opts ...option) *engine {
	return must(penstock.New(h, workers, opts...))
}

func same(_ context.Context, n int) (int, error) { return n, nil }

// sleep is what a handler that heeds its context does for a while.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hang waits for the end of the context.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func numbers(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

// atBaseline checks that no more goroutines are there than before. The last instructions of one that is ending may take
// a few yields; nothing is waited for.
func atBaseline(t *testing.T, before int) {
	t.Helper()
	for range 1_000_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	now := runtime.NumGoroutine()
	buf := make([]byte, 1<<16)
	var left []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "/penstock/") && !strings.Contains(stack, "casetest_test.TestMain") {
			left = append(left, stack)
		}
	}
	t.Errorf("%d goroutines, %d before; ours are:\n%s", now, before, strings.Join(left, "\n\n"))
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func equalSlices[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// isAll checks that errors.Is finds every target.
func isAll(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("errors.Is does not find %q in %v", target, err)
		}
	}
}

func as[E error](t *testing.T, err error) E {
	t.Helper()
	e, ok := errors.AsType[E](err)
	if !ok {
		t.Fatalf("no %T in %v (%T)", e, err, err)
	}
	return e
}

// An end is what came of a run: its tasks in the order they came, its error, its counters.
type end struct {
	tasks []task
	err   error
	count counters
}

// byIndex puts the tasks into input order.
func (e end) byIndex() []task {
	inOrder := func(a, b task) int { return a.Index - b.Index }
	if slices.IsSortedFunc(e.tasks, inOrder) {
		return e.tasks
	}
	tasks := slices.Clone(e.tasks)
	slices.SortFunc(tasks, inOrder)
	return tasks
}

func (e end) having(o penstock.Outcome) (n int) {
	for _, t := range e.tasks {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// account checks that every accepted item has come back exactly once, with one outcome, that the counters say the same,
// and, unless the run failed, that all items were accepted.
func (e end) account(t *testing.T, items []int) {
	t.Helper()
	if e.err == nil && len(e.tasks) != len(items) {
		t.Errorf("%d outcomes of %d items, and no error", len(e.tasks), len(items))
	}
	var sum counters
	for i, task := range e.byIndex() {
		if task.Index != i {
			t.Fatalf("the tasks have a gap or a duplicate at %d: %v", i, task.Index)
		}
		if task.Data != items[i] {
			t.Errorf("task %d has data %d, want %d", i, task.Data, items[i])
		}
		if (task.Err == nil) != (task.Outcome == penstock.Succeeded) {
			t.Errorf("task %d is %v with error %v", i, task.Outcome, task.Err)
		}
		sum.Retries += max(task.Attempts-1, 0)
		switch task.Outcome {
		case penstock.Succeeded:
			sum.Succeeded++
		case penstock.Failed:
			sum.Failed++
		case penstock.Shed:
			sum.Shed++
		case penstock.Unfinished:
			sum.Unfinished++
		default:
			t.Errorf("task %d has outcome %v", i, task.Outcome)
		}
	}
	equal(t, "the counters, against the outcomes delivered", e.count, sum)
}

// inChild runs a test in a process of its own, because what it checks is that the process lives. The child is the same
// test binary, told to run this test only; child is true in it.
func inChild(t *testing.T) (child bool) {
	t.Helper()
	const mark = "CASETEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		if len(out) > 3000 {
			out = out[:3000]
		}
		t.Errorf("the process did not live: %v\n%s", err, out)
	}
	return false
}
