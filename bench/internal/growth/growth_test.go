package growth

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestFlatComparesTheHalves(t *testing.T) {
	h := holdings{{acquire: [tenths]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}}
	s := h.flat()
	if s[measure.Mega][0] != 8 || s[firstHalf][0] != 3 {
		t.Errorf("got %v, want 8 beside 3", s)
	}
	want := []measure.Point{{X: 100, Y: 1}, {X: 200, Y: 2}}
	if c := h.curve(measure.Mega, 1000); len(c.Points) != tenths || !slices.Equal(c.Points[:2], want) {
		t.Errorf("got %v, want %v and so on", c.Points, want)
	}
}

func TestCostsGrowBesideTenClients(t *testing.T) {
	c := costs{10: {2, 4}, 100: {3, 3}, 1000: {3, 6}}.claim("cycle")
	if c.Value != 1.5 || c.Axis != "clients" || len(c.Curves[0].Points) != 3 {
		t.Errorf("got %+v", c)
	}
}

func TestEachNumberOfARangeIsUsedOnce(t *testing.T) {
	for name, run := range map[string]func(from, to int, do func(int) error) error{
		"shared":    shared,
		"inBatches": func(from, to int, do func(int) error) error { _, err := inBatches(from, to, do); return err },
	} {
		var counts [2000]atomic.Int32
		if err := run(100, 1900, func(i int) error { counts[i].Add(1); return nil }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range counts {
			want := int32(0)
			if i >= 100 && i < 1900 {
				want = 1
			}
			if got := counts[i].Load(); got != want {
				t.Errorf("%s: %d was used %d times, want %d", name, i, got, want)
			}
		}
	}
}

func TestKeysInMemoryAreHeldAndReleased(t *testing.T) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = lab.Key("test", i)
	}
	h, err := holdInMemory(names)
	if err != nil || h.held < 100 {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestOutliveCountsKeysWithALongLifeOrNone(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	client := peers.Dial(s.Addr())
	t.Cleanup(func() { _ = client.Close() })
	set := func(key string, life time.Duration) {
		if err := client.Set(t.Context(), key, "", life).Err(); err != nil {
			t.Fatal(err)
		}
	}
	outliving := func() float64 {
		n, err := outlive(t.Context(), client, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set("short", 50*time.Second)
	if n := outliving(); n != 0 {
		t.Errorf("%v bytes outlive a minute, want none", n)
	}
	set("long", time.Hour)
	long := outliving()
	set("ever", 0)
	if ever := outliving(); long == 0 || ever <= long {
		t.Errorf("%v bytes, and %v with a key without an end", long, ever)
	}
}

func TestClientsOfOneKeyLeaveItFree(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	l, err := peers.Open(t.Context(), measure.Mega, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, own := range []bool{false, true} {
		if _, err := (goroutines{l}).run(t.Context(), 4, "product:42", own, time.Millisecond); err != nil {
			t.Error(err)
		}
	}
	release, err := l.Acquire(t.Context(), "product:42")
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
