package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock"
	"github.com/penstock-go/penstock/ratelimiter"
	"github.com/penstock-go/penstock/retry"
)

// check goes through the ledger when everything has ended.
func (w *world) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.runs {
		r.check()
	}
	if w.limits != nil {
		w.limits.check()
	}
	w.checkTotals()
	w.checkBudget()
	w.checkBreaker()
	w.checkWarnings()
}

func (r *run) check() {
	if !r.over {
		r.fail("it has not come to an end")
		return
	}
	items := r.itemsOf()
	r.adopt(items)
	r.endsAt, r.why = r.reasons()
	for _, it := range items {
		it.check()
	}
	r.checkNumbers(items)
	r.checkEnding(items)
	r.checkOrder(items)
	r.checkDiligence(items)
	r.checkCounters(items)
	r.checkTold()
}

// adopt gives what hooks said about items without an id to those who turned out to have the number.
func (r *run) adopt(items []*item) {
	for _, it := range items {
		for _, t := range it.tasks {
			for _, note := range r.orphans[t.Index] {
				note(it)
			}
			delete(r.orphans, t.Index)
		}
	}
	for index := range r.orphans {
		r.fail("hooks were called for task %d, which was not delivered", index)
	}
}

// A verdict is what became of an item.
type verdict struct {
	outcome  penstock.Outcome
	err      error
	attempts int
}

// verdict is what the consumer was told, else what hooks were. It is not known when the consumer has left and there are
// no hooks, nor after a Do that has given up.
func (it *item) verdict() (v verdict, known bool) {
	switch {
	case len(it.tasks) > 0:
		t := it.tasks[0]
		return verdict{t.Outcome, t.Err, t.Attempts}, true
	case len(it.done) > 0:
		i := it.done[0].info
		return verdict{i.Outcome, i.Err, i.Attempts}, true
	}
	return verdict{}, false
}

// outcome is 0 when it is not known.
func (it *item) outcome() penstock.Outcome {
	if v, known := it.verdict(); known {
		return v.outcome
	}
	return it.reply
}

// gaveUp reports whether the item's own caller may have given it up.
func (it *item) gaveUp() bool {
	return it.do && it.patience != never && (it.deadline || it.patience <= it.endedAt)
}

// in reports whether the item is known to have been accepted.
func (it *item) in() bool {
	return it.accepted || len(it.tries)+len(it.tasks)+len(it.done) > 0 || it.plan.way == "ProcessAll" ||
		it.plan.source.kind == "chan" && it.refusal == nil
}

func (it *item) check() {
	switch {
	case it.refusal != nil:
		if n := len(it.tries) + len(it.tasks) + len(it.done); n > 0 {
			it.fail("it was refused with %v, and has %d attempts, %d results, %d calls of TaskDone", it.refusal, len(it.tries), len(it.tasks), len(it.done))
		}
	case it.in():
		it.checkDelivery()
		it.checkTries()
		if v, known := it.verdict(); known {
			it.checkVerdict(v)
		}
	}
}

// checkDelivery checks that the item has come out once, and unchanged.
func (it *item) checkDelivery() {
	n := len(it.tasks)
	switch {
	case it.do && n > 0:
		it.fail("the result of a Do was handed out: %+v", it.tasks)
	case n > 1:
		it.fail("it came out %d times", n)
	case n == 0 && !it.do && !it.left:
		it.fail("it was accepted and did not come out (attempts %d)", len(it.tries))
	}
	if it.hooks && len(it.done) != 1 {
		it.fail("TaskDone was called %d times", len(it.done))
	}
	if n == 0 {
		return
	}
	t := it.tasks[0]
	if it.label != "" && it.label != t.ID() {
		it.fail("its id was %q and is %q", it.label, t.ID())
	}
	if it.plan.way != "Start" && t.Index != it.id-it.base {
		it.fail("its number is %d", t.Index)
	}
	if (t.Outcome == penstock.Succeeded) != (t.Err == nil) {
		it.fail("it has %v with the error %v", t.Outcome, t.Err)
	}
	if len(it.done) == 1 {
		if i := it.done[0].info; i.Outcome != t.Outcome || i.Err != t.Err || i.Attempts != t.Attempts || i.Index != t.Index || i.ID() != t.ID() {
			it.fail("TaskDone was told %+v, and the consumer %+v", i, t)
		}
		if it.done[0].at > it.gotAt {
			it.fail("it came out before TaskDone was called")
		}
	}
}

