package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega/sample/crud/apps/main/store"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// startTime bounds how long a process may take to serve.
const startTime = 30 * time.Second

// shop is a running process of the sample.
type shop struct {
	url, lock string // where it serves, and the driver that keeps its locks
	cmd       *exec.Cmd
	log       *transcript
}

// transcript is what a process wrote, for when something goes wrong.
type transcript struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (t *transcript) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.WriteString(line + "\n")
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// build builds the sample as its users do, once, into built.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "crud-")
	if err != nil {
		return "", err
	}
	built = dir
	file := filepath.Join(dir, "crud.exe")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", file, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the sample: %w\n%s", err, out)
	}
	return file, nil
})

// built is the folder that TestMain removes.
var built string

// binary returns the sample's executable and its environment. Under -oversell it
// is a shop without a lock.
func binary(t *testing.T) (file string, environ []string) {
	t.Helper()
	if *oversell {
		return os.Args[0], []string{unguarded + "=1"}
	}
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return file, nil
}

// open starts n processes of executable at once, on one database.
func open(t *testing.T, executable string, n int, environ ...string) []*shop {
	t.Helper()
	database := "MEGA_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "shop.db")
	shops := make([]*shop, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range shops {
		all.Go(func() { shops[i], errs[i] = start(executable, append(environ, database)) })
	}
	all.Wait()
	for i := range shops {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		t.Cleanup(func() { shops[i].stop(t) })
	}
	return shops
}

// start starts a process on free ports and waits until it serves.
func start(executable string, environ []string, args ...string) (*shop, error) {
	cmd := exec.Command(executable, args...)
	cmd.Env = append(clean(os.Environ()), "MEGA_APPS_MAIN_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_LOG_FORMAT=json")
	cmd.Env = append(cmd.Env, environ...)
	cmd.SysProcAttr = endWithParent()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &shop{cmd: cmd, log: &transcript{}}
	reported := make(chan report, 1)
	go s.read(stderr, reported) // ends with the process
	select {
	case r, ok := <-reported:
		if ok && len(r.Report.Apps) == 1 {
			s.url, s.lock = r.Report.Apps[0].URL, r.Report.Lock.Chosen
			return s, nil
		}
	case <-time.After(startTime):
	}
	_ = cmd.Process.Kill()
	return nil, fmt.Errorf("the process does not serve: %w\n%s", cmd.Wait(), s.log)
}

// report is the part of the boot's report that the tests look at.
type report struct {
	Msg    string
	Report struct {
		Lock struct{ Chosen string }
		Apps []struct{ URL string }
	}
}

func (s *shop) read(stderr io.Reader, reported chan<- report) {
	defer close(reported)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		s.log.add(lines.Text())
		var r report
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Msg == "boot.report" {
			reported <- r
		}
	}
}

// stop ends the process as an operator does, which has to go well.
func (s *shop) stop(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the process ended with %v\n%s", err, s.log)
		}
	case <-time.After(startTime):
		_ = s.cmd.Process.Kill()
		t.Errorf("the process does not end\n%s", s.log)
	}
}

// clean leaves out what the tests' own environment configures.
func clean(environ []string) (rest []string) {
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "MEGA_") {
			rest = append(rest, kv)
		}
	}
	return rest
}

// answer is what a shop answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// code is the code of a problem.
func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &p) // no problem, no code
	return p.Code
}

// client does not follow redirects, and has a connection per buyer.
var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 1000, MaxConnsPerHost: 1000},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       time.Minute,
}

// send sends a request whose headers are given as "Name: value".
func (s *shop) send(method, path, body string, headers ...string) (answer, error) {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = w.Body.Close() }()
	text, err := io.ReadAll(w.Body)
	return answer{w.StatusCode, w.Header, string(text)}, err
}

const (
	asJSON = "Content-Type: application/json"
	asForm = "Content-Type: application/x-www-form-urlencoded"
)

// stock adds a product and returns its path.
func (s *shop) stock(t *testing.T, n int) string {
	t.Helper()
	a, err := s.send("POST", "/products", fmt.Sprintf(`{"name":"Lamp","price":9.5,"stock":%d}`, n), asJSON)
	if err != nil || a.status != http.StatusCreated {
		t.Fatalf("create a product: %v, %v", a, err)
	}
	var p store.Product
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("create a product: %v in %s", err, a.body)
	}
	return "/products/" + strconv.FormatInt(p.ID, 10)
}

// redisServer starts a server of the test's own and returns its URL.
func redisServer(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(redistest.FreeAddr(t))
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	cmd.SysProcAttr = endWithParent()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatalf("start redis: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed, or has said why in its log
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for began := time.Now(); time.Since(began) < startTime; {
		if answersPing("127.0.0.1:" + port) {
			return "redis://127.0.0.1:" + port + "/0"
		}
		select {
		case <-ended:
			t.Fatalf("redis ended by itself:\n%s", log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("redis does not answer")
	return ""
}

func answersPing(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && strings.HasPrefix(line, "+PONG")
}

// scaled is a count under MEGA_TEST_SCALE, at least low.
func scaled(t *testing.T, n, low int) int {
	t.Helper()
	text := os.Getenv("MEGA_TEST_SCALE")
	if text == "" {
		return n
	}
	scale, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatalf("MEGA_TEST_SCALE: %v", err)
	}
	return max(int(float64(n)*scale), low)
}
