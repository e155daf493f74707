// Package cli is the command line of a program: its verbs, and what signals
// mean to it.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/megaframework/mega/boot"
)

// Process is what a program was started with.
type Process struct {
	Args    []string // with the program's name first
	Environ []string
	Stdout  io.Writer
	Stderr  io.Writer
}

const usage = `usage: %s [serve]

  serve    boot and serve until SIGINT or SIGTERM; the default

The configuration is read from variables that begin with MEGA_.
`

// Run does what the command line says and returns the exit status.
func Run(p Process, options ...boot.Option) int {
	bp := boot.Process{Environ: p.Environ, Stderr: p.Stderr}
	switch verb := strings.Join(p.Args[min(1, len(p.Args)):], " "); verb {
	case "", "serve":
		return serve(bp, options)
	case "help", "-h", "-help", "--help":
		fmt.Fprintf(p.Stdout, usage, p.Args[0])
		return boot.ExitOK
	default:
		fmt.Fprintf(p.Stderr, "%s: unknown command %q\n\n"+usage, p.Args[0], verb, p.Args[0])
		return boot.ExitUsage
	}
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
	stacks := make([]byte, 1<<20)
	_, _ = w.Write(stacks[:runtime.Stack(stacks, true)])
}
