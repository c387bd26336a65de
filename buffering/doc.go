// Package buffering holds what lies between a source, the workers and the consumer: the bounded input queue with or
// without priorities, the bounded result buffer, and the window that puts results back into input order.
//
// All three follow one pattern. A mutex guards the state and is never held across a wait. Whoever has to wait leaves a
// note with what it brings or wants, and the one who makes room or brings a result serves the longest waiting note
// first, under the same lock, and then wakes its owner. So an item is in exactly one place at any time, no note is
// overtaken, and a waiter that gives up either takes its note back or finds that it was served: nothing is lost in
// between. Takers of the queue are the exception: they leave no wish but are woken one at a time and look for
// themselves, so that one that is busy but quick can take several items before others are bothered.
//
// A feeder that finds no room lets others run once before it leaves a note: often they are about to make some, and two
// switches are saved.
//
// Nothing here starts a goroutine, and nothing but a queue's Push and a buffer's Next looks at a context: ending a run
// wakes everybody through Close, Abandon and Lift.
//
// # The bound
//
// [Bound] states how many items a run holds at most. Package penstock's tests measure it.
package buffering
