package ratelimiter

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"time"
	"weak"
)

// A table is a spaced token bucket for each key of a kind. It is a composite whose
// one member it is itself, so that callers who have to wait do so in a line for
// their key, made for the occasion.
//
// A bucket exists in one of three forms. If its key is named it is a keyLimit for
// ever. If somebody waits for it, or another limiter is using it, it is a keyLimit
// in busy. Otherwise all that there is to know of it is when it will be full, and
// that is kept in a map, or, if that is in the past, nowhere: a bucket that is full
// is like one that never was.
//
// All fields that change are guarded by the domain.
type table[K comparable] struct {
	composite
	field   fields
	keyOf   func(Request) K
	scopeOf func(K) string
	text    string // for String

	others bool   // keys without a name have a limit: fresh
	fresh  bucket // a full bucket of theirs
	name   string // of their limits
	most   int64  // likewise

	named map[K]*keyLimit[K]
	busy  crowd[K, *keyLimit[K]]
	spare *keyLimit[K]
	found bucket // what look found, if that is no keyLimit

	idle[K]
	lingering []*keyLimit[K]
	hand      int // where the sweep is in lingering
	armed     bool
}

// A keyLimit is the limit of one key, ready to be waited for.
type keyLimit[K comparable] struct {
	limit   limit
	bucket  bucket
	key     K
	lingers bool // listed in lingering, and either in busy or named
}

// init makes t ready for use. The zero fallback is a limit of nothing: only named
// keys have one.
func (t *table[K]) init(field fields, keyOf func(Request) K, scopeOf func(K) string, fallback Rate) error {
	t.field, t.keyOf, t.scopeOf = field, keyOf, scopeOf
	t.named = make(map[K]*keyLimit[K])
	t.recent = make(map[K]int64)
	if fallback != (Rate{}) {
		t.setOthers(fallback)
	}
	return t.composite.init([]member{t})
}

// setOthers gives the keys without a name their first limit.
func (t *table[K]) setOthers(r Rate) {
	t.others, t.fresh = true, freshBucket(r)
	t.name, t.most = t.fresh.name(r), t.fresh.most()
}

func freshBucket(r Rate) bucket {
	return bucket{pace: newPace(r), burst: 1, tat: slot{ns: longAgo}, last: longAgo}
}

func (t *table[K]) now() int64 { return int64(time.Since(t.base)) }

func (t *table[K]) whole() bool    { return true }
func (t *table[K]) varies() fields { return t.field }

func (t *table[K]) leaves(tell func(any)) { tell(t) }

func (t *table[K]) appendParts(parts []part, req Request) ([]part, error) {
	x := t.limitOf(t.keyOf(req))
	if x == nil {
		return parts, &KeyError{Key: req.Key}
	}
	return append(parts, part{limit: &x.limit}), nil
}

// look finds the bucket of k. If x is nil, what has been found is a copy, and
// save keeps a change to it. If b is nil too, there is no limit for k.
func (t *table[K]) look(k K) (x *keyLimit[K], b *bucket) {
	if x = t.named[k]; x == nil {
		x = t.busy.of[k]
	}
	switch {
	case x != nil:
		return x, &x.bucket
	case !t.others:
		return nil, nil
	}
	t.found = t.fresh
	if tat, ok := t.get(k); ok {
		t.found.tat.ns = tat
	}
	return nil, &t.found
}

// save keeps the bucket of a key that is in no use. Its fraction of a nanosecond
// is rounded up: a key is never early, and late by less than 1 ns for each grant
// that it did not have to wait for.
func (t *table[K]) save(k K, b *bucket, now int64) {
	tat := b.tat.ceil()
	if tat <= t.full(now) {
		if _, ok := t.get(k); !ok {
			return
		}
	}
	t.recent[k] = tat
	t.arm(t.period())
}

