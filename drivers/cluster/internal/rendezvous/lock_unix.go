//go:build linux || darwin

package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/megaframework/mega/internal/private"
)

// How far ahead a hub records its leases, so that it seldom has to write. The
// expiry is the time by which a process that is stopped during a take-over may
// delay the others beyond its lease. Fences follow the microseconds since 1970.
const (
	expiryStep = int64(250 * time.Millisecond)
	fenceStep  = uint64(65_536)
)

// HubLock is the role of the hub: at most one process has it. It ends with Close,
// or with the process. Its methods may be called concurrently.
type HubLock struct {
	socket *Socket
	left   Record
	fresh  bool // the lock file is new, or no hub has settled since it was
	blind  bool // with a fresh one, the sockets of an earlier hub cannot be listed

	followsRemoved bool // with a fresh one, an earlier hub had sockets

	// The bounds of this hub's own leases that the record in the file covers.
	expiry atomic.Int64
	fence  atomic.Uint64

	// opening guards listener. It is held while the socket is opened, which takes
	// seconds where another program answers at its path; leases are recorded
	// meanwhile. It is taken before mu.
	opening  sync.Mutex
	listener *Listener

	mu        sync.Mutex      // guards the fields below; a record is written under it
	old       map[string]bool // with a fresh lock file, the sockets of an earlier hub
	file      *os.File
	latest    entry // the record in the file
	inherited int64 // the expiry of the leases of earlier hubs
	broken    error // why this hub lock is no longer valid
}

// Take takes the hub lock. It returns an error that wraps ErrTaken while another
// process has the hub lock.
func (p *Socket) Take() (*HubLock, error) {
	if err := p.makeFolders(); err != nil {
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
	s, err := p.newHubLock(f)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", p.path, errors.Join(err, f.Close()))
	}
	return s, nil
}

// taken returns the ErrTaken error, with the hub's process id if the hub has
// recorded it.
func (p *Socket) taken() error {
	content, err := os.ReadFile(p.path + locked)
	if err == nil {
		if e, err := decode(content, bootID()); err == nil && e.record.PID != 0 {
			return fmt.Errorf("%w: process %d%s", ErrTaken, e.record.PID, p.hidden())
		}
	}
	return ErrTaken
}

// hidden returns a note for errors if clients cannot find the hub.
func (p *Socket) hidden() string {
	if _, err := os.Lstat(p.path); errors.Is(err, fs.ErrNotExist) {
		return ", whose socket " + p.path + " was removed: it puts it back within seconds, unless it is stopped"
	}
	return ""
}

// newHubLock reads the last hub's record in the lock file, and writes the
// record of this process.
func (p *Socket) newHubLock(f *os.File) (*HubLock, error) {
	content, err := io.ReadAll(io.LimitReader(f, recordSize))
	if err != nil {
		return nil, fmt.Errorf("read its lock file: %w", err)
	}
	boot := bootID()
	last, err := decode(content, boot)
	if err != nil {
		return nil, fmt.Errorf("its lock file %s cannot be used: %w", f.Name(), err)
	}
	s := &HubLock{socket: p, file: f}
	if len(content) == 0 { // the first hub ever, or the file of the last one was removed
		last.record = Record{Boot: boot, Expiry: Never}
	}
	s.left = last.record.on(boot)
	if s.left.Expiry == Never { // or the last hub ended before it settled
		s.fresh = true
		s.old, err = earlierSockets(p.path)
		s.blind, s.followsRemoved = err != nil, len(s.old) > 0
	}
	s.inherited = s.left.Expiry
	s.latest = entry{last.number, Record{Boot: boot, PID: uint64(os.Getpid()), Epoch: s.left.Epoch, Hub: rand.Uint64() | 1}}
	s.fence.Store(s.left.Fence)
	_ = os.WriteFile(s.mark(began), nil, 0o600) // without a mark, the next hub waits for longer
	return s, s.raise(0, 0)
}

// Fresh reports whether no hub has settled since the lock file was new: there was
// none in this boot, or the file of a hub that may still serve was removed.
func (s *HubLock) Fresh() bool { return s.fresh }

// Contested reports whether a hub whose files were removed may still serve.
// Such a hub notices the removal within a second, or when it continues if it is
// stopped.
func (s *HubLock) Contested() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.old) == 0 {
		return false
	}
	now, err := earlierSockets(s.socket.path)
	for inode := range s.old {
		if !now[inode] && err == nil {
			delete(s.old, inode)
		}
	}
	return len(s.old) > 0
}

