//go:build linux || darwin

package admin

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
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

// A cleaner of temporary folders removes files that are old. The name of a socket
// in the kernel's list is not the one that it has after its start.
func TestASocketStaysYoung(t *testing.T) {
	dir, err := os.MkdirTemp("", "mega") //nolint:usetesting // a path with the test's name in it is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := OpenSupervisor(Supervisor{Info: func() Info { return Info{Name: "shop", PID: os.Getpid()} }, Log: slog.New(slog.DiscardHandler)}, []string{dir + "/mega"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { s.touch(ctx, time.Millisecond) })
	old := time.Now().Add(-20 * 24 * time.Hour)
	if err := os.Chtimes(s.Path(), old, old); err != nil {
		t.Fatal(err)
	}
	var info fs.FileInfo
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
