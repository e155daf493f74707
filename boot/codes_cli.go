package boot

// The entries of the catalogue that a command line ends with.

func cliCodes() []Code {
	return []Code{
		{
			Name: "cli.unknown_verb", Exit: ExitUsage, Title: "there is no such verb",
			Means: "The first word of the command line that is no flag is the verb. This one does not exist; nothing was done.",
			Do:    []string{"see all verbs: help"},
		},
		{
			Name: "cli.no_verb", Exit: ExitUsage, Title: "a verb is missing",
			Means: "Some verbs are names for several others, as lock is for ls, show and release.",
			Do:    []string{"add one of the verbs that are listed"},
		},
		{
			Name: "cli.unknown_flag", Exit: ExitUsage, Title: "the verb has no such flag",
			Means: "A flag that nobody reads is not ignored: it was meant to change something. Some flags belong to one verb alone.",
			Do:    []string{"see the flags of a verb: <verb> --help"},
		},
		{
			Name: "cli.wrong_flag", Exit: ExitUsage, Title: "a flag has no value, or not one that it takes",
			Means: "The text says which flag it is, and what is wrong with its value.",
			Do:    []string{"see what it takes: <verb> --help"},
		},
		{
			Name: "cli.missing_argument", Exit: ExitUsage, Title: "the verb needs another argument",
			Means: "The text says which one. Nothing was done.",
			Do:    []string{"see how the verb is used: <verb> --help"},
		},
		{
			Name: "cli.extra_argument", Exit: ExitUsage, Title: "the verb does not take that argument",
			Means:  "There are more words than the verb knows what to do with. Nothing was done.",
			Causes: []string{"a value with spaces that was not quoted", "a flag without its dashes"},
			Do:     []string{"see how the verb is used: <verb> --help"},
		},
		{
			Name: "cli.unknown_shell", Exit: ExitUsage, Title: "there is no completion for that shell",
			Means: "Completion scripts can be written for bash, zsh, fish and PowerShell.",
			Do:    []string{"use one of those"},
		},
		{
			Name: "cli.unknown_code", Exit: ExitUsage, Title: "there is no such code",
			Means: "It is not in the catalogue of this program. An application's own codes, which it gives to mega.Error, are not in it either.",
			Do:    []string{"list the catalogue: explain"},
		},
		{
			Name: "cli.unknown_key", Exit: ExitUsage, Title: "there is no such key to explain or print",
			Means: "Neither mega nor a section of the program has a key or a section of keys of that name. Of caches only those that are configured are known.",
			Do:    []string{"see all keys: config print, or config schema"},
		},
		{
			Name: "cli.no_reason", Exit: ExitUsage, Title: "a lock is to be taken away without a reason",
			Means: "The reason is told to whoever loses the lock, and written to the log with the name of who took it.",
			Do:    []string{`give it: lock release <key> --reason "the till is stuck"`},
		},
		{
			Name: "cli.no_process", Exit: ExitUnavailable, Title: "no such program runs here",
			Means:  "A running process is asked through its admin socket, which only processes of the same user on the same machine can reach. There is none by that name.",
			Causes: []string{"the program is not running", "it runs as another user, or in another container", "it is called something else: its name is the key name of its configuration", "it looks for its sockets elsewhere: XDG_RUNTIME_DIR differs"},
			Do:     []string{"start it, or ask again as its user", "look at locks that are kept in redis: mega lock ls --url redis://HOST:6379/0"},
		},
		{
			Name: "cli.no_workers", Exit: ExitUnavailable, Title: "the process has no workers",
			Means: "It serves by itself: nobody supervises it, and there is nothing to list or to restart one after the other.",
			Do:    []string{"start several: serve --workers 4", "restart the process itself"},
		},
		{
			Name: "cli.not_restarted", Exit: ExitUnavailable, Title: "workers were not restarted",
			Means:  "The supervisor has tried to, and the reason is in its words. A worker is told to end only when another one is ready in its place, so that the old ones go on serving.",
			Causes: []string{"the configuration or the executable has changed, and does not start any more", "they are being restarted already"},
			Do:     []string{"see why in the log", "see which ones serve: worker ls"},
		},
		{
			Name: "cli.no_socket", Exit: ExitUnavailable, Title: "running processes cannot be asked here",
			Means:  "The folder of the admin sockets cannot be read, or the system has no such sockets: on Windows a peer's user is not known.",
			Causes: []string{"the folder belongs to another user", "the system is Windows"},
			Do:     []string{"see to the folder that is named", "ask the process for its ops address: /ops/locks"},
		},
		{
			Name: "cli.unanswered", Exit: ExitUnavailable, Title: "a process or a server did not answer",
			Means:  "What the others answered was shown. The one that is named is there, but did not answer in time.",
			Causes: []string{"the process is stopped or very busy", "it is ending", "the server that keeps its locks cannot be reached"},
			Do:     []string{"ask again", "see what it does: its log, or its stacks by kill -QUIT"},
		},
		{
			Name: "cli.refused", Exit: ExitUsage, Title: "a process refused what it was asked",
			Means: "It was understood, and cannot be done. The reason is in the words of the process.",
			Do:    []string{"see to the reason"},
		},
		{
			Name: "cli.which_process", Exit: ExitUsage, Title: "several processes are there, and it is not said which one is meant",
			Means: "On the memory driver messages end at the process that sends them, so that it makes a difference which one does. Supervisors restart their own workers alone.",
			Do:    []string{"name one: bus pub --pid <number>, worker restart --pid <number>", "let processes share a bus: nats.url"},
		},
		{
			Name: "cli.no_data", Exit: ExitUsage, Title: "what is to be sent cannot be read",
			Means: "An argument that begins with @ names a file, and - is standard input.",
			Do:    []string{"see to the cause", "send text that begins with @ by standard input"},
		},
		{
			Name: "cli.message_failed", Exit: ExitUnavailable, Title: "nothing came of an event or a request",
			Means:  "The process has sent it, or tried to. The code is that of the bus, or that which the responder gave.",
			Causes: []string{"nobody responds to the subject: bus topics shows what there is", "the responder failed, or took too long", "the server that carries the messages cannot be reached"},
			Do:     []string{"see what the code means: explain <code>", "wait longer for an answer: bus req --timeout 30s"},
		},
		{
			Name: "cli.no_server", Exit: ExitUnavailable, Title: "the locks of a server cannot be looked at",
			Means:  "The server at the URL that was given does not answer, or refuses.",
			Causes: []string{"a wrong address", "a missing user or password", "the server is down"},
			Do:     []string{"see to the cause", "give a URL with a password by a variable: --url-env REDIS_URL"},
		},
		{
			Name: "cli.output", Exit: ExitUnavailable, Title: "the result could not be written",
			Means:  "The verb did its work, but standard output took no more.",
			Causes: []string{"the disk is full"},
			Do:     []string{"see to the cause, and ask again"},
		},
		{
			Name: "cli.failed", Exit: ExitInternal, Title: "a verb failed in a way that has no code of its own",
			Means: "The cause is told in its own words. It is a mistake in mega that it has no better place.",
			Do:    []string{"report it, with the command line and the cause"},
		},
	}
}

