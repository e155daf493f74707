package nats

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// A URL of an HTTP server never becomes right. A server that says nothing may be
// about to start (L21).
func TestAnHTTPServerIsRefused(t *testing.T) {
	t.Parallel()
	web, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	t.Cleanup(secure.Close)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for url, refused := range map[string]bool{
		"nats://" + at(web):                                            true,
		"nats://" + at(secure):                                         true,
		"tls://" + at(web) + ",tls://" + at(secure):                    true,
		"nats://" + at(web) + "," + "nats://" + silent.Addr().String(): false,
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			_, err := OpenBus(t.Context(), Config{URL: url, dial: 200 * time.Millisecond})
			if err == nil || errors.Is(err, driver.ErrInvalid) != refused || strings.Contains(err.Error(), "HTTP") != refused {
				t.Errorf("refused: %v, want %v: %v", !refused, refused, err)
			}
		})
	}
	t.Run("after the deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := OpenBus(ctx, Config{URL: "nats://" + at(web)}); !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
	})
}
