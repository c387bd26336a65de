package breaker

import (
	"log/slog"
	"runtime/debug"
)

type change struct{ from, to State }

// tell calls the user's function for each change. Only one goroutine is here at a time; what others change meanwhile it
// tells too, so the order is that of the changes.
func (b *Breaker) tell() {
	for {
		b.mu.Lock()
		if len(b.changes) == 0 {
			b.changes, b.telling = nil, false
			b.mu.Unlock()
			return
		}
		c := b.changes[0]
		b.changes = b.changes[1:]
		b.mu.Unlock()
		apart(func() { b.changed(c.from, c.to) })
	}
}

// apart calls f on a goroutine of its own and waits for it: this may be an engine's worker or the timer, which must go
// on whatever f does.
func apart(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if v := recover(); v != nil {
				complain(slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			} else if !returned {
				complain(slog.String("panic", "runtime.Goexit was called"))
			}
		}()
		f()
		returned = true
	}()
	<-ended
}

// complain logs. There is nobody left to tell when that panics too.
func complain(what ...any) {
	defer func() { _ = recover() }()
	slog.Default().Error("breaker: the function given to WithOnChange failed and was ignored", what...)
}
