//go:build linux || darwin

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// longTime bounds a wait for what must happen.
const longTime = time.Minute

// agent is a client of `mega mcp` in a process of its own.
type agent struct {
	t       *testing.T
	dir     string
	cmd     *exec.Cmd
	in      io.Closer // its input
	session *mcp.ClientSession
	told    chan string   // texts of messages
	ended   chan struct{} // closed when the process has ended; err is set before
	err     error
}

// startAgent starts the process and connects. protocol is a version of the
// protocol, or "" for the newest.
func startAgent(t *testing.T, dir, protocol string, args ...string) *agent {
	t.Helper()
	a := &agent{t: t, dir: dir, cmd: tool(dir, args...), told: make(chan string, 100), ended: make(chan struct{})}
	in, err := a.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w, err := os.Pipe() // the end of the process does not close it while the client reads
	if err != nil {
		t.Fatal(err)
	}
	a.in, a.cmd.Stdout = in, w
	err = a.cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(a.ended)
		a.err = a.cmd.Wait()
	}()
	t.Cleanup(a.leave)
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) { //nolint:staticcheck // of a client that is not new
			text, _ := json.Marshal(r.Params.Data)
			a.told <- string(text)
		},
	})
	a.session, err = client.Connect(t.Context(), &mcp.IOTransport{Reader: out, Writer: in}, &mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.session.Close() })
	return a
}

// leave closes the input of the process and waits for its end.
func (a *agent) leave() {
	a.t.Helper()
	_ = a.in.Close()
	select {
	case <-a.ended:
	case <-time.After(longTime):
		_ = a.cmd.Process.Kill()
		a.t.Error("the process does not end with its input")
	}
}

// tool returns the command `mega mcp` with its socket in dir.
func tool(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], append([]string{"mcp"}, args...)...)
	cmd.Env = append(os.Environ(), role+"=1", "XDG_RUNTIME_DIR="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// reply is what a tool has answered.
type reply struct {
	Status         int
	Stdout, Stderr string
	Handle         string
	Fence          uint64
	Allowed        bool
	Locks          []lock.State
	Error          struct {
		Code   string
		Status int
	}
	Result *reply

	texts string // of the content
}

// call calls a tool with arguments in JSON.
func (a *agent) call(ctx context.Context, name, args string) (reply, error) {
	r, err := a.session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
	if err != nil {
		return reply{}, err
	}
	var out reply
	text, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err == nil && r.IsError != (out.Error.Code != "") && r.StructuredContent != nil {
		err = fmt.Errorf("IsError is %v: %s", r.IsError, text)
	}
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			out.texts += t.Text + "\n"
		}
	}
	return out, err
}

// must is call without a way to fail.
func (a *agent) must(name, args string) reply {
	a.t.Helper()
	r, err := a.call(a.t.Context(), name, args)
	if err != nil {
		a.t.Fatalf("%s %s: %v", name, args, err)
	}
	return r
}

// locks returns another client of the locks in a.
func (a *agent) locks() *lock.Locker {
	a.t.Helper()
	n, err := cluster.Dial(a.t.Context(), cluster.Config{Socket: filepath.Join(a.dir, "mega", "cluster.sock")})
	if err != nil {
		a.t.Fatal(err)
	}
	l, err := lock.New(n.Locks(""), lock.Config{})
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if err := errors.Join(l.Close(context.Background()), n.Close(context.Background())); err != nil {
			a.t.Error(err)
		}
	})
	return l
}

// take waits for a lock and gives it back.
func take(t *testing.T, l *lock.Locker, key string) {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, lock.Wait(longTime))
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// sleeper is a command that writes its process into a file and sleeps.
func sleeper(key, file string) string {
	return fmt.Sprintf(`{"key": %q, "grace": "100ms", "ttl": "3s", "command": ["sh", "-c", "echo $$ > %s~; mv %[2]s~ %[2]s; exec sleep 3600"]}`, key, file)
}

