package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// big is an argument that fills the buffers of every system on the way.
var big = strings.Repeat("x", 32<<20)

// piped returns a wire whose stream is connected through a pipe.
func piped(t *testing.T, attempt time.Duration) (*Wire, *redistest.Pipe, *redistest.Server) {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	pipe := redistest.StartPipe(t, server.Addr())
	w := streamingWithin(t, "redis://"+pipe.Addr(), attempt)
	return w, pipe, server
}

// until waits until check returns true with the stream's mutex held.
func until(t *testing.T, w *Wire, what string, check func(*session) bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.stream.mu.Lock()
		ok := w.stream.session != nil && check(w.stream.session)
		w.stream.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (w *Wire) current() *session {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	return w.stream.session
}

// A host that vanishes leaves every connection half open. They cost one attempt
// together, not one each.
func TestHalfOpenNetworkCostsOneAttempt(t *testing.T) {
	t.Parallel()
	w, pipe, _ := piped(t, attempt)
	halfOpen(t, w, pipe)
}

func halfOpen(t *testing.T, w *Wire, pipe *redistest.Pipe) {
	t.Helper()
	pipe.Freeze()
	w.patience(10 * time.Millisecond)
	if got, err := echo(t.Context(), w, "lost"); !IsTimeout(err) {
		t.Errorf("on a dead connection: %v, %v", got, err)
	}
	w.patience(attempt)
	if got, err := echo(t.Context(), w, "here"); got != "here" || err != nil {
		t.Errorf("on a new connection: %v, %v", got, err)
	}
}

// patience sets the time within which the server must answer.
func (w *Wire) patience(d time.Duration) {
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	w.stream.attempt = d
}

// The network takes no more bytes. The caller leaves with its context, and not when
// the connection is given up.
func TestBlockedWriteDoesNotKeepItsCaller(t *testing.T) {
	t.Parallel()
	w, pipe, _ := piped(t, time.Hour)
	leaveBlockedWrite(t, w, pipe)
	pipe.Heal()
	if got, err := echo(t.Context(), w, "here"); got != "here" || err != nil {
		t.Errorf("after the stall: %v, %v", got, err)
	}
}

// leaveBlockedWrite stalls the network and ends the context of a call that is being
// written.
func leaveBlockedWrite(t *testing.T, w *Wire, pipe *redistest.Pipe) {
	t.Helper()
	pipe.Stall(redistest.Requests)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := echo(ctx, w, big)
		left <- err
	}()
	until(t, w, "the command to be on its way", func(se *session) bool { return len(se.calls) == 1 && len(se.out) == 0 })
	leave()
	select {
	case err := <-left:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the caller stays")
	}
}

// An answer that takes long because it is large is no silence.
func TestSlowAnswerIsNoSilence(t *testing.T) {
	t.Parallel()
	w, pipe, _ := piped(t, attempt)
	before := w.current()
	pipe.Stall(redistest.Replies)
	answers := make(chan error, 1)
	ctx := &watched{Context: t.Context()}
	go func() {
		_, err := echo(ctx, w, big)
		answers <- err
	}()
	until(t, w, "a read with the deadline of the silence", func(*session) bool { return ctx.times.Load() > 0 })
	w.stream.mu.Lock()
	before.quiet = time.Now().Add(-time.Hour)
	w.stream.mu.Unlock()
	pipe.Heal()
	if err := <-answers; err != nil {
		t.Error(err)
	}
	if w.current() != before {
		t.Error("the connection has ended")
	}
}

// Silence begins with the first call that has no answer, whoever reads.
func TestNewCallerDoesNotProlongSilence(t *testing.T) {
	t.Parallel()
	w, pipe, _ := piped(t, 2*time.Minute)
	pipe.Stall(redistest.Replies)
	se := w.current()
	w.stream.mu.Lock()
	se.calls = append(se.calls, &call{cmd: goredis.NewCmd(t.Context()), done: make(chan struct{}, 1)}) // does not read yet
	se.quiet = time.Now().Add(-time.Hour)
	w.stream.mu.Unlock()
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	if _, err := echo(ctx, w, "x"); !IsTimeout(err) || ctx.Err() != nil {
		t.Errorf("got %v, want the end of the connection", err)
	}
}

// A process that stood still, or had no processor, finds the answers of that time.
func TestProcessThatStoodStillKeepsItsConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	w := streaming(t, server.URL())
	se := w.current()
	w.stream.mu.Lock()
	se.calls = append(se.calls, &call{cmd: goredis.NewCmd(t.Context()), done: make(chan struct{}, 1)}) // does not read
	se.quiet = time.Now().Add(-time.Hour)
	w.stream.mu.Unlock()
	if _, err := se.conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	for arrived := 0; arrived < 2; { // the answer is sent when the next command is executed
		clients, err := server.Clients()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprint(clients), "cmd:ping") {
			arrived++
		}
	}
	if got, err := echo(t.Context(), w, "here"); got != "here" || err != nil || w.current() != se {
		t.Errorf("got %v, %v, on the same connection: %v", got, err, w.current() == se)
	}
}

