// Package natstest starts real NATS servers for tests, on free loopback ports:
// inside the process of the test, or as a child process, which can be killed,
// stopped and started again.
//
// No server outlives the process that started it.
package natstest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTime is the maximum time from the start of a server until it serves.
const startTime = 20 * time.Second

// Options configures a server. The zero value accepts every client.
type Options struct {
	User, Password string
	Token          string
	Port           int // default: a free one
	MaxPayload     int32
	// MaxPending is the number of bytes that may wait for a slow client before the
	// server disconnects it. Default 64 MiB.
	MaxPending int64
	// WriteDeadline is the timeout of a write to a client. Default 10s.
	WriteDeadline time.Duration
	// MaxSubs is the maximum number of subscriptions of a connection.
	MaxSubs int
	// Deny lists the subjects that no client may subscribe to, and DenyPublish
	// those that no client may publish to. If either is not nil, a reload can
	// change both.
	Deny, DenyPublish []string
	// Config is further configuration in the language of the server.
	Config string
	// Cert and Key are files in PEM; with them the server speaks TLS.
	Cert, Key string
}

func (o Options) server() (*server.Options, error) {
	s := &server.Options{}
	if o.Config != "" {
		if err := s.ProcessConfigString(o.Config); err != nil {
			return nil, err
		}
	}
	s.Host, s.Port, s.NoLog, s.NoSigs = "127.0.0.1", o.Port, true, true
	s.MaxPayload, s.MaxPending, s.MaxSubs, s.WriteDeadline = o.MaxPayload, o.MaxPending, o.MaxSubs, o.WriteDeadline
	s.Authorization = o.Token
	if o.User != "" {
		s.Users = []*server.User{{Username: o.User, Password: o.Password}}
	}
	if o.Deny != nil || o.DenyPublish != nil {
		s.NoAuthUser = "anyone"
		s.Users = append(s.Users, &server.User{Username: "anyone", Password: "x", Permissions: &server.Permissions{
			Subscribe: &server.SubjectPermission{Deny: o.Deny}, Publish: &server.SubjectPermission{Deny: o.DenyPublish},
		}})
	}
	if o.Cert != "" {
		config, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: o.Cert, KeyFile: o.Key})
		if err != nil {
			return nil, err
		}
		s.TLSConfig, s.TLSTimeout = config, 2
	}
	return s, nil
}

// Server is a server inside this process. It belongs to the test's goroutine.
type Server struct {
	options Options
	server  *server.Server
	port    int
}

// New starts a server and returns when it serves. The caller stops it.
func New(o Options) (*Server, error) {
	s := &Server{options: o}
	return s, s.Start()
}

// Start starts a server that ends with the test.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := New(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Start starts the server again, at its address. The port is not a random one of the
// system, which could give it to another process while the server is stopped.
func (s *Server) Start() error {
	if s.port == 0 && s.options.Port == 0 {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
	}
	s.options.Port = cmp.Or(s.port, s.options.Port)
	options, err := s.options.server()
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	if s.server, err = server.NewServer(options); err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	s.server.Start()
	if !s.server.ReadyForConnections(startTime) {
		s.Stop()
		return errors.New("start NATS: it does not serve")
	}
	s.port = s.server.Addr().(*net.TCPAddr).Port
	return nil
}

// Change changes the options of a server that is stopped, for its next start.
func (s *Server) Change(change func(*Options)) { change(&s.options) }

// Reload applies changed options to the running server, as a reload of its
// configuration does: connections stay, and the server notifies clients whose
// permissions have changed.
func (s *Server) Reload(change func(*Options)) error {
	change(&s.options)
	s.options.Port = s.port
	options, err := s.options.server()
	if err == nil {
		err = s.server.ReloadOptions(options)
	}
	if err != nil {
		return fmt.Errorf("reload NATS: %w", err)
	}
	return nil
}

// URL returns the address of the server.
func (s *Server) URL() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

// Stop ends the server and waits for it. It is idempotent.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

// Retire begins the lame duck mode: the server announces its end, and ends its
// connections after the grace period of its configuration. Stop ends it before.
func (s *Server) Retire() { go s.server.LameDuckShutdown() }

// Drop closes the connections of all clients, as a very short outage does.
func (s *Server) Drop() error {
	conns, err := s.server.Connz(nil)
	if err != nil {
		return fmt.Errorf("list the clients: %w", err)
	}
	var errs []error
	for _, c := range conns.Conns {
		if err := s.server.DisconnectClientByID(c.Cid); err != nil && s.server.GetClient(c.Cid) != nil { // else it has left
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Clients returns the number of connected clients.
func (s *Server) Clients() int { return s.server.NumClients() }

// Subscriptions returns the number of subscriptions of all clients. The server has
// more, of its own.
func (s *Server) Subscriptions() (n int) {
	conns, err := s.server.Connz(&server.ConnzOptions{Limit: 1 << 20})
	if err != nil {
		return -1
	}
	for _, c := range conns.Conns {
		n += int(c.NumSubs)
	}
	return n
}

// Received returns the number of messages that clients have sent since the start,
// those that the server has refused included.
func (s *Server) Received() int64 {
	v, err := s.server.Varz(nil)
	if err != nil {
		return 0
	}
	return v.InMsgs
}
