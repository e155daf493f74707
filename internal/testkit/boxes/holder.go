package boxes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/megaframework/mega/lock"
)

// Point is a point at which a holder can be killed.
type Point string

// The points, each in the midst of a step.
const (
	Cleaning  Point = "cleaning"  // Cleanup of a box that another holder has left, half done
	Preparing Point = "preparing" // Init, with the resident started
	Working   Point = "working"   // the work
	Leaving   Point = "leaving"   // Cleanup after the work, half done
)

// Holder is a holder of one box at a time: a process, or its stand-in where all
// holders are in one process.
type Holder struct {
	// At, if set, is called at each point, for as long as the holder stays there.
	At func(Point, *lock.Slot)

	dir  string
	log  *log
	life *os.File // residents inherit it, and end at its end of file

	prepared uint64 // the fence of the last lease that was prepared
	children sync.WaitGroup
}

// Open returns a holder of the boxes in the folder dir, with a name of its own.
// Its residents run until they are ended, or until life is at its end of file. The
// caller must
// close the holder.
func Open(dir, name string, life *os.File) (*Holder, error) {
	l, err := openLog(dir, name)
	if err != nil {
		return nil, err
	}
	return &Holder{At: func(Point, *lock.Slot) {}, dir: dir, log: l, life: life}, nil
}

// Close waits for the end of the residents that this holder has started.
func (h *Holder) Close() error {
	h.children.Wait()
	return h.log.Close()
}

// Pool returns a pool of boxes, which this holder alone may use.
func (h *Holder) Pool(key string, size int) *lock.Pool {
	return &lock.Pool{Key: key, Size: size, Init: h.init, Cleanup: h.cleanup, CleanupTimeout: time.Hour}
}

// Use takes a box of p, and leaves it when At returns.
func (h *Holder) Use(ctx context.Context, l *lock.Locker, p *lock.Pool, opts ...lock.Option) error {
	return l.WithSlot(ctx, p, func(_ context.Context, s *lock.Slot) error {
		h.At(Working, s)
		if s.Lease.Err() != nil {
			h.log.write(lost, s, nil)
		}
		return nil
	}, opts...)
}

func (h *Holder) init(_ context.Context, s *lock.Slot) error {
	h.prepared = s.Fence()
	h.log.write(preparing, s, nil)
	err := h.settle(h.box(s))
	h.At(Preparing, s)
	h.log.write(prepared, s, err)
	return err
}

func (h *Holder) cleanup(ctx context.Context, s *lock.Slot) error {
	point := Cleaning
	if h.prepared == s.Fence() {
		point = Leaving
	}
	h.log.write(cleaning, s, nil)
	b := h.box(s)
	ended, err := b.evict()
	h.At(point, s)
	if err = errors.Join(err, context.Cause(ctx)); err == nil {
		err = b.empty()
	}
	if ended && point == Cleaning {
		h.log.write(evicted, s, nil)
	}
	h.log.write(cleaned, s, err)
	return err
}

// box is the folder of one slot. Its file "resident" is there from Init until
// Cleanup, with the process id of the resident as soon as there is one. A
// resident holds a lock of the operating system on the file "life": it is gone
// when the lock is.
type box string

// patience is how long a step waits for what takes milliseconds on an idle machine.
const patience = time.Minute

func (h *Holder) box(s *lock.Slot) box { return box(filepath.Join(h.dir, strconv.Itoa(s.Number()))) }

func (b box) file(name string) string { return filepath.Join(string(b), name) }

// settle starts a resident in an empty box.
func (h *Holder) settle(b box) error {
	if err := os.MkdirAll(string(b), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(b.file("resident"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("the box is not empty: %w", err)
	}
	_ = f.Close() // nothing was written
	life, _, err := b.lock(nil)
	if err != nil {
		return fmt.Errorf("a resident lives in an empty box: %w", err)
	}
	defer func() { _ = life.Close() }()
	cmd := exec.Command("sh", "-c", `echo $$ >"$0"; exec cat`, b.file("resident"))
	cmd.Stdin, cmd.ExtraFiles = h.life, []*os.File{life}
	cmd.SysProcAttr = ofItsOwn()
	if err := cmd.Start(); err != nil {
		return err
	}
	h.children.Go(func() { _ = cmd.Wait() }) // it was killed, or has read to the end
	return nil
}

// evict ends the resident of the box, and reports whether there was one.
func (b box) evict() (ended bool, err error) {
	if _, err := os.Stat(string(b)); errors.Is(err, os.ErrNotExist) {
		return false, nil // never used
	}
	life, ended, err := b.lock(func() {
		text, _ := os.ReadFile(b.file("resident")) // it may not have written it yet
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			_ = kill(pid) // it may be dead
		}
	})
	if err != nil {
		return ended, err
	}
	return ended, life.Close()
}

// lock opens the file that a resident of the box has locked, and locks it. It
// calls taken for as long as there is a resident, and reports whether there was
// one.
func (b box) lock(taken func()) (f *os.File, found bool, err error) {
	f, err = os.OpenFile(b.file("life"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		err = lockFile(f)
		switch {
		case err == nil:
			return f, found, nil
		case time.Now().After(end):
			_ = f.Close() // it has no data
			return nil, found, err
		case taken != nil:
			taken()
		}
		found = true
	}
}

// empty marks the box as empty.
func (b box) empty() error {
	if err := os.Remove(b.file("resident")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