// begun waits until a sleeper runs, and returns its process.
func begun(t *testing.T, file string) (pid int) {
	t.Helper()
	until(t, "the command runs", func() bool {
		text, err := os.ReadFile(file)
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err == nil && pid > 1
	})
	return pid
}

// dead waits until a process has ended.
func dead(t *testing.T, pid int) {
	t.Helper()
	until(t, fmt.Sprintf("process %d has ended", pid), func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // a zombie may wait for its parent
		return syscall.Kill(pid, 0) != nil || err == nil && strings.Contains(string(stat), ") Z")
	})
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for bound := time.Now().Add(longTime); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(bound) {
			t.Fatalf("not so after %v: %s", longTime, what)
		}
	}
}

func TestToolsDoWhatTheVerbsDo(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	if r := a.must("lock_exec", `{"key": "k", "command": ["sh", "-c", "cat; echo out $MEGA_RUN_KEY; echo err >&2; exit 3"]}`); r.Status != 3 || r.Stdout != "out k\n" || r.Stderr != "err\n" {
		t.Errorf("lock_exec: %+v", r)
	}
	h := a.must("lock_acquire", `{"key": "k", "label": "three steps"}`)
	if r := a.must("lock_ls", `{"prefix": "k"}`); len(r.Locks) != 1 || r.Locks[0].Holders[0].Holder.Label != "three steps" || r.Locks[0].Holders[0].Holder.PID != a.cmd.Process.Pid {
		t.Errorf("lock_ls: %+v", r)
	}
	handle := fmt.Sprintf(`{"handle": %q}`, h.Handle)
	if r := a.must("lock_renew", handle); r.Fence != h.Fence || h.Fence == 0 {
		t.Errorf("lock_renew: %+v, acquired %+v", r, h)
	}
	if r := a.must("lock_release", handle); r.Handle != h.Handle {
		t.Errorf("lock_release: %+v", r)
	}
	if r := a.must("limit_permit", `{"key": "l", "rates": ["2/24h"]}`); !r.Allowed {
		t.Errorf("limit_permit: %+v", r)
	}
	if r := a.must("limit_exec", `{"key": "l", "rates": ["2/24h"], "dir": "/", "command": ["./bin/sh", "-c", "pwd; exit 4"]}`); r.Status != 4 || r.Stdout != "/\n" {
		t.Errorf("limit_exec: %+v", r)
	}
	long := a.must("lock_exec", `{"key": "k", "command": ["sh", "-c", "echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo last"]}`)
	if n := len(long.Stdout); n > 100_000 || !strings.HasPrefix(long.Stdout, "first\n") || !strings.HasSuffix(long.Stdout, "last\n") || !strings.Contains(long.Stdout, "bytes are left out") {
		t.Errorf("an output of a megabyte: %d bytes, %.20q", n, long.Stdout)
	}
}

