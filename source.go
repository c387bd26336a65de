package penstock

import (
	"context"
	"errors"
	"iter"
)

// A Source is where the items of a run come from. Make one with FromSlice, FromSeq, FromSeq2, FromChan or FromFunc. The
// zero Source has no items.
//
// The number of a task, its Index, is the position of its item in the source. A source is read by one run at a time and,
// unless it is a slice or a restartable iterator, by one run altogether.
//
// A run that ends early stops reading. It cannot interrupt a source that is busy inside the user's code, so it waits for
// it: a sequence that may block for long should be a FromFunc, which gets a context, or a channel.
type Source[T any] struct {
	items   []T
	channel <-chan T
	produce func(ctx context.Context, yield func(T) bool) error
	isNil   string // what was nil
}

func (s Source[T]) isSlice() bool { return s.channel == nil && s.produce == nil && s.isNil == "" }

// FromSlice gives the items of a slice. Workers take them directly, by index: there is no queue and no goroutine for
// the source. The slice must not be changed while a run uses it.
func FromSlice[T any](items []T) Source[T] { return Source[T]{items: items} }

// FromSeq gives what an iterator yields. It runs on a goroutine of its own, up to the input capacity ahead of the workers.
func FromSeq[T any](seq iter.Seq[T]) Source[T] {
	if seq == nil {
		return Source[T]{isNil: "FromSeq: the sequence is nil"}
	}
	return FromFunc(func(_ context.Context, yield func(T) bool) error {
		seq(yield)
		return nil
	})
}

// FromSeq2 is FromSeq for an iterator that can fail. The first non-nil error ends the run with a *[SourceError] that
// wraps it; the value beside it is ignored. Ending the run cancels the handlers that are under way. What has ended is
// published first. To have everything finished that was read before the error, keep the error aside and end the sequence.
func FromSeq2[T any](seq iter.Seq2[T, error]) Source[T] {
	if seq == nil {
		return Source[T]{isNil: "FromSeq2: the sequence is nil"}
	}
	return FromFunc(func(_ context.Context, yield func(T) bool) error {
		for item, err := range seq {
			if err != nil {
				return err
			}
			if !yield(item) {
				break
			}
		}
		return nil
	})
}

// FromChan gives what comes out of a channel until it is closed. Workers receive from it directly: there is no queue and
// no goroutine for the source, and a worker that waits for an item ends at once when the run does. The engine neither
// closes nor drains the channel. What was received has been taken from it for good: a consumer that leaves its loop does not
// get to see the tasks that were under way.
func FromChan[T any](ch <-chan T) Source[T] {
	if ch == nil {
		return Source[T]{isNil: "FromChan: the channel is nil, so nothing would ever come"}
	}
	return Source[T]{channel: ch}
}

// FromFunc gives what a function yields. Its context ends when the run does, also while it waits for something of its own.
// An error that it returns ends the run with a *[SourceError], except one that only reports that its context has ended.
//
// yield waits while the input is full: its item is accepted as soon as there is room, and it returns when half of the
// input capacity is free, so that a fast source reads ahead in strides. It returns false once the run wants no more items;
// the function should then return. The item it was given may or may not have been accepted by then, which the tasks tell,
// and is not started. yield must not be called by two goroutines at once, nor after the function has returned.
func FromFunc[T any](f func(ctx context.Context, yield func(T) bool) error) Source[T] {
	if f == nil {
		return Source[T]{isNil: "FromFunc: the function is nil"}
	}
	return Source[T]{produce: f}
}

// check is what is wrong with the source itself.
func (s Source[T]) check() error {
	if s.isNil == "" {
		return nil
	}
	return &SourceError{Err: errors.New(s.isNil)}
}
