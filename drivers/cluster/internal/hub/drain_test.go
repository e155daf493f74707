package hub

import (
	"context"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
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
	return joinHandAt(t, h, here, there, reported, handle)
}

// joinHandAt is joinHand with both ends of a connection.
func joinHandAt(t *testing.T, h *Hub, here, there net.Conn, reported bool, handle func(c *handClient, typ protocol.Type, body []byte)) *handClient {
	t.Helper()
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

// A client that reads slowly has everything, and knows it, when the hub ends (S21).
func TestHubThatLeavesWaitsUntilItsLastWordIsRead(t *testing.T) {
	h := New(Config{})
	rounds := 0
	c := joinHand(t, h, true, func(c *handClient, typ protocol.Type, _ []byte) {
		if typ != protocol.TypeLeaving {
			return
		}
		c.say(protocol.Begin(protocol.TypeLast))
		if rounds++; rounds > 1 {
			time.Sleep(100 * time.Millisecond)
		}
	})
	h.drain(t.Context())
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-c.read
	if got := c.heard(); !slices.Contains(got, protocol.TypeWhole) {
		t.Errorf("the client has read %v", got)
	}
}

// A client that joins a hub that is closed has no hub.
func TestHubThatIsClosedTakesNoClient(t *testing.T) {
	h := New(Config{})
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	here, there := net.Pipe()
	defer there.Close()
	<-h.Join(here, "late").Done()
}

// A client that says hello while the hub leaves gets no welcome: it would send events that
// nobody waits for (S21).
func TestHubThatLeavesWelcomesNobody(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	here, there := net.Pipe()
	client := h.Join(here, "late")
	h.drain(t.Context())
	line := protocol.NewLine(there)
	defer func() { line.Close(); <-client.Done() }()
	if err := line.Send((&protocol.Hello{Speaks: protocol.Known}).Frame()); err != nil {
		t.Fatal(err)
	}
	_ = line.Read(func(typ protocol.Type, _ []byte) error {
		t.Errorf("it receives frame %d", typ)
		return protocol.ErrClosed
	}, func() {})
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

// deafConn is the hub's end of a connection whose other end reads no more: writes
// fail from then on, and what was sent before can still be read.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if c.deaf.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

// returnFrame gives the event back that a client was sent for its group.
func returnFrame(delivered []byte) *protocol.Frame {
	d := protocol.NewDecoder(delivered)
	d.Bool()
	for range d.Count() {
		d.Uint()
	}
	f := protocol.Begin(protocol.TypeReturn).Uint(0).Uint(0).Bool(true).Byte(byte(driver.Event)).String("x").String("g")
	return f.Rest(d.Rest())
}

// A client that ends during the leave may have given an event back just before: the
// hub reads that first, although it can no longer write to the client.
func TestHubThatLeavesHandlesTheLastFramesOfAClientThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{})
		defer func() { _ = h.Close(context.Background()) }()
		given := make(chan *protocol.Frame, 1)
		here, there := net.Pipe()
		conn := &deafConn{Conn: here}
		quits := joinHandAt(t, h, conn, there, true, func(_ *handClient, typ protocol.Type, body []byte) {
			if typ == protocol.TypeDeliver {
				given <- returnFrame(body)
			}
		})
		quits.say(protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: "x"}))
		back := <-given
		stays := joinHand(t, h, true, func(c *handClient, typ protocol.Type, _ []byte) {
			if typ == protocol.TypeLeaving {
				c.say(protocol.Begin(protocol.TypeLast))
			}
		})
		conn.deaf.Store(true)
		left := make(chan struct{})
		go func() { h.drain(context.Background()); close(left) }()
		time.Sleep(stallBound / 2)
		quits.say(back)
		_ = quits.line.Room(t.Context(), 1) // it is written
		quits.line.Close()
		<-left
		got := slices.DeleteFunc(stays.heard(), func(typ protocol.Type) bool { return typ == protocol.TypeLeaving })
		if want := []protocol.Type{protocol.TypeDeliver, protocol.TypeWhole}; !slices.Equal(got, want) {
			t.Errorf("the client of the same group gets %v, want %v", got, want)
		}
	})
}

// A client can be asked again while the hub gives an event to it that another one has
// given back. Its answer then does not mean that it keeps this event.
func TestHubThatLeavesAsksAgainAfterAnEventThatItHasJustGivenOn(t *testing.T) {
	h := New(Config{})
	defer func() { _ = h.Close(context.Background()) }()
	var back, kept atomic.Pointer[protocol.Frame] // what the two clients give back
	var early atomic.Bool                         // the second one was told that it has everything before
	delivered, asked := make(chan struct{}), make(chan struct{})
	var rounds atomic.Int64
	gives := joinHand(t, h, true, func(c *handClient, typ protocol.Type, body []byte) {
		switch typ {
		case protocol.TypeDeliver:
			if back.CompareAndSwap(nil, returnFrame(body)) {
				close(delivered)
			}
		case protocol.TypeLeaving:
			c.say(protocol.Begin(protocol.TypeLast))
		}
	})
	gives.say(protocol.AddMessage(protocol.Begin(protocol.TypeEvent), &driver.Message{Subject: "x"}))
	<-delivered
	takes := joinHand(t, h, true, func(c *handClient, typ protocol.Type, body []byte) {
		if f := kept.Swap(nil); f != nil {
			early.Store(typ == protocol.TypeWhole)
			c.say(f)
		}
		switch typ {
		case protocol.TypeDeliver:
			kept.Store(returnFrame(body))
		case protocol.TypeLeaving:
			if rounds.Add(1) == 2 {
				close(asked)
			}
			c.say(protocol.Begin(protocol.TypeLast))
		}
	})
	all := h.list()
	from, to := all[0], all[1]
	to.bus.mu.Lock() // the hub cannot give the event to it
	seen := from.frames.Load()
	gives.say(back.Load())
	for from.frames.Load() == seen {
		time.Sleep(time.Millisecond)
	}
	from.lasts.Add(1) // it has answered the first question before it got the event
	left := make(chan struct{})
	go func() { h.drain(context.Background()); close(left) }()
	<-asked
	to.bus.mu.Unlock()
	<-left
	if early.Load() {
		t.Errorf("the hub says %v to a client that gives the event back", takes.heard())
	}
}
