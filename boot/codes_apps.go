package boot

// The entries of the catalogue about how apps are put together and served.

func appCodes() []Code {
	return []Code{
		{
			Name: "boot.constructor_overrun", Exit: ExitOverrun, Title: "a constructor did not return",
			Means:  "A constructor has no context that could end it. It gets boot.wait_for, and then as long as a start hook; this one was left behind, and named.",
			Causes: []string{"it connects to something that does not answer, without a timeout", "it does the work of the program, which belongs in mega.Run"},
			Do:     []string{"have it return, and do what takes long in an OnStart hook, which has a budget of its own"},
		},
		{
			Name: "boot.routes_unknown", Exit: ExitUnavailable, Title: "the routes cannot be listed without starting the program",
			Means:  "To list routes nothing is opened: a function of mega.Routes is called with nil or zero values of what it takes. This one looked into a value, or failed for another reason, which is told.",
			Causes: []string{"a handler is made from a value: r.Get(\"/\", newHome(store))", "a method on an interface or with a value receiver, which Go looks up at once"},
			Do:     []string{"ask the running program: /ops/routes at ops.addr"},
		},
		{
			Name: "boot.locales", Exit: ExitInternal, Title: "the texts of an app cannot be used",
			Means: "A catalog given to mega.Locales cannot be read, the catalogs of the locales that are offered do not have the same texts, or apps.<name>.locales names one that has no catalog.",
			Do:    []string{"see to the cause: it names the file and the text"},
		},
		{
			Name: "cache.not_configured", Exit: ExitConfig, Title: "a client of redis is asked for, but no cache is configured",
			Means: "A function takes redis.UniversalClient, and no key cache.<alias>.url says where a redis is.",
			Do:    []string{"say where redis is: cache.main.url"},
		},
		{
			Name: "cache.ambiguous", Exit: ExitConfig, Title: "several caches are configured, and nothing says which is meant",
			Means: "redis.UniversalClient is the only cache, else the one called main, else the one that lock.cache names.",
			Do:    []string{"call one of them main", "take mega.Caches, which has all of them by their aliases"},
		},
		{
			Name: "cache.refused", Exit: ExitConfig, Title: "a cache cannot be what its address says",
			Means: "The address can be read, but no client can be made of it, and trying again would change nothing.",
			Do:    []string{"see to the cause: the key is named"},
		},
		{
			Name: "cache.unavailable", Exit: ExitUnavailable, Title: "a cache does not answer",
			Means:  "A cache that is asked for has to answer within boot.wait_for, or the program does not start.",
			Causes: []string{"redis is not running, or not at this address", "the password is wrong"},
			Do:     []string{"start it, or correct cache.<alias>.url", "wait longer: boot.wait_for"},
		},
	}
}
