package browser_test

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// bound is the maximum time that anything here may take.
const bound = time.Minute

// program is a running sample.
type program struct {
	name string
	addr map[string]string // of each app and of ops: http://127.0.0.1:1234

	exe, dir string
	environ  []string
	running  *os.Process
	end      func() // ends it in order, once
}

// serve builds a sample and runs it until the test ends, which wants it to end in
// order. Each app and the ops listener has an address of its own.
func serve(t *testing.T, name string, apps []string, environ ...string) *program {
	t.Helper()
	dir, sample := t.TempDir(), filepath.Join("..", "..", "..", "sample", name)
	exe := filepath.Join(dir, name)
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", exe, ".")
	build.Dir, build.Env = sample, append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	p := &program{name: name, addr: map[string]string{}}
	environ = append(environ, "NO_COLOR=1", "XDG_RUNTIME_DIR="+dir, "MEGA_ENV=dev", "MEGA_DATABASE_URL=sqlite://"+filepath.Join(dir, name+".db"))
	for _, app := range append(apps, "ops") {
		addr, variable := free(t), "MEGA_APPS_"+strings.ToUpper(app)+"_ADDR"
		if app == "ops" {
			variable = "MEGA_OPS_ADDR"
		}
		environ = append(environ, variable+"="+addr)
		p.addr[app] = "http://" + strings.Replace(addr, "127.0.0.1", "localhost", 1)
	}
	var links []string
	for _, app := range apps {
		links = append(links, "MEGA_LINKS_"+strings.ToUpper(app)+"="+p.addr[app]+"/")
	}
	if len(apps) > 1 {
		environ = append(environ, links...)
	}
	p.exe, p.dir, p.environ = exe, sample, environ
	p.run(t)
	return p
}

// run starts the program, also again at the same addresses after end.
func (p *program) run(t *testing.T) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(p.exe)
	clean := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "MEGA_") })
	cmd.Dir, cmd.Env, cmd.Stderr = p.dir, append(clean, p.environ...), &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.running = cmd.Process
	p.end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("%s ended with %v\n%s", p.name, err, &log)
		}
	})
	t.Cleanup(p.end)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.Get(p.addr["ops"] + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("%s ended with %v\n%s", p.name, err, &log)
		default:
		}
		if time.Since(began) > bound {
			t.Fatalf("%s is not ready after %v", p.name, bound)
		}
	}
}

// free returns a loopback address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
