package limitertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// A fault is what is wrong with a model.
type fault string

const (
	sound fault = ""

	deadGranted    fault = "grants an ended context if there is room"
	deadUses       fault = "takes from an ended context, and refuses"
	deadWaits      fault = "an ended context is noticed only at the time of the grant"
	deafHead       fault = "the head of the line does not hear its context"
	deafMiddle     fault = "those behind the head do not hear their contexts"
	slowToLeave    fault = "takes its time to return"
	ownError       fault = "has an error of its own for an ended context"
	onlyCause      fault = "returns the cause alone"
	blamesRequest  fault = "an ended context is ErrNeverGranted"
	noRearm        fault = "does not set the timer when the head leaves"
	zombies        fault = "those who left still get their turn"
	costsTail      fault = "the last in line pays when it leaves"
	lostAtGrant    fault = "a grant that meets the end of the context is lost"
	twiceAtGrant   fault = "a grant that meets the end of the context is made and given back"
	lostInPassing  fault = "a context that ends during a fast grant takes it along"
	countsAhead    fault = "a deadline is hopeless because of those ahead"
	hopelessUses   fault = "a hopeless deadline uses something up"
	hopelessError  fault = "a hopeless deadline has an error of its own"
	hopelessLate   fault = "a hopeless deadline is noticed only at the time of the grant"
	hopelessAgain  fault = "a hopeless deadline is refused every other time"
	tooEarly       fault = "a deadline just after the grant is hopeless"
	lastFirst      fault = "the last comes first"
	anyOrder       fault = "any order"
	barges         fault = "newcomers do not look at the line"
	smallFirst     fault = "small costs pass by large ones"
	zeroIsZero     fault = "a cost of zero is zero"
	negativeGives  fault = "a negative cost fills the bucket"
	negativeError  fault = "a negative cost has an error of its own"
	negativeUses   fault = "a negative cost is refused, and counted"
	hugeWaits      fault = "a cost above the burst waits for ever"
	refusalEnded   fault = "a refusal looks like the end of the context"
	hugeInTurn     fault = "a cost above the burst is refused when it is its turn"
	hugeWraps      fault = "sums wrap around"
	checksThenActs fault = "looks, and takes later"
	wearsOut       fault = "lets everybody go after a hundred calls"
	shrinks        fault = "each debt makes the bucket smaller for good"
	leavesWatcher  fault = "each waiter has a goroutine that goes on"
	lostWakeUp     fault = "only every other waiter is woken"
	ownFailure     fault = "fails now and then"

	tryWaitsLong   fault = "TryAcquire waits"
	tryOvertakes   fault = "TryAcquire does not look at the line"
	tryUsesUp      fault = "a refused TryAcquire is counted"
	tryTimid       fault = "TryAcquire keeps the last token"
	tryGrantsLater fault = "TryAcquire grants, and says when to come back"
	tryStrict      fault = "TryAcquire is a nanosecond late"
	tryGenerous    fault = "TryAcquire grants what is nearly due"
	tryZero        fault = "retryAfter is zero"
	tryRoundsUp    fault = "retryAfter is in milliseconds"
	tryRoundsDown  fault = "retryAfter is a bit too short"
	tryAlone       fault = "retryAfter does not count those ahead"
	tryThenTakes   fault = "TryAcquire looks, and takes later"
	tryNegative    fault = "TryAcquire of a negative cost says later"
	withinSlow     fault = "AcquireWithin waits before it refuses"
	withinLate     fault = "AcquireWithin grants too late"
	withinUsesUp   fault = "a refused AcquireWithin is counted"
	withinError    fault = "AcquireWithin says deadline exceeded"
	withinTimid    fault = "AcquireWithin refuses those who cannot wait"
	withinGuess    fault = "AcquireWithin is wrong about when"
	withinTired    fault = "AcquireWithin says deadline exceeded when it gives up"
	withinShort    fault = "AcquireWithin refuses what would be just in time"
	withinPatient  fault = "AcquireWithin waits on when it takes longer"
	withinOvertake fault = "AcquireWithin does not look at the line"
	withinDeaf     fault = "AcquireWithin does not hear its context"
	refundNothing  fault = "a refund does nothing"
	refundLater    fault = "a refund is noticed only at the next grant"
	refundNegative fault = "a negative actual cost is a debt"
	refundBeyond   fault = "refunds beyond the burst"
	debtNone       fault = "debts are forgiven"
	debtGives      fault = "debts are given"
	sameZero       fault = "Adjust takes a cost of zero for zero"
	adjustBlocks   fault = "Adjust waits"
	observeBlocks  fault = "Observe waits"
	panics         fault = "panics when somebody waits"
	exits          fault = "ends the goroutine of its caller"
)

