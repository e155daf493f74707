package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// environ is that of a machine with Go, the modules of this repository, and no
// network.
func environ() []string {
	return append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "MEGA_APPS_SHOP_ADDR=127.0.0.1:0",
		"MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_LOG_FORMAT=json", "MEGA_ENV=dev")
}

// The whole way of somebody who has just heard of mega.
func TestNewApplicationBuildsRunsAndPassesItsOwnTest(t *testing.T) {
	parent := t.TempDir()
	tool := filepath.Join(parent, "mega")
	build(t, ".", tool, ".")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	command(t, parent, tool, "new", "shop", "--mega", root)
	dir := filepath.Join(parent, "shop")
	program := filepath.Join(dir, "bin", "shop")
	command(t, dir, "go", "build", "-o", program, ".")
	if out := command(t, dir, "gofmt", "-l", "."); out != "" {
		t.Errorf("gofmt would change %s", out)
	}
	if out := command(t, dir, "make"); !strings.Contains(out, "make run") {
		t.Errorf("make lists\n%s", out)
	}
	if out := command(t, dir, "go", "test", "./..."); !strings.HasPrefix(out, "ok") {
		t.Errorf("its test says %s", out)
	}
	if stock := sell(t, dir, program); stock != 9 {
		t.Errorf("a lamp of ten was sold, and %d are left", stock)
	}
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// sell starts the shop, buys a lamp, asks it to end, and returns what was left.
func sell(t *testing.T, dir, program string) (stock int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = dir, environ()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()

	lines := bufio.NewReader(stderr)
	stock = buy(t, whereServed(t, lines)+"/products/lamp/buy")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v\n%s", err, rest)
	}
	return stock
}

// whereServed reads the program's log up to the report of its boot.
func whereServed(t *testing.T, lines *bufio.Reader) string {
	t.Helper()
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the program ended before it served: %v: %s", err, line)
		}
		var record struct {
			Msg    string
			Report struct{ Apps []struct{ URL string } }
		}
		if json.Unmarshal(line, &record) == nil && record.Msg == "boot.report" && len(record.Report.Apps) > 0 {
			return record.Report.Apps[0].URL
		}
	}
}

func buy(t *testing.T, url string) (stock int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer answer.Body.Close()
	var product struct{ Stock int }
	if err := json.NewDecoder(answer.Body).Decode(&product); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("got %s, %v", answer.Status, err)
	}
	return product.Stock
}
