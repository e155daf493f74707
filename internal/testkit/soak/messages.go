package soak

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/megaframework/mega/bus"
)

// A message carries its sender and its number among the sender's messages.
func message(seq uint64, from string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, seq), from...)
}

func read(m *bus.Msg) (seq uint64, from string) {
	return binary.BigEndian.Uint64(m.Data), string(m.Data[8:])
}

// subscribe subscribes to all messages, joins the group, and answers requests.
func (w *Worker) subscribe(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // subscriptions stand until the bus is drained
	each := func(_ context.Context, m *bus.Msg) error {
		w.tally.each(m)
		return nil
	}
	group := func(_ context.Context, m *bus.Msg) error {
		w.tally.group(m)
		return nil
	}
	echo := func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil }
	if _, err := w.bus.Subscribe(ctx, "load.*", each, bus.Name("each")); err != nil {
		return err
	}
	if _, err := w.bus.Subscribe(ctx, "load.*", group, bus.Group("g"), bus.Name("group")); err != nil {
		return err
	}
	if _, err := w.bus.Subscribe(ctx, "calm.*", func(context.Context, *bus.Msg) error {
		w.tally.calm(func(c *Counts) { c.Each++ })
		return nil
	}, bus.Name("calm")); err != nil {
		return err
	}
	if _, err := w.bus.Subscribe(ctx, "calm.*", func(context.Context, *bus.Msg) error {
		w.tally.calm(func(c *Counts) { c.Group++ })
		return nil
	}, bus.Group("g"), bus.Name("calm group")); err != nil {
		return err
	}
	_, err := w.bus.Respond(ctx, "ask", echo, bus.Name("ask"))
	return err
}

// publishAll publishes until ctx ends.
func (w *Worker) publishAll(ctx context.Context) {
	for ctx.Err() == nil {
		for range 4 {
			seq := w.tally.next()
			if err := w.bus.Publish(context.WithoutCancel(ctx), "load."+w.name, message(seq, w.name)); err != nil {
				w.tally.failed("publish", err)
			}
		}
		pause(ctx, 4*time.Millisecond)
	}
}

// patience is the timeout of a request. It is longer than any stop of a process.
const patience = 5 * time.Second

// requestAll sends requests until ctx ends. A request fails at once if its
// responder is killed.
func (w *Worker) requestAll(ctx context.Context) {
	for n := uint64(0); ctx.Err() == nil; n++ {
		w.request(n)
		pause(ctx, 3*time.Millisecond)
	}
}

func (w *Worker) request(n uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := w.bus.Request(ctx, "ask", message(n, w.name))
	if err != nil {
		w.tally.failed("request", err)
		return
	}
	if seq, from := read(m); seq != n || from != w.name {
		w.tally.wrong(fmt.Sprintf("request %d of %s was answered with %d of %s", n, w.name, seq, from))
	}
	w.tally.answered()
}

// calm publishes n messages, none of which may be lost.
func (w *Worker) calm(ctx context.Context, n int) error {
	for range n {
		if err := w.bus.Publish(ctx, "calm."+w.name, []byte("calm")); err != nil {
			return err
		}
	}
	return w.bus.Flush(ctx)
}
