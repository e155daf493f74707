package console

import (
	"reflect"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

func TestCountersOfProcessesAddUp(t *testing.T) {
	addsUp(t, lock.Stats{Driver: "redis", Unavailable: true})
	addsUp(t, bus.Stats{Driver: "nats", State: bus.StateConnected, Subs: []bus.SubStats{{Received: 1}}})
	addsUp(t, limit.Stats{Driver: "redis", Unavailable: true})

	var sum lock.Stats
	addUp(&sum, lock.Stats{Unavailable: true})
	addUp(&sum, lock.Stats{})
	if !sum.Unavailable {
		t.Error("a backend that one of two processes cannot reach is reported as reachable")
	}
}

// addsUp fails t unless each number of two processes is added up, and nothing else.
func addsUp[T any](t *testing.T, process T) {
	t.Helper()
	var sum, want T
	setNumbers(t, reflect.ValueOf(&process).Elem(), 2)
	setNumbers(t, reflect.ValueOf(&want).Elem(), 4)
	addUp(&sum, process)
	addUp(&sum, process)
	if known := reflect.ValueOf(&want).Elem().FieldByName("Unavailable"); known.IsValid() {
		known.SetBool(true)
	}
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}

func setNumbers(t *testing.T, v reflect.Value, n int) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Struct:
		for _, field := range v.Fields() {
			setNumbers(t, field, n)
		}
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			setNumbers(t, v.Index(i), n)
		}
	case v.CanInt():
		v.SetInt(int64(n))
	case v.CanUint():
		v.SetUint(uint64(n))
	case v.CanFloat():
		v.SetFloat(float64(n))
	}
}
