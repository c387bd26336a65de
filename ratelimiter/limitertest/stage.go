package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// never is the instant of a grant that did not come.
const never time.Duration = math.MaxInt64

// A stage is a bubble with a fresh limiter in it, and the callers that ask it.
// They are started one after the other, each when the one before has got as far
// as it gets, so that their order of arrival is known.
//
// All instants are counted from the start of the bubble.
type stage struct {
	*run
	l     ratelimiter.Limiter
	made  []ratelimiter.Limiter
	try   ratelimiter.TryAcquirer // nil if it is none
	adj   ratelimiter.Adjuster    // nil if it is none
	obs   ratelimiter.Observer    // nil if it is none
	start time.Time
	until time.Duration // nobody is awaited for longer
	calls []*call
	next  int      // number of the next caller
	blame *finding // what it means if the limiter is not as it was

	cut  bool // the check cannot go on
	left bool // callers are left that will never return

	// For the watch, which is outside of the bubble.
	steps     atomic.Uint64
	abandoned atomic.Bool
	mark      atomic.Value // string
	doing     atomic.Value // string
}

// live is the whole life of the bubble.
func (s *stage) live(f func(*stage)) {
	s.mark.Store(thisBubble())
	s.start = time.Now()
	s.until = s.profile.horizon()
	defer s.finish()
	defer s.recover()
	s.l = s.fresh()
	if t, ok := ratelimiter.AsTryAcquirer(s.l); ok {
		s.try = t
	}
	if a, ok := ratelimiter.AsAdjuster(s.l); ok {
		s.adj = a
	}
	s.obs, _ = s.l.(ratelimiter.Observer)
	f(s)
}

// recover reports a panic in a function of the user's.
func (s *stage) recover() {
	if v := recover(); v != nil && v != (stopped{}) {
		s.report(basics, "%v panicked: %v\n%s", s.doing.Load(), v, debug.Stack())
		s.cut = true
	}
}

// fresh calls the function of the user's.
func (s *stage) fresh() ratelimiter.Limiter {
	s.does("the function that makes the limiter")
	l := s.newLimiter()
	if l == nil {
		s.fatal(basics, "newLimiter returned nil.")
	}
	s.made = append(s.made, l)
	return l
}

// finish sends everybody home, and looks for those who do not go.
func (s *stage) finish() {
	for _, c := range s.calls {
		c.cancel()
	}
	s.settle()
	s.stragglers()
	s.close()
	if !s.profiled {
		// Later checks rely on the runtime, which lets no bubble end with
		// goroutines in it.
		s.leaks(goroutines(s.id()), "at the instant at which all callers had returned")
	}
	if s.leaking {
		time.Sleep(s.profile.last()) // so that they end if all they need is time
	}
}

// stragglers reports callers that have not returned, unless it is clear already
// that something is wrong, and waits for them.
func (s *stage) stragglers() {
	var late []*call
	for _, c := range s.calls {
		if !c.back() {
			late = append(late, c)
		}
	}
	if len(late) == 0 {
		return
	}
	if !s.cut {
		s.cut = true
		s.report(rule2, "At the end of the check all contexts were cancelled, but %d of %d callers did not return, the first "+
			"of them %s:\n%s",
			len(late), len(s.calls), late[0], describe(goroutines(s.id())))
	}
	for _, c := range late {
		s.left = !s.await(c) || s.left
	}
}

// close closes all limiters, if there is a function for it.
func (s *stage) close() {
	if s.closer == nil {
		return
	}
	defer s.recover()
	s.does("the function of WithClose")
	for _, l := range s.made {
		s.closer(l)
	}
	s.settle()
}

func (s *stage) id() string { return s.mark.Load().(string) }

// does notes what is going on, for those who watch.
func (s *stage) does(what string) {
	s.doing.Store(what)
	s.steps.Add(1)
}

// busy says what keeps the bubble from coming to rest.
func (s *stage) busy() string {
	what, _ := s.doing.Load().(string)
	what = "The last that was begun is " + what + "."
	mark, _ := s.mark.Load().(string)
	if mark == "" {
		return what
	}
	var busy []goroutine
	for _, g := range goroutines(mark) {
		if !strings.Contains(g.header, "(durable)") {
			busy = append(busy, g)
		}
	}
	if len(busy) == 0 {
		return what + " All goroutines are blocked at this moment: something polls, so often that waiting takes for ever."
	}
	return what + " Time in a synctest bubble stands still while a goroutine spins, or waits for something that the bubble " +
		"does not see, such as a lock, I/O, or a channel or timer made outside of it. These are not at rest:\n" + describe(busy)
}

// report notes a finding, unless the bubble has been given up.
func (s *stage) report(broken rule, format string, args ...any) {
	if !s.abandoned.Load() {
		s.add(broken, format, args...)
	}
}

// fatal is report for what leaves no sense in going on.
func (s *stage) fatal(broken rule, format string, args ...any) {
	s.report(broken, format, args...)
	s.cut = true
	panic(stopped{})
}

// now is the instant.
func (s *stage) now() time.Duration { return time.Since(s.start) }

