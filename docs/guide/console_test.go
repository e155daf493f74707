//go:build linux || darwin

package guide_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pagetest "github.com/megaframework/mega/internal/testkit/page"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// console is a shell beside a running shop, in whose folder it is. Pages show
// what was typed there and what came of it.
type console struct {
	t      *testing.T
	dir    string
	ops    string // where its probes are, host:port
	shop   *exec.Cmd
	stderr *os.File
	pids   pids
}

// What a page calls a process and its address.
const (
	pagePID = "4121"
	pageOps = "localhost:9090"
	pageDir = "/run/user/1000"
)

func newConsole(t *testing.T, program, config string) *console {
	t.Helper()
	dir := shortdir.New(t)
	stderr, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stderr.Close() })
	c := &console{t: t, dir: dir, ops: redistest.FreeAddr(t), stderr: stderr}
	c.write("mega.config.yaml", config)
	// A command called shop, which is this executable.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.write("shop", "#!/bin/sh\nexec env "+operatedEnv+"="+program+" '"+exe+"' \"$@\"\n")
	if err := os.Chmod(filepath.Join(dir, "shop"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.start()
	return c
}

func (c *console) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *console) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = c.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "MEGA_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+c.dir+":"+os.Getenv("PATH"), "XDG_RUNTIME_DIR="+c.dir, "TMPDIR="+c.dir, "NO_COLOR=1",
		"MEGA_ENV=production", "MEGA_OPS_ADDR="+c.ops, "MEGA_APPS_WEB_ADDR=127.0.0.1:0")
	return cmd
}

// start runs the shop until the test ends.
func (c *console) start() {
	c.t.Helper()
	c.shop = c.command(filepath.Join(c.dir, "shop"))
	c.shop.Stderr = c.stderr
	if err := c.shop.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = c.shop.Process.Signal(syscall.SIGTERM)
		if err := c.shop.Wait(); err != nil {
			c.t.Errorf("the shop ended with %v\n%s", err, c.log())
		}
	})
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if status, _, err := c.get("/readyz"); err == nil && status == http.StatusOK && c.complete() {
			return
		}
		if time.Since(began) > 30*time.Second {
			c.t.Fatalf("the shop does not get ready:\n%s", c.log())
		}
	}
}

// complete reports whether no worker is starting any more.
func (c *console) complete() bool {
	_, workers, err := c.get("/ops/workers")
	return err == nil && !strings.Contains(workers, "starting")
}

func (c *console) log() string {
	text, _ := os.ReadFile(c.stderr.Name())
	return string(text)
}

func (c *console) get(path string) (int, string, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+c.ops+path, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	w, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = w.Body.Close() }()
	body, err := io.ReadAll(w.Body)
	return w.StatusCode, string(body), err
}

// run does what was typed and returns what came of it, as a page would say it.
func (c *console) run(typed, expected string) string {
	c.t.Helper()
	if path, ok := strings.CutPrefix(strings.ReplaceAll(typed, "'", ""), "curl -s "+pageOps); ok { // not every machine has curl
		path, word, filtered := strings.Cut(path, " | grep ")
		_, body, err := c.get(path)
		if err != nil {
			c.t.Fatal(err)
		}
		if filtered {
			body = with(word, body)
		}
		return c.told(body)
	}
	if n, ok := strings.CutPrefix(typed, "journalctl -u shop -o cat -n "); ok {
		return c.journal(n, expected)
	}
	typed = c.pids.real(strings.ReplaceAll(typed, pagePID, strconv.Itoa(c.shop.Process.Pid)))
	out, _ := c.command("sh", "-c", typed).CombinedOutput() // a failure says so
	return c.told(string(out))
}

