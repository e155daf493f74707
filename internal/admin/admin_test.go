//go:build linux || darwin

package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/testkit/output"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

func TestMain(m *testing.M) {
	runChild()
	goleak.VerifyTestMain(m)
}

func folders(dir string) []string { return admin.Folders([]string{"XDG_RUNTIME_DIR=" + dir})[:1] }

// process is one called shop, with locks in memory, and what it logs.
func process(t testing.TB) (admin.Process, *output.Buffer) {
	t.Helper()
	locks, err := lock.New(memory.NewLock(), lock.Config{Identify: admin.Identify})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	log := &output.Buffer{}
	return admin.Process{
		Info:   admin.Info{Name: "shop", PID: os.Getpid(), Env: "test", Apps: []string{"web"}, Driver: "memory", Scope: "process", Since: time.Unix(1e9, 0).UTC()},
		Locks:  locks,
		Boot:   func() any { return map[string]string{"program": "shop"} },
		Bus:    newBus(t),
		Config: func() any { return []string{"lock.ttl"} },
		Routes: func() any { return []string{"/"} },
		Reload: func(context.Context) ([]config.Change, error) { return []config.Change{{Key: "log.level"}}, nil },
		SetLevel: func(_, level string) error {
			if level != "debug" {
				return errors.New("no such level")
			}
			return nil
		},
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}, log
}

