package hub

import (
	"bytes"
	"context"
	"net"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

func FuzzMessagesToTheHub(f *testing.F) {
	f.Add(byte(protocol.TypeJoin), cloned(protocol.Begin(protocol.TypeJoin).Uint(1).Byte(0).Uint(1).String("a.*").String("g")))
	f.Add(byte(protocol.TypeEvent), cloned(protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: "a.b", Data: []byte("x")})))
	f.Add(byte(protocol.TypeRequest), cloned(protocol.AddMessage(protocol.Begin(protocol.TypeRequest).Uint(1), &driver.Message{Subject: "a.b"})))
	f.Add(byte(protocol.TypeAnswer), cloned(protocol.AddMessage(protocol.Begin(protocol.TypeAnswer).Uint(1).Uint(1).Bool(true), &driver.Message{Subject: "a.b"})))
	f.Add(byte(protocol.TypeReturn), cloned(protocol.AddMessage(protocol.Begin(protocol.TypeReturn).Uint(1).Uint(1).Bool(true).Byte(1).String("a.b").String("g"), &driver.Message{Subject: "a.b"})))
	f.Add(byte(protocol.TypeReturn), cloned(protocol.AddMessage(protocol.Begin(protocol.TypeReturn).Uint(0).Uint(0).Bool(false).Byte(0).String("a.b").String("g"), &driver.Message{Subject: "a.b"})))
	f.Add(byte(protocol.TypeGap), []byte{1, 5})
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		here, there := net.Pipe()
		defer there.Close()
		c := h.Join(here, "fuzz")
		other := newClient(h, here, "not served")
		defer other.line.Close()
		for _, k := range []driver.Kind{driver.Event, driver.Request} {
			r := &registration{client: c, number: uint64(k) + 100, groupKey: groupKey{k, ">", []string{"", "g"}[k]}}
			r.members.Store(1)
			c.bus.add(r)
			h.bus.tables[k].Add(r.pattern, r.group, r)
		}
		d := protocol.NewDecoder(body)
		_ = h.bus.handle(other, protocol.TypeBus+protocol.Type(typ%0x20), &d)
		h.bus.leave(other)
	})
}

func cloned(f *protocol.Frame) []byte { return bytes.Clone(f.Body()) }
