package buses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/cluster"
)

// ListenerRole makes this program a subscriber on a hub and on a NATS server.
const ListenerRole = "listener"

// eventsPerTurn is the number of events after which the subscriber confirms.
const eventsPerTurn = 10_000

const handledSubject = "bench.handled"

// ServeListener subscribes at the socket and confirms what it has handled, until in
// ends.
func ServeListener(ctx context.Context, in io.Reader, out io.Writer) error {
	return lab.ServeAt(in, out, func(at lab.Meeting) (func() error, error) {
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

// ClusterPublish publishes events from this process to a subscriber in another
// one, through a hub in a third, beside nats.go doing the same through its
// server. Slices alternate; each ends when the subscriber has handled all of it.
func ClusterPublish(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	p, err := openWay(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	rates := measure.Samples{}
	for range l.Reps(9) {
		if err := publishRep(l, p.contestants(ctx), rates); err != nil {
			return nil, err
		}
	}
	return []measure.Claim{rates.Ratio("events/s of 128 B, worker to worker", "/s", natsGo, natsGo).AtLeast(1)}, nil
}

// way is one path of events to the other process.
type way struct {
	bus     *bus.Bus
	plain   *natsgo.Conn
	handled chan struct{} // once for each turn
	closers []func() error
}

func openWay(ctx context.Context, l *lab.Lab) (w *way, err error) {
	w = &way{handled: make(chan struct{}, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	url, err := l.NATS()
	if err != nil {
		return w, err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return w, err
	}
	w.closers = append(w.closers, func() error { return os.RemoveAll(dir) })
	at := lab.Meeting{Socket: filepath.Join(dir, "s"), NATS: url}
	for _, arg := range []string{lab.HubRole, ListenerRole} {
		h, err := lab.StartHelper(arg, at)
		if err != nil {
			return w, err
		}
		w.closers = append(w.closers, h.Stop)
	}
	return w, w.open(ctx, at)
}

func (w *way) open(ctx context.Context, at lab.Meeting) (err error) {
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
		{measure.Mega, w.turn(func() error { return w.bus.Publish(ctx, subject, data) }, func() error { return w.bus.Flush(ctx) })},
		{natsGo, w.turn(func() error { return w.plain.PublishMsg(&natsgo.Msg{Subject: subject, Data: data}) }, w.plain.Flush)},
	}
}

// turn publishes, and waits for the confirmation of the subscriber.
func (w *way) turn(op, flush func() error) measure.Batch {
	return func(n int) error {
		if err := errors.Join(measure.Each(op)(n), flush()); err != nil {
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
