package buffering_test

import (
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

// Any sequence of operations leaves the buffer where the slow model says, and every item comes out once, in the order
// of the puts.
func TestResultsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if err := playResults(t, script(rt)); err != nil {
			rt.Fatal(err)
		}
	})
}

func FuzzResults(f *testing.F) {
	// One in, one writer waits, two out.
	f.Add([]byte{0, 0, 0, 0, 0, 4, 0, 4, 0})
	// Batches that fit in part, all taken at once.
	f.Add([]byte{1, 3, 6, 3, 2, 7, 0, 7, 0, 7, 0})
	// Three readers wait, the middle one gives up.
	f.Add([]byte{0, 4, 0, 4, 0, 4, 0, 6, 1, 3, 2})
	// The bound goes away under waiting writers.
	f.Add([]byte{2, 7, 0, 3, 5, 9, 0, 3, 2, 10, 0})
	// Closed under waiting readers.
	f.Add([]byte{1, 4, 0, 4, 0, 0, 0, 11, 0, 4, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 400 {
			t.Skip("long sequences only repeat what short ones do")
		}
		if err := playResults(t, script); err != nil {
			t.Fatal(err)
		}
	})
}

// playResults plays a script as playQueue does.
func playResults(t *testing.T, script []byte) (err error) {
	if len(script) == 0 {
		return nil
	}
	capacity := int(script[0])%6 + 1
	if capacity == 6 {
		capacity = math.MaxInt
	}
	synctest.Test(t, func(*testing.T) {
		g := &resultsGame{results: buffering.NewResults[int](capacity), capacity: capacity, limit: capacity}
		defer g.leave()
		for steps := script[1:]; len(steps) >= 2 && err == nil; steps = steps[2:] {
			g.step(steps[0], int(steps[1]))
			err = g.check()
		}
		if err == nil {
			err = g.finish()
		}
		if err != nil {
			err = fmt.Errorf("capacity %d: %s: %w", capacity, strings.Join(g.steps, ", "), err)
		}
	})
	return err
}

// A putCall is one call of Put.
type putCall struct {
	left int // of its items, how many the model has not let in yet
	done bool
}

// A readCall is one call of Next or TakeAll that may have to wait.
type readCall struct {
	all    bool
	cancel context.CancelFunc

	done  bool
	items []int
	ok    bool
	err   error

	settled   bool
	wantItems []int
	wantErr   error
}

func (c *readCall) settle(items []int, err error) {
	c.settled, c.wantItems, c.wantErr = true, items, err
}

// resultsGame plays on a buffer and on the model, which is: the items in it, then those that writers wait with, in one
// line, and the readers that wait, in another.
type resultsGame struct {
	results *buffering.Results[int]
	steps   []string
	puts    []*putCall
	reads   []*readCall
	spare   []int
	out     []int
	err     error

	capacity int
	limit    int   // on what is stored and lent
	lent     int   // to the caller of TakeAll
	next     int   // the next item to put: they count up
	stored   []int // in the buffer
	front    int   // so many of these are handed out in one go
	outside  []int // with writers
	readers  []*readCall
	lifted   bool
	closed   bool
}

func (g *resultsGame) step(kind byte, arg int) {
	switch kind % 12 {
	default: // 0, 1, 2
		g.put(1)
	case 3:
		g.put(arg % 7)
	case 4, 5:
		g.read(false)
	case 6:
		if len(g.readers) > 0 && !g.readers[0].all {
			g.cancel(g.readers[arg%len(g.readers)])
		}
	case 7, 8:
		g.read(true)
	case 9:
		if arg%4 == 0 {
			g.say("lift")
			g.lifted = true
			g.settle()
			g.results.Lift()
		}
	case 10:
		g.drain()
	case 11:
		// Closed means that nobody will put any more, so nobody may be at it.
		if arg%8 == 0 && len(g.outside) == 0 {
			g.close()
		}
	}
	synctest.Wait()
}

func (g *resultsGame) say(format string, args ...any) {
	g.steps = append(g.steps, fmt.Sprintf(format, args...))
}

func (g *resultsGame) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

func (g *resultsGame) put(n int) {
	if g.closed {
		return
	}
	items := make([]*int, n)
	for i := range items {
		items[i] = new(g.next)
		g.outside = append(g.outside, g.next)
		g.next++
	}
	g.say("put(%d)", n)
	p := &putCall{left: n}
	g.puts = append(g.puts, p)
	g.settle()
	go func() {
		g.results.Put(items)
		for _, item := range items {
			*item = -1 // they are the writer's again
		}
		p.done = true
	}()
}

// settle lets in what fits and serves who waits, item by item.
func (g *resultsGame) settle() {
	for len(g.outside) > 0 && (g.lifted || len(g.stored)+g.lent < g.limit) {
		item := g.outside[0]
		g.outside = g.outside[1:]
		for _, p := range g.puts {
			if p.left > 0 {
				p.left--
				break
			}
		}
		if len(g.readers) > 0 && !g.readers[0].all {
			g.readers[0].settle([]int{item}, nil)
			g.readers = g.readers[1:]
			continue
		}
		if g.front == len(g.stored) && g.front < g.capacity {
			g.front++
		}
		g.stored = append(g.stored, item)
	}
	if len(g.readers) > 0 && g.readers[0].all && len(g.stored) > 0 {
		g.readers[0].settle(g.take(g.front), nil)
		g.lent, g.readers = len(g.readers[0].wantItems), nil
		g.settle()
	}
}

