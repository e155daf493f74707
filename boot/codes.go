package boot

// The entries of the catalogue that end a boot.

func bootCodes() []Code {
	return []Code{
		{
			Name: "boot.no_app", Exit: ExitInternal, Title: "the program has no app",
			Means: "mega.Main was given no mega.App, so there is nothing to serve.",
			Do:    []string{`give it one: mega.Main(mega.App("main", mega.Routes(routes)))`},
		},
		{
			Name: "boot.app", Exit: ExitInternal, Title: "an app of the program cannot be",
			Means:  "An app has a name that nothing can be called by, or one that another app has, or it stands inside another app.",
			Causes: []string{"the name is not one lower-case word: it becomes part of keys (apps.web.addr) and variables (MEGA_APPS_WEB_ADDR)", "two modules add an app of the same name"},
			Do:     []string{"rename or move the app at the line that is given"},
		},
		{
			Name: "boot.unknown_app", Exit: ExitUsage, Title: "there is no such app to run alone",
			Means: "--only names an app that the program does not have.",
			Do:    []string{"use one of the names that the panel lists"},
		},
		{
			Name: "boot.unknown_trace", Exit: ExitUsage, Title: "there is nothing of that name to trace",
			Means: "--trace names something that a boot cannot trace.",
			Do:    []string{"trace the injector: --trace fx"},
		},
		{
			Name: "boot.wrong_shape", Exit: ExitInternal, Title: "an option was given a function that it cannot use",
			Means:  "Each option calls its function with arguments of its own, beside the provided values that the function asks for. This one takes or returns something else.",
			Causes: []string{"a Routes without the mega.Router", "a Ready without an error to return", "a constructor that takes a context: it has none to be given"},
			Do:     []string{"compare the type that was given with the one that is wanted; both are in the panel"},
		},
		{
			Name: "boot.not_provided", Exit: ExitInternal, Title: "a function needs a value that nothing provides",
			Means:  "Every parameter beside an option's own has to be made by a constructor of the same app, or by one shared by all apps.",
			Causes: []string{"the constructor was not given to mega.Provide", "it makes T and *T is asked for, or the other way round", "it belongs to another app, whose values are private to it"},
			Do:     []string{"add the constructor: mega.Provide(NewT)", "move it out of its app, to mega.Main, if all apps may have it"},
		},
		{
			Name: "boot.provided_twice", Exit: ExitInternal, Title: "two constructors make the same type",
			Means:  "Values are told apart by their type alone, so that nobody could say which of the two is meant.",
			Causes: []string{"a module is used twice", "an app makes what is shared already"},
			Do:     []string{"remove one of the two lines that are given", "give one of them a type of its own: type Replica struct{ *sql.DB }"},
		},
		{
			Name: "boot.circle", Exit: ExitInternal, Title: "constructors need each other",
			Means: "Each of them waits for what another one makes, so that none can be the first.",
			Do:    []string{"move what both need into a third value", "let one of them get the other in an OnStart hook"},
		},
		{
			Name: "boot.constructor_failed", Exit: ExitUnavailable, Title: "a constructor returned an error",
			Means:  "Something that the program needs cannot be had now. The cause is in the words of the constructor.",
			Causes: []string{"a database that does not answer", "a file that is not there"},
			Do:     []string{"see to the cause, and start the program again"},
		},
		{
			Name: "boot.constructor_panicked", Exit: ExitInternal, Title: "a constructor panicked",
			Means: "That is a mistake in the program. The panel says where the panic began; --trace fx adds the stack.",
		},
		{
			Name: "boot.hook_failed", Exit: ExitInternal, Title: "a start hook failed",
			Means:  "A function that was given to OnStart, OnPrimary or Run returned an error or panicked before the program served.",
			Causes: []string{"a migration that does not apply", "a cache that cannot be warmed up"},
			Do:     []string{"see to the cause: the hook is named"},
		},
		{
			Name: "boot.hook_overrun", Exit: ExitOverrun, Title: "a start hook took longer than its budget",
			Means:  "Each start hook has a budget. This one was told to end when its budget was used up, and everything that had started was ended again. The status says that trying again may help.",
			Causes: []string{"it waits for something that is not there", "it does more than belongs before the first request"},
			Do:     []string{"have it return early: its context ends with its budget", "do what takes long in the background: mega.Run"},
		},
		{
			Name: "boot.views", Exit: ExitInternal, Title: "the pages of an app cannot be used",
			Means: "A template given to mega.Views does not parse, or a page has no name of its own.",
			Do:    []string{"see to the cause: it names the file and the line"},
		},
		{
			Name: "boot.public", Exit: ExitInternal, Title: "the public files of an app cannot be read",
			Means: "A file given to mega.Public could not be read while the program was put together.",
			Do:    []string{"see to the cause: it names the file"},
		},
		{
			Name: "boot.routes", Exit: ExitInternal, Title: "the routes of an app cannot be used",
			Means:  "A function given to mega.Routes returned an error, or asked for a route that cannot be.",
			Causes: []string{"a pattern that does not begin with /", "a handler that is nil"},
			Do:     []string{"see to the cause: the function is named"},
		},
		{
			Name: "boot.failed", Exit: ExitInternal, Title: "the program could not be put together",
			Means: "The cause has no code of its own; it is told as it came.",
			Do:    []string{"look at how the program was put together: --trace fx"},
		},
		{
			Name: "app.cannot_listen", Exit: ExitUnavailable, Title: "an address cannot be listened on",
			Means:  "Every address is taken before any app serves, so that a program serves whole or not at all.",
			Causes: []string{"another process has the address: often the same program, started before", "a port below 1024 without the right to it", "an address that this machine does not have"},
			Do:     []string{"see who has it: ss -ltnp", "choose another: apps.<name>.addr, ops.addr", "take a free port: 127.0.0.1:0; the boot report says which"},
		},
	}
}

