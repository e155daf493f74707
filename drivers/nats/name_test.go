package nats_test

import (
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// A DNS server that does not answer delays no Close: a look-up ends with its attempt.
func TestASilentDNSServerDelaysNoClose(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	resolve(t, "127.0.0.1")
	b := open(t, nats.Config{URL: strings.Replace(server.URL(), "127.0.0.1", "servers.test", 1)})
	asked := resolve(t)
	server.Stop()
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatal("no look-up")
	}
	if err := b.Close(); err != nil { // it has 5 s
		t.Error(err)
	}
}

// dns is the address of the DNS server that resolve has started, or nil.
var dns atomic.Pointer[string]

// newResolver returns a resolver that asks the DNS server of resolve, or else the
// system's. A look-up may outlast its test, so that the resolver must not change.
func newResolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if to := dns.Load(); to != nil {
			network, address = "udp", *to
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
}

// resolve has every name lead to these addresses until the test ends. Without one the
// DNS server does not answer. The result receives when it is asked.
func resolve(t *testing.T, addrs ...string) (asked <-chan struct{}) {
	t.Helper()
	names, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	before := dns.Swap(new(names.LocalAddr().String()))
	ended, questions := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(ended)
		question := make([]byte, 512)
		for {
			n, from, err := names.ReadFrom(question)
			if err != nil {
				return
			}
			select {
			case questions <- struct{}{}:
			default:
			}
			if len(addrs) > 0 {
				_, _ = names.WriteTo(answer(question[:n], addrs), from)
			}
		}
	}()
	t.Cleanup(func() {
		dns.Store(before)
		_ = names.Close()
		<-ended
	})
	return questions
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
