package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/internal/testkit/output"
	pagetest "github.com/megaframework/mega/internal/testkit/page"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

var update = flag.Bool("update", false, "write into the guide what commands answer")

const quickstart = "../../docs/guide/01-quickstart.md"

// The whole way of somebody who has just heard of mega is the guide's first
// page: all that it says to type is typed here, and answers what it says.
func TestQuickstartOfTheGuide(t *testing.T) {
	text, err := os.ReadFile(quickstart)
	if err != nil {
		t.Fatal(err)
	}
	page, r := string(text), newReader(t)
	for _, block := range pagetest.Blocks(page, "console", "diff") {
		if block.Language == "diff" {
			r.edit(block.Text)
			continue
		}
		var now strings.Builder
		for _, x := range pagetest.Exchanges(block.Text) {
			got := r.types(x.Typed)
			if pagetest.Same(x.Answer, got) {
				got = x.Answer
			} else if !*update {
				t.Errorf("$ %s\nanswers\n%s\nthe page says\n%s", x.Typed, got, x.Answer)
			}
			fmt.Fprintf(&now, "$ %s\n%s", x.Typed, got)
		}
		page = strings.Replace(page, block.Text, now.String(), 1)
	}
	r.stop()
	if *update {
		if err := os.WriteFile(quickstart, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := r.types("gofmt -l ."); out != "" {
		t.Errorf("gofmt would change %s", out)
	}
	if out := r.types("make"); !strings.Contains(out, "make run") {
		t.Errorf("make lists\n%s", out)
	}
}

// reader does what a page says, on a machine with Go, the modules of this
// repository, and no network.
type reader struct {
	t          *testing.T
	home, root string // root is the clone called mega
	dir        string // where the reader is
	port       string // what is 8080 on the page
	undo       func() // the last edit
	redis      *redistest.Server
	program    *program // runs in the other terminal, or nil
	background sync.WaitGroup
}

func newReader(t *testing.T) *reader {
	t.Helper()
	home := shortdir.New(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(redistest.FreeAddr(t))
	return &reader{t: t, home: home, root: root, dir: home, port: port}
}

// types does what was typed, and returns what came of it as a page has it.
func (r *reader) types(typed string) string {
	r.t.Helper()
	if to, ok := strings.CutPrefix(typed, "cd "); ok {
		to, rest, more := strings.Cut(to, " && ")
		if r.walk(to); !more {
			return ""
		}
		typed = rest
	}
	words := strings.Fields(typed)
	switch {
	case strings.HasPrefix(typed, "git clone "): // there is one
		return ""
	case words[0] == "redis-server":
		r.redis = redistest.Start(r.t, redistest.Options{})
		return ""
	case words[0] == "redis-cli":
		if err := r.redis.Stop(); err != nil {
			r.t.Error(err)
		}
		return ""
	case strings.HasSuffix(typed, " &"):
		r.later(strings.TrimSuffix(typed, " &"))
		return ""
	case typed == "make run", serves.MatchString(typed):
		return r.told(r.run(typed))
	case typed == "make test":
		r.undo()
	case words[0] == "cat":
		r.background.Wait()
	}
	out, _ := r.command(typed).CombinedOutput() // a failure says so
	if strings.HasPrefix(typed, "mega new ") {
		r.replace("shop/mega.config.yaml", ":8080", ":"+r.port)
	}
	return r.told(string(out))
}

// serves are the calls of the program that have no verb.
var serves = regexp.MustCompile(`(^|\s)go run \.( --.*)?$`)

func (r *reader) walk(to string) {
	switch to {
	case "mega":
		r.dir = r.root
	case "..":
		r.dir = r.home
	default:
		r.dir = filepath.Join(r.dir, to)
	}
}

// quickBuild has the copy of the framework compiled as it is, and the program linked
// without data for a debugger: that takes half as long.
const quickBuild = `'-gcflags=github.com/megaframework/mega/...=-N -l' '-ldflags=-s -w'`

func (r *reader) command(typed string) *exec.Cmd {
	typed = strings.ReplaceAll(typed, "8080", r.port)
	if r.redis != nil {
		_, port, _ := net.SplitHostPort(r.redis.Addr())
		typed = strings.ReplaceAll(typed, "6379", port)
	}
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", typed)
	cmd.Dir = r.dir
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "MEGA_") && !slices.Contains([]string{"GOFLAGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKE_TERMOUT", "MAKE_TERMERR"}, name) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	bin := filepath.Join(r.home, "bin")
	cmd.Env = append(cmd.Env, "GOBIN="+bin, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "GOPROXY=off", "GOWORK=off",
		"NO_COLOR=1", "XDG_RUNTIME_DIR="+r.home, "TMPDIR="+r.home)
	if r.dir != r.root { // whose go.mod stays as it is
		cmd.Env = append(cmd.Env, "GOFLAGS=-mod=mod "+quickBuild)
	}
	return cmd
}

// later does what is typed with an & behind it, and waits until a lock is held.
func (r *reader) later(typed string) {
	r.t.Helper()
	cmd := r.command(typed)
	r.background.Go(func() {
		if out, err := cmd.CombinedOutput(); err != nil {
			r.t.Errorf("%s: %v\n%s", typed, err, out)
		}
	})
	for began := time.Now(); !strings.Contains(r.program.ops(r.t, "/ops/locks"), "product:"); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			r.t.Fatalf("%s: nobody takes a lock", typed)
		}
	}
}

