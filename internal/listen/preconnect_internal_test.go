package listen

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/request"
)

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }

// serveTLS serves h over TLS, and returns the configuration of its clients.
func serveTLS(t *testing.T, h http.HandlerFunc) (*Server, *tls.Config) {
	t.Helper()
	example := httptest.NewTLSServer(nil) // it has a certificate
	example.Close()
	certificates := &Certificates{}
	certificates.current.Store(&example.TLS.Certificates)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer("main", l, h, slog.New(slog.DiscardHandler), &request.Host{})
	s.Secure(certificates)
	s.Serve(func(err error) { t.Error(err) })
	return s, example.Client().Transport.(*http.Transport).TLSClientConfig
}

// preconnect completes a handshake, on both sides, and sends no request.
func preconnect(t *testing.T, s *Server, c *tls.Config) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", s.Addr().String(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	until(t, "the connection to wait for a request", func() bool { return s.conns.count() > 0 && len(s.conns.names(inUse)) == 0 })
	return conn
}

// Browsers open connections in advance, and complete their handshakes.
func TestDrainDoesNotWaitForTheHeadOfARequestAfterAHandshake(t *testing.T) {
	s, c := serveTLS(t, hello)
	preconnect(t, s, c)
	began := time.Now()
	if err := s.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > headPatience/2 {
		t.Errorf("the drain took %v, want about %v", took, patience)
	}
}

func TestUnusedTLSConnectionIsNotCutOff(t *testing.T) {
	s, c := serveTLS(t, hello)
	preconnect(t, s, c)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Drain(ended); err != nil {
		t.Error(err)
	}
}

// The request of a connection that was opened in advance may come during a drain.
func TestRequestAfterAHandshakeIsServedDuringADrain(t *testing.T) {
	s, c := serveTLS(t, hello)
	conn := preconnect(t, s, c)
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(context.WithoutCancel(t.Context())) }()
	until(t, "the drain to begin", s.conns.ending.Load)
	_, _ = fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if w, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || w.StatusCode != http.StatusOK || !w.Close {
		t.Error(w, err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}
