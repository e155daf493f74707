package wire

import (
	"context"
	"errors"
	"net"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

func TestAnswersAreReadWhateverThePiecesTheyComeIn(t *testing.T) {
	text := "*5\r\n:1\r\n$4\r\na\r\nb\r\n$-1\r\n*2\r\n+ok\r\n$0\r\n\r\n*0\r\n"
	want := []any{int64(1), "a\r\nb", nil, []any{"ok", ""}, []any{}}
	for cut := range len(text) {
		if _, size, err := parseReply([]byte(text[:cut])); size != 0 || err != nil {
			t.Fatalf("%q: length %d, %v", text[:cut], size, err)
		}
	}
	r, size, err := parseReply([]byte(text + ":2\r\n"))
	if err != nil || size != len(text) || !reflect.DeepEqual(r.value, want) {
		t.Errorf("got %#v, length %d, %v", r.value, size, err)
	}
	for _, nothing := range []string{"$-1\r\n", "*-1\r\n", "_\r\n"} {
		if r, _, err := parseReply([]byte(nothing)); err != nil || !errors.Is(r.err, goredis.Nil) {
			t.Errorf("%q: got %v, %v", nothing, r, err)
		}
	}
	if r, _, err := parseReply([]byte("-NOPERM no\r\n")); err != nil || !goredis.HasErrorPrefix(r.err, "NOPERM ") {
		t.Errorf("got %v, %v", r, err)
	}
	for _, broken := range []string{"\n", "HTTP/1.1 400 Bad Request\r\n", ":one\r\n", "*2\r\n:1\r\n?\r\n"} {
		if _, _, err := parseReply([]byte(broken)); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}

// dial returns a client and a stream to the server, neither of which is connected.
func dial(t *testing.T, url string) (*goredis.Client, *Stream) {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ReadTimeout, o.Dialer = attempt, Dialer(attempt, nil)
	return goredis.NewClient(o), NewStream(*o)
}

// attempt is a time within which a server answers.
const attempt = 10 * time.Second

// streaming returns a wire whose stream is connected.
func streaming(t *testing.T, url string) *Wire {
	t.Helper()
	return streamingWithin(t, url, attempt)
}

func streamingWithin(t *testing.T, url string, attempt time.Duration) *Wire {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ReadTimeout, o.DialTimeout, o.MaxRetries, o.DialerRetries = attempt, attempt, -1, 1
	o.Dialer = Dialer(attempt, o.TLSConfig)
	w := wireOf(t, NewStream(*o))
	connect(t, w)
	return w
}

func wireOf(t *testing.T, s *Stream) *Wire {
	t.Helper()
	w := New(s.Client, s)
	t.Cleanup(func() {
		w.Close()
		w.Wait()
	})
	return w
}

// connect calls until the stream has a connection.
func connect(t *testing.T, w *Wire) {
	t.Helper()
	for end := time.Now().Add(time.Minute); w.current() == nil; {
		_, err := echo(t.Context(), w, "x")
		if time.Now().After(end) {
			t.Fatal("the stream does not connect: ", err)
		}
	}
}

func echo(ctx context.Context, w *Wire, text string) (any, error) {
	return w.Do(ctx, []string{"echo", text}, time.Minute)
}

// pop blocks until a list has an item.
func pop(ctx context.Context, w *Wire) error {
	_, err := w.Do(ctx, []string{"blpop", "list", "0"}, time.Minute)
	return err
}

func TestEachCallOnAStreamGetsItsOwnAnswer(t *testing.T) {
	w := streaming(t, redistest.Start(t, redistest.Options{}).URL())
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for j := range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				if (i+j)%5 == 0 {
					go cancel() // before, during or after the call
				}
				text := strconv.Itoa(i) + " " + strconv.Itoa(j)
				if got, err := echo(ctx, w, text); err == nil && got != text || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("got %v, %v, want %q", got, err, text)
				}
				cancel()
			}
		})
	}
	callers.Wait()
}

// counted counts the writes on a connection.
type counted struct {
	net.Conn
	writes atomic.Int64
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// countLocked counts the writes of w from now on.
func (w *Wire) countLocked() *counted {
	c := &counted{Conn: w.stream.session.conn}
	w.stream.session.conn = c
	return c
}

func TestCallersThatAreAnsweredTogetherShareWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // with more, callers run beside each other
	w := streaming(t, redistest.Start(t, redistest.Options{}).URL())
	w.stream.mu.Lock()
	conn := w.countLocked()
	w.stream.mu.Unlock()
	const calls = 32 * 200
	for end := time.Now().Add(time.Minute); ; {
		before := conn.writes.Load()
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				for range calls / 32 {
					if got, err := echo(t.Context(), w, "x"); err != nil || got != "x" {
						t.Errorf("got %v, %v", got, err)
					}
				}
			})
		}
		callers.Wait()
		writes := conn.writes.Load() - before
		if writes < calls/5 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d calls took %d writes", calls, writes)
		}
	}
}

