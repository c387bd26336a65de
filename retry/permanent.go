package retry

import "errors"

// Permanent marks err as not worth another attempt: a task that fails with it is never retried, whatever the policy's
// filters say, and they are not even asked. A handler returns it when it knows better than the policy:
//
//	return zero, retry.Permanent(fmt.Errorf("row %d: bad address", row.ID))
//
// The mark decides that one question and changes nothing else. The text stays err's; errors.Is, errors.As and
// errors.Unwrap find err and everything that it wraps; a Retry-After hint in err can still be read. The mark is found
// wherever it is in the chain, so it may be wrapped further.
//
// It also stays when a result is passed on: when the handler of one run makes another run, and returns an error that was
// marked inside, its own task is not retried either. When the outer run should try such an error again, return what was
// marked (errors.Unwrap gives it, if the mark is the outermost layer) or a new error.
//
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	if marked, ok := err.(*permanentError); ok { // one layer says it all
		return marked
	}
	return &permanentError{err}
}

// IsPermanent reports whether err, or any error that it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
