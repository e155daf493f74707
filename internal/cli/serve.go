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

func (l *line) serveVerb() *cobra.Command {
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
func (l *line) workersFlag(c *cobra.Command) {
	c.Flags().Var(workerNumber{&l.flags.workers, mostWorkers}, "workers", "serve with `N` processes; the default is cluster.workers")
}

// together is the interval in which two signals count as one request: the end
// of a process group often signals the group's leader, too.
const together = 200 * time.Millisecond

// serve boots and serves. It catches signals before the boot begins, so that
// none is lost in between. The first signal starts a shutdown, a second one
// ends the process at once, with the stacks of its goroutines.
//
// A worker obeys its supervisor: it shuts down at SIGTERM, also if that is
// repeated, and ignores the signals that a terminal sends to all processes,
// because the supervisor handles them. It outlives the reader of its log.
func serve(p boot.Process, options []plan.Option) int {
	signals := make(chan os.Signal, 2)
	h := hearing{
		signals: signals, hangups: make(chan os.Signal, 1), heard: make(chan os.Signal, 1), over: make(chan struct{}),
		stderr: p.Stderr, worker: workers.Supervised(p.Environ),
	}
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(h.hangups, syscall.SIGHUP)
		defer signal.Stop(h.hangups)
	}
	if h.worker {
		h.outliveLogReader() // before a signal, too: the supervisor may have had it earlier
		hearRestarts(signals)
	} else {
		requests, off := restarts() // from the beginning: one that comes during the boot is served after it
		defer off()
		p.Hangups, p.Restarts, p.AtSecondSignal = h.heard, requests, h.first.set
	}
	ctx, stop := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { h.heed(stop) })
	status := boot.Main(ctx, p, options...)
	signal.Stop(signals)
	close(h.over)
	watch.Wait()
	stop()
	return status
}

// hearing is the state of a process's signal handling.
type hearing struct {
	signals <-chan os.Signal
	hangups chan os.Signal
	heard   chan os.Signal // hangups, for the program
	over    chan struct{}  // closed when the process ends without a signal
	stderr  io.Writer
	worker  bool
	first   before    // the function to call before an immediate end
	pipe    sync.Once // guards outliveLogReader
}

// heed calls stop at the first signal and exits at the second.
func (h *hearing) heed(stop func()) {
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
			case time.Since(asked) > together && !h.worker:
				h.lastWord()
				os.Exit(128 + number(s))
			}
		case s := <-h.hangups:
			h.outliveLogReader()
			select {
			case h.heard <- s:
			default: // one is pending
			}
		case <-h.over:
			return
		}
	}
}

// lastWordTime is longer than a supervisor takes to end its workers.
const lastWordTime = 5 * time.Second

// lastWord writes the stacks. It does not wait longer than lastWordTime for a
// reader of the log that has stopped.
func (h *hearing) lastWord() {
	written := make(chan struct{})
	go func() {
		defer close(written)
		h.first.do()
		dump(h.stderr)
	}()
	select {
	case <-written:
	case <-time.After(lastWordTime):
	}
}

// outliveLogReader makes a write to a closed pipe an error instead of the end of the process.
// The signals that end the processes of a terminal also end the reader of a log
// (program | tee log), and the shutdown has to finish requests and release locks.
// Children do not inherit this, as they would from signal.Ignore.
func (h *hearing) outliveLogReader() {
	h.pipe.Do(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) })
}

// before is a function to call before the end, which may be set later.
type before struct{ known atomic.Pointer[func()] }

func (b *before) set(do func()) { b.known.Store(&do) }

func (b *before) do() {
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

func dump(w io.Writer) {
	fmt.Fprintln(w, "second signal: ended at once; the stacks below show the unfinished work")
	stacks := make([]byte, 1<<20)
	_, _ = w.Write(stacks[:runtime.Stack(stacks, true)])
}
