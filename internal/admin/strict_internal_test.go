//go:build linux || darwin

package admin

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/internal/testkit/output"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

func TestABodyIsOneValue(t *testing.T) {
	for body, valid := range map[string]bool{
		`{"id":1}`:           true,
		" {\"id\":1}\n":      true,
		`{"id":1} {"id":2}`:  false,
		`{"id":1}}`:          false,
		`{"id":1}]{"id":2}`:  false,
		`{"id":1} and so on`: false,
	} {
		var in restartRequest
		w := httptest.NewRecorder()
		if ok := read(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)), &in); ok != valid {
			t.Errorf("%s: %v %s", body, ok, w.Body)
		}
	}
}

// opened opens a socket in a folder of its own.
func opened(t *testing.T, log *slog.Logger) *Server {
	t.Helper()
	dir := shortdir.New(t)
	s, err := OpenSupervisor(Supervisor{
		Info: func() Info { return Info{Name: "shop", PID: os.Getpid()} }, Workers: func() []Worker { return nil }, Log: log,
	}, []string{dir + "/mega"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// Nobody can reach a process whose socket was removed, and a supervisor none of its
// workers.
func TestARemovedSocketIsRestored(t *testing.T) {
	var log output.Buffer
	s := opened(t, slog.New(slog.NewTextHandler(&log, nil)))
	s.abandon()
	<-s.maintained // the test takes its place
	reached := func() error { return identify(t.Context(), []string{s.Path()})[0].Err }
	s.restore()
	if err := reached(); err != nil || log.String() != "" {
		t.Errorf("a socket that is there: %v, log %q", err, log.String())
	}
	for what, remove := range map[string]func() error{
		"a socket":          func() error { return os.Remove(s.Path()) },
		"the folder of all": func() error { return os.RemoveAll(filepath.Dir(s.Path())) },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		s.restore()
		if err := reached(); err != nil {
			t.Errorf("%s was removed: %v", what, err)
		}
	}
	if n := strings.Count(log.String(), "removed admin socket restored"); n != 2 {
		t.Errorf("the log has %d restored sockets:\n%s", n, log.String())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(s.Path()); !os.IsNotExist(err) {
		t.Errorf("after the end, the socket is there: %v", err)
	}
}

// The file may be the socket of a process with the same number in another container.
func TestAFileInPlaceOfARemovedSocketStays(t *testing.T) {
	var log output.Buffer
	s := opened(t, slog.New(slog.NewTextHandler(&log, nil)))
	s.abandon()
	<-s.maintained // the test takes its place
	if err := os.Remove(s.Path()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.Path(), []byte("of another process"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.restore()
	s.restore()
	if n := strings.Count(log.String(), "removed admin socket not restored"); n != 1 {
		t.Errorf("the log has %d lines about it:\n%s", n, log.String())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(s.Path()); err != nil || string(text) != "of another process" {
		t.Errorf("it is now %q, %v", text, err)
	}
}

// A cleaner of temporary folders removes files that are old. The name of a socket
// in the kernel's list is not the one that it has after its start.
func TestASocketStaysYoung(t *testing.T) {
	s := opened(t, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { s.maintain(ctx, time.Hour, time.Millisecond) })
	old := time.Now().Add(-20 * 24 * time.Hour)
	if err := os.Chtimes(s.Path(), old, old); err != nil {
		t.Fatal(err)
	}
	var info fs.FileInfo
	var err error
	for bound := time.Now().Add(10 * time.Second); time.Now().Before(bound); time.Sleep(time.Millisecond) {
		if info, err = os.Lstat(s.Path()); err != nil {
			t.Fatal(err)
		}
		if time.Since(info.ModTime()) < time.Hour {
			return
		}
	}
	t.Errorf("it was last changed at %v", info.ModTime())
}

// The backend refuses what the process has passed on, as for a request of an app.
func TestRefusalByTheBackendIsABadGateway(t *testing.T) {
	if got := statusOf(fmt.Errorf("publish: %w", bus.ErrRefused)); got != http.StatusBadGateway {
		t.Errorf("got %d", got)
	}
}
