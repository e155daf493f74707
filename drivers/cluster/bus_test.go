package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/suite"
)

// busAt returns the bus of another process of h.
func busAt(t testing.TB, h *Hub) *bus.Bus {
	t.Helper()
	n, _ := join(t, h, Config{})
	b, err := bus.New(n.Bus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// A bus that begins without a hub reports it, with the reason, and so do its requests (S23).
func TestABusThatBeginsWithoutAHubReportsIt(t *testing.T) {
	h := newHub(t, HubConfig{})
	n, _ := join(t, h, Config{})
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	b, err := bus.New(n.Bus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	state, why := b.State()
	_, err = b.Request(t.Context(), "a", nil)
	if state != bus.StateDisconnected {
		t.Errorf("the state is %s", state)
	}
	for what, err := range map[string]error{"the state": why, "a request": err} {
		if !errors.Is(err, bus.ErrDisconnected) || !strings.Contains(err.Error(), " is gone") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// count subscribes and counts what comes, and what it is said to have missed.
func count(t testing.TB, b *bus.Bus, pattern string, opts ...bus.SubOption) (s *bus.Sub, missed *atomic.Int64) {
	t.Helper()
	missed = &atomic.Int64{}
	s, err := b.Subscribe(t.Context(), pattern, func(_ context.Context, m *bus.Msg) error {
		missed.Add(int64(m.Missed))
		return nil
	}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s, missed
}

func respond(t testing.TB, b *bus.Bus, pattern string, r bus.Responder, opts ...bus.SubOption) *bus.Sub {
	t.Helper()
	s, err := b.Respond(t.Context(), pattern, r, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t testing.TB, b *bus.Bus, subject string, data []byte) {
	t.Helper()
	if err := b.Publish(t.Context(), subject, data); err != nil {
		t.Fatal(err)
	}
}

func flush(t testing.TB, b *bus.Bus) {
	t.Helper()
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func soon(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20s: %s", what)
		}
	}
}

// rawClient speaks to a hub without a node, and reads when it is told to.
type rawClient struct {
	conn net.Conn
	line *protocol.Line
	peer *Client
}

func newRawClient(t *testing.T, h *Hub) *rawClient {
	t.Helper()
	r := &rawClient{}
	r.conn, r.peer = pipeTo(t, h, "raw")
	r.line = protocol.NewLine(r.conn)
	t.Cleanup(r.line.Close)
	r.send(t, protocol.Begin(protocol.TypeHello).Rest([]byte(protocol.Magic)).Uint(protocol.Known.Newest).Uint(1).String(""))
	return r
}

func (r *rawClient) send(t *testing.T, f *protocol.Frame) {
	t.Helper()
	if err := r.line.Send(f); err != nil {
		t.Fatal(err)
	}
}

func (r *rawClient) join(t *testing.T, number uint64, k driver.Kind, pattern, group string) {
	t.Helper()
	r.send(t, protocol.Begin(protocol.TypeJoin).Uint(number).Byte(byte(k)).Uint(1).String(pattern).String(group))
	soon(t, "the hub knows", func() bool {
		return hub.Subscribed(r.peer, number)
	})
}

var errEnough = errors.New("enough")

// read hands over frames until one is the last.
func (r *rawClient) read(t *testing.T, take func(protocol.Type, *protocol.Decoder) (last bool)) {
	t.Helper()
	if err := r.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	err := r.line.Read(func(typ protocol.Type, body []byte) error {
		d := protocol.NewDecoder(body)
		if take(typ, &d) {
			return errEnough
		}
		return nil
	}, func() {})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
}

// What a process does not take is dropped beyond the backlog. It is told how
// many, for each registration, at the place where they are missing.
func TestDropsAreCountedExactly(t *testing.T) {
	h := newHub(t, HubConfig{Backlog: 1 << 20})
	slow, b := newRawClient(t, h), busAt(t, h)
	slow.join(t, 1, driver.Event, "x.*", "")
	slow.join(t, 2, driver.Event, "x.1", "")
	slow.join(t, 3, driver.Event, "x.>", "g")
	const n = 4000
	data := make([]byte, 1000)
	for i := range n {
		send(t, b, fmt.Sprint("x.", i%2), data)
		if i%500 == 0 {
			flush(t, b)
		}
	}
	flush(t, b)
	if waits := hub.Line(slow.peer).Backlog(); waits > 1<<20+4096 {
		t.Errorf("%d bytes wait", waits)
	}
	plain, group := 0, 0
	lost := map[uint64]int{}
	slow.read(t, func(typ protocol.Type, d *protocol.Decoder) bool {
		switch typ {
		case protocol.TypeDeliver:
			if d.Bool() {
				plain++
			}
			group += d.Count()
		case protocol.TypeGap:
			number := d.Uint()
			lost[number] += int(d.Uint())
		}
		return len(lost) == 3
	})
	if plain+lost[1] != n || group+lost[3] != n || lost[2] < lost[1]/2-1 || lost[2] > lost[1]/2+1 || plain == 0 {
		t.Errorf("of %d messages %d and %d were delivered, and %v told to be lost", n, plain, group, lost)
	}
}

// A subscription that ends while the hub drops messages for it is told how many
// first (S4).
func TestDropsOfASubscriptionThatEndsAreReported(t *testing.T) {
	h := newHub(t, HubConfig{Backlog: 1 << 20})
	slow, b := newRawClient(t, h), busAt(t, h)
	slow.join(t, 1, driver.Event, "x", "")
	slow.join(t, 2, driver.Event, "x", "g")
	slow.join(t, 3, driver.Event, "x", "")
	const n = 4000
	data := make([]byte, 1000)
	for range n {
		send(t, b, "x", data)
	}
	flush(t, b)
	if !hub.IsFull(slow.peer) {
		t.Fatal("the hub drops nothing")
	}
	for number := range uint64(2) {
		slow.send(t, protocol.Begin(protocol.TypeLeave).Uint(number+1))
	}
	slow.send(t, protocol.Begin(protocol.TypeMembers).Uint(3).Uint(1)) // one of two has left
	slow.send(t, protocol.Begin(protocol.TypeSync).Uint(1))
	soon(t, "the hub knows", func() bool { return !hub.Subscribed(slow.peer, 1) && !hub.Subscribed(slow.peer, 2) })
	plain, group := 0, 0
	lost := map[uint64]int{}
	slow.read(t, func(typ protocol.Type, d *protocol.Decoder) bool {
		switch typ {
		case protocol.TypeDeliver:
			if d.Bool() {
				plain++
			}
			group += d.Count()
		case protocol.TypeGap:
			number := d.Uint()
			lost[number] += int(d.Uint())
		case protocol.TypeSynced:
			return true
		}
		return false
	})
	if plain+lost[1] != n || group+lost[2] != n || plain+lost[3] != n {
		t.Errorf("of %d messages %d and %d were delivered, and %v told to be lost", n, plain, group, lost)
	}
}

// A group passes over a process that stands still, as soon as that can be seen:
// what the system holds for it is full, and something waits in the hub.
func TestAGroupPassesOverAProcessThatStandsStill(t *testing.T) {
	h := newHub(t, HubConfig{})
	still, a, b := newRawClient(t, h), busAt(t, h), busAt(t, h)
	still.join(t, 1, driver.Event, "x", "g")
	s, _ := count(t, a, "x", bus.Group("g"))
	const n, most = 4000, 1500 // of which a thousand bytes each fit into what a socket holds
	data := make([]byte, 1000)
	for i := range n {
		send(t, b, "x", data)
		if i%10 == 0 {
			flush(t, b)
			soon(t, "who does not stand still is done", func() bool {
				return int(s.Stats().Handled) == int(s.Stats().Received) && a.Flush(t.Context()) == nil
			})
		}
	}
	flush(t, b)
	soon(t, "the other one has nearly all", func() bool { return handled(s) >= n-most })
	if waits := hub.Line(still.peer).Backlog(); waits > 100_000 {
		t.Errorf("%d bytes wait for the one that stands still", waits)
	}
}

// Requests go to who answers them.
func TestRequestsPassOverAProcessThatDoesNotAnswer(t *testing.T) {
	h := newHub(t, HubConfig{})
	still, a, b := newRawClient(t, h), busAt(t, h), busAt(t, h)
	still.join(t, 1, driver.Request, "ask", "responders")
	respond(t, a, "ask", func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }, bus.Group("responders"))
	for hub.Unanswered(still.peer) == 0 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _ = b.Request(ctx, "ask", nil) // one is not answered
		cancel()
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); { // however long ago it has not answered
		if _, err := b.Request(t.Context(), "ask", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// An event leaves at once: it does not wait for others, nor for the question
// whether the hub has it.
func TestAnEventLeavesAtOnce(t *testing.T) {
	h := newHub(t, HubConfig{})
	a, b := busAt(t, h), busAt(t, h)
	got := make(chan time.Time, 1)
	_, err := b.Subscribe(t.Context(), "x", func(context.Context, *bus.Msg) error { got <- time.Now(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for range 50 {
		began := time.Now()
		send(t, a, "x", nil)
		took = append(took, (<-got).Sub(began))
	}
	slices.Sort(took)
	if fast := took[len(took)/4]; fast > markPause/4 { // the slow ones are the machine's
		t.Errorf("a quarter of the events took more than %v", fast)
	}
}

func TestARequestToAProcessThatIsFullFails(t *testing.T) {
	h := newHub(t, HubConfig{Backlog: 64 << 10})
	slow, b := newRawClient(t, h), busAt(t, h)
	slow.join(t, 1, driver.Request, "ask", "responders")
	slow.join(t, 2, driver.Event, "x", "")
	for !hub.IsFull(slow.peer) {
		send(t, b, "x", make([]byte, 1000))
	}
	_, err := b.Request(t.Context(), "ask", nil)
	if !errors.Is(err, bus.ErrOverloaded) {
		t.Errorf("a request: %v", err)
	}
}

// Answers that who asked does not take fail the request.
func TestAnAnswerWithoutRoomFailsTheRequest(t *testing.T) {
	h := newHub(t, HubConfig{Backlog: 64 << 10})
	slow, b := newRawClient(t, h), busAt(t, h)
	respond(t, b, "ask", func(_ context.Context, m *bus.Msg) ([]byte, error) { return make([]byte, 10_000), nil })
	const n = 500
	m := driver.Message{Subject: "ask", Data: []byte{}}
	for id := range uint64(n) {
		slow.send(t, protocol.AddMessage(protocol.Begin(protocol.TypeRequest).Uint(id), &m))
	}
	soon(t, "it is full", func() bool { return hub.IsFull(slow.peer) })
	outcomes := map[uint64]protocol.Type{}
	slow.read(t, func(typ protocol.Type, d *protocol.Decoder) bool {
		if typ == protocol.TypeReply || typ == protocol.TypeFailed {
			outcomes[d.Uint()] = typ
		}
		return len(outcomes) == n
	})
	replies := 0
	for _, typ := range outcomes {
		if typ == protocol.TypeReply {
			replies++
		}
	}
	if replies == 0 || replies == n {
		t.Errorf("%d of %d requests were answered", replies, n)
	}
}

// Members are served alike, wherever they are.
func TestAGroupIsSharedByMembers(t *testing.T) {
	h := newHub(t, HubConfig{})
	a, b, c := busAt(t, h), busAt(t, h), busAt(t, h)
	members := []*bus.Sub{}
	for _, at := range []*bus.Bus{a, b, b, b} {
		s, _ := count(t, at, "x.*", bus.Group("g"))
		members = append(members, s)
	}
	n := max(suite.Scaled(8000), 800)
	for range n {
		send(t, c, "x.y", nil)
		flush(t, c) // nothing waits, so that the load has no say
	}
	soon(t, "all are handled", func() bool { return handled(members...) == n })
	for i, s := range members {
		if got := handled(s); got < n/8 || got > n/2 {
			t.Errorf("member %d got %d of %d", i, got, n)
		}
	}
}

func handled(subs ...*bus.Sub) (n int) {
	for _, s := range subs {
		n += int(s.Stats().Handled)
	}
	return n
}

// Of two processes that were asked, one dies: who asked has the answer of the
// other, and does not wait for one that cannot come.
func TestARequestOfManyEndsWithTheLastResponder(t *testing.T) {
	h := newHub(t, HubConfig{})
	asker, well := busAt(t, h), busAt(t, h)
	dying, peer := join(t, h, Config{})
	dyingBus, err := bus.New(dying.Bus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dyingBus.Close() }()
	asked := make(chan struct{})
	respond(t, well, "ask", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("well"), nil }, bus.Group(""))
	respond(t, dyingBus, "ask", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { close(asked); <-ctx.Done(); return nil, nil }, bus.Group(""))
	go func() { <-asked; hub.Line(peer).End(errors.New("as asked")) }()
	began := time.Now()
	var got []string
	for m, err := range asker.RequestMany(t.Context(), "ask", nil) {
		if err != nil {
			got = append(got, fmt.Sprint(errors.Is(err, bus.ErrDisconnected)))
			continue
		}
		got = append(got, string(m.Data))
	}
	if !slices.Equal(got, []string{"well", "true"}) || time.Since(began) > bound {
		t.Errorf("after %v: %q", time.Since(began), got)
	}
}

// A message that only its receivers can see to be nonsense ends no connection.
func TestNonsenseInAMessageHurtsNobody(t *testing.T) {
	h := newHub(t, HubConfig{})
	raw, b := newRawClient(t, h), busAt(t, h)
	s, _ := count(t, b, "x")
	respond(t, b, "x", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("fine"), nil })
	for i, tail := range []string{"\x01x", "\x01x\x04\x80", "\x01x\x04\xff\xff\x03", "\x01x\x3f\x01\x02"} {
		raw.send(t, protocol.Begin(protocol.TypeEvent).Rest([]byte(tail)))
		raw.send(t, protocol.Begin(protocol.TypeRequest).Uint(uint64(i)).Rest([]byte(tail)))
	}
	raw.send(t, protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: "x"}))
	soon(t, "the one that makes sense comes", func() bool { return handled(s) == 1 })
	if m, err := b.Request(t.Context(), "x", nil); err != nil || string(m.Data) != "fine" {
		t.Errorf("afterwards: %v, %v", m, err)
	}
	failed := 0
	raw.read(t, func(typ protocol.Type, d *protocol.Decoder) bool {
		if typ == protocol.TypeFailed && d.Uint() == uint64(failed) && d.Byte() == protocol.FailNoResponder {
			failed++
		}
		return failed == 4
	})
}

// A name that is so deep that the table could not be searched ends its peer.
func TestANameWithoutEndHurtsItsClientAlone(t *testing.T) {
	h := newHub(t, HubConfig{})
	b := busAt(t, h)
	deep := strings.Repeat("a.", 1<<18) + "a"
	for name, f := range map[string]*protocol.Frame{
		"a pattern": protocol.Begin(protocol.TypeJoin).Uint(1).Byte(0).Uint(1).String(deep).String(""),
		"a group":   protocol.Begin(protocol.TypeJoin).Uint(1).Byte(0).Uint(1).String("a").String(deep),
		"an event":  protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: deep}),
		"a request": protocol.AddMessage(protocol.Begin(protocol.TypeRequest).Uint(1), &driver.Message{Subject: deep}),
	} {
		raw := newRawClient(t, h)
		raw.send(t, f)
		<-raw.peer.Done()
		if raw.peer.Err() == nil || !strings.Contains(raw.peer.Err().Error(), "too long") {
			t.Errorf("%s: %v", name, raw.peer.Err())
		}
	}
	flush(t, b)
}

// A registration that comes and goes all the time, in one process, costs the others
// nothing that they would notice.
func TestFlappingInterestDisturbsNobody(t *testing.T) {
	h := newHub(t, HubConfig{})
	a, b, flapping := busAt(t, h), busAt(t, h), busAt(t, h)
	s, missed := count(t, b, "x.*")
	n := max(suite.Scaled(50_000), 10_000)
	round := func() time.Duration {
		began, before := time.Now(), handled(s)
		for i := range n {
			send(t, a, fmt.Sprint("x.", i%10), make([]byte, 128))
		}
		soon(t, "all are handled", func() bool { return handled(s)-before == n })
		return time.Since(began)
	}
	quiet := min(round(), round())
	stop := make(chan struct{})
	var flaps atomic.Int64
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			f, err := flapping.Subscribe(t.Context(), "x.>", func(context.Context, *bus.Msg) error { return nil })
			if err != nil {
				t.Error(err)
				return
			}
			f.Stop()
			flaps.Add(1)
		}
	})
	loud := min(round(), round(), round())
	close(stop)
	over.Wait()
	t.Logf("%v without, %v with %d changes", quiet, loud, flaps.Load())
	if loud > 3*quiet+500*time.Millisecond || missed.Load() != 0 {
		t.Errorf("%d messages took %v, and %v while another process changes its mind %d times; %d are missing", n, quiet, loud, flaps.Load(), missed.Load())
	}
}

// Subscriptions in three processes get what they would get in one.
func TestTheHubRoutesAsMemoryDoes(t *testing.T) {
	h := newHub(t, HubConfig{})
	nodes := []*bus.Bus{busAt(t, h), busAt(t, h), busAt(t, h)}
	one, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close() })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range suite.Scaled(20) {
		play := newPlay(r)
		want := play.run(t, []*bus.Bus{one, one, one})
		got := play.run(t, nodes)
		if len(got) != len(want) {
			t.Errorf("%d got something, want %d", len(got), len(want))
		}
		for who := range want {
			if !slices.Equal(got[who], want[who]) {
				t.Fatalf("%s got\n%q, want\n%q", who, got[who], want[who])
			}
		}
	}
}

