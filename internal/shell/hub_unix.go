//go:build linux || darwin

package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/megaframework/mega/drivers/cluster"
)

// idleTime is how long the hub process stays without a client, at least (X7).
const idleTime = 10 * time.Second

// startSuffix is the suffix of the file beside the socket whose flock the process
// has that starts a hub process: of many scripts that begin at once, one starts it.
const startSuffix = ".keeper"

// startHub starts the hub process, unless there is a hub by now, and returns
// when it serves.
func startHub(ctx context.Context, p Process, socket string) error {
	f, err := os.OpenFile(socket+startSuffix, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("start the keeper of the locks: %w", err)
	}
	defer func() { _ = f.Close() }()
	for wait := time.Millisecond; ; wait = min(2*wait, 10*time.Millisecond) {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			break
		}
		if served(ctx, socket) {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("wait for the keeper of the locks: %w", ctx.Err())
		}
	}
	if served(ctx, socket) {
		return nil
	}
	if err := spawnHub(ctx, p, socket); err != nil {
		return fmt.Errorf("start the keeper of the locks: %w", err)
	}
	return nil
}

// served reports whether a process listens at the socket.
func served(ctx context.Context, socket string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// spawnHub starts the hub process and returns when it listens. It does not
// wait until the hub process is connected to itself: the hub first waits for all
// processes at the socket, this one included.
func spawnHub(ctx context.Context, p Process, socket string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd, err := p.selfCommand("hub", socket)
	if err == nil {
		cmd.Stdout, cmd.Dir = w, "/"
		err = cmd.Start()
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it outlives this process, or else is no zombie
	failed := make(chan error, 1)
	go func() { // ends when r is closed
		if text, err := io.ReadAll(io.LimitReader(r, 4096)); err == nil && len(text) > 0 {
			failed <- errors.New(string(text))
		}
	}()
	for !served(ctx, socket) {
		select {
		case err := <-failed:
			return err
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func hubVerb() Verb {
	return Verb{Name: "hub", Args: "SOCKET", Short: "be the hub of the scripts", Hidden: true, Run: func(_ Process, args []string, _ int) error {
		if len(args) != 1 {
			return usage("cli.missing_argument", "hub is started by exec.")
		}
		return runHub(args[0])
	}}
}

// runHub is the hub process: the hub of the socket until it has had no client
// for a while. Its standard output carries the error if it cannot serve.
func runHub(socket string) error {
	closeInherited()
	signal.Ignore(passedOn()...)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	node, err := cluster.Dial(ctx, cluster.Config{Socket: socket})
	if err != nil {
		fmt.Fprint(os.Stdout, err)
		return Status(ExitUnavailable)
	}
	detach()
	stay(ctx, node, idleTime, time.Second)
	bounded, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = node.Close(bounded) // its clients find the next hub, either way
	return nil
}

// detach closes the standard output, which somebody waits for.
func detach() {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		_ = redirect(int(null.Fd()), 1)
		_ = null.Close()
	}
}

// stay returns when the hub is another process, or has had no client besides
// this process for the time idle, and no grant of a limit counts any more. It
// looks again after each pause.
func stay(ctx context.Context, node *cluster.Node, idle, pause time.Duration) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for used := time.Now(); ; {
		clients, here := node.Clients()
		switch {
		case !here:
			return
		case clients > 1:
			used = time.Now()
		case time.Since(used) >= idle && !node.LimitsInUse():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
