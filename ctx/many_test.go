package megactx_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
)

// quoted is JSON in brackets.
type quoted struct{}

func (quoted) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return []byte("(" + string(data) + ")"), err
}

func (quoted) Unmarshal(data []byte, v any) error { return json.Unmarshal(data[1:len(data)-1], v) }

func TestRequestManyEncodesByItsContentType(t *testing.T) {
	b, err := bus.New(memory.NewBus(), bus.Config{Codecs: map[string]bus.Codec{"text/quoted": quoted{}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	var got string
	if _, err := b.Respond(t.Context(), "x", func(_ context.Context, m *bus.Msg) ([]byte, error) { got = string(m.Data); return nil, nil }); err != nil {
		t.Fatal(err)
	}
	c, _ := megactx.From((&request.Host{Bus: b}).Context(t.Context()))
	for _, err := range c.Bus.RequestMany("x", 7, bus.Header(bus.KeyContentType, "text/quoted"), bus.Count(1)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got != "(7)" {
		t.Errorf("the responder received %q", got)
	}
}
