package wire

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func TestHostileAnswersAreRefused(t *testing.T) {
	for _, text := range []string{
		"$9223372036854775807\r\n", "$9223372036854775806\r\nx", "*9223372036854775807\r\n:1\r\n",
		"$4611686018427387904\r\n", "*1000000000\r\n:1\r\n",
	} {
		if r, size, err := parseReply([]byte(text)); size != 0 || err != nil {
			t.Errorf("%q: %v, length %d, %v; want to wait for the rest", text, r, size, err)
		}
	}
	for _, text := range []string{"$-2\r\n", "*-5\r\n", "$1\r\nabc\r\n", ">1\r\n+x\r\n", "%1\r\n+k\r\n+v\r\n", ",1.5\r\n", "#t\r\n", "=5\r\ntxt:x\r\n", "(1\r\n"} {
		if r, size, err := parseReply([]byte(text)); err == nil {
			t.Errorf("%q: %v, length %d; want an error", text, r, size)
		}
	}
}

func TestNestedArraysNeedMemoryInProportion(t *testing.T) {
	var before, after runtime.MemStats
	for _, head := range []string{"*1\r\n", "*30000\r\n"} {
		b := []byte(strings.Repeat(head, 100<<10/len(head)))
		runtime.ReadMemStats(&before)
		_, size, _ := parseReply(b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; size != 0 || n > 64<<20 {
			t.Errorf("%d bytes of %q: length %d, %d bytes allocated", len(b), head, size, n)
		}
	}
	if _, _, err := parseReply([]byte(strings.Repeat("*1\r\n", 1<<20))); err == nil {
		t.Error("a million nested arrays: no error")
	}
}

func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"+PONG\r\n", ":1700000000\r\n", "$-1\r\n", "*-1\r\n", "_\r\n", "$4\r\na\r\nb\r\n", "*0\r\n",
		"*3\r\n:1\r\n$26\r\n01J0000000000000000000:abcd\r\n*2\r\n:600\r\n$0\r\n\r\n",
		"-NOSCRIPT No matching script. Please use EVAL.\r\n", "-READONLY You can't write against a read only replica.\r\n",
		"$9223372036854775807\r\n", "*1000000000\r\n", "*1\r\n*1\r\n*1\r\n", ">2\r\n+invalidate\r\n*0\r\n",
	} {
		f.Add([]byte(seed), len(seed)/2)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, size, err := parseReply(b)
		if size < 0 || size > len(b) || err != nil && size != 0 {
			t.Fatalf("length %d of %d, %v", size, len(b), err)
		}
		if n := count(whole.value); 3*n > size {
			t.Fatalf("%d items of %d bytes", n, size)
		}
		if cut < 0 || cut > len(b) {
			return
		}
		var seen extent
		for i := range cut {
			if seen.complete(b[:i]) && size != 0 && i < size {
				t.Fatalf("%q counts as complete", b[:i])
			}
		}
		if !seen.complete(b) && size != 0 {
			t.Fatalf("%q counts as incomplete", b[:size])
		}
		part, length, broken := parseReply(b[:cut])
		switch {
		case broken != nil && err == nil:
			t.Fatalf("%q is refused, and the whole is not", b[:cut])
		case length != 0 && (length != size || !reflect.DeepEqual(part, whole)):
			t.Fatalf("%q is %v, and the whole is %v, %v", b[:cut], part, whole, err)
		case length == 0 && broken == nil && size != 0 && cut >= size:
			t.Fatalf("%q is complete, and counts as incomplete", b[:cut])
		}
	})
}

func count(value any) int {
	items, ok := value.([]any)
	if !ok {
		return 0
	}
	n := len(items)
	for _, item := range items {
		n += count(item)
	}
	return n
}
