package penstock

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
)

// produce starts a run over a function that yields items: it runs on a goroutine of its own and fills an inbox.
func (e *Engine[D, R]) produce(ctx context.Context, f func(context.Context, func(D) bool) error, outlet foreman.Outlet[D, R], window *buffering.Window[Task[D, R]]) *foreman.Crew[D, R] {
	inbox := shutting[D, R]{e.plan.NewInbox(true), window}
	p := &producer[D, R]{engine: e, inbox: inbox.Inbox, window: window}
	p.crew = e.newCrew(ctx, foreman.CrewConfig[D, R]{Intake: inbox, Outlet: outlet})
	inbox.Open(p.crew)
	p.crew.Go(func() { p.run(f) })
	p.crew.Start()
	return p.crew
}

// shutting is an inbox whose end is the end of the window before it too.
type shutting[D, R any] struct {
	*foreman.Inbox[D, R]
	window *buffering.Window[Task[D, R]]
}

func (s shutting[D, R]) Abandon(cause error, unfinished func(*foreman.Job[D, R])) {
	if s.window != nil {
		s.window.Shut()
	}
	s.Inbox.Abandon(cause, unfinished)
}

type producer[D, R any] struct {
	engine *Engine[D, R]
	crew   *foreman.Crew[D, R]
	inbox  *foreman.Inbox[D, R]
	window *buffering.Window[Task[D, R]]
}

// run calls the function and deals with each way in which it can end.
func (p *producer[D, R]) run(f func(context.Context, func(D) bool) error) {
	err := ErrGoexit // unless it returns or panics
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		p.ended(err)
	}()
	err = f(p.crew.Context(), p.yield)
}

func (p *producer[D, R]) ended(err error) {
	ctx := p.crew.Context()
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		// It was told to stop, and did. The run says why.
	case err != nil:
		p.crew.Fail(sourceError(err))
	default:
		p.inbox.Close(ErrInputClosed)
	}
}

// sourceError does not wrap an error of ours that says it all already.
func sourceError(err error) error {
	if already, ok := err.(*SourceError); ok {
		return already
	}
	return &SourceError{Err: err}
}

func (p *producer[D, R]) yield(item D) bool {
	if p.crew.Context().Err() != nil {
		return false
	}
	priority, err := p.engine.plan.PriorityOf(item)
	if err != nil {
		p.crew.Fail(err)
		return false
	}
	if p.window != nil && p.window.Enter(1) == 0 {
		return false
	}
	return p.inbox.Feed(item, priority) == nil && p.crew.Context().Err() == nil
}