func TestToolsFailAsTheVerbsDo(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	a.must("lock_acquire", `{"key": "held"}`)
	a.must("limit_permit", `{"key": "l", "rates": ["1/24h"]}`)
	for _, x := range []struct {
		tool, args, code string
		status           int
	}{
		{"lock_exec", `{"key": "held", "wait": "0s", "command": ["true"]}`, "lock.not_acquired", 75},
		{"lock_acquire", `{"key": "held", "wait": "1ms"}`, "lock.not_acquired", 75},
		{"lock_acquire", `{"key": "two words"}`, "lock.invalid_key", 64},
		{"lock_acquire", `{"key": "k", "ttl": "1ms"}`, "cli.wrong_flag", 64},
		{"lock_acquire", `{"key": "k", "slots": 5000}`, "cli.wrong_flag", 64},
		{"lock_acquire", `{"key": "k", "label": "` + strings.Repeat("x", 200) + `"}`, "cli.wrong_flag", 64},
		{"lock_exec", `{"key": "k", "init": "true", "command": ["true"]}`, "cli.wrong_flag", 64},
		{"lock_exec", `{"key": "k", "grace": "20s", "command": ["true"]}`, "cli.wrong_flag", 64},
		{"lock_acquire", `{"key": "k", "wait": "soon"}`, "cli.invalid_argument", 64},
		{"lock_acquire", `{"key": "k", "max": "-1s"}`, "cli.invalid_argument", 64},
		{"lock_renew", `{"handle": "lease-aaaaaaaaaaaaaaaa"}`, "lock.lost", 70},
		{"lock_release", `{"handle": "nonsense"}`, "cli.invalid_argument", 64},
		{"lock_exec", `{"key": "k", "command": []}`, "cli.missing_argument", 64},
		{"lock_exec", `{"key": "k", "command": ["no-such-command"]}`, "cli.invalid_argument", 127},
		{"lock_exec", `{"key": "k", "dir": "/no/such/folder", "command": ["true"]}`, "cli.invalid_argument", 64},
		{"limit_exec", `{"key": "new", "rates": ["1/24h"], "dir": "/no/such/folder", "command": ["true"]}`, "cli.invalid_argument", 64},
		{"limit_exec", `{"key": "new", "rates": ["1/24h"], "command": ["no-such-command"]}`, "cli.invalid_argument", 127},
		{"lock_exec", `{"key": "k", "slots": 1, "init": "echo broken >&2; exit 9", "command": ["true"]}`, "cli.failed", 69},
		{"limit_permit", `{"key": "l", "rates": ["1/24h"]}`, "limit.limited", 75},
		{"limit_exec", `{"key": "l", "rates": ["1/24h"], "wait": "1h", "command": ["true"]}`, "limit.limited", 75}, // known to be too late
		{"limit_permit", `{"key": "l", "rates": ["5"]}`, "cli.invalid_argument", 64},
		{"limit_permit", `{"key": "l", "rates": []}`, "cli.missing_argument", 64},
		{"limit_permit", `{"key": "l", "rates": ["0/1s"]}`, "limit.invalid_option", 64},
		{"limit_permit", `{"key": "l", "rates": ["5/1s"], "cost": 6}`, "limit.invalid_option", 64},
	} {
		if r := a.must(x.tool, x.args); r.Error.Code != x.code || r.Error.Status != x.status || !strings.Contains(r.texts, "("+x.code+")") {
			t.Errorf("%s %s: %+v", x.tool, x.args, r)
		} else if strings.Contains(r.texts, "--") {
			t.Errorf("%s %s is answered with a flag: %s", x.tool, x.args, r.texts)
		}
	}
	if r := a.must("limit_permit", `{"key": "new", "rates": ["1/24h"]}`); !r.Allowed {
		t.Errorf("commands that could not run have consumed the limit: %+v", r)
	}
	if r, err := a.call(t.Context(), "lock_acquire", `{"kee": "k"}`); err != nil || !strings.Contains(r.texts, "kee") {
		t.Errorf("an unknown argument: %+v, %v", r, err)
	}
}

// A list of nothing says that nobody has a lock.
func TestListOfABackendThatDoesNotAnswerHasNoResult(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "", "--url", "redis://127.0.0.1:1/0")
	if r := a.must("lock_ls", `{}`); r.Error.Code != "lock.unavailable" || r.Error.Status != 69 || r.Result != nil {
		t.Errorf("lock_ls: %+v", r)
	}
}

