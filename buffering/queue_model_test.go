package buffering_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-go/penstock/buffering"
	"pgregory.net/rapid"
)

// Any sequence of operations leaves the queue where the slow model says: who was accepted, with which number, who waits,
// who got what.
func TestQueueModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if err := playQueue(t, script(rt)); err != nil {
			rt.Fatal(err)
		}
	})
}

func FuzzQueue(f *testing.F) {
	// One in, one waits, two out.
	f.Add([]byte{0, 0, 0, 0, 0, 11, 0, 11, 0})
	// Priorities against the order of admission.
	f.Add([]byte{1, 4, 3, 4, 1, 4, 0, 0, 0, 11, 0, 11, 0, 11, 0})
	// The middle one of three that wait gives up.
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 11, 0, 11, 0})
	// Takers come late.
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 14, 2, 11, 0})
	// Idle takers at a close.
	f.Add([]byte{3, 11, 0, 11, 0, 0, 0, 15, 0, 0, 0})
	// Abandoned with some waiting.
	f.Add([]byte{2, 0, 0, 4, 0, 0, 0, 0, 0, 15, 40, 0, 0, 11, 0})
	// A feeder and others.
	f.Add([]byte{3, 7, 0, 7, 0, 7, 0, 7, 0, 7, 0, 0, 0, 11, 0, 11, 0, 11, 0, 11, 0, 0, 0, 15, 0})
	// Batches.
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11, 3, 11, 7})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 400 {
			t.Skip("long sequences only repeat what short ones do")
		}
		if err := playQueue(t, script); err != nil {
			t.Fatal(err)
		}
	})
}

// script draws what a fuzzer would give: some bytes, of which any sequence is a valid one.
func script(rt *rapid.T) []byte {
	n := rapid.IntRange(0, 150).Draw(rt, "length")
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(rt, "script")
}

// playQueue plays a script on a queue and on the model, and compares them after each step, when everybody who is not
// waiting has come to rest. The first byte is the capacity, then each step is two bytes, a kind and an argument.
func playQueue(t *testing.T, script []byte) (err error) {
	if len(script) == 0 {
		return nil
	}
	capacity := int(script[0])%6 + 1
	if capacity == 6 {
		capacity = math.MaxInt
	}
	synctest.Test(t, func(*testing.T) {
		g := &queueGame{
			queue: buffering.NewQueue[int](capacity),
			model: queueModel{capacity: capacity, refusal: buffering.ErrClosed},
		}
		defer g.leave()
		for steps := script[1:]; len(steps) >= 2 && err == nil; steps = steps[2:] {
			g.step(steps[0], int(steps[1]))
			err = g.check()
		}
		if err == nil {
			g.abandon()
			err = cmp.Or(g.check(), g.balance())
		}
		if err != nil {
			err = fmt.Errorf("capacity %d: %s: %w", capacity, strings.Join(g.steps, ", "), err)
		}
	})
	return err
}

// A job is an item as it was handed out: who it is and which number it got.
type job struct{ id, number int }

// A pushCall is one call of Push: what came of it, and what the model says must have.
type pushCall struct {
	id, priority int
	feed         bool
	ctx          context.Context
	cancel       context.CancelFunc

	done   bool
	number int
	err    error

	settled    bool // the answer is known
	kept       bool // but may be kept back, as the queue is not half empty yet
	wantNumber int
	wantErr    error
}

func (p *pushCall) settle(number int, err error) {
	p.settled, p.wantNumber, p.wantErr = true, number, err
}

// A takeCall is one call of Take that may have to wait.
type takeCall struct {
	got  []job
	done bool
	seen bool
}

// queueModel is a queue written to be obviously right: everything in one slice, sorted anew at each arrival.
type queueModel struct {
	capacity        int
	stored          []*pushCall // in the order in which they will be taken
	waiting         []*pushCall // in the order in which they will be admitted
	fed             []*pushCall // admitted after a wait, and their feeders not told yet, perhaps
	idle            int
	recruits        int
	closed          bool
	refusal         error
	accepted, taken int
	handed, started []int // ids, in order, that went to takers who waited and to recruits
}

func (m *queueModel) push(p *pushCall) {
	switch {
	case p.ctx.Err() != nil:
		p.settle(0, p.ctx.Err())
	case m.closed:
		p.settle(0, m.refusal)
	case len(m.stored) < m.capacity:
		m.accept(p)
	default:
		m.waiting = append(m.waiting, p)
	}
}

