package nats_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// network is a server that reloads its options, with a proxy before each
// process.
type network struct {
	t      *testing.T
	server *natstest.Server

	mu      sync.Mutex // guards the fields below
	cases   int
	rate    int
	proxies map[driver.Driver]*natstest.Proxy
}

func (n *network) begin() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cases++
	n.proxies = map[driver.Driver]*natstest.Proxy{}
	return nil
}

func (n *network) prefix() string { return fmt.Sprintf("case%d.", n.cases) }

func (n *network) open() (driver.Driver, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	proxy := natstest.StartProxy(n.t, n.server.URL())
	proxy.Slow(n.rate)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := nats.Config{URL: proxy.URL(), Buffer: 4 << 20, Prefix: n.prefix()}
	d, err := nats.OpenBus(ctx, nats.Hasty(c, time.Second, patience))
	if err == nil {
		n.proxies[d] = proxy
	}
	return d, err
}

func (n *network) cut(d driver.Driver) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxies[d].Cut()
	return nil
}

func (n *network) deafen(d driver.Driver) (undo func() error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.proxies[d]
	p.Hold(natstest.ToClient)
	return func() error { p.Heal(); return nil }, nil
}

func (n *network) slow(rate int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rate = rate
	for _, p := range n.proxies {
		p.Slow(rate)
	}
	return nil
}

func (n *network) refuse(subjects ...string) error {
	all := []string{}
	for _, s := range subjects {
		all = append(all, n.prefix()+"ev."+s, n.prefix()+"rpc."+s)
	}
	return n.server.Reload(func(o *natstest.Options) { o.Deny, o.DenyPublish = all, all })
}

func (n *network) allow() error {
	return n.server.Reload(func(o *natstest.Options) { o.Deny, o.DenyPublish = []string{}, []string{} })
}

func (n *network) shrink(limit int) error {
	return n.server.Reload(func(o *natstest.Options) { o.MaxPayload = int32(limit) })
}

// The cases about refusals, limits and links, and those about order and
// requests once more on a network that has them.
func TestBusConformanceOnABadNetwork(t *testing.T) {
	n := &network{t: t, server: natstest.Start(t, natstest.Options{Deny: []string{}})}
	err := bustest.Check(t.Context(), bustest.Harness{
		Begin: n.begin, Open: n.open,
		Background: append([]string{"github.com/megaframework/mega/internal/testkit/nats.(*Proxy).accept"}, serving...),
		Faults: bustest.Faults{
			Cut: n.cut, Slow: n.slow, Refuse: n.refuse, Allow: n.allow, Shrink: n.shrink, Deafen: n.deafen,
			Registrations: func() (int, error) { return n.server.Subscriptions(), nil },
		},
	}, "S4", "S5", "S12", "S17", "S27", "S28", "S29", "S23/a cut is reported in the affected process, and in no other",
		"S10/a subscription that begins in a cut has a gap for what it loses after its first message")
	if err != nil {
		t.Error(err)
	}
}
