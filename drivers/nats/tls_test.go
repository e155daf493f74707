package nats_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// The client encrypts above the socket of the driver.
func TestBusConformanceOverTLS(t *testing.T) {
	cert, key := certificate(t)
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
