package limitertest

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/ratelimiter"
)

// What the kit must find: each broken limiter is caught by the check that is there
// for it, for breaking the rule that it breaks.

// find makes one check of a limiter.
func find(t *testing.T, name string, newLimiter func() ratelimiter.Limiter, opts ...Option) (*kit, outcome) {
	t.Helper()
	k, err := newKit(newLimiter, opts)
	if err != nil {
		t.Fatal(err)
	}
	c := checkNamed(name)
	if c == nil {
		t.Fatalf("there is no check %s", name)
	}
	return k, k.check(t, *c)
}

// wantFound checks that a rule was found broken, and none but the given ones.
func wantFound(t *testing.T, o outcome, rules ...rule) {
	t.Helper()
	if len(o.findings) == 0 {
		t.Errorf("nothing was found (skipped: %q), want %s: %s", o.skipped, rules[0].name, rules[0].text)
		return
	}
	first := o.findings[0]
	for _, want := range rules {
		if first.rule == want {
			if testing.Verbose() {
				t.Log(first)
			}
			return
		}
	}
	t.Errorf("want found: %s: %s\nfound:\n%v", rules[0].name, rules[0].text, first)
}

func modelOf(f fault, burst int) func() ratelimiter.Limiter {
	return func() ratelimiter.Limiter { return newModel(f, burst, 100*time.Millisecond) }
}

func TestBrokenModels(t *testing.T) {
	for _, tt := range []struct {
		fault fault
		burst int
		check string
		rule  rule
	}{
		{deadGranted, 5, "EndedContext", rule4},
		{deadGranted, 1, "EndedContext", rule4},
		{deadUses, 5, "EndedContext", rule3},
		{deadWaits, 5, "EndedContext", rule2},
		{ownError, 5, "EndedContext", rule2},

		{deafHead, 1, "CancelHead", rule2},
		{deafMiddle, 1, "CancelMiddle", rule2},
		{deafMiddle, 5, "CancelTail", rule2},
		{slowToLeave, 1, "CancelHead", rule2},
		{slowToLeave, 1, "CancelMiddle", rule2},
		{slowToLeave, 1, "CancelTail", rule2},
		{ownError, 1, "CancelHead", rule2},
		{onlyCause, 1, "CancelHead", rule2},
		{blamesRequest, 1, "CancelMiddle", rule6},
		{noRearm, 1, "CancelHead", rule3},
		{zombies, 1, "CancelHead", rule3},
		{zombies, 5, "CancelMiddle", rule3},
		{zombies, 5, "CancelTail", rule3},
		{costsTail, 5, "CancelTail", rule3},
		{zombies, 5, "CancelAll", rule3},
		{withinDeaf, 1, "CancelMiddle", rule2},
		{lostAtGrant, 1, "CancelAtGrant", rule3},
		{lostAtGrant, 5, "CancelAtGrant", rule3},
		{twiceAtGrant, 1, "CancelAtGrant", rule3},
		{lostInPassing, 5, "RealTime", rule3},
		{deafMiddle, 1, "CancelAtGrant", rule2},
		{deafHead, 1, "Observe", rule2},
		{ownError, 1, "CancelAtGrant", rule2},
		{ownError, 5, "RealTime", rule2},
		{ownError, 1, "Storm", rule6},

		{countsAhead, 1, "Deadline", rule5},
		{hopelessUses, 1, "Deadline", rule3},
		{hopelessError, 1, "Deadline", rule5},
		{hopelessAgain, 1, "Deadline", rule5},
		{tooEarly, 1, "Deadline", rule5},

		{lastFirst, 1, "Order", rule8},
		{anyOrder, 1, "Order", rule8},
		{barges, 1, "Order", rule8},
		{withinOvertake, 1, "Order", rule8},
		{smallFirst, 5, "OrderOfCosts", rule8},

		{zeroIsZero, 5, "CostZero", rule6},
		{negativeGives, 5, "CostNegative", rule6},
		{refusalEnded, 5, "CostNegative", rule6},
		{negativeError, 5, "CostNegative", rule6},
		{negativeUses, 5, "CostNegative", rule3},
		{hugeWaits, 5, "CostHuge", rule6},
		{hugeInTurn, 5, "CostHuge", rule6},
		{hugeWraps, 5, "CostHuge", rule1},

		{checksThenActs, 5, "Crowd", rule1},
		{checksThenActs, 1, "RealTime", rule1},
		{tryThenTakes, 5, "Crowd", rule1},
		{shrinks, 5, "Storm", rule7},
		{wearsOut, 5, "Storm", rule7},
		{leavesWatcher, 5, "Goroutines", rule9},
		{lostWakeUp, 5, "Grant", rule1},
		{ownFailure, 5, "Grant", rule6},
		{panics, 5, "Grant", basics},
		{exits, 5, "Grant", basics},

		{tryWaitsLong, 5, "TryAcquire", tryWaits},
		{tryTimid, 5, "TryAcquire", tryGrants},
		{tryStrict, 5, "TryAcquire", tryGrants},
		{tryGrantsLater, 5, "TryAcquire", retryAfter},
		{withinTimid, 5, "TryAcquire", withinWaits},
		{tryWaitsLong, 5, "TryAcquireInLine", tryWaits},
		{tryStrict, 1, "RetryAfter", retryAfter},
		{tryGenerous, 1, "RetryAfter", retryAfter},
		{tryZero, 5, "TryAcquire", retryAfter},
		{tryRoundsUp, 5, "TryAcquire", retryAfter},
		{tryOvertakes, 5, "TryAcquireInLine", tryOrder},
		{tryUsesUp, 5, "TryAcquireInLine", tryUses},
		{tryZero, 5, "TryAcquireInLine", retryAfter},
		{tryRoundsUp, 1, "RetryAfter", retryAfter},
		{tryRoundsDown, 1, "RetryAfter", retryAfter},
		{tryAlone, 5, "RetryAfter", retryAfter},
		{tryUsesUp, 5, "RetryAfter", retryAfter},
		{tryNegative, 5, "CostNegative", retryAfter},
		{withinSlow, 5, "AcquireWithin", withinBound},
		{withinLate, 5, "AcquireWithin", withinBound},
		{withinUsesUp, 5, "AcquireWithin", withinUses},
		{withinError, 5, "AcquireWithin", withinBound},
		{withinShort, 5, "AcquireWithin", withinWaits},
		{withinGuess, 5, "AcquireWithin", retryAfter},
		{withinTired, 5, "AcquireWithinWorse", withinBound},
		{withinPatient, 5, "AcquireWithinWorse", withinBound},

		{refundNothing, 5, "AdjustRefund", adjustBack},
		{refundLater, 1, "AdjustRefund", adjustBack},
		{refundNegative, 1, "AdjustRefund", adjustBack},
		{adjustBlocks, 5, "AdjustRefund", adjustWaits},
		{refundBeyond, 5, "AdjustCapacity", adjustFull},
		{debtNone, 5, "AdjustDebt", adjustDebt},
		{debtGives, 5, "AdjustDebt", adjustDebt},
		{sameZero, 5, "AdjustSame", adjustSame},
		{observeBlocks, 5, "Observe", observeWaits},
	} {
		t.Run(strings.ReplaceAll(string(tt.fault), " ", "_")+"/"+tt.check, func(t *testing.T) {
			_, o := find(t, tt.check, modelOf(tt.fault, tt.burst))
			wantFound(t, o, tt.rule)
		})
	}
}

