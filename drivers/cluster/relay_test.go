//go:build linux || darwin

package cluster

import (
	"net"
	"sync"
	"time"
)

// relays stand between clients that inherit their connections and the hub. They
// pass bytes on, slowly or not at all.
type relays struct {
	running sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond
	paused  bool
	deaf    map[net.Conn]bool // by the end of the client
	rate    int               // bytes per second, of each direction of each connection; 0 for no bound
}

func newRelays() *relays {
	r := &relays{deaf: map[net.Conn]bool{}}
	r.changed.L = &r.mu
	return r
}

// through returns the connection for a client whose other end is hub.
func (r *relays) through(hub net.Conn) (net.Conn, error) {
	here, there, err := Pair()
	if err != nil {
		return nil, err
	}
	defer there.Close()
	conn, err := net.FileConn(there)
	if err != nil {
		return nil, err
	}
	r.running.Go(func() { r.pass(here, hub, nil) })
	r.running.Go(func() { r.pass(hub, here, conn) })
	return conn, nil
}

// pass copies bytes until one side ends, which ends the other. The client, which is
// nil for the bytes that it sends, may be deaf.
func (r *relays) pass(from, to, client net.Conn) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 4<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			time.Sleep(r.delay(n, client))
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// delay waits until bytes may pass, and returns how long n bytes take.
func (r *relays) delay(n int, client net.Conn) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.paused || r.deaf[client] {
		r.changed.Wait()
	}
	if r.rate == 0 {
		return 0
	}
	return time.Duration(n) * time.Second / time.Duration(r.rate)
}

func (r *relays) slow(bytesPerSecond int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rate = bytesPerSecond
	return nil
}

func (r *relays) setPaused(paused bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paused = paused
	r.changed.Broadcast()
	return nil
}

// deafen keeps what comes for a client, until it hears again.
func (r *relays) deafen(client net.Conn) (undo func() error) {
	set := func(deaf bool) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.deaf[client] = deaf
		r.changed.Broadcast()
		return nil
	}
	_ = set(true)
	return func() error { return set(false) }
}
