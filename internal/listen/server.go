package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/request"
)

// The limits of a server for its clients. Each app has its own limits for the
// time and the size of a request; these apply to all.
const (
	headerTime  = 10 * time.Second // to send a request's head
	idleTime    = 2 * time.Minute  // between two requests
	headerBytes = 64 << 10
	stallTime   = time.Minute // to read at least one byte of a response
)

// Server is one listener and its handler. Serve starts its goroutine; Drain ends
// it and waits for it.
type Server struct {
	name     string // names of the apps, or "ops"
	hosts    []*request.Host
	listener *Listener
	secure   *Certificates // nil without TLS
	http     *http.Server
	conns    *connections
	cancel   context.CancelCauseFunc // ends every request
	served   chan struct{}           // closed when the server stops accepting; nil before Serve
}

// NewServer returns the server of a listener. name appears in errors and log
// records. hosts belong to its apps. A server without hosts, such as the one of
// ops, closes idle connections at once when it drains.
func NewServer(name string, l *Listener, handler http.Handler, log *slog.Logger, hosts ...*request.Host) *Server {
	base, cancel := context.WithCancelCause(context.Background())
	s := &Server{name: name, hosts: hosts, listener: l, conns: newConnections(), cancel: cancel}
	if len(hosts) > 0 { // only clients of apps are promised a response
		l.queue, s.conns.patience = queueTime, patience
	}
	l.conns = s.conns
	s.http = &http.Server{
		Handler:           s.conns.handler(handler),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ConnState:         s.conns.track,
		ConnContext:       s.conns.context,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(errorLog{log.Handler()}, slog.LevelWarn),
	}
	return s
}

// errorLog is the log of net/http. A failed handshake is not a warning of the
// program: its client caused it, and a check of the port by a load balancer causes
// one every few seconds, which would fill the list of the last warnings.
type errorLog struct{ slog.Handler }

// Handle implements [slog.Handler].
func (l errorLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "http: TLS handshake error") {
		r.Level = slog.LevelInfo
		if !l.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return l.Handler.Handle(ctx, r)
}

// Secure makes the server serve HTTPS. It is called before Serve; nil changes
// nothing.
func (s *Server) Secure(c *Certificates) { s.secure = c }

// URL returns the URL of the server, as seen from this machine.
func (s *Server) URL() string { return s.secure.URL(s.listener.Addr().String()) }

// Addr returns the address of the server's listener.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL returns the URL of a listen address, as seen from this machine.
func URL(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Serve starts to serve, and calls failed if serving ends unexpectedly.
func (s *Server) Serve(failed func(error)) {
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		err := s.http.Serve(s.secure.listener(s.listener))
		if !errors.Is(err, errDraining) && !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve %s: %w", s.name, err))
		}
	}()
}

// CloseAfterResponse makes every further response close its connection. The
// server goes on accepting.
func (s *Server) CloseAfterResponse() { s.conns.ending.Store(true) }

// Drain stops accepting, and waits for requests in flight. If ctx ends first,
// it ends the contexts of the remaining requests, waits for cutGrace, closes
// their connections, and names them in its error.
func (s *Server) Drain(ctx context.Context) error {
	defer s.cancel(request.ErrShuttingDown)
	if s.served == nil {
		_ = s.listener.Close() // it has never served
		return nil
	}
	for _, h := range s.hosts {
		h.EndStreams()
	}
	s.conns.drain(s.conns.patience)
	s.listener.drain(ctx)
	<-s.served // from here on there are no new connections
	if s.conns.wait(ctx) != nil {
		return s.cut()
	}
	return nil
}

// cutGrace is the time that a request has to return after the end of its
// context.
const cutGrace = 250 * time.Millisecond

// cut ends the remaining requests. Its error names them, also those that end
// within cutGrace. Connections that wait for a request are not cut off.
func (s *Server) cut() error {
	s.conns.drain(0)
	cut, held := s.active(), s.held()
	s.cancel(request.ErrShuttingDown)
	grace, done := context.WithTimeout(context.Background(), cutGrace)
	defer done()
	_ = s.conns.wait(grace)
	s.conns.closeAll()
	_ = s.http.Close() // last: it would end TLS first, as after a complete answer
	if len(cut) == 0 {
		return nil
	}
	return cutOff(s.name, cut, held)
}

// active returns the requests in flight, and the connections that are in use
// without a request.
func (s *Server) active() (all []string) {
	if len(s.hosts) == 0 { // a server without hosts has no list of requests
		return s.conns.names(inUse)
	}
	for _, h := range s.hosts {
		all = append(all, h.Active()...)
	}
	return append(all, s.conns.names(unserved)...)
}

// held returns the locks that this process holds.
func (s *Server) held() []string {
	for _, h := range s.hosts {
		if h.Locker != nil {
			return h.Locker.Held()
		}
	}
	return nil
}

// cutOff returns the error for requests that the shutdown interrupted.
func cutOff(of string, what, held []string) error {
	text := fmt.Sprintf("%s: cut off %d in flight: %s", of, len(what), strings.Join(what, ", "))
	if len(held) > 0 {
		text += "; locks held: " + strings.Join(held, ", ")
	}
	return errors.New(text)
}
