package foreman

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-go/penstock/breaker"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// attempts is the life of a task with its worker: breaker, limiter, timeout, handler, classify, backoff, and again, until there
// is an outcome. The worker is occupied all the while, and a task is never overtaken by its worker's next one.
func (w *worker[D, R]) attempts(job *Job[D, R]) {
	t := job.Task
	w.beginTask(job)
	for w.admitted(job) {
		err := w.attempt(job)
		if err == nil || !w.again(t, err) {
			w.over(t, err)
			break
		}
	}
	w.endTask()
}

// once is attempts for a plan that has nothing but a handler: no limits, no retries, nobody to tell. It is what is left of
// attempts then, and exists because such a task can be so small that the rest would be most of its cost.
func (w *worker[D, R]) once(t *Task[D, R]) {
	ctx := w.crew.ctx
	if ctx.Err() != nil {
		w.ctx = ctx
		w.cut(t, duringQueue)
		return
	}
	t.Attempts = 1
	w.stage = inHandler
	result, err := w.plan.handler(ctx, t.Data)
	w.stage = inOurs
	if err == nil {
		t.Result, t.Outcome = result, Succeeded
		return
	}
	w.ctx, t.Err = ctx, err
	if w.gone() {
		w.cut(t, duringHandler)
	} else {
		t.Outcome = Failed
	}
}

// over gives a task the outcome of its last attempt, unless it has another one already.
func (w *worker[D, R]) over(t *Task[D, R], err error) {
	switch {
	case t.Outcome != 0:
	case err == nil:
		t.Outcome, t.Err = Succeeded, nil
	default:
		w.fail(t, err)
	}
}

func (w *worker[D, R]) beginTask(job *Job[D, R]) {
	w.ctx = w.crew.ctx
	if job.Context != nil {
		w.ctx = job.Context
	}
	w.spent = 0
	if d := w.plan.taskTimeout; d > 0 {
		w.limited = w.limitTask(w.ctx, d)
		w.ctx = w.limited
	}
	if w.plan.limiter != nil {
		w.request(job.Task)
	}
	if w.limited != nil {
		w.limited.mark = w.mark(1) // nobody has the context yet
	}
}

func (w *worker[D, R]) endTask() {
	if w.limited != nil {
		w.taskAlarm.release(w.limited)
		w.limited = nil
	}
	w.ctx = nil
}

// request is what the limiter is told about the task.
func (w *worker[D, R]) request(t *Task[D, R]) {
	w.req = ratelimiter.Request{Worker: w.id, Index: t.Index, Cost: 1}
	if w.plan.key != nil {
		w.stage = inKey
		w.req.Key = w.plan.key(t.Data)
	}
	if w.plan.cost != nil {
		w.stage = inCost
		w.req.Cost = w.plan.cost(t.Data)
	}
	w.stage = inOurs
}

// admitted waits for the breaker and the limiter and reports whether an attempt may start. If not, the task has its
// outcome.
func (w *worker[D, R]) admitted(job *Job[D, R]) bool {
	t := job.Task
	if w.ctx.Err() != nil || w.ctx != w.crew.ctx && w.crew.ctx.Err() != nil {
		w.cut(t, duringQueue)
		return false
	}
	if w.plan.breaker == nil {
		return w.plan.limiter == nil || w.granted(job)
	}
	for {
		if w.plan.breaker.Wait(w.ctx) != nil {
			w.cut(t, duringBreaker)
			return false
		}
		if w.plan.limiter != nil && !w.granted(job) {
			w.plan.breaker.Skip()
			return false
		}
		if w.ticket, w.entered = w.plan.breaker.Enter(); w.entered {
			return true
		}
		w.refund() // it opened while we waited for the limiter
	}
}

// granted waits for the limiter. If it does not grant, the task has its outcome.
func (w *worker[D, R]) granted(job *Job[D, R]) bool {
	t := job.Task
	if w.req.Cost < 0 {
		w.breakDown(t, &CallbackError{Callback: "cost", Task: t.ID(), Err: badCost(w.req.Cost)}, duringLimiter)
		return false
	}
	w.req.Attempt = t.Attempts + 1
	if err := w.acquire(); err != nil {
		w.refused(job, err)
		return false
	}
	if w.ctx.Err() != nil || w.crew.ctx.Err() != nil { // granted, but too late to start anything
		w.refund()
		w.cut(t, duringLimiter)
		return false
	}
	return true
}

func (w *worker[D, R]) acquire() (err error) {
	w.stage = inLimiter
	if w.plan.try != nil {
		err = w.plan.try.AcquireWithin(w.ctx, w.req, w.plan.maxWait)
	} else {
		err = w.plan.limiter.Acquire(w.ctx, w.req)
	}
	w.stage = inOurs
	return err
}

// refund gives a grant back, if the limiter takes it.
func (w *worker[D, R]) refund() {
	if a, ok := w.plan.limiter.(ratelimiter.Adjuster); ok {
		w.stage = inLimiter
		a.Adjust(w.req, 0)
		w.stage = inOurs
	}
}

