package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/boot"
)

func (l *line) serveVerb() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "boot and serve until SIGINT or SIGTERM; the default",
		Long: "It boots, serves, and ends with SIGINT or SIGTERM: what is in flight is finished, locks are released. A\n" +
			"second signal ends it at once and shows what hung. SIGHUP reads the configuration again, except in env dev,\n" +
			"where it ends the program, too: that is a terminal being closed.\n\n" +
			"With --json the log, the report of the boot and a failure are JSON, as with log.format: json.",
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			p := l.boot()
			if p.JSON = l.shell.JSON; p.JSON {
				p.Set = append(p.Set, "log.format=json")
			}
			if status := serve(p, l.options); status != boot.ExitOK {
				return exit(status)
			}
			return nil
		},
	}
	l.onlyFlag(c)
	return c
}

// together is how close two signals are that mean one request: who ends a
// group of processes often tells its leader, too.
const together = 200 * time.Millisecond

// serve boots and serves. Signals are caught before the boot begins, so that
// none is lost in between; the first one asks politely, a second one ends the
// process at once, with the stacks of what did not end.
func serve(p boot.Process, options []boot.Option) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
		p.Hangups = hangups
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { heed(signals, stop, over, p.Stderr) })
	status := boot.Main(ctx, p, options...)
	signal.Stop(signals)
	close(over)
	watch.Wait()
	stop()
	return status
}

// heed calls stop at the first signal and exits at the second.
func heed(signals <-chan os.Signal, stop func(), over <-chan struct{}, stderr io.Writer) {
	var asked time.Time
	for {
		select {
		case s := <-signals:
			switch {
			case asked.IsZero():
				asked = time.Now()
				stop()
			case time.Since(asked) > together:
				dump(stderr)
				os.Exit(128 + number(s))
			}
		case <-over:
			return
		}
	}
}

func number(s os.Signal) int {
	n, ok := s.(syscall.Signal)
	if !ok {
		return 0
	}
	return int(n)
}

func dump(w io.Writer) {
	fmt.Fprintln(w, "asked a second time: ended at once; what was still under way is in the stacks below")
	stacks := make([]byte, 1<<20)
	_, _ = w.Write(stacks[:runtime.Stack(stacks, true)])
}
