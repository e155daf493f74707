package listen

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// spareDescriptors is the number of connections that the ops listener accepts
// at the same time in a process without a free descriptor. One is not enough:
// a client that connects and sends nothing would keep it until headerTime ends.
const spareDescriptors = 4

// spares keeps descriptors for the time when the program's own work has used up
// all others. A nil spares keeps none.
type spares struct {
	mu    sync.Mutex // guards the fields below
	want  int
	files []*os.File
}

// spend closes a spare descriptor and reports whether there was one. The next
// accept can use it, unless other goroutines are faster.
func (s *spares) spend() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.files)
	if n == 0 {
		return false
	}
	_ = s.files[n-1].Close() // the descriptor is free even if Close fails
	s.files = s.files[:n-1]
	return true
}

// refill opens the missing descriptors, as far as the process can open any.
func (s *spares) refill() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.files) < s.want {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // the next call tries again
		}
		s.files = append(s.files, f)
	}
}

// close closes all descriptors for good.
func (s *spares) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = 0
	for _, f := range s.files {
		_ = f.Close() // opened for reading, and never read
	}
	s.files = nil
}

// outOfDescriptors reports whether the process or the system has no free
// descriptor.
func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
