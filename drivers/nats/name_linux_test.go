package nats_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// An address of a name that accepts connections and says nothing leaves time for the
// others, as a server of a list does. TLS verifies the name.
func TestASilentAddressOfANameLeavesTimeForTheNextOne(t *testing.T) {
	cert, key := certificate.Certificate{Host: "servers.test"}.Write(t)
	resolve(t, "127.0.0.2", "127.0.0.1")
	for _, c := range []struct {
		scheme string
		server natstest.Options
		tls    nats.TLS
	}{
		{scheme: "nats"},
		{"nats", natstest.Options{Cert: cert, Key: key}, nats.TLS{CA: cert}},
		{"tls", natstest.Options{Cert: cert, Key: key}, nats.TLS{CA: cert}},
	} {
		server := natstest.Start(t, c.server)
		port := strings.TrimPrefix(server.URL(), "nats://127.0.0.1:")
		silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.2:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than the timeout of an attempt
		defer cancel()
		config := nats.Config{URL: c.scheme + "://servers.test:" + port, TLS: c.tls, Options: []natsgo.Option{natsgo.DontRandomize()}}
		b, err := nats.OpenBus(ctx, config)
		if err != nil {
			t.Errorf("%s: %v", config.URL, err)
			continue
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
