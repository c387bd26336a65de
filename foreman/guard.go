package foreman

// apart calls a function of the user's on a goroutine of its own and waits for it, for callers that must go on whatever
// it does. It returns a PanicError or ErrGoexit when the function did not return.
func apart(f func()) error {
	ended := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() {
			if v := recover(); v != nil {
				err = newPanicError(v)
			}
			ended <- err
		}()
		f()
		err = nil
	}()
	return <-ended
}
