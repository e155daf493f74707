package redis

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// solo is a connection for calls that come alone. The caller's own goroutine
// writes and reads, which saves waking another one twice: a third of the time
// of a call. So that the caller can leave when its context ends, the connection
// is cut under it then.
type solo struct {
	client goredis.UniversalClient

	busy sync.Mutex // held during a call

	mu      sync.Mutex // guards the fields below
	calling uint64     // number of the call in flight, or 0
	last    uint64

	active atomic.Pointer[link] // the connection that was written to last
}

// link is a connection that notes its use.
type link struct {
	net.Conn
	solo *solo
}

func (l *link) Write(b []byte) (int, error) {
	l.solo.active.Store(l)
	return l.Conn.Write(b)
}

// dialer is the one of the client's options, with a link for each connection.
func (s *solo) dialer(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: conn, solo: s}, nil
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// try has cmd executed, unless another call is in flight. The error, as of
// wire.do, is in cmd otherwise.
func (s *solo) try(ctx context.Context, cmd *goredis.Cmd, limit time.Duration) bool {
	if !s.busy.TryLock() {
		return false
	}
	defer s.busy.Unlock()
	if limit < attemptTimeout { // else the client's own timeout is enough
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	number := s.begin()
	defer s.end()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { s.cut(number) })()
	}
	_ = s.client.Process(ctx, cmd)
	return true
}

func (s *solo) begin() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.calling = s.last
	return s.calling
}

func (s *solo) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calling = 0
}

// cut ends the connection of a call, if it still is in flight.
func (s *solo) cut(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.active.Load(); l != nil && s.calling == number {
		_ = l.Close() // does not block
	}
}