// checkTries checks each attempt and that the retries were due.
func (it *item) checkTries() {
	spent := 0
	for i, a := range it.tries {
		if a.ended == never {
			it.fail("attempt %d has not ended", a.number)
		}
		a.checkContext()
		if i+1 == len(it.tries) {
			break
		}
		p := it.retry
		switch {
		case p == nil:
			it.fail("it was retried without a policy")
			return
		case a.lost != "" || a.err == nil:
			it.fail("attempt %d was retried, which ended with %q, %v", a.number, a.lost, a.err)
			return
		case retry.IsPermanent(a.err) || !p.retryable(a.err):
			it.fail("attempt %d was retried after %v", a.number, a.err)
		}
		if !p.isFree(a.err) {
			spent++
		}
		if spent > p.max {
			it.fail("it was retried %d times, at most %d are allowed", spent, p.max)
		}
		it.checkPause(a, it.tries[i+1])
	}
}

func (p *retryPlan) isFree(err error) bool {
	d, _ := retry.RetryAfter(err)
	return p.free && d > 0
}

// checkPause checks how long a retry has waited.
func (it *item) checkPause(a, next *attempt) {
	p, took := it.retry, next.granted-a.ended
	least := p.hint(a.err)
	if !p.jitter {
		least += p.constant
	}
	if took < least {
		it.fail("attempt %d came %v after the one before, and should have waited for %v", next.number, took, least)
	}
	if it.exact() && !p.jitter && it.limiter == nil && it.breaker == nil && !it.sleeps() && took != least {
		it.fail("attempt %d came %v after the one before, and should have come after %v", next.number, took, least)
	}
}

// checkContext checks when the handler's context has ended.
func (a *attempt) checkContext() {
	if !a.exact() || a.vague || len(a.endings) > 0 && !a.surelyGoesOn() {
		return
	}
	byAttempt := after(a.granted, a.attemptTimeout)
	due, known := min(byAttempt, a.endsAt, a.patience), a.taskTimeout == 0 || a.taken != never
	if known {
		due = min(due, after(a.taken, a.taskTimeout))
	}
	due = max(due, a.began)
	listens := a.step.do == hanging || a.step.takes > 0 && !a.step.deaf && a.step.do != submitting && a.step.do != meddling
	switch {
	case a.heard == never && listens && a.ended > due:
		a.fail("attempt %d went on until %v, and its context should have ended at %v", a.number, a.ended, due)
	case a.heard == never:
	case a.heard > due || known && a.heard < due:
		a.fail("attempt %d saw its context end at %v, which should have been at %v", a.number, a.heard, due)
	case a.heard == byAttempt && known && byAttempt < min(a.endsAt, a.patience, after(a.taken, a.taskTimeout)) && a.heardErr != context.DeadlineExceeded:
		a.fail("attempt %d timed out, and saw %v", a.number, a.heardErr)
	}
}

// surelyGoesOn reports whether nothing can have ended the run before it was sure to end.
func (r *run) surelyGoesOn() bool {
	return !slices.ContainsFunc(r.why, func(e ending) bool { return !e.sure })
}

// after is d after t, or never without a d.
func after(t, d time.Duration) time.Duration {
	if d == 0 || t == never {
		return never
	}
	return t + d
}

// checkVerdict checks that an item's outcome is what its attempts came to.
func (it *item) checkVerdict(v verdict) {
	n := len(it.tries)
	if v.err != nil && v.err.Error() == "" {
		it.fail("its error %T says nothing", v.err)
	}
	if it.hookExit { // a hook that ends the task takes the place of an attempt, or of its retry
		if v.attempts < n || v.attempts > n+1 {
			it.fail("it says %d attempts, there were %d", v.attempts, n)
		}
		return
	}
	if v.attempts != n {
		it.fail("it says %d attempts, there were %d", v.attempts, n)
	}
	if it.hooks && (len(it.started) != n || it.stopped != n || it.retries < n-1 || it.retries > n) {
		it.fail("%d attempts, and the hooks were told of %d that started, %d that ended, %d retries", n, len(it.started), it.stopped, it.retries)
	}
	if n == 0 {
		it.checkNeverTried(v)
		return
	}
	switch last := it.tries[n-1]; {
	case last.lost != "":
		it.checkLost(v, last)
	case last.err == nil:
		it.checkSucceeded(v, last)
	case v.outcome == penstock.Failed:
		it.checkFailed(v, last)
	case v.outcome == penstock.Unfinished:
		it.checkUnfinished(v, last.err)
	case v.outcome == penstock.Shed:
		it.checkShed(v, last.err)
	default:
		it.fail("it has %v, and its last attempt returned %v", v.outcome, last.err)
	}
}