// TestSoundModels: what finds so many faults finds none where there is none.
func TestSoundModels(t *testing.T) {
	for _, burst := range []int{1, 2, 5, 100} {
		Run(t, modelOf(sound, burst))
	}
	Run(t, modelOf(hopelessLate, 3)) // nobody must refuse early
}

func TestBrokenBookers(t *testing.T) {
	booking := func(giveBack bool) func() ratelimiter.Limiter {
		return func() ratelimiter.Limiter { return &booker{interval: time.Second, giveBack: giveBack} }
	}
	for _, check := range []string{"CancelHead", "CancelMiddle", "CancelTail", "CancelAll", "CancelAtGrant"} {
		_, o := find(t, check, booking(false))
		wantFound(t, o, rule3)
		_, o = find(t, check, booking(true))
		if check == "CancelTail" {
			if o.findings != nil {
				t.Errorf("%s: found of a limiter that can take back its newest booking: %v", check, o.findings)
			}
			continue
		}
		wantFound(t, o, rule3)
	}
}

// TestStuck: limiters in whose bubbles time stands still do not stop the test.
func TestStuck(t *testing.T) {
	var stop atomic.Bool
	lock := make(chan struct{}, 1)
	soon := WithPatience(500 * time.Millisecond)
	for name, tt := range map[string]struct {
		make func() ratelimiter.Limiter
		want string
	}{
		"spins": {func() ratelimiter.Limiter { return &spinner{base: time.Now(), stop: &stop} }, "Acquire("},
		"polls": {func() ratelimiter.Limiter { return &spinner{base: time.Now(), stop: &stop, polls: 1} }, "patience"},
		"locks": {func() ratelimiter.Limiter { return &locker{lock: lock, interval: time.Hour} }, "chan send"},
	} {
		t.Run(name, func(t *testing.T) {
			stop.Store(false)
			check := "Grant"
			k, o := find(t, check, tt.make, soon)
			stop.Store(true)
			done := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() { unlock(lock, done) })
			k.bubbles.Wait()
			close(done)
			wg.Wait()
			wantFound(t, o, rule9)
			if len(o.findings) > 0 && name != "polls" && !strings.Contains(o.findings[0].detail, tt.want) {
				t.Errorf("the finding does not show %q:\n%v", tt.want, o.findings[0])
			}
			if next := k.check(t, *checkNamed("Order")); len(next.findings) > 0 || !strings.Contains(next.skipped, "failed Grant") {
				t.Errorf("the next check: %+v, want it skipped", next)
			}
		})
	}
}

