package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// Order is a lease to acquire, as the launcher gives it to the holder.
type Order struct {
	Backend
	Key   string
	Slots int // 0 for a plain key
	Wait  time.Duration
	TTL   time.Duration
	Grace time.Duration
	Label string
	FIFO  bool
	Owner int // the process that the holder works for

	Init, Cleanup string // of a slot, for sh; "" for none

	slots *pflag.Flag // nil without a command line
}

// Stdio is the folder and the standard files of a command.
type Stdio struct {
	Dir          string // "" for the folder of this process
	In, Out, Err *os.File
}

// Find returns the path of a command. A relative name with a slash is resolved
// against Dir. The error is an *Error.
func (s *Stdio) Find(name string) (string, error) {
	if s.Dir != "" {
		if err := isFolder(s.Dir); err != nil { // the system would name the command as missing
			return "", usage("cli.invalid_argument", fmt.Sprintf("Cannot run a command in the folder %s: %v.", s.Dir, err))
		}
	}
	if s.Dir != "" && !filepath.IsAbs(name) && strings.ContainsRune(name, filepath.Separator) {
		name = filepath.Join(s.Dir, name)
	}
	return find(name)
}

func isFolder(dir string) error {
	info, err := os.Stat(dir)
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	if err == nil && !info.IsDir() {
		return syscall.ENOTDIR
	}
	return err
}

// flags adds the flags of an order. label is the label without the flag.
func (o *Order) flags(f *pflag.FlagSet, label string) {
	f.IntVar(&o.Slots, "slots", 0, "let `N` holders have KEY at once; each has a slot number")
	o.slots = f.Lookup("slots")
	f.DurationVar(&o.Wait, "wait", 10*time.Second, "wait at most `TIME` for the lock; 0 does not wait")
	f.DurationVar(&o.TTL, "ttl", 30*time.Second, "others wait `TIME` if this machine dies")
	f.StringVar(&o.Label, "label", "", "`TEXT` that others see about the holder (default: "+label+")")
	f.BoolVar(&o.FIFO, "fifo", false, "serve waiters strictly first come, first served")
	o.Backend.Flags(f)
}

// maxGrace is the longest grace that the longest TTL allows (X4).
const maxGrace = (lock.MaxTTL - time.Second) / 2

// Check returns a usage error if a value is not valid, and resolves the backend.
func (o *Order) Check(environ []string) error {
	if fault := driver.KeyFault(o.Key); fault != "" {
		return usage("lock.invalid_key", "The "+fault+".")
	}
	for _, f := range []struct{ name, text string }{{"init", o.Init}, {"cleanup", o.Cleanup}, {"label", o.Label}, {"socket", o.Socket}} {
		if !utf8.ValidString(f.text) { // the holder gets it as JSON, which would replace bytes
			return wrongFlag("--%s %q is not valid UTF-8.", f.name, f.text)
		}
	}
	switch {
	case o.Slots < 0 || o.Slots > lock.MaxSlots || o.Slots == 0 && o.slots != nil && o.slots.Changed:
		return wrongFlag("--slots %d is not valid; it must be 1 to %d.", o.Slots, lock.MaxSlots)
	case o.Slots == 0 && o.Init+o.Cleanup != "":
		return wrongFlag("--init and --cleanup need --slots.")
	case o.Wait < 0:
		return wrongFlag("--wait %v is negative.", o.Wait)
	case o.Grace < 0:
		return wrongFlag("--grace %v is negative.", o.Grace)
	case o.Grace > maxGrace: // twice a longer one may be negative
		return wrongFlag("--grace %v is too long; it must be at most %v.", o.Grace, maxGrace)
	case o.Grace == 0 && o.TTL < time.Second: // acquire has no --grace
		return wrongFlag("--ttl %v is too short; it must be at least %v.", o.TTL, time.Second)
	case o.TTL < 2*o.Grace+time.Second: // X4
		return wrongFlag("--ttl %v is too short for --grace %v; it must be at least %v.", o.TTL, o.Grace, 2*o.Grace+time.Second)
	case o.TTL > lock.MaxTTL:
		return wrongFlag("--ttl %v is too long; it must be at most %v.", o.TTL, lock.MaxTTL)
	case len(o.Label) > lock.MaxLabel:
		return wrongFlag("--label has %d bytes; it may have %d.", len(o.Label), lock.MaxLabel)
	}
	return o.Backend.Resolve(environ)
}