func (it *item) checkNeverTried(v verdict) {
	switch v.outcome {
	case penstock.Shed:
		it.checkShed(v, nil)
	case penstock.Unfinished:
		it.checkUnfinished(v, nil)
	case penstock.Failed:
		if e, ok := v.err.(*penstock.TimeoutError); ok {
			it.checkTaskTimeout(e, nil)
		} else if !it.tooDear() || !errors.Is(v.err, ratelimiter.ErrNeverGranted) {
			it.fail("it failed with %v and was never tried", v.err)
		}
	default:
		it.fail("it has %v and was never tried", v.outcome)
	}
}

// tooDear reports whether the limiter can never grant the item.
func (it *item) tooDear() bool {
	if it.limits == nil || it.limits.refuses == nil {
		return false
	}
	return it.limiter.retuned || it.limits.refuses(ratelimiter.Request{Cost: max(1, it.cost(it.id)), Key: keyOf(it.id)})
}

func (it *item) checkSucceeded(v verdict, last *attempt) {
	if v.outcome != penstock.Succeeded {
		it.fail("it has %v with %v, and its last attempt returned a value", v.outcome, v.err)
	} else if len(it.tasks) > 0 && it.tasks[0].Result != resultOf(it.id, last.number) {
		it.fail("its result is %d after attempt %d", it.tasks[0].Result, last.number)
	}
}

func (it *item) checkLost(v verdict, last *attempt) {
	p, panicked := v.err.(*penstock.PanicError)
	switch {
	case v.outcome != penstock.Failed:
		it.fail("it has %v although its handler did not return", v.outcome)
	case last.lost == exiting && v.err != penstock.ErrGoexit:
		it.fail("its handler called Goexit, and its error is %v", v.err)
	case last.lost == panicking && (!panicked || p.Value.(*failure).attempt != last.number || p.Value.(*failure).id != it.id || len(p.Stack) == 0):
		it.fail("its handler has panicked, and its error is %v", v.err)
	}
}

// isContextError reports whether a handler may have returned it because its own context had ended.
func (a *attempt) isContextError() bool {
	return a.heard != never && a.step.late != ownError && a.step.late != value
}

// mayBeTimeout reports whether its error may be taken for that of its context, which it may be without having looked.
func (a *attempt) mayBeTimeout() bool {
	return a.isContextError() || errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded)
}

func (it *item) checkFailed(v verdict, last *attempt) {
	if errors.Is(v.err, ratelimiter.ErrNeverGranted) && it.tooDear() {
		return // since its rate was changed, the limiter does not grant it any more
	}
	e, timeout := v.err.(*penstock.TimeoutError)
	switch {
	case timeout && e.Scope == "attempt":
		it.checkAttemptTimeout(e, last)
	case timeout && e.Scope == "task":
		it.checkTaskTimeout(e, last)
	case timeout:
		it.fail("its error has the scope %q", e.Scope)
	case v.err != last.err:
		it.fail("its error is %v, and the last attempt returned %v", v.err, last.err)
	case last.isContextError():
		it.fail("it failed with its context's error %v, which is no TimeoutError", v.err)
	}
	if it.mustRetry(last) && !(timeout && e.Scope == "task") {
		it.fail("it was not retried after attempt %d failed with %v", last.number, last.err)
	}
	if it.exact() && last.ended > it.endsAt && it.taskTimeout == 0 {
		it.fail("it failed at %v with %v, after the end of the run at %v", last.ended, v.err, it.endsAt)
	}
}

