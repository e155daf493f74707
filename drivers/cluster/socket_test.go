//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock/driver"
)

// socketPath is one in a folder that nobody else can enter, and short: those of
// sockets are bounded.
func socketPath(t testing.TB) string {
	t.Helper()
	return filepath.Join(shortdir.New(t), "s")
}

// meetAt returns a node at the socket that is closed when the test ends.
func meetAt(t *testing.T, socket string) *Node {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	n, err := Dial(t.Context(), Config{Socket: socket, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// longestReunion is the maximum time for which messages wait for the clients of an
// earlier hub.
const longestReunion = 500 * time.Millisecond

func (n *Node) hasHub() bool {
	h := n.host()
	return h != nil && !h.Failed()
}

// host returns the hub in this process, or nil.
func (n *Node) host() *hub.Host {
	n.presence.mu.Lock()
	defer n.presence.mu.Unlock()
	return n.presence.host
}

// clientFile returns the file of this process. A search for a hub may replace it.
func (n *Node) clientFile() *rendezvous.ClientFile {
	n.presence.mu.Lock()
	defer n.presence.mu.Unlock()
	return n.presence.file
}

func hubs(nodes []*Node) (n int) {
	for _, x := range nodes {
		if x.hasHub() {
			n++
		}
	}
	return n
}

// Of those who come at once one has the hub, and when it leaves another one has,
// until nobody is left.
func TestThereIsOneHubAsLongAsThereIsSomebody(t *testing.T) {
	socket := socketPath(t)
	nodes := make([]*Node, 8)
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() { nodes[i] = meetAt(t, socket) })
	}
	all.Wait()
	for len(nodes) > 0 {
		if n := hubs(nodes); n != 1 {
			t.Fatalf("%d hubs among %d nodes", n, len(nodes))
		}
		leaver := 0
		for !nodes[leaver].hasHub() {
			leaver++
		}
		before := make(map[*Node]*session)
		for _, n := range nodes {
			before[n] = n.served(t, nil)
		}
		start := time.Now()
		if err := nodes[leaver].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes[:leaver], nodes[leaver+1:]...)
		for _, n := range nodes {
			n.served(t, before[n])
		}
		t.Logf("%d nodes have another hub after %v", len(nodes), time.Since(start))
	}
	files, err := filepath.Glob(socket + "*/*")
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(f, socket+".clients/hub.") })
	if len(files) != 0 || err != nil {
		t.Errorf("%q are left, %v", files, err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the last one has left the socket: %v", err)
	}
}

// A hub whose lock file was removed may have a rival, and ends.
func TestAHubThatLosesItsSeatEnds(t *testing.T) {
	socket := socketPath(t)
	n := meetAt(t, socket)
	s := n.served(t, nil)
	old := n.host()
	if err := os.Remove(socket + ".lock"); err != nil {
		t.Fatal(err)
	}
	old.Fail(errors.New("the lock file was removed"))
	n.served(t, s)
	if !old.Failed() || !n.hasHub() {
		t.Error("the old hub goes on, or there is no new one")
	}
}

// slowToEnd is a log in which the end of each client of a hub waits until the hub has
// given up the wait for it.
type slowToEnd struct {
	slog.Handler
	once  *sync.Once
	ended chan struct{}
}

func (h slowToEnd) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "cluster: client disconnected":
		<-h.ended
	case "cluster: this process is no longer the hub of the socket":
		h.once.Do(func() { close(h.ended) })
	}
	return nil
}

