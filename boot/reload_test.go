//go:build linux || darwin

package boot_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/testkit/output"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// configured is a process with a file of configuration, and how to rewrite
// that.
func configured(t *testing.T, text string) (boot.Process, func(string), *output.Buffer) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mega.config.yaml")
	write := func(text string) {
		t.Helper()
		next := file + ".new" // nobody sees half of it
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	p, stderr := process("XDG_RUNTIME_DIR=" + shortdir.New(t))
	p.Config = file
	return p, write, stderr
}

// echoes is an app that reads what it is sent, and says at the level debug that
// it has.
func echoes() mega.Option {
	return mega.App("main", mega.Routes(func(r megactx.Router) {
		r.Post("/", func(c *megactx.Ctx) error {
			var in struct {
				Text string `json:"text"`
			}
			if err := c.Bind(&in); err != nil {
				return err
			}
			c.Log.Debug("echoed")
			return c.Text(200, in.Text)
		})
	}))
}

func post(t *testing.T, url, text string) int {
	t.Helper()
	body := `{"text":"` + text + `"}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	status, _ := send(t, r)
	return status
}

func TestWhatCanChangeChangesWithoutARestart(t *testing.T) {
	p, write, stderr := configured(t, "log: {level: info}\nlock: {ttl: 10s}\n")
	r := start(t, p, echoes())
	url, client := r.Report().Apps[0].URL, dialAdmin(t, p)
	if status := post(t, url, "a longer text"); status != 200 {
		t.Fatalf("got %d", status)
	}
	write("log: {level: debug}\nlock: {ttl: 20s}\napps: {main: {body_limit: 20B}}\n")
	changes, err := client.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, c := range changes {
		got[c.Key] = c.Live
	}
	for key, live := range map[string]bool{"log.level": true, "apps.main.body_limit": true, "lock.ttl": false} {
		if is, told := got[key]; !told || is != live {
			t.Errorf("%s: told %v, in force %v; want %v", key, told, is, live)
		}
	}
	if status := post(t, url, "a longer text"); status != 413 {
		t.Errorf("a body over the new limit: %d", status)
	}
	if status := post(t, url, "short"); status != 200 || !strings.Contains(stderr.String(), "echoed") {
		t.Errorf("%d, and the new level is not in force:\n%s", status, stderr)
	}
	var settings []plan.Setting
	if err := client.Get(t.Context(), "/config", &settings); err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if s.Key == "log.level" && s.Value != "debug" || s.Key == "lock.ttl" && s.Value != "10s" {
			t.Errorf("it says that it goes by %+v", s)
		}
	}
}

func TestWrongConfigurationChangesNothing(t *testing.T) {
	p, write, stderr := configured(t, "log: {level: info}\n")
	r := start(t, p, echoes())
	write("log: {level: debug}\nlock: {ttl: 5}\n")
	_, err := dialAdmin(t, p).Reload(t.Context())
	var refused *admin.Error
	if !errors.As(err, &refused) || refused.Status != 422 || refused.Code() != "config.no_unit" || !strings.Contains(refused.Text, "mega.config.yaml:2") {
		t.Errorf("got %+v, want the mistake and its line", err)
	}
	if post(t, r.Report().Apps[0].URL, "x"); strings.Contains(stderr.String(), "echoed") {
		t.Error("the level has changed")
	}
	if !strings.Contains(stderr.String(), "configuration reload refused") {
		t.Errorf("it is not logged:\n%s", stderr)
	}
	write("log: {level: debug}\n")
	if changes, err := r.Reload(); err != nil || len(changes) == 0 {
		t.Errorf("after it is mended: %v, %v", changes, err)
	}
}

func TestReloadsAndRequestsAtOnce(t *testing.T) {
	p, write, _ := configured(t, "log: {level: info}\n")
	r := start(t, p, echoes())
	url := r.Report().Apps[0].URL
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 10 {
				if _, err := r.Reload(); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for range 10 {
				if status := post(t, url, "x"); status != 200 {
					t.Errorf("got %d", status)
				}
			}
		})
	}
	write("log: {level: debug}\n")
	all.Wait()
}

func TestHangupReadsTheConfigurationAgain(t *testing.T) {
	p, write, stderr := configured(t, "log: {level: info, format: json}\n")
	hangups := make(chan os.Signal, 1)
	p.Hangups = hangups
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- boot.Main(ctx, p, echoes()) }()
	url := served(stderr)
	for _, x := range []struct{ text, told string }{
		{"log: {level: nonsense, format: json}\n", "configuration reload refused"},
		{"log: {level: debug, format: json}\n", "configuration changed"},
	} {
		write(x.text)
		hangups <- syscall.SIGHUP
		for !strings.Contains(stderr.String(), x.told) {
			time.Sleep(time.Millisecond)
		}
	}
	if status := post(t, url, "x"); status != 200 || !strings.Contains(stderr.String(), "echoed") {
		t.Errorf("%d, and the new level is not in force:\n%s", status, stderr)
	}
	stop()
	if status := <-ended; status != failure.ExitOK {
		t.Errorf("it ended with %d", status)
	}
}

// mute is a provider of configuration that answers only so many times.
type mute struct {
	answers atomic.Int32
	asked   chan struct{} // receives when the provider does not answer
	release chan struct{}
}

func (s *mute) Read() (map[string]any, error) {
	if s.answers.Add(-1) < 0 {
		s.asked <- struct{}{}
		<-s.release
	}
	return map[string]any{}, nil
}

func (*mute) ReadBytes() ([]byte, error) { return nil, errors.New("a map only") }

func TestShutdownDoesNotWaitForAProviderOfConfiguration(t *testing.T) {
	hangUp := func(_ *testing.T, _ boot.Process, hangups chan<- os.Signal) { hangups <- syscall.SIGHUP }
	ask := func(t *testing.T, p boot.Process, _ chan<- os.Signal) {
		t.Helper()
		client := dialAdmin(t, p)
		go func() { _, _ = client.Reload(t.Context()) }()
	}
	for name, x := range map[string]struct {
		answers int32
		reload  func(*testing.T, boot.Process, chan<- os.Signal)
	}{
		"at boot": {}, "at a reload": {1, hangUp}, "at a reload at the admin socket": {1, ask},
		"at both": {1, func(t *testing.T, p boot.Process, hangups chan<- os.Signal) {
			t.Helper()
			ask(t, p, hangups)
			hangUp(t, p, hangups)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &mute{asked: make(chan struct{}, 2), release: make(chan struct{})}
			s.answers.Store(x.answers)
			defer close(s.release)
			p, _, stderr := configured(t, "boot: {wait_for: 1h}\nlog: {format: json}\n")
			hangups := make(chan os.Signal, 1)
			p.Hangups = hangups
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan int, 1)
			go func() { ended <- boot.Main(ctx, p, echoes(), mega.ConfigFrom("settings service", s, nil)) }()
			if x.reload != nil {
				served(stderr)
				x.reload(t, p, hangups)
			}
			<-s.asked
			stop()
			select {
			case status := <-ended:
				if status != failure.ExitOK || strings.Contains(stderr.String(), `"level":"ERROR"`) {
					t.Errorf("it ended with %d:\n%s", status, stderr)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("it has not ended:\n%s", stderr)
			}
		})
	}
}

func TestHangupInDevelopmentIsTheEnd(t *testing.T) {
	p, _ := process("MEGA_ENV=dev", "XDG_RUNTIME_DIR="+shortdir.New(t))
	hangups := make(chan os.Signal, 1)
	hangups <- syscall.SIGHUP
	p.Hangups = hangups
	if status := boot.Main(t.Context(), p, echoes()); status != failure.ExitOK {
		t.Errorf("it ended with %d", status)
	}
}

// The last reload is part of the report, so that whoever looks at the process
// sees what it goes by, and what a restart would change.
func TestReportTellsOfTheLastReload(t *testing.T) {
	p, write, stderr := configured(t, "log: {level: info}\n")
	r := start(t, p, echoes())
	if r.Report().Reload != nil {
		t.Error("there was none yet")
	}
	write("log: {level: debug}\nlock: {ttl: 20s}\n")
	if _, err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	last := r.Report().Reload
	if !slices.Contains(last.Live, "log.level") || !slices.Equal(last.Pending, []string{"lock.ttl"}) || last.Refused != "" {
		t.Errorf("got %+v", last)
	}
	if !strings.Contains(stderr.String(), `restart to apply it`) {
		t.Errorf("what takes a restart is not named:\n%s", stderr)
	}
	write("log: {level: loud}\nlock: {ttl: 5}\n")
	if _, err := r.Reload(); err == nil {
		t.Fatal("it was taken")
	}
	last = r.Report().Reload
	if !strings.Contains(last.Refused, "mega.config.yaml:1") || !strings.Contains(last.Refused, "mega.config.yaml:2") || last.Live != nil {
		t.Errorf("got %+v", last)
	}
	if _, body := get(t, r.Report().Ops+"/ops/boot"); !strings.Contains(body, `"refused": "`) {
		t.Errorf("who looks from outside sees %s", body)
	}
}

