package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/foreman"
	"github.com/penstock-go/penstock/retry"
)

// Simulate lets a scenario happen and returns the promises that were broken. In virtual time it must be called in a
// synctest bubble, where it also panics, or rather the bubble does, when everything waits for everything.
func Simulate(s *Scenario) (broken []string) {
	w := newWorld(s)
	if w.build() {
		w.happen()
		w.check()
	}
	return w.broken
}

// never is an instant that does not come.
const never = time.Duration(math.MaxInt64)

// room is how many ids there are for the items of each run.
const room = 1_000_000

// A world is a scenario that happens, and its ledger.
type world struct {
	*Scenario
	base       time.Time
	goroutines int
	opts       []penstock.Option
	engine     *penstock.Engine[int, int]
	limits     *limits
	budget     *retry.Budget
	over       chan struct{} // closed when all runs have ended
	badCalls   atomic.Int64
	badHooks   atomic.Int64
	warnings   atomic.Int64

	reports sync.Mutex
	broken  []string

	mu       sync.Mutex // guards what the ledger knows: the rest, items and runs included
	items    map[int]*item
	attempts []*attempt
	opened   []span // when the breaker was open
	runs     []*run
	first    []*run // those that begin by themselves
}

// A span is the time between two instants.
type span struct{ from, to time.Duration }

// An item is what the ledger knows of one item.
type item struct {
	*run
	id   int
	does script

	askedAt    time.Duration // when it was offered to the run
	accepted   bool
	acceptedAt time.Duration
	refusal    error
	label      string           // its id as the run gave it
	do         bool             // comes from Do
	patience   time.Duration    // when the context of its Do ends
	deadline   bool             // that context has a deadline
	reply      penstock.Outcome // to its Do, if known

	taken    time.Duration // when its worker began with it, if known
	running  bool
	tries    []*attempt
	started  []time.Duration // AttemptStarted
	stopped  int             // AttemptEnded
	retries  int             // RetryScheduled
	done     []done          // TaskDone
	hookExit bool            // a hook ended its goroutine
	uncalled bool            // it did so before the handler was called
	held     bool            // between its source and its consumer
	letGo    bool
	tasks    []penstock.Task[int, int] // as delivered
	gotAt    time.Duration
}

type done struct {
	at   time.Duration
	info penstock.TaskInfo
}

// An attempt is one call of the handler.
type attempt struct {
	*item
	number   int
	step     step
	granted  time.Duration // when the limiter let it go
	vague    bool          // that was earlier, nobody knows when
	began    time.Duration
	ended    time.Duration // never, while it runs
	err      error
	lost     behaviour     // panicking or exiting, if it did not return
	heard    time.Duration // when it saw its context end
	heardErr error
}

func newWorld(s *Scenario) *world {
	w := &world{Scenario: s, base: time.Now(), over: make(chan struct{}), items: make(map[int]*item)}
	w.goroutines, _ = w.living()
	for _, p := range s.runs {
		r := w.newRun(p)
		w.first = append(w.first, r)
		if p.way == "Foreman" && p.hand.rounds > 1 {
			p.name, p.after, p.cancelAt = p.name+" again", 0, 0
			r.again = w.newRun(p)
		}
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.base) }

// exact says that things which happen at one instant have one time.
func (w *world) exact() bool { return w.Clock == Virtual }

// fail reports a broken promise. It may be called with the ledger locked.
func (w *world) fail(format string, args ...any) {
	w.reports.Lock()
	defer w.reports.Unlock()
	if len(w.broken) < 20 {
		w.broken = append(w.broken, fmt.Sprintf("at %v: ", w.now())+fmt.Sprintf(format, args...))
	}
}

func (r *run) fail(format string, args ...any) {
	r.world.fail("%s: %s", r.plan.name, fmt.Sprintf(format, args...))
}

func (it *item) fail(format string, args ...any) {
	it.run.fail("item %d: %s", it.id, fmt.Sprintf(format, args...))
}

// build makes the engine.
func (w *world) build() bool {
	var err error
	w.opts = w.options()
	w.engine, err = penstock.New(w.handle, w.workers, w.opts...)
	if err != nil {
		w.fail("the engine was refused: %v", err)
	}
	return err == nil
}

