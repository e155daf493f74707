package bus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/megaframework/mega/bus"
)

type sale struct {
	Product  string
	Quantity int
}

const sold = bus.Topic[sale]("product.sold")

type xmlCodec struct{}

func (xmlCodec) Marshal(v any) ([]byte, error)      { return xml.Marshal(v) }
func (xmlCodec) Unmarshal(data []byte, v any) error { return xml.Unmarshal(data, v) }

func newTypedBus(t *testing.T, o bus.Observer) *bus.Bus {
	t.Helper()
	return newBus(t, bus.Config{Observer: o, Codecs: map[string]bus.Codec{"application/xml": xmlCodec{}}})
}

var asXML = bus.Header("Content-Type", "application/xml; charset=utf-8")

func TestTopicsCarryValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTypedBus(t, nil)
		var got []sale
		if _, err := sold.Subscribe(t.Context(), b, func(_ context.Context, s sale) error { got = append(got, s); return nil }); err != nil {
			t.Fatal(err)
		}
		if err := sold.Publish(t.Context(), b, sale{"bread", 2}); err != nil {
			t.Error(err)
		}
		if err := sold.Publish(t.Context(), b, sale{"milk", 1}, asXML); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(got) != 2 || got[0] != (sale{"bread", 2}) || got[1] != (sale{"milk", 1}) {
			t.Errorf("got %+v", got)
		}
	})
}

// upper is a codec that its users can tell from encoding/json.
type upper struct{}

func (upper) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (upper) Unmarshal(data []byte, v any) error { return json.Unmarshal(bytes.ToUpper(data), v) }

func TestContentTypesAreMatchedInAnyCase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Codecs: map[string]bus.Codec{"Application/XML": xmlCodec{}}})
		var got []sale
		if _, err := sold.Subscribe(t.Context(), b, func(_ context.Context, s sale) error { got = append(got, s); return nil }); err != nil {
			t.Fatal(err)
		}
		for _, contentType := range []string{"application/xml", "APPLICATION/xml; charset=UTF-8", "Application/JSON", "application/Json;charset=utf-8"} {
			if err := sold.Publish(t.Context(), b, sale{"bread", 2}, bus.Header("Content-Type", contentType)); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if len(got) != 4 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestACodecForJSONAppliesWithoutAContentType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{Codecs: map[string]bus.Codec{"application/json": upper{}}})
		var got []sale
		if _, err := sold.Subscribe(t.Context(), b, func(_ context.Context, s sale) error { got = append(got, s); return nil }); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]bus.PubOption{nil, {bus.Header("Content-Type", "application/json; charset=utf-8")}} {
			if err := sold.Publish(t.Context(), b, sale{"bread", 2}, opts...); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if len(got) != 2 || got[0] != (sale{"BREAD", 2}) || got[1] != got[0] {
			t.Errorf("got %+v", got)
		}
	})
}

func TestDecodeFailureIsAnErrorOfTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		b := newTypedBus(t, &o)
		var got []sale
		if _, err := sold.Subscribe(t.Context(), b, func(_ context.Context, s sale) error { got = append(got, s); return nil }); err != nil {
			t.Fatal(err)
		}
		publish(t, b, string(sold), "{")
		publish(t, b, string(sold), "{}", bus.Header("Content-Type", "application/cbor"))
		publish(t, b, string(sold), "{}")
		synctest.Wait()
		failed := of[bus.HandlerFailed](&o)
		if len(got) != 1 || len(failed) != 2 || !errors.Is(failed[0].Err, bus.ErrDecode) || !errors.Is(failed[1].Err, bus.ErrDecode) {
			t.Errorf("got %+v, told %+v", got, failed)
		}
	})
}

func TestCallAndAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTypedBus(t, nil)
		if _, err := bus.Answer(t.Context(), b, "stock", func(_ context.Context, s sale) (sale, error) {
			if s.Quantity < 0 {
				return s, errors.New("negative")
			}
			s.Quantity *= 2
			return s, nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]bus.PubOption{nil, {asXML}} {
			got, err := bus.Call[sale, sale](t.Context(), b, "stock", sale{"bread", 2}, opts...)
			if err != nil || got != (sale{"bread", 4}) {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		if _, err := bus.Call[sale, sale](t.Context(), b, "stock", sale{"bread", -1}); !isRemote(err, "error") {
			t.Errorf("an error: %v", err)
		}
		if _, err := bus.Call[string, sale](t.Context(), b, "stock", "bread"); !isRemote(err, "bus.decode") {
			t.Errorf("a request of another type: %v", err)
		}
		if _, err := bus.Call[sale, string](t.Context(), b, "stock", sale{}); !errors.Is(err, bus.ErrDecode) {
			t.Errorf("an answer of another type: %v", err)
		}
		_, callErr := bus.Call[chan int, string](t.Context(), b, "stock", nil)
		publishErr := bus.Topic[chan int]("a").Publish(t.Context(), b, nil)
		_, encodeErr := b.Encode(make(chan int))
		for _, err := range []error{callErr, publishErr, encodeErr} {
			if err == nil || !strings.Contains(err.Error(), "encode a chan int") {
				t.Errorf("a channel: %v", err)
			}
		}
		if err := sold.Publish(t.Context(), b, sale{}, bus.Header("Content-Type", "text/plain")); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("an unknown codec: %v", err)
		}
	})
}

func TestRespondValueEncodesAsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTypedBus(t, nil)
		if _, err := b.RespondValue(t.Context(), "stock", nil); !errors.Is(err, bus.ErrInvalid) {
			t.Errorf("no function: %v", err)
		}
		results := map[string]any{"value": sale{"bread", 2}, "bytes": []byte("raw"), "channel": make(chan int)}
		if _, err := b.RespondValue(t.Context(), "stock.*", func(_ context.Context, m *bus.Msg) (any, error) {
			if v, ok := results[m.Subject[len("stock."):]]; ok {
				return v, nil
			}
			return "a value beside an error", bus.ErrOverloaded
		}); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]bus.PubOption{nil, {asXML}} {
			if got, err := bus.Call[any, sale](t.Context(), b, "stock.value", "", opts...); err != nil || got != results["value"] {
				t.Errorf("got %+v, %v", got, err)
			}
			if m, err := b.Request(t.Context(), "stock.bytes", nil, opts...); err != nil || string(m.Data) != "raw" || m.Header != nil {
				t.Errorf("got %+v, %v", m, err)
			}
		}
		if _, err := b.Request(t.Context(), "stock.none", nil); !isRemote(err, "bus.overloaded") {
			t.Errorf("an error: %v", err)
		}
		if _, err := b.Request(t.Context(), "stock.channel", nil); !isRemote(err, "error") {
			t.Errorf("a channel: %v", err)
		}
	})
}

func isRemote(err error, reason string) bool {
	e, ok := errors.AsType[*bus.RemoteError](err)
	return ok && e.Reason == reason
}

func TestAMessageOfOnesOwnCanBeDecoded(t *testing.T) {
	var s sale
	if err := (&bus.Msg{Data: []byte(`{"Product":"x"}`)}).Decode(&s); err != nil || s.Product != "x" {
		t.Errorf("got %+v, %v", s, err)
	}
}
