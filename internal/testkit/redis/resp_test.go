package redistest

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var frames = map[string]any{
	"+OK\r\n":                         "OK",
	"-ERR no\r\n":                     ReplyError("ERR no"),
	":-42\r\n":                        int64(-42),
	"$5\r\na\r\nbc\r\n":               "a\r\nbc",
	"$0\r\n\r\n":                      "",
	"$-1\r\n":                         nil,
	"*-1\r\n":                         nil,
	"_\r\n":                           nil,
	"*0\r\n":                          []any{},
	"*2\r\n$3\r\nGET\r\n*1\r\n:1\r\n": []any{"GET", []any{int64(1)}},
	"%1\r\n+a\r\n:1\r\n":              []any{"a", int64(1)},
	"~2\r\n+a\r\n+b\r\n":              []any{"a", "b"},
	">2\r\n+message\r\n+x\r\n":        []any{"message", "x"},
	"!9\r\nERR wrong\r\n":             ReplyError("ERR wrong"),
	"=7\r\ntxt:abc\r\n":               "txt:abc",
	",1.5\r\n":                        "1.5",
	"#t\r\n":                          "t",
	"(3492890328409238509324850943850943825024385\r\n": "3492890328409238509324850943850943825024385",
	"|1\r\n+ttl\r\n:3\r\n+OK\r\n":                      "OK",
	"PING  hello\r\n":                                  []any{"PING", "hello"},
}

func TestSplitterCutsAStreamIntoFrames(t *testing.T) {
	var stream strings.Builder
	var want []string
	for f := range frames {
		stream.WriteString(f)
		want = append(want, f)
	}
	// However the bytes arrive.
	for _, r := range []io.Reader{
		strings.NewReader(stream.String()), iotest.OneByteReader(strings.NewReader(stream.String())),
	} {
		if got := splitAll(t, r); !cmp.Equal(got, want) {
			t.Errorf("frames differ: %s", cmp.Diff(want, got))
		}
	}
}

func splitAll(t *testing.T, r io.Reader) (got []string) {
	t.Helper()
	for s := newSplitter(r); ; {
		f, err := s.next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(f))
	}
}

func TestDecodeReadsEveryType(t *testing.T) {
	for frame, want := range frames {
		if got, err := decode([]byte(frame)); err != nil || !cmp.Equal(got, want) {
			t.Errorf("decode(%q) = %#v, %v, want %#v", frame, got, err, want)
		}
	}
}

func TestSplitterRefusesOtherProtocols(t *testing.T) {
	for _, in := range []string{
		"\r\n", "$x\r\n", "$-2\r\n", "*9999999999\r\n", "$3\r\nabcdef\r\n", "$99999999999\r\n",
		strings.Repeat("*1\r\n", 100), strings.Repeat("a", 1<<17) + "\r\n",
	} {
		if f, err := newSplitter(strings.NewReader(in)).next(); !errors.Is(err, errProtocol) {
			t.Errorf("split %.20q… = %.20q, %v, want a protocol error", in, f, err)
		}
	}
}

func TestSplitterDistinguishesACutFrameFromTheEnd(t *testing.T) {
	for frame := range frames {
		for cut := 1; cut < len(frame); cut++ {
			if f, err := newSplitter(strings.NewReader(frame[:cut])).next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("split %q = %q, %v, want %v", frame[:cut], f, err, io.ErrUnexpectedEOF)
			}
		}
	}
}

func TestCommandsAreEncodedAsTheyAreRead(t *testing.T) {
	frame := encode([]any{"SET", "k", 7, "a\r\nb"})
	got, ok := decodeList(frame)
	if want := []string{"SET", "k", "7", "a\r\nb"}; !ok || !cmp.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// Whatever comes, the splitter loses no byte, adds none and cuts in the same
// places however the bytes arrive; and decode takes every frame or refuses it.
func FuzzSplitter(f *testing.F) {
	for frame := range frames {
		f.Add([]byte(frame + frame))
	}
	f.Add([]byte("$1000000\r\nshort"))
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := newSplitter(bytes.NewReader(in))
		single := newSplitter(iotest.OneByteReader(bytes.NewReader(in)))
		var out []byte
		for {
			a, errA := whole.next()
			b, errB := single.next()
			if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) {
				t.Fatalf("cut differs: %q, %v and %q, %v", a, errA, b, errB)
			}
			if errA != nil {
				break
			}
			out = append(out, a...)
			_, _ = decode(a)
		}
		if !bytes.HasPrefix(in, out) {
			t.Errorf("split %q into %q", in, out)
		}
	})
}
