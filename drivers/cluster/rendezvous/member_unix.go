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

// Member is one who has met here and may hold something that the hub gave. It
// lives until Leave, or as long as its process.
type Member struct {
	name  string
	nonce uint64
	file  *os.File
	left  atomic.Bool

	longest atomic.Int64 // what the file says
	mu      sync.Mutex   // of who writes it
}

// attempts is how often a new member looks for a name. A hub that clears up
// can be faster than the lock on a new file, once; not every time.
const attempts = 100

// Join makes a member.
func (p *Place) Join() (*Member, error) {
	if err := p.furnish(); err != nil {
		return nil, err
	}
	var err error
	for range attempts {
		name := strings.ToLower(rand.Text())
		var f *os.File
		f, err = take(filepath.Join(p.path+clients, name), os.O_CREATE|os.O_EXCL)
		if err == nil {
			m := &Member{name: name, nonce: mathrand.Uint64() | 1, file: f}
			if _, err = f.WriteAt(note(nonceMagic, int64(m.nonce)), 2*noteSize); err != nil {
				return nil, fmt.Errorf("socket %s: write the file of this client: %w", p.path, errors.Join(err, f.Close()))
			}
			return m, nil
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
	}
	return nil, fmt.Errorf("socket %s: make a file for this client: %w", p.path, err)
}

// Name tells the member from all others that ever were.
func (m *Member) Name() string { return m.name }

// Nonce is a random number in the member's file, which proves to the hub that the
// process of a name is the member of that name.
func (m *Member) Nonce() uint64 { return m.nonce }

// Confirm returns an error unless the member of that name has this nonce. A member
// whose file was removed is nobody's, and confirmed: no hub waits for it.
func (s *Seat) Confirm(name string, nonce uint64) error {
	if name == "" || strings.ContainsAny(name, "./") {
		return fmt.Errorf("the name %q is not that of a file", name)
	}
	f, err := os.Open(filepath.Join(s.place.path+clients, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	if readNote(f, nonceMagic, 2*noteSize) != int64(nonce) {
		return fmt.Errorf("the file of client %s does not confirm it", name)
	}
	return nil
}

// Check returns an error if the file was removed or replaced: the next hub will
// not wait for this member.
func (m *Member) Check() error { return sameAs(m.file, m.file.Name()) }

// Bound says, before anything of the kind is asked for, that what the hub gives
// this member is good for ttl at most, or for what was said before, whichever is
// longer. A member that never says so has nothing.
func (m *Member) Bound(ttl int64) error {
	if ttl <= m.longest.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ttl <= m.longest.Load() {
		return nil
	}
	if _, err := m.file.WriteAt(note(boundMagic, ttl), noteSize); err != nil {
		return fmt.Errorf("note how long leases are: %w", err)
	}
	m.longest.Store(ttl)
	return nil
}

// Longest is the longest ttl of Bound.
func (m *Member) Longest() int64 { return m.longest.Load() }

// Leave ends the member. What it leaves behind, if anything, is good until
// expiry: a hub that comes to the seat waits for that. It is idempotent.
func (m *Member) Leave(expiry int64) error {
	if m.left.Swap(true) {
		return nil
	}
	var err error
	if expiry == 0 {
		err = os.Remove(m.file.Name())
	} else {
		_, err = m.file.WriteAt(note(willMagic, expiry), 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, m.file.Close())
}

// A member's file has room for three notes: until when the leases that it has left
// behind are good, for how long at most its leases are, and its nonce.
const (
	willMagic  = "megawill"
	boundMagic = "megalong"
	nonceMagic = "meganonc"
	noteSize   = 16
)

func note(magic string, value int64) []byte {
	return binary.BigEndian.AppendUint64([]byte(magic), uint64(value))
}

// readNote returns the value of a note, or 0 if there is none. Of what is no note
// it is Never.
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

// Members returns the names of those who live. What those who do not live have
// left behind is good until left, or 0; it is never beyond what the record
// says. The files of those who left nothing that is good after now are removed,
// and those of the living do not look old to whatever cleans temporary folders.
//
// Whoever joins later holds nothing yet. A file of which cannot be found out
// whether its member lives counts as one who does.
func (s *Seat) Members(now int64) (living []string, left int64, err error) {
	entries, err := os.ReadDir(s.place.path + clients)
	if err != nil {
		return nil, 0, fmt.Errorf("look who lives: %w", err)
	}
	today := time.Now()
	for _, e := range entries {
		lives, expiry := s.look(e.Name(), now)
		if lives {
			living = append(living, e.Name())
			_ = os.Chtimes(filepath.Join(s.place.path+clients, e.Name()), today, today) // it may have left by now
		}
		left = max(left, expiry)
	}
	return living, min(left, s.left.Expiry), nil
}

// Lives reports whether the member of that name lives. If not it clears up after
// it, as Members does, and left is as there.
func (s *Seat) Lives(name string, now int64) (lives bool, left int64) {
	lives, left = s.look(name, now)
	return lives, min(left, s.left.Expiry)
}

// Longest returns for how long at most what the member of that name was given is
// good, from when it was given; 0 if it never asked for anything.
func (s *Seat) Longest(name string) int64 {
	f, err := os.Open(filepath.Join(s.place.path+clients, name))
	if err != nil {
		return Never
	}
	defer func() { _ = f.Close() }() // it was only read
	return readNote(f, boundMagic, noteSize)
}

func (s *Seat) look(name string, now int64) (lives bool, left int64) {
	if name == "" || strings.ContainsAny(name, "./") {
		return false, 0 // somebody's invention, and nowhere in our folder
	}
	path := filepath.Join(s.place.path+clients, name)
	f, err := take(path, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMoved), 0
	}
	defer func() { _ = f.Close() }()
	if left = readNote(f, willMagic, 0); left > now {
		return false, left
	}
	_ = os.Remove(path) // the next hub tries again
	return false, 0
}