// refused gives a task that the limiter did not admit its outcome. Whether an error is the limiter's own fault, the
// request's or a context's decides between the run, the task and the deadline.
func (w *worker[D, R]) refused(job *Job[D, R], err error) {
	t := job.Task
	w.stage = inLimiter // the error's methods are the limiter's code
	var excess *ratelimiter.ExcessError
	shed := w.plan.try != nil && errors.As(err, &excess)
	never, late := errors.Is(err, ratelimiter.ErrNeverGranted), errors.Is(err, context.DeadlineExceeded)
	w.stage = inOurs
	switch {
	case w.ctx.Err() != nil || w.crew.ctx.Err() != nil:
		w.cut(t, duringLimiter)
	case shed:
		t.Outcome, t.Err = Shed, &ShedError{Task: t.ID(), MaxWait: w.plan.maxWait, Err: excess, Last: t.Err}
	case never:
		w.fail(t, err)
	case late && hasDeadline(w.ctx):
		w.hopeless(job, err)
	default:
		w.breakDown(t, &LimiterError{Task: t.ID(), Err: err}, duringLimiter)
	}
}

// hopeless deals with a limiter that says the grant would come after the deadline. One who waits for this very task is
// told at once. Otherwise the deadline is waited for, just as if the limiter had not known: were the worker to go on, it
// would ask for the next task, be refused again, and run through everything pending in no time.
func (w *worker[D, R]) hopeless(job *Job[D, R], err error) {
	if job.Context != nil {
		theirs, _ := job.Context.Deadline()
		if ours, _ := w.ctx.Deadline(); ours.Equal(theirs) {
			job.Task.Outcome = Unfinished
			job.Task.Err = &UnfinishedError{During: duringLimiter, Context: context.DeadlineExceeded, Cause: err, Err: job.Task.Err}
			return
		}
	}
	<-w.ctx.Done()
	w.cut(job.Task, duringLimiter)
}

// attempt is one call of the handler.
func (w *worker[D, R]) attempt(job *Job[D, R]) error {
	t := job.Task
	t.Attempts++
	if t.Attempts == 1 {
		w.plan.retry.Budget.Deposit()
	} else {
		w.tally.retries.Add(1)
	}
	ctx := w.beginCall(t.Attempts, job.Context == nil)
	if w.plan.hooks.has[attemptStarted] {
		w.tell(attemptStarted, &hookCall{ctx: ctx, attempt: w.event(t, 0)})
	}
	if w.plan.timed {
		w.call.began = time.Now()
	}
	w.stage = inHandler
	result, err := w.plan.handler(ctx, t.Data)
	if err == nil {
		t.Result = result
	} else {
		err = w.classify(t, err) // asks the error, whose methods are the handler's code too
	}
	w.stage = inOurs
	w.endAttempt(t, err)
	return err
}

// classify turns the context's error, or its cause, which net/http returns instead, into a TimeoutError when it was our
// own timeout that ended the handler's context.
// Any other error is the handler's own, a deadline of its own making included, and stays as it is.
func (w *worker[D, R]) classify(t *Task[D, R], err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.Cause(w.call.ctx)) {
		return err
	}
	switch {
	case w.call.timeout != nil && w.call.timeout.state.Load() == struck:
		return &TimeoutError{Task: t.ID(), Scope: "attempt", Limit: w.plan.attemptTimeout, During: duringHandler, Err: err}
	case w.timedOut():
		return &TimeoutError{Task: t.ID(), Scope: "task", Limit: w.plan.taskTimeout, During: duringHandler, Err: err}
	}
	return err
}

// endAttempt tells everybody who wants to know how an attempt ended, and releases its context.
func (w *worker[D, R]) endAttempt(t *Task[D, R], err error) {
	w.call.err = err
	if w.plan.timed {
		w.reportAttempt(t, err)
	}
	if w.plan.observer != nil {
		w.observe(t, err)
	}
	if w.entered {
		w.leaveBreaker(w.report(err))
	}
	w.endCall()
}

func (w *worker[D, R]) reportAttempt(t *Task[D, R], err error) {
	w.call.elapsed = time.Since(w.call.began)
	a := w.event(t, w.call.elapsed)
	if err != nil && w.plan.log.l != nil && !w.gone() {
		w.log(attemptEnded, func() { w.plan.log.attemptFailed(w.call.ctx, a, err) })
	}
	if w.plan.hooks.has[attemptEnded] {
		w.tell(attemptEnded, &hookCall{ctx: w.call.ctx, attempt: a, err: err})
	}
}

// observe tells the limiter how the attempt ended, with a Retry-After that is already capped.
func (w *worker[D, R]) observe(t *Task[D, R], err error) {
	if w.rescuing {
		if failure := apart(func() { w.plan.observer.Observe(w.req, w.capped(err)) }); failure != nil {
			w.crew.Fail(&LimiterError{Task: t.ID(), Err: failure})
		}
		return
	}
	w.stage = inObserver
	w.plan.observer.Observe(w.req, w.capped(err))
	w.stage = inOurs
}