// service is a provider of configuration whose values a test changes.
type service struct {
	values atomic.Pointer[map[string]any]
}

func (s *service) Read() (map[string]any, error) { return *s.values.Load(), nil }
func (*service) ReadBytes() ([]byte, error)      { return nil, errors.New("a map only") }

func TestProviderIsReadAtTheStartAndAgainByReload(t *testing.T) {
	var s service
	s.values.Store(&map[string]any{"log": map[string]any{"level": "warn"}})
	p, _, stderr := configured(t, "log: {level: info}\n")
	r := start(t, p, echoes(), mega.ConfigFrom("settings service", &s, nil))
	client := dialAdmin(t, p)
	if post(t, r.Report().Apps[0].URL, "quiet"); strings.Contains(stderr.String(), "quiet") {
		t.Errorf("the level of the provider is not in force:\n%s", stderr)
	}
	s.values.Store(&map[string]any{"log": map[string]any{"level": "debug"}})
	changes, err := client.Reload(t.Context())
	if err != nil || len(changes) != 1 || changes[0].Key != "log.level" || changes[0].New != "debug" {
		t.Errorf("changes %+v, %v", changes, err)
	}
	s.values.Store(&map[string]any{"log": map[string]any{"level": "loud"}})
	if _, err := client.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "settings service") {
		t.Errorf("a bad value of the provider: %v", err)
	}
}
