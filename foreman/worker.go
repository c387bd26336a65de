package foreman

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
)

// A worker takes jobs and sees each through its attempts, one after the other. All fields but the alarms, tally and held
// are its own goroutine's.
type worker[D, R any] struct {
	crew *Crew[D, R]
	plan *Plan[D, R]
	id   int

	jobs  []Job[D, R]   // the batch; jobs[:n] are filled, jobs[:at] have ended
	out   []*Task[D, R] // out[:ready] have ended and are to be delivered
	ready int
	n     int
	at    int

	// What is under way, so that rescue knows what a panic or a Goexit has interrupted.
	stage    stage
	rescuing bool
	ctx      context.Context // of the task
	limited  *timeoutContext // of the task, if it has a timeout
	ticket   breaker.Ticket  // of the breaker, while entered
	entered  bool
	call     call // the attempt
	spent    int  // retries used up
	req      ratelimiter.Request
	hook     hookKind              // the one that was called last
	limit    *TooManyFailuresError // reached with the task under way

	// The arrays of a batch of one. Allocated by themselves they would share cache lines with those of other workers,
	// which are written just as often.
	one struct {
		jobs [1]Job[D, R]
		out  [1]*Task[D, R]
	}

	taskAlarm, attemptAlarm alarm

	tally tally
	held  held
}

// A stage says whose code a worker is in.
type stage uint8

const (
	inOurs stage = iota // nothing to rescue: a panic here is a bug and takes the process down
	inLimiter
	inHandler
	inObserver
	inHook
	inKey
	inCost
	inRetry
	inBackoff
	inTrip
)

func (s stage) callback() string {
	return [...]string{inKey: "key", inCost: "cost", inRetry: "retry", inBackoff: "backoff", inTrip: "breaker"}[s]
}

func newWorker[D, R any](c *Crew[D, R], id int) *worker[D, R] {
	w := &worker[D, R]{crew: c, plan: c.plan, id: id}
	w.jobs, w.out = w.one.jobs[:], w.one.out[:]
	if c.plan.batch > 1 {
		w.jobs = make([]Job[D, R], c.plan.batch)
		w.out = make([]*Task[D, R], c.plan.batch)
	}
	for i := range w.jobs {
		w.jobs[i].Task = &w.jobs[i].own
	}
	return w
}

// accept gives a worker its first job before it starts.
func (w *worker[D, R]) accept(job *Job[D, R]) {
	w.jobs[0].hold(job.Task)
	w.jobs[0].Context, w.jobs[0].Reply = job.Context, job.Reply
	w.n = 1
}

// run is the goroutine of a worker. Each shift ends with the work, or with a panic that was dealt with. A Goexit cannot be
// stopped, so after that the worker goes on in a new goroutine.
func (w *worker[D, R]) run() {
	over := false
	defer func() {
		if !over {
			go w.run()
		}
	}()
	for !over {
		over = w.shift()
	}
	w.crew.leave()
}

// shift works until there are no more jobs. One deferred call guards all of them, so a task pays nothing for it.
func (w *worker[D, R]) shift() (over bool) {
	defer w.rescue()
	for {
		for ; w.at < w.n; w.at++ {
			w.work(&w.jobs[w.at])
		}
		w.handOver()
		w.n, w.at = 0, 0
		if w.crew.failing.Load() {
			<-w.crew.ctx.Done()
		}
		if w.crew.ctx.Err() != nil {
			return true // what is left in the intake is abandoned, and making room there would only invite more
		}
		if w.n = w.crew.intake.Take(w.id, w.jobs); w.n == 0 {
			return true
		}
	}
}

// work sees one task to its end.
func (w *worker[D, R]) work(job *Job[D, R]) {
	if w.crew.watch {
		w.held.set(job.Task.Index, job.Task.id, time.Since(w.crew.madeAt))
	}
	if w.plan.bare && job.Reply == nil {
		w.once(job.Task)
	} else {
		w.attempts(job)
	}
	w.account(job)
	w.letGo(job)
}

// account counts a task that has its outcome, and tells the hooks.
func (w *worker[D, R]) account(job *Job[D, R]) {
	t := job.Task
	w.tally.count(t.Outcome)
	switch t.Outcome {
	case Unfinished:
		if w.crew.ctx.Err() != nil { // otherwise its own caller gave it up
			w.crew.cutOff.Store(true)
		}
	case Failed:
		if w.crew.countFailure() {
			w.limit = &TooManyFailuresError{Limit: w.plan.failureLimit, Task: t.ID(), Err: t.Err}
		}
	}
	if w.plan.hooks.has[taskDone] {
		w.tell(taskDone, &hookCall{ctx: w.crew.ctx, task: infoOf(t)})
	}
}

// tell calls hooks.
func (w *worker[D, R]) tell(k hookKind, c *hookCall) {
	if w.rescuing { // a deferred call has nobody behind it to rescue it once more
		w.plan.hooks.callApart(k, *c)
		return
	}
	w.stage, w.hook = inHook, k
	w.plan.hooks.call(k, c)
	w.stage = inOurs
}

// log calls a function that logs, with the same care as a hook: the log's handler is the user's code.
func (w *worker[D, R]) log(k hookKind, write func()) {
	if w.rescuing {
		_ = apart(write)
		return
	}
	w.stage, w.hook = inHook, k
	write()
	w.stage = inOurs
}