func (m *queueModel) accept(p *pushCall) {
	p.settle(m.accepted, nil)
	m.accepted++
	switch {
	case m.idle > 0:
		m.idle--
		m.taken++
		m.handed = append(m.handed, p.id)
	case m.recruits > 0:
		m.recruits--
		m.taken++
		m.started = append(m.started, p.id)
	default:
		m.stored = append(m.stored, p)
		slices.SortStableFunc(m.stored, func(a, b *pushCall) int { return cmp.Compare(a.priority, b.priority) })
	}
}

// pop takes the first stored item and lets the first who waits into its place.
func (m *queueModel) pop() int {
	p := m.stored[0]
	m.stored = m.stored[1:]
	m.taken++
	if len(m.waiting) > 0 {
		next := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.accept(next)
		if next.feed {
			next.kept = true
			m.fed = append(m.fed, next)
		}
	}
	if len(m.stored) <= m.capacity/2 {
		m.tellFed()
	}
	return p.id
}

func (m *queueModel) tellFed() {
	for _, p := range m.fed {
		p.kept = false
	}
	m.fed = nil
}

func (m *queueModel) cancel(p *pushCall) {
	i := slices.Index(m.waiting, p)
	m.waiting = slices.Delete(m.waiting, i, i+1)
	p.settle(0, context.Canceled)
}

// take returns what a taker gets, and whether it gets an answer at all.
func (m *queueModel) take(most, shares int) (ids []int, ok bool) {
	if len(m.stored) == 0 {
		if !m.closed {
			m.idle++
		}
		return nil, m.closed
	}
	for range min(most, max(1, len(m.stored)/shares)) {
		ids = append(ids, m.pop())
	}
	return ids, true
}

func (m *queueModel) recruit(n int) {
	m.recruits = 0 // while stored items are started, those who are let in queue behind them
	for n > 0 && len(m.stored) > 0 {
		n--
		m.started = append(m.started, m.pop())
	}
	m.recruits = n
}

func (m *queueModel) close(err error) {
	if m.closed {
		return
	}
	m.closed = true
	if err != nil {
		m.refusal = err
	}
	for _, p := range m.waiting {
		p.settle(0, m.refusal)
	}
	m.waiting, m.idle = nil, 0
	m.tellFed()
}

func (m *queueModel) abandon(err error) (ids []int) {
	m.close(err)
	if err != nil {
		m.refusal = err
	}
	for _, p := range m.stored {
		ids = append(ids, p.id)
	}
	m.stored = nil
	return ids
}

// queueGame plays on both.
type queueGame struct {
	queue *buffering.Queue[int]
	model queueModel
	steps []string

	pushes  []*pushCall
	takes   []*takeCall
	out     []job // everything that was handed out by Take, Recruit and Abandon
	started []int
	err     error // the first difference found within a step
}

func (g *queueGame) step(kind byte, arg int) {
	switch kind % 16 {
	default: // 0 to 3
		g.push(0, context.Background())
	case 4, 5, 6:
		g.push(arg%5-2, context.Background())
	case 7:
		g.feed(max(0, arg%8-5))
	case 8:
		g.push(arg%5-2, ended())
	case 9, 10:
		if n := len(g.model.waiting); n > 0 && !g.model.waiting[arg%n].feed {
			g.cancel(g.model.waiting[arg%n])
		}
	case 11, 12, 13:
		g.take(1+arg%4, 1+arg/4%3)
	case 14:
		g.recruit(arg % 4)
	case 15:
		switch arg / 32 {
		case 0:
			g.say("close(%v)", error(nil))
			g.model.close(nil)
			g.queue.Close(nil)
		case 1:
			g.abandon()
		case 2:
			g.say("close(%v)", errOver)
			g.model.close(errOver)
			g.queue.Close(errOver)
		}
	}
	synctest.Wait()
}

func (g *queueGame) say(format string, args ...any) {
	g.steps = append(g.steps, fmt.Sprintf(format, args...))
}

func (g *queueGame) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

func (g *queueGame) push(priority int, parent context.Context) {
	p := &pushCall{id: len(g.pushes), priority: priority}
	p.ctx, p.cancel = context.WithCancel(parent)
	g.say("push(%d, priority %d, %v)", p.id, priority, p.ctx.Err())
	g.pushes = append(g.pushes, p)
	g.model.push(p)
	go func() {
		p.number, p.err = g.queue.Push(p.ctx, p.id, priority)
		p.done = true
	}()
}

func (g *queueGame) feed(priority int) {
	p := &pushCall{id: len(g.pushes), priority: priority, feed: true, ctx: context.Background(), cancel: func() {}}
	g.say("feed(%d, priority %d)", p.id, priority)
	g.pushes = append(g.pushes, p)
	g.model.push(p)
	go func() {
		p.err = g.queue.Feed(p.id, priority)
		p.done = true
	}()
}

