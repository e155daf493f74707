package boot

func configCodes() []Code {
	return []Code{
		{
			Name: "config.problems", Exit: ExitConfig, Title: "the configuration is wrong in several places",
			Means: "All that is wrong is told at once, each with its place and a code of its own.",
			Do:    []string{"explain the code that stands before each place"},
		},
		{
			Name: "config.unknown_key", Exit: ExitConfig, Title: "there is no such key",
			Means:  "A key or a variable that begins with MEGA_ has to belong to mega or to a section of the program. What is not known is not ignored: it was meant to change something.",
			Causes: []string{"a typing mistake", "a key of another version", "a section whose app was not given to mega.Main"},
			Do:     []string{"correct it: the most likely key is named", "see all keys: config schema"},
		},
		{
			Name: "config.unknown_app", Exit: ExitConfig, Title: "the program has no app of that name",
			Means: "A key under apps.<name> or a variable MEGA_APPS_<NAME>_… names an app that the program does not have.",
			Do:    []string{"use one of the names that are listed"},
		},
		{
			Name: "config.unknown_cache", Exit: ExitConfig, Title: "there is no cache of that name",
			Means: "lock.cache names a cache that has no cache.<alias>.url.",
			Do:    []string{"use one of the names that are listed, or say where the cache is: cache.<alias>.url"},
		},
		{
			Name: "config.no_unit", Exit: ExitConfig, Title: "a duration has no unit",
			Means: "A bare 5 could mean seconds or milliseconds, so it is not guessed.",
			Do:    []string{"write 5s, 500ms or 1m30s"},
		},
		{
			Name: "config.invalid", Exit: ExitConfig, Title: "a value is not what its key takes",
			Means: "It is of another kind, or out of the bounds that the text names.",
			Do:    []string{"see what the key takes: config explain <key>"},
		},
		{
			Name: "config.missing", Exit: ExitConfig, Title: "a required key has no value",
			Means: "A section of the program cannot do without it, and it has no default.",
			Do:    []string{"set it where the text says"},
		},
		{
			Name: "config.section", Exit: ExitInternal, Title: "a section of the program cannot be",
			Means:  "mega.Config was given a struct that cannot be filled, or a name that is taken.",
			Causes: []string{"a field that is not exported, or of a type that no text can set", "two types under one name", "two keys with one variable, such as pool_size beside a section pool with a key size", "a name that is mega's own, such as lock"},
			Do:     []string{"correct the type, or the name, at the line that is given"},
		},
		{
			Name: "config.duplicate_key", Exit: ExitConfig, Title: "a key is set twice in one place",
			Means: "One of the two would be ignored, and which one is not obvious.",
			Do:    []string{"remove the one that is not meant; both places are named"},
		},
		{
			Name: "config.syntax", Exit: ExitConfig, Title: "a configuration cannot be read as what it is",
			Means: "A file is not the YAML, TOML or JSON that its name says, a line of .env is no KEY=value, or an argument of --set is no key=value.",
			Do:    []string{"correct the line that is named"},
		},
		{
			Name: "config.provider", Exit: ExitConfig, Title: "a provider of the configuration failed",
			Means:  "The program adds a layer to its configuration with mega.ConfigFrom, and the layer cannot be read.",
			Causes: []string{"its server cannot be reached, or refuses the request", "it did not answer within boot.wait_for", "its answer is not in the format of its parser"},
			Do:     []string{"correct what the text names", "raise boot.wait_for if the provider is slow"},
		},
		{
			Name: "config.secret_on_command_line", Exit: ExitConfig, Title: "a secret was given with --set",
			Means: "Everybody on the machine can list the arguments of a process, and shells keep them.",
			Do:    []string{"set the variable that is named", "put the key in a file that only the program can read"},
		},
		{
			Name: "config.refused", Title: "a changed configuration was not taken over",
			Means: "It was read again and refused as a whole: the process goes on with what it had. The text says what is wrong.",
			Do:    []string{"correct it, and have it read again", "see what is wrong before that: config check"},
		},
		{
			Name: "config.empty_section", Exit: ExitConfig, Title: "a section has no keys",
			Means: "It looks as if it took back what a weaker file says. Sections merge, so it would take back nothing.",
			Do:    []string{"remove the section, or give it a key"},
		},
		{
			Name: "config.two_formats", Exit: ExitConfig, Title: "files of two formats stand side by side",
			Means: "Which of mega.config.yaml and mega.config.toml is the stronger, nobody could say.",
			Do:    []string{"keep one of them"},
		},
		{
			Name: "config.no_file", Exit: ExitConfig, Title: "a file of configuration is not where or what it should be",
			Means: "What --config or MEGA_CONFIG names has to exist; a name that mega does not read, such as mega.config.yml, is not passed over in silence.",
			Do:    []string{"correct the path or the name"},
		},
		{
			Name: "config.file", Exit: ExitConfig, Title: "a file of configuration cannot be used",
			Means:  "It is there, but cannot be read or is not what a configuration can be.",
			Causes: []string{"its permissions", "a link to nothing, or a folder of its name", "text that is not UTF-8", "more than 1 MiB"},
			Do:     []string{"mend the file that is named"},
		},
		{
			Name: "config.too_late", Exit: ExitConfig, Title: "a file sets what decides which files are read",
			Means: "The environment's name and the place of the files have to be known before any of them is read.",
			Do:    []string{"set MEGA_ENV or MEGA_CONFIG in the environment"},
		},
		{
			Name: "config.address_twice", Exit: ExitConfig, Title: "two cannot listen on one address",
			Means:  "Apps share an address only if a request says by its host or its path which of them it is for, and if both write the address alike. The address for probes is shared by nobody.",
			Causes: []string{"the same address twice", "an address of one host beside the same port of every host"},
			Do:     []string{"give one of them another address", "give one of the apps a host or a prefix, and both the same address"},
		},
		{
			Name: "config.contradiction", Exit: ExitConfig, Title: "two keys contradict each other",
			Means:  "Each of them is legal, but not beside the other, or not without it.",
			Causes: []string{"two ways to say to a server who we are", "a certificate without its key"},
			Do:     []string{"keep one of them, or add the one that is missing"},
		},
	}
}
