package nats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// ends is a pipe and what is at its other end: over TCP, or over a connection
// that can only be written to patiently.
func ends(t *testing.T, system bool) (*pipe, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	if system {
		near, far = loopback(t)
	}
	p := newPipe(near, time.Minute)
	done := make(chan struct{})
	go func() { p.run(); close(done) }()
	t.Cleanup(func() {
		_ = p.Close()
		_ = far.Close()
		<-done
	})
	return p, far
}

func loopback(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// kinds are the connections that a pipe may have.
var kinds = map[string]bool{"on TCP": true, "without non-blocking writes": false}

// What is written arrives whole and in order, however the reader dawdles.
func TestPipeKeepsTheOrderOfEachWriter(t *testing.T) {
	for name, system := range kinds {
		t.Run(name, func(t *testing.T) {
			p, far := ends(t, system)
			const writers, lines = 4, 20_000
			var wait sync.WaitGroup
			for w := range writers {
				wait.Go(func() {
					for i := range lines {
						line := fmt.Sprintf("%d %d %s\n", w, i, strings.Repeat("x", i%100))
						if _, err := p.Write([]byte(line)); err != nil {
							t.Errorf("write: %v", err)
							return
						}
					}
				})
			}
			got := readLines(t, far, writers*lines)
			wait.Wait()
			next := [writers]int{}
			for _, line := range got {
				var w, i int
				if _, err := fmt.Sscan(line, &w, &i); err != nil || i != next[w] {
					t.Fatalf("writer %d: got %q, want its line %d (%v)", w, line, next[w], err)
				}
				next[w]++
			}
			awaitThat(t, func() bool { return p.size.Load() == 0 })
		})
	}
}

// readLines reads so many, with pauses in which the other end has to wait.
func readLines(t *testing.T, from io.Reader, n int) []string {
	t.Helper()
	var all bytes.Buffer
	part := make([]byte, 100_000)
	for count := 0; count < n; {
		m, err := from.Read(part)
		if err != nil {
			t.Fatal(err)
		}
		count += bytes.Count(part[:m], []byte("\n"))
		all.Write(part[:m])
		if all.Len()%7 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	return strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
}

func awaitThat(t *testing.T, seen func() bool) {
	t.Helper()
	for began := time.Now(); !seen(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("it does not happen")
		}
	}
}

// A reader that stands still holds up nobody: what is written waits, is
// counted, and arrives when the reader goes on. The memory is given back.
func TestPipeDoesNotBlock(t *testing.T) {
	for name, system := range kinds {
		t.Run(name, func(t *testing.T) {
			p, far := ends(t, system)
			const size, n = 100_000, 200
			block := bytes.Repeat([]byte("x"), size)
			for range n {
				if _, err := p.Write(block); err != nil {
					t.Fatal(err)
				}
			}
			room := p.change()
			if waiting := p.size.Load(); waiting < n*size/4 || waiting > n*size {
				t.Errorf("%d bytes wait, of %d that nobody has read", waiting, n*size)
			}
			if got, err := io.CopyN(io.Discard, far, n*size); err != nil {
				t.Fatalf("%d bytes came: %v", got, err)
			}
			<-room
			awaitThat(t, func() bool {
				p.mu.Lock()
				defer p.mu.Unlock()
				return p.waiting.empty() && p.waiting.frees <= spare
			})
		})
	}
}

// Whoever writes to a connection that has ended is told.
func TestPipeThatBrokeTakesNothing(t *testing.T) {
	for name, system := range kinds {
		t.Run(name, func(t *testing.T) {
			p, far := ends(t, system)
			_ = far.Close()
			awaitThat(t, func() bool {
				_, err := p.Write(make([]byte, 1<<10))
				return err != nil
			})
			if p.size.Load() != 0 {
				t.Errorf("%d bytes wait for nobody", p.size.Load())
			}
			if err := p.send(&frame{subject: "a"}, &driver.Message{}); err == nil {
				t.Error("a message was taken")
			}
		})
	}
	p, _ := ends(t, true)
	_ = p.Close()
	if _, err := p.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestFramesAreWhatTheProtocolWants(t *testing.T) {
	big := strings.Repeat("x", 3*chunkSize)
	long := strings.Repeat("h", chunkSize)
	for name, x := range map[string]struct {
		frame   frame
		message driver.Message
		want    string
	}{
		"nothing": {frame{prefix: "ev.", subject: "a.b"}, driver.Message{}, "PUB ev.a.b 0\r\n\r\n"},
		"data":    {frame{prefix: "ev.", subject: "a"}, driver.Message{Data: []byte("hello\r\n")}, "PUB ev.a 7\r\nhello\r\n\r\n"},
		"a reply": {frame{"rpc.", "a", "_INBOX.1"}, driver.Message{Data: []byte("x")}, "PUB rpc.a _INBOX.1 1\r\nx\r\n"},
		"a header": {frame{subject: "a"}, driver.Message{Header: driver.Header{"k": {"1", ""}}, Data: []byte("x")},
			"HPUB a 23 24\r\nNATS/1.0\r\nk: 1\r\nk: \r\n\r\nx\r\n"},
		"a mark": {frame{"rpc.", "a", "r"}, driver.Message{Hops: 3}, "HPUB rpc.a r 25 25\r\nNATS/1.0\r\nBus-Hops: 3\r\n\r\n\r\n"},
		"much":   {frame{subject: "a"}, driver.Message{Data: []byte(big)}, "PUB a 196608\r\n" + big + "\r\n"},
		"a header longer than a chunk": {frame{subject: "a"}, driver.Message{Header: driver.Header{"k": {long}}},
			"HPUB a 65553 65553\r\nNATS/1.0\r\nk: " + long + "\r\n\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p, far := ends(t, true)
			for range 2 { // the second in memory that was used
				if err := p.send(&x.frame, &x.message); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(x.want))
				if _, err := io.ReadFull(far, got); err != nil || string(got) != x.want {
					t.Fatalf("got %.200q, want %.200q (%v)", got, x.want, err)
				}
			}
			awaitThat(t, func() bool { return p.size.Load() == 0 })
		})
	}
}
