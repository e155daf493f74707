package guide_test

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega"
	configuration "github.com/megaframework/mega/internal/settings"
)

var update = flag.Bool("update", false, "write what is made from sources")

// What 02-configuration.md shows.

type Database struct {
	URL      mega.URL      `key:"url" default:"sqlite://shop.db" schemes:"sqlite|postgres" doc:"where the data is"`
	Password mega.Secret   `key:"password" doc:"of the database's user"`
	Pool     int           `key:"pool" default:"4" min:"1" max:"64" doc:"how many connections there are"`
	Retry    time.Duration `key:"retry" default:"1s" max:"1m" doc:"how long to wait after a failure"`
}

func NewStore(d Database) *Store { return &Store{url: d.URL, pool: d.Pool} }

var Module = mega.Module(
	mega.Config[Database]("database"),
	mega.Provide(NewStore),
)

type Store struct {
	url  mega.URL
	pool int
}

const configurationPage = "02-configuration.md"

// shopSource is the program of which the page speaks.
func shopSource(dir string, environ ...string) configuration.Source {
	return configuration.Source{
		Dir: dir, Environ: environ, Apps: []string{"web", "admin"},
		Sections: []configuration.Section{{App: "web", Name: "database", Type: reflect.TypeFor[Database]()}},
	}
}

func written(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFilesOfThePageAreLoadedAndSayTheSame(t *testing.T) {
	loaded := map[string]*configuration.Config{}
	for _, format := range []string{"yaml", "toml", "json"} {
		for _, text := range fenced(read(t, configurationPage), format) {
			name := "mega.config." + format
			if first, _, _ := strings.Cut(text, "\n"); strings.HasPrefix(first, "# ") {
				name = first[2:]
			}
			c, err := configuration.Load(shopSource(written(t, name, text)))
			if err != nil {
				t.Errorf("%s:\n%v", text, err)
				continue
			}
			loaded[name] = c
		}
	}
	if len(loaded) != 4 {
		t.Fatalf("loaded %v, want four files", loaded)
	}
	for _, format := range []string{"toml", "json"} {
		if a, b := loaded["mega.config.yaml"], loaded["mega.config."+format]; !reflect.DeepEqual(a.Apps, b.Apps) || !reflect.DeepEqual(a.Cache, b.Cache) || a.Lock != b.Lock || a.Name != b.Name {
			t.Errorf("the files in YAML and in %s differ: %+v and %+v", format, a, b)
		}
	}
	if d, _ := loaded["apps/web/app.config.yaml"].Section("web", "database"); NewStore(d.(Database)).url.Reveal() != "sqlite://web.db" {
		t.Errorf("the app's file gives it %v", d)
	}
}

// The rows of the tables of mistakes: a mistake and its error.
func TestMistakesOnThePageHaveTheShownErrors(t *testing.T) {
	rows := 0
	for line := range strings.Lines(read(t, configurationPage)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 2 || !strings.HasPrefix(cells[0], "`") {
			continue
		}
		wrong := strings.Trim(cells[0], "`")
		var s configuration.Source
		switch {
		case strings.HasPrefix(cells[1], "mega.config.yaml:"):
			s = shopSource(written(t, "mega.config.yaml", wrong+"\n"))
		case strings.HasPrefix(strings.ToUpper(wrong), "MEGA_") && strings.HasPrefix(strings.ToUpper(cells[1]), "MEGA_"):
			s = shopSource("", wrong)
		default:
			continue
		}
		rows++
		if _, err := configuration.Load(s); err == nil || err.Error() != cells[1] {
			t.Errorf("%s is told as\n%v, the page says\n%s", wrong, err, cells[1])
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows were tried", rows)
	}
}

// fenced returns the blocks of a language in a page.
func fenced(page, language string) (found []string) {
	for _, rest := range strings.Split(page, "```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(rest, "```")
		found = append(found, block)
	}
	return found
}

// settings is a layer of the configuration from a service over HTTP.
type settings struct{ url string }

func (s settings) Read() (map[string]any, error) {
	answer, err := http.Get(s.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var all map[string]any
	err = json.NewDecoder(answer.Body).Decode(&all)
	return all, err
}

func (settings) ReadBytes() ([]byte, error) { return nil, errors.New("the service returns a map") }

func _() {
	mega.Main(
		mega.ConfigFrom("settings service", settings{"http://settings.internal/shop"}, nil),
		mega.App("web", Module),
	)
}
