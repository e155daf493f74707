package nats_test

import (
	"fmt"
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