func (w *world) options() (opts []penstock.Option) {
	with := func(wanted bool, o func() penstock.Option) {
		if wanted {
			opts = append(opts, o())
		}
	}
	with(w.hooks, func() penstock.Option { return penstock.WithHooks(w.ledgerHooks()) })
	with(w.badHook != nil, func() penstock.Option { return penstock.WithHooks(w.brokenHooks()) })
	with(w.logger != nil, func() penstock.Option { return penstock.WithLogger(w.newLogger()) })
	with(w.batch > 1, func() penstock.Option { return penstock.WithBatch(w.batch) })
	with(w.inputs > 0, func() penstock.Option { return penstock.WithInputCapacity(w.inputs) })
	with(w.results > 0, func() penstock.Option { return penstock.WithResultCapacity(w.results) })
	with(w.priority, func() penstock.Option { return penstock.WithPriority(w.priorityOf) })
	with(w.failureLimit > 0, func() penstock.Option { return penstock.WithFailureLimit(w.failureLimit) })
	with(w.attemptTimeout > 0, func() penstock.Option { return penstock.WithAttemptTimeout(w.attemptTimeout) })
	with(w.taskTimeout > 0, func() penstock.Option { return penstock.WithTaskTimeout(w.taskTimeout) })
	with(w.startTimeout > 0, func() penstock.Option { return penstock.WithStartTimeout(w.startTimeout) })
	with(w.retry != nil, func() penstock.Option { return penstock.WithRetry(w.policy()) })
	with(w.breaker != nil, func() penstock.Option { return penstock.WithBreaker(w.newBreaker()) })
	if w.limiter != nil {
		w.limits = w.newLimits()
		opts = append(opts, penstock.WithLimiter(w.limits.outer), penstock.WithKey(w.keyOf), penstock.WithCost(w.costOf))
		with(w.shed >= 0, func() penstock.Option { return penstock.WithShed(w.shed) })
	}
	return opts
}

// happen lets all runs begin and returns when they have ended.
func (w *world) happen() {
	var runs, help sync.WaitGroup
	for _, r := range w.first {
		runs.Go(r.live)
	}
	if w.sampled {
		help.Go(w.sample)
	}
	if w.limits != nil {
		help.Go(w.disturb)
		if w.limiter.shared {
			help.Go(w.share)
		}
	}
	runs.Wait()
	close(w.over)
	help.Wait()
	w.quiet()
}

