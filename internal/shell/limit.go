package shell

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/megaframework/mega/limit/driver"
	lockdriver "github.com/megaframework/mega/lock/driver"
)

// limitStatuses describes the exit statuses in the help.
const limitStatuses = `  64  the command line is wrong
  69  the backend is unavailable
  75  not allowed until --wait had passed; nothing was consumed
 126  the command cannot be started
 127  the command does not exist
   n  otherwise the exit status of the command
`

// PermitOrder is a permit to wait for: the units of a limit, and for how long.
type PermitOrder struct {
	Backend
	Key   string
	Rates Rates
	Cost  int
	Wait  time.Duration
	Allow bool

	given *pflag.FlagSet // the flags, after they were parsed
}

func (o *PermitOrder) flags(f *pflag.FlagSet) {
	f.Var(&o.Rates, "rate", "allow N units in every interval of the length TIME: `N/TIME`, such as 5/800ms; repeatable")
	f.IntVar(&o.Cost, "cost", 1, "take `N` units")
	f.DurationVar(&o.Wait, "wait", 10*time.Second, "wait at most `TIME` for the permit")
	f.BoolVar(&o.Allow, "allow", false, "do not wait")
	o.placeFlags(f)
	o.given = f
}

// LimitVerb returns the verb that runs a command under a limit, with flags of
// its own: call it once per command line. The permit is spent with the grant, so
// nothing is held while the command runs: the process becomes the command, and
// signals, the terminal and the exit status are the command's without help.
func LimitVerb(name string) Verb {
	var o PermitOrder
	list, lists := "", name == "limit" // the verb of an application is beside its own ls
	if lists {
		list = "limit ls [PREFIX] lists the limits in use whose keys begin with PREFIX. With --json: a list with one {\"driver\",\n" +
			"\"scope\", \"url\" or \"socket\", \"total\", \"limits\"}; a limit is {\"key\", \"rates\", \"waiters\", \"paused\"}.\n\n"
	}
	return Verb{
		Name: name, Args: "KEY --rate N/TIME -- CMD [ARG...]", Short: "run a command when a limit allows it",
		Long: "It waits until the limit KEY allows the command, and then runs CMD in its own place: CMD keeps its process id.\n" +
			"In any interval of the length TIME, wherever it begins, all users of KEY together get at most N units. With\n" +
			"several --rate, all of them must allow CMD. A refused call consumes nothing. All users of KEY should give the\n" +
			"same rates.\n\n" +
			list +
			"A unit is consumed when CMD begins, also if CMD fails. To bound how many run at once: lock exec --slots.\n\n" +
			"Without --url, the limit is shared by the scripts of this user on this machine, and by programs with\n" +
			"cluster.socket: auto. A program with limits elsewhere does not see it. No server is needed. A small\n" +
			"process counts, and stays as long as a unit counts: with --rate 5/24h a day after the last one. If that process\n" +
			"is killed, or the machine restarts, all windows are empty.",
		Statuses: limitStatuses,
		Flags:    o.flags,
		Run: func(p Process, args []string, dash int) error {
			if lists && o.isVerb(args, dash, "ls") {
				return o.runList(p, args[1:])
			}
			if lists && o.isVerb(args, dash, "show", "pause", "reset") { // not a KEY without its "--"
				return usage("cli.unknown_verb", "limit "+args[0]+" is a verb of an application, for the limits of its own processes.", "show the limits of scripts: "+p.line("limit")+" ls")
			}
			return o.run(p, name, args, dash)
		},
	}
}

// isVerb reports whether the arguments are one of verbs with at most one argument, as
// in limit ls [PREFIX], and not a KEY with a command.
func (o *PermitOrder) isVerb(args []string, dash int, verbs ...string) bool {
	return dash < 0 && (len(args) == 1 || len(args) == 2) && slices.Contains(verbs, args[0]) && len(o.Rates) == 0
}

// runList prints the limits whose keys begin with the prefix in args, if any.
func (o *PermitOrder) runList(p Process, args []string) error {
	for _, name := range []string{"cost", "wait", "allow"} { // flags of a permit
		if o.given.Changed(name) {
			return usage("cli.wrong_flag", "limit ls has no use for --"+name+": it takes no units.")
		}
	}
	all, err := o.list(p, strings.Join(args, ""))
	if err != nil {
		return err
	}
	return printLimits(p, all)
}

// run waits for the permit and replaces this process by the command.
func (o *PermitOrder) run(p Process, verb string, args []string, dash int) error {
	key, command, err := keyAndCommand(p.line(verb), o.hint(), args, dash)
	if err != nil {
		return err
	}
	o.Key = key
	if err := o.check(p.Environ); err != nil {
		return err
	}
	path, err := find(command[0]) // before anything is consumed
	if err != nil {
		return err
	}
	if err := awaitPermit(p, o); err != nil {
		return err
	}
	return become(path, command, p.Environ)
}

// hint returns the flags that a hint has after KEY.
func (o *PermitOrder) hint() string {
	if len(o.Rates) == 0 {
		return " --rate 5/800ms"
	}
	var b strings.Builder
	for _, r := range o.Rates {
		b.WriteString(" --rate " + rateText(r))
	}
	return b.String()
}

// check returns a usage error if a value is not valid, and resolves the backend.
func (o *PermitOrder) check(environ []string) error {
	switch {
	case len(o.Rates) == 0:
		return usage("cli.missing_argument", "--rate is missing.", "five in every 800 ms: --rate 5/800ms")
	case o.Cost < 1:
		return wrongFlag("--cost %d is not valid; it must be 1 or more.", o.Cost)
	case o.Wait < 0:
		return wrongFlag("--wait %v is negative.", o.Wait)
	case o.Allow && o.given.Changed("wait"):
		return wrongFlag("--allow and --wait exclude each other.")
	}
	if o.Allow {
		o.Wait = 0
	}
	if fault := lockdriver.KeyFault(o.Key); fault != "" {
		return usage("limit.invalid_key", "The "+fault+".")
	}
	if fault := driver.RatesFault(o.Rates); fault != "" {
		return usage("limit.invalid_option", fmt.Sprintf("--rate %v is not valid: %s.", &o.Rates, fault))
	}
	if most := o.Rates.smallest(); o.Cost > most {
		return usage("limit.invalid_option", fmt.Sprintf("--cost %d is not valid; it must be 1 to %d, the smallest N of --rate.", o.Cost, most))
	}
	return o.Resolve(environ)
}
