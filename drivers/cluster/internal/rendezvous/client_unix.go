//go:build linux || darwin

package rendezvous

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ClientFile is a process that has connected here and may hold leases of the hub.
// It lives until Leave, or until its process ends.
type ClientFile struct {
	name  string
	nonce uint64
	file  *os.File
	left  atomic.Bool

	longest atomic.Int64 // the value in the file
	mu      sync.Mutex   // held while the file is written
}

// attempts is the number of names that a new client tries. A hub that cleans up can
// remove a new file before its client has locked it, but not each time.
const attempts = 100

// NewClient creates a client.
func (p *Socket) NewClient() (*ClientFile, error) {
	if err := p.makeFolders(); err != nil {
		return nil, err
	}
	var err error
	for range attempts {
		name := strings.ToLower(rand.Text())
		var f *os.File
		f, err = take(filepath.Join(p.path+clients, name), os.O_CREATE|os.O_EXCL)
		if err == nil {
			m := &ClientFile{name: name, nonce: mathrand.Uint64() | 1, file: f}
			if _, err = f.WriteAt(note(nonceMagic, int64(m.nonce)), 2*noteSize); err != nil { // the disk is full
				return nil, fmt.Errorf("socket %s: write the file of this client: %w", p.path, errors.Join(err, m.Leave(0)))
			}
			return m, nil
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
	}
	return nil, fmt.Errorf("socket %s: make a file for this client: %w", p.path, err)
}

// Name returns the name of the client. No other client ever has the same name.
func (m *ClientFile) Name() string { return m.name }

// Nonce returns the random number in the client's file. It proves to the hub
// that a process that claims the client's name is that client.
func (m *ClientFile) Nonce() uint64 { return m.nonce }

// Confirm returns an error unless the client of that name has this nonce. A
// name without a file belongs to no client. Confirm accepts it, because no hub
// waits for that name.
func (s *HubLock) Confirm(name string, nonce uint64) error {
	if name == "" || strings.ContainsAny(name, "./") {
		return fmt.Errorf("%q is not the name of a client file", name)
	}
	f, err := os.Open(filepath.Join(s.socket.path+clients, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the file was only read
	if readNote(f, nonceMagic, 2*noteSize) != int64(nonce) {
		return fmt.Errorf("the file of client %s does not confirm it", name)
	}
	return nil
}

// Check returns an error if the file was removed or replaced: the next hub
// would not wait for this client.
func (m *ClientFile) Check() error { return sameAs(m.file, m.file.Name()) }

// Bound records the maximum duration of this client's leases, before the client
// requests one. The maximum is ttl or the recorded value, whichever is longer.
// A client that never calls Bound has no leases.
func (m *ClientFile) Bound(ttl int64) error {
	if ttl <= m.longest.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ttl <= m.longest.Load() {
		return nil
	}
	if _, err := m.file.WriteAt(note(boundMagic, ttl), noteSize); err != nil {
		return fmt.Errorf("record the longest lease: %w", err)
	}
	m.longest.Store(ttl)
	return nil
}

// Longest returns the longest ttl that was passed to Bound.
func (m *ClientFile) Longest() int64 { return m.longest.Load() }

// Leave ends the client. The leases that it leaves behind, if any, are valid
// until expiry: the next hub waits for that. Leave is idempotent.
func (m *ClientFile) Leave(expiry int64) error {
	if m.left.Swap(true) {
		return nil
	}
	var err error
	if expiry == 0 {
		err = os.Remove(m.file.Name())
	} else {
		_, err = m.file.WriteAt(note(expiryMagic, expiry), 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, m.file.Close())
}

// A client's file has room for three notes: the expiry of the leases that the
// client has left behind, the maximum duration of its leases, and its nonce.
const (
	expiryMagic = "megawill"
	boundMagic  = "megalong"
	nonceMagic  = "meganonc"
	noteSize    = 16
)

func note(magic string, value int64) []byte {
	return binary.BigEndian.AppendUint64([]byte(magic), uint64(value))
}

// readNote returns the value of a note, or 0 if there is none. For content that
// is not a note it returns Never.
func readNote(f io.ReaderAt, magic string, at int64) int64 {
	b := make([]byte, noteSize)
	n, err := f.ReadAt(b, at)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return Never
	case bytes.Equal(b, make([]byte, noteSize)):
		return 0
	case n < noteSize || string(b[:len(magic)]) != magic:
		return Never
	}
	return int64(binary.BigEndian.Uint64(b[len(magic):]))
}

// Clients returns the names of the living clients. The leases that the other
// clients have left behind are valid until left, or left is 0; left is never
// beyond the expiry in the record. Clients removes the files of clients that
// left no lease valid after now. It touches the files of the living clients, so
// that a cleaner of temporary folders does not remove them.
//
// A process that becomes a client later holds no lease yet. If Clients cannot
// find out whether the client of a file lives, that client counts as living. No
// client makes a folder.
func (s *HubLock) Clients(now int64) (living []string, left int64, err error) {
	entries, err := os.ReadDir(s.socket.path + clients)
	if err != nil {
		return nil, 0, fmt.Errorf("list the clients: %w", err)
	}
	today := time.Now()
	for _, e := range entries {
		lives, expiry := s.look(e.Name(), now)
		if lives {
			living = append(living, e.Name())
			_ = os.Chtimes(filepath.Join(s.socket.path+clients, e.Name()), today, today) // the client may have left by now
		}
		left = max(left, expiry)
	}
	return living, min(left, s.left.Expiry), nil
}

// Lives reports whether the client of that name lives. If not, it cleans up the
// client's file and returns left, both as Clients does.
func (s *HubLock) Lives(name string, now int64) (lives bool, left int64) {
	lives, left = s.look(name, now)
	return lives, min(left, s.left.Expiry)
}

// Longest returns the maximum duration of the leases of the client of that
// name, from the moment of the grant, or 0 if the client never requested a
// lease. It returns Never if the client's file cannot be opened.
func (s *HubLock) Longest(name string) int64 {
	f, err := os.Open(filepath.Join(s.socket.path+clients, name))
	if err != nil {
		return Never
	}
	defer func() { _ = f.Close() }() // the file was only read
	return readNote(f, boundMagic, noteSize)
}

func (s *HubLock) look(name string, now int64) (lives bool, left int64) {
	if name == "" || strings.ContainsAny(name, "./") {
		return false, 0 // an invented name, not in this folder
	}
	path := filepath.Join(s.socket.path+clients, name)
	f, err := take(path, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMoved) && !errors.Is(err, syscall.EISDIR), 0
	}
	defer func() { _ = f.Close() }()
	if left = readNote(f, expiryMagic, 0); left > now {
		return false, left
	}
	_ = os.Remove(path) // if it fails, the next hub tries again
	return false, 0
}