func (r *reader) edit(diff string) {
	r.t.Helper()
	was, is, ok := strings.Cut(diff, "\n")
	if was, is = strings.TrimPrefix(was, "-"), strings.TrimPrefix(strings.TrimSuffix(is, "\n"), "+"); !ok {
		r.t.Fatalf("not a change of one line:\n%s", diff)
	}
	r.replace("handlers.go", was, is)
	r.undo = func() { r.replace("handlers.go", is, was) }
}

func (r *reader) replace(file, was, is string) {
	r.t.Helper()
	path := filepath.Join(r.dir, file)
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), was) != 1 {
		r.t.Fatalf("%s does not have one %q: %v\n%s", file, was, err, text)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), was, is, 1)), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// told is what came of something, on the page's machine.
func (r *reader) told(text string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	host, _ := os.Hostname()
	text = strings.NewReplacer(r.root, "~/mega", r.home+"/mega/", "/run/user/1000/mega/", r.home, "~",
		":"+r.port, ":8080", "@"+host+":", "@node-1:", "tcp [::1]:", "tcp 127.0.0.1:").Replace(text)
	if r.redis != nil {
		_, port, _ := net.SplitHostPort(r.redis.Addr())
		// A server at 6379 would get another example of a server.
		text = strings.ReplaceAll(text, "URL=redis://localhost:6379", "URL=redis://another.host:6379")
		text = strings.ReplaceAll(text, ":"+port, ":6379")
	}
	text = regexp.MustCompile(`(?m)^(ops +http://127\.0\.0\.1:)\d+`).ReplaceAllString(text, "${1}9090")
	return regexp.MustCompile(`(pid |\.|node-1:)(`+r.program.pid()+`)\b`).ReplaceAllString(text, "${1}4121")
}

// program is what serves in the other terminal.
type program struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // why, once ended
	out   output.Buffer
}

var (
	ready   = regexp.MustCompile(`(?m)^ready in .*\n`)
	pidLine = regexp.MustCompile(`pid (\d+)`)
	opsLine = regexp.MustCompile(`(?m)^ops +(http://\S+)`)
)

// run stops what runs, starts what is typed, and returns what it says up to
// the end of its boot.
func (r *reader) run(typed string) string {
	r.t.Helper()
	r.stop()
	p := &program{cmd: r.command(typed), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	late := time.After(15 * time.Minute) // it builds a program, on a machine that may have much to do
	for {
		select {
		case <-p.ended:
			return p.out.String()
		case <-late:
			_ = p.cmd.Process.Kill()
			r.t.Fatalf("%s does not get ready:\n%s", typed, p.out.String())
		case <-time.After(5 * time.Millisecond):
			if ready.MatchString(p.out.String()) {
				r.program = p
				return p.out.String()
			}
		}
	}
}

// stop is Ctrl-C in the other terminal, if something runs there.
func (r *reader) stop() {
	r.t.Helper()
	if r.program == nil {
		return
	}
	pid, err := strconv.Atoi(r.program.pid())
	if err != nil {
		r.t.Fatal(err)
	}
	shop, err := os.FindProcess(pid)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := shop.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	<-r.program.ended
	if r.program.err != nil {
		r.t.Errorf("the shop ended with %v\n%s", r.program.err, r.program.out.String())
	}
	r.program = nil
}

// pid is the process of the program, or what no process has.
func (p *program) pid() string {
	if p == nil {
		return "-"
	}
	return pidLine.FindStringSubmatch(p.out.String())[1]
}

func (p *program) ops(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, opsLine.FindStringSubmatch(p.out.String())[1]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