func open(t *testing.T, p admin.Process, in []string) *admin.Server {
	t.Helper()
	s, err := admin.Open(p, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func TestProcessIsSeenAndChangedThroughItsSocket(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	c, ctx := admin.Dial(s.Path()), t.Context()
	lease, err := p.Locks.Acquire(ctx, "order:1", lock.Label("by hand"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, err error, ok bool) {
		t.Helper()
		if err != nil || !ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	info, err := c.Process(ctx)
	check("process", err, info.Name == "shop" && info.PID == os.Getpid() && info.Since.Equal(p.Info.Since) && info.Scope == "process")
	list, err := c.Locks(ctx, "order:", 0)
	check("locks", err, len(list.Locks) == 1 && list.Locks[0].Holders[0].Label == "by hand" && list.Total == 1 && !list.Truncated)
	list, err = c.Locks(ctx, "nothing", 0)
	check("no locks", err, len(list.Locks) == 0)
	entry, err := c.Lock(ctx, "order:1")
	check("lock", err, entry.Holders[0].Fence == lease.Fence())
	var stats lock.Stats
	err = c.Get(ctx, "/stats", &stats)
	check("stats", err, stats.Active == 1)
	for _, path := range []string{"/boot", "/bus", "/bus/topics", "/config", "/routes"} {
		var v any
		err := c.Get(ctx, path, &v)
		check(path, err, v != nil)
	}
	n, err := c.Release(ctx, "order:1", "stuck since noon", admin.Only{})
	check("release", err, n == 1)
	changes, err := c.Reload(ctx)
	check("reload", err, len(changes) == 1 && changes[0].Key == "log.level")
	check("level", c.SetLevel(ctx, "web", "debug"), true)
	<-lease.Context().Done()
}

// JSON replaces each byte that is not UTF-8 by U+FFFD, which is in other keys.
func TestChangeOfAKeyThatIsNotUTF8ReachesNoOtherKey(t *testing.T) {
	p, _ := process(t)
	c, ctx := admin.Dial(open(t, p, folders(shortdir.New(t))).Path()), t.Context()
	lease, err := p.Locks.Acquire(ctx, "caf\ufffd")
	if err != nil {
		t.Fatal(err)
	}
	const key = "caf\xe9"
	_, err = c.Release(ctx, key, "stuck", admin.Only{})
	for verb, err := range map[string]error{
		"release": err, "heal": c.Heal(ctx, key, 0, "clean"), "pause": c.PauseLimit(ctx, key, time.Second, "slow"), "reset": c.ResetLimit(ctx, key),
	} {
		if no, ok := errors.AsType[*admin.Error](err); !ok || no.Status != http.StatusBadRequest || !strings.HasSuffix(no.Code(), ".invalid_key") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

func TestForcedHolderLearnsAuthorAndReason(t *testing.T) {
	p, log := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	lease, err := p.Locks.Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Dial(s.Path()).Release(t.Context(), "order:1", "stuck since noon", admin.Only{}); err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done()
	me := admin.Peer{UID: os.Geteuid()}.User()
	lost, ok := errors.AsType[*lock.LostError](context.Cause(lease.Context()))
	if !ok || lost.Cause != lock.Forced || lost.Reason != "stuck since noon" || lost.By.PID != os.Getpid() || !strings.HasPrefix(lost.By.Label, me+",") {
		t.Errorf("the holder was told %+v, want reason and %s", lost, me)
	}
	if !strings.Contains(log.String(), `"stuck since noon"`) || !strings.Contains(log.String(), "by.user="+me) {
		t.Errorf("it is not logged:\n%s", log)
	}
}

func TestRefusalsHaveACode(t *testing.T) {
	p, log := process(t)
	p.Reload = func(context.Context) ([]config.Change, error) { return nil, errors.New("lock.ttl is wrong") }
	p.Boot = func() any { return nil }
	s := open(t, p, folders(shortdir.New(t)))
	c := admin.Dial(s.Path())
	for _, x := range []struct {
		name   string
		do     func(context.Context) error
		status int
		code   string
	}{
		{"a release without a reason", func(ctx context.Context) error { _, err := c.Release(ctx, "k", " ", admin.Only{}); return err }, 400, "request.invalid"},
		{"a reason that is too long", func(ctx context.Context) error {
			_, err := c.Release(ctx, "k", strings.Repeat("x", 513), admin.Only{})
			return err
		}, 400, "lock.invalid_option"},
		{"a body that is too long", func(ctx context.Context) error {
			_, err := c.Release(ctx, "k", strings.Repeat("x", 1<<20), admin.Only{})
			return err
		}, 400, "request.bad_body"},
		{"a key that cannot be", func(ctx context.Context) error { _, err := c.Release(ctx, "a b", "r", admin.Only{}); return err }, 400, "lock.invalid_key"},
		{"a look at a key that cannot be", func(ctx context.Context) error { _, err := c.Lock(ctx, ""); return err }, 400, "lock.invalid_key"},
		{"a limit that cannot be", func(ctx context.Context) error { _, err := c.Locks(ctx, "", -1); return err }, 400, "request.invalid"},
		{"a limit that is too high", func(ctx context.Context) error { _, err := c.Locks(ctx, "", 1001); return err }, 400, "request.invalid"},
		{"a prefix that is too long", func(ctx context.Context) error { _, err := c.Locks(ctx, strings.Repeat("x", 513), 0); return err }, 400, "request.invalid"},
		{"a reload that is refused", func(ctx context.Context) error { _, err := c.Reload(ctx); return err }, 422, "config.refused"},
		{"a level that there is not", func(ctx context.Context) error { return c.SetLevel(ctx, "", "loud") }, 400, "request.invalid"},
		{"a report that there is not yet", func(ctx context.Context) error { return c.Get(ctx, "/boot", nil) }, 503, "mega.starting"},
		{"a path that there is not", func(ctx context.Context) error { return c.Get(ctx, "/nothing", nil) }, 404, "request.not_found"},
		{"a verb that is only looked at", func(ctx context.Context) error { return c.Get(ctx, "/lock/release", nil) }, 405, "request.method_not_allowed"},
	} {
		t.Run(x.name, func(t *testing.T) {
			err := x.do(t.Context())
			var no *admin.Error
			if !errors.As(err, &no) || no.Status != x.status || no.Code() != x.code || no.Text == "" {
				t.Errorf("got %+v, want %d %s", err, x.status, x.code)
			}
		})
	}
	if strings.Contains(log.String(), "admin: ") {
		t.Errorf("what was refused is logged as done:\n%s", log)
	}
}

func TestListingsAreBounded(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 120 {
		lease, err := p.Locks.Acquire(ctx, fmt.Sprintf("order:%03d", i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lease.Release() })
	}
	var waiters sync.WaitGroup
	for range 30 {
		waiters.Go(func() { _, _ = p.Locks.Acquire(ctx, "order:000", lock.Wait(lock.Forever)) })
	}
	defer waiters.Wait()
	defer cancel()
	queued := func() int { // the process counts a waiter before it asks the driver
		state, err := p.Locks.Inspect(ctx, "order:000")
		if err != nil {
			t.Fatal(err)
		}
		return len(state.Waiters)
	}
	until(t, "30 waiters", func() bool { return queued() >= 30 })
	c := admin.Dial(s.Path())
	list, err := c.Locks(t.Context(), "order:", 0)
	if err != nil || len(list.Locks) != 100 || list.Total != 120 || !list.Truncated {
		t.Errorf("%d of %d locks (truncated: %v), %v; want 100 of 120", len(list.Locks), list.Total, list.Truncated, err)
	}
	if first := list.Locks[0]; len(first.Waiters) != 20 || first.Waiting != 30 {
		t.Errorf("%d of %d waiters, want 20 of 30", len(first.Waiters), first.Waiting)
	}
	list, err = c.Locks(t.Context(), "order:", 3)
	if err != nil || len(list.Locks) != 3 {
		t.Errorf("%d locks, %v; want 3", len(list.Locks), err)
	}
	entry, err := c.Lock(t.Context(), "order:000")
	if err != nil || len(entry.Waiters) != 30 {
		t.Errorf("%d waiters of one lock, %v; want 30", len(entry.Waiters), err)
	}
}

func TestSocketBelongsToItsUserAlone(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	for path, want := range map[string]fs.FileMode{s.Path(): fs.ModeSocket | 0o600, filepath.Dir(s.Path()): fs.ModeDir | 0o700} {
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if name := fmt.Sprintf("shop.%d.sock", os.Getpid()); filepath.Base(s.Path()) != name {
		t.Errorf("it is called %s, want %s", filepath.Base(s.Path()), name)
	}
}

// Each of these is a way for another user to get hold of the socket, or of
// whoever looks for it.
func TestFolderThatOthersReachIsNotUsed(t *testing.T) {
	for _, x := range []struct {
		name string
		make func(dir, folder string) error
		says string
	}{
		{"a link", func(dir, folder string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "elsewhere"), 0o700), os.Symlink(filepath.Join(dir, "elsewhere"), folder))
		}, "is not a folder"},
		{"a link to nowhere", func(dir, folder string) error { return os.Symlink(filepath.Join(dir, "nowhere"), folder) }, "is not a folder"},
		{"a file", func(_, folder string) error { return os.WriteFile(folder, nil, 0o600) }, "is not a folder"},
		{"a folder that the group can enter", func(_, folder string) error {
			return errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o710))
		}, "can be entered by other users"},
		{"a folder that all can write to", func(_, folder string) error {
			return errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, 0o777))
		}, "can be entered by other users (drwxrwxrwx): close it with chmod 700"},
		{"a parent that all can write to", func(dir, _ string) error { return os.Chmod(dir, 0o777) }, "could replace what is in it"},
		{"a parent that the group can write to", func(dir, _ string) error { return os.Chmod(dir, 0o770) }, "could replace what is in it"},
		{"no parent", func(dir, _ string) error { return os.Remove(dir) }, "no such file"},
	} {
		t.Run(x.name, func(t *testing.T) {
			p, _ := process(t)
			dir, second := shortdir.New(t), folders(shortdir.New(t))[0]
			folder := folders(dir)[0]
			if err := x.make(dir, folder); err != nil {
				t.Fatal(err)
			}
			s, err := admin.Open(p, []string{folder})
			if err == nil {
				_ = s.Close(t.Context())
				t.Fatal("it is used")
			}
			if !strings.Contains(err.Error(), x.says) {
				t.Errorf("%v: does not say %q", err, x.says)
			}
			if s = open(t, p, []string{folder, second}); filepath.Dir(s.Path()) != second {
				t.Errorf("the socket is %s, want it in %s", s.Path(), second)
			}
		})
	}
}

