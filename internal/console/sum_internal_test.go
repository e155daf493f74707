package console

import (
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
)

func TestCountersOfProcessesAddUp(t *testing.T) {
	var l lock.Stats
	for range 2 {
		s := lock.Stats{Driver: "memory", Active: 1, Acquired: 2, Unavailable: l.Acquired == 0}
		s.Wait.Counts[3], s.Wait.Sum = 4, 5
		addUp(&l, s)
	}
	want := lock.Stats{Active: 2, Acquired: 4, Unavailable: true}
	want.Wait.Counts[3], want.Wait.Sum = 8, 10
	if l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
	var b bus.Stats
	for range 2 {
		addUp(&b, bus.Stats{State: "ok", InFlight: 1, Total: bus.SubStats{Received: 2, Pending: 3}, Subs: []bus.SubStats{{}}})
	}
	if b.State != "" || b.InFlight != 2 || b.Total.Received != 4 || b.Total.Pending != 6 || b.Subs != nil {
		t.Errorf("got %+v", b)
	}
}