// quiet checks that all goroutines have ended, however they were started.
func (w *world) quiet() {
	if w.exact() {
		synctest.Wait()
	}
	n, stacks := 0, ""
	for range 200 { // a goroutine counts until it is quite gone
		if n, stacks = w.living(); n <= w.goroutines {
			return
		}
		if w.exact() {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	w.fail("%d goroutines are left over:\n%s", n-w.goroutines, stacks)
}

// living counts the goroutines of the bubble, or on the real clock all but the runtime's own. (runtime.NumGoroutine
// includes one of these now and then.)
func (w *world) living() (n int, stacks string) {
	buf := make([]byte, 1<<14)
	for {
		written := runtime.Stack(buf, true)
		if written < len(buf) {
			buf = buf[:written]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if head, _, _ := strings.Cut(stack, "\n"); !w.exact() || strings.Contains(head, "synctest bubble") {
			n++
			stacks += stack + "\n\n"
		}
	}
	return n, stacks
}

// nap sleeps, or returns false at once when all runs have ended, or should have long ago: then it is up to the bubble to
// find that nothing moves any more.
func (w *world) nap(d time.Duration) bool {
	if w.now() > 4*w.patienceOfAll() {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.over:
		return false
	}
}

// A run is what the ledger knows of one run.
type run struct {
	*world
	plan   runPlan
	base   int // the id of its first item
	ctx    context.Context
	cancel context.CancelCauseFunc
	hand   *penstock.Run[int, int]
	pool   *foreman.Foreman[int, int]
	again  *run                                     // of the same foreman, after this one
	count  atomic.Pointer[func() penstock.Counters] // of a run that can be asked

	offered atomic.Int64 // items, at most
	taken   atomic.Int64 // items, at least
	yielded atomic.Int64 // results, to a loop
	inside  atomic.Int64 // handlers
	busy    atomic.Int64 // the user's other functions
	lastID  atomic.Int64
	early   atomic.Bool   // a foreman that was not started yet
	bound   int           // on what it holds; 0: none
	fed     chan struct{} // closed when nothing feeds its channel any more
	cleanup []func()      // what its source needs when it has ended

	// Guarded by the ledger's lock.
	startedAt time.Duration
	first     time.Duration // when its first item was accepted
	closed    time.Duration // when its input came to its own end
	endings   []ending      // why it may have ended early
	holds     int
	order     []int                 // what was delivered, by id
	orphans   map[int][]func(*item) // what hooks said about items whose id is not known yet, by index
	failed    int                   // TaskDone of failed tasks
	over      bool
	endedAt   time.Duration
	err       error
	left      bool // its consumer has left it, so that not all was delivered
	told      []told
	counters  *penstock.Counters
	endsAt    time.Duration // when it was sure to end, for the checks
	why       []ending      // what may have ended it then
}

// told is a call of RunEnded.
type told struct {
	at       time.Duration
	counters penstock.Counters
	err      error
}

type runKey struct{}

func (w *world) newRun(p runPlan) *run {
	r := &run{world: w, plan: p, base: len(w.runs) * room, first: never, closed: never, endedAt: never, orphans: make(map[int][]func(*item)), fed: make(chan struct{})}
	w.runs = append(w.runs, r)
	return r
}

// patienceOfAll is after how long a run is cancelled: whatever hangs has had enough time by then.
func (s *Scenario) patienceOfAll() time.Duration {
	if s.Clock == Real {
		return 3000 * s.unit
	}
	return 50_000 * s.unit
}

var (
	errCancelled = errors.New("the run was cancelled")
	errDeadline  = errors.New("the run's deadline")
	errTooLong   = errors.New("the run took too long")
)

// live is the life of a run.
func (r *run) live() {
	time.Sleep(r.plan.after)
	ctx := context.WithValue(context.Background(), runKey{}, r)
	if d := r.plan.deadline; d > 0 {
		limited, stop := context.WithTimeoutCause(ctx, d, errDeadline)
		defer stop()
		ctx = limited
		r.ends(ending{at: r.now() + d, kind: "deadline", sure: r.exact(), soft: true, explains: isContextEnd(errDeadline)})
	}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	defer r.cancelAfter(r.plan.cancelAt, errCancelled)()
	defer r.cancelAfter(r.patienceOfAll(), errTooLong)()
	r.mu.Lock()
	r.startedAt = r.now()
	r.mu.Unlock()
	switch r.plan.way {
	case "Start":
		r.byHand()
	case "Foreman":
		r.byForeman()
	default:
		r.byHelper()
	}
}

// cancelAfter cancels the run's context after d, unless d is zero.
func (r *run) cancelAfter(d time.Duration, why error) (stop func()) {
	if d == 0 {
		return func() {}
	}
	timer := time.AfterFunc(d, func() { r.cancelNow(why) })
	return func() { timer.Stop() }
}

func (r *run) cancelNow(why error) {
	r.ends(ending{at: r.now(), kind: "cancel", sure: true, soft: true, explains: isContextEnd(why)})
	r.cancel(why)
}

// returned is called when the run has ended, with its error.
func (r *run) returned(err error) {
	if n := r.inside.Load(); n != 0 {
		r.fail("%d handlers run after its end", n)
	}
	if n := r.busy.Load(); n != 0 {
		r.fail("%d of the source, the limiter and the callbacks run after its end", n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over, r.endedAt, r.err = true, r.now(), err
}

// mayEnd reports whether the run may end by itself while an item is offered to it: somebody has closed its input, or may
// do so at this moment.
func (r *run) mayEnd() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	byHand := r.plan.way == "Start" || r.plan.way == "Foreman"
	closing := r.closed != never || r.plan.hand.early || slices.Contains(r.behaviours, meddling) || !r.exact()
	return r.over || byHand && closing
}

// offer makes an item that is about to be offered to the run.
func (r *run) offer(id int) *item {
	r.offered.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newItem(id)
}

func (r *run) newItem(id int) *item {
	it := &item{run: r, id: id, does: r.script(id), askedAt: r.now(), acceptedAt: never, patience: never, taken: never, gotAt: never}
	if r.items[id] != nil {
		r.fail("item %d was offered twice", id)
	}
	r.items[id] = it
	return it
}

// accept notes that the run has accepted an item.
func (r *run) accept(it *item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	it.acceptedAt = r.now()
	r.first = min(r.first, it.acceptedAt)
	it.isAccepted()
}

// isAccepted notes that the item must have been accepted.
func (it *item) isAccepted() {
	if !it.accepted {
		it.accepted = true
		it.run.taken.Add(1)
	}
}

// hold notes that an item is between its source and its consumer.
func (r *run) hold(it *item) {
	if it.held || it.letGo {
		return
	}
	it.held = true
	r.holds++
	if r.bound > 0 && r.holds > r.bound {
		r.fail("it holds %d items, which may be %d", r.holds, r.bound)
	}
}

// release notes that nobody holds an item any more.
func (r *run) release(it *item) {
	if it.held {
		r.holds--
	}
	it.held, it.letGo = false, true
}

// deliver notes that the consumer got a task.
func (r *run) deliver(t penstock.Task[int, int]) *item {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.items[t.Data]
	if it == nil || it.run != r {
		r.fail("a task came out that never went in: %+v", t)
		return r.newItem(-1 - len(r.items))
	}
	it.tasks, it.gotAt = append(it.tasks, t), r.now()
	r.order = append(r.order, it.id)
	return it
}

// itemOf finds the item of a hook's call, or nil when the run numbers its items as they come.
func (r *run) itemOf(id string, index int) *item {
	var n int
	if _, err := fmt.Sscanf(id, "item-%d", &n); err == nil {
		return r.items[n]
	}
	if r.plan.way == "Start" {
		return nil
	}
	return r.items[r.base+index]
}

// itemsOf lists the items of a run by id.
func (r *run) itemsOf() (items []*item) {
	for _, id := range slices.Sorted(maps.Keys(r.items)) {
		if it := r.items[id]; it.run == r {
			items = append(items, it)
		}
	}
	return items
}