// full is the latest tat of a bucket that is full at now.
func (t *table[K]) full(now int64) int64 {
	if t.fresh.stopped {
		return t.fresh.stop // time has stood still since
	}
	return now
}

// limitOf returns the limit of k to be waited for, nil if there is none.
func (t *table[K]) limitOf(k K) *keyLimit[K] {
	x, b := t.look(k)
	if x != nil || b == nil {
		return x
	}
	if x = t.spare; x != nil {
		t.spare = nil
	} else {
		x = t.newLimit()
	}
	t.put(x, k, *b, t.name, t.most)
	t.busy.put(k, x)
	return x
}

func (t *table[K]) newLimit() *keyLimit[K] {
	x := new(keyLimit[K])
	x.limit.setSchedule(t.base, &x.bucket)
	x.limit.emptied = func() { t.emptied(x) }
	return x
}

func (t *table[K]) put(x *keyLimit[K], k K, b bucket, name string, most int64) {
	x.key, x.bucket = k, b
	x.limit.name, x.limit.most, x.limit.scope = name, most, t.scopeOf(k)
}

// emptied is called when nobody needs x to be a limit any more. If it makes up for
// a late timer it stays one for a while, since whoever was late comes straight
// back.
func (t *table[K]) emptied(x *keyLimit[K]) {
	now := t.now()
	switch {
	case t.named[x.key] == x:
	case x.lingers: // the sweep will find it
	case x.late(now):
		x.lingers = true
		t.lingering = append(t.lingering, x)
		t.arm(t.period())
	default:
		t.demote(x, now)
	}
}

// late reports whether the bucket depends on more than its tat.
func (x *keyLimit[K]) late(now int64) bool {
	return (x.bucket.lag > 0 || x.bucket.credit > 0) && now-x.bucket.last <= maxLate
}

// demote makes a limit that nobody needs an idle key.
func (t *table[K]) demote(x *keyLimit[K], now int64) {
	t.busy.drop(x.key)
	t.save(x.key, &x.bucket, now)
	t.spare = x
}

// grant grants req if it need not wait. It does what a line would do, but without
// one, and without the key's becoming a limit.
func (t *table[K]) grant(k K, req Request) bool {
	x, b := t.look(k)
	if b == nil || req.Cost < 0 || x != nil && len(x.limit.lines) > 0 {
		return false
	}
	now, cost := t.now(), int64(max(req.Cost, 1))
	if cost > t.mostOf(x) || b.earliest(now, cost) > now {
		return false
	}
	b.take(now, now, cost, 0)
	if x == nil {
		t.save(k, b, now)
	}
	return true
}

func (t *table[K]) mostOf(x *keyLimit[K]) int64 {
	if x != nil {
		return x.limit.most
	}
	return t.most
}

func (t *table[K]) Acquire(ctx context.Context, req Request) error {
	return t.AcquireWithin(ctx, req, Never)
}

func (t *table[K]) AcquireWithin(ctx context.Context, req Request, most time.Duration) error {
	k := t.keyOf(req)
	if ctx.Err() != nil {
		return gaveUp(ctx, t.nameFor(k))
	}
	d := t.guard.lock()
	if t.grant(k, req) {
		d.mu.Unlock()
		return nil
	}
	l, err := t.lineFor(req)
	if err != nil {
		d.mu.Unlock()
		return err
	}
	return l.enter(ctx, d, askOf(req), max(most, 0))
}

// nameFor names the limit of k for error texts.
func (t *table[K]) nameFor(k K) string {
	d := t.guard.lock()
	defer d.mu.Unlock()
	switch x, b := t.look(k); {
	case x != nil:
		return x.limit.String()
	case b != nil:
		return t.name + " for " + t.scopeOf(k)
	}
	return t.text
}