// A process whose hub has lost its lock file, and was slow to end, has a hub again.
func TestAProcessWhoseHubWasSlowToEndHasAHub(t *testing.T) {
	socket := socketPath(t)
	log := slog.New(slowToEnd{slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}), new(sync.Once), make(chan struct{})})
	n, err := Dial(t.Context(), Config{Socket: socket, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	s := n.served(t, nil)
	n.host().Fail(errors.New("the lock file was removed"))
	soon(t, "it has a hub", func() bool {
		now, err := n.session()
		return now != s && err == nil
	})
	if err := n.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Who has removed the socket keeps nobody out for long, and nobody who is in
// notices.
func TestASocketThatIsRemovedComesBack(t *testing.T) {
	socket := socketPath(t)
	a := meetAt(t, socket)
	s := a.served(t, nil)
	for range 2 {
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
		refused(t, socket, "was removed: it puts it back") // or the hub has looked just now
		began := time.Now()
		meetAt(t, socket)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	}
	if now, err := a.session(); now != s || err != nil || !a.hasHub() {
		t.Errorf("who was there has another hub, or none: %v", err)
	}
}

// A hub that has no descriptor for a process that connects reports it once, and
// accepts the process as soon as there is one.
func TestAHubWithoutDescriptorsReportsItOnce(t *testing.T) {
	socket := socketPath(t)
	var failed atomic.Int64
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.String() == "cluster: accept failed" {
			failed.Add(1)
		}
		return a
	}}))
	n, err := Dial(t.Context(), Config{Socket: socket, Log: log})
	must(t, err)
	defer func() { must(t, n.Close(t.Context())) }()
	release := useUpDescriptors(t)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		release()
		t.Fatal(err)
	}
	eventually(t, "the report", func() bool { return failed.Load() > 0 })
	release()
	must(t, conn.Close())
	meetAt(t, socket)
	if reports := failed.Load(); reports != 1 {
		t.Errorf("%d reports", reports)
	}
}

// useUpDescriptors leaves this process room for one more descriptor, until release
// is called.
func useUpDescriptors(t *testing.T) (release func()) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	var used []*os.File
	release = func() {
		for _, f := range used {
			_ = f.Close()
		}
		must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	}
	first, err := os.Open(os.DevNull)
	must(t, err)
	used = append(used, first)
	limit := before
	limit.Cur = uint64(first.Fd()) + 20
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		used = append(used, f)
	}
	_ = used[len(used)-1].Close()
	return release
}

// refused waits until a Dial that does not wait for the hub fails with an error
// that says why, and reports whether none has succeeded. On a busy machine its
// context may end before it has found anything out.
func refused(t *testing.T, socket string, why ...string) (all bool) {
	t.Helper()
	all = true
	eventually(t, fmt.Sprintf("an error that says %q", why), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		n, err := Dial(ctx, Config{Socket: socket})
		if err == nil {
			all = false
			must(t, n.Close(t.Context()))
			return true
		}
		return errors.Is(err, context.DeadlineExceeded) && !slices.ContainsFunc(why, func(s string) bool { return !strings.Contains(err.Error(), s) })
	})
	return all
}

