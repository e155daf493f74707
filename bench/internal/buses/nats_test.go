package buses

import (
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
)

func TestBothSidesPublishTheSame(t *testing.T) {
	l := lab.New(true)
	p, err := openPair(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	tap, err := p.replying.SubscribeSync("*.product.sold")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.replying.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, c := range append(p.publishers(t.Context()), p.publishersWithHeader(t.Context())...) {
		if err := c.do(1); err != nil {
			t.Fatal(err)
		}
		m, err := tap.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{measure.Mega: "ev.product.sold", natsGo: p.subject}[c.name]
		if m.Subject != want || len(m.Data) != eventSize || headed(m) != (i >= 2) {
			t.Errorf("%s sent %d bytes to %s with the header %v", c.name, len(m.Data), m.Subject, m.Header)
		}
	}
}

func headed(m *natsgo.Msg) bool { return len(m.Header) == 1 && m.Header.Get("Tenant") == "acme" }
