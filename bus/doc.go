// Package bus publishes and subscribes, requests and responds: between the
// parts of a process, its processes or its machines, as far as the driver under
// it reaches.
//
//	b, err := bus.New(memory.NewBus(), bus.Config{})
//	…
//	const Sold = bus.Topic[Sale]("product.sold")
//
//	sub, err := Sold.Subscribe(ctx, b, func(ctx context.Context, s Sale) error {
//		return ledger.Add(ctx, s)
//	})
//	err = Sold.Publish(ctx, b, Sale{Product: "42"})
//
// # What is promised
//
// A message is delivered at most once, and a loss is never silent: each
// subscription has a bounded buffer, what does not fit is counted and told to
// the [Observer], and the next message that is handled says in Msg.Missed how
// many there were. After an outage of the backend, when nobody can know, it
// says -1. What must not get lost belongs into a queue or a database.
//
// Publish never waits for a handler, so every call may be made from within a
// handler, and under any mutex that a handler may take too.
//
// What is published one after the other on one Bus is handled in this order by
// a subscription that handles one at a time, which is the default; [OrderBy]
// keeps it by key at any concurrency.
//
// # Subjects and groups
//
// Subjects are tokens joined by dots, "orders.eu.created". A subscription's
// pattern may have * for one token, and > for the rest. The subscriptions with
// the same pattern and the same [Group] share the messages; every other one gets
// a copy.
//
// Events and requests never meet: Publish reaches Subscribe, and Request
// reaches Respond, also where the subject is the same.
//
// # Time
//
// A request always has a deadline, which its responder's context has too. What
// is sent from within a handler carries the trace and the baggage of the message
// at hand, and counts the hops: a chain of more than 32 is ErrCycle. It is not
// what a handler should do for ever; work that feeds itself begins a new chain
// with a context of its own.
//
// # The end
//
// A [Bus] is ended by [Bus.Drain], which finishes what was begun, or by
// [Bus.Close], which does not. Both leave nothing behind; a handler that does
// not return is named.
package bus
