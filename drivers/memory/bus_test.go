package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/suite"
)

// counter is a sink that counts.
type counter struct {
	n    atomic.Int64
	full bool // takes nothing
}

func (c *counter) Deliver(driver.Message) bool {
	if !c.full {
		c.n.Add(1)
	}
	return !c.full
}
func (c *counter) Gap(int)    {}
func (c *counter) Load() int  { return int(c.n.Load()) }
func (c *counter) Fail(error) {}

func newMemoryBus(tb testing.TB) *memory.Bus {
	tb.Helper()
	b := memory.NewBus()
	if err := b.Attach(silent{}); err != nil {
		tb.Fatal(err)
	}
	return b
}

// silent is a front that nothing is told.
type silent struct{}

func (silent) Answer(driver.Message) {}
func (silent) Fail(uint64, error)    {}
func (silent) Disconnected(error)    {}
func (silent) Connected()            {}
func (silent) Expired(int)           {}
func (silent) Lost(int, int, error)  {}
func (silent) Refused(string, error) {}

func add(tb testing.TB, b *memory.Bus, k driver.Kind, pattern, group string) (*counter, driver.Registration) {
	tb.Helper()
	c := &counter{}
	i, err := b.Subscribe(tb.Context(), driver.Subscription{Kind: k, Pattern: pattern, Group: group, Sink: c})
	if err != nil {
		tb.Fatal(err)
	}
	return c, i
}

func send(tb testing.TB, b *memory.Bus, subject string) {
	tb.Helper()
	if err := b.Publish(context.Background(), driver.Message{Subject: subject}); err != nil {
		tb.Fatal(err)
	}
}

// matches is the rule once more, without a trie.
func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

// name makes a subject, or a pattern, of at most four tokens out of few.
func name(seed uint64, tokens []string) string {
	var parts []string
	for n := seed%4 + 1; n > 0; n-- {
		seed /= 7
		parts = append(parts, tokens[seed%uint64(len(tokens))])
		if parts[len(parts)-1] == ">" {
			break
		}
	}
	return strings.Join(parts, ".")
}

func FuzzRoutes(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint64(3), uint64(4))
	f.Add(uint64(123456789), uint64(987654321), uint64(55555), uint64(0))
	f.Fuzz(checkRoutes)
}

func TestRoutesKeepTheRule(t *testing.T) {
	for range suite.Scaled(5000) {
		checkRoutes(t, rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64())
	}
}