// play is subscriptions, and what is then published.
type play struct {
	members  []struct{ pattern, group string }
	subjects []string
}

func newPlay(r *rand.Rand) (p play) {
	name := func(words ...string) string {
		tokens := make([]string, 1+r.IntN(4))
		for i := range tokens {
			tokens[i] = words[r.IntN(len(words))]
		}
		return strings.Join(tokens, ".")
	}
	for len(p.members) < 40 {
		pattern := name("a", "b", "A", "*", ">")
		if bus.CheckPattern(pattern) == nil {
			p.members = append(p.members, struct{ pattern, group string }{pattern, []string{"", "", "g", "h"}[r.IntN(4)]})
		}
	}
	for range 100 {
		p.subjects = append(p.subjects, name("a", "b", "A", "ab"))
	}
	return p
}

// run returns what came to each subscription without a group, and to each group.
func (p play) run(t *testing.T, at []*bus.Bus) map[string][]string {
	t.Helper()
	var mu sync.Mutex
	got := map[string][]string{}
	var subs []*bus.Sub
	for i, m := range p.members {
		who := fmt.Sprintf("number %d, %s", i, m.pattern)
		if m.group != "" {
			who = "group " + m.group + " of " + m.pattern
		}
		s, err := at[i%len(at)].Subscribe(t.Context(), m.pattern, func(_ context.Context, m *bus.Msg) error {
			mu.Lock()
			defer mu.Unlock()
			got[who] = append(got[who], string(m.Data)+" "+m.Subject)
			return nil
		}, bus.Group(m.group))
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, s)
	}
	for i, subject := range p.subjects {
		send(t, at[i%len(at)], subject, []byte(strconv.Itoa(i)))
	}
	for _, b := range at {
		flush(t, b)
	}
	for _, s := range subs {
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for who := range got {
		slices.Sort(got[who])
	}
	return got
}