// served returns the node's connection to a hub once it is another one than
// before.
func (n *Node) served(t *testing.T, before *session) *session {
	t.Helper()
	for {
		s, err := n.ready(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s != before {
			return s
		}
		<-before.line.Ended()
		runtime.Gosched()
	}
}

// A process whose file was removed, and that cannot make another one, gets no lease: the next
// hub would not wait for it (L1).
func TestAProcessWithoutAFileGetsNoLease(t *testing.T) {
	socket := socketPath(t)
	x := meetAt(t, socket).Lock()
	acquire := func(key string) (driver.Grant, error) {
		return x.Acquire(t.Context(), driver.Request{Key: key, Token: key, TTL: time.Minute, Slots: 1, Fences: 1})
	}
	held, err := acquire("held")
	must(t, err)
	must(t, errors.Join(os.RemoveAll(socket+".clients"), os.WriteFile(socket+".clients", nil, 0o600))) // in the way of another folder
	if r := x.Renew(t.Context(), []driver.Grant{held}); r[0].Err == nil {
		t.Error("a lease is renewed")
	}
	if _, err := acquire("new"); err == nil {
		t.Error("a new lease is granted")
	}
	must(t, os.Remove(socket+".clients"))
	_, err = acquire("new")
	must(t, err)
}

// Whose file is removed makes another one as soon as it needs it.
func TestAMemberWhoseFileIsRemovedComesAgain(t *testing.T) {
	socket := socketPath(t)
	a, b := meetAt(t, socket), meetAt(t, socket)
	name, before := b.clientFile().Name(), b.served(t, nil)
	if err := os.Remove(filepath.Join(socket+".clients", name)); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.served(t, before)
	if again := b.clientFile().Name(); again == name {
		t.Error("it is still called the same")
	}
}

// deaf is a front that nothing is told.
type deaf struct{}

func (deaf) Answer(busdriver.Message) {}
func (deaf) Fail(uint64, error)       {}
func (deaf) Disconnected(error)       {}
func (deaf) Connected()               {}
func (deaf) Expired(int)              {}
func (deaf) Lost(int, int, error)     {}
func (deaf) Refused(string, error)    {}

// letterbox is a sink that keeps what it is given.
type letterbox struct{ got chan busdriver.Message }

func (letterbox) Gap(int)    {}
func (letterbox) Load() int  { return 0 }
func (letterbox) Fail(error) {}

func (i letterbox) Deliver(m busdriver.Message) bool {
	i.got <- m
	return true
}

// What is published while the hub is away waits until all who were there are back,
// those who never held a lock too.
func TestMessagesWaitForThoseWhoWereThere(t *testing.T) {
	for range 20 {
		got, back := publishToALatecomer(t, longestReunion/10)
		if back > longestReunion/2 {
			continue // a busy machine was later than the latecomer
		}
		if !got {
			t.Errorf("lost, though its receiver was back after %v", back)
		}
		return
	}
	t.Error("nobody is ever back in time")
}

// They do not wait for one that does not come.
func TestMessagesDoNotWaitForLong(t *testing.T) {
	if got, _ := publishToALatecomer(t, 3*longestReunion); got {
		t.Error("a message has waited for longer than a longestReunion")
	}
}

// publishToALatecomer publishes as soon as there is another hub, to a process that
// comes back so much later. It returns whether that got it, and when it was back.
func publishToALatecomer(t *testing.T, late time.Duration) (got bool, back time.Duration) {
	t.Helper()
	socket := socketPath(t)
	hub, from, to := meetAt(t, socket), meetAt(t, socket), meetAt(t, socket)
	in := letterbox{make(chan busdriver.Message, 1)}
	for _, n := range []*Node{from, to} {
		if err := n.Bus().Attach(deaf{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := to.Bus().Subscribe(t.Context(), busdriver.Subscription{Pattern: "a", Sink: in}); err != nil {
		t.Fatal(err)
	}
	before, here := from.served(t, nil), to.served(t, nil)
	to.presence.mu.Lock() // it cannot come back
	start := time.Now()
	if err := hub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	from.served(t, before)
	if err := from.Bus().Publish(t.Context(), busdriver.Message{Subject: "a"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(late)
	to.presence.mu.Unlock()
	to.served(t, here)
	back = time.Since(start)
	if err := errors.Join(from.awaitOpen(t.Context()), to.awaitOpen(t.Context())); err != nil {
		t.Fatal(err)
	}
	select {
	case <-in.got:
		return true, back
	case <-time.After(2 * longestReunion):
		return false, back
	}
}

func TestDialSaysWhyItCannotMeet(t *testing.T) {
	socket := socketPath(t)
	if err := os.WriteFile(socket, []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(t.Context(), Config{Socket: socket}); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("a file: %v", err)
	}
	if _, err := Dial(t.Context(), Config{Socket: "/" + strings.Repeat("x", 200)}); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a long path: %v", err)
	}
	socket = socketPath(t)
	p, err := rendezvous.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, listens := range []bool{false, true} {
		if listens {
			if _, err := s.Listen(); err != nil {
				t.Fatal(err)
			}
		}
		if !refused(t, socket, fmt.Sprint("process ", os.Getpid())) {
			t.Errorf("connected to a hub that does nothing (listening: %v)", listens)
		}
	}
}
