package boot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/boot"
	megactx "github.com/megaframework/mega/ctx"
)

type pages struct{ name string }

func (p *pages) home(c *megactx.Ctx) error { return c.Text(200, p.name) }

func TestRoutesAreListedWithoutStarting(t *testing.T) {
	type shelf struct {
		Open bool `key:"open"`
	}
	made := false
	options := []boot.Option{
		boot.Routes(func(r megactx.Router) { r.Get("/about", func(*megactx.Ctx) error { return nil }) }),
		boot.App("main",
			boot.Section(typeOf[shelf](), "shelf"),
			boot.Provide(func() *pages { made = true; return &pages{} }),
			boot.Routes(func(r megactx.Router, p *pages, s shelf) {
				r.Get("/", p.home)
				if s.Open {
					r.Route("/shelf", func(r megactx.Router) { r.Delete("/{id}", p.home) })
				}
			})),
		boot.App("admin"),
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
	if running := start(t, p, options...).Routes(); !slices.Equal(running, all) {
		t.Errorf("running, they are %v", running)
	}
	p.Only = []string{"admin"}
	if all, err = listed(p, options...); err != nil || len(all) != 1 {
		t.Errorf("of one app: %v, %v", all, err)
	}
}

// listed returns the routes of a program that is not started.
func listed(p boot.Process, options ...boot.Option) ([]boot.Route, error) {
	made, err := boot.Plan(p, options...)
	if err != nil {
		return nil, err
	}
	return made.Routes()
}

func TestRoutesThatNeedAValueAreNamed(t *testing.T) {
	p, _ := process()
	_, err := listed(p, boot.App("main",
		boot.Provide(func() *pages { return &pages{} }),
		boot.Routes(func(r megactx.Router, p *pages) { r.Get("/"+p.name, p.home) })))
	f, ok := errors.AsType[*boot.Failure](err)
	if !ok || f.Code != "boot.routes_unknown" || !strings.Contains(f.Facts[0].Value, "routes_test.go") || !strings.Contains(f.Actions[0], "/ops/routes") {
		t.Errorf("got %+v", err)
	}
	_, err = listed(p, boot.App("main", boot.Routes(func(r megactx.Router) { r.Get("no slash", nil) })))
	if f, ok := errors.AsType[*boot.Failure](err); !ok || f.Code != "boot.routes" {
		t.Errorf("got %+v", err)
	}
	if _, err := listed(p); err == nil {
		t.Error("a program without an app has routes")
	}
}