// settle lets everybody get as far as they get without time passing.
func (s *stage) settle() {
	synctest.Wait()
	s.steps.Add(1)
}

// sleepUntil lets time pass, until the instant at.
func (s *stage) sleepUntil(at time.Duration) {
	time.Sleep(at - s.now())
	s.steps.Add(1)
}

// A call is a caller on its way through a method that may wait.
type call struct {
	i      int // number of the request
	req    ratelimiter.Request
	what   string
	ctx    context.Context
	cancel context.CancelFunc
	asked  time.Duration
	done   chan struct{}
	when   time.Duration // of its return; set before done is closed, like err
	err    error
}

func (c *call) String() string { return fmt.Sprintf("caller %d (%s at %v)", c.i, c.what, c.asked) }

// back reports whether the caller has come back.
func (c *call) back() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// granted is the instant of the grant, never if there was none.
func (c *call) granted() time.Duration {
	if c.back() && c.err == nil {
		return c.when
	}
	return never
}

// outcome is how it went, in words.
func (c *call) outcome() string {
	switch {
	case !c.back():
		return "still waits"
	case c.err == nil:
		return fmt.Sprintf("was granted at %v", c.when)
	}
	return fmt.Sprintf("was refused at %v: %v", c.when, c.err)
}

// A manner is how a caller asks. The zero manner is a plain Acquire.
type manner struct {
	ends     ending
	deadline time.Duration // the instant, if ends is byDeadline
	within   bool          // AcquireWithin
	most     time.Duration // its maxWait
	cost     *int          // instead of the request's
	at       time.Duration // asks then, by a timer of its own; 0: now
	ready    chan struct{} // asks when it is closed; nil: now
}

// An ending is how a context comes to its end.
type ending int

const (
	byCancel ending = iota
	byCause
	byDeadline
)

func (e ending) String() string {
	return [...]string{"was cancelled", "was cancelled with a cause", "had a deadline"}[e]
}

// forever is the manner of an AcquireWithin that waits as long as it takes.
var forever = manner{within: true, most: ratelimiter.Never}

func (m manner) what() string {
	what := "Acquire"
	if m.within {
		what = fmt.Sprintf("AcquireWithin %v", m.most)
		if m.most == ratelimiter.Never {
			what = "AcquireWithin Never"
		}
	}
	if m.cost != nil {
		what += fmt.Sprintf(" of cost %d", *m.cost)
	}
	return what
}

var errCause = errors.New("limitertest: a cause")

// context makes a context that ends in the given manner.
func (s *stage) context(m manner) (context.Context, context.CancelFunc) {
	switch m.ends {
	case byCause:
		ctx, cancel := context.WithCancelCause(context.Background())
		return ctx, func() { cancel(errCause) }
	case byDeadline:
		return context.WithDeadline(context.Background(), s.start.Add(m.deadline))
	}
	return context.WithCancel(context.Background())
}

// ask has the next caller ask, and lets it get as far as it gets.
func (s *stage) ask() *call { return s.askAs(manner{}) }

func (s *stage) askAs(m manner) *call {
	i := s.next
	s.next++
	req := s.request(i)
	if m.cost != nil {
		req.Cost = *m.cost
	}
	return s.askFor(i, req, m)
}

func (s *stage) askFor(i int, req ratelimiter.Request, m manner) *call {
	return s.begin(m.what(), i, req, m, func(ctx context.Context) error {
		if m.within {
			return s.try.AcquireWithin(ctx, req, m.most)
		}
		return s.l.Acquire(ctx, req)
	})
}

// begin starts f for a caller.
func (s *stage) begin(what string, i int, req ratelimiter.Request, m manner, f func(context.Context) error) *call {
	c := &call{i: i, req: req, what: what, asked: s.now(), done: make(chan struct{})}
	c.ctx, c.cancel = s.context(m)
	if m.at > 0 {
		c.asked = m.at
	}
	s.calls = append(s.calls, c)
	s.does(what)
	go func() {
		defer close(c.done)
		defer s.back(c)
		c.err = errNoReturn
		if m.ready != nil {
			<-m.ready
		}
		time.Sleep(m.at - s.now())
		c.err = f(c.ctx)
	}()
	if m.at == 0 && m.ready == nil {
		s.settle()
	}
	return c
}

var errNoReturn = errors.New("limitertest: the call did not return")

func (s *stage) back(c *call) {
	c.when = s.now()
	s.steps.Add(1)
	if v := recover(); v != nil {
		s.report(basics, "%s panicked: %v\n%s", c.what, v, debug.Stack())
		c.err = fmt.Errorf("panic: %v", v)
	} else if c.err == errNoReturn {
		s.report(basics, "%s ended its caller's goroutine instead of returning", c.what)
	}
}

// prompt calls f, a method that must not wait, in the name of a caller. It does
// not return if f waits.
func (s *stage) prompt(what string, broken rule, f func()) {
	c := s.begin(what, s.next, ratelimiter.Request{}, manner{}, func(context.Context) error { f(); return nil })
	if !c.back() {
		s.fatal(broken, "%s at %v has not returned while no time passed.", what, c.asked)
	}
	if c.err != nil {
		s.cut = true
		panic(stopped{})
	}
}