// take takes n of the front items.
func (g *resultsGame) take(n int) (items []int) {
	items, g.stored = g.stored[:n:n], g.stored[n:]
	if g.front -= n; g.front == 0 {
		g.front = len(g.stored)
	}
	return items
}

func (g *resultsGame) read(all bool) {
	if len(g.readers) > 0 && (all || g.readers[0].all) {
		return // TakeAll is for one, and for nobody beside it
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &readCall{all: all, cancel: cancel}
	g.reads = append(g.reads, c)
	if all {
		g.lent, g.limit = 0, max(g.capacity, 2*g.capacity)
		g.settle() // what comes now stands behind what is there
	}
	switch {
	case len(g.stored) == 0 && g.closed:
		c.settle(nil, nil)
	case len(g.stored) == 0:
		g.readers = append(g.readers, c)
	case all:
		c.settle(g.take(g.front), nil)
		g.lent = len(c.wantItems)
	default:
		c.settle(g.take(1), nil)
	}
	g.settle()
	if all {
		g.say("take all")
		go g.takeAll(c)
		return
	}
	g.say("next")
	go func() {
		item, ok, err := g.results.Next(ctx)
		if ok {
			c.items = []int{item}
		}
		c.ok, c.err, c.done = ok, err, true
	}()
}

func (g *resultsGame) takeAll(c *readCall) {
	got := g.results.TakeAll(g.spare)
	c.items, c.ok, c.done = slices.Clone(got), got != nil, true
	clear(got)
	g.spare = got
}

func (g *resultsGame) cancel(c *readCall) {
	g.say("cancel a reader")
	i := slices.Index(g.readers, c)
	g.readers = slices.Delete(g.readers, i, i+1)
	c.settle(nil, context.Canceled)
	c.cancel()
}

func (g *resultsGame) close() {
	g.say("close")
	g.closed = true
	for _, c := range g.readers {
		c.settle(nil, nil)
	}
	g.readers = nil
	g.results.Close()
}

// drain takes at least what is there. What writers wait with may be counted as there or not.
func (g *resultsGame) drain() {
	g.say("drain")
	got := g.results.Drain()
	if rest := len(got) - len(g.stored); rest < 0 || rest > len(g.outside) {
		g.fail("drained %v of %v and %v", got, g.stored, g.outside)
		return
	}
	for len(got) > 0 {
		n := min(len(got), len(g.stored))
		if !slices.Equal(got[:n], g.stored[:n]) {
			g.fail("drained %v, want %v", got, g.stored)
			return
		}
		g.out = append(g.out, got[:n]...)
		got, g.stored, g.front = got[n:], g.stored[n:], 0
		g.front = min(len(g.stored), g.capacity)
		g.settle()
	}
	g.settle()
}

func (g *resultsGame) check() error {
	open := map[int]int{} // the items that each unfinished Put has left
	for i, p := range g.puts {
		if p.done != (p.left == 0) {
			open[i] = p.left
		}
	}
	if len(open) > 0 {
		g.fail("Puts do not stand where they should: left over %v", open)
	}
	for i, c := range g.reads {
		switch {
		case c.done != c.settled:
			g.fail("read %d came back: %v, want %v", i, c.done, c.settled)
		case !slices.Equal(c.items, c.wantItems) || c.ok != (len(c.wantItems) > 0) ||
			!errors.Is(c.err, c.wantErr) || !errors.Is(c.wantErr, c.err):
			g.fail("read %d got %v, %v, %v, want %v, %v", i, c.items, c.ok, c.err, c.wantItems, c.wantErr)
		}
	}
	if n := g.results.Len(); n != len(g.stored) || n+g.lent > g.limit && !g.lifted {
		g.fail("%d items in the buffer, want %d", n, len(g.stored))
	}
	return g.err
}

// finish empties the buffer and says, without the model, that everything came out once.
func (g *resultsGame) finish() error {
	g.lifted = true
	g.settle()
	g.results.Lift()
	synctest.Wait()
	g.close()
	g.drain()
	synctest.Wait()
	if err := g.check(); err != nil {
		return err
	}
	for _, c := range g.reads {
		g.out = append(g.out, c.items...)
	}
	slices.Sort(g.out)
	if len(g.out) != g.next || g.next > 0 && g.out[g.next-1] != g.next-1 || len(slices.Compact(g.out)) != g.next {
		return fmt.Errorf("%d put, out came %v", g.next, g.out)
	}
	return nil
}

// leave lets everybody go whatever happened, so that the bubble can end.
func (g *resultsGame) leave() {
	g.results.Lift()
	g.results.Close()
	for _, c := range g.reads {
		c.cancel()
	}
	synctest.Wait()
}
