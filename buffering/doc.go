// Package buffering holds what lies between a source, the workers and the consumer: the bounded input queue with or
// without priorities, the bounded result buffer, and the window that puts results back into input order.
//
// All three follow one pattern. A mutex guards the state and is never held across a wait. Whoever has to wait leaves a
// note with what it brings or wants, and the one who makes room or brings an item serves the longest waiting note
// first, under the same lock, and then wakes its owner. So an item is in exactly one place at any time, nobody
// overtakes, and a waiter that gives up either takes its note back or finds that it was served: nothing is lost in
// between. A woken waiter has what it wanted and takes no lock again.
//
// Nothing here starts a goroutine, and nothing but a queue's Push and a buffer's Next looks at a context: ending a run
// wakes everybody through Close, Abandon and Lift.
//
// # The bound
//
// [Bound] states how many items a run holds at most. Package penstock's tests measure it.
package buffering
