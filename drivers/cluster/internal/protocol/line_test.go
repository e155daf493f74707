package protocol

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// pairs are connections of each kind that a line may run over.
func pairs(t *testing.T) map[string]func() (net.Conn, net.Conn) {
	t.Helper()
	return map[string]func() (net.Conn, net.Conn){
		"pipe": net.Pipe,
		"socket": func() (net.Conn, net.Conn) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			a, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			b, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return a, b
		},
	}
}

func onEachPair(t *testing.T, test func(t *testing.T, a, b net.Conn)) {
	t.Helper()
	for name, pair := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			a, b := pair()
			test(t, a, b)
		})
	}
}

func TestFramesArriveWholeAndInOrder(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b net.Conn) {
		t.Helper()
		from, to := NewLine(a), NewLine(b)
		defer from.Close()
		const writers, each = 8, 400
		var got sync.WaitGroup
		got.Go(func() {
			next := make([]uint64, writers)
			seen := 0
			err := to.Read(func(typ Type, body []byte) error {
				d := NewDecoder(body)
				w, n, text := d.Uint(), d.Uint(), d.Bytes()
				if d.Err() != nil || typ != Type(w+1) || n != next[w] || len(text) != int(n*37%9000) {
					t.Errorf("writer %d: frame %d with %d bytes (%v), want frame %d", w, n, len(text), d.Err(), next[w])
				}
				next[w]++
				if seen++; seen == writers*each {
					return errors.New("all")
				}
				return nil
			}, func() {})
			if err == nil || err.Error() != "all" {
				t.Error(err)
			}
			to.Close()
		})
		for w := range uint64(writers) {
			got.Go(func() {
				for n := range uint64(each) {
					f := Begin(Type(w + 1)).Uint(w).Uint(n).Bytes(make([]byte, n*37%9000))
					if err := from.Queue(f, 0); err != nil {
						t.Error(err)
					}
					f.Free()
					if n%2 == 0 {
						from.Flush()
					} else {
						from.FlushSoon()
					}
				}
			})
		}
		got.Wait()
	})
}

func TestAnOtherSideThatDoesNotReadHoldsUpNobody(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b net.Conn) {
		t.Helper()
		from := NewLine(a)
		defer from.Close()
		defer b.Close()
		const limit = 8 << 20
		f := Begin(1).Bytes(make([]byte, 60<<10))
		taken := 0
		var err error
		for ; err == nil; taken++ {
			err = from.Queue(f, limit)
			from.Flush()
		}
		if !errors.Is(err, ErrFull) || from.Backlog() < limit || from.Backlog() > limit+2*f.Len() {
			t.Fatalf("after %d frames: %v with %d bytes waiting, want ErrFull at %d", taken, err, from.Backlog(), limit)
		}
		if err := from.Queue(f, 0); err != nil {
			t.Fatalf("without a limit: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := from.Room(ctx, limit); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Room of a full line: %v", err)
		}
		go func() { _, _ = io.Copy(io.Discard, b) }()
		if err := from.Room(t.Context(), limit); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseEndsReadAndRoomAndQueue(t *testing.T) {
	onEachPair(t, func(t *testing.T, a, b net.Conn) {
		t.Helper()
		defer b.Close()
		l := NewLine(a)
		f := Begin(1).Bytes(make([]byte, MaxFrame-100))
		const beyondBuffers = 32 << 20 // more than the system takes for a connection that nobody reads
		for l.Queue(f, beyondBuffers) == nil {
			l.Flush()
		}
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := l.Read(func(Type, []byte) error { return nil }, func() {}); err == nil {
				t.Error("Read has ended with nil")
			}
		})
		ended.Go(func() {
			if err := l.Room(t.Context(), 1); err == nil {
				t.Error("there is room on a closed line")
			}
		})
		l.Close()
		ended.Wait()
		if err := l.Queue(f, 0); err == nil {
			t.Error("a closed line takes frames")
		}
		l.Close()
	})
}

// feed is a connection that reads from r.
type feed struct {
	net.Conn
	r io.Reader
}

func (f feed) Read(p []byte) (int, error) { return f.r.Read(p) }

// read returns what a line reads from r.
func read(r io.Reader) (bodies [][]byte, err error) {
	a, b := net.Pipe()
	defer b.Close()
	l := NewLine(feed{a, r})
	defer l.Close()
	err = l.Read(func(_ Type, body []byte) error {
		bodies = append(bodies, bytes.Clone(body))
		return nil
	}, func() {})
	return bodies, err
}

