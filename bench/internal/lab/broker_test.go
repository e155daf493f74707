package lab

import (
	"context"
	"os"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

func TestMain(m *testing.M) {
	if !Played(context.Background(), map[string]Role{BrokerRole: ServeBroker}) {
		os.Exit(m.Run())
	}
}

func TestTheServerEndsWithItsInput(t *testing.T) {
	b, err := startBroker()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if conn, err := natsgo.Connect(b.url); err == nil {
		conn.Close()
		t.Error("the server is still there")
	}
}
