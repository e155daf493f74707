//go:build linux || darwin

package rendezvous_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/internal/private"
	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// What the user could not trust is refused, with what to do, and nothing is
// made.
func TestAPlaceThatOthersReachIsRefused(t *testing.T) {
	for _, x := range []struct {
		name string
		make func(dir string) (path string)
		says string
	}{
		{"a folder that all can enter", func(dir string) string {
			must(t, os.Chmod(dir, 0o755))
			return dir + "/s"
		}, "choose one below it"},
		{"a folder that is a link", func(dir string) string {
			must(t, errors.Join(os.Mkdir(dir+"/real", 0o700), os.Symlink(dir+"/real", dir+"/link")))
			return dir + "/link/s"
		}, "is not a folder"},
		{"a folder that is a file", func(dir string) string {
			must(t, os.WriteFile(dir+"/file", nil, 0o600))
			return dir + "/file/s"
		}, "is not a folder"},
		{"the folder for all", func(string) string { return filepath.Join(os.TempDir(), "mega.sock") }, "this user's alone"},
		{"a folder in none", func(dir string) string { return dir + "/a/b/s" }, "is missing"},
		{"a folder", func(dir string) string { return dir }, "it is a folder"},
		{"somebody's file", func(dir string) string {
			must(t, os.WriteFile(dir+"/s", []byte("dear diary"), 0o600))
			return dir + "/s"
		}, "is not a socket"},
		{"clients in a file", func(dir string) string {
			must(t, os.WriteFile(dir+"/s.clients", nil, 0o600))
			return dir + "/s"
		}, "the folder of its clients"},
		{"a path that is too long", func(dir string) string { return dir + "/x/" + strings.Repeat("y", 110) }, "choose a shorter one"},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := shortdir.New(t)
			path := x.make(dir)
			_, err := rendezvous.Open(path)
			refused(t, err, x.says)
			if beside, err := filepath.Glob(dir + "/s.lock"); len(beside) > 0 || err != nil || strings.Contains(x.says, "chmod") {
				t.Errorf("%q was made beside it, %v", beside, err)
			}
			if _, err := os.Lstat(filepath.Join(dir, "x")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("a folder was made")
			}
		})
	}
}

func TestTheLongestPathWorks(t *testing.T) {
	dir := shortdir.New(t)
	p := open(t, filepath.Join(dir, strings.Repeat("y", private.MaxPath-len(dir)-2)))
	_, err := take(t, p).Listen()
	must(t, err)
	conn, _, err := p.Dial(t.Context())
	must(t, err)
	conn.Close()
	_, err = rendezvous.Open(p.Path() + "y")
	refused(t, err, "choose a shorter one")
}

func TestAllThatIsMadeIsTheUsersAlone(t *testing.T) {
	p := open(t, filepath.Join(shortdir.New(t), "new", "s"))
	_, err := take(t, p).Listen()
	must(t, err)
	join(t, p)
	must(t, filepath.WalkDir(filepath.Dir(p.Path()), func(path string, _ fs.DirEntry, err error) error {
		must(t, err)
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
		return nil
	}))
}

func TestOneSeatAtATime(t *testing.T) {
	p := place(t)
	c := spawn(t, p.Path(), "hub")
	c.says()
	_, err := p.Take()
	if !errors.Is(err, rendezvous.ErrTaken) {
		t.Fatal(err)
	}
	refused(t, err, "process")
	must(t, c.Pause())
	if _, err := p.Take(); !errors.Is(err, rendezvous.ErrTaken) {
		t.Errorf("the seat of a process that is stopped: %v", err)
	}
	must(t, c.Kill())
	s := take(t, p)
	left := s.Left()
	if left.PID != uint64(c.PID()) || left.Expiry < 1_000 || left.Fence < 2_000 {
		t.Errorf("left: %+v", left)
	}
	if other := open(t, p.Path()); true {
		if _, err := other.Take(); !errors.Is(err, rendezvous.ErrTaken) {
			t.Errorf("a second one in this process: %v", err)
		}
	}
}

