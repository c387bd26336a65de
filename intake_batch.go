package penstock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/foreman"
)

// divide starts a run over a slice that has a place for the outcome of each item.
func (e *Engine[D, R]) divide(ctx context.Context, items []D, tasks []Task[D, R]) *foreman.Crew[D, R] {
	workers := min(len(items), e.plan.Workers())
	d := &division[D, R]{items: items, tasks: tasks, portions: make([]portion, workers), oneByOne: e.plan.OneByOne(), madeAt: time.Now()}
	crew := e.newCrew(ctx, foreman.CrewConfig[D, R]{Intake: d, Ready: true})
	d.exhausted = crew.InputDone
	if len(items) == 0 {
		crew.InputDone()
	}
	for range workers {
		crew.Hire(nil)
	}
	crew.Start()
	return crew
}

// A division is the intake over a slice that has a place for the outcome of each item. Workers claim items in order, one at
// a time. But when items take next to no time, workers do little else than wait for each other's cache lines: those of the
// count, and those in which neighbouring outcomes lie. So a worker that is that quick claims a portion of several items.
//
// A portion is no promise: what its owner has not begun is taken over, the oldest first, by workers that are not so quick
// themselves or find nothing else. So no item waits for one worker while another has nothing to do.
type division[D, R any] struct {
	items     []D
	tasks     []Task[D, R]
	exhausted func()
	portions  []portion // one for each worker
	oneByOne  bool      // no portions, please
	madeAt    time.Time

	mu sync.Mutex
	// Guarded by mu. Invariant: an item below claimed is begun, abandoned, or in exactly one portion, which is in the list.
	claimed     int
	abandoned   int
	over        bool     // Abandon was called
	first, last *portion // the list of the portions that were filled last, the oldest items first
}

// A portion is items that a worker has claimed and not begun. Its owner begins them, one after the other, and whoever holds
// the division's lock may take them away. Only the owner fills it, with the lock held.
type portion struct {
	left atomic.Uint64 // a span, packed

	// The owner's.
	timedAt time.Duration // when the clock was last read
	since   int           // items claimed since then
	unasked int           // claims until it is read again

	// Guarded by the division's lock.
	filledAt   time.Duration // or somewhat earlier
	listed     bool
	prev, next *portion

	_ [128 - 64]byte // no two owners write to the same cache line, nor to neighbours that are fetched together
}

// A span is the items from first to before end.
type span struct{ first, end int }

func (s span) len() int { return s.end - s.first }
func (s span) split(n int) (front, rest span) {
	m := min(s.first+n, s.end)
	return span{s.first, m}, span{m, s.end}
}
func (s span) packed() uint64 { return uint64(s.first)<<32 | uint64(s.end) }
func unpacked(v uint64) span  { return span{int(v >> 32), int(v & math.MaxUint32)} }

const (
	largestPortion = 32
	quick          = 2 * time.Microsecond // for one item: not much more than claiming it by itself
)

// Take implements [foreman.Intake].
func (d *division[D, R]) Take(worker int, jobs []foreman.Job[D, R]) int {
	p := &d.portions[worker]
	s := p.begin(len(jobs))
	if s.len() == 0 {
		s = d.claim(p, len(jobs))
	}
	for i := range jobs[:s.len()] {
		jobs[i].Task = d.place(s.first + i)
	}
	return s.len()
}

func (d *division[D, R]) place(index int) *Task[D, R] {
	t := &d.tasks[index]
	t.Index, t.Data = index, d.items[index]
	return t
}

// begin takes up to n items off the front.
func (p *portion) begin(n int) span {
	for {
		v := p.left.Load()
		front, rest := unpacked(v).split(n)
		if front.len() == 0 || p.left.CompareAndSwap(v, rest.packed()) {
			return front
		}
	}
}

