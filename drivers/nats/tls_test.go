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