func TestParentThatAllShareIsUsedIfItIsSticky(t *testing.T) {
	p, _ := process(t)
	dir := shortdir.New(t)
	if err := os.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	open(t, p, folders(dir))
}

func TestFoldersComeFromTheEnvironment(t *testing.T) {
	uid := fmt.Sprint("mega-", os.Geteuid())
	for _, x := range []struct {
		environ []string
		want    []string
	}{
		{[]string{"XDG_RUNTIME_DIR=/run/me", "TMPDIR=/scratch"}, []string{"/run/me/mega", "/scratch/" + uid}},
		{[]string{"XDG_RUNTIME_DIR=/run/old", "XDG_RUNTIME_DIR=/run/me", "TMPDIR=/scratch"}, []string{"/run/me/mega", "/scratch/" + uid}},
		{[]string{"XDG_RUNTIME_DIR=relative", "TMPDIR=/scratch"}, []string{"/scratch/" + uid}},
		{[]string{"TMPDIR=relative"}, []string{filepath.Join(os.TempDir(), uid)}},
		{nil, []string{filepath.Join(os.TempDir(), uid)}},
	} {
		if got := admin.Folders(x.environ); !slices.Equal(got, x.want) {
			t.Errorf("%q: got %q, want %q", x.environ, got, x.want)
		}
	}
}

