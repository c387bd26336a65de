package ratelimiter

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
)

// A member is a limiter of this package that can be part of another one: the
// other asks for all its parts' limits at one instant, instead of asking one
// after the other and holding the first while it waits for the next.
type member interface {
	Limiter
	// whole reports whether the limiter is nothing but limits of this package:
	// one with a foreign limiter inside is foreign itself.
	whole() bool
	// share makes the limiter's limits, present and future, part of g's domain.
	share(g *guard)
	// varies says which fields of a request decide which limits it has to pass.
	varies() fields
	// appendParts appends the limits that req has to pass, or as many as it can
	// and the error of the one that refuses req for good. The domain is locked,
	// unless varies is none. If varies is not none, the caller pins the limits
	// while it uses them, and unpins them afterwards also if there was an error:
	// the member may have made them for this request.
	appendParts(parts []part, req Request) ([]part, error)
	// leaves tells the limits, or tables of limits, that the member consists of.
	leaves(tell func(leaf any))
}

// asMember returns l as a member if it can be one.
func asMember(l Limiter) (member, bool) {
	m, ok := l.(member)
	return m, ok && m.whole()
}

// fields is a set of fields of [Request].
type fields uint8

const (
	fieldKey fields = 1 << iota
	fieldWorker
	none fields = 0
)

// A place is where requests that have to pass the same limits queue together.
type place struct {
	key    string
	worker int
}

// place is the place of req in a limiter that varies with f.
func (f fields) place(req Request) (p place) {
	if f&fieldKey != 0 {
		p.key = req.Key
	}
	if f&fieldWorker != 0 {
		p.worker = req.Worker
	}
	return p
}

// A composite asks for the limits of several members, and of extra ones, at one
// instant. If all its requests have to pass the same limits it has one line;
// otherwise one line for each place where somebody waits.
type composite struct {
	guard   guard
	base    time.Time
	members []member
	extra   []*limit
	varying fields
	waiters sync.Pool
	only    *line // the line, if varying is none

	// Guarded by the domain.
	lines crowd[place, *line]
	spare *line // in no use
}

// init makes c ready for use. It is an error if a limit occurs twice: it would be
// charged twice.
func (c *composite) init(members []member, extra ...*limit) error {
	c.base = time.Now()
	c.members, c.extra = members, extra
	c.waiters.New = func() any { return newWaiter() }
	c.guard.init()
	if twice := c.twice(); twice != nil {
		return fmt.Errorf("ratelimiter: %v occurs twice", twice)
	}
	for _, m := range members {
		m.share(&c.guard)
		c.varying |= m.varies()
	}
	if c.varying != none {
		return nil
	}
	parts, err := c.appendParts(nil, Request{})
	if err != nil {
		return err
	}
	c.only = c.newLine(parts)
	return nil
}

// twice is a limit that occurs twice, or nil.
func (c *composite) twice() (twice any) {
	seen := make(map[any]bool)
	c.leaves(func(leaf any) {
		if seen[leaf] {
			twice = leaf
		}
		seen[leaf] = true
	})
	return twice
}

func (c *composite) leaves(tell func(any)) {
	for _, m := range c.members {
		m.leaves(tell)
	}
	for _, x := range c.extra {
		tell(x)
	}
}

func (c *composite) share(g *guard) { merge(&c.guard, g) } // with all its members

func (c *composite) varies() fields { return c.varying }

func (c *composite) appendParts(parts []part, req Request) ([]part, error) {
	for _, m := range c.members {
		var err error
		if parts, err = m.appendParts(parts, req); err != nil {
			return parts, err
		}
	}
	for _, x := range c.extra {
		parts = append(parts, part{limit: x})
	}
	return parts, nil
}

func (c *composite) newLine(parts []part) *line {
	l := new(line)
	l.guard.p.Store(c.guard.p.Load())
	l.init(c.base, &c.waiters, parts)
	return l
}

// lineFor returns the line that req belongs to. A line made for the occasion
// lives until it has nobody in it.
func (c *composite) lineFor(req Request) (*line, error) {
	at := c.varying.place(req)
	if l := c.lines.of[at]; l != nil {
		return l, nil
	}
	l := c.spare
	c.spare = nil
	if l == nil {
		l = c.newLine(nil)
	}
	parts, err := c.appendParts(l.parts[:0], req)
	l.init(c.base, &c.waiters, parts)
	for i := range parts {
		parts[i].pins++
	}
	if err != nil {
		c.retire(l)
		return nil, err
	}
	c.lines.put(at, l)
	l.idle = func() {
		c.lines.drop(at)
		c.retire(l)
	}
	return l, nil
}

// retire unpins the limits of a line that is no longer in use. Those who have
// waited in it may still know it, so only a line in which nobody ever has is kept
// for the next request.
func (c *composite) retire(l *line) {
	l.idle = nil
	for i := range l.parts {
		x := l.parts[i].limit
		if x.pins--; x.pins == 0 && x.emptied != nil {
			x.emptied()
		}
	}
	if !l.used {
		clear(l.parts)
		c.spare = l
	}
}

func (c *composite) acquire(ctx context.Context, req Request, most time.Duration) error {
	if c.only != nil {
		return c.only.acquireWithin(ctx, req, most)
	}
	if ctx.Err() != nil {
		return gaveUp(ctx, c.String())
	}
	d := c.guard.lock()
	l, err := c.lineFor(req)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	return l.enter(ctx, d, askOf(req), most)
}

func (c *composite) tryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	if c.only != nil {
		return c.only.tryAcquire(req)
	}
	d := c.guard.lock()
	l, err := c.lineFor(req)
	if err != nil {
		d.mu.Unlock()
		return false, Never
	}
	return l.try(d, askOf(req))
}

func (c *composite) adjust(req Request, actual int) {
	if c.only != nil {
		c.only.adjust(c.only.lock(), askOf(req), actual)
		return
	}
	d := c.guard.lock()
	l, err := c.lineFor(req)
	if err != nil {
		d.mu.Unlock()
		return // there is no such limit, so there was no grant
	}
	l.adjust(d, askOf(req), actual)
}

// String names the members.
func (c *composite) String() string { return names(c.members) }

func names[L Limiter](limiters []L) string {
	s := make([]string, len(limiters))
	for i, l := range limiters {
		s[i] = describe(l)
	}
	return strings.Join(s, " and ")
}

// describe names a limiter for error texts.
func describe(l Limiter) string {
	if s, ok := l.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", l)
}

// isNil reports whether l is nil, or an interface around a nil pointer or
// function, which would fail only when it is first used.
func isNil(l Limiter) bool {
	if l == nil {
		return true
	}
	switch v := reflect.ValueOf(l); v.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Slice, reflect.Interface:
		return v.IsNil()
	}
	return false
}
