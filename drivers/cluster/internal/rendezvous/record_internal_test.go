//go:build linux || darwin

package rendezvous

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	here   = [16]byte{1}
	before = [16]byte{2}
)

// written is the file after writing the records, one after the other.
func written(records ...Record) []byte {
	b := make([]byte, recordSize)
	for i, r := range records {
		n := uint64(i + 1)
		copy(b[(n%2)*copySize:], entry{n, r}.encode())
	}
	return b
}

func TestTheNewerCopyCounts(t *testing.T) {
	one := Record{Boot: here, PID: 7, Expiry: 10, Fence: 20, Epoch: 30, Hub: 40}
	two := Record{Boot: here, PID: 8, Expiry: 11, Fence: 21}
	three := Record{Boot: before, PID: 9, Expiry: -12, Fence: 22}
	for _, x := range []struct {
		name    string
		content []byte
		want    entry
	}{
		{"no content", nil, entry{}},
		{"one", written(one), entry{1, one}},
		{"two", written(one, two), entry{2, two}},
		{"three", written(one, two, three), entry{3, three}},
	} {
		if got, err := decode(x.content, here); got != x.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", x.name, got, err, x.want)
		}
	}
}

// A hub that is killed while it writes leaves what it had written before, which
// covers all that it had told anybody.
func TestATornWriteLeavesTheOneBefore(t *testing.T) {
	one := Record{Boot: here, Expiry: 10, Fence: 20}
	two := Record{Boot: here, Expiry: 1 << 40, Fence: 1<<50 | 1}
	for n := range copySize {
		b := written(one)
		copy(b, entry{2, two}.encode()[:n])
		want := entry{1, one}
		if n >= 64 {
			want = entry{2, two} // what follows is zero
		}
		if got, err := decode(b, here); got != want || err != nil {
			t.Fatalf("torn after %d bytes: %+v, %v", n, got, err)
		}
	}
}

func TestContentThatCannotBeReadBoundsNothing(t *testing.T) {
	whole := written(Record{Boot: before, Expiry: 10}, Record{Boot: before, Expiry: 11})
	flipped := bytes.Clone(whole)
	flipped[50] ^= 1
	flipped[copySize+60] ^= 1
	for name, content := range map[string][]byte{
		"zeros":           make([]byte, recordSize),
		"a few zeros":     make([]byte, 3),
		"a cut one":       whole[:copySize-1],
		"a word":          whole[:len(magic)],
		"half a word":     whole[:3],
		"two broken ones": flipped,
	} {
		got, err := decode(content, here)
		if want := (entry{record: Record{Boot: here, Expiry: Never}}); got != want || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestAFileOfSomebodyElseIsRefused(t *testing.T) {
	newer := written(Record{Boot: here, Expiry: 10})
	for _, at := range []int{0, copySize} {
		if b := newer[at : at+copySize]; b[0] != 0 {
			b[11]++
			e := checksum(b)
			b[12], b[13], b[14], b[15] = byte(e>>24), byte(e>>16), byte(e>>8), byte(e)
		}
	}
	for content, says := range map[string]string{
		"127.0.0.1 localhost\n": "not made by mega",
		"x":                     "not made by mega",
		strings.Repeat("\x00", copySize) + "hello": "not made by mega",
		string(newer): "version 2, this process knows version 1",
	} {
		if _, err := decode([]byte(content), here); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %q", content, err, says)
		}
	}
}

func TestABootEndsAllButFences(t *testing.T) {
	r := Record{Boot: before, PID: 7, Expiry: 10, Fence: 20, Epoch: 30}
	if got := r.on(here); got != (Record{Fence: 20}) {
		t.Errorf("on another boot: %+v", got)
	}
	if got := r.on(before); got != r {
		t.Errorf("on the same boot: %+v", got)
	}
}

// The system hides the boot id from some processes, such as services without /proc/sys.
func TestAnUnknownBootEndsNothing(t *testing.T) {
	for _, x := range []struct{ of, on [16]byte }{{before, [16]byte{}}, {[16]byte{}, here}} {
		r := Record{Boot: x.of, PID: 7, Expiry: 10, Fence: 20, Epoch: 30}
		if got := r.on(x.on); got != r {
			t.Errorf("the record of boot %x on %x: %+v", x.of[:1], x.on[:1], got)
		}
	}
}

func TestBootHasAnIdentity(t *testing.T) {
	if id := bootID(); id == [16]byte{} || id != bootID() {
		t.Errorf("it is %x, and then %x", id, bootID())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(written(Record{Boot: here, Expiry: 10}))
	f.Add(written(Record{Boot: here, Expiry: 10}, Record{Boot: before, Fence: 11}))
	f.Fuzz(func(t *testing.T, content []byte) {
		e, err := decode(content, here)
		if err != nil || e.number == 0 {
			return
		}
		if again, err := decode(e.encode(), here); again != e || err != nil {
			t.Errorf("%+v became %+v, %v", e, again, err)
		}
	})
}

// A hub that could once not write its record has lost its hub lock for good: the next one
// may not know what this one granted.
func TestHubLockIsLostWithAWriteThatFails(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "own", "s"))
	if err != nil {
		t.Fatal(err)
	}
	lock, err := s.Take()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	file := lock.file
	if lock.file, err = os.Open(file.Name()); err != nil { // for reading only
		t.Fatal(err)
	}
	if err := lock.Cover(1_000, 0); err == nil {
		t.Error("it covers a lease that it has not recorded")
	}
	_ = lock.file.Close()
	lock.file = file
	if lock.Check() == nil || lock.Cover(1_000, 0) == nil {
		t.Error("it is the hub again after a write that has failed")
	}
}
