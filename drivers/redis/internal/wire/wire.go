// Package wire carries the calls of a process to a Redis server on few
// connections, and without a call that waits for the answers to others; and the
// messages that the server pushes.
//
//	Wire    a server: its stream, or lanes                              wire.go
//	Stream  the connection that all calls share                         stream.go
//	how it is opened and closed                                         open.go
//	answers as they are sent, for the stream                            resp.go
//	Feed    the messages of a subscription, read by its waiters         feed.go
package wire

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock/driver"
)

const (
	// lanes is the number of connections that carry calls, to each server.
	lanes = 2
	// batch is the number of calls per pipeline.
	batch = 128
	// InFlight is the number of calls that keep the lanes full: a pipeline on each, and one
	// that waits. Without the latter, 6000 calls take 40 % longer with 5 to 20 ms of delay.
	InFlight = (lanes + 1) * batch
)

// Wire carries calls to one server on a fixed number of connections: a stream, or,
// with a client of the caller or of a Cluster, lanes. A lane is a connection with a
// goroutine: calls that arrive while all lanes are busy are combined into one
// pipeline. A caller may return before its call is over: a slow connection does not
// delay it.
type Wire struct {
	stop   chan struct{}
	stream *Stream // nil: the fields below
	client goredis.UniversalClient
	calls  chan *call
	lanes  sync.WaitGroup

	reconnected func() // nil: not asked for
	cut         func()
	mu          sync.Mutex
	ended       atomic.Uint32 // connections of the client, until noticed; set under mu
	noticed     time.Time     // guarded by mu
	cuts        uint32        // ended, until the last call of cut; guarded by mu
}

// call is one command on its way.
type call struct {
	done  chan struct{} // receives once; on a stream also when the caller should read
	timer *time.Timer
	cmd   *goredis.Cmd // of a call on a lane

	// Of a call on a stream, guarded by stream.mu:
	size     int // of the command in RESP
	reply    reply
	answered bool
	left     bool // the caller has gone
}

// New returns a wire on s, and takes ownership of it. If s is nil, the wire has
// lanes of client, which the caller closes.
func New(client goredis.UniversalClient, s *Stream) *Wire {
	w := &Wire{stop: make(chan struct{}), stream: s}
	if s != nil {
		return w
	}
	w.client, w.calls = client, make(chan *call, 4*batch)
	for range lanes {
		w.lanes.Go(w.lane)
	}
	return w
}

// OnReconnect sets a function that is called when the server may be another one: by
// a stream before the first call on each connection but the first, and by lanes
// before the first answer after a connection of the client has ended. The function
// must not block. By lanes it is not called for every such end, but cut is: the client may
// have repeated a call. OnReconnect must be called before the first Do.
func (w *Wire) OnReconnect(fn, cut func()) {
	if w.stream != nil {
		w.stream.reconnected = fn
		return
	}
	w.reconnected, w.cut, w.cuts = fn, cut, endedOf(w.client)
	w.ended.Store(w.cuts)
}

// endedOf returns the number of connections of a client that have ended.
func endedOf(client goredis.UniversalClient) uint32 {
	s := client.PoolStats()
	if s.PipelineStats == nil {
		return s.StaleConns
	}
	return s.StaleConns + s.PipelineStats.StaleConns
}

// noticeEvery is the shortest time between two calls of reconnected by lanes. The
// connections of a client end for other reasons too, such as a context of its user
// that has ended.
const noticeEvery = 500 * time.Millisecond

// notice calls reconnected if connections of the client have ended. The client does
// not report an idle connection that has ended: it uses another one.
func (w *Wire) notice() {
	if w.reconnected == nil || endedOf(w.client) == w.ended.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, now := endedOf(w.client), time.Now()
	if n != w.cuts {
		w.cut()
		w.cuts = n
	}
	if n == w.ended.Load() || now.Sub(w.noticed) < noticeEvery {
		return
	}
	w.reconnected()
	w.ended.Store(n) // now, so that no answer overtakes the call
	w.noticed = now
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
		if slices.ContainsFunc(todo, func(c *call) bool { return c.cmd.Err() == nil }) {
			w.notice()
		}
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

// Do sends a command once, and returns its answer: a string, an int64 or an []any of
// these; or goredis.Nil. It returns after the attempt, or with an error when ctx has
// ended or limit has passed. Nothing uses args afterwards.
func (w *Wire) Do(ctx context.Context, args []string, limit time.Duration) (any, error) {
	c := spare.Get().(*call) //nolint:forcetypeassert // nothing else is in it
	var err error
	if w.stream != nil {
		err = w.stream.do(ctx, c, args, limit)
	} else {
		err = w.byLane(ctx, c, args, limit)
	}
	if err != nil {
		return nil, w.outcome(err) // somebody may still have c
	}
	select {
	case <-c.done: // a signal that nobody needed
	default:
	}
	r := c.reply
	c.cmd, c.reply, c.answered = nil, reply{}, false
	spare.Put(c)
	return r.value, w.outcome(r.err)
}

// Command returns a call of a script as a client takes it.
func Command(args []string) *goredis.Cmd {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	cmd := goredis.NewCmd(context.Background(), all...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// byLane sends a command on a lane.
func (w *Wire) byLane(ctx context.Context, c *call, args []string, limit time.Duration) (err error) {
	c.cmd = Command(args)
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
	if err != nil {
		return err
	}
	c.reply.value, c.reply.err = c.cmd.Result()
	return nil
}

// outcome returns the error of a call, which is ErrClosed after Close.
func (w *Wire) outcome(err error) error {
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
