package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// A URL of another kind of server never becomes right. A server that says nothing
// may be about to start (L21).
func TestAnotherKindOfServerIsRefused(t *testing.T) {
	t.Parallel()
	web, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	t.Cleanup(secure.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	store, locked := redistest.Start(t, redistest.Options{}).Addr(), redistest.Start(t, redistest.Options{Password: "swordfish"}).Addr()
	other, encrypted, _ := redistest.StartTLS(t, certificate.Certificate{})
	cert, key := certificate.Certificate{}.Write(t)
	first := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("tls { cert_file: %q, key_file: %q, handshake_first: true }", cert, key)}).URL()
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for url, says := range map[string]string{
		"nats://" + at(web):                           "speaks HTTP",
		"nats://" + at(secure):                        "speaks HTTP",
		"tls://" + at(web) + ",tls://" + at(secure):   "speaks HTTP",
		"nats://" + store:                             "speaks Redis",
		"tls://" + store:                              "speaks Redis",
		"nats://" + locked:                            "speaks Redis",
		"nats://" + at(web) + "," + "nats://" + store: "speaks Redis",
		"nats://" + at(web) + "," + "nats://" + silent.Addr().String(): "check that it is a NATS server",
		"nats://" + encrypted: "expects TLS before the greeting",
		first:                 "nats.tls.handshake_first",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			_, err := OpenBus(t.Context(), Config{URL: url, dial: 200 * time.Millisecond})
			foreign := strings.HasPrefix(says, "speaks ")
			if err == nil || errors.Is(err, driver.ErrInvalid) != foreign || !strings.Contains(err.Error(), says) {
				t.Fatalf("got %v, want %q", err, says)
			}
			if foreign && strings.Contains(err.Error(), "check that it is a NATS server") {
				t.Errorf("a known kind is doubted: %v", err)
			}
		})
	}
	t.Run("the server gives up first", func(t *testing.T) {
		t.Parallel() // its timeout of a handshake is 2s
		if _, err := OpenBus(t.Context(), Config{URL: first, dial: 5 * time.Second}); err == nil || !strings.Contains(err.Error(), "nats.tls.handshake_first") {
			t.Error(err)
		}
	})
	t.Run("handshake_first is configured", func(t *testing.T) {
		answer, err := other.Do("CONFIG", "GET", "tls-cert-file")
		if err != nil {
			t.Fatal(err)
		}
		authority := answer.([]any)[1].(string)
		c := Config{URL: "nats://" + encrypted, TLS: TLS{CA: authority, HandshakeFirst: true}, dial: 200 * time.Millisecond}
		if _, err := OpenBus(t.Context(), c); err == nil || !strings.Contains(err.Error(), "check that it is a NATS server") || strings.Contains(err.Error(), "needs TLS.HandshakeFirst") {
			t.Error(err)
		}
	})
	t.Run("after the deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := OpenBus(ctx, Config{URL: "nats://" + at(web)}); !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	})
}
