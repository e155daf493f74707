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
	}
}
