//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
)

// tail runs bus tail in a process of its own, and returns when it follows as
// many processes as that.
func (s site) tail(t *testing.T, environ []string, processes int, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"bus", "tail"}, args...)...)
	cmd.Env = append(append(os.Environ(), program+"=talker"), environ...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	told, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(told); processes > 0; processes-- {
		if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "following product.*") {
			t.Fatalf("tail said %q, %v", line, err)
		}
	}
	return cmd, bufio.NewReader(out)
}

// The bus takes such a message, and the way to the process has to carry it: JSON writes
// six bytes for each of these characters.
func TestMessageThatJSONEnlargesIsSent(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "talker", environ...)
	c.until(t, "boot.report")
	file := filepath.Join(t.TempDir(), "page")
	for _, part := range []string{"<&>", "\x00", "\""} {
		text := strings.Repeat(part, 900_000/len(part))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := verb(t, "talker", environ, "bus", "pub", "unheard", "@"+file)
		if status != failure.ExitOK || !strings.Contains(stdout, "published, 900000 bytes") {
			t.Errorf("%q: exit status %d: %s%s", part, status, stdout, stderr)
		}
	}
	c.signal(t)
	c.end(t)
}

func TestMessagesAreFollowedAndSentThroughARunningProcess(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "talker", environ...)
	c.until(t, "boot.report")
	who := fmt.Sprintf("shop, pid %d", c.cmd.Process.Pid)
	follow, events := s.tail(t, environ, 1, "product.*")

	file := filepath.Join(t.TempDir(), "sale")
	if err := os.WriteFile(file, []byte("a \x1b[31mred\x07 lamp"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args           []string
		heard, printed string
	}{
		{[]string{`{"id": "lamp"}`, "-H", "Shop: north"}, `{"id": "lamp"}`, `{"id":"lamp"}`},
		{[]string{"@" + file}, "a \x1b[31mred\x07 lamp", `a \u001b[31mred\u0007 lamp`},
	} {
		status, stdout, stderr := verb(t, "talker", environ, append([]string{"bus", "pub", "product.sold"}, x.args...)...)
		if want := fmt.Sprintf("product.sold: published, %d bytes  (%s)\n", len(x.heard), who); status != failure.ExitOK || stdout != want {
			t.Errorf("pub: exit status %d: %s%s", status, stdout, stderr)
		}
		c.until(t, "heard "+x.heard)
		if line, err := events.ReadString('\n'); err != nil || !strings.HasSuffix(line, "  product.sold  "+x.printed+"\n") {
			t.Errorf("tail: %q, %v", line, err)
		}
	}
	if err := follow.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("tail ended with %v", err)
	}

	if status, stdout, stderr := verb(t, "talker", environ, "bus", "req", "stock.lamp"); status != failure.ExitOK || stdout != `{"left":3}`+"\n" {
		t.Errorf("req: exit status %d: %s%s", status, stdout, stderr)
	}
	var reply struct {
		PID     int
		Subject string
		JSON    struct{ Left int }
	}
	_, stdout, _ := verb(t, "talker", environ, "bus", "req", "stock.lamp", "--json")
	if err := json.Unmarshal([]byte(stdout), &reply); err != nil || reply.PID != c.cmd.Process.Pid || reply.Subject != "stock.lamp" || reply.JSON.Left != 3 {
		t.Errorf("req --json: %v: %s", err, stdout)
	}
	_, stdout, _ = verb(t, "talker", environ, "bus", "topics")
	for _, want := range []string{who + ": memory, scope process\n", "  WORKER  PATTERN  FOR", "  -  product.sold  events  1  -  2  0  0  0  0\n", "  -  stock.*  requests  1  responders  2  0  0  0  0\n"} {
		if !strings.Contains(squeezed(stdout), want) {
			t.Errorf("topics lack %q:\n%s", want, stdout)
		}
	}
	for _, x := range []struct {
		line   string
		status int
		want   string
	}{
		{"req stock.lost", failure.ExitUnavailable, "stock.unknown"},
		{"req nobody.there", failure.ExitUnavailable, "bus.no_responders"},
		{"pub product.*", failure.ExitUsage, "bus: bad subject"},
		{"pub product.sold @/no/such/file", failure.ExitUsage, "cli.no_data"},
		{"pub product.sold x -H nothing", failure.ExitUsage, "cli.wrong_flag"},
		{"pub product.sold x --pid 1", failure.ExitUnavailable, "cli.no_process"},
		{"tail", failure.ExitUsage, "cli.missing_argument"},
		{"tail a..b", failure.ExitUsage, "bus: bad subject"},
	} {
		status, stdout, stderr := verb(t, "talker", environ, strings.Fields("bus "+x.line)...)
		if status != x.status || stdout != "" || !strings.Contains(stderr, x.want) {
			t.Errorf("bus %s: exit status %d: %s%s", x.line, status, stdout, stderr)
		}
	}
	c.signal(t)
	c.end(t)
	if status, _, stderr := verb(t, "talker", environ, "bus", "tail", ">"); status != failure.ExitUnavailable || !strings.Contains(stderr, "cli.no_process") {
		t.Errorf("tail of none: exit status %d: %s", status, stderr)
	}
}

