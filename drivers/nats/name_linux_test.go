package nats_test

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
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

// resolve has every name lead to these addresses until the test ends.
func resolve(t *testing.T, addrs ...string) {
	t.Helper()
	names, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", names.LocalAddr().String())
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		question := make([]byte, 512)
		for {
			n, from, err := names.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = names.WriteTo(answer(question[:n], addrs), from)
		}
	}()
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = names.Close()
		<-ended
	})
}

// answer returns the answer of a DNS server to a question: addresses of version 4 only.
func answer(question []byte, addrs []string) []byte {
	const header, ipv4 = 12, 1
	end := header + slices.Index(question[header:], 0) + 5 // of the name, the type and the class
	kind := binary.BigEndian.Uint16(question[end-4:])
	if kind != ipv4 {
		addrs = nil
	}
	out := append(slices.Clone(question[:2]), 0x84, 0, 0, 1, 0, byte(len(addrs)), 0, 0, 0, 0)
	out = append(out, question[header:end]...)
	for _, addr := range addrs {
		out = append(out, 0xc0, header, 0, ipv4, 0, 1, 0, 0, 0, 0, 0, 4) // the name of the question, for 0 s
		out = append(out, net.ParseIP(addr).To4()...)
	}
	return out
}