func (t *table[K]) TryAcquire(req Request) (ok bool, retryAfter time.Duration) {
	k := t.keyOf(req)
	d := t.guard.lock()
	if t.grant(k, req) {
		d.mu.Unlock()
		return true, 0
	}
	x, b := t.look(k)
	if x != nil && len(x.limit.lines) > 0 {
		d.mu.Unlock()
		return t.composite.tryAcquire(req)
	}
	defer d.mu.Unlock()
	a := askOf(req)
	if b == nil || a.cost < 0 || a.cost > t.mostOf(x) {
		return false, Never
	}
	now := t.now()
	return false, max(wait(now, b.after(now, 0, a.cost)), 1)
}

func (t *table[K]) Adjust(req Request, actual int) {
	k := t.keyOf(req)
	d := t.guard.lock()
	x, b := t.look(k)
	switch {
	case x != nil && len(x.limit.lines) > 0:
		d.mu.Unlock()
		t.composite.adjust(req, actual)
		return
	case b != nil && req.Cost >= 0:
		now, a := t.now(), askOf(req)
		b.adjust(now, a.cost, int64(max(actual, 0)), a.tag)
		if x == nil {
			t.save(k, b, now)
		}
	}
	d.mu.Unlock()
}

// setNamed changes the rate of one key, which has a name from then on.
func (t *table[K]) setNamed(k K, r Rate) {
	d := t.guard.lock()
	now := t.now()
	x, b := t.look(k)
	switch {
	case x == nil:
		x = t.newLimit()
		if b == nil {
			f := freshBucket(Rate{Count: 1, Per: time.Second}) // full, whatever the rate
			b = &f
		}
		t.put(x, k, *b, "", 0)
	case t.named[k] == nil:
		t.busy.drop(k)
	}
	t.named[k] = x
	t.setRate(d, x, now, r)
	d.settle(t.base.Add(time.Duration(now)))
	d.unlock()
}

func (t *table[K]) setRate(d *domain, x *keyLimit[K], now int64, r Rate) {
	x.bucket.setRate(now, r)
	x.limit.name, x.limit.most = x.bucket.name(r), x.bucket.most()
	d.changed(&x.limit, t.base.Add(time.Duration(now)))
}

// setAll changes the rate of all keys without a name.
func (t *table[K]) setAll(r Rate) {
	d := t.guard.lock()
	defer d.unlock()
	if !t.others {
		t.setOthers(r)
		return
	}
	now := t.now()
	all := make(map[K]int64)
	for k, tat := range t.each() {
		if tat > t.full(now) {
			b := t.fresh
			b.tat.ns = tat
			b.setRate(now, r)
			all[k] = b.tat.ceil()
		}
	}
	t.recent, t.earlier, t.sweeping = all, nil, nil
	t.fresh.setRate(now, r)
	t.name, t.most = t.fresh.name(r), t.fresh.most()
	for _, x := range t.busy.of {
		t.setRate(d, x, now, r)
	}
	d.settle(t.base.Add(time.Duration(now)))
}

func (t *table[K]) String() string { return t.text }

// An idle is what is known of idle keys: when their buckets will be full. Nothing
// is ever removed from the maps: recent hides earlier, keyLimits hide both, and a
// sweep makes recent the earlier one, saves from it what it has to save and then
// forgets it. So a sweep can stop and go on anywhere, and memory comes back
// although maps do not shrink.
type idle[K comparable] struct {
	recent   map[K]int64
	earlier  map[K]int64 // nil unless a sweep is under way; not changed then
	sweeping *reflect.MapIter
	k        K     // what sweeping has come to
	tat      int64 // likewise
	rk, rtat reflect.Value
}

func (i *idle[K]) get(k K) (tat int64, ok bool) {
	if tat, ok = i.recent[k]; !ok {
		tat, ok = i.earlier[k]
	}
	return tat, ok
}

// each is what get returns for every key.
func (i *idle[K]) each() iter.Seq2[K, int64] {
	return func(yield func(K, int64) bool) {
		for k, tat := range i.recent {
			if !yield(k, tat) {
				return
			}
		}
		for k, tat := range i.earlier {
			if _, hidden := i.recent[k]; !hidden && !yield(k, tat) {
				return
			}
		}
	}
}