// A model is a simple limiter, a token bucket of a burst, that obeys all the rules
// but for its fault.
type model struct {
	fault    fault
	interval time.Duration
	base     time.Time

	mu    sync.Mutex
	burst int
	tat   time.Duration // when the bucket will be full
	line  []*waiter
	timer *time.Timer
	calls int
}

type waiter struct {
	cost  int
	ready chan struct{}
	left  bool
	err   error
}

func newModel(f fault, burst int, interval time.Duration) *model {
	m := &model{fault: f, burst: burst, interval: interval, base: time.Now()}
	m.timer = time.AfterFunc(time.Hour, m.serve)
	m.timer.Stop()
	return m
}

func (m *model) is(f fault) bool    { return m.fault == f }
func (m *model) now() time.Duration { return time.Since(m.base) }
func (m *model) tokens(n int) time.Duration {
	if !m.is(hugeWraps) {
		most := 1 << 62 / int(m.interval)
		n = max(min(n, most), -most)
	}
	return time.Duration(n) * m.interval
}
func (m *model) due(after, cost int) (at time.Duration) {
	tat := max(m.tat, m.now())
	return tat + m.tokens(after) - m.tokens(m.burst-cost)
}

func (m *model) queued() (n int) {
	for _, w := range m.line {
		n += w.cost
	}
	return n
}

// room reports whether there is room for cost now.
func (m *model) room(cost int) bool { return m.due(0, cost) <= m.now() }

func (m *model) take(cost int) { m.tat = max(m.tat, m.now()) + m.tokens(cost) }

func (m *model) cost(req ratelimiter.Request) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cost := req.Cost
	refusal := &ratelimiter.CostError{Limit: "model", Cost: cost, Max: m.burst}
	switch {
	case cost == 0 && !m.is(zeroIsZero):
		return 1, nil
	case cost < 0 && m.is(negativeGives):
		return max(cost, -1000), nil
	case cost < 0 && m.is(negativeError):
		return 0, errors.New("negative")
	case cost < 0 && m.is(negativeUses):
		m.take(1)
		return 0, refusal
	case cost > m.burst && m.is(hugeWraps):
		return cost * 1000, nil
	case cost < 0 && m.is(refusalEnded):
		return 0, errors.Join(refusal, context.Canceled)
	case cost < 0, cost > m.burst && !m.is(hugeWaits) && !m.is(hugeInTurn):
		return 0, refusal
	}
	return cost, nil
}

func (m *model) Acquire(ctx context.Context, req ratelimiter.Request) error {
	return m.acquire(ctx, req, ratelimiter.Never, m.is(barges))
}

func (m *model) AcquireWithin(ctx context.Context, req ratelimiter.Request, most time.Duration) error {
	if m.is(withinDeaf) {
		ctx = context.WithoutCancel(ctx)
	}
	return m.acquire(ctx, req, max(most, 0), m.is(barges) || m.is(withinOvertake))
}

func (m *model) acquire(ctx context.Context, req ratelimiter.Request, most time.Duration, barge bool) error {
	if m.is(withinTimid) && most == 0 {
		return &ratelimiter.ExcessError{Limit: "model", RetryAfter: 1}
	}
	if ctx.Err() != nil && m.is(deadWaits) {
		m.mu.Lock()
		in := m.due(0, 1) - m.now()
		m.mu.Unlock()
		time.Sleep(max(in, time.Nanosecond))
	}
	if ctx.Err() != nil && !m.is(deadGranted) {
		if m.is(deadUses) {
			m.mu.Lock()
			m.take(1)
			m.mu.Unlock()
		}
		return m.ended(ctx)
	}
	cost, err := m.cost(req)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.calls++; m.is(ownFailure) && m.calls == 3 {
		m.mu.Unlock()
		return errors.New("model: out of order")
	}
	if m.is(wearsOut) && m.calls > 100 {
		m.mu.Unlock()
		return nil
	}
	if m.is(exits) && m.calls == 3 {
		m.mu.Unlock()
		runtime.Goexit()
	}
	if (len(m.line) == 0 || barge) && m.room(cost) {
		return m.fast(ctx, cost)
	}
	if err := m.refuse(ctx, cost, most); err != nil {
		m.mu.Unlock()
		if m.is(withinSlow) {
			time.Sleep(most)
		}
		return err
	}
	w := m.join(cost)
	m.mu.Unlock()
	return m.await(ctx, w, most)
}