func BenchmarkPublish(b *testing.B) {
	h := NewHub(HubConfig{})
	defer func() { _ = h.Close(context.Background()) }()
	from, to := busAt(b, h), busAt(b, h)
	s, _ := count(b, to, "x")
	data := make([]byte, 128)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := from.Publish(context.Background(), "x", data); err != nil {
			b.Fatal(err)
		}
		if n++; n%10_000 == 0 {
			for handled(s) < n-20_000 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	}
	soon(b, "all are handled", func() bool { return handled(s) == n })
}

func BenchmarkRequest(b *testing.B) {
	h := NewHub(HubConfig{})
	defer func() { _ = h.Close(context.Background()) }()
	from, to := busAt(b, h), busAt(b, h)
	respond(b, to, "x", func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
	data := make([]byte, 128)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := from.Request(context.Background(), "x", data); err != nil {
			b.Fatal(err)
		}
	}
}

// Several publishers at once, to several groups of one process: each group gets
// each message once.
func TestGroupsOfOneProcessAreServedByOneFrame(t *testing.T) {
	h := newHub(t, HubConfig{})
	to := busAt(t, h)
	var subs []*bus.Sub
	for _, group := range []string{"a", "b", "c", ""} {
		s, _ := count(t, to, "x.*", bus.Group(group))
		subs = append(subs, s)
	}
	n := max(suite.Scaled(2000), 400)
	var publishing sync.WaitGroup
	for range 4 {
		from := busAt(t, h)
		publishing.Go(func() {
			for range n {
				send(t, from, "x.y", nil)
			}
			flush(t, from)
		})
	}
	publishing.Wait()
	flush(t, to) // what comes after what was sent to it before
	for i, s := range subs {
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := handled(s); got != 4*n {
			t.Errorf("subscription %d got %d of %d", i, got, 4*n)
		}
	}
}

