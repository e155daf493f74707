package mega_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/internal/failure"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// settings and shelf are what the app of the test is made of.
type (
	settings struct {
		Size int `key:"size" default:"3" min:"1"`
	}
	shelf struct{ size int }
)

func newShelf(s settings) *shelf { return &shelf{s.Size} }

func (s *shelf) Ping(context.Context) error { return nil }

// module has one of each option.
func module() mega.Option {
	return mega.Module(
		mega.Config[settings]("shelf"),
		mega.Provide(newShelf),
		mega.Use(func(s *shelf, next mega.Handler) mega.Handler {
			return func(c *mega.Ctx) error {
				c.Writer().Header().Set("Shelf-Size", fmt.Sprint(s.size))
				return next(c)
			}
		}),
		mega.Routes(func(r mega.Router, s *shelf) {
			r.Get("/", func(c *mega.Ctx) error {
				return c.Lock.With("shelf", func(c *mega.Ctx) error { return c.HTML(http.StatusOK, "home", s.size) })
			})
			r.Handle("/std", mega.WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c, ok := mega.From(r.Context())
				_, _ = fmt.Fprint(w, ok, " ", c.App.Name)
			})))
		}),
		mega.Ready("shelf", (*shelf).Ping),
		mega.OnStart("dust", func(context.Context) {}),
		mega.OnStop("sweep", func(context.Context) {}),
		mega.Run("watch", func(ctx context.Context) error { <-ctx.Done(); return nil }),
		mega.Views(fstest.MapFS{"home.html": {Data: []byte("{{.}} pieces")}, "other.html": {}}),
		mega.Public(fstest.MapFS{"a.txt": {Data: []byte("a file")}, "b.txt": {}}),
	)
}

func process() (boot.Process, *bytes.Buffer) {
	var stderr bytes.Buffer
	return boot.Process{
		Name: "shop", Stderr: &stderr,
		Environ: []string{"MEGA_APPS_MAIN_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_SHELF_SIZE=5"},
	}, &stderr
}

func TestAppIsMadeOfItsOptions(t *testing.T) {
	p, _ := process()
	r, err := boot.Start(t.Context(), p, mega.App("main", module()))
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"/": "5 pieces", "/std": "true main", "/a.txt": "a file"} {
		w, err := http.Get(r.Report().Apps[0].URL + target)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(w.Body)
		if err := errors.Join(err, w.Body.Close()); err != nil || string(body) != want {
			t.Errorf("%s: got %q, %v, want %q", target, body, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
}

// A complaint about an option names the line on which the application wrote it
// down, not one of this module's own.
func TestComplaintsNameTheApplicationsLine(t *testing.T) {
	for name, o := range map[string]mega.Option{
		"Routes":  mega.Routes(5),
		"Use":     mega.Use(5),
		"Provide": mega.Provide(5),
		"OnStart": mega.OnStart("x", 5),
		"OnStop":  mega.OnStop("x", 5),
		"Run":     mega.Run("x", 5),
		"Ready":   mega.Ready("x", 5),
		"Config":  mega.Config[int]("lock"),
		"App":     mega.App("Not A Name"),
	} {
		p, stderr := process()
		if status := boot.Main(t.Context(), p, mega.App("main", o)); status == failure.ExitOK || !strings.Contains(stderr.String(), "mega_test.go:") {
			t.Errorf("%s: exit status %d:\n%s", name, status, stderr)
		}
	}
}