func TestLeftGoroutines(t *testing.T) {
	for _, check := range []string{"Grant", "Goroutines", "Order"} {
		_, o := find(t, check, func() ratelimiter.Limiter { return newHoarder() })
		wantFound(t, o, rule9)
		if !strings.Contains(o.findings[0].detail, "limitertest.hoard") {
			t.Errorf("the finding does not show which goroutine is left:\n%v", o.findings[0])
		}
	}
	keeping := func() ratelimiter.Limiter { return newKeeper() }
	closing := WithClose(func(l ratelimiter.Limiter) { l.(*keeper).close() })
	Run(t, keeping, closing)
}

func TestBrokenFactories(t *testing.T) {
	one := newModel(sound, 1, time.Second)
	calls := 0
	for name, tt := range map[string]struct {
		make func() ratelimiter.Limiter
		want string
	}{
		"nil":      {func() ratelimiter.Limiter { return nil }, "returned nil"},
		"the same": {func() ratelimiter.Limiter { return one }, "same limiter twice"},
		"panics":   {func() ratelimiter.Limiter { panic("no limiter") }, "no limiter"},
		"differ":   {func() ratelimiter.Limiter { calls++; return newModel(sound, 1+calls/2, time.Second) }, "just like it"},
		"random": {func() ratelimiter.Limiter {
			return newDicer(rand.New(rand.NewPCG(rand.Uint64(), 0)), false)
		}, "option Random"},
	} {
		_, o := find(t, "Order", tt.make)
		wantFound(t, o, basics)
		if len(o.findings) > 0 && !strings.Contains(o.findings[0].detail, tt.want) {
			t.Errorf("%s: the finding does not say %q:\n%v", name, tt.want, o.findings[0])
		}
	}
}

// TestRequestRefused: a limiter by key that knows no empty one.
func TestRequestRefused(t *testing.T) {
	byKey := func() ratelimiter.Limiter {
		m := newModel(sound, 2, time.Second)
		return ratelimiter.Func(func(ctx context.Context, req ratelimiter.Request) error {
			if req.Key != "a" {
				return &ratelimiter.KeyError{Key: req.Key}
			}
			return m.Acquire(ctx, req)
		})
	}
	_, o := find(t, "Grant", byKey)
	wantFound(t, o, rule6)
	if !strings.Contains(o.findings[0].detail, "WithRequest") {
		t.Error(o.findings[0])
	}
	Run(t, byKey, WithRequest(func(i int) ratelimiter.Request { return ratelimiter.Request{Key: "a", Index: i} }))
}

func TestRandomLimiters(t *testing.T) {
	dice := func(leak bool) func() ratelimiter.Limiter {
		rng := rand.New(rand.NewPCG(5, 6)) // they share it, so no two are alike
		return func() ratelimiter.Limiter { return newDicer(rng, leak) }
	}
	shared := Without("RealTime", "they share a source of random numbers")
	Run(t, dice(false), Random(), shared)
	Run(t, func() ratelimiter.Limiter { return &trier{dice(false)().(*dicer)} }, Random(), shared)
	_, o := find(t, "CancelAll", dice(true), Random())
	wantFound(t, o, rule3)
}

func TestUnorderedLimiters(t *testing.T) {
	Run(t, modelOf(anyOrder, 1), Unordered())
	Run(t, modelOf(anyOrder, 3), Unordered())
	_, o := find(t, "CancelMiddle", modelOf(zombies, 1), Unordered())
	wantFound(t, o, rule3)
}

// TestOrderUnseen: nobody comes first if all are granted together.
func TestOrderUnseen(t *testing.T) {
	_, o := find(t, "Order", func() ratelimiter.Limiter {
		return ratelimiter.Func(func(ctx context.Context, _ ratelimiter.Request) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	if o.findings != nil || !strings.Contains(o.skipped, "the order cannot be seen") {
		t.Errorf("%+v", o)
	}
}

func TestWithout(t *testing.T) {
	_, o := find(t, "Order", modelOf(lastFirst, 1), Without("Order", "the last come first"))
	if o.findings != nil || !strings.Contains(o.skipped, "the last come first") {
		t.Errorf("%+v", o)
	}
}

func TestBadOptions(t *testing.T) {
	for want, opt := range map[string]Option{
		`names the check "Odrer"`:          Without("Odrer", "a slip"),
		`Without("Order") gives no reason`: Without("Order", ""),
		"WithPatience is 0s":               WithPatience(0),
		"WithRequest is nil":               WithRequest(nil),
	} {
		if _, err := newKit(modelOf(sound, 1), []Option{opt}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := newKit(nil, nil); err == nil {
		t.Error("no function was accepted")
	}
}
