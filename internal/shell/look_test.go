//go:build linux || darwin

package shell

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A hub that is stopped, for example by a debugger, answers nothing.
func TestListOfASilentHubEndsWithItsContext(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Dir(p.socket()), 0o700); err != nil {
		t.Fatal(err)
	}
	hub, err := net.Listen("unix", p.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hub.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if c, err := hub.Accept(); err == nil {
			t.Cleanup(func() { _ = c.Close() })
			_, _ = c.Read(make([]byte, 1)) // the hello: the list waits for its answer
		}
	}()
	if _, err := List(ctx, Process{Name: "mega-lock"}, &Backend{Socket: p.socket()}, ""); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("the error of the list: %v", err)
	}
}
