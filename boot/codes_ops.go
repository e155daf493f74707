package boot

// The entries of the catalogue that an operator is answered, at the listener of
// ops.addr and at the admin socket.

func opsCodes() []Code {
	return []Code{
		{
			Name: "admin.forbidden", Title: "the process belongs to another user",
			Means: "The admin socket is for the user who runs the process, and for root. The system says that somebody else connects.",
			Do:    []string{"ask as the user who runs the process"},
		},
		{
			Name: "admin.unknown_peer", Title: "the system does not say who connects",
			Means: "The user at the other end of a connection to the admin socket could not be found out, so that nothing is done for him.",
		},
		{
			Name: "mega.starting", Title: "the process has not started yet",
			Means: "What was asked for is shown when the boot has come to its end. The probes answer before that.",
			Do:    []string{"ask again, when /startupz answers 200"},
		},
		{
			Name: "ops.foreign_host", Title: "the listener for operators was asked for by a strange name",
			Means:  "It listens on a loopback address, and answers only to localhost and to such an address. A page whose name somebody has resolve to a loopback address could read it otherwise.",
			Causes: []string{"a proxy in front of it that passes on the name it was asked by"},
			Do:     []string{"ask for http://localhost:PORT", "have the proxy set the Host header to localhost", "listen on an address that others reach: ops.addr"},
		},
		{
			Name: "worker.none", Title: "the process has no workers",
			Means: "It serves by itself. Only a program that was started with several workers has a supervisor, which can be asked for one of them.",
			Do:    []string{"leave the worker out", "start several: serve --workers 4"},
		},
		{
			Name: "worker.none_ready", Title: "no worker is ready",
			Means:  "A supervisor has its workers answer. None of them has started yet, or all are ending.",
			Causes: []string{"the program has just been started", "it is being stopped", "its workers die as soon as they have started: the log says why"},
			Do:     []string{"ask again in a moment", "see what they do: worker ls"},
		},
		{
			Name: "worker.not_ready", Title: "the worker that was asked for is not ready",
			Means: "It is starting, or ending because it is being replaced.",
			Do:    []string{"ask another worker, or none by its number", "ask again in a moment"},
		},
		{
			Name: "worker.not_restarted", Title: "a worker could not be replaced",
			Means:  "Its replacement did not become ready, so that the old one goes on serving; workers whose turn had not come are as they were.",
			Causes: []string{"the configuration or the executable has changed, and the new one does not start", "the workers are being restarted already"},
			Do:     []string{"see why in the log", "see what the workers do: worker ls"},
		},
		{
			Name: "worker.unanswered", Title: "a worker does not answer",
			Means:  "The supervisor has asked it and got no answer. Whoever does not name a worker is answered by another one.",
			Causes: []string{"it has just ended: another process is taking its place", "it was stopped, or is very busy"},
			Do:     []string{"ask again in a moment", "ask without naming a worker"},
		},
		{
			Name: "worker.unknown", Title: "there is no such worker",
			Means: "Workers have the numbers from 1 to cluster.workers.",
			Do:    []string{"see them: worker ls"},
		},
	}
}
