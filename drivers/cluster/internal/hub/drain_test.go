package hub

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// handClient is a client that answers a hub as a test wants.
type handClient struct {
	line *protocol.Line
	read chan struct{} // closed when the line has ended

	mu  sync.Mutex
	got []protocol.Type
}

// joinHand connects a client to h. The hub has its subscription to "x" in the group
// "g", and knows all of its report if reported is true.
func joinHand(t *testing.T, h *Hub, reported bool, handle func(c *handClient, typ protocol.Type, body []byte)) *handClient {
	t.Helper()
	here, there := net.Pipe()
	client := h.Join(here, "hand")
	c := &handClient{line: protocol.NewLine(there), read: make(chan struct{})}
	welcome := make(chan struct{}, 1)
	go func() {
		defer close(c.read)
		_ = c.line.Read(func(typ protocol.Type, body []byte) error {
			if typ == protocol.TypeWelcome {
				welcome <- struct{}{}
				return nil
			}
			c.mu.Lock()
			c.got = append(c.got, typ)
			c.mu.Unlock()
			handle(c, typ, body)
			return nil
		}, func() {})
	}()
	t.Cleanup(func() { c.line.Close(); <-c.read })
	hello := protocol.Hello{Speaks: protocol.Known}
	c.say(hello.Frame())
	<-welcome
	c.say(protocol.Begin(protocol.TypeJoin).Uint(1).Byte(byte(driver.Event)).Uint(1).String("x").String("g"))
	if reported {
		c.say(protocol.Begin(protocol.LockReported))
	}
	for seen := client.frames.Load(); seen < 2 || reported && seen < 3; seen = client.frames.Load() {
		time.Sleep(time.Millisecond)
	}
	return c
}

func (c *handClient) say(f *protocol.Frame) { _ = c.line.Send(f) } // the line may have ended

func (c *handClient) heard() []protocol.Type {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// An event that clients of a group give back, one after the other, is sent before the
// hub reports that it has sent everything.
func TestHubThatLeavesSendsWhatIsGivenBackFirst(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	var mu sync.Mutex
	left, taken := 3, false // how often the event is given back, and whether a client has kept it
	var early []protocol.Type
	// A client gives back what it has when it reads the next frame.
	member := func() func(*handClient, protocol.Type, []byte) {
		var back *protocol.Frame
		return func(c *handClient, typ protocol.Type, body []byte) {
			if back != nil {
				c.say(back)
				back = nil
			}
			switch typ {
			case protocol.TypeLeaving:
				c.say(protocol.Begin(protocol.TypeLast))
			case protocol.TypeDeliver:
				mu.Lock()
				if left--; left < 0 {
					taken = true
				} else {
					d := protocol.NewDecoder(body)
					d.Bool()
					for range d.Count() {
						d.Uint()
					}
					f := protocol.Begin(protocol.TypeReturn).Uint(0).Uint(0).Bool(true).Byte(byte(driver.Event)).String("x").String("g")
					back = f.Rest(d.Rest())
				}
				mu.Unlock()
			case protocol.TypeWhole:
				mu.Lock()
				if !taken {
					early = append(early, typ)
				}
				mu.Unlock()
			}
		}
	}
	all := []*handClient{joinHand(t, h, true, member()), joinHand(t, h, true, member())}
	all[0].say(protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: "x"}))
	h.drain(context.Background())
	mu.Lock()
	defer mu.Unlock()
	if !taken || len(early) > 0 {
		t.Errorf("a client has the event: %v; %d clients were told that they have everything before", taken, len(early))
	}
	for _, c := range all {
		if got := c.heard(); got[len(got)-1] != protocol.TypeWhole {
			t.Errorf("the hub says %v, want that the client has everything as the last frame", got)
		}
	}
}

// A client that does not answer may have events on its way: no client is told that it
// has everything.
func TestHubThatWaitsInVainConfirmsNothing(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	answers := func(c *handClient, typ protocol.Type, _ []byte) {
		if typ == protocol.TypeLeaving {
			c.say(protocol.Begin(protocol.TypeLast))
		}
	}
	marked := make(chan struct{})
	good := joinHand(t, h, true, func(c *handClient, typ protocol.Type, body []byte) {
		if answers(c, typ, body); typ == protocol.TypeOpen {
			close(marked)
		}
	})
	joinHand(t, h, true, func(*handClient, protocol.Type, []byte) {})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	h.drain(ctx)
	for _, c := range h.list() {
		_ = c.line.Send(protocol.Begin(protocol.TypeOpen)) // the end of what the hub says
	}
	<-marked
	if got := good.heard(); slices.Contains(got, protocol.TypeWhole) || !slices.Contains(got, protocol.TypeLeaving) {
		t.Errorf("the hub says %v", got)
	}
}

// A client that has not reported its subscriptions when the hub opens learns it before
// any client can publish.
func TestHubThatOpensTellsThoseThatItDoesNotKnow(t *testing.T) {
	h := New(Config{})
	h.shut = true
	defer func() { _ = h.Close(context.Background()) }()
	opened := make(chan struct{}, 2)
	wait := func(_ *handClient, typ protocol.Type, _ []byte) {
		if typ == protocol.TypeOpen {
			opened <- struct{}{}
		}
	}
	known, unknown := joinHand(t, h, true, wait), joinHand(t, h, false, wait)
	h.open()
	<-opened
	<-opened
	if got, want := known.heard(), []protocol.Type{protocol.TypeOpen}; !slices.Equal(got, want) {
		t.Errorf("a client that has reported hears %v, want %v", got, want)
	}
	if got, want := unknown.heard(), []protocol.Type{protocol.TypeAbsent, protocol.TypeOpen}; !slices.Equal(got, want) {
		t.Errorf("a client that has not reported hears %v, want %v", got, want)
	}
}
