package request

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
	std := h.Context(r.Context())
	work := Of(std)
	allocated := testing.AllocsPerRun(100, func() {
		if _, span := h.beginSpan(std, r); span != nil {
			t.Error("there is a span")
		}
		wait := work.BeginWait(std, nil, "order:42")
		wait.Refused(nil)
		_ = traceOf(std)
	})
	if allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}

func BenchmarkSpanThatNobodyReceives(b *testing.B) {
	h := &Host{}
	r := httptest.NewRequest("GET", "/", nil)
	std := h.Context(r.Context())
	work := Of(std)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = h.beginSpan(std, r)
		wait := work.BeginWait(std, nil, "order:42")
		wait.Refused(nil)
	}
}