// fast is called with the lock held.
func (m *model) fast(ctx context.Context, cost int) error {
	if m.is(checksThenActs) {
		m.later()
	}
	m.take(cost)
	m.mu.Unlock()
	if m.is(lostInPassing) {
		for range 20 {
			runtime.Gosched()
		}
		return ctx.Err()
	}
	return nil
}

// later lets others go first. It is called with the lock held.
func (m *model) later() {
	m.mu.Unlock()
	for range 20 {
		runtime.Gosched()
	}
	m.mu.Lock()
}

// refuse is called with the lock held.
func (m *model) refuse(ctx context.Context, cost int, most time.Duration) error {
	in := m.due(m.queued(), cost) - m.now()
	limit := most
	if m.is(withinLate) {
		limit = most + most/2 + 1
	}
	if m.is(withinShort) {
		limit--
	}
	if most != ratelimiter.Never && in > limit {
		if m.is(withinUsesUp) {
			m.take(1)
		}
		if m.is(withinError) {
			return context.DeadlineExceeded
		}
		if m.is(withinGuess) {
			in++
		}
		return &ratelimiter.ExcessError{Limit: "model", RetryAfter: in}
	}
	deadline, ok := ctx.Deadline()
	if !ok || m.is(hopelessLate) {
		return nil
	}
	ahead := 0
	if m.is(countsAhead) {
		ahead = m.queued()
	}
	in = m.due(ahead, cost) - m.now()
	if m.is(tooEarly) {
		in += 2
	}
	if in <= time.Until(deadline) || m.is(hopelessAgain) && m.calls%2 == 0 {
		return nil
	}
	if m.is(hopelessUses) {
		m.take(1)
	}
	if m.is(hopelessError) {
		return errors.New("model: hopeless")
	}
	return fmt.Errorf("model: hopeless: %w", context.DeadlineExceeded)
}

// join and arm are called with the lock held.
func (m *model) join(cost int) *waiter {
	if m.is(panics) && len(m.line) == 2 {
		m.mu.Unlock()
		panic("model: three in line")
	}
	w := &waiter{cost: cost, ready: make(chan struct{})}
	if m.is(lastFirst) {
		m.line = slices.Insert(m.line, 0, w)
	} else {
		m.line = append(m.line, w)
	}
	if m.is(leavesWatcher) {
		go time.Sleep(m.due(m.queued(), 0) - m.now())
	}
	m.arm()
	return w
}

func (m *model) arm() {
	if len(m.line) == 0 {
		m.timer.Stop()
		return
	}
	least := m.line[0].cost
	if m.is(hugeInTurn) && least > m.burst {
		least = m.burst - 1
	}
	if m.is(smallFirst) {
		for _, w := range m.line {
			least = min(least, w.cost)
		}
	}
	m.timer.Reset(m.due(0, least) - m.now())
}

// serve grants what can be granted now.
func (m *model) serve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.line) > 0 {
		i := 0
		if m.is(anyOrder) {
			i = rand.IntN(len(m.line))
		}
		if m.is(smallFirst) {
			i = max(slices.IndexFunc(m.line, func(w *waiter) bool { return m.room(w.cost) }), 0)
		}
		w := m.line[i]
		switch {
		case m.is(hugeInTurn) && w.cost > m.burst:
			w.err = &ratelimiter.CostError{Limit: "model", Cost: w.cost, Max: m.burst}
		case !m.room(w.cost):
			m.arm()
			return
		default:
			m.take(w.cost)
		}
		m.line = slices.Delete(m.line, i, i+1)
		w.left = true
		close(w.ready)
		if m.is(lostWakeUp) && len(m.line) > 0 && i == 0 {
			return
		}
	}
	m.arm()
}