// mustRetry reports whether nothing excuses that there was no retry.
func (it *item) mustRetry(last *attempt) bool {
	p := it.retry
	if p == nil || p.burst > 0 || retry.IsPermanent(last.err) || !p.retryable(last.err) {
		return false
	}
	if it.taskTimeout > 0 && (it.taken == never || it.sleeps() || !it.exact() || last.ended >= it.taken+it.taskTimeout) {
		return false
	}
	spent := 0
	for _, a := range it.tries[:len(it.tries)-1] {
		if !p.isFree(a.err) {
			spent++
		}
	}
	return p.isFree(last.err) || spent < p.max
}

func (it *item) checkAttemptTimeout(e *penstock.TimeoutError, last *attempt) {
	took := last.ended - last.granted
	if it.attemptTimeout == 0 || e.Limit != it.attemptTimeout || e.During != "handler" || e.Err != last.err || !last.mayBeTimeout() {
		it.fail("its error is %+v, and the last attempt returned %v", e, last.err)
	}
	if it.exact() && took < it.attemptTimeout && !last.vague {
		it.fail("an attempt timed out after %v, with a timeout of %v", took, it.attemptTimeout)
	}
}

func (it *item) checkTaskTimeout(e *penstock.TimeoutError, last *attempt) {
	if it.taskTimeout == 0 || e.Limit != it.taskTimeout || last != nil && !errors.Is(e, last.err) || last == nil && e.Err != nil {
		it.fail("its error is %+v, with a task timeout of %v", e, it.taskTimeout)
	}
	at := it.gotAt
	if len(it.done) > 0 {
		at = it.done[0].at
	}
	if it.taken == never || at == never || !it.exact() { // on the real clock the timeout has begun before we know of it
		return
	}
	due := it.taken + it.taskTimeout
	if at < due {
		it.fail("it timed out at %v, and should have had until %v", at, due)
	}
	if it.hooks && !it.sleeps() && e.During != "handler" && at != due {
		it.fail("it timed out at %v in its %s, and should have at %v", at, e.During, due)
	}
}

func (it *item) checkUnfinished(v verdict, last error) {
	_, ok := v.err.(*penstock.UnfinishedError)
	if !ok || !errors.Is(v.err, context.Canceled) && !errors.Is(v.err, context.DeadlineExceeded) || last != nil && !errors.Is(v.err, last) {
		it.fail("it is unfinished, its error is %v, and the handler's %v", v.err, last)
	}
	if it.gaveUp() {
		return
	}
	if !slices.ContainsFunc(it.endings, func(e ending) bool { return e.explainsTask(v.err) }) {
		it.fail("it is unfinished because of %v, which does not come from the %s", v.err, kinds(it.endings))
	}
	if it.exact() && len(it.done) > 0 && it.done[0].at < it.endsAt && it.surelyGoesOn() {
		it.fail("it was given up at %v, before the end of the run at %v", it.done[0].at, it.endsAt)
	}
}

// explainsTask recognises the run's error in that of an unfinished task.
func (e ending) explainsTask(err error) bool {
	if e.kind == "cancel" || e.kind == "deadline" || e.kind == "consumer" {
		return e.explains(err)
	}
	return walk(err, e.explains)
}

func (it *item) checkShed(v verdict, last error) {
	e, ok := v.err.(*penstock.ShedError)
	if !ok || it.shed < 0 || e.MaxWait != it.shed || !strings.HasPrefix(e.Error(), "rate_limit:") || e.Err == nil || e.Err.RetryAfter <= 0 {
		it.fail("it was shed with %v, and the longest wait is %v", v.err, it.shed)
	}
	if last != nil && !errors.Is(v.err, last) {
		it.fail("it was shed with %v, which does not show the last error %v", v.err, last)
	}
}