func TestLongNameIsShortenedForTheSocket(t *testing.T) {
	p, _ := process(t)
	dir := shortdir.New(t)
	p.Info.Name = "../" + strings.Repeat("주문 ", 200)
	s := open(t, p, folders(dir))
	if filepath.Dir(s.Path()) != filepath.Join(dir, "mega") {
		t.Errorf("a name led the socket to %s", s.Path())
	}
	if _, err := admin.Dial(s.Path()).Process(t.Context()); err != nil {
		t.Error(err)
	}
	found, err := admin.Find(t.Context(), folders(dir), p.Info.Name)
	if err != nil || len(found) != 1 {
		t.Errorf("found %v, %v by its whole name", found, err)
	}
}

func TestLongFolderLeavesRoomForTheNumberOrIsRefused(t *testing.T) {
	p, _ := process(t)
	dir := shortdir.New(t)
	long := filepath.Join(dir, strings.Repeat("d", 90-len(dir)))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	p.Info.Name = strings.Repeat("shop", 10)
	p.Info.PID = 7
	s, err := admin.Open(p, []string{filepath.Join(long, "m")})
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(s.Path()) != "7.sock" {
		t.Errorf("the socket is called %s, want 7.sock", s.Path())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for n := 91; n <= 120; n++ {
		longer := filepath.Join(dir, strings.Repeat("d", n-len(dir)))
		if err := os.Mkdir(longer, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := admin.Open(p, []string{filepath.Join(longer, "m")})
		if err == nil {
			err = s.Close(t.Context())
		} else if strings.Contains(err.Error(), "set XDG_RUNTIME_DIR to a folder with a shorter path") {
			continue
		}
		if err != nil || n == 120 {
			t.Errorf("a folder of %d bytes: %v, want a socket or advice", n, err)
		}
	}
}

func TestTwoOfOneNameAndProcessHaveASocketEach(t *testing.T) {
	p, _ := process(t)
	in := folders(shortdir.New(t))
	a, b := open(t, p, in), open(t, p, in)
	if a.Path() == b.Path() {
		t.Fatalf("both have %s", a.Path())
	}
	found, err := admin.Find(t.Context(), in, "shop")
	if err != nil || len(found) != 2 {
		t.Errorf("found %v, %v; want two", found, err)
	}
}

func TestASecondCloseLeavesTheSocketOfASuccessor(t *testing.T) {
	p, _ := process(t)
	in := folders(shortdir.New(t))
	old := open(t, p, in)
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	successor := open(t, p, in)
	if successor.Path() != old.Path() {
		t.Fatalf("its path is %s, not %s", successor.Path(), old.Path())
	}
	if err := old.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := admin.Dial(successor.Path()).Process(t.Context()); err != nil {
		t.Error(err)
	}
}

// leave makes a socket that nobody listens on.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOnlySocketsOfDeadProcessesAreRemoved(t *testing.T) {
	p, _ := process(t)
	in := folders(shortdir.New(t))
	alive := open(t, p, in)
	at := func(name string) string { return filepath.Join(in[0], name) }
	leave(t, at("old.1.sock"))
	leave(t, at("cluster.sock")) // of a hub, whose next one replaces it
	leave(t, at(".new-young"))
	leave(t, at(".new-old"))
	leave(t, at("socket of somebody else"))
	for _, name := range []string{"reserved.2.sock", "abandoned.3.sock", "a file.sock", "other"} {
		if err := os.WriteFile(at(name), []byte(strings.Repeat("x", strings.Count(name, " "))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hourAgo := time.Now().Add(-time.Hour)
	for _, name := range []string{".new-old", "abandoned.3.sock", "a file.sock", "other"} {
		if err := os.Chtimes(at(name), hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
	}
	second := open(t, p, in)
	var left []string
	entries, err := os.ReadDir(in[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{"cluster.sock", ".new-young", "a file.sock", "other", "reserved.2.sock", filepath.Base(second.Path()), filepath.Base(alive.Path()), "socket of somebody else"}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left:\n%s\nwant:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
}

func TestManyThatOpenAtOnceAreAllReached(t *testing.T) {
	p, _ := process(t)
	in := folders(shortdir.New(t))
	if err := os.Mkdir(in[0], 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		leave(t, filepath.Join(in[0], fmt.Sprintf("shop.%d.sock", i+1)))
	}
	servers := make([]*admin.Server, 20)
	var wg sync.WaitGroup
	for i := range servers {
		p := p
		p.Info.PID = i + 1
		wg.Go(func() {
			s, err := admin.Open(p, in)
			if err != nil {
				t.Error(err)
				return
			}
			servers[i] = s
		})
	}
	wg.Wait()
	found, err := admin.Find(t.Context(), in, "shop")
	if err != nil || len(found) != len(servers) {
		t.Errorf("found %d of %d, %v", len(found), len(servers), err)
	}
	for i, f := range found {
		if f.Err != nil || f.Info.PID != i+1 {
			t.Errorf("%s: %+v, %v", f.Path, f.Info, f.Err)
		}
	}
	for _, s := range servers {
		if s != nil {
			wg.Go(func() {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

func TestFindDistinguishesNames(t *testing.T) {
	dir := shortdir.New(t)
	for i, name := range []string{"shop", "shop-2", "bank"} {
		p, _ := process(t)
		p.Info.Name, p.Info.PID = name, i+1
		open(t, p, folders(dir))
	}
	leave(t, filepath.Join(dir, "mega", "shop.77.sock"))
	for name, want := range map[string]int{"shop": 1, "shop-2": 1, "bank": 1, "": 3, "sho": 0} {
		found, err := admin.Find(t.Context(), folders(dir), name)
		if err != nil || len(found) != want {
			t.Errorf("%q: found %v, %v; want %d", name, found, err, want)
		}
	}
}

func TestSilentProcessIsFoundWithAnError(t *testing.T) {
	in := folders(shortdir.New(t))
	if err := os.Mkdir(in[0], 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(in[0], "shop.9.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	found, err := admin.Find(t.Context(), in, "shop")
	if err != nil || len(found) != 1 || !errors.Is(found[0].Err, context.DeadlineExceeded) ||
		!strings.Contains(found[0].Err.Error(), "does not answer (is it stopped?)") || strings.Contains(found[0].Err.Error(), "http://") {
		t.Errorf("found %+v, %v; want one that does not answer", found, err)
	}
}

func TestHubsSocketIsNotFound(t *testing.T) {
	in := folders(shortdir.New(t))
	if err := os.Mkdir(in[0], 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(in[0], "cluster.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if found, err := admin.Find(t.Context(), in, ""); err != nil || len(found) != 0 {
		t.Errorf("found %+v, %v; want none", found, err)
	}
}

func TestFindEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := admin.Find(ctx, folders(shortdir.New(t)), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// hanging is a process whose reload says that it has begun, and ends when it
// is let go.
func hanging(t *testing.T) (p admin.Process, begun, leave chan struct{}) {
	t.Helper()
	p, _ = process(t)
	begun, leave = make(chan struct{}), make(chan struct{})
	p.Reload = func(ctx context.Context) ([]config.Change, error) {
		close(begun)
		select {
		case <-leave:
			return []config.Change{{Key: strings.Repeat("x", 1<<20)}}, nil // more than a connection's buffer holds
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return p, begun, leave
}

func TestCloseFinishesRequestsInFlight(t *testing.T) {
	p, begun, let := hanging(t)
	s := open(t, p, folders(shortdir.New(t)))
	answered, closed := make(chan error, 1), make(chan error, 1)
	var changes []config.Change
	go func() {
		var err error
		changes, err = admin.Dial(s.Path()).Reload(t.Context())
		answered <- err
	}()
	<-begun
	go func() { closed <- s.Close(t.Context()) }()
	until(t, "the end of the socket", func() bool { return missing(s.Path()) })
	if _, err := admin.Dial(s.Path()).Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a new request: %v, want it to find nobody", err)
	}
	close(let)
	if err := errors.Join(<-answered, <-closed); err != nil || len(changes) != 1 || len(changes[0].Key) != 1<<20 {
		t.Errorf("the request in flight: %v, %d changes", err, len(changes))
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

func TestCloseCutsOffHangingRequests(t *testing.T) {
	p, begun, let := hanging(t)
	defer close(let)
	s := open(t, p, folders(shortdir.New(t)))
	answered := make(chan error, 1)
	go func() {
		_, err := admin.Dial(s.Path()).Reload(t.Context())
		answered <- err
	}()
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v, want it to say what it cut off", err)
	}
	if err := <-answered; err == nil {
		t.Error("the request was answered")
	}
}

func TestSilentConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	p, _ := process(t)
	s := open(t, p, folders(shortdir.New(t)))
	conn, err := net.Dial("unix", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("GET ")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func TestViewsChangeNothing(t *testing.T) {
	p, _ := process(t)
	views := admin.Views(p)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/lock/release", "/config/reload", "/log", "/locks", "/process", "/bus", "/bus/pub", "/bus/req"} {
			w := record(views, method, path)
			if w.Code < 400 {
				t.Errorf("%s %s: %d", method, path, w.Code)
			}
		}
	}
}

// until waits until a condition holds, at most 20 s.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}
