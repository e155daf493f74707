//go:build linux || darwin

package guide_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pagetest "github.com/megaframework/mega/internal/testkit/page"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// What the README of a sample says to type answers what it says. Each block of
// console is typed beside a sample that was started for it.
func TestConsoleOfTheSamples(t *testing.T) {
	for _, x := range []struct {
		sample   string
		addrs    map[string]string // what the page calls the address of which app
		settings [][]string        // of the sample for each block
	}{
		{"../../sample/crud", map[string]string{"main": "127.0.0.1:8080"}, [][]string{nil}},
		{multi, map[string]string{"web": "127.0.0.1:8081", "admin": "localhost:8082"}, [][]string{nil, {"picking.time=20s"}}},
	} {
		t.Run(filepath.Base(x.sample), func(t *testing.T) {
			t.Parallel()
			exe := executable(t, x.sample)
			file := filepath.Join(x.sample, "README.md")
			page := read(t, file)
			blocks := pagetest.Blocks(page, "console")
			if len(blocks) != len(x.settings) {
				t.Fatalf("%s has %d blocks of console, want %d", file, len(blocks), len(x.settings))
			}
			for i, block := range blocks {
				now := beside(t, exe, x.sample, x.addrs, x.settings[i], block.Text)
				page = strings.Replace(page, block.Text, now, 1)
			}
			if *update {
				if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The report that README.md shows is the one of make run.
func TestReadmeShowsTheReportOfTheSample(t *testing.T) {
	const sample = "../../sample/crud"
	dir, ops := t.TempDir(), redistest.FreeAddr(t)
	environ := []string{
		"MEGA_OPS_ADDR=" + ops, "MEGA_APPS_MAIN_ADDR=" + redistest.FreeAddr(t),
		"MEGA_DATABASE_URL=sqlite://" + filepath.Join(dir, "shop.db"),
		"XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir, // a sample that runs elsewhere adds a warning to the report
	}
	var log bytes.Buffer
	logged(t, &log, executable(t, sample), sample, environ, nil, "http://"+ops)()
	_, shown, _ := strings.Cut(read(t, "../../README.md"), "```\nlock ")
	shown, _, found := strings.Cut(shown, "```\n")
	if !found || !strings.Contains(log.String(), "\nlock "+shown) {
		t.Errorf("README.md shows\nlock %s\nthe sample prints\n%s", shown, &log)
	}
}

// beside starts a sample, types a block beside it, and returns the block with
// what was answered.
func beside(t *testing.T, exe, sample string, addrs map[string]string, settings []string, block string) string {
	t.Helper()
	dir, ops := t.TempDir(), redistest.FreeAddr(t)
	environ := []string{"MEGA_OPS_ADDR=" + ops, "MEGA_DATABASE_URL=sqlite://" + filepath.Join(dir, "shop.db"), "XDG_RUNTIME_DIR=" + dir, "TMPDIR=" + dir}
	var there, here []string
	for app, addr := range addrs {
		own := redistest.FreeAddr(t)
		environ = append(environ, fmt.Sprintf("MEGA_APPS_%s_ADDR=%s", strings.ToUpper(app), own))
		if strings.HasPrefix(addr, "localhost:") { // the only name to which the app answers
			own = strings.Replace(own, "127.0.0.1", "localhost", 1)
		}
		there, here = append(there, addr, own), append(here, own, addr)
	}
	stop := started(t, exe, sample, environ, settings, "http://"+ops)
	defer stop()
	var now strings.Builder
	var background sync.WaitGroup
	defer background.Wait()
	for _, x := range pagetest.Exchanges(block) {
		typed, later := strings.CutSuffix(strings.NewReplacer(there...).Replace(x.Typed), " &")
		if later {
			background.Go(func() { typedIn(t, dir, typed) })
			await(t, "http://"+ops+"/ops/locks", "product:")
			fmt.Fprintf(&now, "$ %s\n", x.Typed)
			continue
		}
		if strings.HasPrefix(typed, "cat ") {
			background.Wait()
		}
		host, _ := os.Hostname()
		answer := func() string {
			got := strings.NewReplacer(append(here, `"`+host+`"`, `"node-1"`)...).Replace(typedIn(t, dir, typed))
			return pidOf.ReplaceAllString(strings.TrimSuffix(got, "\n"), `"pid":4121`) + "\n"
		}
		got := answer()
		for began := time.Now(); !pagetest.Same(x.Answer, got) && !strings.Contains(typed, " -d ") && time.Since(began) < 20*time.Second; {
			got = answer() // who only asks may ask before what was told on the bus has arrived
		}
		if pagetest.Same(x.Answer, got) {
			got = x.Answer
		} else if !*update {
			t.Errorf("$ %s\nanswers\n%s\nthe page says\n%s", x.Typed, got, x.Answer)
		}
		fmt.Fprintf(&now, "$ %s\n%s", x.Typed, got)
	}
	return now.String()
}

// started runs a sample until stop is called, which wants it to end in order.
func started(t *testing.T, exe, sample string, environ, settings []string, ops string, args ...string) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	return logged(t, &log, exe, sample, environ, settings, ops, args...)
}

// logged is started, and keeps the log, which is complete after stop.
func logged(t *testing.T, log *bytes.Buffer, exe, sample string, environ, settings []string, ops string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(exe, args...)
	for _, s := range settings {
		cmd.Args = append(cmd.Args, "--set", s)
	}
	cmd.Dir, cmd.Env, cmd.Stderr = sample, append(clean(), environ...), log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s ended with %v\n%s", sample, err, log)
		}
	}
	await(t, ops+"/readyz", `"ok"`)
	return stop
}

// await asks until the answer has what is wanted.
func await(t *testing.T, url, want string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		var body bytes.Buffer
		if answer, err := client.Get(url); err == nil {
			_, _ = body.ReadFrom(answer.Body)
			_ = answer.Body.Close()
		}
		if strings.Contains(body.String(), want) {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Errorf("%s still answers %q, want %q", url, &body, want)
			return
		}
	}
}
