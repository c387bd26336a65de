package retry

import (
	"errors"
	"slices"
)

// Is returns a filter for [Policy.If] or [Policy.Unless] that is true for an error which is one of the targets by
// errors.Is: the error itself, or any error that it wraps. Without targets it is true for no error at all, and a nil
// target matches none. The filter is safe for concurrent use.
func Is(targets ...error) func(error) bool {
	targets = slices.Clone(targets) // the caller's slice may change later
	return func(err error) bool {
		return err != nil && slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

// As returns a filter for [Policy.If] or [Policy.Unless] that is true for an error which is an E by errors.As: the error
// itself, or any error that it wraps. E is spelled as the error is returned, usually a pointer:
//
//	retry.As[*net.OpError]()
//
// E may be an interface, such as net.Error. The filter is safe for concurrent use.
func As[E error]() func(error) bool {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}
