package shop

import (
	"context"
	"encoding/json"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
)

// The topics of what has been done.
const (
	Ordered   = bus.Topic[Order]("order.placed")
	Refunded  = bus.Topic[Order]("order.refunded")
	Restocked = bus.Topic[Product]("product.restocked")
)

// announce publishes a change after its lock was released. The change is valid even if
// the publish fails, or if the client has left.
func announce[T any](ctx *mega.Ctx, topic bus.Topic[T], v T) {
	if err := mega.Publish(ctx.Detach(), topic, v); err != nil {
		ctx.Log.Error("change not published", "subject", string(topic), "error", err)
	}
}

// Alive is the interval between two calls of SendAlive.
const Alive = 5 * time.Second

// SendAlive sends the event "alive", by which a page knows that the server works: one
// that is stopped ends no connection. It fails while the bus is disconnected, because the
// page does not learn of changes then.
func SendAlive(s *mega.Stream) error {
	if s.Bus.Stats().State == bus.StateDisconnected {
		return bus.ErrDisconnected
	}
	return s.Send("alive", "")
}

// Watch sends a page what any process on the bus does, until the stream ends:
// the event "order" with each order that is placed or refunded, "product" with
// each product whose stock is raised, and "gap" where some of them were lost.
// The event "ready" comes first: what is read after it and changed by each later
// event is complete.
func Watch(s *mega.Stream) error {
	for _, w := range []struct{ subjects, event string }{{"order.*", "order"}, {"product.*", "product"}} {
		_, err := s.Bus.Subscribe(w.subjects,
			func(_ *mega.Ctx, m *bus.Msg) error { return s.Send(w.event, json.RawMessage(m.Data)) },
			bus.OnGap(func(context.Context, int) error { return s.Send("gap", "") }))
		if err != nil {
			return err
		}
	}
	if err := SendAlive(s); err != nil {
		return err
	}
	return s.Send("ready", "")
}
