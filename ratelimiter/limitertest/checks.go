package limitertest

// checks are all there are, in the order in which they are made: first whether the
// limiter can be checked at all, then what other checks rely on.
var checks = []check{
	{"Grant", 0, (*run).grant},
	{"Goroutines", aLine, (*run).noGoroutines},

	{"EndedContext", 0, (*run).endedContext},
	{"CancelHead", aLine, (*run).cancelHead},
	{"CancelMiddle", aLine, (*run).cancelMiddle},
	{"CancelTail", aLine, (*run).cancelTail},
	{"CancelAll", aLine, (*run).cancelAll},
	{"CancelAtGrant", aLine | exact, (*run).cancelAtGrant},
	{"Deadline", aLine | exact, (*run).deadline},

	{"Order", aLine, (*run).order},
	{"OrderOfCosts", aLine | exact, (*run).orderOfCosts},

	{"CostZero", exact, (*run).costZero},
	{"CostNegative", 0, (*run).costNegative},
	{"CostHuge", exact, (*run).costHuge},

	{"Crowd", exact, (*run).crowd},
	{"Storm", 0, (*run).storm},
	{"RealTime", 0, (*run).realTime},

	{"TryAcquire", trying, (*run).tryAcquire},
	{"TryAcquireInLine", trying | aLine, (*run).tryInLine},
	{"RetryAfter", trying | aLine | exact, (*run).retryAfter},
	{"AcquireWithin", trying | aLine, (*run).acquireWithin},
	{"AcquireWithinWorse", trying | adjust | aLine | exact | granted, (*run).withinWorse},

	{"AdjustRefund", adjust | aLine | exact | granted, (*run).adjustRefund},
	{"AdjustCapacity", adjust | aLine | exact | granted, (*run).adjustCapacity},
	{"AdjustDebt", adjust | aLine | exact | granted, (*run).adjustDebt},
	{"AdjustSame", adjust | aLine | exact | granted, (*run).adjustSame},
	{"Observe", observe, (*run).observe},
}

// grant is made when the profile is: it has nothing to add.
func (r *run) grant() {}
