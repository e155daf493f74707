package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

func TestLimitOfTheControlGroupIsTheLeastAboveTheProcess(t *testing.T) {
	group := func(self string, files ...string) fs.FS {
		root := fstest.MapFS{"proc/self/cgroup": {Data: []byte(self)}}
		for i := 0; i < len(files); i += 2 {
			root["sys/fs/cgroup/"+files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
		}
		return root
	}
	for _, x := range []struct {
		name string
		root fs.FS
		uses int
		want Verdict
		says string
	}{
		{"no group", fstest.MapFS{}, 8, OK, "8 in use"},
		{"no limit", group("0::/a\n", "a/cpu.max", "max 100000"), 8, OK, "8 in use"},
		{"enough", group("0::/a/b\n", "a/b/cpu.max", "400000 100000"), 4, OK, "of 4 that"},
		{"a fraction is rounded up", group("0::/a\n", "a/cpu.max", "150000 100000"), 2, OK, "of 1.5 that"},
		{"too many", group("0::/a/b\n", "a/b/cpu.max", "max 100000", "a/cpu.max", "200000 100000"), 8, Warn, "allows 2"},
		{"in a container", group("0::/\n", "cpu.max", "100000 100000"), 2, Warn, "allows 1"},
		{"the old kind", group("4:cpu:/a\n", "a/cpu.max", "100000 100000"), 2, OK, "2 in use"},
		{"nonsense", group("0::/a\n", "a/cpu.max", "many"), 2, OK, "2 in use"},
	} {
		if f := processorsFinding(x.uses, x.root); f.Verdict != x.want || !strings.Contains(f.Text, x.says) {
			t.Errorf("%s: got %+v, want %s with %q", x.name, f, x.want, x.says)
		}
	}
}

func TestFewOpenFilesAreWarnedOf(t *testing.T) {
	for _, x := range []struct {
		limit uint64
		known bool
		want  Verdict
	}{{1024, true, Warn}, {65536, true, OK}, {0, false, OK}} {
		if f := openFilesFinding(x.limit, x.known); f.Verdict != x.want {
			t.Errorf("%d: got %+v", x.limit, f)
		}
	}
}

func TestClockThatIsOffIsWarnedOf(t *testing.T) {
	for _, x := range []struct {
		trip, skew time.Duration
		want       Verdict
		says       string
	}{
		{time.Millisecond, 0, OK, "clock is the same"},
		{time.Millisecond, 300 * time.Millisecond, OK, "300ms ahead"},
		{time.Millisecond, -3 * time.Second, Warn, "3s behind"},
		{80 * time.Millisecond, 0, Warn, "80ms"},
	} {
		if f := clockFinding(x.trip, x.skew); f.Verdict != x.want || !strings.Contains(f.Text, x.says) {
			t.Errorf("%v, %v: got %+v, want %s with %q", x.trip, x.skew, f, x.want, x.says)
		}
	}
}

func TestServerOfMessagesIsKnownByWhatItSaysFirst(t *testing.T) {
	for first, want := range map[string]string{
		`INFO {"server_id":"x","version":"2.12.1"}` + "\r\n": "2.12.1",
		"220 mail.example.org\r\n":                           "does not speak NATS",
		"":                                                   "does not speak NATS",
	} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, err = conn.Write([]byte(first))
				_ = conn.Close()
			}
			done <- err
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		version, err := natsVersion(ctx, l.Addr().String(), false)
		cancel()
		if err != nil {
			version = err.Error()
		}
		if !strings.Contains(version, want) {
			t.Errorf("%q: got %q, want %q", first, version, want)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = l.Close()
	}
	if _, err := natsVersion(t.Context(), "wss://localhost", false); err == nil {
		t.Error("a web socket was looked at")
	}
}

func TestGreetingOfNATSIsReadAfterTheHandshake(t *testing.T) {
	cert, key := certificate.Certificate{}.Write(t)
	server := natstest.Start(t, natstest.Options{Config: fmt.Sprintf("tls { cert_file: %q, key_file: %q, handshake_first: true }", cert, key)})
	if version, err := natsVersion(t.Context(), server.URL(), true); err != nil || version == "" {
		t.Errorf("got %q, %v", version, err)
	}
}