// newCodes are those of mega new.
func newCodes() []Code {
	return []Code{
		{
			Name: "new.name", Exit: ExitUsage, Title: "an application cannot be called that",
			Means: "The name becomes that of a folder, of a module, of a program and of an app, and part of variables: it is a word of lower-case letters and digits that neither Go nor the go command uses for something else.",
			Do:    []string{"choose a word such as shop"},
		},
		{
			Name: "new.not_empty", Exit: ExitUsage, Title: "there is something in the folder already",
			Means: "A new application is written into a folder that is not there yet, or empty. What is there was left alone.",
			Do:    []string{"choose another folder: mega new shop --dir DIR"},
		},
		{
			Name: "new.no_framework", Exit: ExitUsage, Title: "it is not known which mega to build with",
			Means:  "A new application requires a version of mega, or replaces it by a working copy. Neither is known.",
			Causes: []string{"this mega was built with -trimpath from a working copy", "the working copy that it was built from has been moved", "--mega names a folder that has no go.mod of mega in it"},
			Do:     []string{"say where a working copy is: mega new shop --mega DIR"},
		},
		{
			Name: "new.modules", Exit: ExitUnavailable, Title: "the modules of a new application cannot be had",
			Means:  "The go command, which completes go.mod and go.sum, failed. Nothing was written.",
			Causes: []string{"the go command is not installed", "a module is neither on this machine nor can it be downloaded"},
			Do:     []string{"see to the cause, which is in the words of the go command", "write the files alone: mega new shop --no-tidy"},
		},
		{
			Name: "new.failed", Exit: ExitUnavailable, Title: "a new application could not be written",
			Means:  "The folder could not be made or filled. Nothing was left behind.",
			Causes: []string{"no permission to write there", "a full disk"},
			Do:     []string{"see to the cause, or write elsewhere: mega new shop --dir DIR"},
		},
	}
}
