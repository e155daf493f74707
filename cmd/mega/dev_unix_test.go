//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/dev"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/scaffold"
	"github.com/megaframework/mega/internal/testkit/output"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// browse returns the answer to a browser's GET or POST, or "".
func browse(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(text)
}

// A view is changed, broken and mended without a new start, and a source with
// one.
func TestNewApplicationIsDeveloped(t *testing.T) {
	r := newReader(t) // for a free port
	root, err := scaffold.WorkingCopy("../..")
	if err != nil {
		t.Fatal(err)
	}
	root.Linked = true // a copy would be compiled again
	w, err := scaffold.Write(t.Context(), scaffold.App{Name: "shop", Dir: filepath.Join(t.TempDir(), "shop"), Framework: root})
	if err != nil {
		t.Fatal(err)
	}
	replace := func(file, was, is string) {
		t.Helper()
		r.dir = w.Dir
		r.replace(file, was, is)
	}
	replace("mega.config.yaml", ":8080", ":"+r.port)
	out := &output.Buffer{}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- dev.Run(ctx, dev.Config{
			Dir: w.Dir, Stdout: out, Stderr: out,
			Environ: append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "MEGA_OPS_ADDR=127.0.0.1:0", "XDG_RUNTIME_DIR="+r.home),
		})
	}()
	home := "http://127.0.0.1:" + r.port + "/"
	serves := func(what string) {
		t.Helper()
		for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			_, body := browse(t, http.MethodGet, home)
			if strings.Contains(body, what) {
				return
			}
			if time.Since(began) > 3*time.Minute {
				t.Fatalf("the page never contains %q:\n%s\n%s", what, body, out.String())
			}
		}
	}
	serves("<h1>Products</h1>")
	if status, body := browse(t, http.MethodPost, home+"products/lamp/buy"); status != http.StatusOK || !strings.Contains(body, "<td>9</td>") {
		t.Fatalf("status %d: %s", status, body)
	}

	replace("views/home.html", "<h1>Products</h1>", "<h1>Wares</h1>")
	serves("<h1>Wares</h1>")
	serves("<td>9</td>") // of the same process
	replace("views/home.html", "<h1>Wares</h1>", "<h1>{{.Wares</h1>")
	serves("read the changed files: ")
	replace("views/home.html", "<h1>{{.Wares</h1>", "<h1>Goods</h1>")
	serves("<h1>Goods</h1>")
	serves("<td>9</td>")
	if n := strings.Count(out.String(), "ready in"); n != 1 {
		t.Errorf("the program has started %d times:\n%s", n, out.String())
	}

	replace("store.go", `"Lamp"`, `"Lantern"`)
	serves("Lantern")
	serves("<h1>Goods</h1>")
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if status, _ := browse(t, http.MethodGet, home); status != 0 {
		t.Errorf("the program still answers: %d", status)
	}
}

func TestDevNeedsAModule(t *testing.T) {
	status, stdout, stderr := mega("dev", t.TempDir())
	if status != failure.ExitUsage || stdout != "" || !strings.Contains(stderr, "dev.failed") {
		t.Errorf("exit status %d: %s%s", status, stdout, stderr)
	}
	if status, _, stderr := mega("dev", "a", "b"); status != failure.ExitUsage || !strings.Contains(stderr, "cli.extra_argument") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}

// The go command, and a git that it has started, may wait for the network for
// minutes.
func TestInterruptedNewLeavesNothing(t *testing.T) {
	bin, parent := t.TempDir(), t.TempDir()
	runs := filepath.Join(bin, "runs")
	script := "#!/bin/sh\nsleep 60 &\necho $! >'" + runs + ".new'\nmv '" + runs + ".new' '" + runs + "'\nwait\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "new", "shop", "--dir", filepath.Join(parent, "new", "shop"), "--mega", "../..", "--link")
	cmd.Env = append(os.Environ(), role+"=1", "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sleeps := 0
	for deadline := time.Now().Add(30 * time.Second); sleeps == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the go command was not started")
		}
		text, _ := os.ReadFile(runs)
		sleeps, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	t.Cleanup(func() { _ = redistest.Signal(sleeps, syscall.SIGKILL) })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_ = cmd.Wait()
	if took := time.Since(began); took > 30*time.Second || cmd.ProcessState.ExitCode() != failure.ExitUnavailable || !strings.Contains(stderr.String(), "cause  interrupt signal received\n") {
		t.Errorf("it ended with %v after %v:\n%s", cmd.ProcessState, took, &stderr)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
