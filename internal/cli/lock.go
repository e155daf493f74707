package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plain"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// locks are the verbs of lock. The program determines their sources.
type locks struct {
	shell    *Shell
	find     func(context.Context) ([]source, error)
	worker   int
	socket   string
	atSocket func() (namespace string, err error) // of the flags that a tool has besides; nil without them

	environ []string
}

func (l *locks) verb() *cobra.Command {
	c := group("lock", "run commands under locks, show holders and waiters, and force a release", l.ls(), l.show(), l.release(), l.heal())
	c.AddCommand(l.scripted()...)
	workerFlag(c, &l.worker)
	c.PersistentFlags().Var(shell.Text(&l.socket), "socket", "call the hub at the socket `PATH`, which keeps the locks of scripts; auto is this user's own")
	return c
}

// open returns the sources.
func (l *locks) open(ctx context.Context) ([]source, error) {
	if l.socket != "" {
		return l.openSocket()
	}
	sources, err := l.find(ctx)
	return distinct(selectWorkers(sources, l.worker)), err
}

// elsewhere completes the description of the documents of lock --json.
const elsewhere = `A Redis has "url" in place of "name" and "pid", and a hub at --socket has "socket".`

// listed is an element of the document of lock ls --json.
type listed struct {
	envelope
	admin.Listing
}

func (l *locks) ls() *cobra.Command {
	limit := 100
	var watch bool
	c := &cobra.Command{
		Use: "ls [PREFIX]", Aliases: []string{"list"}, Short: "list the locks in use whose keys begin with PREFIX",
		Long: "It lists every lock that has a holder or a waiter, and every pool with the number of its slots by state:\n" +
			"held, free, dirty, resting, withdrawn. A pool whose slots have states stays in the list for a minute after\n" +
			"its last use, and while a slot rests or is withdrawn.\n\n" +
			"With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"total\", \"truncated\", \"locks\",\n" +
			"\"error\"}, one for each process or server; a lock is {\"key\", \"slots\", \"holders\", \"waiters\", \"waiting\", \"pool\",\n" +
			"\"slot_states\"}. " + elsewhere + "\n" +
			"With --watch, too: one such list per line, every second.",
		Args:              arguments(0, "a prefix"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			look := func(ctx context.Context) ([]listed, error) { return l.list(ctx, prefix, limit) }
			if watch {
				return l.watch(c.Context(), look)
			}
			all, err := look(c.Context())
			if all == nil {
				return err
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printListed(w, all) }), err)
		},
	}
	c.Flags().Var(positive{&limit, admin.MaxListed}, "limit", "list at most `N` locks of each process or server")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "repeat every second, until SIGINT")
	return c
}

func (l *locks) list(ctx context.Context, prefix string, limit int) ([]listed, error) {
	sources, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := ask(ctx, sources, func(ctx context.Context, l lockService) (admin.Listing, error) { return l.Locks(ctx, prefix, limit) })
	all := make([]listed, len(sources))
	for i, s := range sources {
		locks := []admin.Entry{}
		for _, e := range answers[i].Locks {
			locks = append(locks, listable(e))
		}
		answers[i].Locks = locks
		all[i] = listed{s.envelope(), answers[i]}
	}
	return all, err
}

// refreshInterval is the interval between two looks of watch.
const refreshInterval = time.Second

// watch shows the locks repeatedly. It begins only if the first look succeeds,
// and continues after later errors, because the end of a process is
// information, too.
func (l *locks) watch(ctx context.Context, look func(context.Context) ([]listed, error)) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for first := true; ; first = false {
		all, err := look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		}
		if err := l.showOnce(all, err); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// clearScreen clears a terminal and moves its cursor home.
const clearScreen = "\x1b[H\x1b[2J\x1b[3J"

// showOnce writes the result of one look: a page that replaces the previous one,
// or a line of JSON.
func (l *locks) showOnce(all []listed, failed error) error {
	if l.shell.JSON {
		if failed != nil {
			l.shell.fail(failed)
		}
		line, err := json.Marshal(append([]listed{}, all...))
		return errors.Join(err, l.shell.write(plain.JSON(string(line))+"\n"))
	}
	var b strings.Builder
	if plain.IsTerminal(l.shell.Stdout) {
		b.WriteString(clearScreen)
	}
	fmt.Fprintf(&b, "%s\n\n", time.Now().Format(time.TimeOnly))
	printListed(&b, all)
	if f, ok := errors.AsType[*failure.Failure](failed); ok {
		panel(&b, l.shell.Name, f)
	}
	return l.shell.write(b.String() + "\n")
}