// options returns the options for Acquire and AcquireSlot.
func (o *Order) options() []lock.Option {
	all := []lock.Option{lock.Wait(o.Wait), lock.TTL(o.TTL), lock.Label(o.Label)}
	if o.FIFO {
		all = append(all, lock.FIFO())
	}
	return all
}

// message is a message from the launcher to the holder. One field is set.
type message struct {
	Start bool `json:",omitempty"` // the launcher requests to start the command
	Group int  `json:",omitempty"` // the process group of the command, and its first process
	Done  bool `json:",omitempty"` // the command has ended
}

// The reports of the holder.
const (
	preparing = "preparing" // the slot is granted; --cleanup or --init has begun
	failing   = "failing"   // --cleanup or --init has failed; another slot may be waited for
	granted   = "granted"   // with Fence, Slot and Token
	going     = "go"        // the command may start
	stopping  = "stopping"  // the command was asked to end, with the reason in Text
	over      = "over"      // the lease is released or lost; with Err if the launcher must report that
)

// report is a message from the holder to the launcher.
type report struct {
	What  string
	Fence uint64 `json:",omitempty"`
	Slot  int    `json:",omitempty"`
	Token string `json:",omitempty"`
	Text  string `json:",omitempty"`
	Err   *Error `json:",omitempty"`

	Lease *Handle `json:",omitempty"` // of an acquire
}

func execVerb() Verb {
	var o Order
	return Verb{
		Name: "exec", Args: "KEY -- CMD [ARG...]", Short: "run a command under a lock",
		Long: "It waits for the lock KEY, runs CMD once, and gives the lock back when CMD has ended. CMD has the lock in its\n" +
			"environment: MEGA_RUN_KEY, MEGA_RUN_FENCE, MEGA_RUN_SLOT and MEGA_RUN_TOKEN.\n\n" +
			"CMD runs in a process group of its own. Signals and the terminal go to this group. If the lock cannot be\n" +
			"renewed, the group gets SIGTERM --grace before the end of the lease, and SIGKILL at its end: it is dead before\n" +
			"another command can have the lock. If this process is killed, the group is killed, too. Two cases are not\n" +
			"covered: processes that leave the group, and a kill of this process together with its helper process.\n\n" +
			"With --slots N, at most N commands of KEY run at once. --init prepares the slot before CMD. --cleanup undoes\n" +
			"--init and CMD afterwards, also if they failed. Both run in sh, with the environment of CMD and their output on\n" +
			"standard error. The next holder of a slot whose holder has died runs --cleanup first, with the reason in\n" +
			"MEGA_RUN_LEFT. A slot whose --cleanup fails is given to nobody until mega lock heal.\n\n" +
			"Without --url, the lock is shared by the scripts of this user on this machine, and by programs with\n" +
			"cluster.socket: auto. A program with locks elsewhere does not see it. No server is needed.",
		Statuses: execStatuses,
		Flags: func(f *pflag.FlagSet) {
			o.flags(f, "the command")
			f.Var(Text(&o.Init), "init", "prepare the slot with `CMD`")
			f.Var(Text(&o.Cleanup), "cleanup", "clean the slot with `CMD`, which may find it clean or half done")
			f.DurationVar(&o.Grace, "grace", 5*time.Second, "`TIME` between SIGTERM and SIGKILL when the lease ends")
		},
		Run: func(p Process, args []string, dash int) error {
			key, command, err := keyAndCommand(p.line("exec"), "", args, dash)
			if err != nil {
				return err
			}
			o.Key = key
			if err := o.Check(p.Environ); err != nil {
				return err
			}
			return runExec(p, o, command)
		},
	}
}