// servedRequest reads a request from the hub, with its message.
func (r *rawClient) servedRequest(t *testing.T, n int) (id protocol.RequestID, message []byte) {
	t.Helper()
	r.read(t, func(typ protocol.Type, d *protocol.Decoder) bool {
		if typ == protocol.TypeServe {
			n--
			id = protocol.ReadRequestID(d)
			d.Bool()
			for range d.Count() {
				d.Uint()
			}
			message = slices.Clone(d.Rest())
		}
		return n == 0
	})
	return id, message
}

// giveBack gives a request for a group back to the hub.
func (r *rawClient) giveBack(t *testing.T, id protocol.RequestID, pattern string, message []byte) {
	t.Helper()
	f := protocol.Begin(protocol.TypeReturn).Uint(id.Client).Uint(id.Number).Bool(true).Byte(byte(driver.Request)).String(pattern).String("g")
	r.send(t, f.Rest(message))
}

// A process may get a request twice: for a group of its own, and in place of the
// process that was chosen for another group. It owes an answer for each.
func TestARequestThatAProcessHasTwiceEndsTwice(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(*rawClient, protocol.RequestID, []byte)
		want error
	}{
		"nobody takes it": {func(r *rawClient, id protocol.RequestID, message []byte) {
			r.giveBack(t, id, "r.>", message)
			r.giveBack(t, id, "r.*", message)
		}, bus.ErrNoResponders},
		"it has no subscription any more": {func(r *rawClient, id protocol.RequestID, _ []byte) {
			for range 2 {
				r.send(t, protocol.Begin(protocol.TypeNoMember).Uint(id.Client).Uint(id.Number))
			}
		}, bus.ErrNoResponders},
		"the process ends": {func(r *rawClient, _ protocol.RequestID, _ []byte) { r.line.Close() }, bus.ErrDisconnected},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, HubConfig{})
			first, second, b := newRawClient(t, h), newRawClient(t, h), busAt(t, h)
			first.join(t, 1, driver.Request, "r.*", "g")
			second.join(t, 1, driver.Request, "r.>", "g")
			asked := make(chan error, 1)
			go func() {
				_, err := b.Request(t.Context(), "r.a", nil)
				asked <- err
			}()
			id, message := first.servedRequest(t, 1)
			second.join(t, 2, driver.Request, "r.*", "g")
			first.send(t, protocol.Begin(protocol.TypeLeave).Uint(1))
			first.giveBack(t, id, "r.*", message)
			second.servedRequest(t, 2)
			c.act(second, id, message)
			if err := <-asked; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
