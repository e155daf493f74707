package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	megactx "github.com/megaframework/mega/ctx"
)

// What a server grants its clients. How long a request may take and how large
// it may be is each app's own; here is what nobody has a reason to exceed.
const (
	headerTime  = 10 * time.Second // to send a request's head
	idleTime    = 2 * time.Minute  // between two requests
	headerBytes = 64 << 10
	stallTime   = time.Minute // to take any of an answer at all
)

// server is one listener with what it serves. Its goroutine is started by
// serve, ended by drain, and waited for by it.
type server struct {
	name     string // of the apps, or "ops"
	hosts    []*megactx.Host
	listener *listener
	http     *http.Server
	conns    connections
	cancel   context.CancelCauseFunc // ends every request
	served   chan struct{}           // closed when the server accepts no more; nil before it does
}

func newServer(name, addr string, handler http.Handler, log *slog.Logger, hosts ...*megactx.Host) (*server, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	return newServerOn(name, l, handler, log, hosts...), nil
}

func newServerOn(name string, l *listener, handler http.Handler, log *slog.Logger, hosts ...*megactx.Host) *server {
	base, cancel := context.WithCancelCause(context.Background())
	s := &server{name: name, hosts: hosts, listener: l, cancel: cancel}
	l.conns = &s.conns
	if len(hosts) > 0 {
		l.queue, s.conns.patience = queueTime, patience // clients of the others are promised nothing
	}
	s.http = &http.Server{
		Handler:           s.conns.handler(handler),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ConnState:         s.conns.track,
		ConnContext:       s.conns.context,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s
}

// url is where the server is reached from this machine.
func (s *server) url() string {
	return urlOf(s.listener.Addr().String())
}

// serve begins to serve and tells failed if that ends by itself.
func (s *server) serve(failed func(error)) {
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		err := s.http.Serve(s.listener)
		if !errors.Is(err, errDraining) && !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve %s: %w", s.name, err))
		}
	}()
}

// drain stops accepting and waits for what is in flight until ctx ends. Then
// the contexts of the requests end, and who does not answer within a moment is
// cut off and named.
func (s *server) drain(ctx context.Context) error {
	defer s.cancel(megactx.ErrShuttingDown)
	if s.served == nil {
		_ = s.listener.Close() // it never served
		return nil
	}
	for _, h := range s.hosts {
		h.EndStreams()
	}
	s.conns.leave(megactx.ErrShuttingDown)
	s.listener.drain()
	<-s.served
	if err := s.conns.quiet(ctx); err != nil {
		return s.cut()
	}
	// All connections are closed. Shutdown waits for their goroutines, which end
	// by themselves.
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	return nil
}

// cutGrace is how long a request may take to notice that its context ended.
const cutGrace = 250 * time.Millisecond

func (s *server) cut() error {
	cut, held := s.active(), s.held()
	s.cancel(megactx.ErrShuttingDown)
	grace, done := context.WithTimeout(context.Background(), cutGrace)
	defer done()
	_ = s.conns.quiet(grace) // either way they were not let finish
	_ = s.http.Close()
	s.conns.closeAll()
	return cutOff(s.name, cut, held)
}

// active names the requests in flight, and the connections that are in use
// without one.
func (s *server) active() (all []string) {
	if len(s.hosts) == 0 { // whose requests nobody lists
		return s.conns.names(func(k *conn) bool { return k.busy(0) })
	}
	for _, h := range s.hosts {
		all = append(all, h.Active()...)
	}
	return append(all, s.conns.unserved()...)
}

// held are the locks that this process holds.
func (s *server) held() []string {
	for _, h := range s.hosts {
		if h.Locker != nil {
			return h.Locker.Held()
		}
	}
	return nil
}
