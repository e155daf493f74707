//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/history"
	"github.com/megaframework/mega/lock/driver"
)

// Somebody removes all files of a socket at once, under processes that use locks,
// and another process comes: it grants nothing until the hub of the others has
// noticed, and they are at the new one.
func TestRemovedFilesLetNobodyIn(t *testing.T) {
	c := newCourt(t, 3*time.Second)
	var all []*proc
	for range 3 {
		all = append(all, c.come(true))
	}
	for range suite.Scaled(3) {
		c.works(all)
		err := errors.Join(os.RemoveAll(c.orders.Socket+".clients"), os.Remove(c.orders.Socket), os.Remove(c.orders.Socket+".lock"))
		if err != nil {
			t.Fatal(err)
		}
		p := c.come(true)
		all = append(all, p)
		c.works(all)
	}
	for _, p := range all {
		p.leave()
	}
	h, err := history.Read(c.orders.History)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.CheckBeliefs(0); err != nil {
		t.Error(err)
	}
	t.Logf("%d grants", len(h.Beliefs))
}

// The hub is stopped, and somebody removes its files to get rid of it. Another
// process that comes grants nothing before the first hub has gone, and then what
// the clients of that one hold stays theirs. So it is for the process after it, if
// the first to come is killed while it waits.
func TestRemovedFilesOfAStoppedHubLetNobodyIn(t *testing.T) {
	for name, killed := range map[string]bool{"the first to come": false, "the one after it": true} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t, time.Minute)
			hub, holder := c.come(false), c.come(false)
			holder.tell("take k")
			holder.says("took k")
			must(t, hub.Pause())
			err := errors.Join(os.RemoveAll(c.orders.Socket+".clients"), os.Remove(c.orders.Socket), os.Remove(c.orders.Socket+".lock"))
			must(t, err)
			if killed {
				c.kill(c.come(false))
			}
			next := c.come(false)
			next.tell("take k")
			for began := time.Now(); time.Since(began) < 3*time.Second; { // longer than it waits for unknown clients
				next.tell("try another")
				if line := next.says(""); !strings.HasPrefix(line, "tried another") || line == "tried another <nil>" {
					t.Fatalf("beside the stopped hub it says %q", line)
				}
			}
			next.silent()
			must(t, hub.Continue())
			c.queued([]*proc{holder, next})
			next.silent()
			holder.tell("give k")
			holder.says("gave k")
			next.says("took k")
		})
	}
}

// Somebody removes the folder of the clients while a holder is stopped, which cannot make
// its file again, before the hub is killed or while the next one waits for the holder.
func TestRemovedFolderOfClientsLetsNobodyIn(t *testing.T) {
	for name, late := range map[string]bool{"before the hub ends": false, "while the next hub waits": true} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t, time.Minute)
			hub, holder, other := c.come(false), c.come(false), c.come(false)
			holder.tell("take k")
			holder.says("took k")
			must(t, holder.Pause())
			if !late {
				must(t, os.RemoveAll(c.orders.Socket+".clients"))
			}
			killed := map[string]int64{hub.name: c.kill(hub)}
			c.hub([]*proc{other})
			if late {
				must(t, os.RemoveAll(c.orders.Socket+".clients"))
			}
			other.tell("take k")
			other.tell("try another")
			if line := other.says(""); !strings.HasPrefix(line, "tried another") || line == "tried another <nil>" {
				t.Errorf("it says %q", line)
			}
			killed[other.name] = c.kill(other) // and the hub after it
			next := c.come(false)
			next.tell("take k")
			next.tell("try another")
			if line := next.says(""); !strings.HasPrefix(line, "tried another") || line == "tried another <nil>" {
				t.Errorf("the next one says %q", line)
			}
			must(t, holder.Continue())
			c.queued([]*proc{holder, next})
			next.silent()
			c.verify(killed)
		})
	}
}