// shown is an element of the document of lock show --json.
type shown struct {
	envelope
	admin.Entry
}

func (l *locks) show() *cobra.Command {
	return &cobra.Command{
		Use: "show KEY", Short: "show the holders of a lock, and the waiters in order",
		Long: "With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"key\", \"slots\", \"holders\",\n" +
			"\"waiters\", \"waiting\", \"pool\", \"slot_states\", \"error\"}, one for each process or server.\n" + elsewhere,
		Args:              arguments(1, "the key of a lock"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			sources, err := l.open(c.Context())
			if err != nil {
				return err
			}
			answers, err := ask(c.Context(), sources, func(ctx context.Context, l lockService) (admin.Entry, error) { return l.Lock(ctx, args[0]) })
			all := make([]shown, len(sources))
			for i, s := range sources {
				all[i] = shown{s.envelope(), listable(answers[i])}
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printShown(w, all) }), err)
		},
	}
}

// released is an element of the document of lock release --json.
type released struct {
	envelope
	Released int `json:"released"`
}

func (l *locks) release() *cobra.Command {
	var reason string
	var fence uint64
	slot := everySlot
	c := &cobra.Command{
		Use: "release KEY --reason TEXT | HANDLE", Short: "force the release of a lock, or give back one from acquire",
		Long: "It ends every lease of KEY at once. The context of the work under the lock ends, with the reason and its\n" +
			"author, and the next waiter gets the lock. Processes that keep their locks in their own memory are all called.\n" +
			"With --slot it ends the lease of one slot of a pool. With --fence it ends the lease that lock show lists with this\n" +
			"fence, if it is still held. A key without such a lease is no error: the output has the number of ended leases.\n" +
			"With a HANDLE from acquire, and without a reason, it gives back that lease; the status is 70 if it has ended before.\n\n" +
			"With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"released\", \"error\"}, one for each\n" +
			"process or server. " + elsewhere,
		Args:              arguments(1, "the key of a lock"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			if reason == "" && shell.IsHandle(args[0]) && !c.Flags().Changed("slot") && !c.Flags().Changed("fence") {
				return ScriptError(c, shell.GiveBack(args[0]))
			}
			if strings.TrimSpace(reason) == "" {
				return usage(c, "cli.no_reason", "A forced release needs a reason. The holder that loses the lock receives it.", `give the reason: --reason "TEXT"`)
			}
			only, err := onlyOf(c, slot, fence)
			if err != nil {
				return err
			}
			sources, err := l.open(c.Context())
			if err != nil {
				return err
			}
			answers, err := ask(c.Context(), sources, func(ctx context.Context, l lockService) (int, error) {
				return l.Release(ctx, args[0], reason, only)
			})
			all := make([]released, len(sources))
			for i, s := range sources {
				all[i] = released{s.envelope(), answers[i]}
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printReleased(w, args[0], only, all) }), err)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, a `TEXT` for the holder that loses the lock and for the log")
	c.Flags().IntVar(&slot, "slot", everySlot, "the `NUMBER` of one slot of a pool (default: every slot)")
	c.Flags().Lookup("slot").DefValue = "0" // hides the default, which is no slot
	c.Flags().Uint64Var(&fence, "fence", 0, "the `NUMBER` of one lease, as lock show lists it (default: every lease)")
	return c
}

// everySlot is the value of --slot that means all slots.
const everySlot = -1

// onlyOf returns the restriction that --slot and --fence select, or the usage error
// for their values.
func onlyOf(c *cobra.Command, slot int, fence uint64) (only admin.Only, err error) {
	bySlot, byFence := c.Flags().Changed("slot"), c.Flags().Changed("fence")
	switch {
	case bySlot && slot < 0: // everySlot would mean all slots
		return only, usage(c, "cli.wrong_flag", fmt.Sprintf("--slot %d is not valid; it must be 0 or more.", slot), "lock show KEY lists the slots")
	case bySlot && byFence:
		return only, usage(c, "cli.wrong_flag", "--slot and --fence exclude each other.", "a fence names one lease: leave --slot out")
	case bySlot:
		only.Slot = &slot
	case byFence:
		only.Fence = &fence
	}
	return only, nil
}