// begin begins a sweep. The iterator is reflect's because that is one that can be
// put aside without a goroutine.
func (i *idle[K]) begin() {
	i.earlier, i.recent = i.recent, make(map[K]int64)
	i.sweeping = reflect.ValueOf(i.earlier).MapRange()
	i.rk, i.rtat = reflect.ValueOf(&i.k).Elem(), reflect.ValueOf(&i.tat).Elem()
}

// step takes a sweep n keys further, a quarter of that if they are to be saved,
// which takes longer. It reports whether that was the end.
func (i *idle[K]) step(n int, full int64) (done bool) {
	for ; n > 0; n-- {
		if !i.sweeping.Next() {
			var none K
			i.earlier, i.sweeping, i.k = nil, nil, none
			return true
		}
		if i.rtat.SetIterValue(i.sweeping); i.tat <= full {
			continue
		}
		i.rk.SetIterKey(i.sweeping)
		if _, ok := i.recent[i.k]; !ok {
			i.recent[i.k] = i.tat
			n -= 3
		}
	}
	return false
}

// A sweep goes through all idle keys, so many at a time and with a rest after
// each, so that nobody has to wait for it longer than a fraction of 1 ms.
const (
	stepKeys = 1024
	stepRest = 3 * time.Millisecond
	// A sweep begins not sooner than minSweep after the last, and as a rule when
	// the keys have had the time to become as good as new.
	minSweep = 10 * time.Second
	maxSweep = time.Hour
)

func (t *table[K]) period() time.Duration {
	return min(max(time.Duration(t.fresh.whole), minSweep), maxSweep)
}

// arm has a sweep go on after a time, if that is not set yet. The timer does not
// keep alive a table that nobody uses any more.
func (t *table[K]) arm(in time.Duration) {
	if t.armed {
		return
	}
	t.armed = true
	p := weak.Make(t)
	time.AfterFunc(in, func() {
		if t := p.Value(); t != nil {
			t.sweep()
		}
	})
}

func (t *table[K]) sweep() {
	d := t.guard.lock()
	defer d.mu.Unlock()
	now := t.now()
	more := t.sweepLingering(now)
	more = t.sweepIdle(now) || more
	t.armed = false
	switch {
	case more:
		t.arm(stepRest)
	case len(t.recent) > 0 || len(t.lingering) > 0:
		t.arm(t.period())
	}
}

// sweepIdle takes a sweep of the idle keys one step further, and reports whether
// it has more to do.
func (t *table[K]) sweepIdle(now int64) (more bool) {
	if t.sweeping == nil {
		if len(t.recent) == 0 {
			return false
		}
		t.begin()
	}
	return !t.step(stepKeys, t.full(now))
}

// sweepLingering looks at some of the limits that stayed because they were late,
// and reports whether there may be more to let go.
func (t *table[K]) sweepLingering(now int64) (more bool) {
	for range min(len(t.lingering), stepKeys) {
		if t.hand >= len(t.lingering) {
			t.hand = 0
		}
		x := t.lingering[t.hand]
		unneeded := x.limit.pins == 0 && t.busy.of[x.key] == x
		if unneeded && x.late(now) {
			t.hand++
			continue
		}
		last := len(t.lingering) - 1
		t.lingering[t.hand] = t.lingering[last]
		t.lingering[last] = nil
		t.lingering = t.lingering[:last]
		x.lingers = false
		if unneeded {
			t.demote(x, now)
		}
		more = true
	}
	if len(t.lingering) == 0 {
		t.lingering = nil
	}
	return more && len(t.lingering) > 0
}

// scope is the text for one key of a kind.
func scope[K comparable](format string) func(K) string {
	return func(k K) string { return fmt.Sprintf(format, k) }
}
