package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/internal/testkit/certificate"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// secured returns a wire whose stream is connected by TLS, through a pipe.
func secured(t *testing.T, attempt time.Duration) (*Wire, *redistest.Pipe) {
	t.Helper()
	_, addr, roots := redistest.StartTLS(t, certificate.Certificate{})
	pipe := redistest.StartPipe(t, addr)
	o := goredis.Options{
		Addr: pipe.Addr(), Dialer: Dialer(attempt, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}),
		MaxRetries: -1, DialerRetries: 1, ReadTimeout: attempt,
	}
	w := wireOf(t, NewStream(o))
	connect(t, w)
	return w, pipe
}

// Each reader that leaves interrupts a read of TLS, which must go on where it was.
func TestCallersThatLeaveDoNotBreakTLS(t *testing.T) {
	t.Parallel()
	w, pipe := secured(t, attempt)
	pipe.Cut(redistest.Replies, 7) // a record arrives in pieces
	before := w.current()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for j := range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%2 == 0 {
					go cancel()
				}
				text := strconv.Itoa(i) + " " + strconv.Itoa(j)
				if got, err := echo(ctx, w, text); err == nil && got != text || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, %v, want %q", got, err, text)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if w.current() != before {
		t.Error("the connection has ended")
	}
}

func TestHalfOpenTLSCostsOneAttempt(t *testing.T) {
	t.Parallel()
	w, pipe := secured(t, attempt)
	halfOpen(t, w, pipe)
}

// TLS takes its leave when a connection is closed, which nobody receives here.
func TestEndOfATLSConnectionThatIsBlockedIsQuick(t *testing.T) {
	t.Parallel()
	w, pipe := secured(t, time.Hour)
	leaveBlockedWrite(t, w, pipe)
	start := time.Now()
	w.stream.mu.Lock()
	w.stream.endLocked(w.stream.session, net.ErrClosed)
	w.stream.mu.Unlock()
	w.stream.jobs.Wait()
	if took := time.Since(start); took > 4*time.Second { // TLS would wait for 5
		t.Errorf("it took %v", took)
	}
}

func TestErrorOfAConnectionNamesTheServerAndTheCause(t *testing.T) {
	t.Parallel()
	_, addr, _ := redistest.StartTLS(t, certificate.Certificate{})
	w := wireOf(t, NewStream(goredis.Options{Addr: addr, Dialer: Dialer(attempt, &tls.Config{MinVersion: tls.VersionTLS12}), MaxRetries: -1, DialerRetries: 1}))
	_, err := echo(t.Context(), w, "x")
	if err == nil || !strings.Contains(err.Error(), "connect to "+addr) || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v", err)
	}
}

// With TLS 1.3 a server refuses a certificate after the client's handshake, and ends the
// connection, maybe before the client's first write.
func TestTheReasonForARefusedCertificateIsReadAfterWrites(t *testing.T) {
	t.Parallel()
	_, addr, roots := redistest.StartTLS(t, certificate.Certificate{}, "tls-auth-clients yes")
	dial := Dialer(time.Minute, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13})
	conn, err := dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer cut(conn)
	for range 1000 { // also after the server has ended the connection
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || refusal.Of(err) != refusal.Certificate {
		t.Errorf("Read = %v, want the refusal of the certificate", err)
	}
}