// What a hub gave is covered over any number of hubs, until one says that
// nothing is left of it.
func TestBoundsOutliveTheirHub(t *testing.T) {
	p := place(t)
	s := take(t, p)
	if l := s.Left(); l.Expiry != rendezvous.Never || l.Fence != 0 { // a file that was removed looks like none
		t.Errorf("a first hub finds %+v", l)
	}
	must(t, s.Cover(int64(time.Hour), 1<<40))
	must(t, s.Close())
	for range 3 {
		s = take(t, p)
		if l := s.Left(); l.Expiry < int64(time.Hour) || l.Fence < 1<<40 {
			t.Fatalf("left: %+v", l)
		}
		must(t, s.Cover(10, 11))
		must(t, s.Close())
	}
	s = take(t, p)
	must(t, s.Cover(int64(time.Minute), 0))
	must(t, s.Settle())
	must(t, s.Close())
	if l := take(t, p).Left(); l.Expiry < int64(time.Minute) || l.Expiry >= int64(time.Hour) || l.Fence < 1<<40 {
		t.Errorf("after it was settled: %+v", l)
	}
}

// The first hub of a boot dates grants for all later ones.
func TestEpochOutlivesItsHub(t *testing.T) {
	p := place(t)
	for i := range int64(3) {
		s := take(t, p)
		for range 2 {
			if epoch, err := s.Epoch(5 + i); epoch != 5 || err != nil {
				t.Errorf("hub %d has the epoch %d, %v", i, epoch, err)
			}
		}
		must(t, s.Cover(10*i, 0))
		must(t, s.Close())
	}
	if left := take(t, p).Left(); left.Epoch != 5 {
		t.Errorf("the record has the epoch %d", left.Epoch)
	}
}

// A grant seldom writes, and is covered always.
func TestCoverWritesAhead(t *testing.T) {
	p := place(t)
	s := take(t, p)
	writes, last := 0, []byte(nil)
	for i := range 1000 {
		expiry, number := int64(i)*int64(time.Millisecond), uint64(i)*1000
		must(t, s.Cover(expiry, number))
		content, err := os.ReadFile(p.Path() + ".lock")
		must(t, err)
		if string(content) != string(last) {
			writes, last = writes+1, content
		}
	}
	if writes < 4 || writes > 30 {
		t.Errorf("%d writes in a second", writes)
	}
	must(t, s.Close())
	if l := take(t, p).Left(); l.Expiry < int64(999*time.Millisecond) || l.Fence < 999_000 {
		t.Errorf("left: %+v", l)
	}
}

// A write that is cut short leaves the record before it.
func TestARecordIsNotWrittenOverTheLastOne(t *testing.T) {
	p := place(t)
	s := take(t, p)
	before, err := os.ReadFile(p.Path() + ".lock")
	must(t, err)
	must(t, s.Cover(1_000, 0))
	after, err := os.ReadFile(p.Path() + ".lock")
	must(t, err)
	if half := len(after) / 2; string(before) != string(after[:len(before)]) && string(before[half:]) != string(after[half:]) || len(after) < 2*80 {
		t.Errorf("both copies have changed, or there is one: %d bytes, then %d", len(before), len(after))
	}
}

func TestALockFileThatIsNoneIsRefused(t *testing.T) {
	for name, x := range map[string]struct {
		make func(path string) error
		says string
	}{
		"somebody's notes": {func(path string) error { return os.WriteFile(path, []byte("buy milk"), 0o600) }, "not made by mega"},
		"a folder":         {func(path string) error { return os.Mkdir(path, 0o700) }, "is a directory"},
		"a link":           {func(path string) error { return os.Symlink("/etc/passwd", path) }, "symbolic links"},
		"a pipe":           {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "is no file"},
	} {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			must(t, x.make(p.Path()+".lock"))
			before, _ := os.Lstat(p.Path() + ".lock")
			_, err := p.Take()
			refused(t, err, x.says)
			after, err := os.Lstat(p.Path() + ".lock")
			if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
				t.Errorf("it was touched: %v, %v", after, err)
			}
		})
	}
}

func TestARecordThatIsLostBoundsNothingUntilSettled(t *testing.T) {
	p := place(t)
	must(t, os.WriteFile(p.Path()+".lock", make([]byte, 100), 0o600))
	for range 2 {
		s := take(t, p)
		if s.Left().Expiry != rendezvous.Never {
			t.Errorf("left: %+v", s.Left())
		}
		must(t, s.Cover(10, 11))
		must(t, s.Close())
	}
	s := take(t, p)
	must(t, s.Settle())
	must(t, s.Close())
	if l := take(t, p).Left(); l.Expiry > int64(time.Second) {
		t.Errorf("left: %+v", l)
	}
}

