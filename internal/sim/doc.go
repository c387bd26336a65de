// Package sim is a simulator of engines: it builds one at random from a seed, with any mix of options, sources, handlers,
// limiters and consumers, lets it run, keeps a ledger of everything that happens, and checks the ledger against what the
// library promises.
//
// A [Scenario] is what a seed decides. [Simulate] lets it happen and returns which promises were broken. [Shrink] drops the
// parts of a failing scenario that have nothing to do with its failure.
//
// In a synctest bubble time is virtual, so what happens at one instant has one time and timing is checked to the
// nanosecond. What the scheduler does within an instant is left to chance, so a seed does not decide everything: a failing
// one may have to be run some hundred times to fail again. On the real clock the same scenarios run with all durations
// scaled down, and only what lateness cannot excuse is checked.
//
// To teach it a new option, draw it in [Draw], hand it over in world.options, and say in check.go or limit.go what it
// promises. A new limiter is one more line in limiterKinds.
package sim