func (m *model) await(ctx context.Context, w *waiter, most time.Duration) error {
	var tired <-chan time.Time
	if most != ratelimiter.Never && !m.is(withinPatient) && !m.is(withinLate) {
		timer := time.NewTimer(most)
		defer timer.Stop()
		tired = timer.C
	}
	done := ctx.Done()
	m.mu.Lock()
	head := len(m.line) > 0 && m.line[0] == w
	m.mu.Unlock()
	if m.is(deafHead) && head || m.is(deafMiddle) && !head {
		done = nil
	}
	select {
	case <-w.ready:
		return w.err
	case <-tired:
		m.serve() // that may be the very instant of the grant
		if m.leave(w) {
			if m.is(withinTired) {
				return context.DeadlineExceeded
			}
			return &ratelimiter.ExcessError{Limit: "model", RetryAfter: 1}
		}
		<-w.ready
		return w.err
	case <-done:
		if m.is(slowToLeave) {
			time.Sleep(time.Nanosecond)
		}
		if !m.leave(w) {
			switch {
			case m.is(lostAtGrant):
				return m.ended(ctx)
			case m.is(twiceAtGrant):
				m.mu.Lock()
				m.tat -= m.tokens(w.cost)
				m.mu.Unlock()
				m.serve()
			}
			return w.err
		}
		return m.ended(ctx)
	}
}

func (m *model) ended(ctx context.Context) error {
	switch {
	case m.is(ownError):
		return errors.New("model: gave up")
	case m.is(onlyCause):
		return context.Cause(ctx)
	case m.is(blamesRequest):
		return errors.Join(ctx.Err(), ratelimiter.ErrNeverGranted)
	}
	return fmt.Errorf("model: %w", ctx.Err())
}

// leave takes w out of the line and reports whether it was still in it.
func (m *model) leave(w *waiter) bool {
	m.mu.Lock()
	if w.left {
		m.mu.Unlock()
		return false
	}
	i := slices.Index(m.line, w)
	if m.is(zombies) {
		m.mu.Unlock()
		return true
	}
	if m.is(costsTail) && i > 0 && i == len(m.line)-1 {
		m.take(w.cost)
	}
	m.line = slices.Delete(m.line, i, i+1)
	if m.is(noRearm) && i == 0 {
		m.timer.Stop()
		m.mu.Unlock()
		return true
	}
	m.mu.Unlock()
	m.serve()
	return true
}

func (m *model) TryAcquire(req ratelimiter.Request) (ok bool, in time.Duration) {
	cost, err := m.cost(req)
	if err != nil && !m.is(tryNegative) || m.is(hugeInTurn) && cost > m.burst {
		return false, ratelimiter.Never
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	room := m.room(cost)
	switch {
	case m.is(tryTimid) && m.due(0, cost+1) > m.now(), m.is(tryStrict) && m.due(0, cost) == m.now():
		room = false
	case m.is(tryGenerous) && m.due(0, cost) <= m.now()+10:
		room = true
	}
	if (len(m.line) == 0 || m.is(tryOvertakes)) && room {
		if m.is(tryThenTakes) {
			m.later()
		}
		m.take(cost)
		if m.is(tryGrantsLater) {
			return true, m.interval
		}
		return true, 0
	}
	if m.is(tryUsesUp) {
		m.take(1)
	}
	ahead := m.queued()
	if m.is(tryAlone) {
		ahead = 0
	}
	in = max(m.due(ahead, cost)-m.now(), 1)
	switch {
	case m.is(tryWaitsLong):
		m.mu.Unlock()
		time.Sleep(time.Nanosecond)
		m.mu.Lock()
	case m.is(tryZero):
		in = 0
	case m.is(tryRoundsUp):
		in = (in/time.Millisecond + 1) * time.Millisecond
	case m.is(tryRoundsDown):
		in--
	}
	return false, in
}

func (m *model) Adjust(req ratelimiter.Request, actual int) {
	cost := max(req.Cost, 1)
	if m.is(sameZero) {
		cost = req.Cost
	}
	if actual < 0 && m.is(refundNegative) {
		actual = -actual
	}
	actual = max(actual, 0)
	more := actual - cost
	switch {
	case more < 0 && m.is(refundNothing), more > 0 && m.is(debtNone):
		return
	case more > 0 && m.is(debtGives):
		more = -more
	}
	if m.is(adjustBlocks) {
		time.Sleep(time.Nanosecond)
	}
	m.mu.Lock()
	if more > 0 {
		m.take(more)
		if m.is(shrinks) && m.burst > 1 {
			m.burst--
		}
	} else {
		if m.is(refundBeyond) && m.tat <= m.now() {
			m.burst -= more
		}
		m.tat = max(m.tat, m.now()) + m.tokens(more)
	}
	m.mu.Unlock()
	if !m.is(refundLater) {
		m.serve()
	}
}

func (m *model) Observe(ratelimiter.Request, error) {
	if m.is(observeBlocks) {
		time.Sleep(time.Nanosecond)
	}
}

// The following are broken by their nature.

// booker books a slot when a caller begins to wait, and does not, or only for the
// newest, take it back.
type booker struct {
	mu       sync.Mutex
	interval time.Duration
	next     time.Time
	giveBack bool
}

func (b *booker) Acquire(ctx context.Context, req ratelimiter.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cost := time.Duration(max(req.Cost, 1))
	if req.Cost < 0 || cost > 1000 {
		return ratelimiter.ErrNeverGranted
	}
	b.mu.Lock()
	slot := b.next
	if now := time.Now(); slot.Before(now) {
		slot = now
	}
	after := slot.Add(cost * b.interval)
	b.next = after
	b.mu.Unlock()
	timer := time.NewTimer(time.Until(slot))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		b.mu.Lock()
		if b.giveBack && b.next.Equal(after) {
			b.next = slot
		}
		b.mu.Unlock()
		return ctx.Err()
	}
}