func lockBootCodes() []Code {
	return []Code{
		{
			Name: "lock.no_cache", Exit: ExitConfig, Title: "locks in redis are asked for, but no cache is configured",
			Means: "lock.driver is redis, and no key cache.<alias>.url says where one is.",
			Do:    []string{"say where redis is: cache.main.url", "let mega choose: leave lock.driver out"},
		},
		{
			Name: "lock.ambiguous_cache", Exit: ExitConfig, Title: "several caches are configured, and nothing says which keeps the locks",
			Means: "All processes that share work have to lock in the same place, so mega does not guess.",
			Do:    []string{"name it: lock.cache"},
		},
		{
			Name: "lock.no_cluster", Exit: ExitConfig, Title: "locks of the cluster are asked for outside a cluster",
			Means: "lock.driver is cluster, but this process is no worker of a supervisor, and cluster.socket does not say where the processes of this node meet.",
			Do:    []string{"run the program as workers: serve --workers 2", "meet at the socket of the node: cluster.socket: auto", "let mega choose: leave lock.driver out"},
		},
		{
			Name: "lock.driver_missing", Exit: ExitConfig, Title: "this build does not have the lock driver that the configuration decides for",
			Means: "The decision stands, and is not replaced by another driver: what was to be excluded would not be.",
			Do:    []string{"share locks through redis: cache.main.url", "keep them in the process: lock.driver: memory"},
		},
		{
			Name: "lock.scope_too_small", Exit: ExitConfig, Title: "locks do not reach as far as is required",
			Means:  "lock.require, or an app's RequireScope, asks for exclusion within the node or the fleet; the driver that was chosen ends before that.",
			Causes: []string{"the variable or the line that says where redis is got lost on the way to this machine"},
			Do:     []string{"say where redis is: cache.main.url", "ask for less: lock.require, or the app's RequireScope"},
		},
		{
			Name: "lock.driver_unavailable", Exit: ExitUnavailable, Title: "the server that keeps the locks cannot be used",
			Means:  "It did not answer, or not in a way that locks can rely on, for as long as boot.wait_for says. mega never falls back to another driver: two processes would then hold one lock.",
			Causes: []string{"the server is not running, or is elsewhere", "a wrong user or password", "a replica, which takes no writes", "a server that has just been started and is still loading"},
			Do:     []string{"start it, or correct cache.<alias>.url", "wait longer, where servers start in any order: boot.wait_for"},
		},
		{
			Name: "lock.driver_refused", Exit: ExitConfig, Title: "the lock driver cannot be opened as configured",
			Means:  "The configuration asks for something that the server is not: trying again would not help.",
			Causes: []string{"a Redis Cluster behind a redis:// URL, or one server behind a redis-cluster:// URL", "a database that is no number", "a lock.redis.key without a hash tag on a Redis Cluster"},
			Do:     []string{"correct the URL or the key that is named"},
		},
	}
}

