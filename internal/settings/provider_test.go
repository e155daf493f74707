package settings_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"

	"github.com/megaframework/mega/internal/settings"
)

func TestProviderIsALayerBetweenFilesAndEnvironment(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "mega.config.yaml"), "lock: {ttl: 11s, wait: 11s, fifo: false}\n")
	put(t, filepath.Join(dir, "more.yaml"), "lock: {ttl: 12s, wait: 12s, fifo: true}\n")
	c, err := settings.Load(settings.Source{
		Dir: dir, Environ: []string{"MEGA_LOCK_WAIT=13s"},
		Layers: []settings.Layer{{Name: "vault", Provider: file.Provider(filepath.Join(dir, "more.yaml")), Parser: yaml.Parser()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Lock.TTL != 12*time.Second || c.Lock.Wait != 13*time.Second || !c.Lock.FIFO {
		t.Errorf("ttl %v, wait %v, fifo %v: want 12s of the provider, 13s of the environment, true of the provider", c.Lock.TTL, c.Lock.Wait, c.Lock.FIFO)
	}
	e, err := c.Explain("lock.ttl")
	if err != nil || e.Origin.String() != "vault" || len(e.Shadows) != 1 || e.Shadows[0].String() != "mega.config.yaml:1" {
		t.Errorf("explain lock.ttl: origin %v over %v, %v; want vault over mega.config.yaml:1", e.Origin, e.Shadows, err)
	}
}

func TestProviderOfAnAppSetsTheKeysOfTheApp(t *testing.T) {
	c, err := settings.Load(settings.Source{
		Apps:   []string{"web"},
		Layers: []settings.Layer{{Name: "store", App: "web", Provider: confmap.Provider(map[string]any{"addr": "127.0.0.1:8088"}, ".")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Apps["web"].Addr; got != "127.0.0.1:8088" {
		t.Errorf("apps.web.addr is %q", got)
	}
}

// service is a provider as a program writes one for a service over HTTP.
type service struct{ url string }

func (s service) Read() (map[string]any, error) {
	return nil, errors.New("the service returns bytes")
}

func (s service) ReadBytes() ([]byte, error) {
	answer, err := http.Get(s.url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", s.url, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

func TestProviderOverHTTPIsReadAgainByReload(t *testing.T) {
	text := "log: {level: warn}\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	defer server.Close()
	source := settings.Source{Layers: []settings.Layer{{Name: "settings service", Provider: service{server.URL}, Parser: yaml.Parser()}}}
	c, err := settings.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	text = "log: {level: debug}\n"
	next, changes, err := settings.Reload(c, source)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 1 || changes[0].Key != "log.level" || changes[0].Origin != "settings service" || next.Log.Level != "debug" {
		t.Errorf("changes %+v, level %v", changes, next.Log.Level)
	}
	server.Close()
	kept, _, err := settings.Reload(next, source)
	if kept != next || !strings.Contains(fmt.Sprint(err), "settings service: cannot be read") {
		t.Errorf("reload without the service: %v", err)
	}
}

func TestProviderIsAsStrictAsAFile(t *testing.T) {
	for says, text := range map[string]string{
		`store: unknown key "lock.tttl" (did you mean lock.ttl?)`:                        "lock: {tttl: 5s}",
		`store: lock.ttl: "5" has no unit (write 5s)`:                                    "lock: {ttl: 5}",
		`store: lock.fifo: "maybe" is not true or false`:                                 "lock: {fifo: maybe}",
		`store: the section lock is empty (remove it, or give it a key)`:                 "lock: {}",
		`store: lock is a section of keys, but the value is text (one of its keys is lo`: "lock: text",
		`store: lock.ttl: has no value`:                                                  "lock: {ttl: null}",
		`store: cannot be read: yaml: `:                                                  "lock: [",
		`store: apps.web.locales: an item of the list is a number, not text`:             "apps: {web: {locales: [en, 5]}}",
		`store: nests deeper than 32 levels`:                                             strings.Repeat("{lock: ", 40) + strings.Repeat("}", 40),
	} {
		_, err := settings.Load(settings.Source{Apps: []string{"web"}, Layers: []settings.Layer{{Name: "store", Provider: rawYAML(text), Parser: yaml.Parser()}}})
		if !strings.HasPrefix(fmt.Sprint(err), says) {
			t.Errorf("%s:\n got %v\nwant %s", text, err, says)
		}
	}
	_, err := settings.Load(settings.Source{Layers: []settings.Layer{
		{Name: "first", Provider: rawYAML("lock: {ttl: 5, tttl: 5s}"), Parser: yaml.Parser()},
		{Name: "second", Provider: rawYAML("nme: shop"), Parser: yaml.Parser()},
	}})
	if problems, ok := errors.AsType[settings.Problems](err); !ok || len(problems) != 3 {
		t.Errorf("want three problems at once, got %v", err)
	}
}

func TestProviderOfTextsAndListsSetsEveryKindOfKey(t *testing.T) {
	texts := confmap.Provider(map[string]any{"lock.fifo": "true", "lock.ttl": "7s", "cluster.workers": "3"}, ".")
	list := confmap.Provider(map[string]any{"apps.web.locales": []any{"ko", "en"}}, ".")
	c, err := settings.Load(settings.Source{Apps: []string{"web"}, Layers: []settings.Layer{{Name: "texts", Provider: texts}, {Name: "list", Provider: list}}})
	if err != nil {
		t.Fatal(err)
	}
	if locales := c.Apps["web"].Locales; !c.Lock.FIFO || c.Lock.TTL != 7*time.Second || c.Cluster.Workers != 3 || !slices.Equal(locales, []string{"ko", "en"}) {
		t.Errorf("got %v, %v, %d, %v", c.Lock.FIFO, c.Lock.TTL, c.Cluster.Workers, locales)
	}
}

// stubborn is a provider that returns when it is released, or panics.
type stubborn struct{ release chan struct{} }

func (stubborn) ReadBytes() ([]byte, error) { return nil, errors.New("no bytes") }
func (s stubborn) Read() (map[string]any, error) {
	<-s.release
	panic("released")
}

func TestProviderThatDoesNotAnswerIsAnErrorAfterWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stubborn{make(chan struct{})}
		began := time.Now()
		_, err := settings.Load(settings.Source{
			Environ: []string{"MEGA_BOOT_WAIT_FOR=3s"}, Layers: []settings.Layer{{Name: "slow", Provider: s}},
		})
		if took := time.Since(began); took != 3*time.Second || fmt.Sprint(err) != "slow: did not answer within 3s" {
			t.Errorf("after %v: %v", took, err)
		}
		close(s.release)
	})
}

// With several layers, only the one that is late is an error.
func TestProviderThatAnswersIsNotBlamedForALateOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stubborn{make(chan struct{})}
		layers := []settings.Layer{{Name: "slow", Provider: s}}
		for i := range 20 {
			layers = append(layers, settings.Layer{Name: fmt.Sprint("fast", i), Provider: confmap.Provider(map[string]any{"lock.ttl": "7s"}, ".")})
		}
		_, err := settings.Load(settings.Source{Environ: []string{"MEGA_BOOT_WAIT_FOR=3s"}, Layers: layers})
		if fmt.Sprint(err) != "slow: did not answer within 3s" {
			t.Errorf("got %v", err)
		}
		close(s.release)
	})
}

// leaver is a provider that ends its goroutine.
type leaver struct{ stubborn }

func (leaver) Read() (map[string]any, error) { runtime.Goexit(); return nil, nil }

func TestProviderThatEndsItsGoroutineIsAnErrorAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := settings.Load(settings.Source{Layers: []settings.Layer{{Name: "broken", Provider: leaver{}}}})
		if took := time.Since(began); took != 0 || fmt.Sprint(err) != "broken: ended its goroutine" {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestPanicOfAProviderIsItsError(t *testing.T) {
	s := stubborn{make(chan struct{})}
	close(s.release)
	_, err := settings.Load(settings.Source{Layers: []settings.Layer{{Name: "broken", Provider: s}}})
	if problems, ok := errors.AsType[settings.Problems](err); !ok || problems.Code() != "config.provider" || problems.Error() != "broken: panicked: released" {
		t.Errorf("got %v", err)
	}
}

func TestPasswordInTheErrorOfAProviderIsMasked(t *testing.T) {
	_, err := settings.Load(settings.Source{Layers: []settings.Layer{{Name: "remote", Provider: service{"http://shop:topsecret@127.0.0.1:1/x"}, Parser: yaml.Parser()}}})
	if err == nil || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("got %v", err)
	}
}

type rawYAML string

func (r rawYAML) ReadBytes() ([]byte, error)  { return []byte(r), nil }
func (rawYAML) Read() (map[string]any, error) { return nil, errors.New("bytes only") }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
