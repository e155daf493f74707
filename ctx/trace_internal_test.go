package megactx

import (
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel"
)

// The type of the provider that stands for none is not part of its API.
func TestTheProviderBeforeAnySDKIsRecognised(t *testing.T) {
	if !isPlaceholder(otel.GetTracerProvider()) {
		t.Errorf("%T is taken for an SDK", otel.GetTracerProvider())
	}
}

func TestSpansThatNobodyReceivesCostNothing(t *testing.T) {
	h := &Host{}
	r := httptest.NewRequest("GET", "/", nil)
	c := h.New(r.Context())
	allocated := testing.AllocsPerRun(100, func() {
		if _, span := h.beginSpan(c, r); span != nil {
			t.Error("there is a span")
		}
		wait := c.Lock.beginWait("order:42")
		wait.refused(nil)
		_ = traceOf(c)
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func BenchmarkSpanThatNobodyReceives(b *testing.B) {
	h := &Host{}
	r := httptest.NewRequest("GET", "/", nil)
	c := h.New(r.Context())
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h.beginSpan(c, r)
		wait := c.Lock.beginWait("order:42")
		wait.refused(nil)
	}
}