// FollowsRemoved reports whether a hub whose files were removed served when this lock
// was taken. It may have ended since: such a hub leaves a mark, or was seen here.
func (s *HubLock) FollowsRemoved() bool { return s.followsRemoved }

// Blind reports whether this system cannot determine the result of Contested.
func (s *HubLock) Blind() bool { return s.blind }

// Left returns the record of the last hub, with zero for missing values. If the
// record cannot be read, or if there was no hub, Expiry is Never.
func (s *HubLock) Left() Record { return s.left }

// Hub returns the number of this hub.
func (s *HubLock) Hub() uint64 { return s.latest.record.Hub } // it does not change

// Cover makes the record cover a lease until expiry with fence, before the hub
// reports the lease to its client. After an error the hub lock is lost, and the
// hub reports no further lease.
func (s *HubLock) Cover(expiry int64, fence uint64) error {
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

// raise writes the higher bounds, and then lets Cover use them.
func (s *HubLock) raise(expiry int64, fence uint64) error {
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

// Epoch returns the epoch that the first hub of this boot has recorded. If there
// is none, it records this one.
func (s *HubLock) Epoch(micros int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest.record.Epoch == 0 {
		s.latest.record.Epoch = micros
		if err := s.write(); err != nil {
			return 0, err
		}
	}
	return s.latest.record.Epoch, nil
}

// Settle records that no lease of an earlier hub is left. The record then
// covers only the leases that were passed to Cover.
func (s *HubLock) Settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inherited = 0
	_ = os.Remove(s.mark(lost))
	_ = os.Rename(s.mark(began), s.mark(settled)) // it fails if the clients of this hub may have no files
	return s.raise(0, 0)
}

// RecordLoss records, before this hub closes its connections, that its lock file was removed
// while its clients may have had leases. The next hub may be a process that never met it, and
// find none of its files: by the record, it waits for those clients.
func (s *HubLock) RecordLoss() {
	if s.socket.makeFolders() == nil {
		_ = os.WriteFile(s.mark(lost), nil, 0o600)
	}
}

// FollowsLost reports whether a hub has recorded its loss, and none has settled since.
func (s *HubLock) FollowsLost() bool {
	_, err := os.Lstat(s.mark(lost))
	return err == nil
}

func (s *HubLock) mark(name string) string {
	return filepath.Join(s.socket.path+clients, name)
}

// Emptied reports whether the folder of the clients was removed or emptied after a hub had
// settled. A client that is stopped, and may hold a lease, has no file then.
func (s *HubLock) Emptied() bool {
	_, err := os.Lstat(s.mark(settled))
	return err != nil && s.left.Expiry != Never
}

// Check returns an error if the hub lock is lost: the lock file was removed, and
// another process may have taken the hub lock.
func (s *HubLock) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verify()
}

// Touch updates the times of the files, so that a cleaner of temporary folders
// does not remove them.
func (s *HubLock) Touch() {
	now := time.Now()
	for _, path := range []string{s.socket.path, s.socket.path + locked, s.mark(settled)} {
		_ = os.Chtimes(path, now, now) // Check reports a missing file
	}
}

// verify returns an error if the hub lock is lost. The caller holds s.mu.
func (s *HubLock) verify() error {
	if s.broken == nil {
		s.broken = sameAs(s.file, s.file.Name())
	}
	return s.broken
}

// write writes the latest record over the older of the two copies. The caller
// holds s.mu.
func (s *HubLock) write() error {
	if err := s.verify(); err != nil {
		return err
	}
	s.latest.number++
	_, err := s.file.WriteAt(s.latest.encode(), int64(s.latest.number%2)*copySize)
	if err != nil {
		s.broken = fmt.Errorf("write the record of the hub: %w", err)
	}
	return s.broken
}

// Close removes the socket and gives up the hub lock. It is idempotent.
func (s *HubLock) Close() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(s.broken, os.ErrClosed) {
		return nil
	}
	lost := s.verify() != nil
	s.broken = fmt.Errorf("hub lock of %s: %w", s.socket.path, os.ErrClosed)
	var err error
	if s.listener != nil {
		err = s.listener.end(!lost)
	}
	return errors.Join(err, s.file.Close())
}

// ours reports whether a process belongs to the same user as this process.
func ours(p private.Peer) bool { return p.UID == os.Geteuid() }
