package bustest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/internal/suite"
)

// flaw is something that a driver may do wrong, and the case that has to notice
// it on every driver where it can exist.
type flaw struct {
	is      string
	noticed string // rule/claim
	make    func(*flawed)
}

var flaws = []flaw{
	{"bytes are swapped above 4 KiB", "S17/data of every size up to the limit arrive byte by byte", func(d *flawed) { d.data = swapped }},
	{"the last byte is zeroed above 64 KiB", "S17/data of every size up to the limit arrive byte by byte", func(d *flawed) { d.data = zeroed }},
	{"the headers of answers are lost", "S16/answers carry headers", func(d *flawed) { d.bare = func() bool { return true } }},
	{"the headers of answers are lost after an outage", "S23/after each of many outages the bus works as before", func(d *flawed) { d.bare = d.hadGap }},
	{"a group does not receive a gap mark", "S23/after each of many outages the bus works as before", func(d *flawed) { d.muteGroups = true }},
	{"a group's message is delivered to all after an outage", "S23/after each of many outages the bus works as before", func(d *flawed) { d.spread = true }},
	{"subscriptions are not restored after the 4th outage", "S23/after each of many outages the bus works as before", func(d *flawed) { d.deafAfter = 4 }},
	{"drops are forgotten when a subscription ends", "S4/messages that the backend drops for a process that takes none are counted at a subscription that is drained", func(d *flawed) { d.forgetsAtEnd = true }},
	{"events for a group that stops are forgotten", "S4/events on their way to a group whose members all stop are counted at one of them", func(d *flawed) { d.forgetsAtEnd = true }},
	{"registration is left behind after an outage", "S23/a subscription that ends after an outage leaves nothing at the backend", func(d *flawed) { d.keepRegistration = true }},
}

// swapped exchanges two bytes behind the first 4 KiB.
func swapped(data []byte) {
	const at = 4 << 10
	if len(data) > at+1 {
		data[at], data[at+1] = data[at+1], data[at]
	}
}

// zeroed sets the last byte of what is longer than 64 KiB to 0.
func zeroed(data []byte) {
	const at = 64 << 10
	if len(data) > at {
		data[len(data)-1] = 0
	}
}

// RunFlawed wraps the driver under test with one flaw after the other, and
// wants the suite to notice each: it proves that the harness can see them.
// Flaws whose case has no meaning for the driver are logged. [Run] must pass
// first.
func RunFlawed(t *testing.T, h Harness) {
	t.Helper()
	h, info := kind().Prepare(t, h)
	h.impatient = true
	for _, f := range flaws {
		c := f.noticedBy()
		if why := c.absent(h, info); why != "" {
			t.Logf("not applicable to %s: %s: %s", info.Name, f.is, why)
			continue
		}
		t.Run(f.is, func(t *testing.T) {
			suite.InTime(t, h.FakeTime, func(t *testing.T) {
				if err := f.around(h).suite(info).Try(t.Context(), f.noticed); err == nil {
					t.Errorf("%s has not noticed that %s", f.noticed, f.is)
				}
			})
		})
	}
}

func (f flaw) noticedBy() testCase {
	all := cases()
	return all[slices.IndexFunc(all, func(c testCase) bool { return c.name() == f.noticed })]
}

// around is the harness with a driver that has the flaw.
func (f flaw) around(h Harness) Harness {
	g := &flawedGroups{members: map[string][]driver.Sink{}}
	flawless, crash, cut, deafen := h.Open, h.Faults.Crash, h.Faults.Cut, h.Faults.Deafen
	h.Open = func() (driver.Driver, error) {
		inner, err := flawless()
		if err != nil {
			return nil, err
		}
		d := &flawed{Driver: inner, groups: g}
		f.make(d)
		return d, nil
	}
	if crash != nil {
		h.Faults.Crash = func(d driver.Driver) error { return crash(d.(*flawed).Driver) }
	}
	if cut != nil {
		h.Faults.Cut = func(d driver.Driver) error { return cut(d.(*flawed).Driver) }
	}
	if deafen != nil {
		h.Faults.Deafen = func(d driver.Driver) (func() error, error) { return deafen(d.(*flawed).Driver) }
	}
	return h
}

// flawed is a driver with a flaw.
type flawed struct {
	driver.Driver
	groups *flawedGroups // of all processes
	gaps   atomic.Int32  // most gaps that were reported to one subscription

	data             func([]byte)
	bare             func() bool // answers have no header
	muteGroups       bool
	spread           bool
	deafAfter        int32 // outages
	keepRegistration bool
	forgetsAtEnd     bool // the drops since the last message
}

func (d *flawed) hadGap() bool { return d.gaps.Load() > 0 }

// flawedGroups knows the members of each group.
type flawedGroups struct {
	mu      sync.Mutex // guards members
	members map[string][]driver.Sink
}

func (g *flawedGroups) add(name string, s driver.Sink) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[name] = append(g.members[name], s)
}

func (g *flawedGroups) of(name string) []driver.Sink {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.members[name])
}

// spoil changes a copy of the data.
func (d *flawed) spoil(m *driver.Message) {
	if d.data != nil {
		m.Data = slices.Clone(m.Data)
		d.data(m.Data)
	}
}

func (d *flawed) Publish(ctx context.Context, m driver.Message) error {
	d.spoil(&m)
	return d.Driver.Publish(ctx, m)
}

func (d *flawed) Answer(ctx context.Context, request, answer driver.Message) error {
	d.spoil(&answer)
	if d.bare != nil && d.bare() {
		answer.Header = nil
	}
	return d.Driver.Answer(ctx, request, answer)
}

func (d *flawed) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	sink := &flawedSink{Sink: s.Sink, d: d}
	if s.Group != "" && s.Kind == driver.Event {
		sink.group = s.Pattern + " " + s.Group
		d.groups.add(sink.group, s.Sink)
	}
	s.Sink = sink
	i, err := d.Driver.Subscribe(ctx, s)
	if err != nil {
		return nil, err
	}
	return &flawedInterest{i, sink}, nil
}

type flawedSink struct {
	driver.Sink
	d     *flawed
	group string
	gaps  atomic.Int32
	ends  atomic.Bool
}

func (s *flawedSink) Gap(lost int) {
	if s.d.forgetsAtEnd && s.ends.Load() {
		return
	}
	s.d.gaps.Store(max(s.gaps.Add(1), s.d.gaps.Load()))
	if s.group == "" || !s.d.muteGroups {
		s.Sink.Gap(lost)
	}
}

func (s *flawedSink) Deliver(m driver.Message) bool {
	if n := s.d.deafAfter; n > 0 && s.gaps.Load() >= n {
		return true
	}
	if s.group != "" && s.d.spread && s.gaps.Load() > 0 {
		for _, other := range s.d.groups.of(s.group) {
			other.Deliver(m)
		}
		return true
	}
	return s.Sink.Deliver(m)
}

type flawedInterest struct {
	driver.Registration
	sink *flawedSink
}

func (i *flawedInterest) End(ctx context.Context) error {
	i.sink.ends.Store(true)
	if d := i.sink.d; d.keepRegistration && d.hadGap() {
		return nil
	}
	return i.Registration.End(ctx)
}
