//go:build linux || darwin

package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/megaframework/mega/internal/private"
)

// How far ahead a hub records what it gives, so that it seldom has to: the
// expiry is what a process that is stopped during a take-over may cost the
// others beyond its lease; fences follow the microseconds since 1970.
const (
	expiryStep = int64(250 * time.Millisecond)
	fenceStep  = uint64(65_536)
)

// Seat is the hub's: as long as a process has it, no other has. It ends with
// Close, or with the process. Its methods may be called concurrently.
type Seat struct {
	place *Place
	left  Record
	fresh bool            // the lock file is new: it knows nothing of an earlier hub
	old   map[string]bool // with a fresh one, the sockets of an earlier hub
	blind bool            // with a fresh one, these cannot be found out

	// What the record in the file covers of this hub's own gifts.
	expiry atomic.Int64
	fence  atomic.Uint64

	mu        sync.Mutex // guards the fields below; a record is written under it
	file      *os.File
	latest    entry // in the file
	inherited int64 // the expiry of what earlier hubs gave
	listener  *Listener
	broken    error // why this seat counts no longer
}

// Take takes the seat. It returns an error that wraps ErrTaken while another
// process has it.
func (p *Place) Take() (*Seat, error) {
	if err := p.furnish(); err != nil {
		return nil, err
	}
	path := p.path + locked
	f, err := take(path, os.O_CREATE)
	for errors.Is(err, errMoved) {
		f, err = take(path, os.O_CREATE)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, p.taken()
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: its lock file: %w", p.path, err)
	}
	s, err := p.sit(f)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", p.path, errors.Join(err, f.Close()))
	}
	return s, nil
}

// taken says by whom, as far as he has written it down.
func (p *Place) taken() error {
	content, err := os.ReadFile(p.path + locked)
	if err == nil {
		if e, err := decode(content, bootID()); err == nil && e.record.PID != 0 {
			return fmt.Errorf("%w: process %d%s", ErrTaken, e.record.PID, p.hidden())
		}
	}
	return ErrTaken
}

// hidden says that the hub cannot be found, where that is so.
func (p *Place) hidden() string {
	if _, err := os.Lstat(p.path); errors.Is(err, fs.ErrNotExist) {
		return ", whose socket " + p.path + " was removed: it puts it back within seconds, unless it is stopped"
	}
	return ""
}

// sit reads what the last hub left in the lock file, and writes itself down.
func (p *Place) sit(f *os.File) (*Seat, error) {
	content, err := io.ReadAll(io.LimitReader(f, recordSize))
	if err != nil {
		return nil, fmt.Errorf("read its lock file: %w", err)
	}
	boot := bootID()
	last, err := decode(content, boot)
	if err != nil {
		return nil, fmt.Errorf("its lock file %s cannot be used: %w", f.Name(), err)
	}
	s := &Seat{place: p, file: f, fresh: len(content) == 0}
	if s.fresh { // the first hub ever, or somebody has removed the file of the last one
		last.record = Record{Boot: boot, Expiry: Never}
		s.old, err = elders(p.path)
		s.blind = err != nil
	}
	s.left = last.record.on(boot)
	s.inherited = s.left.Expiry
	s.latest = entry{last.number, Record{Boot: boot, PID: uint64(os.Getpid())}}
	s.fence.Store(s.left.Fence)
	return s, s.raise(0, 0)
}

// Fresh reports whether the lock file is new: there was no hub in this boot, or
// somebody has removed the file of one that may still serve.
func (s *Seat) Fresh() bool { return s.fresh }

// Contested reports whether a hub may still serve whose files somebody has
// removed. It notices within a second, or when it continues if it is stopped.
func (s *Seat) Contested() bool {
	if s.blind || len(s.old) == 0 {
		return false
	}
	now, err := elders(s.place.path)
	for inode := range s.old {
		if !now[inode] && err == nil {
			delete(s.old, inode)
		}
	}
	return len(s.old) > 0
}

// Blind reports whether Contested cannot be found out on this system.
func (s *Seat) Blind() bool { return s.blind }

// Left is what the last hub left, with zero for all that there is nothing of.
// If it cannot be known, or if there was none, Expiry is Never.
func (s *Seat) Left() Record { return s.left }

// Cover makes the record cover a lease until expiry with fence, before the hub
// reports the lease to its client. After an error the seat is lost: the hub
// reports nothing any more.
func (s *Seat) Cover(expiry int64, fence uint64) error {
	if expiry <= s.expiry.Load() && fence <= s.fence.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if expiry > s.expiry.Load() {
		expiry += expiryStep
	}
	if fence > s.fence.Load() {
		fence += fenceStep
	}
	return s.raise(expiry, fence)
}

// raise writes the higher bounds, and then lets Cover rely on them.
func (s *Seat) raise(expiry int64, fence uint64) error {
	expiry, fence = max(expiry, s.expiry.Load()), max(fence, s.fence.Load())
	s.latest.record.Expiry = max(expiry, s.inherited)
	s.latest.record.Fence = fence
	if err := s.write(); err != nil {
		return err
	}
	s.expiry.Store(expiry)
	s.fence.Store(fence)
	return nil
}

// Settle says that nothing is left of what earlier hubs gave, but for what
// Cover was told since.
func (s *Seat) Settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inherited = 0
	return s.raise(0, 0)
}

// Check returns an error if the seat is lost: somebody removed the lock file, and
// another process may sit by now.
func (s *Seat) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verify()
}

// Touch keeps the files from looking old to a program that cleans temporary
// folders.
func (s *Seat) Touch() {
	now := time.Now()
	for _, path := range []string{s.place.path, s.place.path + locked} {
		_ = os.Chtimes(path, now, now) // Check finds a missing one
	}
}

// verify expects the seat locked.
func (s *Seat) verify() error {
	if s.broken == nil {
		s.broken = sameAs(s.file, s.file.Name())
	}
	return s.broken
}

// write writes the latest record over the older of the two copies. It expects
// the seat locked.
func (s *Seat) write() error {
	if err := s.verify(); err != nil {
		return err
	}
	s.latest.number++
	_, err := s.file.WriteAt(s.latest.encode(), int64(s.latest.number%2)*copySize)
	if err != nil {
		s.broken = fmt.Errorf("record what the hub has given: %w", err)
	}
	return s.broken
}

// Close removes the socket and gives the seat up. It is idempotent.
func (s *Seat) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.broken, os.ErrClosed) {
		return nil
	}
	lost := s.verify() != nil
	s.broken = fmt.Errorf("the seat at %s: %w", s.place.path, os.ErrClosed)
	var err error
	if s.listener != nil {
		err = s.listener.end(!lost)
	}
	return errors.Join(err, s.file.Close())
}

// ours reports that a peer is the same user as this process.
func ours(p private.Peer) bool { return p.UID == os.Geteuid() }