// Connections that have ended, in every way, are closed.
func TestEndedConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	w, pipe, server := piped(t, attempt)
	for i := range 20 {
		if i%2 == 0 {
			halfOpen(t, w, pipe)
			continue
		}
		if _, err := server.KillClients(); err != nil {
			t.Fatal(err)
		}
		for _, err := echo(t.Context(), w, "x"); err != nil; _, err = echo(t.Context(), w, "x") {
		}
	}
	for end := time.Now().Add(time.Minute); w.stream.Client.PoolStats().TotalConns != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections", w.stream.Client.PoolStats().TotalConns)
		}
	}
}

// An answer that arrives in pieces is parsed when it is complete, not at each piece.
func TestLargeAnswerInPiecesCostsMemoryInProportion(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	const items, piece = 20_000, 1000
	text := "*" + strconv.Itoa(items) + "\r\n" + strings.Repeat("*2\r\n:1\r\n$4\r\ntext\r\n", items)
	go func() {
		for rest := text; rest != ""; rest = rest[min(piece, len(rest)):] {
			_, _ = far.Write([]byte(rest[:min(piece, len(rest))])) // returns when it was read
		}
	}()
	se := &session{conn: near}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for len(se.got) == 0 {
		if _, err := se.receive(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if list, _ := se.got[0].value.([]any); len(list) != items || len(se.in) != 0 {
		t.Errorf("%d items, want %d; %d bytes are left", len(list), items, len(se.in))
	}
	if n := int(after.TotalAlloc - before.TotalAlloc); n > 40*len(text) {
		t.Errorf("%d bytes allocated for %d", n, len(text))
	}
}

func TestLargeCallLeavesNoLargeBuffers(t *testing.T) {
	w, _, _ := piped(t, attempt)
	if _, err := echo(t.Context(), w, big); err != nil {
		t.Fatal(err)
	}
	if _, err := echo(t.Context(), w, "x"); err != nil {
		t.Fatal(err)
	}
	until(t, w, "the end of the call", func(se *session) bool { return len(se.calls) == 0 && !se.reading && !se.writing })
	se := w.current()
	if n := cap(se.in) + cap(se.out) + cap(se.spare); n > 1<<20 {
		t.Errorf("the connection keeps buffers of %d bytes", n)
	}
}

func TestAnswersInPiecesOfOneByte(t *testing.T) {
	t.Parallel()
	w, pipe, _ := piped(t, attempt)
	pipe.Cut(redistest.Replies, 1)
	pipe.Cut(redistest.Requests, 1)
	for i := range 20 {
		text := strings.Repeat("\r\n$", i)
		if got, err := echo(t.Context(), w, text); got != text || err != nil {
			t.Fatalf("%q: got %q, %v", text, got, err)
		}
	}
}

// A connection whose steps each take nearly an attempt is distant, not broken.
func TestDistantServerGetsAStream(t *testing.T) {
	t.Parallel()
	const attempt = time.Second
	server := redistest.Start(t, redistest.Options{})
	proxy := redistest.StartProxy(t, server, nil)
	proxy.Delay(redistest.Replies, 6*attempt/10)
	streamingWithin(t, proxy.URL(), attempt)
}

// A call whose context has ended is not sent.
func TestCallWithoutAContextIsNotSent(t *testing.T) {
	t.Parallel()
	w, _, server := piped(t, attempt)
	if err := server.ResetCommands(); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if _, err := echo(ctx, w, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	until(t, w, "the end of the call", func(se *session) bool { return len(se.calls) == 0 })
	if n, err := server.Commands(); n["echo"] != 0 || err != nil {
		t.Errorf("the server has executed %d, %v", n["echo"], err)
	}
}

// The greeting needs no permission.
func TestStreamNeedsNoPermissionToPing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Users: []string{"mute on >pw ~* +@all -ping"}})
	streaming(t, "redis://mute:pw@"+server.Addr())
}

// A sentinel that has vanished does not keep the stream from asking the others.
func TestHalfOpenSentinelIsReplaced(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, 0, redistest.Options{})
	pipe := redistest.StartPipe(t, set.Addrs()[0])
	o := goredis.FailoverOptions{MasterName: set.MasterName(), SentinelAddrs: []string{pipe.Addr()}}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Second, time.Second, time.Second
	o.Dialer = Dialer(o.DialTimeout, nil)
	s := NewFailoverStream(o)
	w := wireOf(t, s)
	connect(t, w)
	before := w.current()
	pipe.Freeze()
	master, err := set.Master()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := master.KillClients(); err != nil {
		t.Fatal(err)
	}
	for w.current() == before || w.current() == nil {
		_, _ = echo(t.Context(), w, "x")
		if t.Context().Err() != nil {
			t.Fatal("no new connection")
		}
	}
}

// The server refuses a new connection and takes the next one.
func TestFullServerIsAnErrorUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	w := streaming(t, server.URL())
	o, err := goredis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize, o.MaxRetries = 1, -1
	admin := goredis.NewClient(o)
	defer admin.Close()
	for _, args := range [][]any{{"config", "set", "maxclients", "1"}, {"client", "kill", "type", "normal"}} {
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := echo(t.Context(), w, "x"); err == nil {
		t.Error("the connection lives")
	}
	// The client takes the refusal of its first command for an old server, so the
	// cause is only that the connection has ended.
	refused := &OpenError{}
	if _, err := echo(t.Context(), w, "x"); !errors.As(err, &refused) || refused.Where != o.Addr {
		t.Errorf("got %v", err)
	}
	if err := admin.ConfigSet(t.Context(), "maxclients", "100").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := echo(t.Context(), w, "here"); got != "here" || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}