// crowded returns a wire on which callers are waking up, and counts its writes.
func crowded(t *testing.T) (*Wire, *counted) {
	t.Helper()
	w := streaming(t, redistest.Start(t, redistest.Options{}).URL())
	w.stream.mu.Lock()
	defer w.stream.mu.Unlock()
	w.stream.session.waking = crowd
	return w, w.countLocked()
}

// background calls, and expects its own answer.
func background(t *testing.T, callers *sync.WaitGroup, w *Wire, text string) {
	t.Helper()
	callers.Go(func() {
		if got, err := echo(t.Context(), w, text); err != nil || got != text {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestFewCommandsAreLeftToACrowd(t *testing.T) {
	w, conn := crowded(t)
	var callers sync.WaitGroup
	background(t, &callers, w, "x")
	background(t, &callers, w, "y")
	until(t, w, "two commands", func(se *session) bool { return len(se.calls) == 2 })
	if n := conn.writes.Load(); n != 0 {
		t.Errorf("%d writes before the callers are awake", n)
	}
	w.stream.mu.Lock()
	w.stream.session.waking--
	w.stream.writeLocked(w.stream.session)
	w.stream.mu.Unlock()
	callers.Wait()
	if n := conn.writes.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
}

func TestBunchIsNotLeftToACrowd(t *testing.T) {
	w, conn := crowded(t)
	var callers sync.WaitGroup
	background(t, &callers, w, "x")
	until(t, w, "a command", func(se *session) bool { return len(se.calls) == 1 })
	background(t, &callers, w, strings.Repeat("y", bunch))
	callers.Wait()
	if n := conn.writes.Load(); n != 1 {
		t.Errorf("%d writes", n)
	}
	until(t, w, "the same crowd", func(se *session) bool { return se.waking == crowd })
}

func TestReaderThatLeavesHasAnotherCallerRead(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	w := streaming(t, server.URL())
	ctx, leave := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	go func() { blocked <- pop(ctx, w) }()
	queued := func(n int) {
		for have := -1; have < n; time.Sleep(time.Millisecond) {
			w.stream.mu.Lock()
			have = len(w.stream.session.calls)
			w.stream.mu.Unlock()
		}
	}
	queued(1)
	answers := make(chan any, 1)
	go func() {
		got, err := echo(t.Context(), w, "here")
		answers <- [2]any{got, err}
	}()
	queued(2)
	leave()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left: %v", err)
	}
	other, _ := dial(t, server.URL())
	defer other.Close()
	if err := other.LPush(t.Context(), "list", "x").Err(); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got != [2]any{"here", nil} {
		t.Errorf("the caller behind it: %v", got)
	}
}

func TestCallerLeavesWithItsContextWhileAnotherReads(t *testing.T) {
	w := streaming(t, redistest.Start(t, redistest.Options{}).URL())
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	blocked := make(chan error, 1)
	go func() { blocked <- pop(ctx, w) }()
	until(t, w, "a reader", func(se *session) bool { return se.reading })
	for _, wait := range []time.Duration{unwatched / 5, 2 * unwatched} {
		second, end := context.WithTimeout(t.Context(), wait)
		if got, err := echo(second, w, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: got %v, %v", wait, got, err)
		}
		end()
	}
	leave()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// watched counts how often something begins to watch a context.
type watched struct {
	context.Context
	times atomic.Int64
}

func (w *watched) Done() <-chan struct{} {
	w.times.Add(1)
	return w.Context.Done()
}

// The contexts of the calls of a lock have no timer and no channel until something
// watches them.
func TestCallThatIsAnsweredSoonDoesNotWatchItsContext(t *testing.T) {
	w := streaming(t, redistest.Start(t, redistest.Options{}).URL())
	for end := time.Now().Add(time.Minute); ; {
		ctx := &watched{Context: t.Context()}
		start := time.Now()
		var callers sync.WaitGroup
		for range 2 { // one reads for both
			callers.Go(func() {
				if _, err := echo(ctx, w, "x"); err != nil {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		soon := time.Since(start) < unwatched
		if soon && ctx.times.Load() != 0 {
			t.Fatal("the context was watched")
		}
		if soon {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no answer comes within 5 ms")
		}
	}
}

func TestReplicaIsRecognised(t *testing.T) {
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica.":                     true,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set":   true,
		"ERR Error running script (call to f_0): @user_script:5: -READONLY You can": true,
		"ERR Error running script (call to f_0): @user_script:5: WRONGTYPE Operati": false,
		"READONLYX": false,
	} {
		if got := isReplica(serverError(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if isReplica(nil) {
		t.Error("no error means a replica")
	}
}
