package lab

import (
	"context"
	"os"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bench/internal/peers"
)

func TestMain(m *testing.M) {
	if !Played(context.Background(), map[string]Role{BrokerRole: ServeBroker, DistantRole: ServeDistant}) {
		os.Exit(m.Run())
	}
}

func TestTheServerEndsWithItsInput(t *testing.T) {
	b, err := startRemote(BrokerRole, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	if conn, err := natsgo.Connect(b.addr); err == nil {
		conn.Close()
		t.Error("the server is still there")
	}
}

func TestADistantServerAnswersAfterTheRoundTrip(t *testing.T) {
	const roundTrip = 20 * time.Millisecond
	l := New(true)
	if err := l.Distant(roundTrip); err != nil {
		t.Fatal(err)
	}
	addr, err := l.Addr()
	if err != nil {
		t.Fatal(err)
	}
	client := peers.Dial(addr)
	defer client.Close()
	start := time.Now()
	if err := client.Ping(t.Context()).Err(); err != nil || time.Since(start) < roundTrip {
		t.Errorf("Ping: %v after %v", err, time.Since(start))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
