package boot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/testkit/output"
)

// noted is a value that adds a line to the file of that name when it is parsed.
type noted string

func (n *noted) UnmarshalText(text []byte) error {
	*n = noted(text)
	f, err := os.OpenFile(string(text), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, "parsed")
	return errors.Join(err, f.Close())
}

type stocktaking struct {
	Book noted `key:"book" doc:"the file that counts"`
}

// counting is a source of configuration whose reads give different prefixes.
type counting struct{ reads int }

func (c *counting) ReadBytes() ([]byte, error) { return nil, nil }

func (c *counting) Read() (map[string]any, error) {
	c.reads++
	return map[string]any{"apps": map[string]any{"main": map[string]any{"prefix": fmt.Sprintf("/v%d", c.reads)}}}, nil
}

// watched calls do when a text is written.
type watched struct {
	to   *output.Buffer
	text string
	do   func()
}

func (w *watched) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	if strings.Contains(string(b), w.text) {
		w.do()
	}
	return n, err
}

// opens returns a function that counts how often a file was opened since.
func opens(t *testing.T, path string) func() int {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, path, syscall.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		events := make([]byte, 64<<10)
		size, err := syscall.Read(fd, events)
		if err != nil {
			return 0 // none
		}
		for at := 0; at < size; at += syscall.SizeofInotifyEvent + int((*syscall.InotifyEvent)(unsafe.Pointer(&events[at])).Len) { //nolint:gosec // the kernel has written it
			n++
		}
		return n
	}
}

// parses returns how often the value that notes its parses in book was parsed.
func parses(t *testing.T, book string) int {
	t.Helper()
	text, err := os.ReadFile(book)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "parsed")
}

// The version that is decided is the version that starts.
func TestStartLoadsTheConfigurationOnce(t *testing.T) {
	for _, start := range []struct {
		name string
		run  func(*testing.T, boot.Process, ...mega.Option) *output.Buffer
	}{
		{"started", func(t *testing.T, p boot.Process, options ...mega.Option) *output.Buffer {
			t.Helper()
			r, err := boot.Start(t.Context(), p, options...)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Stop(); err != nil {
				t.Fatal(err)
			}
			return p.Stderr.(*output.Buffer)
		}},
		{"served", func(t *testing.T, p boot.Process, options ...mega.Option) *output.Buffer {
			t.Helper()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			said := p.Stderr.(*output.Buffer)
			p.Stderr = &watched{said, "ready in", stop} // the report is the last part of a start
			if status := boot.Main(ctx, p, options...); status != failure.ExitOK {
				t.Fatalf("status %d:\n%s", status, said)
			}
			return said
		}},
	} {
		t.Run(start.name, func(t *testing.T) {
			dir := t.TempDir()
			file, book := filepath.Join(dir, "mega.config.yaml"), filepath.Join(dir, "book")
			if err := os.WriteFile(file, []byte("ledger:\n  book: "+book+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p, _ := process("MEGA_ENV=dev")
			p.Dir = dir
			if _, err := boot.Plan(p, mega.Config[stocktaking]("ledger"), mega.App("main")); err != nil {
				t.Fatal(err)
			}
			ofOnePlan := parses(t, book)
			opened, layer := opens(t, file), &counting{}
			said := start.run(t, p, mega.Config[stocktaking]("ledger"), mega.ConfigFrom("store", layer, nil), mega.App("main", mega.Routes(hello)))
			if n := opened(); n != 1 {
				t.Errorf("the file was opened %d times", n)
			}
			if n := parses(t, book) - ofOnePlan; n != 1 || ofOnePlan != 1 {
				t.Errorf("the value was parsed %d times, by one plan %d times", n, ofOnePlan)
			}
			if layer.reads != 1 || !strings.Contains(said.String(), "/v1") {
				t.Errorf("the source was read %d times:\n%s", layer.reads, said)
			}
		})
	}
}
