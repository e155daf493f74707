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
	store := redistest.Start(t, redistest.Options{}).Addr()
	at := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	for url, kind := range map[string]string{
		"nats://" + at(web):                                            "HTTP",
		"nats://" + at(secure):                                         "HTTP",
		"tls://" + at(web) + ",tls://" + at(secure):                    "HTTP",
		"nats://" + store:                                              "-ERR unknown command",
		"nats://" + at(web) + "," + "nats://" + store:                  "-ERR unknown command",
		"nats://" + at(web) + "," + "nats://" + silent.Addr().String(): "",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			_, err := OpenBus(t.Context(), Config{URL: url, dial: 200 * time.Millisecond})
			if err == nil || errors.Is(err, driver.ErrInvalid) != (kind != "") || !strings.Contains(err.Error(), kind) {
				t.Errorf("got %v, want a refusal of %q", err, kind)
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
