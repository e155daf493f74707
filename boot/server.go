package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/megaframework/mega/config"
	megactx "github.com/megaframework/mega/ctx"
)

// server is one listener with what it serves. Its goroutine is started by
// serve, ended by drain or cut, and waited for by both.
type server struct {
	name     string // the app's, or "ops"
	host     *megactx.Host
	listener *listener
	http     *http.Server
	conns    connections
	cancel   context.CancelCauseFunc // ends every request
	served   chan struct{}
}

func newServer(name, addr string, host *megactx.Host, handler http.Handler, log *slog.Logger) (*server, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	base, cancel := context.WithCancelCause(context.Background())
	s := &server{name: name, host: host, listener: l, cancel: cancel, served: make(chan struct{})}
	s.http = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ConnState:         s.conns.track,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// url is where the server is reached from this machine.
func (s *server) url() string {
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return s.listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// serve begins to serve and tells failed if that ends by itself.
func (s *server) serve(failed func(error)) {
	go func() {
		defer close(s.served)
		err := s.http.Serve(s.listener)
		if !errors.Is(err, errDraining) && !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve %s: %w", s.name, err))
		}
	}()
}

// drain stops accepting and waits for the requests in flight until ctx ends.
// Then their contexts end, and who does not answer within a moment is cut off
// and named.
func (s *server) drain(ctx context.Context) error {
	defer s.cancel(megactx.ErrShuttingDown)
	s.http.SetKeepAlivesEnabled(false)
	s.listener.drain()
	<-s.served
	if err := s.conns.quiet(ctx); err != nil {
		return s.cut()
	}
	for _, conn := range s.conns.silent() {
		_ = conn.Close() // it was never used
	}
	if err := s.http.Shutdown(ctx); err != nil {
		return s.cut()
	}
	return nil
}

// cutGrace is how long a request may take to notice that its context ended.
const cutGrace = 250 * time.Millisecond

func (s *server) cut() error {
	active := s.active()
	s.cancel(megactx.ErrShuttingDown)
	grace, done := context.WithTimeout(context.Background(), cutGrace)
	defer done()
	_ = s.conns.quiet(grace) // either way they were not let finish
	_ = s.http.Close()
	return fmt.Errorf("%s: %d requests cut off: %s", s.name, len(active), strings.Join(active, ", "))
}

func (s *server) active() []string {
	if s.host == nil {
		return nil
	}
	return s.host.Active()
}

// close gives up a listener that never served.
func (s *server) close() { _ = s.listener.Close() }

// listenFailure is why an app's address cannot be had.
func listenFailure(c *config.Config, key, addr string, err error) error {
	f := &Failure{
		Code: "app.cannot_listen", Exit: ExitUnavailable, Cause: err,
		Text:    fmt.Sprintf("The address %s cannot be listened on.", addr),
		Facts:   []Fact{asked(c, key)},
		Actions: []string{"choose another:   " + config.EnvName(key) + "=127.0.0.1:8088", "take a free one:  " + config.EnvName(key) + "=127.0.0.1:0"},
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		f.Text = fmt.Sprintf("The address %s is taken by another process.", addr)
		f.Actions = append(f.Actions, "see who has it:   ss -ltnp")
	}
	return f
}
