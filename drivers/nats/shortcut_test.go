package nats_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/natstest"
)

// While the connection breaks again and again, messages go now past the
// client and now by it. None overtakes another, and none comes twice.
func TestTheTwoWaysDoNotOvertakeEachOther(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const publishers = 3
	last := watchOrder(t, b, publishers)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wait sync.WaitGroup
	for p := range publishers {
		wait.Go(func() {
			for i := 1; ctx.Err() == nil; i++ {
				err := b.Publish(ctx, fmt.Sprintf("from.%d", p), fmt.Append(nil, p, " ", i))
				if err != nil && !errors.Is(err, bus.ErrOverloaded) && ctx.Err() == nil {
					t.Errorf("publish: %v", err)
				}
				if i%100 == 0 {
					time.Sleep(time.Millisecond) // so that no buffer overflows
				}
			}
		})
	}
	for round := range max(bustest.Scaled(10), 3) {
		before := last()
		await(t, func() bool { return d.OnShortcut() && last() > before })
		if err := server.Drop(); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 {
			await(t, func() bool { return !d.OnShortcut() })
		}
	}
	await(t, d.OnShortcut)
	cancel()
	wait.Wait()
}

// watchOrder has every publisher's messages come in growing order, and returns
// how many came.
func watchOrder(t *testing.T, b *bus.Bus, publishers int) func() int {
	t.Helper()
	var mu sync.Mutex
	seen, n := make([]int, publishers), 0
	_, err := b.Subscribe(t.Context(), "from.*", func(_ context.Context, m *bus.Msg) error {
		var p, i int
		if _, err := fmt.Sscan(string(m.Data), &p, &i); err != nil {
			t.Errorf("%q: %v", m.Data, err)
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if i <= seen[p] {
			t.Errorf("%d of publisher %d came after %d", i, p, seen[p])
		}
		seen[p] = i
		n++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// Over TLS everything goes by the client, which encrypts it.
func TestBusConformanceOverTLS(t *testing.T) {
	cert, key := certificate(t)
	server := natstest.Start(t, natstest.Options{Cert: cert, Key: key})
	r := &room{}
	open := func() (driver.Driver, error) {
		d, err := nats.OpenBus(t.Context(), nats.Config{
			URL: server.URL(), TLS: nats.TLS{CA: cert}, Prefix: fmt.Sprintf("case%d.", r.cases), Buffer: 4 << 20,
		})
		if err == nil && d.OnShortcut() {
			t.Error("messages go past the encryption")
		}
		return d, err
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

// certificate makes one for the loopback address, which is its own authority.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", signed), writePEM(t, "PRIVATE KEY", encoded)
}

func writePEM(t *testing.T, kind string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
