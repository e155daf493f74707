package cluster

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// Whatever a hub says does not break the bus of a node.
func FuzzMessagesOfTheHub(f *testing.F) {
	for _, frame := range []*protocol.Frame{
		protocol.AddMessage(protocol.Begin(protocol.TypeDeliver).Bool(true).Uint(1).Uint(1), &driver.Message{Subject: "a.b", Data: []byte("x")}),
		protocol.AddMessage(protocol.Begin(protocol.TypeServe).Uint(1).Uint(1).Bool(true).Uint(0), &driver.Message{Subject: "a.b"}),
		protocol.AddMessage(protocol.Begin(protocol.TypeReply).Uint(1), &driver.Message{Subject: "a.b"}),
		protocol.Begin(protocol.TypeFailed).Uint(1).Byte(protocol.FailGone),
		protocol.Begin(protocol.TypeGap).Uint(1).Uint(5),
		protocol.Begin(protocol.TypeSynced).Uint(1),
	} {
		f.Add(byte(frame.Type()), bytes.Clone(frame.Body()))
	}
	f.Fuzz(func(t *testing.T, typ byte, body []byte) {
		here, there := net.Pipe()
		defer there.Close()
		line := protocol.NewLine(here)
		defer line.Close()
		b := newBus(&Node{config: Config{Buffer: 1, Log: slog.New(slog.DiscardHandler)}})
		d := protocol.NewDecoder(body)
		_ = b.handle(&session{line: line}, protocol.TypeBus+protocol.Type(typ%0x20), &d)
	})
}
