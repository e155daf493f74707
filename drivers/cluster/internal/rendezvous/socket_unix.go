//go:build linux || darwin

package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/megaframework/mega/internal/private"
)

// Listener accepts the connections of clients to the hub.
type Listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the file at path, or nil if it was removed at once
	// Refused, if not nil, is called for each rejected connection of another
	// user.
	Refused func(private.Peer)
}

// Listen opens the socket, in place of one that an earlier hub has left.
// Closing the hub lock closes it. If the file at the path was not left by a hub,
// Listen keeps the file and returns an error.
func (s *HubLock) Listen() (*Listener, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	return s.listen()
}

// Renew returns the listener if clients can still find its socket. Otherwise it
// opens the socket again and closes the old one.
func (s *HubLock) Renew() (*Listener, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	old := s.listener
	if old != nil && old.there() {
		return old, nil
	}
	l, err := s.listen()
	if err == nil && old != nil {
		_ = old.UnixListener.Close() // no client can find it any more
	}
	return l, err
}

// listen opens the socket. The caller holds s.opening.
func (s *HubLock) listen() (*Listener, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	path := s.socket.path
	if err := vacant(path); err != nil {
		return nil, err
	}
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	made, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file that was removed again is restored by Renew
		return nil, errors.Join(err, l.Close())
	}
	s.listener = &Listener{UnixListener: l, path: path, made: made}
	return s.listener, nil
}

// listen opens the socket. No other process does that, so an existing socket with
// the temporary name was left by a hub that was killed before its rename.
func listen(path string) (*net.UnixListener, error) {
	first := path + unfinished
	if err := vacant(first); err != nil {
		return nil, err
	}
	if err := os.Remove(first); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return private.Listen(first, path)
}

// patience is the time for which the socket of a killed hub may still answer: the kernel
// closes the files of a process in no useful order.
const patience = time.Second

// vacant returns an error for a path with a file that was not left by a hub: a
// file that is no socket, or a socket at which a process listens. The caller
// makes sure that no hub lives.
func vacant(path string) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Mode().Type() != fs.ModeSocket:
			return fmt.Errorf("%s is not a socket (%v): remove it, or choose another path", path, info.Mode())
		}
		peer, err := probe(path)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Since(start) > patience {
			return fmt.Errorf("%s is served by another program (process %d): end it, or choose another path", path, peer.PID)
		}
	}
}

// probe connects to the socket and disconnects again.
func probe(path string) (private.Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return private.Peer{}, err
	}
	defer conn.Close()
	return private.PeerOf(conn)
}

// Accept waits for the next connection of a process of this user.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.UnixListener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := private.PeerOf(conn)
		if err == nil && ours(peer) {
			return conn, nil
		}
		conn.Close()
		if l.Refused != nil {
			l.Refused(peer)
		}
	}
}

// Addr returns the socket's path.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// there reports whether the file at the path is the one that this listener has
// made.
func (l *Listener) there() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(l.made, info)
}

// end closes the socket, and removes its file if the hub still owns it.
func (l *Listener) end(ours bool) error {
	var err error
	if ours && l.there() {
		err = os.Remove(l.path) // first, so that no client finds the file and is refused
	}
	if closing := l.UnixListener.Close(); !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}

// Dial connects to the hub, and checks that the hub belongs to this user. It
// returns the hub's process and user.
func (p *Socket) Dial(ctx context.Context) (net.Conn, private.Peer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.path)
	if err != nil {
		return nil, private.Peer{}, err
	}
	peer, err := private.PeerOf(conn)
	if err == nil && !ours(peer) {
		err = fmt.Errorf("socket %s is served by another user (%s)", p.path, peer.User())
	}
	if err != nil {
		return nil, private.Peer{}, errors.Join(err, conn.Close())
	}
	return conn, peer, nil
}

// absent reports whether an error of Dial means that there is no hub at the
// moment, or none that accepts in time.
func absent(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EAGAIN, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return os.IsTimeout(err)
}

// Find connects to the hub. It returns nil without an error if there is no hub
// at the moment.
func (p *Socket) Find(ctx context.Context) (net.Conn, error) {
	conn, _, err := p.Dial(ctx)
	if err != nil && ctx.Err() == nil && absent(err) {
		return nil, nil //nolint:nilnil // no hub is not an error
	}
	return conn, err
}

// The first and the last bound of the pauses of Enter. Hundreds of processes that wait
// every 10 ms for the next hub leave it no processor.
const (
	firstPause = 9 * time.Millisecond
	lastPause  = 250 * time.Millisecond
)

// longer returns the bound of the next pause: a process waits little longer than it has
// waited already.
func longer(pause time.Duration) time.Duration { return min(pause*3/2, lastPause) }

// Enter connects to the hub, or takes the hub lock if there is no hub: either
// the connection or the hub lock is not nil. While another process is becoming the hub, Enter
// retries, after longer and longer pauses, until ctx ends. It returns at once if a retry
// cannot help.
func (p *Socket) Enter(ctx context.Context) (net.Conn, *HubLock, error) {
	var taken error
	for longest := firstPause; ; longest = longer(longest) {
		conn, _, err := p.Dial(ctx)
		switch {
		case err == nil:
			return conn, nil, nil
		case ctx.Err() != nil:
			return nil, nil, errors.Join(err, taken, ctx.Err())
		case !absent(err):
			return nil, nil, err
		}
		var lock *HubLock
		if lock, taken = p.Take(); taken == nil || !errors.Is(taken, ErrTaken) {
			return nil, lock, taken
		}
		select {
		case <-time.After(time.Millisecond + rand.N(longest)):
		case <-ctx.Done():
		}
	}
}
