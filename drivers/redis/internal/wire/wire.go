// Package wire carries the calls of a process to a Redis server on few
// connections, and without a call that waits for the answers to others.
//
//	Wire    a server: the stream, or lanes while it is not connected    wire.go
//	Stream  the connection that all calls share                         stream.go
//	answers as they are sent, for the stream                            resp.go
package wire

import (
	"context"
	"errors"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock/driver"
)

const (
	// lanes is the number of connections that carry calls, to each server.
	lanes = 2
	// batch is the number of calls per pipeline.
	batch = 128
)

// Wire carries calls to one server on a fixed number of connections. A call uses
// the stream. While there is none, and at a client of the caller or of a
// Cluster, it uses a lane, a connection with a goroutine: calls that arrive while
// all lanes are busy are combined into one pipeline. A caller may return before
// its call is over: a slow connection does not delay it.
type Wire struct {
	client goredis.UniversalClient
	stream *Stream // or nil
	calls  chan *call
	stop   chan struct{}
	lanes  sync.WaitGroup
}

// call is one command on its way.
type call struct {
	cmd   *goredis.Cmd
	done  chan struct{} // receives once; on a stream also when the caller should read
	timer *time.Timer

	// Of a call on a stream:
	wire     []byte // the command in RESP
	answered bool   // guarded by stream.mu, as is left
	left     bool   // the caller has gone
}

// New returns a wire to the server of client, which the caller closes. It takes
// ownership of s, which may be nil.
func New(client goredis.UniversalClient, s *Stream) *Wire {
	w := &Wire{client: client, stream: s, calls: make(chan *call, 4*batch), stop: make(chan struct{})}
	for range lanes {
		w.lanes.Go(w.lane)
	}
	return w
}

// Close ends the lanes and the stream. A call in flight ends with its connection.
func (w *Wire) Close() {
	close(w.stop)
	if w.stream != nil {
		w.stream.close()
	}
}

// Wait returns when they have ended.
func (w *Wire) Wait() {
	w.lanes.Wait()
	if w.stream != nil {
		w.stream.wait()
	}
}

func (w *Wire) lane() {
	todo := make([]*call, 0, batch)
	for {
		select {
		case <-w.stop:
			return
		case c := <-w.calls:
			todo = w.gather(append(todo[:0], c))
		}
		w.send(todo)
		for i, c := range todo {
			c.done <- struct{}{}
			todo[i] = nil
		}
	}
}

// gather adds the calls that arrived while every lane was busy.
func (w *Wire) gather(todo []*call) []*call {
	for len(todo) < batch {
		select {
		case c := <-w.calls:
			todo = append(todo, c)
		default:
			return todo
		}
	}
	return todo
}

// send stores each outcome in its command.
func (w *Wire) send(todo []*call) {
	ctx := context.Background() // the client's own timeouts bound it
	if len(todo) == 1 {
		_ = w.client.Process(ctx, todo[0].cmd)
		return
	}
	pipe := w.client.Pipeline()
	for _, c := range todo {
		_ = pipe.Process(ctx, c.cmd)
	}
	_, _ = pipe.Exec(ctx)
}

var spare = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &call{done: make(chan struct{}, 1), timer: t}
}}

// ErrSlow is the cause when a call exceeds its time limit.
var ErrSlow = errors.New("no answer")

// Do executes cmd once. It returns after the attempt, or with an error when ctx
// has ended or limit has passed.
func (w *Wire) Do(ctx context.Context, cmd *goredis.Cmd, limit time.Duration) error {
	c := spare.Get().(*call) //nolint:forcetypeassert // nothing else is in it
	c.cmd, c.answered = cmd, false
	ok, err := false, error(nil)
	if w.stream != nil {
		ok, err = w.stream.do(ctx, c, limit)
	}
	if !ok {
		err = w.byLane(ctx, c, limit)
	}
	if err != nil {
		return err // somebody may still have c
	}
	select {
	case <-c.done: // a signal that nobody needed
	default:
	}
	c.cmd = nil
	spare.Put(c)
	return w.outcome(cmd)
}

// byLane executes c.cmd on a lane.
func (w *Wire) byLane(ctx context.Context, c *call, limit time.Duration) (err error) {
	c.timer.Reset(limit)
	select {
	case w.calls <- c:
		err = w.await(ctx, c)
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.timer.C:
		err = ErrSlow
	case <-w.stop:
		err = driver.ErrClosed
	}
	c.timer.Stop()
	return err
}

// outcome returns the error of cmd, which is ErrClosed after close.
func (w *Wire) outcome(cmd *goredis.Cmd) error {
	err := cmd.Err()
	if err != nil {
		select {
		case <-w.stop:
			return driver.ErrClosed
		default:
		}
	}
	return err
}

func (w *Wire) await(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.timer.C:
		return ErrSlow
	case <-w.stop:
		return driver.ErrClosed
	}
}