func TestFramesAreFoundHoweverTheyAreCut(t *testing.T) {
	var stream []byte
	var want [][]byte
	for _, n := range []int{0, 1, 5, 200_000, 3, 70_000, 0, 65_530, 1_000_000, 2} {
		body := make([]byte, n)
		for i := range body {
			body[i] = byte(rand.Uint32())
		}
		want = append(want, body)
		stream = append(stream, Begin(7).Rest(body).bytes()...)
	}
	cuts := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "with its end": iotest.DataErrReader,
	}
	for name, cut := range cuts {
		got, err := read(cut(bytes.NewReader(stream)))
		if !errors.Is(err, io.EOF) || len(got) != len(want) {
			t.Fatalf("%s: %d frames and %v, want %d and EOF", name, len(got), err, len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%s: frame %d is not what was sent", name, i)
			}
		}
	}
}

func TestWhatIsNoFrameEndsReading(t *testing.T) {
	whole := Begin(1).String("whole").bytes()
	for name, c := range map[string]struct {
		stream []byte
		want   func(error) bool
	}{
		"cut off in the length": {append(bytes.Clone(whole), 9, 0), is(io.ErrUnexpectedEOF)},
		"cut off in the body":   {append(bytes.Clone(whole), whole[:7]...), is(io.ErrUnexpectedEOF)},
		"no length":             {append(bytes.Clone(whole), 0, 0, 0, 0, 1), isFrameError},
		"too long":              {append(bytes.Clone(whole), 1, 0, 0, 1, 1), isFrameError},
		"text":                  {append(bytes.Clone(whole), "GET / HTTP/1.1\r\n\r\n"...), isFrameError},
	} {
		got, err := read(bytes.NewReader(c.stream))
		if len(got) != 1 || !c.want(err) {
			t.Errorf("%s: %d frames, then %v", name, len(got), err)
		}
	}
}

func is(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }

func isFrameError(err error) bool {
	_, ok := errors.AsType[*FrameError](err)
	return ok
}

func FuzzRead(f *testing.F) {
	f.Add(Begin(1).String("a").Uint(1 << 40).Int(-3).Bool(true).bytes())
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Add([]byte{1, 0, 0, 0, 9, 1, 0, 0})
	f.Fuzz(func(t *testing.T, stream []byte) {
		bodies, err := read(bytes.NewReader(stream))
		if err == nil {
			t.Fatal("reading ended without an error")
		}
		total := 0
		for _, b := range bodies {
			total += head + 1 + len(b)
		}
		if total > len(stream) {
			t.Fatalf("frames of %d bytes from a stream of %d", total, len(stream))
		}
	})
}

func FuzzDecoder(f *testing.F) {
	f.Add(Begin(1).String("key").Uint(300).Int(-1).Bool(true).Byte(9).Bytes([]byte("x")).bytes()[head+1:])
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		d := NewDecoder(body)
		for d.Left() > 0 {
			_, _, _ = d.String(), d.Uint(), d.Int()
			_, _, _ = d.Bool(), d.Byte(), d.Bytes()
			if n := d.Count(); n > len(body) {
				t.Fatalf("a count of %d in %d bytes", n, len(body))
			}
		}
		if d.Err() != nil && (d.Uint() != 0 || d.String() != "" || d.Rest() != nil) {
			t.Fatal("something was read after the end")
		}
	})
}

func TestABodyIsReadAsItWasWritten(t *testing.T) {
	f := Begin(3).String("").String("key").Uint(0).Uint(1 << 63).Int(-1 << 62).Bool(true).Bool(false).Byte(7).Bytes(nil).Rest([]byte("rest"))
	d := NewDecoder(f.bytes()[head+1:])
	if d.String() != "" || d.String() != "key" || d.Uint() != 0 || d.Uint() != 1<<63 || d.Int() != -1<<62 || !d.Bool() || d.Bool() ||
		d.Byte() != 7 || len(d.Bytes()) != 0 || string(d.Rest()) != "rest" || d.Err() != nil {
		t.Fatal("something is not what was written")
	}
	if d.Byte(); !errors.Is(d.Err(), ErrBody) {
		t.Fatalf("after the end: %v", d.Err())
	}
}