func busBootCodes() []Code {
	return []Code{
		{
			Name: "bus.driver_unavailable", Exit: ExitUnavailable, Title: "the server that carries the messages cannot be used",
			Means:  "It did not answer, or did not let this process in, for as long as boot.wait_for says. mega never falls back to another driver: processes would then talk to themselves.",
			Causes: []string{"the server is not running, or is elsewhere", "a wrong user, password, token or credentials file"},
			Do:     []string{"start it, or correct nats.url", "wait longer, where servers start in any order: boot.wait_for"},
		},
		{
			Name: "bus.driver_refused", Exit: ExitConfig, Title: "the bus driver cannot be opened as configured",
			Means:  "The configuration asks for something that cannot be: trying again would not help.",
			Causes: []string{"an address that is not one of NATS", "a file of credentials or certificates that cannot be read", "one prefix for events and requests"},
			Do:     []string{"correct the key that is named"},
		},
		{
			Name: "bus.no_server", Exit: ExitConfig, Title: "a bus on NATS is asked for, but no server is configured",
			Means: "bus.driver is nats, and nats.url does not say where one is.",
			Do:    []string{"say where NATS is: nats.url", "let mega choose: leave bus.driver out"},
		},
		{
			Name: "cluster.no_supervisor", Exit: ExitConfig, Title: "there is no supervisor for workers",
			Means:  "Workers are processes that the verb serve starts, and hands the program's addresses and a line to itself. This process is to have workers, or to be one, where that cannot be.",
			Causes: []string{"MEGA_WORKER_* was set by hand, or left over in an environment", "the program was started by boot.Start, which runs one process", "a system where processes cannot share listeners: workers need Linux or macOS"},
			Do:     []string{"unset MEGA_WORKER_*, and start the program with serve --workers 2", "serve in one process: leave cluster.workers out"},
		},
		{
			Name: "cluster.unavailable", Exit: ExitUnavailable, Title: "the processes of this machine cannot be met",
			Means:  "cluster.socket says where the processes of this user share locks and messages. Whoever comes first serves the others there; this process could neither be that nor reach it.",
			Causes: []string{"a process that holds the place and stands still"},
			Do:     []string{"end or continue the process that the cause names", "meet elsewhere: cluster.socket"},
		},
		{
			Name: "cluster.place_refused", Exit: ExitConfig, Title: "processes cannot meet where cluster.socket says",
			Means:  "The socket, and what lies beside it, has to be in a folder that nobody else can enter or replace: whoever can reach it takes part in locks and messages. Trying again would not help.",
			Causes: []string{"a folder that is for all users, such as /tmp, or somebody else's", "a folder whose parent is missing", "a path that is too long for a socket", "a file or a folder at the path"},
			Do:     []string{"let mega make a folder: cluster.socket: auto", "give it a folder of its own, below the one that is named"},
		},
		{
			Name: "cluster.changed", Exit: ExitConfig, Title: "a worker would keep locks or messages elsewhere than the others",
			Means:  "What decides where locks and messages are was changed after the program had started. Beside workers that go on as they were, one that reads it now would hold locks that they hold, too, and not hear what they say. It does not start, and they go on.",
			Causes: []string{"lock.driver, cache.<alias>.url, nats.url, cluster.socket or one of their like in a file, and then a crash or a restart of the workers"},
			Do:     []string{"restart the whole program: stop it, and start it again", "take the change back"},
		},
		{
			Name: "cluster.worker_died", Exit: ExitInternal, Title: "a worker cannot be made to serve",
			Means:  "It ended five times in a row before it had started, or in a way that is the same next time, and no other served or the program had not started yet, so that the supervisor has ended all of them. The exit status is that of the worker, where it has one that means something: 64, 69, 75 or 78.",
			Causes: []string{"what ends a single process, too: the panel of the worker says what", "a kill, for memory: see what the system says", "a new executable at the same path that does not start"},
			Do:     []string{"read what the worker said before it ended", "start the program with --workers 1, and mend what that says"},
		},
		{
			Name: "bus.no_cluster", Exit: ExitConfig, Title: "the bus of the cluster is asked for outside a cluster",
			Means: "bus.driver is cluster, but this process is no worker of a supervisor, and cluster.socket does not say where the processes of this node meet.",
			Do:    []string{"run the program as workers: serve --workers 2", "meet at the socket of the node: cluster.socket: auto", "let mega choose: leave bus.driver out"},
		},
		{
			Name: "bus.driver_missing", Exit: ExitConfig, Title: "this build does not have the bus driver that the configuration decides for",
			Means: "The decision stands, and is not replaced by another driver: messages would not arrive where they are expected.",
			Do:    []string{"keep the bus in the process: bus.driver: memory"},
		},
		{
			Name: "bus.scope_too_small", Exit: ExitConfig, Title: "the bus does not reach as far as is required",
			Means:  "bus.require, or an app's RequireScope, asks for a bus of the node or the fleet; the driver that was chosen ends before that.",
			Causes: []string{"the variable or the line that says where NATS is got lost on the way to this machine"},
			Do:     []string{"say where NATS is: nats.url", "ask for less: bus.require, or the app's RequireScope"},
		},
	}
}
