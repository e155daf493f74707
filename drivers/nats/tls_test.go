package nats_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// The client encrypts above the socket of the driver.
func TestBusConformanceOverTLS(t *testing.T) {
	cert, key := certificate.Certificate{}.Write(t)
	server := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	r := &room{}
	open := func() (driver.Driver, error) {
		return nats.OpenBus(t.Context(), nats.Config{
			URL: server.URL(), TLS: nats.TLS{CA: cert}, Prefix: fmt.Sprintf("case%d.", r.cases), Buffer: 4 << 20,
		})
	}
	err := bustest.Check(t.Context(), bustest.Harness{
		Begin:      r.begin,
		Open:       open,
		Background: serving,
		Faults: bustest.Faults{
			Drop: server.Drop,
			Down: func() error { server.Stop(); return nil },
			Up:   server.Start,
		},
	}, "S3", "S5", "S16", "S17", "S18", "S23")
	if err != nil {
		t.Error(err)
	}
}

// A server with handshake_first sends its greeting by TLS only; with a time, or with auto,
// which is 50 ms, it waits that long for a client that begins.
func TestHandshakeFirst(t *testing.T) {
	t.Parallel()
	cert, key := certificate.Certificate{}.Write(t)
	for _, first := range []string{"true", `"1m"`} {
		server := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("tls { cert_file: %q, key_file: %q, handshake_first: %s }", cert, key, first)})
		b := open(t, nats.Config{URL: server.URL(), TLS: nats.TLS{CA: cert, HandshakeFirst: true}})
		if err := server.Drop(); err != nil {
			t.Fatal(err)
		}
		connected(t, b, 1)
	}
	late := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	_, err := nats.OpenBus(t.Context(), nats.Config{URL: late.URL(), TLS: nats.TLS{CA: cert, HandshakeFirst: true}})
	if refusal.Of(err) != refusal.Encryption {
		t.Errorf("got %v", err)
	}
}

// A file of the configuration may be away for a moment while it is replaced. It is then
// the reason why the bus is disconnected, and no connection is made without it (S23).
func TestAMissingFileIsTheReasonUntilItIsBack(t *testing.T) {
	cert, key := certificate.Certificate{}.Write(t)
	server := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.Link(cert, authority); err != nil {
		t.Fatal(err)
	}
	b := open(t, nats.Config{URL: server.URL(), TLS: nats.TLS{CA: authority}})
	if err := os.Rename(authority, authority+".old"); err != nil {
		t.Fatal(err)
	}
	if err := server.Drop(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		_, err := b.State()
		return err != nil && strings.Contains(err.Error(), authority)
	})
	if err := os.Rename(authority+".old", authority); err != nil {
		t.Fatal(err)
	}
	connected(t, b, 1)
}

// mutual returns options of a server that requires a certificate of its clients, signed
// by one of the authorities.
func mutual(t *testing.T, cert, key string, authorities ...string) natstest.Options {
	t.Helper()
	var all []byte
	for _, file := range authorities {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part...)
	}
	trusted := filepath.Join(t.TempDir(), "clients.pem")
	if err := os.WriteFile(trusted, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return natstest.Options{Config: fmt.Sprintf("tls: {cert_file: %q, key_file: %q, ca_file: %q, verify: true, timeout: 5}", cert, key, trusted)}
}

// With TLS 1.3 a client may send before it receives the alert that refuses its
// certificate, and the server has ended the connection by then. The alert is the reason,
// at boot (L21) and in the state of the bus (S23).
func TestTheReasonForARefusedCertificateIsReturned(t *testing.T) {
	t.Parallel()
	cert, key := certificate.Certificate{Number: 1}.Write(t)
	ours, oursKey := certificate.Certificate{Number: 2}.Write(t)
	expired, expiredKey := certificate.Certificate{Number: 3, Expired: true}.Write(t)
	foreign, foreignKey := certificate.Certificate{Number: 4}.Write(t)
	server := natstest.Start(t, mutual(t, cert, key, ours, expired))
	for _, c := range []struct {
		name, want string
		tls        nats.TLS
	}{
		{"none", "tls: certificate required", nats.TLS{CA: cert}},
		{"expired", "tls: expired certificate", nats.TLS{CA: cert, Cert: expired, Key: expiredKey}},
		{"of another authority", "tls: unknown certificate authority", nats.TLS{CA: cert, Cert: foreign, Key: foreignKey}},
	} {
		for range 50 {
			_, err := nats.OpenBus(t.Context(), nats.Config{URL: server.URL(), TLS: c.tls})
			if err == nil || !strings.Contains(err.Error(), c.want) || refusal.Of(err) != refusal.Certificate {
				t.Fatalf("%s: got %v, want %q", c.name, err, c.want)
			}
		}
	}
	b := open(t, nats.Config{URL: server.URL(), TLS: nats.TLS{CA: cert, Cert: ours, Key: oursKey}})
	server.Stop()
	server.Change(func(o *natstest.Options) { *o = mutual(t, cert, key, foreign) })
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool {
		_, err := b.State()
		return err != nil && strings.Contains(err.Error(), "tls: unknown certificate authority")
	})
	for to, from := range map[string]string{ours: foreign, oursKey: foreignKey} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	connected(t, b, 1)
}