// A lock file that somebody removes costs the hub its seat: there may be another
// already.
func TestAHubWhoseLockFileIsRemovedKnows(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			old := take(t, p)
			_, err := old.Listen()
			must(t, err)
			must(t, old.Check())
			must(t, remove(p.Path()+".lock"))
			refused(t, old.Check(), "removed or replaced")
			for range 2 { // a bound that was not written covers nothing
				refused(t, old.Cover(1<<40, 0), "removed or replaced")
			}
			must(t, os.Remove(p.Path())) // by whoever removed the lock file
			_, err = old.Renew()         // the next hub may be about to listen
			refused(t, err, "removed or replaced")
			_, err = take(t, p).Listen()
			must(t, err)
			must(t, old.Close())
			conn, _, err := p.Dial(t.Context())
			if err != nil {
				t.Fatalf("the old hub has removed the new one's socket: %v", err)
			}
			conn.Close()
		})
	}
}

func TestMembersLiveAsLongAsTheirProcess(t *testing.T) {
	p := place(t)
	running, stopped, killed := spawn(t, p.Path(), "member"), spawn(t, p.Path(), "member"), spawn(t, p.Path(), "member")
	alive := []string{running.says(), stopped.says()}
	dead := killed.says()
	must(t, stopped.Pause())
	must(t, killed.Kill())
	me := join(t, p)
	alive = append(alive, me.Name())
	s := take(t, p)
	living, left, err := s.Clients(0)
	slices.Sort(living)
	slices.Sort(alive)
	if !slices.Equal(living, alive) || left != 0 || err != nil {
		t.Errorf("%q live, %d, %v; want %q", living, left, err, alive)
	}
	for name, want := range map[string]bool{dead: false, me.Name(): true, "../s": false, "": false, ".": false} {
		if lives, left := s.Lives(name, 0); lives != want || left != 0 {
			t.Errorf("%q lives: %v, and has left something until %d", name, lives, left)
		}
	}
	files := clientFiles(t, p)
	if len(files) != 3 {
		t.Errorf("%v: the dead one's file is to go, the others' to stay", files)
	}
	odd := filepath.Join(p.Path()+".clients", "odd")
	must(t, os.Symlink(odd, odd)) // it cannot be known whether its client lives
	if lives, _ := s.Lives("odd", 0); !lives {
		t.Error("a client counts as dead although nobody can know")
	}
	must(t, os.Remove(odd))
	must(t, running.Kill())
	must(t, stopped.Kill())
	for _, name := range alive {
		if lives, _ := s.Lives(name, 0); lives == (name != me.Name()) {
			t.Errorf("%q lives: %v", name, lives)
		}
	}
}

// A backup or an administrator may have made one. A hub that took it for a client would
// wait for its leases for ever.
func TestAFolderAmongTheClientsIsNoClient(t *testing.T) {
	p := place(t)
	must(t, os.Mkdir(filepath.Join(p.Path()+".clients", "folder"), 0o700))
	s := take(t, p)
	if living, left, err := s.Clients(0); len(living) > 0 || left != 0 || err != nil {
		t.Errorf("%q live, and have left something until %d, %v", living, left, err)
	}
	if lives, left := s.Lives("folder", 0); lives || left != 0 {
		t.Errorf("it lives: %v, and has left something until %d", lives, left)
	}
}

// clientFiles returns the files of the clients, without the marks of hubs.
func clientFiles(t *testing.T, p *rendezvous.Socket) []os.DirEntry {
	t.Helper()
	files, err := os.ReadDir(p.Path() + ".clients")
	must(t, err)
	return slices.DeleteFunc(files, func(f os.DirEntry) bool { return strings.Contains(f.Name(), ".") })
}