// Calls run at the same time, and wait for each other only at a lock.
func TestCallsOfOneClientExcludeEachOther(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	file := filepath.Join(a.dir, "exclusive")
	const n = 4
	errs := make(chan error, n)
	for range n {
		go func() {
			r, err := a.call(t.Context(), "lock_exec", fmt.Sprintf(`{"key": "k", "wait": "1m", "command": ["sh", "-c", "mkdir %s && rmdir %[1]s"]}`, file))
			if err == nil && r.Status != 0 {
				err = fmt.Errorf("status %d: %s", r.Status, r.Stderr)
			}
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// A client that has gone away holds nothing, and its commands are dead.
func TestEndOfTheInputGivesEverythingBack(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	a.must("lock_acquire", `{"key": "held", "ttl": "1h"}`)
	l, file := a.locks(), filepath.Join(a.dir, "pid")
	go func() { _, _ = a.call(t.Context(), "lock_exec", sleeper("exec", file)) }() // it ends with the session
	pid := begun(t, file)
	if a.leave(); a.err != nil {
		t.Error(a.err)
	}
	take(t, l, "held")
	take(t, l, "exec")
	dead(t, pid)
}

func TestSignalGivesEverythingBack(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	a.must("lock_acquire", `{"key": "held", "ttl": "1h"}`)
	l, file := a.locks(), filepath.Join(a.dir, "pid")
	go func() { _, _ = a.call(t.Context(), "lock_exec", sleeper("exec", file)) }()
	pid := begun(t, file)
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	take(t, l, "held")
	take(t, l, "exec")
	dead(t, pid)
}

// A killed process gives back its leases at the latest at their TTL, and its
// commands are dead before their lease is granted again.
func TestKilledServerLeavesNothing(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	a.must("lock_acquire", `{"key": "held", "ttl": "3s"}`)
	l, file := a.locks(), filepath.Join(a.dir, "pid")
	go func() { _, _ = a.call(t.Context(), "lock_exec", sleeper("exec", file)) }()
	pid := begun(t, file)
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	take(t, l, "held")
	take(t, l, "exec")
	dead(t, pid)
}

// A loss is told at once to a client that has asked for messages, and to each
// client with the next answer. The command of a lost lease is ended.
func TestLossIsTold(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "2025-06-18")
	if err := a.session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "warning"}); err != nil { //nolint:staticcheck // as above
		t.Fatal(err)
	}
	h := a.must("lock_acquire", `{"key": "held"}`)
	l, file := a.locks(), filepath.Join(a.dir, "pid")
	ran := make(chan reply, 1)
	go func() {
		r, _ := a.call(t.Context(), "lock_exec", sleeper("exec", file))
		ran <- r
	}()
	pid := begun(t, file)
	for _, key := range []string{"held", "exec"} {
		if _, err := l.ForceRelease(t.Context(), key, "an operator needs it"); err != nil {
			t.Fatal(err)
		}
	}
	dead(t, pid)
	select {
	case text := <-a.told:
		if !strings.Contains(text, h.Handle) || !strings.Contains(text, "lock.lost") {
			t.Errorf("told: %s", text)
		}
	case <-time.After(longTime):
		t.Error("the loss is not told")
	}
	if r := <-ran; r.Error.Code != "lock.lost" || r.Error.Status != 70 {
		t.Errorf("lock_exec: %+v", r)
	} else if !strings.Contains(r.texts, h.Handle) && !strings.Contains(a.must("lock_ls", `{}`).texts, h.Handle) {
		t.Error("the loss is not in the next answer")
	}
	if r := a.must("lock_renew", fmt.Sprintf(`{"handle": %q}`, h.Handle)); r.Error.Code != "lock.lost" {
		t.Errorf("lock_renew: %+v", r)
	}
}

// A client does not read the answer of a call that it has cancelled.
func TestLossIsToldAfterACancelledCall(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	h := a.must("lock_acquire", `{"key": "held"}`)
	l, file := a.locks(), filepath.Join(a.dir, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := a.call(ctx, "lock_exec", sleeper("exec", file))
		ended <- err
	}()
	pid := begun(t, file)
	if _, err := l.ForceRelease(t.Context(), "held", "an operator needs it"); err != nil {
		t.Fatal(err)
	}
	take(t, l, "held")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	dead(t, pid)
	take(t, l, "exec") // the cancelled call has been answered
	until(t, "the loss is in an answer", func() bool { return strings.Contains(a.must("lock_ls", `{}`).texts, h.Handle) })
}

