//go:build linux || darwin

package rendezvous

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Member is one who has met here and may hold something that the hub gave. It
// lives until Leave, or as long as its process.
type Member struct {
	name string
	file *os.File
	left atomic.Bool
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
			return &Member{name: name, file: f}, nil
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
	}
	return nil, fmt.Errorf("socket %s: make a file for this client: %w", p.path, err)
}

// Name tells the member from all others that ever were.
func (m *Member) Name() string { return m.name }

// Check returns an error if the file was removed or replaced: the next hub will
// not wait for this member. It also keeps the file from looking old.
func (m *Member) Check() error {
	now := time.Now()
	_ = os.Chtimes(m.file.Name(), now, now) // a missing one is found out now
	return sameAs(m.file, m.file.Name())
}

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
		_, err = m.file.WriteAt(will(expiry), 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, m.file.Close())
}

// A will is what a member's file holds once it has left something behind.
const willMagic = "megawill"

func will(expiry int64) []byte {
	return binary.BigEndian.AppendUint64([]byte(willMagic), uint64(expiry))
}

func readWill(f *os.File) int64 {
	b := make([]byte, len(willMagic)+8)
	if _, err := f.ReadAt(b, 0); err != nil || string(b[:len(willMagic)]) != willMagic {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b[len(willMagic):]))
}

// Members returns the names of those who live. What those who do not live have
// left behind is good until left, or 0; it is never beyond what the record
// says. The files of those who left nothing that is good after now are removed.
//
// Whoever joins later holds nothing yet. A file of which cannot be found out
// whether its member lives counts as one who does.
func (s *Seat) Members(now int64) (living []string, left int64, err error) {
	entries, err := os.ReadDir(s.place.path + clients)
	if err != nil {
		return nil, 0, fmt.Errorf("look who lives: %w", err)
	}
	for _, e := range entries {
		lives, expiry := s.look(e.Name(), now)
		if lives {
			living = append(living, e.Name())
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
	if left = readWill(f); left > now {
		return false, left
	}
	_ = os.Remove(path) // the next hub tries again
	return false, 0
}
