package boot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// shop builds testdata/shop, once, and returns the path of the binary. It is
// called shop wherever it is.
var shop = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mega-shop-")
	if err != nil {
		return "", err
	}
	shopDir = dir
	binary := filepath.Join(dir, "shop")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./testdata/shop")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build testdata/shop: %w\n%s", err, out)
	}
	return binary, nil
})

// shopDir is where shop was built, to be removed in the end.
var shopDir string

// run is one run of the shop.
type run struct {
	files   map[string]string // in the folder that it is started in
	environ []string
	args    []string
}

// ended is what a run came to.
type ended struct {
	stderr string
	status int
}

// and is the run with more variables.
func (r run) and(environ ...string) run {
	r.environ = append(slices.Clip(r.environ), environ...)
	return r
}

// beside is the run with another file.
func (r run) beside(name, text string) run {
	r.files = maps.Clone(r.files)
	r.files[name] = text
	return r
}

// command is the run as a process that has not been started, in a folder of
// its own.
func (r run) command(ctx context.Context, t *testing.T) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	binary, err := shop()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range r.files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, r.args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = slices.Concat([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "MEGA_LOG_LEVEL=error"}, r.elsewhere(), r.environ)
	return cmd, &stderr
}

// elsewhere has the shop listen on free ports, so that runs do not meet.
func (r run) elsewhere() []string {
	free := []string{"MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_APPS_WEB_ADDR=127.0.0.1:0"}
	if !slices.ContainsFunc(r.environ, func(kv string) bool { return strings.HasPrefix(kv, "MEGA_TEST_SHOP=") }) {
		free = append(free, "MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	}
	return free
}

// end runs the shop until it ends by itself.
func (r run) end(t *testing.T) ended {
	t.Helper()
	if _, err := shop(); err != nil { // building it takes its own time
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the machine may have much to do
	defer cancel()
	cmd, stderr := r.command(ctx, t)
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited || ctx.Err() != nil {
		t.Fatalf("%v: it did not end by itself\n%s", err, stderr)
	}
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer(cmd.Dir, "<dir>", repository+"/", "")
	return ended{here.Replace(stderr.String()), cmd.ProcessState.ExitCode()}
}

// told is the run as it would be typed: files, environment, command, output.
func (r run) told(e ended) string {
	var b strings.Builder
	var names []string
	for name := range r.files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "%s\n", name)
		for line := range strings.Lines(r.files[name]) {
			b.WriteString("    " + line)
		}
		b.WriteString("\n")
	}
	command := strings.Join(slices.Concat(quoted(r.environ), []string{"shop"}, quoted(r.args)), " ")
	fmt.Fprintf(&b, "$ %s\n%s$ echo $?\n%d\n", command, e.stderr, e.status)
	return steady(b.String())
}

// steady replaces what differs from run to run.
func steady(text string) string {
	for _, r := range []struct{ from, to string }{
		{`127\.0\.0\.1:[1-9][0-9]{3,4}`, "127.0.0.1:<port>"},
		{`(boot/testdata/shop/[a-z]+\.go):[0-9]+`, "$1:<line>"},
		{`pid [0-9]+`, "pid <pid>"},
		{`(once|[0-9]+ times) in [0-9.µms]+`, "<n> times in <time>"},
	} {
		text = regexp.MustCompile(r.from).ReplaceAllString(text, r.to)
	}
	return text
}

// quoted are words as a shell takes them.
func quoted(words []string) (all []string) {
	for _, w := range words {
		if name, value, ok := strings.Cut(w, "="); ok && strings.Contains(value, " ") {
			w = name + "='" + value + "'"
		}
		all = append(all, w)
	}
	return all
}
