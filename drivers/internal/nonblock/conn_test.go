package nonblock_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/internal/nonblock"
)

// eachKind calls fn with two connected sockets of each kind, of which both are
// connections of this package.
func eachKind(t *testing.T, fn func(t *testing.T, here, there net.Conn)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			here, there := connected(t, network)
			fn(t, nonblock.Conn(here), nonblock.Conn(there))
		})
	}
}

func connected(t *testing.T, network string) (here, there net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

func TestBytesArriveInBothDirectionsAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, here, there net.Conn) {
		sent := make([]byte, 5<<20+1)
		for i := range sent {
			sent[i] = byte(rand.Uint32())
		}
		var all sync.WaitGroup
		for _, way := range [][2]net.Conn{{here, there}, {there, here}} {
			all.Go(func() {
				if n, err := way[0].Write(sent); n != len(sent) || err != nil {
					t.Errorf("Write = %d, %v", n, err)
				}
			})
			all.Go(func() {
				got := make([]byte, len(sent))
				if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, sent) {
					t.Errorf("ReadFull: %v, the same bytes: %v", err, bytes.Equal(got, sent))
				}
			})
		}
		all.Wait()
	})
}

func TestConcurrentWritesDoNotMix(t *testing.T) {
	const size, writers = 300 << 10, 8
	eachKind(t, func(t *testing.T, here, there net.Conn) {
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() { _, _ = here.Write(bytes.Repeat([]byte{byte(i)}, size)) }) // the reader misses what is lost
		}
		for range writers {
			block := make([]byte, size)
			if _, err := io.ReadFull(there, block); err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(block, block[:1]); n != size {
				t.Errorf("a block of %d bytes has %d of its first one", size, n)
			}
		}
		all.Wait()
	})
}

func TestADeadlineEndsAWriteWhichReportsWhatItHasWritten(t *testing.T) {
	eachKind(t, func(t *testing.T, here, there net.Conn) {
		var n int
		var err error
		sent := make([]byte, 64<<20) // more than the buffers of the system hold
		var all sync.WaitGroup
		all.Go(func() { n, err = here.Write(sent) })
		if _, err := io.ReadFull(there, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		_ = here.SetWriteDeadline(time.Unix(1, 0))
		all.Wait()
		if n == 0 || n == len(sent) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write = %d, %v", n, err)
		}
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			t.Errorf("the error of Write is no timeout: %v", err)
		}
		if got, err := io.CopyN(io.Discard, there, int64(n-1)); err != nil {
			t.Errorf("the other side received %d of %d bytes: %v", got, n-1, err)
		}
		_ = here.SetWriteDeadline(time.Time{})
		if _, err := here.Write([]byte{1}); err != nil {
			t.Errorf("Write without a deadline: %v", err)
		}
	})
}

func TestADeadlineEndsReadsThatWait(t *testing.T) {
	eachKind(t, func(t *testing.T, here, _ net.Conn) {
		var all sync.WaitGroup
		for range 2 { // the second one waits for the first
			all.Go(func() {
				if _, err := here.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("Read: %v", err)
				}
			})
		}
		_ = here.SetReadDeadline(time.Unix(1, 0))
		all.Wait()
	})
}

func TestCloseEndsAReadAndAWrite(t *testing.T) {
	eachKind(t, func(t *testing.T, here, _ net.Conn) {
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := here.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read: %v", err)
			}
		})
		all.Go(func() {
			if _, err := here.Write(make([]byte, 64<<20)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write: %v", err)
			}
		})
		_ = here.Close()
		all.Wait()
	})
}

func TestTheOtherSideHasEnded(t *testing.T) {
	eachKind(t, func(t *testing.T, here, there net.Conn) {
		if _, err := there.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		_ = there.Close()
		got, err := io.ReadAll(here)
		if string(got) != "last words" || err != nil {
			t.Errorf("ReadAll = %q, %v", got, err)
		}
	})
}

// TestErrorsAreThoseOfTheStandardLibrary compares each error with that of a
// connection of package net in the same state.
func TestErrorsAreThoseOfTheStandardLibrary(t *testing.T) {
	states := map[string]func(here, there net.Conn){
		"closed":      func(here, _ net.Conn) { _ = here.Close() },
		"past":        func(here, _ net.Conn) { _ = here.SetDeadline(time.Unix(1, 0)) },
		"other ended": func(_, there net.Conn) { _ = there.Close() },
		"reset": func(_, there net.Conn) {
			if tcp, ok := there.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = there.Close()
		},
	}
	for name, enter := range states {
		for _, network := range []string{"tcp", "unix"} {
			t.Run(name+" "+network, func(t *testing.T) {
				result := func(wrap func(net.Conn) net.Conn) (text string, errs []error) {
					here, there := connected(t, network)
					enter(here, there)
					c := wrap(here)
					_, err := c.Read(make([]byte, 1))
					errs = append(errs, err)
					text = strings.NewReplacer(here.LocalAddr().String(), "HERE", here.RemoteAddr().String(), "THERE").Replace(err.Error())
					for range 3 { // the first write after the end of the other side succeeds on TCP
						_, err = c.Write([]byte{1})
						errs = append(errs, err)
					}
					return text, errs
				}
				text, errs := result(nonblock.Conn)
				want, wanted := result(func(c net.Conn) net.Conn { return c })
				if text != want {
					t.Errorf("the error of Read is\n%s\nwant\n%s", text, want)
				}
				for i := range errs {
					for _, cause := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNRESET} {
						if errors.Is(errs[i], cause) != errors.Is(wanted[i], cause) {
							t.Errorf("call %d: %v, want %v", i, errs[i], wanted[i])
						}
					}
				}
			})
		}
	}
}

// hidden is a connection of another kind.
type hidden struct{ net.Conn }

func TestAnotherConnectionStaysAsItIs(t *testing.T) {
	here, _ := connected(t, "tcp")
	if got := nonblock.Conn(hidden{here}); got != (hidden{here}) {
		t.Errorf("Conn = %T", got)
	}
}