// report is what the breaker is told about the attempt.
func (w *worker[D, R]) report(err error) breaker.Report {
	if err == nil {
		return breaker.Succeeded
	}
	if w.gone() {
		return breaker.Ignored
	}
	failure := true
	if w.rescuing {
		_ = apart(func() { failure = w.plan.breaker.Failure(err) })
	} else {
		w.stage = inTrip
		failure = w.plan.breaker.Failure(err)
		w.stage = inOurs
	}
	if failure {
		return breaker.Failed
	}
	return breaker.Succeeded
}

func (w *worker[D, R]) leaveBreaker(r breaker.Report) {
	w.entered = false
	w.plan.breaker.Leave(w.ticket, r)
}

// capped is err with a Retry-After no longer than the policy's cap.
func (w *worker[D, R]) capped(err error) error {
	if asked, ok := retry.RetryAfter(err); ok {
		if limit, _ := w.plan.retry.Hint(err); limit < asked {
			return retry.After(err, limit)
		}
	}
	return err
}

func (w *worker[D, R]) event(t *Task[D, R], elapsed time.Duration) Attempt {
	return Attempt{Worker: w.id, Index: t.Index, Number: t.Attempts, Elapsed: elapsed, id: t.id}
}

// again decides whether a failed attempt is followed by another one, and waits for it. If not, the task has its outcome
// when that is another than a failure with err.
func (w *worker[D, R]) again(t *Task[D, R], err error) bool {
	t.Err = err
	if w.gone() {
		w.cut(t, duringHandler)
		return false
	}
	if w.timedOut() || !w.mayRetry(err) {
		return false
	}
	w.stage = inBackoff
	delay, bad := w.plan.retry.Delay(t.Attempts, err)
	w.stage = inOurs
	if bad != nil {
		w.breakDown(t, &CallbackError{Callback: "backoff", Task: t.ID(), Err: bad}, duringBackoff)
		return false
	}
	w.announce(t, err, delay)
	if !wait(w.ctx, delay) {
		w.cut(t, duringBackoff)
		return false
	}
	return true
}

// mayRetry asks the policy, and uses up one of the task's retries and one of the budget's.
func (w *worker[D, R]) mayRetry(err error) bool {
	p := &w.plan.retry
	if p.Max == 0 && !p.FreeThrottled {
		return false
	}
	w.stage = inRetry
	free, retryable := p.Free(err), p.Retryable(err)
	w.stage = inOurs
	if !retryable || !free && w.spent >= p.Max || !p.Budget.Withdraw() {
		return false
	}
	if !free {
		w.spent++
	}
	return true
}

func (w *worker[D, R]) announce(t *Task[D, R], err error, delay time.Duration) {
	if w.plan.log.l != nil {
		w.log(retryScheduled, func() { w.plan.log.retryScheduled(w.ctx, w.event(t, w.call.elapsed), delay) })
	}
	if w.plan.hooks.has[retryScheduled] {
		w.tell(retryScheduled, &hookCall{ctx: w.ctx, attempt: w.event(t, w.call.elapsed), err: err, delay: delay})
	}
}

// gone reports whether nobody wants the task any more: the run has ended, or the one who waits for it gave up. A task's
// own context may hear of the run's end a moment later than the run's.
func (w *worker[D, R]) gone() bool {
	return (w.ctx.Err() != nil || w.crew.ctx.Err() != nil) && !w.timedOut()
}

// timedOut reports whether it was the task timeout that ended the task's context.
func (w *worker[D, R]) timedOut() bool {
	return w.limited != nil && w.limited.state.Load() == struck
}

// cut ends a task whose context has ended: by its own timeout it has failed, otherwise it is unfinished. The last
// attempt's error, if there was one, is in t.Err.
func (w *worker[D, R]) cut(t *Task[D, R], during string) {
	last := t.Err
	if w.timedOut() {
		if during == duringQueue { // it struck between two waits
			during = duringLimiter
		}
		w.fail(t, &TimeoutError{Task: t.ID(), Scope: "task", Limit: w.plan.taskTimeout, During: during, Err: last})
		return
	}
	ctx := w.crew.ctx
	if ctx.Err() == nil { // not the run has ended, but the one who waits for the task gave up
		ctx = w.ctx
	}
	t.Outcome, t.Err = Unfinished, w.crew.unfinished(ctx, during, last)
}

func (w *worker[D, R]) fail(t *Task[D, R], err error) { t.Outcome, t.Err = Failed, err }

// breakDown ends the run because of err, which came up with this task.
func (w *worker[D, R]) breakDown(t *Task[D, R], err error, during string) {
	w.crew.Fail(err)
	t.Outcome, t.Err = Unfinished, &UnfinishedError{During: during, Context: context.Canceled, Cause: err, Err: t.Err}
}

func hasDeadline(ctx context.Context) bool {
	_, ok := ctx.Deadline()
	return ok
}