// spinner waits without waiting, until it is told to stop.
type spinner struct {
	base  time.Time
	stop  *atomic.Bool
	polls time.Duration // sleeps for so long between looks; 0: not at all
	first atomic.Bool
}

func (s *spinner) Acquire(ctx context.Context, _ ratelimiter.Request) error {
	if s.first.CompareAndSwap(false, true) {
		return ctx.Err()
	}
	for ctx.Err() == nil && time.Since(s.base) < time.Hour && !s.stop.Load() {
		if s.polls > 0 {
			time.Sleep(s.polls)
		} else {
			runtime.Gosched()
		}
	}
	return ctx.Err()
}

// locker keeps its lock while it waits. The lock is a channel made outside of the
// bubble, which is as invisible there as a mutex, but lets the test clean up.
type locker struct {
	lock     chan struct{}
	interval time.Duration
}

func (l *locker) Acquire(ctx context.Context, _ ratelimiter.Request) error {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	timer := time.NewTimer(l.interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unlock lets everybody through until done is closed.
func unlock(lock chan struct{}, done <-chan struct{}) {
	for {
		select {
		case lock <- struct{}{}:
		case <-lock:
		case <-done:
			return
		}
	}
}

// keeper is sound but for a goroutine that it keeps until it is closed.
type keeper struct {
	*model
	closed chan struct{}
}

func newKeeper() *keeper {
	k := &keeper{model: newModel(sound, 3, time.Second), closed: make(chan struct{})}
	go k.keep()
	return k
}

func (k *keeper) keep()  { <-k.closed }
func (k *keeper) close() { close(k.closed) }

// hoarder keeps a goroutine that has nothing to do, for ever.
type hoarder struct{ *model }

func newHoarder() *hoarder {
	h := &hoarder{newModel(sound, 3, time.Second)}
	go hoard(make(chan struct{}))
	return h
}

func hoard(forever chan struct{}) { <-forever }

// dicer draws its delays at random, by one source for all limiters.
type dicer struct {
	slot chan struct{}
	rng  *rand.Rand
	leak bool // those who give up leave a delay behind
	debt int  // guarded by slot
}

func newDicer(rng *rand.Rand, leak bool) *dicer {
	d := &dicer{slot: make(chan struct{}, 1), rng: rng, leak: leak}
	d.slot <- struct{}{}
	return d
}

func (d *dicer) Acquire(ctx context.Context, req ratelimiter.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if req.Cost < 0 {
		return ratelimiter.ErrNeverGranted
	}
	select {
	case <-d.slot:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.slot <- struct{}{} }()
	timer := time.NewTimer(time.Duration((d.rng.Float64() + float64(d.debt)) * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
		d.debt = 0
		return nil
	case <-ctx.Done():
		if d.leak {
			d.debt++
		}
		return ctx.Err()
	}
}

// trier is a dicer that can be asked not to wait for long.
type trier struct{ *dicer }

func (t *trier) TryAcquire(req ratelimiter.Request) (bool, time.Duration) {
	if req.Cost < 0 {
		return false, ratelimiter.Never
	}
	return false, time.Second / 2
}

func (t *trier) AcquireWithin(ctx context.Context, req ratelimiter.Request, most time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if ctx.Err() == nil && limited.Err() != nil && req.Cost >= 0 {
		return &ratelimiter.ExcessError{RetryAfter: time.Second / 2}
	}
	err := t.Acquire(limited, req)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return &ratelimiter.ExcessError{RetryAfter: time.Second / 2}
	}
	return err
}
