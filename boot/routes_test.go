package boot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/plan"
)

type pages struct{ name string }

func (p *pages) home(c *megactx.Ctx) error { return c.Text(200, p.name) }

func TestRoutesAreListedWithoutStarting(t *testing.T) {
	type shelf struct {
		Open bool `key:"open"`
	}
	made := false
	options := []mega.Option{
		mega.Routes(func(r megactx.Router) { r.Get("/about", func(*megactx.Ctx) error { return nil }) }),
		mega.App("main",
			mega.Config[shelf]("shelf"),
			mega.Provide(func() *pages { made = true; return &pages{} }),
			mega.Routes(func(r megactx.Router, p *pages, s shelf) {
				r.Get("/", p.home)
				if s.Open {
					r.Route("/shelf", func(r megactx.Router) { r.Delete("/{id}", p.home) })
				}
			})),
		mega.App("admin"),
	}
	p, _ := process("MEGA_SHELF_OPEN=true", "MEGA_APPS_ADMIN_PREFIX=/admin", "MEGA_APPS_ADMIN_HOST=x.example", "MEGA_APPS_ADMIN_ADDR=127.0.0.1:0")
	all, err := listed(p, options...)
	if err != nil || made {
		t.Fatalf("%v, and something was made: %v", err, made)
	}
	var got []string
	for _, r := range all {
		got = append(got, strings.Join([]string{r.App, r.Host, r.Method, r.Pattern}, " "))
	}
	want := []string{"main  GET /about", "main  GET /", "main  DELETE /shelf/{id}", "admin x.example GET /admin/about"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !strings.Contains(all[1].Handler, "(*pages).home") {
		t.Errorf("the handler is called %q", all[1].Handler)
	}
	p.Only = []string{"admin"}
	if all, err = listed(p, options...); err != nil || len(all) != 1 {
		t.Errorf("of one app: %v, %v", all, err)
	}
}

// listed returns the routes of a program that is not started.
func listed(p boot.Process, options ...mega.Option) ([]plan.Route, error) {
	made, err := boot.Plan(p, options...)
	if err != nil {
		return nil, err
	}
	return made.Routes()
}

func TestRoutesThatNeedAValueAreNamed(t *testing.T) {
	p, _ := process()
	_, err := listed(p, mega.App("main",
		mega.Provide(func() *pages { return &pages{} }),
		mega.Routes(func(r megactx.Router, p *pages) { r.Get("/"+p.name, p.home) })))
	f, ok := errors.AsType[*boot.Failure](err)
	if !ok || f.Code != "boot.routes_unknown" || !strings.Contains(f.Facts[0].Value, "routes_test.go") || !strings.Contains(f.Actions[0], "/ops/routes") {
		t.Errorf("got %+v", err)
	}
	_, err = listed(p, mega.App("main", mega.Routes(func(r megactx.Router) { r.Get("no slash", nil) })))
	if f, ok := errors.AsType[*boot.Failure](err); !ok || f.Code != "boot.routes" {
		t.Errorf("got %+v", err)
	}
	if _, err := listed(p); err == nil {
		t.Error("a program without an app has routes")
	}
}

func TestConflictingRoutesStopTheBoot(t *testing.T) {
	var h *pages
	p, _ := process()
	options := []mega.Option{
		mega.Routes(func(r megactx.Router) { r.Get("/p/{id}", h.home) }),
		mega.App("main",
			mega.Provide(func() *pages { return &pages{} }),
			mega.Routes(func(r megactx.Router, p *pages) { r.Get("/p/{name}", p.home) })),
	}
	_, started := boot.Start(t.Context(), p, options...)
	_, inList := listed(p, options...)
	made, err := boot.Plan(p, options...)
	if err != nil {
		t.Fatal(err)
	}
	_, rehearsed := doctor.Rehearse(made)
	for where, err := range map[string]error{"boot": started, "routes": inList, "dry run": rehearsed} {
		f, ok := errors.AsType[*boot.Failure](err)
		if !ok || f.Code != "boot.route_conflict" || len(f.Facts) != 2 {
			t.Errorf("%s: got %+v", where, err)
			continue
		}
		for i, pattern := range []string{"GET /p/{id} at ", "GET /p/{name} at "} {
			if !strings.HasPrefix(f.Facts[i].Value, pattern) || !strings.Contains(f.Facts[i].Value, "routes_test.go:") {
				t.Errorf("%s: fact %d is %+v", where, i, f.Facts[i])
			}
		}
	}
}

func TestARouteBelowAnotherAppStopsTheBoot(t *testing.T) {
	home := func(c *megactx.Ctx) error { return c.Text(200, "home") }
	program := func(pattern string) []mega.Option {
		return []mega.Option{
			mega.App("main", mega.Routes(func(r megactx.Router) { r.Get(pattern, home) })),
			mega.App("admin", mega.Routes(func(r megactx.Router) { r.Get("/", home) })),
		}
	}
	for _, tt := range []struct {
		pattern string
		environ []string
		hidden  bool
	}{
		{"/admin", nil, true},
		{"/admin/users", nil, true},
		{"/admin/{id}", nil, true},
		{"/admin/*", nil, true},
		{"/admin/users", []string{"MEGA_APPS_MAIN_HOST=x.example", "MEGA_APPS_ADMIN_HOST=x.example"}, true},
		{"/v1/users", []string{"MEGA_APPS_MAIN_PREFIX=/shop", "MEGA_APPS_ADMIN_PREFIX=/shop/v1"}, true},
		{"/administration", nil, false},
		{"/{page}", nil, false},
		{"/*", nil, false},
		{"/", nil, false},
		{"/admin/users", []string{"MEGA_APPS_ADMIN_ADDR=localhost:0"}, false},
		{"/admin/users", []string{"MEGA_APPS_ADMIN_HOST=x.example"}, false}, // other hosts reach it
		{"/admin/users", []string{"MEGA_APPS_MAIN_PREFIX=/shop"}, false},
	} {
		p, _ := process(append([]string{"MEGA_APPS_ADMIN_ADDR=127.0.0.1:0", "MEGA_APPS_ADMIN_PREFIX=/admin"}, tt.environ...)...)
		options := program(tt.pattern)
		_, inList := listed(p, options...)
		running, started := boot.Start(t.Context(), p, options...)
		if started == nil {
			if err := running.Stop(); err != nil {
				t.Error(err)
			}
		}
		for where, err := range map[string]error{"boot": started, "routes": inList} {
			f, ok := errors.AsType[*boot.Failure](err)
			if hidden := ok && f.Code == "boot.route_conflict"; hidden != tt.hidden || !hidden && err != nil {
				t.Errorf("%s of %q with %q: got %v", where, tt.pattern, tt.environ, err)
			} else if hidden && (!strings.Contains(f.Facts[0].Value, "routes_test.go:") || !strings.Contains(f.Facts[1].Value, "apps.admin.prefix")) {
				t.Errorf("%s of %q with %q: the places are %+v", where, tt.pattern, tt.environ, f.Facts)
			}
		}
	}
}
