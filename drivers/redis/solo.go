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
// writes and reads, which saves two wake-ups of another goroutine: a third of
// the time of a call. When the context of the caller ends, the connection is
// closed under the call, so that the caller can return.
type solo struct {
	client goredis.UniversalClient

	busy sync.Mutex // held during a call

	mu      sync.Mutex // guards the fields below
	calling uint64     // number of the call in flight, or 0
	last    uint64

	active atomic.Pointer[link] // the connection of the last write
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

// dialer wraps the dialer of the client's options: each connection is a link.
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

// try executes cmd, unless another call is in flight. Otherwise the error is in
// cmd, as in wire.do.
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

// cut closes the connection of a call that is still in flight.
func (s *solo) cut(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.active.Load(); l != nil && s.calling == number {
		_ = l.Close() // does not block
	}
}