func TestCancelledCallEndsItsCommand(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	for _, tool := range []string{"lock_exec", "limit_exec"} {
		file := filepath.Join(a.dir, tool)
		args := sleeper("k", file)
		if tool == "limit_exec" {
			args = strings.Replace(args, `"ttl": "3s"`, `"rates": ["9/1s"]`, 1)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := a.call(ctx, tool, args)
			ended <- err
		}()
		pid := begun(t, file)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", tool, err)
		}
		dead(t, pid)
	}
	if r := a.must("lock_acquire", `{"key": "k", "wait": "1m"}`); r.Handle == "" {
		t.Errorf("the lock is not free: %+v", r)
	}
}

func TestLeaseEndsAtItsMax(t *testing.T) {
	a := startAgent(t, shortdir.New(t), "")
	h := a.must("lock_acquire", `{"key": "k", "max": "50ms"}`)
	take(t, a.locks(), "k")
	if r := a.must("lock_release", fmt.Sprintf(`{"handle": %q}`, h.Handle)); r.Error.Code != "lock.lost" {
		t.Errorf("lock_release: %+v", r)
	}
}

// Whatever commands and their helpers write, each line of the output is a frame
// of the protocol.
func TestOutputIsTheProtocol(t *testing.T) {
	cmd := tool(shortdir.New(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	noise := `{"slots": 1, "key": "k", "init": "echo noise", "cleanup": "echo noise; exit 1", "command": ["sh", "-c", "echo noise; echo noise >&2"]}`
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"lock_exec","arguments":` + noise + `}}`,
	} {
		if _, err := io.WriteString(in, frame+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	lines, last := bufio.NewScanner(out), 0
	for last != 2 && lines.Scan() {
		var frame struct {
			JSONRPC string
			ID      int
		}
		if err := json.Unmarshal(lines.Bytes(), &frame); err != nil || frame.JSONRPC != "2.0" {
			t.Errorf("%v: %s", err, lines.Bytes())
		}
		last = frame.ID
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %s, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A line that is no message is answered as JSON-RPC 2.0 has it, and the server, with
// the leases of its client, goes on.
func TestLineThatIsNoMessageIsAnswered(t *testing.T) {
	cmd := tool(shortdir.New(t))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, x := range []struct{ send, want string }{
		{"hello", `"id":null,"error":{"code":-32700`},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, `"id":1`},
		{"\n  \r\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n\xff\xfe", `"code":-32700`},
		{`{"jsonrpc":"2.0","id":2,"method":`, `"code":-32700`},
		{`{"jsonrpc":"2.0","id":3,"method":"ping"} {}`, `"code":-32700`},
		{"42", `"id":null,"error":{"code":-32600`},
		{"[]", `"code":-32600`},
		{`[{"jsonrpc":"2.0","id":4,"method":"ping"},1]`, `"code":-32600`},
		{`{"jsonrpc":"1.0","id":5,"method":"ping"}`, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, `"code":-32600`},
		{`{"jsonrpc":"2.0","id":6,"method":"ping"}`, `"id":6`},
	} {
		if _, err := io.WriteString(in, x.send+"\n"); err != nil {
			t.Fatalf("%s: %v", x.send, err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), x.want) || !json.Valid(lines.Bytes()) {
			t.Errorf("%s is answered %s, want %s", x.send, lines.Text(), x.want)
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("after the end: %s, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestWrongBackendIsReportedAtTheStart(t *testing.T) {
	cmd := tool(t.TempDir(), "--url", "redis://user:geheim@localhost:6379/0")
	cmd.Stderr = nil
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 64 || !strings.Contains(string(out), "--url-env") || strings.Contains(string(out), "geheim") {
		t.Errorf("%v: %s", err, out)
	}
}