// On a bus that ends at the process each is followed, and one is sent by.
func TestProcessesWithTheirOwnBusAreDistinguished(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	first, second := startChild(t, "talker", environ...), startChild(t, "talker", environ...)
	first.until(t, "boot.report")
	second.until(t, "boot.report")
	status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold")
	if status != failure.ExitUsage || !strings.Contains(stderr, "cli.which_process") || !strings.Contains(stderr, fmt.Sprint("--pid ", first.cmd.Process.Pid)) && !strings.Contains(stderr, fmt.Sprint("--pid ", second.cmd.Process.Pid)) {
		t.Errorf("pub: exit status %d: %s", status, stderr)
	}
	_, stdout, _ := verb(t, "talker", environ, "bus", "topics")
	if n := strings.Count(stdout, "WORKER"); n != 1 {
		t.Errorf("topics are in %d tables:\n%s", n, stdout)
	}
	for _, c := range []*child{first, second} {
		pid := fmt.Sprint(c.cmd.Process.Pid)
		for _, want := range []string{"shop, pid " + pid + ": memory, scope process\n", "  " + pid + "  -  product.sold  events  1  -  0  0  0  0  0\n"} {
			if !strings.Contains(squeezed(stdout), want) {
				t.Errorf("topics lack %q:\n%s", want, stdout)
			}
		}
	}
	follow, events := s.tail(t, environ, 2, "product.*", "--count", "2")
	for _, c := range []*child{first, second} {
		pid := fmt.Sprint(c.cmd.Process.Pid)
		if status, _, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", pid, "--pid", pid); status != failure.ExitOK {
			t.Fatalf("pub --pid: exit status %d: %s", status, stderr)
		}
		c.until(t, "heard "+pid)
		if line, err := events.ReadString('\n'); err != nil || !strings.HasSuffix(line, "  "+pid+"  product.sold  "+pid+"\n") {
			t.Errorf("tail: %q, %v", line, err)
		}
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("tail --count 2 ended with %v", err)
	}
	first.signal(t)
	first.end(t)
	second.signal(t)
	second.end(t)
}

func TestTailReportsTheEndOfTheProcess(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	c := startChild(t, "talker", environ...)
	c.until(t, "boot.report")
	follow, _ := s.tail(t, environ, 1, "product.*")
	c.signal(t)
	if rest, status := c.end(t); status != failure.ExitOK {
		t.Errorf("a process that is followed stops with %d: %s", status, rest)
	}
	if err := follow.Wait(); err == nil || follow.ProcessState.ExitCode() != failure.ExitUnavailable {
		t.Errorf("tail ended with %v", err)
	}
}

// Processes that share a bus are one, for whoever follows it or sends by it.
func TestProcessesOnOneBusAreAskedOnce(t *testing.T) {
	s := newSite(t)
	environ := s.configured(t, "name: shop\n")
	shared := admin.DriverScope{Driver: "nats", Scope: "fleet"}
	b := s.speaks(t, admin.Info{Name: "shop", PID: 11, Bus: shared})
	s.speaks(t, admin.Info{Name: "shop", PID: 12, Bus: shared})
	status, stdout, stderr := verb(t, "talker", environ, "bus", "pub", "product.sold", "x")
	if want := "product.sold: published, 1 byte  (shop, pid 11 and 12)\n"; status != failure.ExitOK || stdout != want {
		t.Errorf("pub: exit status %d: %s%s", status, stdout, stderr)
	}
	if n := b.Stats().Published; n != 1 {
		t.Errorf("the first has published %d", n)
	}
}

// speaks opens the door of a process with a bus in its memory.
func (s site) speaks(t *testing.T, i admin.Info) *bus.Bus {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := admin.Open(admin.Process{Info: i, Bus: b, Log: slog.New(slog.DiscardHandler)}, admin.Folders(s.environ))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Close(context.Background())
		_ = b.Close()
	})
	return b
}
