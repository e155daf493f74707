package nats_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// room is where the cases run on a server: each has subjects of its own, since
// the server may be slow to see that the processes of the one before are gone.
type room struct {
	url   string
	cases int
}

func (r *room) begin() error { r.cases++; return nil }

func (r *room) open() (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return nats.OpenBus(ctx, nats.Config{URL: r.url, Buffer: 4 << 20, Prefix: fmt.Sprintf("case%d.", r.cases)})
}

// serving is what a server inside this process has running.
var serving = []string{
	"github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1",
	"github.com/nats-io/nats-server/v2/server.(*Server).internalSendLoop",
	"github.com/nats-io/nats-server/v2/server.(*Server).internalReceiveLoop",
	"github.com/nats-io/nats-server/v2/server.(*Server).acceptConnections",
}

func TestBusConformance(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	r := &room{url: server.URL()}
	h := bustest.Harness{
		Begin: func() error {
			await(t, func() bool { return server.Clients() == 0 }) // for Registrations
			return r.begin()
		},
		Open:       r.open,
		Background: serving,
		Faults: bustest.Faults{
			Drop:          server.Drop,
			Down:          func() error { server.Stop(); return nil },
			Up:            server.Start,
			Registrations: func() (int, error) { return server.Subscriptions(), nil },
		},
	}
	bustest.Run(t, h)
	bustest.RunFlawed(t, h)
}

// The same with a server that is killed, and halted, as only a process can be.
func TestBusConformanceOnAProcess(t *testing.T) {
	server := natstest.StartProcess(t)
	r := &room{url: server.URL()}
	err := bustest.Check(t.Context(), bustest.Harness{
		Begin:      r.begin,
		Open:       r.open,
		Background: []string{"github.com/megaframework/mega/internal/testkit/redis.(*Process).run"},
		Faults: bustest.Faults{
			Down:     func() error { server.Kill(); return nil },
			Up:       func() error { server.Start(); return nil },
			Pause:    func() error { server.Pause(); return nil },
			Continue: func() error { server.Continue(); return nil },
		},
	}, "S6", "S23", "S21/Drain is bounded while the backend is away",
		"S21/the error of a drain on a stopped backend has what was left and the number of messages that were not confirmed", "S22/Close while the backend is away is quick, and has the number of messages that were not confirmed",
		"S22/Close ends a Flush and a Publish that wait for a backend that is away", "S22/Close ends a Flush and a Publish that wait for a stopped backend")
	if err != nil {
		t.Error(err)
	}
}