// with returns the lines that have a word in them.
func with(word, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// journal returns the last n lines of the log, as soon as they are those that
// are expected.
func (c *console) journal(n, expected string) string {
	c.t.Helper()
	count, err := strconv.Atoi(n)
	if err != nil {
		c.t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		lines := strings.SplitAfter(c.log(), "\n")
		last := c.told(strings.Join(lines[max(len(lines)-1-count, 0):], ""))
		if same(expected, last) || time.Since(began) > 10*time.Second {
			return last
		}
	}
}

// told is what came of something, on the page's machine.
func (c *console) told(text string) string {
	host, _ := os.Hostname()
	for was, is := range map[string]string{
		`\b` + strconv.Itoa(c.shop.Process.Pid) + `\b`: pagePID,
		regexp.QuoteMeta(c.ops):                        pageOps, regexp.QuoteMeta(c.dir): pageDir,
		`@` + regexp.QuoteMeta(host) + `:`: "@node-1:", `"host": "` + regexp.QuoteMeta(host): `"host": "node-1`, `by ` + regexp.QuoteMeta(host) + `,`: "by node-1,",
		`by\.user=\S+ by\.uid=\d+`: "by.user=ann by.uid=1000", `\(\S+, by the admin`: "(ann, by the admin",
	} {
		text = regexp.MustCompile(was).ReplaceAllString(text, is)
	}
	return c.pids.shown(text)
}

// same reports whether two answers differ only in what differs from one run to
// the next: that, the width of columns, and the order of lines that two
// goroutines write.
func same(shown, got string) bool {
	sorted := func(text string) []string {
		return slices.Sorted(strings.Lines(pagetest.Plain(text)))
	}
	return slices.Equal(sorted(shown), sorted(got))
}

// Everything that the page shows of a terminal is typed beside a real process,
// in the page's order.
func TestConsoleOfTheOperationsPage(t *testing.T) {
	c := newConsole(t, "operated", "name: shop\nlog:\n  level: info\n  format: text\n")
	alone := func(page string) string { return strings.Replace(page, section(page, "Workers"), "", 1) }
	if tried := c.typed(operationsPage, alone); tried < 8 {
		t.Errorf("only %d lines were tried", tried)
	}
}

// Each page with blocks of console has a test that types them.
func TestEachConsoleIsTyped(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	typed := []string{"01-quickstart.md", workersPage, appsPage, operationsPage} // the first by cmd/mega
	for _, page := range pages {
		if len(pagetest.Blocks(read(t, page), "console")) > 0 && !slices.Contains(typed, page) {
			t.Errorf("no test types the blocks of %s", page)
		}
	}
}

// What it shows of workers is typed beside a process that has some.
func TestConsoleOfWorkersOnTheOperationsPage(t *testing.T) {
	c := newConsole(t, "withWorkers", pagetest.Blocks(read(t, workersPage), "yaml")[0].Text)
	if tried := c.typed(operationsPage, func(page string) string { return section(page, "Workers") }); tried < 6 {
		t.Errorf("only %d lines were tried", tried)
	}
}

// section is a part of a page, up to the next one of its kind.
func section(page, title string) string {
	_, after, _ := strings.Cut(page, "\n## "+title+"\n")
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

// whole is all of a page.
func whole(page string) string { return page }

// typed types everything that a part of a page shows, and returns how much that
// was.
func (c *console) typed(path string, part func(page string) string) (tried int) {
	t := c.t
	t.Helper()
	page := read(t, path)
	for _, block := range fenced(part(page), "console") {
		var b strings.Builder
		for _, x := range pagetest.Exchanges(block) {
			got := c.run(x.Typed, x.Answer)
			tried++
			if same(x.Answer, got) {
				got = x.Answer
			} else if !*update {
				t.Errorf("$ %s\nanswers\n%s\nthe page says\n%s", x.Typed, got, x.Answer)
			}
			fmt.Fprintf(&b, "$ %s\n%s", x.Typed, got)
		}
		if *update {
			page = strings.Replace(page, "```console\n"+block+"```", "```console\n"+b.String()+"```", 1)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tried
}
