package boot

// The entries of the catalogue that the bus has at run time.

func busCodes() []Code {
	return []Code{
		{
			Name: "bus.bad_subject", Title: "a subject is not valid",
			Means: "It has 1 to 32 tokens with dots between them, at most 255 bytes, printable ASCII without spaces. * and > stand for whole tokens, and only where something is subscribed; a first character $ or _ is reserved. It was refused before anything was sent.",
		},
		{
			Name: "bus.bad_group", Title: "the name of a group is not valid",
			Means: "Nothing was subscribed.",
		},
		{
			Name: "bus.bad_header", Title: "a header of a message is not valid",
			Means: "Keys are tokens as in HTTP, values UTF-8 without line breaks, at most 64 keys and 8 KiB. Bus-* and Nats-* are reserved. Nothing was sent.",
		},
		{
			Name: "bus.invalid", Title: "an argument of the bus is not valid",
			Means: "It was refused before anything was sent.",
		},
		{
			Name: "bus.too_large", Title: "a message is too large",
			Means: "With its headers it is larger than the bus carries, by default 1 MiB. Nothing was sent, and the connection is unharmed.",
			Do:    []string{"put what is large somewhere else, and send where it is"},
		},
		{
			Name: "bus.closed", Title: "the bus is closed",
			Means: "The program is ending. Nothing is taken any more.",
		},
		{
			Name: "bus.draining", Title: "the bus takes no new subscriptions",
			Means: "The program is ending: what is queued is still handled, and may still publish and reply.",
		},
		{
			Name: "bus.no_responders", Title: "nobody responds to this subject",
			Means:  "No process that the bus reaches has a responder for it. A request that needed it is answered 502.",
			Causes: []string{"the process that responds is not running, or on a bus that this one does not reach", "the subject is written differently there"},
			Do:     []string{"see how far the bus reaches: the boot report says it"},
		},
		{
			Name: "bus.timeout", Title: "no answer came in time",
			Means:  "There is a responder, but its answer did not come before the deadline of the request, 5s where there is none. It may still do the work. A request that needed it is answered 504.",
			Causes: []string{"the responder is slow, or stuck", "it is asked more than it can answer"},
		},
		{
			Name: "bus.overloaded", Title: "there is no room for a message",
			Means: "What is to be sent is more than the connection takes, and there was no room until the context of the call ended. A request that needed it is answered 503.",
		},
		{
			Name: "bus.disconnected", Title: "the server of the bus was lost while an answer was awaited",
			Means: "It is not known whether the responder got the request. Connecting is tried again for as long as the program runs.",
			Do:    []string{"ask again, if doing it twice does no harm"},
		},
		{
			Name: "bus.refused", Title: "the server of the bus refused a subscription or a message",
			Means:  "The server answered with an error. Its words are in the text.",
			Causes: []string{"the account has no permission for the subject", "the account has reached its limit of subscriptions"},
			Do:     []string{"grant the permission, or raise the limit, on the server"},
		},
		{
			Name: "bus.terminated", Title: "a subscription was ended because it was full",
			Means: "Its handler is slower than its messages, and it was subscribed to end rather than to lose some.",
			Do:    []string{"give it a larger buffer, or more concurrency"},
		},
		{
			Name: "bus.decode", Title: "a message is not what its topic carries",
			Means:  "Its data cannot be read as the type that the handler takes. The message is skipped.",
			Causes: []string{"sender and receiver have different versions of the type", "something else is published on the subject"},
		},
		{
			Name: "bus.cycle", Title: "messages go round in a circle",
			Means: "A message is the consequence of 32 others, one handler publishing for the next. It was refused.",
			Do:    []string{"see which handlers publish what they themselves, or each other, subscribe to"},
		},
		{
			Name: "bus.unfinished", Title: "the bus was closed before every handler was done",
			Means:  "The time of the shutdown was over. The subscriptions are named, with what was running and what was queued.",
			Causes: []string{"a handler that does not heed its context", "more messages in a queue than the shutdown has time for"},
			Do:     []string{"give the shutdown longer: shutdown.timeout"},
		},
		{
			Name: "bus.unsupported", Title: "the bus driver cannot do this",
			Means: "What was asked for is among what the driver says it lacks.",
		},
		{
			Name: "bus.panic", Title: "a handler of the bus panicked",
			Means: "The subscription goes on with the next message; the log has the stack. Who requested it gets the code panic.",
		},
	}
}
