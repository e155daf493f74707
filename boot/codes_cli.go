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