// checkNumbers checks that accepted items are numbered without gaps.
func (r *run) checkNumbers(items []*item) {
	seen := make(map[int]*item)
	n, unknown := 0, 0
	for _, it := range items {
		if !it.in() || it.refusal != nil {
			if it.do && it.refusal == nil {
				unknown++
			}
			continue
		}
		n++
		index := -1
		switch {
		case len(it.tasks) > 0:
			index = it.tasks[0].Index
		case len(it.done) > 0:
			index = it.done[0].info.Index
		default:
			unknown++
			continue
		}
		if other := seen[index]; other != nil {
			r.fail("items %d and %d have both the number %d", other.id, it.id, index)
		}
		seen[index] = it
	}
	if r.plan.consumer.leaveAt > 0 && !r.hooks { // nobody was told of items that waited for their first attempt then
		return
	}
	if unknown > 0 || r.plan.way == "Foreman" {
		return
	}
	for i := range n {
		if seen[i] == nil {
			r.fail("of %d items none has the number %d", n, i)
		}
	}
}

// checkOrder checks the order in which items were begun and came out.
func (r *run) checkOrder(items []*item) {
	oneReader := r.plan.way == "IterResults" || r.plan.way == "Start" && len(r.plan.hand.readers) == 1 && !slices.Contains(r.behaviours, meddling)
	if r.exact() && r.hooks && r.batch == 1 && oneReader && !r.sleeps() {
		r.checkCompletionOrder()
	}
	if r.workers > 1 {
		return
	}
	single := r.plan.way != "Start" && (r.plan.way != "Foreman" || r.plan.hand.submitters == 1)
	if direct := r.plan.source.kind == "slice" || r.plan.source.kind == "chan"; single && (direct && r.plan.way != "Foreman" || !r.priority) {
		r.checkFIFO()
	}
	if r.exact() && r.priority && r.batch == 1 && r.limiter == nil && r.breaker == nil && !r.sleeps() && r.plan.way == "IterResults" {
		r.checkPriority(items)
	}
}

// checkCompletionOrder checks that results came in the order in which their items ended.
func (r *run) checkCompletionOrder() {
	var last time.Duration
	for _, id := range r.order {
		if d := r.items[id].done; len(d) == 1 {
			if d[0].at < last {
				r.fail("item %d, which ended at %v, came out after one that ended at %v", id, d[0].at, last)
			}
			last = d[0].at
		}
	}
}

// checkFIFO checks that the only worker has begun with items in their order.
func (r *run) checkFIFO() {
	last := -1
	for _, a := range r.attempts {
		if a.run == r && a.number == 1 {
			if a.id < last {
				a.fail("it was begun after item %d", last)
			}
			last = a.id
		}
	}
}

// checkPriority checks that the only worker has never begun with an item while a more urgent one was waiting.
func (r *run) checkPriority(items []*item) {
	if k := r.plan.source.kind; k == "slice" || k == "chan" {
		return
	}
	for _, x := range items {
		for _, y := range items {
			if len(x.tries) > 0 && len(y.tries) > 0 && y.acceptedAt < x.tries[0].began && y.tries[0].began > x.tries[0].began && priorityOf(y.id) < priorityOf(x.id) {
				x.fail("it was begun at %v, before item %d, which is more urgent and was accepted at %v", x.tries[0].began, y.id, y.acceptedAt)
			}
		}
	}
}

// checkDiligence checks that no worker was idle while there was something to do: each item must have begun at the instant
// at which the first worker was free for it. In a batch from a slice that need not be the item with the lowest index, since
// quick workers claim several at once; elsewhere it must.
func (r *run) checkDiligence(items []*item) {
	p := r.plan
	plain := r.exact() && r.batch == 1 && r.limiter == nil && r.breaker == nil && !r.sleeps() && (r.taskTimeout == 0 || r.retry == nil)
	prompt := p.source.pace == 0 && p.source.stallAt == 0 && (!r.priority || p.source.kind == "slice")
	reads := p.way == "ProcessAll" || p.way == "ProcessSource" || p.way == "IterResults" && p.consumer == consumerPlan{}
	if !plain || !prompt || !reads || len(r.why) > 0 && !r.surelyGoesOn() {
		return
	}
	if p.source.kind == "slice" && p.way != "IterResults" {
		items = r.asBegun()
	}
	free := slices.Repeat([]time.Duration{r.startedAt}, r.workers)
	for _, it := range items {
		if len(it.tries) == 0 || it.hookExit || free[0] >= r.endsAt {
			return
		}
		if began := it.tries[0].began; began != free[0] {
			it.fail("it was begun at %v, and a worker was free at %v", began, free[0])
			return
		}
		free[0] = it.tries[len(it.tries)-1].ended
		if it.outcome() == penstock.Unfinished { // its worker was waiting to retry
			free[0] = r.endsAt
		}
		slices.Sort(free)
	}
}