// checkRoutes adds three subscriptions and takes them out again; each gets what
// it matches.
func checkRoutes(t *testing.T, a, b, c, subject uint64) {
	t.Helper()
	bus := newMemoryBus(t)
	literal := name(subject, []string{"a", "b", "c"})
	send(t, bus, literal) // is remembered
	var patterns []string
	var counters []*counter
	var registrations []driver.Registration
	for _, seed := range []uint64{a, b, c} {
		p := name(seed, []string{"a", "b", "*", ">"})
		n, i := add(t, bus, driver.Event, p, "")
		patterns, counters, registrations = append(patterns, p), append(counters, n), append(registrations, i)
	}
	for gone := range 4 {
		before := counts(counters)
		send(t, bus, literal)
		for i, n := range counts(counters) {
			if want := before[i]; i >= gone && matches(patterns[i], literal) {
				if n != want+1 {
					t.Fatalf("%q did not get %q", patterns[i], literal)
				}
			} else if n != want {
				t.Fatalf("%q got %q (%d of %q have left)", patterns[i], literal, gone, patterns)
			}
		}
		if gone < 3 {
			if err := registrations[gone].End(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := bus.Size(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}

func counts(cs []*counter) (ns []int64) {
	for _, c := range cs {
		ns = append(ns, c.n.Load())
	}
	return ns
}

func TestKindsDoNotMeet(t *testing.T) {
	b := newMemoryBus(t)
	events, _ := add(t, b, driver.Event, ">", "")
	if err := b.Request(t.Context(), driver.Message{Kind: driver.Request, Subject: "a"}); !errors.Is(err, driver.ErrNoResponders) {
		t.Errorf("a request with only a tap: %v", err)
	}
	requests, _ := add(t, b, driver.Request, ">", "g")
	send(t, b, "a")
	if err := b.Request(t.Context(), driver.Message{Kind: driver.Request, Subject: "a"}); err != nil {
		t.Error(err)
	}
	if e, r := events.n.Load(), requests.n.Load(); e != 1 || r != 1 {
		t.Errorf("%d events and %d requests, want one each", e, r)
	}
}

func TestAMemberThatTakesNothingIsPassedOver(t *testing.T) {
	b := newMemoryBus(t)
	leaving, _ := add(t, b, driver.Event, "a", "g")
	leaving.full = true
	others := []*counter{}
	for range 3 {
		c, _ := add(t, b, driver.Event, "a", "g")
		others = append(others, c)
	}
	for range 1000 {
		send(t, b, "a")
	}
	got := counts(others)
	if sum := got[0] + got[1] + got[2]; sum != 1000 || slices.Min(got) < 100 {
		t.Errorf("the others got %v of 1000", got)
	}
}

func TestARequestToAGroupThatIsLeavingHasNoResponders(t *testing.T) { // S12
	b := newMemoryBus(t)
	for range 2 {
		leaving, _ := add(t, b, driver.Request, "a", "g")
		leaving.full = true
	}
	if err := b.Request(t.Context(), driver.Message{Kind: driver.Request, Subject: "a"}); !errors.Is(err, driver.ErrNoResponders) {
		t.Errorf("the request returns %v, want ErrNoResponders", err)
	}
}

func TestABusBelongsToOneFront(t *testing.T) {
	b := newMemoryBus(t) // it is attached
	if err := b.Attach(silent{}); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("the second Attach returns %v, want ErrInvalid", err)
	}
}

func TestTheCacheDoesNotGrow(t *testing.T) {
	b := newMemoryBus(t)
	for i := range suite.Scaled(10_000) {
		add(t, b, driver.Event, fmt.Sprintf("s.%d.>", i), "")
	}
	all, _ := add(t, b, driver.Event, "s.>", "")
	n := suite.Scaled(100_000)
	before := heap()
	for i := range n {
		send(t, b, fmt.Sprintf("s.%d.%d", i%100, i))
	}
	if grown := int64(heap()) - int64(before); grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes over %d subjects", grown, n)
	}
	if got := all.n.Load(); got != int64(n) {
		t.Errorf("%d of %d arrived", got, n)
	}
	runtime.KeepAlive(b)
}

func TestSubscriptionsComeAndGoWithoutATrace(t *testing.T) {
	b := newMemoryBus(t)
	before := heap()
	for i := range suite.Scaled(100_000) {
		_, in := add(t, b, driver.Event, fmt.Sprintf("s.%d", i), []string{"", "g"}[i%2])
		if i%10 == 0 {
			send(t, b, fmt.Sprintf("s.%d", i))
		}
		if err := errors.Join(in.End(t.Context()), in.End(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.Size(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	runtime.KeepAlive(b)
}

// Subscriptions that stay get everything, whatever others do.
func TestChurnDisturbsNobody(t *testing.T) {
	b := newMemoryBus(t)
	stays, _ := add(t, b, driver.Event, "a.*", "")
	var stop atomic.Bool
	var churn sync.WaitGroup
	for range 4 {
		churn.Go(func() {
			for !stop.Load() {
				_, in := add(t, b, driver.Event, "a.>", "")
				_ = in.End(t.Context())
			}
		})
	}
	n := suite.Scaled(100_000)
	for i := range n {
		send(t, b, fmt.Sprint("a.", i%50))
	}
	stop.Store(true)
	churn.Wait()
	if got := stays.n.Load(); got != int64(n) {
		t.Errorf("%d of %d arrived", got, n)
	}
}

func TestAClosedBusTakesNothing(t *testing.T) {
	b := newMemoryBus(t)
	_, in := add(t, b, driver.Event, "a", "")
	if err := errors.Join(b.Close(t.Context()), b.Close(t.Context()), in.End(t.Context())); err != nil {
		t.Error(err)
	}
	_, subscribeErr := b.Subscribe(t.Context(), driver.Subscription{Pattern: "a", Sink: &counter{}})
	for call, err := range map[string]error{
		"Publish":   b.Publish(t.Context(), driver.Message{Subject: "a"}),
		"Request":   b.Request(t.Context(), driver.Message{Subject: "a"}),
		"Answer":    b.Answer(t.Context(), driver.Message{}, driver.Message{}),
		"Flush":     b.Flush(t.Context()),
		"Subscribe": subscribeErr,
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if n := b.Size(); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}

func BenchmarkRoute(b *testing.B) {
	bus := newMemoryBus(b)
	add(b, bus, driver.Event, "orders.*.created", "")
	for i := range 1000 {
		add(b, bus, driver.Event, fmt.Sprintf("orders.%d", i), "")
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := bus.Publish(context.Background(), driver.Message{Subject: "orders.eu.created"}); err != nil {
			b.Fatal(err)
		}
	}
}
