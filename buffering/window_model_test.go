package buffering_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/penstock-go/penstock/buffering"
	"pgregory.net/rapid"
)

// In whatever order results come, they leave in the order of their numbers, as soon as that is possible, and no more
// items are open than the window has room for.
func TestWindowModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if err := playWindow(t, script(rt)); err != nil {
			rt.Fatal(err)
		}
	})
}

func FuzzWindow(f *testing.F) {
	// The second waits until the first is let go.
	f.Add([]byte{0, 0, 0, 0, 0, 3, 0, 6, 0, 8, 0})
	// Three in reverse.
	f.Add([]byte{2, 0, 5, 3, 2, 3, 1, 3, 0, 6, 0, 8, 9})
	// The reader comes first.
	f.Add([]byte{1, 6, 0, 0, 3, 3, 1, 3, 0, 8, 1, 8, 0})
	// Shut with somebody outside.
	f.Add([]byte{1, 0, 3, 0, 0, 0, 0, 10, 0, 3, 1, 3, 0, 11, 0})
	// Growth, without a bound.
	f.Add([]byte{7, 0, 9, 0, 9, 0, 9, 0, 9, 3, 39, 3, 17, 3, 16, 3, 0, 6, 0, 11, 0})
	// Growth, up to a bound.
	f.Add([]byte{6, 0, 9, 0, 9, 0, 9, 0, 9, 0, 9, 3, 39, 3, 33, 3, 31, 8, 5, 3, 0, 6})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 400 {
			t.Skip("long sequences only repeat what short ones do")
		}
		if err := playWindow(t, script); err != nil {
			t.Fatal(err)
		}
	})
}

// playWindow plays a script as playQueue does.
func playWindow(t *testing.T, script []byte) (err error) {
	if len(script) == 0 {
		return nil
	}
	size := []int{1, 2, 3, 5, 8, 17, 40, math.MaxInt}[script[0]%8]
	synctest.Test(t, func(*testing.T) {
		g := &windowGame{window: buffering.NewWindow[int](size), size: size}
		defer g.leave()
		for steps := script[1:]; len(steps) >= 2 && err == nil; steps = steps[2:] {
			g.step(steps[0], int(steps[1]))
			err = g.check()
		}
		if err == nil {
			err = g.finish()
		}
		if err != nil {
			err = fmt.Errorf("size %d: %s: %w", size, strings.Join(g.steps, ", "), err)
		}
	})
	return err
}

// An enterCall is one call of Enter.
type enterCall struct {
	done bool
	n    int

	settled bool
	want    int
}

// windowGame plays on a window and on the model, in which results are a set.
type windowGame struct {
	window  *buffering.Window[int]
	steps   []string
	enters  []*enterCall
	buf     []int
	got     []int // what the reader got, in its order
	reading bool
	err     error

	size     int
	entered  int
	released int
	missing  []int // numbers that entered and have no result yet
	waiting  []*enterCall
	shut     bool
	closed   bool
}

func (g *windowGame) step(kind byte, arg int) {
	switch kind % 12 {
	default: // 0, 1, 2
		g.enter(1 + arg%10)
	case 3, 4, 5:
		if len(g.missing) > 0 && !g.closed {
			g.put(g.missing[arg%len(g.missing)])
		}
	case 6, 7:
		g.read()
	case 8, 9:
		if held := len(g.got) - g.released; held > 0 {
			g.release(1 + arg%held)
		}
	case 10:
		if arg%8 == 0 {
			g.say("shut")
			g.shut = true
			for _, c := range g.waiting {
				c.settled = true
			}
			g.waiting = nil
			g.window.Shut()
		}
	case 11:
		if arg%8 == 0 {
			g.close()
		}
	}
	synctest.Wait()
}

func (g *windowGame) say(format string, args ...any) {
	g.steps = append(g.steps, fmt.Sprintf(format, args...))
}

func (g *windowGame) fail(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

func (g *windowGame) room() int { return g.size - (g.entered - g.released) }

func (g *windowGame) let(c *enterCall, n int) {
	c.settled, c.want = true, n
	for range n {
		g.missing = append(g.missing, g.entered)
		g.entered++
	}
}

func (g *windowGame) enter(most int) {
	g.say("enter(%d)", most)
	c := &enterCall{}
	g.enters = append(g.enters, c)
	switch {
	case g.shut:
		c.settled = true
	case g.room() > 0:
		g.let(c, min(most, g.room()))
	default:
		g.waiting = append(g.waiting, c)
	}
	go func() {
		c.n = g.window.Enter(most)
		c.done = true
	}()
}

func (g *windowGame) put(number int) {
	g.say("put(%d)", number)
	g.missing = slices.DeleteFunc(g.missing, func(n int) bool { return n == number })
	item := number
	g.window.Put(number, &item)
}

func (g *windowGame) read() {
	if g.reading {
		return
	}
	g.say("take")
	g.reading = true
	go func() {
		got := g.window.TakeReady(g.buf)
		g.got = append(g.got, got...)
		if got != nil {
			g.buf = got
		} else if !g.closed {
			g.fail("the reader was told the end before the window was closed")
		}
		g.reading = false
	}()
}

func (g *windowGame) release(n int) {
	g.say("release(%d)", n)
	g.released += n
	for len(g.waiting) > 0 && g.room() > 0 {
		g.let(g.waiting[0], 1)
		g.waiting = g.waiting[1:]
	}
	g.window.Release(n)
}

func (g *windowGame) close() {
	g.say("close")
	g.closed = true
	g.window.Close()
}

func (g *windowGame) check() error {
	sum := 0
	for i, c := range g.enters {
		if c.done != c.settled || c.n != c.want {
			g.fail("Enter %d came back: %v with %d, want %v with %d", i, c.done, c.n, c.settled, c.want)
		}
		sum += c.n
	}
	if open := sum - g.released; open > g.size {
		g.fail("%d items are open", open)
	}
	for i, number := range g.got {
		if number != i {
			g.fail("got %v", g.got)
		}
	}
	if g.reading && (g.closed || g.ready() > len(g.got)) {
		g.fail("the reader waits with %v in hand, although the results up to %d are there", g.got, g.ready())
	}
	return g.err
}

// ready is how many results are there without a gap.
func (g *windowGame) ready() int {
	if len(g.missing) > 0 {
		return slices.Min(g.missing)
	}
	return g.entered
}

// finish closes the window: the reader must get what has no gap before it, and then the end.
func (g *windowGame) finish() error {
	g.close()
	synctest.Wait()
	want := g.ready()
	for range 2 {
		g.read()
		synctest.Wait()
	}
	if err := g.check(); err != nil {
		return err
	}
	if len(g.got) != want {
		return fmt.Errorf("closed with %d results without a gap, got %v", want, g.got)
	}
	if got := g.window.TakeReady(g.buf); got != nil {
		return fmt.Errorf("after the end came %v", got)
	}
	return nil
}

// leave lets everybody go whatever happened, so that the bubble can end.
func (g *windowGame) leave() {
	g.window.Shut()
	g.window.Close()
	synctest.Wait()
}
