// Package app is the app main: a shop that never oversells, with pages of its
// ledger, its locks and its sandboxes.
package app

import (
	"embed"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

//go:embed views
var views embed.FS

//go:embed public
var public embed.FS

//go:embed locales
var locales embed.FS

// Module is the app. It takes a services.Exclusive from the program.
var Module = mega.Module(
	mega.Config[store.Database]("database"),
	mega.Provide(store.Open, store.NewJournal),
	mega.Provide(services.NewShop, services.NewWatch, services.NewSandboxes),
	mega.Provide(handlers.NewProducts, handlers.NewLedger, handlers.NewSandboxes),
	mega.Routes(routes),
	demo,
	mega.Subscribe(services.Sold, (*services.Watch).OnSold, bus.Group("watch")),
	mega.Respond(services.StockOf, (*services.Shop).AnswerStock),
	mega.OnPrimary("migrate", (*store.Store).Migrate),
	mega.Ready("database", (*store.Store).Ping),
	mega.Views(views),
	mega.Public(public),
	mega.Locales(locales),
)

func routes(r mega.Router, p *handlers.Products, g *handlers.Ledger, b *handlers.Sandboxes) {
	r.Get("/", p.Home)
	r.Get("/products", p.List)
	r.Post("/products", p.Create)
	r.Get("/products/new", p.New)
	r.Get("/products/{id}", p.Show)
	r.Get("/products/{id}/edit", p.Edit)
	r.Put("/products/{id}", p.Update)
	r.Delete("/products/{id}", p.Delete)
	r.Post("/products/{id}/buy", p.Buy)
	r.Get("/products/{id}/stock", p.AskStock)
	r.Post("/language", handlers.Language)
	r.Get("/ledger", g.List)
	r.Get("/sandboxes", b.List)
	r.Post("/sandboxes", b.Start)
	r.Post("/sandboxes/{number}/free", b.Free)
	r.Post("/sandboxes/{number}/heal", b.Heal)

	// The actions of a form without scripts.
	r.Post("/products/{id}", p.Update)
	r.Post("/products/{id}/delete", p.Delete)
}
