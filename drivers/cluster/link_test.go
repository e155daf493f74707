//go:build linux || darwin

package cluster

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
	"github.com/megaframework/mega/lock/locktest"
)

// link stands between a node and its hub and passes frames on, late or not at
// all.
type link struct {
	node, hub net.Conn
	pumps     sync.WaitGroup
	writing   [2]sync.Mutex // per direction

	mu       sync.Mutex
	moved    sync.Cond // when something below changes
	held     [2]bool
	closed   bool
	asked    map[uint64]locktest.Op // by number, of questions under way
	drop     map[locktest.Op]bool   // the next answer
	delay    map[locktest.Op]time.Duration
	late     map[uint64][][]byte // frames of answers that wait for later
	passedUp int
}

// The directions.
const (
	up   = iota // from the node to the hub
	down        // and back
)

// newLink returns a link to hub and the connection that the node is to have.
func newLink(hub net.Conn) (*link, net.Conn, error) {
	here, conn, err := newPipe()
	if err != nil {
		return nil, nil, err
	}
	return linkOf(here, hub), conn, nil
}

// linkOf returns a link between a node and a hub.
func linkOf(node, hub net.Conn) *link {
	l := &link{
		node: node, hub: hub,
		asked: map[uint64]locktest.Op{}, drop: map[locktest.Op]bool{},
		delay: map[locktest.Op]time.Duration{}, late: map[uint64][][]byte{},
	}
	l.moved.L = &l.mu
	l.pumps.Go(func() { l.pump(up) })
	l.pumps.Go(func() { l.pump(down) })
	return l
}

// close cuts both ends off.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.moved.Broadcast()
	l.mu.Unlock()
	_, _ = l.node.Close(), l.hub.Close()
	l.pumps.Wait()
}

// end waits until all that the node has said has reached the hub, and closes.
func (l *link) end() {
	done := make(chan struct{})
	go func() { l.pumps.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
	}
	l.close()
	<-done
}

// pump passes frames on until a side ends, which ends the other one when it has
// received what the first one had sent.
func (l *link) pump(way int) {
	from, to := l.node, l.hub
	if way == down {
		from, to = l.hub, l.node
	}
	for {
		frame, err := readFrame(from)
		if err != nil {
			_, _ = from.Close(), to.Close()
			return
		}
		if l.pass(way, frame) {
			if err := l.write(way, frame); err != nil {
				return
			}
		}
	}
}

func (l *link) write(way int, frame []byte) error {
	l.writing[way].Lock()
	defer l.writing[way].Unlock()
	to := l.hub
	if way == down {
		to = l.node
	}
	_, err := to.Write(frame)
	return err
}

func readFrame(from io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.LittleEndian.Uint32(head[:]))
	copy(frame, head[:])
	_, err := io.ReadFull(from, frame[4:])
	return frame, err
}

// pass waits until the frame may go on, and says whether it may.
func (l *link) pass(way int, frame []byte) bool {
	number, op := l.look(way, frame)
	if way == down {
		if l.joins(number, frame) {
			return false
		}
		if by, drop := l.answers(op); drop {
			return false
		} else if by > 0 {
			l.later(by, number, frame)
			return false
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held[way] && !l.closed {
		l.moved.Wait()
	}
	return !l.closed
}

// ops are the operations that the frames of a node belong to.
func ops(t protocol.Type) (locktest.Op, bool) {
	op, ok := map[protocol.Type]locktest.Op{
		protocol.LockAsk: locktest.Acquire, protocol.LockRenew: locktest.Renew, protocol.LockRelease: locktest.Release, protocol.LockHandback: locktest.Release,
		protocol.LockForce: locktest.Force, protocol.LockInspect: locktest.Inspect, protocol.LockList: locktest.List,
	}[t]
	return op, ok
}

// look finds out what the frame is about.
func (l *link) look(way int, frame []byte) (number uint64, op locktest.Op) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := protocol.NewDecoder(frame[5:])
	t := protocol.Type(frame[4])
	if way == down {
		if t == protocol.LockAnswer {
			number = d.Uint()
			op = l.asked[number]
			delete(l.asked, number)
		}
		return number, op
	}
	op, ok := ops(t)
	if !ok {
		return 0, ""
	}
	number = d.Uint()
	l.asked[number] = op
	l.passedUp++
	return number, op
}

// answers returns how late the answer to op is, or that it is dropped.
func (l *link) answers(op locktest.Op) (by time.Duration, drop bool) {
	if op == "" {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	by, drop = l.delay[op], l.drop[op] || l.drop[locktest.Any]
	delete(l.delay, op)
	delete(l.drop, op)
	delete(l.drop, locktest.Any)
	return by, drop
}

// later sends an answer, and its other frames, after a while. Other answers
// pass it, as when the hub is slow with one request.
func (l *link) later(by time.Duration, number uint64, frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late[number] = [][]byte{frame}
	l.pumps.Go(func() {
		time.Sleep(by)
		l.mu.Lock()
		frames := l.late[number]
		delete(l.late, number)
		l.mu.Unlock()
		for _, f := range frames {
			_ = l.write(down, f)
		}
	})
}

// joins says whether the frame belongs to an answer that is late.
func (l *link) joins(number uint64, frame []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames, late := l.late[number]
	if late {
		l.late[number] = append(frames, frame)
	}
	return late
}

// hold keeps what goes the ways back, as a peer that stands still does, until it
// is undone.
func (l *link) hold(ways ...int) (undo func() error) {
	set := func(held bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, w := range ways {
			l.held[w] = held
		}
		l.moved.Broadcast()
	}
	set(true)
	return func() error { set(false); return nil }
}

func (l *link) commands() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passedUp
}

var errNoLink = errors.New("the driver has no link")

// pipe returns two ends of a connection.
func pipe(t testing.TB) (here, there net.Conn) {
	t.Helper()
	here, there, err := newPipe()
	if err != nil {
		t.Fatal(err)
	}
	return here, there
}

func newPipe() (here, there net.Conn, err error) {
	here, file, err := Pair()
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	there, err = net.FileConn(file)
	return here, there, err
}
