// Package bus provides publish and subscribe, and request and response, between
// the parts of a process, the processes of a machine, or several machines. The
// scope of the driver decides which of these.
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
// subscription has a bounded buffer, messages that do not fit are counted and
// reported to the [Observer], and Msg.Missed of the next handled message is
// their number. After an outage of the backend the number is unknown, and
// Msg.Missed is -1. Data that must not be lost belong in a queue or a database.
//
// Publish never waits for a handler. It may be called from within a handler,
// and under a mutex that handlers lock too.
//
// A subscription that handles one message at a time, which is the default,
// handles the messages of one Bus in the order of their publication. [OrderBy]
// keeps this order for each key at any concurrency.
//
// # Subjects and groups
//
// Subjects are tokens joined by dots, "orders.eu.created". In a subscription's
// pattern * matches one token, and > matches the rest. The subscriptions with
// the same pattern and the same [Group] share the messages; every other one
// gets a copy.
//
// Events and requests never meet: Publish reaches Subscribe, and Request
// reaches Respond, also where the subject is the same.
//
// # Time
//
// A request always has a deadline, and its responder's context has the same
// one. A message sent from within a handler carries the trace and the baggage
// of the handled message, and counts the hops: a chain of more than 32 fails
// with ErrCycle. Work that feeds itself must begin a new chain with a new
// context.
//
// # The end
//
// [Bus.Drain] ends a [Bus] and finishes the accepted work first. [Bus.Close]
// ends it at once. Both free all resources; their error names handlers that do
// not return.
//
// # How it works
//
//	Publish ── check, header ── driver            compose.go, options.go, header.go
//	driver ── Sink ── queue ── runner ── handler  sink.go, queue.go, runner.go
//	                    └ lanes                   lanes.go, if OrderBy is set
//
// Publish passes the message to the driver, which alone waits for room in its
// outbound queue (S6, driver.RoomContext). The driver delivers to the sink of a
// subscription, which never blocks: it queues the message, or applies the
// policy of [OnFull]. Runners take messages from the queue and call the handler.
// They end when the queue is empty, and the next message starts them.
//
// Requests in flight are in request.go and many.go, responders in respond.go,
// gaps and their repair in gap.go, and the end in drain.go and close.go.
package bus
