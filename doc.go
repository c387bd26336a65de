// Package penstock works through many independent items against a slow, fragile or metered service, and loses none.
//
// A penstock is the gated pipe that feeds a turbine: it lets through as much as the machine can take, and no more. An
// [Engine] hands items to a bounded number of workers, makes every attempt pass a limiter, retries what is worth
// retrying, and hands every outcome back, in input order or as it completes.
//
// # Words
//
// A run works through the items of one [Source], or those that are submitted to a [Run] made by hand. An accepted item
// becomes a task, which a worker keeps from its first wait to its end. A task has one or more attempts: an attempt is one
// grant of the limiter and one call of the handler. An attempt that fails may be followed by another, after a backoff. In
// the end each task has exactly one [Outcome]: Succeeded, Failed, Shed or Unfinished.
//
// # Which call
//
//	ProcessAll     a slice in, a slice of tasks in the same order out
//	ProcessSource  the same for any source
//	IterResults    a stream in, tasks out as they end, in bounded memory
//	IterOrdered    the same in input order, within a bounded window
//	Start          a Run: Submit and Next in different places, or Do for one's own reply
//
// # Two kinds of failure
//
// An item's failure is in its task and stops nobody else. A run's failure is the error of the call, comes after all
// results, and is one of few: the caller's context has ended, the source failed, the limiter itself failed, a function
// given as an option misbehaved, or as many tasks failed as [WithFailureLimit] allows. Whatever happens, every accepted
// item is handed out with its outcome; those that the end of the run cut off are Unfinished, and their error says why.
//
// # The life of a task
//
// The order is fixed, so that a limit means what it says: wait for the limiter, start the attempt timeout, call the
// handler, classify what it returned, wait for the backoff, and again from the start. The waits occupy the worker, count
// for the task timeout and not for the attempt timeout. A timeout cancels the handler's context and then waits for the
// handler, so an attempt never overlaps its own retry. A handler that returns a value has succeeded, however late.
//
// # Ending
//
// When a run is cancelled, nothing new starts and nothing is retried, and whoever waits for the run gets control back when
// the last handler has returned: no goroutine of a run outlives the call or the loop it belongs to. That is a promise about
// this package and a demand on handlers: one that ignores its context cannot be stopped.
//
// # Testing
//
// All of it works in a testing/synctest bubble: an hour of limited traffic takes milliseconds, exactly.
package penstock
