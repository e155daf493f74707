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

// Listener accepts those who come to the hub.
type Listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo // the file at path
	// Refused, if it is set, is told of each who came and is another user.
	Refused func(private.Peer)
}

// Listen opens the socket, in place of one that a hub before has left. It is
// closed with the seat. What is at the socket's path and was not left by a hub
// stays there, and is an error.
func (s *Seat) Listen() (*Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listen()
}

// Renew returns the listener where those who come still find it, and else opens
// the socket again and closes the one that was removed.
func (s *Seat) Renew() (*Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.listener
	if old != nil && old.there() {
		return old, nil
	}
	l, err := s.listen()
	if err == nil && old != nil {
		_ = old.UnixListener.Close() // nobody can come to it any more
	}
	return l, err
}

// listen expects the seat locked.
func (s *Seat) listen() (*Listener, error) {
	if err := s.verify(); err != nil {
		return nil, err
	}
	path := s.place.path
	if err := vacant(path); err != nil {
		return nil, err
	}
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s.listener = &Listener{UnixListener: l, path: path, made: made}
	return s.listener, nil
}

// listen opens a socket under another name, and takes that of path when it can
// answer. Nobody else does that, so a socket of that name was left by a hub
// that was killed meanwhile.
func listen(path string) (*net.UnixListener, error) {
	first := path + nascent
	if err := vacant(first); err != nil {
		return nil, err
	}
	if err := os.Remove(first); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: first, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // that would remove the first name
	err = os.Chmod(first, 0o600)
	if err == nil {
		err = os.Rename(first, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(first))
	}
	return l, nil
}

// patience is how long the socket of a hub that was killed may still answer:
// the kernel closes what a process had open in no useful order.
const patience = time.Second

// vacant refuses a path at which there is something that no hub has left: a
// file, or a socket at which somebody listens. It expects that no hub lives.
func vacant(path string) error {
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case info.Mode().Type() != fs.ModeSocket:
			return fmt.Errorf("%s is no socket (%v): remove it, or choose another path", path, info.Mode())
		}
		peer, err := knock(path)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Since(start) > patience {
			return fmt.Errorf("%s is served by another program (process %d): end it, or choose another path", path, peer.PID)
		}
	}
}

// knock connects and goes away.
func knock(path string) (private.Peer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return private.Peer{}, err
	}
	defer conn.Close()
	return private.PeerOf(conn)
}

// Accept waits for the next process of this user.
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

// Addr is the socket's path.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// there reports whether the file at the path is the one that was made.
func (l *Listener) there() bool {
	info, err := os.Lstat(l.path)
	return err == nil && os.SameFile(l.made, info)
}

// end closes the socket, and removes it where it is still the hub's to remove.
func (l *Listener) end(ours bool) error {
	var err error
	if ours && l.there() {
		err = os.Remove(l.path) // first, so that nobody finds it and is refused
	}
	if closing := l.UnixListener.Close(); !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}

// Dial connects to the hub, and makes sure that it is this user's. It returns
// who the hub is.
func (p *Place) Dial(ctx context.Context) (net.Conn, private.Peer, error) {
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

// absent says of an error of Dial that there is no hub just now, or none that
// has time.
func absent(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EAGAIN, fs.ErrNotExist} {
		if errors.Is(err, e) {
			return true
		}
	}
	return os.IsTimeout(err)
}

// Enter connects to the hub, or takes its seat where there is none: one of conn
// and seat is not nil. While another process is about to become the hub it tries
// again, every 1 to 10 ms, until ctx ends. What trying again does not mend is
// returned at once.
func (p *Place) Enter(ctx context.Context) (net.Conn, *Seat, error) {
	var taken error
	for {
		conn, _, err := p.Dial(ctx)
		switch {
		case err == nil:
			return conn, nil, nil
		case ctx.Err() != nil:
			return nil, nil, errors.Join(err, taken, ctx.Err())
		case !absent(err):
			return nil, nil, err
		}
		var seat *Seat
		if seat, taken = p.Take(); taken == nil || !errors.Is(taken, ErrTaken) {
			return nil, seat, taken
		}
		select {
		case <-time.After(time.Millisecond + rand.N(9*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}
