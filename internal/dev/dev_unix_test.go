//go:build unix

package dev_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/dev"
	"github.com/megaframework/mega/internal/testkit/output"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// site is a program that is developed.
type site struct {
	t    *testing.T
	dir  string
	addr string // the file with the address of the running program
	out  output.Buffer
}

func (s *site) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for a condition. The bound is generous: a build may be slow.
func (s *site) until(what string, holds func() bool) {
	s.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute {
			s.t.Fatalf("not within 3 minutes: %s\n%s", what, s.out.String())
		}
	}
}

func (s *site) says(text string) {
	s.t.Helper()
	s.until("the output "+text, func() bool { return strings.Contains(s.out.String(), text) })
}

// source is a program that serves a text, its process id, and that of a process
// that it has started.
func source(text string) string {
	return `package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		panic(err)
	}
	next := os.Getenv("ADDR") + ".next"
	if err := os.WriteFile(next, []byte(l.Addr().String()), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(next, os.Getenv("ADDR")); err != nil {
		panic(err)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "` + text + `", os.Getpid(), child.Process.Pid, os.Getenv("MEGA_ENV"), os.Args[1:])
	})
	panic(http.Serve(l, nil))
}
`
}

// ask returns the answer of the running program as words, or nil.
func (s *site) ask() []string {
	addr, err := os.ReadFile(s.addr)
	if err != nil {
		return nil
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	answer, err := client.Get("http://" + string(addr))
	if err != nil {
		return nil
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// serves waits until the program answers with text, and returns the answer.
func (s *site) serves(text string) (answer []string) {
	s.t.Helper()
	s.until("the answer "+text, func() bool {
		answer = s.ask()
		return len(answer) > 0 && answer[0] == text
	})
	return answer
}

func alive(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return redistest.Signal(n, 0) == nil && !isZombie(n)
}

// isZombie reports whether a process has ended and waits for its parent, which
// may be a process that never waits.
func isZombie(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(rest, "Z")
}

func TestProgramIsBuiltAndStartedAgainAfterChanges(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "shop"), addr: filepath.Join(t.TempDir(), "addr")}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.write("go.mod", "module shop\n\ngo 1.26.0\n")
	s.write("main.go", source("one"))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- dev.Run(ctx, dev.Config{
			Dir: s.dir, Args: []string{"--flag"}, Stdout: &s.out, Stderr: &s.out,
			Environ: append(os.Environ(), "ADDR="+s.addr, "GOWORK=off", "GOFLAGS=", "MEGA_ENV="),
		})
	}()
	first := s.serves("one")
	if first[3] != "dev" || first[4] != "[--flag]" {
		t.Errorf("the program runs with %v, want env dev and its flag", first[3:])
	}

	s.write("main.go", "package main\n\nfunc main() { undefined() }\n")
	s.says("the build failed; the previous program keeps running")
	if !strings.Contains(s.out.String(), "undefined: undefined") {
		t.Errorf("the error of the build is not shown:\n%s", s.out.String())
	}
	if got := s.ask(); len(got) < 2 || got[1] != first[1] {
		t.Errorf("after a build that failed, %v answers in place of %v", got, first)
	}

	s.write("main.go", source("two"))
	second := s.serves("two")
	if alive(t, first[1]) {
		t.Error("two builds run at once")
	}
	s.until("the end of the child of the first build", func() bool { return !alive(t, first[2]) })

	s.write("notes.txt", "no source\n")
	s.says("the program is the same and keeps running")
	if got := s.ask(); len(got) < 2 || got[1] != second[1] {
		t.Errorf("after a change of another file, %v answers in place of %v", got, second)
	}

	s.write("mega.config.yaml", "name: shop\n")
	var third []string
	s.until("a start with the new configuration", func() bool {
		third = s.ask()
		return len(third) > 1 && third[1] != second[1]
	})

	if err := redistest.Signal(atoi(t, third[1]), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.says("the program ended: signal: killed; waiting for a change")
	s.write("main.go", source("three"))
	last := s.serves("three")

	end()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if alive(t, last[1]) {
		t.Error("the program outlives mega dev")
	}
	s.until("the end of the child of the last build", func() bool { return !alive(t, last[2]) })
	if left, err := filepath.Glob(filepath.Join(temp, "mega-dev-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSecondSignalKillsAProgramThatDoesNotEnd(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	s := &site{t: t, dir: t.TempDir(), addr: filepath.Join(t.TempDir(), "addr")}
	s.write("go.mod", "module shop\n\ngo 1.26.0\n")
	s.write("main.go", strings.ReplaceAll(strings.Replace(source("one"), "main() {", "main() {\n\tsignal.Ignore(syscall.SIGTERM)", 1), `"os/exec"`, "\"os/exec\"\n\t\"os/signal\"\n\t\"syscall\""))
	ctx, end := context.WithCancel(t.Context())
	again, ended := make(chan os.Signal), make(chan error, 1)
	go func() {
		ended <- dev.Run(ctx, dev.Config{
			Dir: s.dir, Stdout: &s.out, Stderr: &s.out, Kill: again,
			Environ: append(os.Environ(), "ADDR="+s.addr, "GOWORK=off", "GOFLAGS=", "MEGA_ENV="),
		})
	}()
	pid := s.serves("one")[1]
	end()
	select {
	case again <- syscall.SIGINT: // stop waits for it
	case err := <-ended:
		t.Fatalf("it ended without a second signal: %v\n%s", err, s.out.String())
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if alive(t, pid) || !strings.Contains(s.out.String(), "killed at the second signal") {
		t.Errorf("the program outlives the second signal:\n%s", s.out.String())
	}
	if left, err := filepath.Glob(filepath.Join(temp, "mega-dev-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A change of the configuration may meet a build that fails, and the next one may be
// the program that runs.
func TestConfigurationThatChangedDuringAFailureIsRead(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), addr: filepath.Join(t.TempDir(), "addr")}
	s.write("go.mod", "module shop\n\ngo 1.26.0\n")
	s.write("main.go", source("one"))
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- dev.Run(ctx, dev.Config{
			Dir: s.dir, Stdout: &s.out, Stderr: &s.out, Environ: append(os.Environ(), "ADDR="+s.addr, "GOWORK=off", "GOFLAGS=", "MEGA_ENV="),
		})
	}()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	}()
	first := s.serves("one")
	failures := func() int { return strings.Count(s.out.String(), "the build failed") }
	s.write("main.go", "package main\n\nfunc main() { undefined() }\n")
	s.until("a build that fails", func() bool { return failures() == 1 })
	s.write("mega.config.yaml", "name: shop\n")
	s.until("another build that fails", func() bool { return failures() == 2 })
	s.write("main.go", source("one"))
	s.until("a build", func() bool {
		return strings.Contains(s.out.String(), "the program is the same") || strings.Count(s.out.String(), "built in") == 2
	})
	if again := s.serves("one"); again[1] == first[1] {
		t.Errorf("the program keeps running with the old configuration:\n%s", s.out.String())
	}
}

func TestFolderWithoutAModuleIsRefused(t *testing.T) {
	if err := dev.Run(t.Context(), dev.Config{Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "is in no module") {
		t.Errorf("got %v", err)
	}
}

func TestFolderThatCannotBeUsedIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "main.go"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("module shop\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"cmd": "no such file or directory", "main.go": "is not a folder"} {
		if err := dev.Run(t.Context(), dev.Config{Dir: filepath.Join(dir, name)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

func TestBuildThatGivesNoProgramIsExplained(t *testing.T) {
	for want, path := range map[string]string{
		"mega dev: cannot use the build: the package is not main": os.Getenv("PATH"),
		"mega dev: cannot run go build: ":                         "",
	} {
		t.Run(want, func(t *testing.T) {
			s := &site{t: t, dir: t.TempDir()}
			s.write("go.mod", "module shop\n\ngo 1.26.0\n")
			s.write("shop.go", "package shop\n")
			environ := append(os.Environ(), "GOWORK=off", "GOFLAGS=")
			t.Setenv("PATH", path)
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- dev.Run(ctx, dev.Config{Dir: s.dir, Stdout: &s.out, Stderr: &s.out, Environ: environ})
			}()
			s.says(want)
			end()
			if err := <-ended; err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