// letGo sets a task that is over and done with out for delivery, or gives it to the one who waits for it.
func (w *worker[D, R]) letGo(job *Job[D, R]) {
	if w.crew.watch {
		w.held.clear()
	}
	if job.Reply != nil {
		job.Reply(job.Task)
		job.Reply, job.Context = nil, nil
		job.Task.clear()
	} else if w.crew.outlet != nil {
		w.setOut(job.Task)
	}
	if w.limit != nil {
		w.limitReached()
	}
}

// setOut sets a task out for delivery.
func (w *worker[D, R]) setOut(t *Task[D, R]) {
	if w.out[w.ready] != t { // mostly it is the one that stood there before
		w.out[w.ready] = t
	}
	w.ready++
}

// limitReached publishes the task that reached the failure limit, and what ended before it, and then ends the run. It
// must not wait for a reader, so the bound goes first, and so that nobody makes use of that, no worker takes another job.
func (w *worker[D, R]) limitReached() {
	err := w.limit
	w.limit = nil
	w.crew.failing.Store(true)
	if w.crew.outlet != nil {
		w.crew.outlet.Lift()
	}
	w.handOver()
	w.crew.Fail(err)
}

// handOver delivers what has ended and forgets it: a worker that waits keeps no item alive.
func (w *worker[D, R]) handOver() {
	if w.ready == 0 {
		return
	}
	out := w.out[:w.ready]
	w.ready = 0
	w.crew.outlet.Deliver(out)
	for _, t := range out {
		t.clear()
	}
}

// rescue is deferred by shift. When the user's code panicked or called Goexit it ends the task that was under way, and
// the worker goes on.
func (w *worker[D, R]) rescue() {
	stage := w.stage
	if stage == inOurs {
		return
	}
	w.stage = inOurs
	err := ErrGoexit
	v := recover()
	if v != nil {
		err = newPanicError(v)
	}
	w.rescuing = true
	w.interrupted(&w.jobs[w.at], stage, err)
	w.rescuing = false
	w.at++
}

// interrupted gives the task its outcome after the user's code did not return.
func (w *worker[D, R]) interrupted(job *Job[D, R], stage stage, err error) {
	t := job.Task
	if t.Outcome != 0 { // a TaskDone hook ended the goroutine: the task is over and counted
		w.letGo(job)
		return
	}
	switch stage {
	case inHandler:
		w.endAttempt(t, err)
		w.fail(t, err)
	case inObserver: // the attempt was over
		failure := &LimiterError{Task: t.ID(), Err: err}
		if w.call.err == nil {
			w.crew.Fail(failure)
			w.over(t, nil)
			break
		}
		t.Err = w.call.err
		w.breakDown(t, failure, duringHandler)
	case inHook:
		w.leftHook(t, err)
	case inLimiter:
		if w.plan.breaker != nil {
			w.plan.breaker.Skip()
		}
		w.breakDown(t, &LimiterError{Task: t.ID(), Err: err}, duringLimiter)
	default:
		if stage == inTrip {
			t.Err = w.call.err
		}
		w.breakDown(t, &CallbackError{Callback: stage.callback(), Task: t.ID(), Err: err}, duringHandler)
	}
	w.endCall()
	w.endTask()
	w.account(job)
	w.letGo(job)
}

// leftHook ends a task whose hook has ended the goroutine, as a test's FailNow does. Its handler may not have been called
// yet, which counts as if the handler had done it; otherwise the last attempt decides, without a retry.
func (w *worker[D, R]) leftHook(t *Task[D, R], err error) {
	switch w.hook {
	case attemptStarted:
		w.endAttempt(t, err)
		w.over(t, err)
	case attemptEnded:
		if w.plan.observer != nil {
			w.observe(t, w.call.err)
		}
		w.over(t, w.call.err)
	default:
		w.over(t, t.Err)
	}
}

// tally counts what became of one worker's tasks. Only the worker writes, anyone reads.
type tally struct {
	outcomes [Unfinished + 1]atomic.Int64
	retries  atomic.Int64
}

func (t *tally) count(o Outcome) {
	c := &t.outcomes[o]
	c.Store(c.Load() + 1)
}

func (t *tally) addTo(n *Counters) {
	n.Succeeded += int(t.outcomes[Succeeded].Load())
	n.Failed += int(t.outcomes[Failed].Load())
	n.Shed += int(t.outcomes[Shed].Load())
	n.Unfinished += int(t.outcomes[Unfinished].Load())
	n.Retries += int(t.retries.Load())
}

// held is the task that a worker holds, for those who ask what is still running.
type held struct {
	mu    sync.Mutex
	index int
	id    string
	since time.Duration // after the crew was made: half of what time.Now would cost
	holds bool
}

func (h *held) set(index int, id string, now time.Duration) {
	h.mu.Lock()
	h.index, h.id, h.since, h.holds = index, id, now, true
	h.mu.Unlock()
}

func (h *held) clear() {
	h.mu.Lock()
	h.id, h.holds = "", false
	h.mu.Unlock()
}

func (w *worker[D, R]) holds() (RunningTask, bool) {
	h := &w.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.holds {
		return RunningTask{}, false
	}
	return RunningTask{Index: h.index, ID: taskID(h.id, h.index), For: time.Since(w.crew.madeAt) - h.since}, true
}

func infoOf[D, R any](t *Task[D, R]) TaskInfo {
	return TaskInfo{Index: t.Index, Outcome: t.Outcome, Attempts: t.Attempts, Err: t.Err, id: t.id}
}
