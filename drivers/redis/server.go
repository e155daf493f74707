package redis

import (
	"context"
	"time"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
)

// server is the backend of one server, or of the master of a Sentinel set.
type server struct {
	wire       *wire.Wire
	persistent bool // the client retries by itself
}

func (s *server) do(ctx context.Context, _ string, args []string, limit time.Duration) (any, bool, error) {
	reply, err := s.wire.Do(ctx, args, limit)
	return reply, false, err
}

func (s *server) close() { s.wire.Close() }

func (s *server) wait() { s.wire.Wait() }

func (s *server) repeats() bool { return s.persistent }

// maxKeys is the number of keys per script call: it bounds how long the call
// delays others.
const maxKeys = 128

func (s *server) home(context.Context, string) any { return s }

func (s *server) together() int { return maxKeys }

func (s *server) onReconnect(fn, cut func()) { s.wire.OnReconnect(fn, cut) }
