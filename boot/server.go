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

// The limits of a server for its clients. Each app has its own limits for the
// time and the size of a request; these apply to all.
const (
	headerTime  = 10 * time.Second // to send a request's head
	idleTime    = 2 * time.Minute  // between two requests
	headerBytes = 64 << 10
	stallTime   = time.Minute // to read at least one byte of a response
)

// server is one listener and its handler. The method serve starts its
// goroutine; the method drain ends it and waits for it.
type server struct {
	name     string // names of the apps, or "ops"
	hosts    []*megactx.Host
	listener *listener
	http     *http.Server
	conns    connections
	cancel   context.CancelCauseFunc // ends every request
	served   chan struct{}           // closed when the server stops accepting; nil before serve
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
		l.queue, s.conns.patience = queueTime, patience // only clients of apps are promised a response
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

// url returns the URL of the server, as seen from this machine.
func (s *server) url() string {
	return urlOf(s.listener.Addr().String())
}

// serve starts to serve, and calls failed if serving ends unexpectedly.
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

// drain stops accepting, and waits for requests in flight. If ctx ends first,
// it ends the contexts of the remaining requests, waits for cutGrace, closes
// their connections, and names them in its error.
func (s *server) drain(ctx context.Context) error {
	defer s.cancel(megactx.ErrShuttingDown)
	if s.served == nil {
		_ = s.listener.Close() // it has never served
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
	// All connections are closed. Shutdown waits for their goroutines, which
	// end by themselves.
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	return nil
}

// cutGrace is the time that a request has to return after the end of its
// context.
const cutGrace = 250 * time.Millisecond

func (s *server) cut() error {
	cut, held := s.active(), s.held()
	s.cancel(megactx.ErrShuttingDown)
	grace, done := context.WithTimeout(context.Background(), cutGrace)
	defer done()
	_ = s.conns.quiet(grace) // requests that end in time count as interrupted, too
	_ = s.http.Close()
	s.conns.closeAll()
	return cutOff(s.name, cut, held)
}

// active returns the requests in flight, and the connections that are in use
// without a request.
func (s *server) active() (all []string) {
	if len(s.hosts) == 0 { // a server without hosts has no list of requests
		return s.conns.names(func(k *conn) bool { return k.busy(0) })
	}
	for _, h := range s.hosts {
		all = append(all, h.Active()...)
	}
	return append(all, s.conns.unserved()...)
}

// held returns the locks that this process holds.
func (s *server) held() []string {
	for _, h := range s.hosts {
		if h.Locker != nil {
			return h.Locker.Held()
		}
	}
	return nil
}
