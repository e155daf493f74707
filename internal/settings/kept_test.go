package settings_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/knadh/koanf/providers/confmap"

	"github.com/megaframework/mega/internal/settings"
)

// kept loads s, passes a copy of its files through JSON, and returns s with the
// copy, and what was loaded.
func kept(t *testing.T, s settings.Source) (settings.Source, []settings.Value, error) {
	t.Helper()
	s.Files = new(settings.Files)
	c, err := settings.Load(s)
	s.Files.Keep()
	data, failed := json.Marshal(s.Files)
	if failed != nil {
		t.Fatal(failed)
	}
	s.Files = new(settings.Files)
	if err := json.Unmarshal(data, s.Files); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		return s, nil, err
	}
	return s, c.Values(), nil
}

// A folder that is replaced as a whole has another path for the processes in it, or
// none.
func TestKeptFilesAreFoundFromAnyFolder(t *testing.T) {
	dir := folder(t, map[string]string{"mega.config.yaml": "name: shop\nlock: {ttl: 20s}\n"})
	for _, file := range []string{"", "mega.config.yaml"} {
		s := source(dir)
		s.File = file
		s, want, err := kept(t, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, s.Dir = range []string{t.TempDir(), ""} {
			c, err := settings.Load(s)
			if err != nil {
				t.Errorf("from %q: %v", s.Dir, err)
				continue
			}
			if got := c.Values(); !reflect.DeepEqual(got, want) {
				t.Errorf("from %q: got %v, want %v", s.Dir, got, want)
			}
		}
	}
}

func TestKeptFilesTakeThePlaceOfTheDisk(t *testing.T) {
	files := map[string]string{
		"go.mod": "module x\n", "mega.config.yaml": "name: shop\nlock: {ttl: 20s}\n", "mega.config.dev.yaml": "lock: {wait: 3s}\n",
		"apps/web/app.config.yaml": "addr: ':9'\n", ".env": "MEGA_LOG_LEVEL=debug\n", "sub/dir/x": "",
	}
	for _, from := range []string{"the folder", "a folder below", "a named file", "a named folder"} {
		dir := folder(t, files)
		s := source(dir, "MEGA_ENV=dev")
		switch from {
		case "a folder below":
			s.Dir = filepath.Join(dir, "sub", "dir")
		case "a named file":
			s.Dir, s.File = t.TempDir(), filepath.Join(dir, "mega.config.yaml")
		case "a named folder":
			s.Dir, s.File = t.TempDir(), dir
		}
		s, want, err := kept(t, s)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		for name := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, "apps")); err != nil {
			t.Fatal(err)
		}
		c, err := settings.Load(s)
		if err != nil {
			t.Fatalf("%s: %v", from, err)
		}
		if !reflect.DeepEqual(c.Values(), want) || c.Lock.TTL.String() != "20s" || c.Log.Level != "debug" || c.Apps["web"].Addr != ":9" {
			t.Errorf("%s: got %+v, want %+v", from, c.Values(), want)
		}
		if _, _, err := settings.Reload(c, s); err != nil {
			t.Errorf("%s: reload: %v", from, err)
		}
	}
}

func TestKeptFilesHaveTheProblemsOfTheDisk(t *testing.T) {
	for _, s := range []settings.Source{
		source(folder(t, map[string]string{"mega.config.yaml": "lock: {tll: 20s}\n"})),
		source(folder(t, map[string]string{"mega.config.yaml": "\xff"})),
		source(folder(t, map[string]string{"mega.config.yaml/x": ""})),
		{Dir: t.TempDir(), File: "absent.yaml"},
	} {
		s, _, want := kept(t, s)
		_, got := settings.Load(s)
		if want == nil || got == nil || !strings.Contains(got.Error(), want.Error()) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// A copy that is kept does not look at the disk again, whatever it is asked for.
func TestKeptFilesAreAllThatThereIs(t *testing.T) {
	dir := folder(t, map[string]string{"mega.config.yaml": "name: shop\n"})
	s := source(dir)
	s.Files = new(settings.Files)
	s.Files.Keep()
	if c, err := settings.Load(s); err != nil || c.Name == "shop" {
		t.Errorf("got %v", err)
	}
}

func TestKeptFilesHaveTheAnswersOfProviders(t *testing.T) {
	answer := map[string]any{"lock": map[string]any{"ttl": "20s", "fifo": true}, "limits": map[string]any{"rate": 2.75, "big": int64(9007199254740993)}}
	s := source("")
	s.Layers = []settings.Layer{{Name: "vault", Provider: confmap.Provider(answer, "")}}
	s, want, err := kept(t, s)
	if err != nil {
		t.Fatal(err)
	}
	s.Layers[0].Provider = confmap.Provider(map[string]any{"lock": map[string]any{"ttl": "40s"}}, "")
	c, err := settings.Load(s)
	if err != nil || !reflect.DeepEqual(c.Values(), want) || c.Lock.TTL.String() != "20s" {
		t.Errorf("got %v, %+v, want %+v", err, c.Values(), want)
	}
}

func TestHangTimeoutIsOffInDevAndNotBelowASecond(t *testing.T) {
	for _, x := range []struct {
		environ []string
		want    string
	}{
		{nil, "30s"},
		{[]string{"MEGA_ENV=dev"}, "0s"},
		{[]string{"MEGA_ENV=dev", "MEGA_CLUSTER_HANG_TIMEOUT=5s"}, "5s"},
		{[]string{"MEGA_CLUSTER_HANG_TIMEOUT=0s"}, "0s"},
	} {
		if c, err := settings.Load(source("", x.environ...)); err != nil || c.Cluster.HangTimeout.String() != x.want {
			t.Errorf("%q: got %v, want %s", x.environ, err, x.want)
		}
	}
	if p := problems(t, source("", "MEGA_CLUSTER_HANG_TIMEOUT=999ms")); len(p) != 1 || p[0].Key != "cluster.hang_timeout" {
		t.Errorf("got %v", p)
	}
}

func TestPathOfTheSocketHasNoNUL(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mega.config.yaml"), []byte(`cluster: {socket: "/run/shop/a\0b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p := problems(t, source(dir))
	if len(p) != 1 || p[0].Key != "cluster.socket" || !strings.Contains(p[0].Text, `"/run/shop/a\x00b" is not auto or an absolute path`) {
		t.Errorf("got %v", p)
	}
}