// claim claims items for a worker whose portion is used up. Up to n of them count as begun; the rest is its next portion.
func (d *division[D, R]) claim(p *portion, n int) span {
	size := d.nextSize(p)
	d.mu.Lock()
	before := d.claimed
	d.unlist(p)
	s := d.takeOver(p, size > 1)
	if s.len() == 0 && !d.over {
		s = d.claimNew(n, size)
	}
	p.since += s.len()
	begun, rest := s.split(n)
	if rest.len() > 0 {
		p.left.Store(rest.packed())
		p.filledAt = p.timedAt
		d.list(p)
	}
	exhausted := before < d.claimed && d.claimed == len(d.items)
	d.mu.Unlock()
	if exhausted {
		d.exhausted()
	}
	return begun
}

// nextSize is how many items the owner of a portion should claim: one at first, and more as long as they take next to no time.
// An owner that is slow is asked only now and then, since the clock has its price too.
func (d *division[D, R]) nextSize(p *portion) int {
	if d.oneByOne {
		return 1
	}
	if p.unasked > 0 {
		p.unasked--
		return 1
	}
	now := time.Since(d.madeAt) // half of what time.Now would cost
	since, took := p.since, now-p.timedAt
	p.timedAt, p.since = now, 0
	if took < time.Duration(since)*quick {
		return min(2*since, largestPortion)
	}
	p.unasked = 3
	return 1
}

// takeOver returns items that were claimed and are not begun, if there are any. As long as there are others a quick worker
// leaves them to their owner, who is likely to be as quick, unless he shows that he is not.
func (d *division[D, R]) takeOver(by *portion, isQuick bool) span {
	for d.first != nil {
		p := d.first
		if isQuick && d.claimed < len(d.items) && by.timedAt-p.filledAt < 2*largestPortion*quick {
			break
		}
		d.unlist(p)
		if s := unpacked(p.left.Swap(0)); s.len() > 0 {
			return s
		}
	}
	return span{}
}

// claimNew claims the next items that nobody has claimed, if there are any: n or size, whichever is more, but not more than
// a fair share, so that none is left without anything when the end comes near.
func (d *division[D, R]) claimNew(n, size int) span {
	left := len(d.items) - d.claimed
	if uint64(len(d.items)) > math.MaxUint32 {
		size = 1 // a portion could not be packed
	}
	size = min(max(n, size), max(1, left/len(d.portions)), left)
	s := span{d.claimed, d.claimed + size}
	d.claimed = s.end
	return s
}

// list adds a portion to the list: in front when it is older than all others, as what was taken over is, else at the end.
func (d *division[D, R]) list(p *portion) {
	p.listed = true
	switch {
	case d.first == nil:
		d.first, d.last = p, p
	case unpacked(p.left.Load()).first < unpacked(d.first.left.Load()).first:
		p.next, d.first.prev, d.first = d.first, p, p
	default:
		p.prev, d.last.next, d.last = d.last, p, p
	}
}

func (d *division[D, R]) unlist(p *portion) {
	if !p.listed {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		d.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		d.last = p.prev
	}
	p.listed, p.prev, p.next = false, nil, nil
}

// Abandon implements [foreman.Intake].
func (d *division[D, R]) Abandon(_ error, unfinished func(*foreman.Job[D, R])) {
	d.mu.Lock()
	d.over = true
	var left []span
	for s := d.takeOver(nil, false); s.len() > 0; s = d.takeOver(nil, false) {
		left = append(left, s)
	}
	left = append(left, span{d.claimed, len(d.items)})
	d.claimed = len(d.items)
	for _, s := range left {
		d.abandoned += s.len()
	}
	d.mu.Unlock()
	for _, s := range left {
		for i := s.first; i < s.end; i++ {
			unfinished(&foreman.Job[D, R]{Task: d.place(i)})
		}
	}
}

// Counts implements [foreman.Intake]. All items were accepted from the start.
func (d *division[D, R]) Counts() (accepted, taken int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken = d.claimed - d.abandoned
	for p := d.first; p != nil; p = p.next {
		taken -= unpacked(p.left.Load()).len()
	}
	return len(d.items), taken
}
