package guide_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/config"
	configuration "github.com/megaframework/mega/internal/settings"
	pagetest "github.com/megaframework/mega/internal/testkit/page"
	"github.com/megaframework/mega/megatest"
)

// What 09-many-apps.md shows, beside sample/multi.

const appsPage = "09-many-apps.md"

type Clock struct{}

var clocks atomic.Int64 // how many there are

func NewClock() *Clock {
	clocks.Add(1)
	return &Clock{}
}

type ShelfOf struct {
	App   string
	clock *Clock
}

func twoShops() mega.Option {
	return mega.Module(
		mega.Provide(NewClock), // for both, made once
		mega.App("east", mega.Provide(NewShelf), mega.Routes(shelfRoutes)),
		mega.App("west", mega.Provide(NewShelf), mega.Routes(shelfRoutes)),
	)
}

// NewShelf is called once for each app that needs it.
func NewShelf(app mega.AppInfo, clock *Clock) *ShelfOf { return &ShelfOf{App: app.Name, clock: clock} }

func shelfRoutes(r mega.Router, s *ShelfOf) {
	r.Get("/", func(ctx *mega.Ctx) error { return ctx.Text(http.StatusOK, fmt.Sprintf("%s %p", s.App, s.clock)) })
}

func TestAppsOfThePageHaveTheirOwnValuesAndShareOne(t *testing.T) {
	before := clocks.Load()
	kit := megatest.New(t, megatest.Config{}, twoShops())
	var east, west, one, other string
	for app, into := range map[string][2]*string{"east": {&east, &one}, "west": {&west, &other}} {
		if _, err := fmt.Sscan(kit.App(app).Get("/").Status(http.StatusOK).Body(), into[0], into[1]); err != nil {
			t.Fatal(err)
		}
	}
	if east != "east" || west != "west" || one != other || clocks.Load() != before+1 {
		t.Errorf("the apps have %s %s and %s %s, and there are %d clocks", east, one, west, other, clocks.Load()-before)
	}
}

func TestFilesOfThePageOnAppsSayWhereTheyListen(t *testing.T) {
	want := []map[string]config.App{
		{"web": {Addr: "127.0.0.1:8081"}},
		{"web": {Addr: ":8080"}, "admin": {Addr: ":8080", Host: "admin.example.org"}, "docs": {Addr: ":8080", Prefix: "/docs"}},
		{"web": {Addr: ":8443", TLS: config.AppTLS{Cert: "/etc/shop/tls/fullchain.pem", Key: "/etc/shop/tls/privkey.pem"}}},
	}
	blocks := pagetest.Blocks(read(t, appsPage), "yaml")
	if len(blocks) != len(want) {
		t.Fatalf("the page has %d files", len(blocks))
	}
	for i, block := range blocks {
		name, _, _ := strings.Cut(strings.TrimPrefix(block.Text, "# "), "\n")
		c, err := configuration.Load(configuration.Source{Dir: written(t, name, block.Text), Apps: []string{"web", "admin", "docs"}[:len(want[i])]})
		if err != nil {
			t.Error(err)
			continue
		}
		for app, want := range want[i] {
			if got := c.Apps[app]; got.Addr != want.Addr || got.Host != want.Host || got.Prefix != want.Prefix || got.TLS != want.TLS {
				t.Errorf("%s: %s has %+v", name, app, got)
			}
		}
	}
}
