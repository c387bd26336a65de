package penstock

import (
	"context"

	"github.com/penstock-go/penstock/buffering"
	"github.com/penstock-go/penstock/foreman"
)

// launch starts a run over a source. window is set when results are wanted in input order.
func (e *Engine[D, R]) launch(ctx context.Context, src Source[D], outlet foreman.Outlet[D, R], window *buffering.Window[Task[D, R]]) *foreman.Crew[D, R] {
	switch {
	case src.channel != nil:
		return e.receive(ctx, src.channel, outlet, window)
	case src.produce != nil:
		return e.produce(ctx, src.produce, outlet, window)
	case src.isNil != "":
		return e.produce(ctx, func(context.Context, func(D) bool) error { return src.check() }, outlet, window)
	default:
		return e.claim(ctx, &claims[D, R]{items: src.items, window: window}, outlet)
	}
}
