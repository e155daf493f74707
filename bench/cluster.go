package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/cluster"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// The arguments that make this program a hub, and a subscriber on a hub and on
// a NATS server. Both read their addresses from their first line of input,
// write "ready", and end with their input.
const (
	hubArg      = "hub"
	listenerArg = "listener"
)

// meeting holds the addresses that the processes of a row share.
type meeting struct{ Socket, NATS, Key, File string }

// eventsPerTurn is the number of events after which the subscriber confirms.
const eventsPerTurn = 10_000

const handledSubject = "bench.handled"

func serveHub(ctx context.Context, in io.Reader, out io.Writer) error {
	return serveAt(in, out, func(at meeting) (func() error, error) {
		n, err := cluster.Dial(ctx, cluster.Config{Socket: at.Socket}) // the first process becomes the hub
		if err != nil {
			return nil, err
		}
		return func() error { return n.Close(context.Background()) }, nil
	})
}

func serveListener(ctx context.Context, in io.Reader, out io.Writer) error {
	return serveAt(in, out, func(at meeting) (func() error, error) {
		b, err := openCluster(ctx, at.Socket)
		if err != nil {
			return nil, err
		}
		handled := 0
		_, err = b.Subscribe(ctx, subject, func(ctx context.Context, _ *bus.Msg) error {
			if handled++; handled%eventsPerTurn == 0 {
				return b.Publish(ctx, handledSubject, []byte(strconv.Itoa(handled)))
			}
			return nil
		})
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		conn, err := listenOnNATS(at.NATS)
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
		return func() error { conn.Close(); return b.Close() }, nil
	})
}

func listenOnNATS(url string) (*natsgo.Conn, error) {
	conn, err := natsgo.Connect(url)
	if err != nil {
		return nil, err
	}
	handled := 0
	_, err = conn.Subscribe(subject, func(*natsgo.Msg) {
		if handled++; handled%eventsPerTurn == 0 {
			_ = conn.Publish(handledSubject, nil) // the waiting reader reports it
		}
	})
	return conn, errors.Join(err, conn.Flush())
}

// serveAt runs such a process.
func serveAt(in io.Reader, out io.Writer, open func(meeting) (func() error, error)) error {
	var at meeting
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &at); err != nil {
		return err
	}
	end, err := open(at)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	_, err = io.Copy(io.Discard, lines)
	return errors.Join(err, end())
}

// helper is such a process, from the side of its parent.
type helper struct {
	process *redistest.Process
	stdin   io.Closer
}

func startHelper(arg string, at meeting) (*helper, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a %s: %w", arg, err)
	}
	cmd := exec.Command(self, arg)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		return nil, err
	}
	h := &helper{p, stdin}
	err = json.NewEncoder(stdin).Encode(at)
	if err == nil {
		_, err = bufio.NewReader(stdout).ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a %s: %w", arg, err), h.stop())
	}
	return h, nil
}

func (h *helper) stop() error {
	_ = h.stdin.Close() // it ends with the process
	select {
	case <-h.process.Done():
		return h.process.Wait()
	case <-time.After(5 * time.Second):
		return h.process.Kill()
	}
}

// openCluster is mega on a cluster, as its users open it.
func openCluster(ctx context.Context, socket string) (*bus.Bus, error) {
	n, err := cluster.Dial(ctx, cluster.Config{Socket: socket})
	if err != nil {
		return nil, err
	}
	return bus.New(wholeNode{n.Bus(), n}, bus.Config{})
}

// wholeNode is a node's bus that ends with the node.
type wholeNode struct {
	*cluster.Bus
	node *cluster.Node
}

func (w wholeNode) Close(ctx context.Context) error {
	return errors.Join(w.Bus.Close(ctx), w.node.Close(ctx))
}

// clusterPublish publishes events from this process to a subscriber in another
// one, through a hub in a third, beside nats.go doing the same through its
// server. Slices alternate; each ends when the subscriber has handled all of it.
func clusterPublish(ctx context.Context, l *lab) (claims []claim, err error) {
	p, err := openWay(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	rates := samples{}
	for range l.reps(9) {
		if err := publishRep(l, p.contestants(ctx), rates); err != nil {
			return nil, err
		}
	}
	return []claim{rates.ratio("events/s of 128 B, worker to worker", "/s", natsGo, natsGo).atLeast(1)}, nil
}

// way is one path of events to the other process.
type way struct {
	bus     *bus.Bus
	plain   *natsgo.Conn
	handled chan struct{} // once for each turn
	closers []func() error
}

func openWay(ctx context.Context, l *lab) (w *way, err error) {
	w = &way{handled: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	url, err := l.nats()
	if err != nil {
		return w, err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return w, err
	}
	w.closers = append(w.closers, func() error { return os.RemoveAll(dir) })
	at := meeting{Socket: filepath.Join(dir, "s"), NATS: url}
	for _, arg := range []string{hubArg, listenerArg} {
		h, err := startHelper(arg, at)
		if err != nil {
			return w, err
		}
		w.closers = append(w.closers, h.stop)
	}
	return w, w.open(ctx, at)
}

func (w *way) open(ctx context.Context, at meeting) (err error) {
	if w.bus, err = openCluster(ctx, at.Socket); err != nil {
		return err
	}
	w.closers = append(w.closers, w.bus.Close)
	if w.plain, err = natsgo.Connect(at.NATS); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { w.plain.Close(); return nil })
	_, err = w.bus.Subscribe(ctx, handledSubject, func(context.Context, *bus.Msg) error { w.handled <- struct{}{}; return nil })
	if err != nil {
		return err
	}
	_, err = w.plain.Subscribe(handledSubject, func(*natsgo.Msg) { w.handled <- struct{}{} })
	return errors.Join(err, w.plain.Flush())
}

func (w *way) close() error {
	var errs []error
	for _, c := range slices.Backward(w.closers) {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

func (w *way) contestants(ctx context.Context) []contestant {
	data := make([]byte, eventSize)
	return []contestant{
		{mega, w.turn(func() error { return w.bus.Publish(ctx, subject, data) }, func() error { return w.bus.Flush(ctx) })},
		{natsGo, w.turn(func() error { return w.plain.PublishMsg(&natsgo.Msg{Subject: subject, Data: data}) }, w.plain.Flush)},
	}
}

// turn publishes, and waits for the confirmation of the subscriber.
func (w *way) turn(op, flush func() error) batch {
	return func(n int) error {
		if err := errors.Join(each(op)(n), flush()); err != nil {
			return err
		}
		select {
		case <-w.handled:
			return nil
		case <-time.After(10 * time.Second):
			return fmt.Errorf("the subscriber did not receive %d events within 10 s", n)
		}
	}
}