func (g *queueGame) cancel(p *pushCall) {
	g.say("cancel(%d)", p.id)
	g.model.cancel(p)
	p.cancel()
}

func (g *queueGame) take(most, shares int) {
	g.say("take(%d of %d)", most, shares)
	want, answered := g.model.take(most, shares)
	c := &takeCall{}
	g.takes = append(g.takes, c)
	go func() {
		n := g.queue.Take(most, shares, func(id *int, number int) { c.got = append(c.got, job{*id, number}) })
		if n != len(c.got) {
			g.fail("Take = %d for %v", n, c.got)
		}
		c.done = true
	}()
	synctest.Wait()
	if c.done != answered {
		g.fail("Take came back: %v, want %v", c.done, answered)
	} else if got := ids(c.got); answered && !slices.Equal(got, want) {
		g.fail("took %v, want %v", got, want)
	}
	if c.done {
		c.seen = true
		g.out = append(g.out, c.got...)
	}
}

func (g *queueGame) recruit(n int) {
	g.say("recruit(%d)", n)
	g.model.recruit(n)
	g.queue.Recruit(n, func(id *int, number int) {
		g.started = append(g.started, *id)
		g.out = append(g.out, job{*id, number})
	})
}

func (g *queueGame) abandon() {
	g.say("abandon")
	want := g.model.abandon(errGone)
	var got []int
	g.queue.Abandon(errGone, func(id *int, number int) {
		got = append(got, *id)
		g.out = append(g.out, job{*id, number})
	})
	if !slices.Equal(got, want) {
		g.fail("abandoned %v, want %v", got, want)
	}
	synctest.Wait()
}

// check compares the queue with the model.
func (g *queueGame) check() error {
	for _, p := range g.pushes {
		if p.feed {
			p.number = p.wantNumber // Feed does not tell
		}
		switch {
		case p.done != p.settled && !p.kept:
			g.fail("Push of %d came back: %v, want %v", p.id, p.done, p.settled)
		case p.done && (p.number != p.wantNumber || !errors.Is(p.err, p.wantErr) || !errors.Is(p.wantErr, p.err)):
			g.fail("Push of %d = %d, %v, want %d, %v", p.id, p.number, p.err, p.wantNumber, p.wantErr)
		}
	}
	// Which of several idle takers gets an item is nobody's business.
	var handed []int
	idle := 0
	for _, c := range g.takes {
		if !c.done {
			idle++
		} else if !c.seen {
			c.seen = true
			handed = append(handed, ids(c.got)...)
			g.out = append(g.out, c.got...)
		}
	}
	slices.Sort(handed)
	slices.Sort(g.model.handed)
	if !slices.Equal(handed, g.model.handed) {
		g.fail("idle takers got %v, want %v", handed, g.model.handed)
	}
	g.model.handed = nil
	if idle != g.model.idle {
		g.fail("%d takers wait, want %d", idle, g.model.idle)
	}
	if !slices.Equal(g.started, g.model.started) {
		g.fail("started with %v, want %v", g.started, g.model.started)
	}
	if accepted, taken := g.queue.Counts(); accepted != g.model.accepted || taken != g.model.taken {
		g.fail("%d accepted and %d taken, want %d and %d", accepted, taken, g.model.accepted, g.model.taken)
	}
	return g.err
}

// balance says, without the model, that what was accepted came out exactly once, under its own number, and nothing else.
func (g *queueGame) balance() error {
	accepted := 0
	for _, p := range g.pushes {
		if p.done && p.err == nil {
			accepted++
		}
	}
	if len(g.out) != accepted {
		return fmt.Errorf("%d accepted, %d handed out", accepted, len(g.out))
	}
	slices.SortFunc(g.out, func(a, b job) int { return cmp.Compare(a.number, b.number) })
	seen := map[int]bool{}
	for number, j := range g.out {
		if p := g.pushes[j.id]; seen[j.id] || j.number != number || p.err != nil || p.number != number {
			return fmt.Errorf("%d came out as number %d, the %d. in order; Push = %d, %v", j.id, j.number, number, p.number, p.err)
		}
		seen[j.id] = true
	}
	return nil
}

// leave lets everybody go whatever happened, so that the bubble can end.
func (g *queueGame) leave() {
	for _, p := range g.pushes {
		p.cancel()
	}
	g.queue.Abandon(errGone, func(*int, int) {})
	synctest.Wait()
}

func ids(jobs []job) []int {
	out := make([]int, len(jobs))
	for i, j := range jobs {
		out[i] = j.id
	}
	return out
}