// asBegun lists the items in the order in which workers began with them.
func (r *run) asBegun() (items []*item) {
	for _, a := range r.attempts {
		if a.run == r && a.number == 1 {
			items = append(items, a.item)
		}
	}
	return items
}

// tally counts what became of the items, and those of which it is not known.
func tally(items []*item) (c penstock.Counters, unknown int) {
	for _, it := range items {
		switch o := it.outcome(); {
		case it.refusal != nil:
		case o != 0:
			add(&c, o)
			c.Retries += max(0, it.attempted()-1)
		case it.in() || it.do || it.left:
			unknown++
		}
	}
	return c, unknown
}

// attempted is how many attempts the library has counted.
func (it *item) attempted() int {
	if v, known := it.verdict(); known {
		return v.attempts
	}
	n := len(it.tries)
	if it.uncalled {
		n++
	}
	return n
}

// checkCounters checks that what was counted is what became of the items.
func (r *run) checkCounters(items []*item) {
	if r.counters == nil {
		return
	}
	r.compare(r.plan.name+": its counters", *r.counters, items)
}

func (w *world) compare(what string, got penstock.Counters, items []*item) {
	want, unknown := tally(items)
	missing := got.Ended() - want.Ended()
	if unknown == 0 && got != want || missing < 0 || missing > unknown || got.Pending != 0 || got.Running != 0 {
		w.fail("%s are %+v, and the outcomes %+v, with %d unknown", what, got, want, unknown)
	}
}

// checkTold checks what RunEnded was told.
func (r *run) checkTold() {
	if !r.hooks {
		return
	}
	if len(r.told) != 1 {
		r.fail("RunEnded was called %d times", len(r.told))
		return
	}
	t := r.told[0]
	switch {
	case t.at > r.endedAt:
		r.fail("RunEnded was called after its end")
	case !r.left && t.err != r.err:
		r.fail("RunEnded was told the error %v, and it is %v", t.err, r.err)
	case r.left && t.err != nil && !explained(t.err, r.why):
		r.fail("RunEnded was told the error %v, and it ended because of the %s", t.err, kinds(r.why))
	}
	r.compare(r.plan.name+": the counters of RunEnded", t.counters, r.itemsOf())
}

// checkTotals checks that the engine's counters are the sum of its runs'.
func (w *world) checkTotals() {
	var items []*item
	for _, r := range w.runs {
		if r.plan.way != "Foreman" {
			items = append(items, r.itemsOf()...)
		}
	}
	w.compare("the engine's counters", w.engine.Counters(), items)
}

// checkBudget checks that there were no more retries than the budget allows.
func (w *world) checkBudget() {
	if w.budget == nil {
		return
	}
	firsts, retries := 0, 0
	for _, it := range w.items {
		if it.hookExit { // its attempt counts, and its handler was not called
			firsts++
		}
		if n := len(it.tries); n > 0 {
			firsts, retries = firsts+1, retries+n-1
		}
	}
	if most := float64(w.retry.burst) + w.retry.ratio*float64(firsts); float64(retries) > most+1e-6 {
		w.fail("there were %d retries of %d items: the budget allows %v", retries, firsts, most)
	}
}

// checkBreaker checks that no attempt was made while the breaker was open.
func (w *world) checkBreaker() {
	if w.sleeps() || !w.exact() {
		return
	}
	for _, a := range w.attempts {
		for _, s := range w.opened {
			if s.from < a.began && a.began < s.to {
				a.fail("attempt %d began at %v, and the breaker was open from %v to %v", a.number, a.began, s.from, s.to)
			}
		}
	}
}

// checkWarnings checks that nothing was logged as a failed attempt that is none.
func (w *world) checkWarnings() {
	failed := 0
	for _, a := range w.attempts {
		if a.err != nil || a.lost != "" {
			failed++
		}
	}
	for _, it := range w.items {
		if it.hookExit {
			failed++
		}
	}
	if n := int(w.warnings.Load()); n > failed {
		w.fail("%d failed attempts were logged, of %d", n, failed)
	}
}
