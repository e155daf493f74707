package buses

import (
	"context"
	"os"
	"testing"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
)

func TestMain(m *testing.M) {
	if !lab.Played(context.Background(), map[string]lab.Role{lab.BrokerRole: lab.ServeBroker}) {
		os.Exit(m.Run())
	}
}

func TestEveryCarrierHandlesItsEvents(t *testing.T) {
	carriers, err := openCarriers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{measure.Mega, megaTopic, megaTopicV2, channel, goChannel} {
		c, ok := carriers[name]
		if !ok {
			t.Errorf("%s does not take part", name)
			continue
		}
		if err := c.batch(1000); err != nil || c.handled.Load() != 1000 {
			t.Errorf("%s: %d of 1000 were handled, %v", name, c.handled.Load(), err)
		}
		if err := c.close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