// What cleans temporary folders goes by age.
func TestFilesInUseDoNotLookOld(t *testing.T) {
	p := place(t)
	s, m := take(t, p), join(t, p)
	_, err := s.Listen()
	must(t, err)
	must(t, s.Settle())
	paths := []string{p.Path(), p.Path() + ".lock", filepath.Join(p.Path()+".clients", m.Name()), filepath.Join(p.Path()+".clients", "hub.settled")}
	for _, path := range paths {
		must(t, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	}
	s.Touch()
	_, _, err = s.Clients(0)
	must(t, err)
	for _, path := range paths {
		if info, err := os.Lstat(path); err != nil || time.Since(info.ModTime()) > time.Minute {
			t.Errorf("%s is of %v, %v", path, info.ModTime(), err)
		}
	}
}

// Who leaves something behind says so, for as long as it is good, and never for
// longer than the hub's record does.
func TestWhatALeaverLeftIsWaitedFor(t *testing.T) {
	p := place(t)
	s := take(t, p)
	must(t, s.Cover(1_000, 0))
	must(t, s.Settle()) // else the record has no bound
	must(t, s.Close())
	m, err := p.NewClient()
	must(t, err)
	must(t, m.Leave(900))
	must(t, m.Leave(0)) // again, which is nothing
	s = take(t, p)
	for _, x := range []struct{ now, want int64 }{{100, 900}, {899, 900}, {900, 0}, {100, 0}} {
		if living, left, err := s.Clients(x.now); len(living) != 0 || left != x.want || err != nil {
			t.Errorf("at %d: %q, %d, %v; want nobody and %d", x.now, living, left, err, x.want)
		}
	}
	forever, err := p.NewClient()
	must(t, err)
	must(t, forever.Leave(rendezvous.Never))
	if _, left, err := s.Clients(0); left != s.Left().Expiry || err != nil {
		t.Errorf("good until %d, %v; the record says %d", left, err, s.Left().Expiry)
	}
	if _, left := s.Lives(forever.Name(), 0); left != s.Left().Expiry || left == rendezvous.Never {
		t.Errorf("good until %d; the record says %d", left, s.Left().Expiry)
	}
}

// What a member said of its leases bounds them, also if it cannot be read.
func TestLeasesAreBoundedByWhatAMemberSaid(t *testing.T) {
	p := place(t)
	s, m := take(t, p), join(t, p)
	for _, x := range []struct{ ttl, want int64 }{{0, 0}, {500, 500}, {400, 500}, {600, 600}} {
		must(t, m.Bound(x.ttl))
		if got := s.Longest(m.Name()); got != x.want || m.Longest() != x.want {
			t.Errorf("after %d: %d, %d to itself, want %d", x.ttl, got, m.Longest(), x.want)
		}
	}
	file := filepath.Join(p.Path()+".clients", m.Name())
	for name, content := range map[string]string{"torn": strings.Repeat("\x00", 16) + "megalo", "foreign": strings.Repeat("x", 100)} {
		must(t, os.WriteFile(file, []byte(content), 0o600))
		if got := s.Longest(m.Name()); got != rendezvous.Never {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := s.Longest("nobody"); got != rendezvous.Never {
		t.Errorf("a file that is not there: %d", got)
	}
}

// A hub that clears up never takes a new member for a dead one.
func TestClearingUpSparesTheNewborn(t *testing.T) {
	p := place(t)
	s := take(t, p)
	var stop atomic.Bool
	var hub, clients sync.WaitGroup
	hub.Go(func() {
		for !stop.Load() {
			if _, _, err := s.Clients(0); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		clients.Go(func() {
			for range suite.Scaled(500) {
				m, err := p.NewClient()
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(50 * time.Microsecond)
				if err := m.Check(); err != nil {
					t.Error(err)
				}
				if err := m.Leave(0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	stop.Store(true)
	hub.Wait()
	if _, _, err := s.Clients(0); err != nil {
		t.Error(err)
	}
	if files := clientFiles(t, p); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

func TestAMemberWhoseFileIsRemovedKnows(t *testing.T) {
	p := place(t)
	m := join(t, p)
	must(t, m.Check())
	must(t, os.RemoveAll(p.Path()+".clients"))
	refused(t, m.Check(), "removed or replaced")
	join(t, p) // the folder is made again
}

// A hub that finds the folder of the clients removed, or emptied, since another one has
// settled knows that the files of clients may be missing.
func TestAFolderOfClientsThatIsRemovedIsKnownToTheNextHub(t *testing.T) {
	p := place(t)
	folder := p.Path() + ".clients"
	next := func(emptied bool) *rendezvous.HubLock {
		t.Helper()
		s := take(t, p)
		if s.Emptied() != emptied {
			t.Fatalf("the folder was emptied: %v", !emptied)
		}
		return s
	}
	must(t, next(false).Close()) // no hub has settled
	for range 2 {
		s := next(false)
		must(t, s.Settle())
		must(t, s.Close())
	}
	for _, all := range []bool{true, false} { // or what is in it
		s := next(false)
		files, err := os.ReadDir(folder)
		must(t, err)
		for _, f := range files {
			must(t, os.Remove(filepath.Join(folder, f.Name())))
		}
		if all {
			must(t, os.Remove(folder))
		}
		join(t, p) // which makes the folder again
		if !s.Emptied() {
			t.Error("the hub does not see it")
		}
		must(t, s.Settle()) // its clients had their files in the old folder
		must(t, s.Close())
		must(t, next(true).Close()) // which does not settle
		s = next(true)
		must(t, s.Settle())
		must(t, s.Close())
	}
}

// A hub whose files were removed leaves word of that, until another one has settled.
func TestALossIsKnownUntilAHubHasSettled(t *testing.T) {
	p := place(t)
	old := take(t, p)
	must(t, errors.Join(os.RemoveAll(p.Path()+".clients"), os.Remove(p.Path()+".lock")))
	old.RecordLoss()
	must(t, old.Close())
	for range 2 {
		s := take(t, p)
		if !s.FollowsLost() {
			t.Error("the loss is not known")
		}
		must(t, s.Close())
	}
	s := take(t, p)
	must(t, s.Settle())
	if s.FollowsLost() {
		t.Error("the loss is known after the hub has settled")
	}
}

// What is at the socket's path and no hub's stays there.
func TestWhatIsNoHubsIsLeftAlone(t *testing.T) {
	for _, at := range []string{"", "~"} {
		p := place(t)
		must(t, os.WriteFile(p.Path()+at, []byte("dear diary"), 0o600))
		s := take(t, p)
		_, err := s.Listen()
		refused(t, err, "is not a socket")
		must(t, s.Close())
		if text, err := os.ReadFile(p.Path() + at); string(text) != "dear diary" || err != nil {
			t.Errorf("it holds %q, %v", text, err)
		}
	}
}

// What has replaced the socket of a hub stays when the hub ends.
func TestWhatHasReplacedASocketIsLeftAlone(t *testing.T) {
	p := place(t)
	s := take(t, p)
	_, err := s.Listen()
	must(t, err)
	must(t, os.Remove(p.Path()))
	must(t, os.WriteFile(p.Path(), []byte("dear diary"), 0o600))
	must(t, s.Close())
	if text, err := os.ReadFile(p.Path()); string(text) != "dear diary" || err != nil {
		t.Errorf("it holds %q, %v", text, err)
	}
}

// A socket that was removed is opened again, and the old one is closed: no client can
// find it.
func TestASocketThatIsOpenedAgainClosesTheOldOne(t *testing.T) {
	p := place(t)
	s := take(t, p)
	old, err := s.Listen()
	must(t, err)
	if same, err := s.Renew(); same != old || err != nil {
		t.Errorf("a socket in its place is opened again: %v", err)
	}
	must(t, os.Remove(p.Path()))
	now, err := s.Renew()
	must(t, err)
	if err := old.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the old socket is open: %v", err)
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := now.Accept()
		if err == nil {
			err = conn.Close()
		}
		accepted <- err
	}()
	conn, _, err := p.Dial(t.Context())
	must(t, err)
	must(t, errors.Join(<-accepted, conn.Close(), s.Close()))
	if err := now.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is open after the end of the hub: %v", err)
	}
	if _, err := os.Lstat(p.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestASocketOfAnotherProgramIsLeftAlone(t *testing.T) {
	p := place(t)
	other, err := net.Listen("unix", p.Path())
	must(t, err)
	defer func() { _ = other.Close() }()
	s := take(t, p)
	_, err = s.Listen()
	refused(t, err, "another program")
	must(t, s.Close())
	conn, _, err := p.Dial(t.Context())
	must(t, err)
	conn.Close()
}

func TestLeasesAreRecordedWhileTheSocketIsRestored(t *testing.T) {
	for range 5 { // Renew waits for a second, in which a busy machine may not record
		if recordedFirst(t) {
			return
		}
	}
	t.Error("the record of a lease waits for the socket")
}

// recordedFirst reports whether a lease is recorded while the hub lock waits for the
// end of another program, which has replaced its socket.
func recordedFirst(t *testing.T) bool {
	t.Helper()
	p := place(t)
	s := take(t, p)
	_, err := s.Listen()
	must(t, err)
	must(t, os.Remove(p.Path()))
	other, err := net.Listen("unix", p.Path())
	must(t, err)
	renewed := make(chan error, 1)
	go func() {
		_, err := s.Renew()
		renewed <- err
	}()
	probed, err := other.Accept()
	must(t, err)
	must(t, probed.Close())
	must(t, s.Cover(1<<40, 1<<40))
	waiting := len(renewed) == 0
	must(t, other.Close())
	<-renewed
	return waiting
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	p := place(t)
	c := spawn(t, p.Path(), "hub")
	c.says()
	must(t, c.Kill())
	if _, err := os.Lstat(p.Path()); err != nil {
		t.Fatalf("a hub that is killed leaves its socket: %v", err)
	}
	must(t, os.Symlink("/nowhere", p.Path()+"x"))
	l, err := take(t, p).Listen()
	must(t, err)
	if l.Addr().String() != p.Path() {
		t.Errorf("it listens at %v", l.Addr())
	}
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = io.WriteString(conn, "hello")
			conn.Close()
		}
		accepted <- err
	}()
	conn, peer, err := p.Dial(t.Context())
	must(t, err)
	defer conn.Close()
	text, err := io.ReadAll(conn)
	if string(text) != "hello" || err != nil || peer.PID != os.Getpid() {
		t.Errorf("%q, %v from %+v", text, err, peer)
	}
	must(t, <-accepted)
}

// A process that is killed at any instant between taking the seat and giving it
// up hinders nobody.
func TestKilledAnywhereOnTheWayToTheSocket(t *testing.T) {
	p := place(t)
	for range suite.Scaled(20) {
		a, b := spawn(t, p.Path(), "rush"), spawn(t, p.Path(), "rush")
		for range 5 {
			if line := a.says(); line != "sits" && line != "listens" {
				t.Fatal(line)
			}
		}
		must(t, a.Kill())
		for range 20 { // what it said before, and the next ones
			if line := b.says(); line != "sits" && line != "listens" {
				t.Fatal(line)
			}
		}
		must(t, b.Kill())
		s, err := p.Take()
		must(t, err)
		_, err = s.Listen()
		must(t, errors.Join(err, s.Close()))
	}
	files, err := filepath.Glob(p.Path() + "*")
	if want := []string{p.Path() + ".clients", p.Path() + ".lock"}; !slices.Equal(files, want) || err != nil {
		t.Errorf("%q are left, %v; want %q", files, err, want)
	}
}

// A member that cannot write its file, as on a full disk, leaves no file: nobody
// would remove it before the next hub.
func TestAMemberThatCannotWriteLeavesNoFile(t *testing.T) {
	if left := spawn(t, place(t).Path(), "cramped").says(); left != "0" {
		t.Errorf("%s files are left", left)
	}
}

// What a hub or member starts does not keep its seat for it.
func TestChildrenOfTheDeadKeepNothing(t *testing.T) {
	p := place(t)
	c := spawn(t, p.Path(), "spawn")
	name := c.says()
	t.Cleanup(func() { _ = syscall.Kill(-c.PID(), syscall.SIGKILL) }) // what it has started
	must(t, syscall.Kill(c.PID(), syscall.SIGKILL))                   // and not its group
	<-c.Done()
	var s *rendezvous.HubLock
	eventually(t, "the seat", func() (ok bool) {
		seat, err := p.Take()
		s = seat
		return err == nil
	})
	defer func() { must(t, s.Close()) }()
	_, err := s.Listen()
	must(t, err)
	if lives, _ := s.Lives(name, 0); lives {
		t.Error("the member lives")
	}
}

// Of those who enter at once one gets the seat, and the others a connection.
func TestOneOfManyThatEnterAtOnceIsTheHub(t *testing.T) {
	for range suite.Scaled(20) {
		p := place(t)
		var hubs, connected atomic.Int32
		var all sync.WaitGroup
		seats := make(chan *rendezvous.HubLock, 1)
		for range 16 {
			all.Go(func() {
				conn, s, err := p.Enter(t.Context())
				switch {
				case err != nil:
					t.Error(err)
				case s != nil:
					hubs.Add(1)
					if _, err := s.Listen(); err != nil {
						t.Error(err)
					}
					seats <- s
				default:
					connected.Add(1)
					conn.Close()
				}
			})
		}
		all.Wait()
		if hubs.Load() != 1 || connected.Load() != 15 {
			t.Fatalf("%d hubs and %d connections", hubs.Load(), connected.Load())
		}
		must(t, (<-seats).Close())
	}
}

func TestEnteringSaysWhyItFailed(t *testing.T) {
	p := place(t)
	take(t, p) // which does not listen
	var err error
	eventually(t, "the reason", func() bool { // of a context that lasts until the first look
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, _, err = p.Enter(ctx)
		return errors.Is(err, rendezvous.ErrTaken)
	})
	refused(t, err, "another process is the hub: process")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
