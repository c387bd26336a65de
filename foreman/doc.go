// Package foreman keeps bounded workers busy and sees each task through its attempts. Package penstock is built on it and
// is what most programs want; this package is for those who orchestrate by themselves.
//
// There are two levels. A [Foreman] has queues of its own: add tasks, read results. A [Crew] has none: its workers take
// jobs from an [Intake] and deliver to an [Outlet], which are yours, or an [Inbox] and an [Outbox]. Both follow a [Plan],
// which holds the handler and the options, checked.
//
// The life of a task with its worker is in attempt.go and reads from top to bottom: limiter, attempt timeout, handler,
// classify, backoff, and again.
package foreman
