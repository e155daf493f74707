package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/workers"
)

func (l *commandLine) serveVerb() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "boot and serve until SIGINT or SIGTERM; the default",
		Long: "It ends with SIGINT or SIGTERM: requests in flight finish, and locks are released. A\n" +
			"second signal ends it at once and prints the stacks. SIGHUP reads the configuration again, except in env dev,\n" +
			"where it ends the program, because a closed terminal sends it.\n\n" +
			"With --workers or cluster.workers it runs several processes that share its addresses. SIGUSR2 replaces them\n" +
			"one after the other, without refusing a connection.\n\n" +
			"With --json the log, the boot report and a failure are JSON, as with log.format: json.",
		Args: arguments(0),
		RunE: func(*cobra.Command, []string) error {
			p := l.boot()
			if p.JSON = l.shell.JSON; p.JSON {
				p.Set, p.Flags["log.format"] = append(p.Set, "log.format=json"), "--json"
			}
			if status := serve(p, l.options); status != failure.ExitOK {
				return exit(status)
			}
			return nil
		},
	}
	l.onlyFlag(c)
	l.workersFlag(c)
	return c
}

// mostWorkers is the maximum of cluster.workers.
const mostWorkers = 256

// workersFlag adds --workers to verbs that serve, or that explain how the
// program would serve.
func (l *commandLine) workersFlag(c *cobra.Command) {
	c.Flags().Var(positive{&l.flags.workers, mostWorkers}, "workers", "serve with `N` processes; the default is cluster.workers")
}

// sameRequest is the interval in which two signals count as one request: the end
// of a process group often signals the group's leader, too.
const sameRequest = 200 * time.Millisecond

// serve boots and serves. It catches signals before the boot begins, so that
// none is lost in between. The first signal starts a shutdown, a second one
// ends the process at once, with the stacks of its goroutines.
//
// A worker obeys its supervisor: it shuts down at SIGTERM, also if that is
// repeated, and ignores the signals that a terminal sends to all processes,
// because the supervisor handles them. It outlives the reader of its log.
func serve(p boot.Process, options []plan.Option) int {
	signals := make(chan os.Signal, 2)
	h := signalHandler{
		signals: signals, hangups: make(chan os.Signal, 1), reloads: make(chan os.Signal, 1), done: make(chan struct{}),
		stderr: p.Stderr, worker: workers.Supervised(p.Environ),
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(h.hangups, syscall.SIGHUP)
		defer signal.Stop(h.hangups)
	}
	if h.worker {
		h.outliveLogReader() // from the start: the supervisor may receive the signal earlier
		catchRestarts(signals)
	} else {
		requests, off := restarts() // from the beginning: one that comes during the boot is served after it
		defer off()
		p.Hangups, p.Restarts, p.AtSecondSignal = h.reloads, requests, h.first.set
	}
	ctx, stop := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { h.run(stop) })
	status := boot.Main(ctx, p, options...)
	signal.Stop(signals)
	close(h.done)
	watch.Wait()
	stop()
	return status
}

// signalHandler handles the signals of a process that serves.
type signalHandler struct {
	signals <-chan os.Signal
	hangups chan os.Signal
	reloads chan os.Signal // hangups that run passes on to the program
	done    chan struct{}  // closed when the process ends without a signal
	stderr  io.Writer
	worker  bool
	first   lateFunc  // the function to call before an immediate end
	pipe    sync.Once // guards outliveLogReader
}

// run handles signals until done is closed: it calls stop at the first SIGINT or
// SIGTERM and ends the process at the second.
func (h *signalHandler) run(stop func()) {
	var asked time.Time
	for {
		select {
		case s := <-h.signals:
			h.outliveLogReader()
			switch {
			case h.worker && s != syscall.SIGTERM:
			case asked.IsZero():
				asked = time.Now()
				stop()
			case time.Since(asked) > sameRequest && !h.worker:
				h.dumpStacks()
				os.Exit(128 + number(s))
			}
		case s := <-h.hangups:
			h.outliveLogReader()
			select {
			case h.reloads <- s:
			default: // a request is pending
			}
		case <-h.done:
			return
		}
	}
}

// dumpTime is longer than a supervisor takes to end its workers.
const dumpTime = 5 * time.Second

// dumpStacks writes the stacks. It waits at most dumpTime, because a stopped reader
// of the log blocks the write.
func (h *signalHandler) dumpStacks() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		h.first.call()
		writeStacks(h.stderr)
	}()
	select {
	case <-written:
	case <-time.After(dumpTime):
	}
}

// outliveLogReader makes a write to a closed pipe an error instead of the end of the
// process. The signals that end the processes of a terminal also end the reader of a
// log (program | tee log), and the shutdown has to finish requests and release
// locks. It does not call signal.Ignore, whose effect children inherit.
func (h *signalHandler) outliveLogReader() {
	h.pipe.Do(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })
}

// lateFunc is a function that may be set later, by another goroutine. Until then
// call does nothing.
type lateFunc struct{ known atomic.Pointer[func()] }

func (b *lateFunc) set(do func()) { b.known.Store(&do) }

func (b *lateFunc) call() {
	if do := b.known.Load(); do != nil {
		(*do)()
	}
}

func number(s os.Signal) int {
	n, ok := s.(syscall.Signal)
	if !ok {
		return 0
	}
	return int(n)
}

func writeStacks(w io.Writer) {
	fmt.Fprintln(w, "second signal: ended at once; the stacks below show the unfinished work")
	stacks := make([]byte, 1<<20)
	_, _ = w.Write(stacks[:runtime.Stack(stacks, true)])
}
