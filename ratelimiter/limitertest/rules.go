package limitertest

import "fmt"

// A rule is something that every limiter must obey. Its name says whose contract
// it is in and which of the numbered rules there, if they are numbered.
type rule struct{ name, text string }

var (
	basics = rule{"what the kit needs", "each call of the function makes a fresh limiter, fresh limiters behave alike, and " +
		"nothing panics"}

	rule1 = rule{"rule 1 of ratelimiter.Limiter", "Acquire returns nil when the attempt may start now"}
	rule2 = rule{"rule 2 of ratelimiter.Limiter", "Acquire returns promptly when ctx ends, with an error for which " +
		"errors.Is finds ctx.Err()"}
	rule3 = rule{"rule 3 of ratelimiter.Limiter", "a caller that got an error has used nothing up, wherever it stood in line"}
	rule4 = rule{"rule 4 of ratelimiter.Limiter", "a context that has ended before the call is never granted anything"}
	rule5 = rule{"rule 5 of ratelimiter.Limiter", "Acquire may refuse early only when it is certain that the deadline " +
		"comes before the grant; the error is context.DeadlineExceeded and final"}
	rule6 = rule{"rule 6 of ratelimiter.Limiter", "a request that can never be granted, such as one of a negative cost, is " +
		"refused at once with an error that is ErrNeverGranted, a cost of zero counts as 1, and there is no other error"}
	rule7 = rule{"rule 7 of ratelimiter.Limiter", "all methods are safe for concurrent use"}
	rule8 = rule{"rule 8, order", "grants are made in order of arrival"}
	rule9 = rule{"rule 9, quiet", "when all callers have returned no goroutine is left, and while all wait nothing spins"}

	tryWaits    = rule{"TryAcquirer", "TryAcquire never waits"}
	tryOrder    = rule{"TryAcquirer", "TryAcquire does not overtake callers that wait"}
	tryUses     = rule{"TryAcquirer", "when TryAcquire refuses, nothing has been used up"}
	tryGrants   = rule{"TryAcquirer", "TryAcquire grants what Acquire would grant without a wait"}
	retryAfter  = rule{"TryAcquirer", "retryAfter is how long a caller that queued now would wait, Never if for ever"}
	withinBound = rule{"TryAcquirer", "AcquireWithin returns an *ExcessError at once if the grant would come later than " +
		"maxWait, and when maxWait has passed if it only then turns out so"}
	withinWaits = rule{"TryAcquirer", "AcquireWithin is Acquire for callers that wait no longer than maxWait"}
	withinUses  = rule{"TryAcquirer", "nothing has been used up when AcquireWithin returns an error"}

	adjustWaits = rule{"Adjuster", "Adjust does not block"}
	adjustBack  = rule{"Adjuster", "a lower cost gives the difference back; Adjust(req, 0) is a refund, and a negative " +
		"actual counts as 0"}
	adjustFull = rule{"Adjuster", "what is given back is never beyond what the limit can hold"}
	adjustDebt = rule{"Adjuster", "a higher cost is a debt that delays the grants to come"}
	adjustSame = rule{"Adjuster", "an actual cost that is the one asked for changes nothing"}

	observeWaits = rule{"Observer", "Observe does not block"}
)

// A finding is a rule that a check has found broken, and how.
type finding struct {
	rule   rule
	detail string
}

func (f finding) String() string {
	return fmt.Sprintf("%s is broken: %s\n%s", f.rule.name, f.rule.text, f.detail)
}