func (l *locks) heal() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "heal KEY SLOT --reason TEXT", Short: "put a withdrawn slot of a pool back into circulation",
		Long: "A slot is withdrawn when it cannot be cleaned or prepared; lock show has the reason. After heal, the next\n" +
			"holder cleans the slot before it uses it. heal also ends the rest of a slot. It changes no other slot. A slot that\n" +
			"is neither withdrawn nor resting is left as it is, with status 0; a slot that does not exist is an error.\n\n" +
			"With --json: a list of {\"name\", \"pid\", \"worker\", \"for\", \"driver\", \"scope\", \"healed\", \"why\", \"error\"}, one for\n" +
			"each process or server; why is the reason of one that did not heal it. " + elsewhere,
		Args:              arguments(2, "the key of a pool", "the number of a slot"),
		ValidArgsFunction: l.completeKey,
		RunE: func(c *cobra.Command, args []string) error {
			slot, err := strconv.Atoi(args[1])
			if err != nil {
				return usage(c, "cli.invalid_argument", fmt.Sprintf("%q is not the number of a slot.", args[1]), "lock show KEY lists the slots")
			}
			if strings.TrimSpace(reason) == "" {
				return usage(c, "cli.no_reason", "Healing a slot needs a reason, for the log.", `give the reason: --reason "TEXT"`)
			}
			sources, err := l.open(c.Context())
			if err != nil {
				return err
			}
			done, err := ask(c.Context(), sources, func(ctx context.Context, l lockService) (healing, error) {
				e, err := l.Lock(ctx, args[0])
				if err != nil {
					return healing{}, err
				}
				h := healingOf(e.State, slot)
				if h.why == "" {
					err = l.Heal(ctx, args[0], slot, reason)
				}
				return h, err
			})
			all, missing := make([]healed, len(sources)), true
			for i, s := range sources {
				all[i] = healed{s.about, s.failed() == "" && done[i].why == "", done[i].why, s.failed()}
				missing = missing && done[i].missing
			}
			if err == nil && missing {
				err = usage(c, "cli.invalid_argument", fmt.Sprintf("There is no slot %d of %s.", slot, args[0]), "lock ls lists the pools, lock show KEY the slots")
			}
			return errors.Join(l.shell.Print(all, func(w io.Writer) { printHealed(w, args[0], slot, all) }), err)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, a `TEXT` for the log")
	return c
}

// healed is an element of the document of lock heal --json.
type healed struct {
	about
	Healed bool   `json:"healed"`
	Why    string `json:"why,omitempty"` // a slot that is neither withdrawn nor resting
	Error  string `json:"error,omitempty"`
}

// healing is what a process or server has to do for a heal.
type healing struct {
	why     string // not to heal the slot; "" to heal it
	missing bool   // there is no such slot
}

// healingOf returns what a heal of a slot has to do.
func healingOf(s lock.State, slot int) healing {
	i := slices.IndexFunc(s.Slots, func(s lock.SlotState) bool { return s.Number == slot })
	switch {
	case len(s.Slots) == 0:
		return healing{fmt.Sprintf("there is no slot %d: the key is not a pool that is in use", slot), true}
	case i < 0:
		return healing{fmt.Sprintf("there is no slot %d: the pool has the slots 0 to %d", slot, s.Size-1), true}
	case s.Slots[i].Status != lock.SlotWithdrawn && s.Slots[i].Status != lock.SlotResting:
		return healing{fmt.Sprintf("slot %d is not withdrawn: it is %s", slot, s.Slots[i].Status), false}
	}
	return healing{}
}

// completeKey completes the keys in use.
func (l *locks) completeKey(c *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := l.list(c.Context(), prefix, 100)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for _, a := range all {
		for _, e := range a.Locks {
			keys = append(keys, e.Key)
		}
	}
	return completing(prefix, keys)
}
