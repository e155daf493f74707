package boot

// The entries of the catalogue that are met at run time: in logs, in the
// answers to requests, and by errors that have a Code method.

func lockCodes() []Code {
	return []Code{
		{
			Name: "lock.not_acquired", Title: "the lock was busy until the wait was over",
			Means:  "Somebody else held it for longer than the caller was willing to wait. That is not a fault: it is what the lock is for. A request is answered 409 with Retry-After.",
			Causes: []string{"work under the lock takes longer than lock.wait", "many ask for one key: a narrower one would let them work side by side"},
			Do:     []string{"see who holds it: lock show <key>", "wait longer at this place: lock.Wait(d)"},
		},
		{
			Name: "lock.queue_full", Title: "too many processes wait for one lock",
			Means:  "The queue of the key has 10 000 tickets at the server, and takes no more. A request is answered 409 with Retry-After.",
			Causes: []string{"a holder that does not release: waiters gather behind it", "many processes wait without a bound, or with lock.FIFO(), for one key"},
			Do:     []string{"see who holds it: lock show <key>", "wait less at this place: lock.Wait(d)", "use narrower keys"},
		},
		{
			Name: "lock.lost", Title: "a lease ended before it was released",
			Means:  "From then on somebody else may have held the key, so the context of the work was ended. A request is answered 409: what was done so far has to be looked at before it is done again.",
			Causes: []string{"the server could not be reached until the lease's time was up (unreachable)", "the process stood still for longer than the TTL (expired)", "an operator took it (forced: with who and why)", "the program ended (shutdown)"},
			Do:     []string{"guard what is written with the fence of the lease", "raise lock.ttl if processes stand still for that long"},
		},
		{
			Name: "lock.unavailable", Title: "the server that keeps the locks does not answer",
			Means:  "It is not known whether the lock is free, so it was not given. A request is answered 503 with Retry-After.",
			Causes: []string{"the server is down, failing over, or cut off from this machine", "it is full, or refuses writes"},
			Do:     []string{"see to the server: the cause is in the log"},
		},
		{
			Name: "lock.deadlock", Title: "the caller holds the key already",
			Means: "A lease of the key is held further up on the same context, so that waiting would not end. A request is answered 500: it is a mistake in the program.",
			Do:    []string{"use the lease that is there: ctx.Lease()", "take both keys at one place"},
		},
		{
			Name: "lock.invalid", Title: "an argument of a lock is not valid",
			Means: "It was refused before anything was sent.",
		},
		{
			Name: "lock.invalid_key", Title: "the name of a lock is not valid",
			Means: "A key is 1 to 512 bytes of UTF-8 without white space and control characters. A request is answered 400: often the key was made of what the client sent.",
		},
		{
			Name: "lock.invalid_option", Title: "an option of a lock is not valid",
			Means: "A TTL is 100ms to 24h, a wait is not negative, slots are 1 to 4096, a label has at most 128 bytes. TryAcquire takes no wait.",
		},
		{
			Name: "lock.unsupported", Title: "the driver cannot do this",
			Means:  "What was asked for is among what the boot report says the driver lacks.",
			Causes: []string{"Slots with lock.redis.engine: redislock"},
			Do:     []string{"use the engine queue"},
		},
		{
			Name: "lock.closed", Title: "the program is ending",
			Means: "Locks take no new work any more. A request is answered 503 with Retry-After.",
		},
	}
}

func requestCodes() []Code {
	return []Code{
		{
			Name: "internal", Title: "a handler failed",
			Means: "It returned an error without an answer of its own, or panicked. A request is answered 500, without a word on the cause; the log has it under the id of the request.",
		},
		{
			Name: "request.not_found", Title: "there is nothing at this path",
			Means: "No route and no public file of the app has it. It is answered 404.",
		},
		{
			Name: "request.method_not_allowed", Title: "the path does not take this method",
			Means: "There are routes for the path, but none for the method. It is answered 405.",
		},
		{
			Name: "request.bad_body", Title: "the body cannot be read",
			Means: "It is not what its Content-Type says, or has fields that are not known. It is answered 400.",
		},
		{
			Name: "request.unsupported_media_type", Title: "the body is of a kind that is not read here",
			Means: "Bind reads JSON and forms. It is answered 415.",
		},
		{
			Name: "request.invalid", Title: "the body can be read, but must not be used",
			Means: "Its Validate method refused it. It is answered 422, with what is wrong by field.",
		},
		{
			Name: "request.too_large", Title: "the body is larger than is allowed",
			Means: "It was read up to the limit and no further. It is answered 413.",
		},
		{
			Name: "request.cross_origin", Title: "another site asked for a change",
			Means:  "The browser says that the request comes from a page of another origin, and its method is one that changes something. It is answered 403.",
			Causes: []string{"a proxy that replaces the Host header"},
			Do:     []string{"trust the other origin, if it is yours"},
		},
		{
			Name: "request.timeout", Title: "the request took too long",
			Means: "Its context ended by its deadline. It is answered 504.",
		},
		{
			Name: "request.cancelled", Title: "the client went away",
			Means: "Nobody received an answer; the log has the request under the status 499.",
		},
		{
			Name: "request.aborted", Title: "the handler gave up the connection",
			Means: "It panicked with http.ErrAbortHandler, by which net/http is told to cut the connection. Nobody received the rest of the answer.",
		},
		{
			Name: "mega.not_configured", Title: "a Ctx has no part of that kind",
			Means:  "A view of the Ctx was used that nothing was put behind. A request is answered 500.",
			Causes: []string{"a Ctx that a test made by itself"},
		},
		{
			Name: "mega.busy", Title: "an operator asks for too much at once",
			Means: "A listing of all locks walks through all of them, so only a few are made at a time.",
			Do:    []string{"ask again, when the others have ended"},
		},
		{
			Name: "mega.no_request", Title: "there is no request here",
			Means: "A Ctx of a hook or of a detached task has nobody to answer.",
		},
		{
			Name: "mega.answered", Title: "the request has been answered already",
			Means: "A handler answered twice. What the client got is the first answer.",
			Do:    []string{"return the error of the first answer: return ctx.JSON(…)"},
		},
		{
			Name: "mega.handler_returned", Title: "the handler has returned",
			Means: "Why the context of a request ends once its handler has returned, and what its writers answer from then on.",
			Do:    []string{"let work that outlives the request run in ctx.Go"},
		},
		{
			Name: "mega.shutting_down", Title: "the program is ending",
			Means: "The request had not finished within shutdown.timeout. It is answered 503 with Retry-After.",
		},
	}
}