// tryFor is a TryAcquire.
func (s *stage) tryFor(req ratelimiter.Request) (ok bool, in time.Duration) {
	s.prompt("TryAcquire", tryWaits, func() { ok, in = s.try.TryAcquire(req) })
	return ok, in
}

// tryNext is a TryAcquire of the next caller, which is the next one again if it
// is refused.
func (s *stage) tryNext() (ok bool, in time.Duration) {
	if ok, in = s.tryFor(s.request(s.next)); ok {
		s.next++
	}
	return ok, in
}

// await waits for the caller to come back, but not for ever.
func (s *stage) await(c *call) bool {
	if !c.back() {
		t := time.NewTimer(max(s.until-s.now(), 0))
		defer t.Stop()
		select {
		case <-c.done:
		case <-t.C:
		}
	}
	return c.back()
}

// mustGrant is for callers that nothing keeps from being granted.
func (s *stage) mustGrant(c *call) {
	if c.err != nil {
		s.refused(c)
	}
}

// refused reports an error that there was no reason for.
func (s *stage) refused(c *call) {
	hint := ""
	if errors.Is(c.err, ratelimiter.ErrNeverGranted) {
		hint = "\nThe kit must ask for something that can be granted: see WithRequest."
	}
	s.fatal(rule6, "%s of %+v at %v, with a context that has not ended, was refused at %v: %v%s", c.what, c.req, c.asked,
		c.when, c.err, hint)
}

// instants waits for the callers, all of which should be granted, and returns
// when they were. Those that are nil are left out.
func (s *stage) instants(cs ...*call) (at []time.Duration) {
	for _, c := range cs {
		if c == nil {
			continue
		}
		if s.await(c) {
			s.mustGrant(c)
		}
		at = append(at, c.granted())
	}
	return at
}

// drain has n callers granted one after the other at this instant, as is known to
// be possible.
func (s *stage) drain(n int) {
	if n == 0 {
		return
	}
	count := 0
	var err error
	from, at := s.next, s.now()
	s.next += n
	c := s.begin("Acquire", from, s.request(from), manner{}, func(ctx context.Context) error {
		for ; count < n && err == nil && s.now() == at; count++ {
			err = s.l.Acquire(ctx, s.request(from+count))
		}
		return nil
	})
	if (!c.back() || err != nil) && s.blame != nil {
		s.fatal(s.blame.rule, "%s Of the first %d requests, which a fresh limiter grants without a wait, the %dth %s, error "+
			"%v.", s.blame.detail, n, count+1, c.outcome(), err)
	}
	if !c.back() || err != nil {
		s.fatal(basics, "%d requests were granted at once in one run, and in one just like it: request %d of them %s, error %v.\n"+
			"If the delays are drawn at random by intention, use the option Random.", n, count+1, c.outcome(), err)
	}
}

// fill has callers granted at this instant until one has to wait, and returns how
// many they were and the one that waits; nil if nobody had to.
func (s *stage) fill(most int) (n int, head *call) {
	var full atomic.Bool
	from := s.next
	head = s.begin("Acquire", from, s.request(from), manner{}, func(ctx context.Context) error {
		for n < most {
			if err := s.l.Acquire(ctx, s.request(from+n)); err != nil || full.Load() {
				return err
			}
			n++
		}
		return nil
	})
	full.Store(true)
	s.next = from + n + 1
	if !head.back() {
		head.i = from + n
		head.req = s.request(head.i)
		return n, head
	}
	s.mustGrant(head)
	return n, nil
}

// sameInstants reports a difference between two runs that should be alike. Of a
// limiter that promises no order only the instants count.
func (r *run) sameInstants(broken rule, got, want []time.Duration, story string, args ...any) {
	if r.random {
		got, want = lost(got), lost(want)
	} else if r.unordered {
		got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	}
	if slices.Equal(got, want) {
		return
	}
	r.add(broken, "%s\n%s", fmt.Sprintf(story, args...), difference(got, want))
}

// lost keeps of the instants only whether they came.
func lost(at []time.Duration) []time.Duration {
	at = slices.Clone(at)
	for i := range at {
		if at[i] != never {
			at[i] = 0
		}
	}
	return at
}

func difference(got, want []time.Duration) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	if i == len(got) && i == len(want) {
		return "They were: " + list(got, 0)
	}
	return fmt.Sprintf("They differ from number %d on.\n got: %s\nwant: %s", i+1, list(got, i), list(want, i))
}

// list shows instants, of many of them those around number i.
func list(at []time.Duration, i int) string {
	const most = 12
	from := max(min(i-most/2, len(at)-most), 0)
	to := min(from+most, len(at))
	var b strings.Builder
	if from > 0 {
		fmt.Fprintf(&b, "… (%d) ", from)
	}
	for j, t := range at[from:to] {
		if j > 0 {
			b.WriteString(", ")
		}
		b.WriteString(instant(t))
	}
	if to < len(at) {
		fmt.Fprintf(&b, " … (%d)", len(at)-to)
	}
	return b.String()
}

func instant(t time.Duration) string {
	if t == never {
		return "never"
	}
	return t.String()
}