// works waits until each of the processes has been granted a lock from now on.
func (c *court) works(all []*proc) {
	c.t.Helper()
	for _, p := range all {
		p.tell("take " + p.name)
	}
	for _, p := range all {
		p.says("took " + p.name)
		p.tell("give " + p.name)
		p.says("gave " + p.name)
	}
}

// Somebody removes the files, and the hub notices and ends. A process that comes before the
// clients of that hub are back grants nothing.
func TestRemovedFilesLetNobodyInBeforeTheClientsAreBack(t *testing.T) {
	socket := socketPath(t)
	a, b := meetAt(t, socket), meetAt(t, socket)
	r := driver.Request{Key: "k", Token: "b", TTL: time.Minute, Slots: 1}
	_, err := b.Lock().Acquire(t.Context(), r)
	must(t, err)
	host := a.host()
	a.presence.mu.Lock() // neither of them can come back
	b.presence.mu.Lock()
	must(t, errors.Join(os.RemoveAll(socket+".clients"), os.Remove(socket), os.Remove(socket+".lock")))
	host.Fail(errors.New("the lock file was removed"))
	must(t, host.Close(t.Context()))
	c := meetAt(t, socket)
	r.Token = "c"
	_, err = c.Lock().Acquire(t.Context(), r)
	b.presence.mu.Unlock()
	a.presence.mu.Unlock()
	if err == nil {
		t.Error("two processes hold the key")
	}
}

// Somebody removes the files while the hub leaves in order, which takes until its clients
// have answered. A process that comes before those are back grants nothing.
func TestFilesRemovedWhileTheHubLeavesLetNobodyIn(t *testing.T) {
	socket := socketPath(t)
	a, err := Dial(t.Context(), Config{Socket: socket})
	must(t, err)
	b := meetAt(t, socket)
	r := driver.Request{Key: "k", Token: "b", TTL: time.Minute, Slots: 1}
	_, err = b.Lock().Acquire(t.Context(), r)
	must(t, err)
	conn, err := net.Dial("unix", socket) // does not answer that it sends no more
	must(t, err)
	line := protocol.NewLine(conn)
	defer line.Close()
	must(t, line.Send((&protocol.Hello{Speaks: protocol.Known, PID: 1, File: "silent"}).Frame()))
	seen := make(chan protocol.Type, 100)
	go func() {
		_ = line.Read(func(typ protocol.Type, _ []byte) error { seen <- typ; return nil }, func() {})
	}()
	until := func(typ protocol.Type) {
		eventually(t, "a frame of the hub", func() bool { return <-seen == typ })
	}
	until(protocol.TypeWelcome)
	b.presence.mu.Lock() // it cannot come back
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.WithoutCancel(t.Context())) }()
	until(protocol.TypeLeaving)
	must(t, errors.Join(os.RemoveAll(socket+".clients"), os.Remove(socket+".lock")))
	<-closed
	c := meetAt(t, socket)
	r.Token = "c"
	_, err = c.Lock().Acquire(t.Context(), r)
	b.presence.mu.Unlock()
	if err == nil {
		t.Error("two processes hold the key")
	}
}

// The hub is killed, and somebody removes the files. A process that was at that hub grants
// nothing before the others, whose files it does not find, are back.
func TestRemovedFilesOfAKilledHubLetNobodyIn(t *testing.T) {
	p, err := newPost(socketPath(t))
	must(t, err)
	next, holder := meetAt(t, p.socket), meetAt(t, p.socket)
	r := driver.Request{Key: "k", Token: "holder", TTL: time.Minute, Slots: 1}
	_, err = holder.Lock().Acquire(t.Context(), r)
	must(t, err)
	before := next.currentHub()
	holder.presence.mu.Lock() // it is slow to come back
	must(t, errors.Join(os.RemoveAll(p.socket+".clients"), os.Remove(p.socket+".lock"), p.close()))
	next.served(t, before)
	r.Token = "next"
	_, err = next.Lock().Acquire(t.Context(), r)
	holder.presence.mu.Unlock()
	if err == nil {
		t.Error("two processes hold the key")
	}
}
