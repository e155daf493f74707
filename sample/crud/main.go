// Command crud is a shop that never oversells: products in SQLite whose stock is
// read and written under a lock.
package main

import (
	"embed"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
)

//go:embed views
var views embed.FS

//go:embed public
var public embed.FS

func main() { mega.Main(program(NewHandlers)) }

// program returns the shop. A test passes other handlers to show that the shop
// oversells without the lock.
func program(newHandlers func(*Store) *Handlers) mega.Option {
	return mega.App("main",
		mega.Config[Database]("database"),
		mega.Provide(OpenStore, newHandlers, NewLedger, NewJournal, NewSandboxes, NewLockPage),
		mega.Routes(routes),
		mega.Subscribe(Sold, (*Ledger).OnSold, bus.Group("ledger")),
		mega.Respond(stockOf, (*Handlers).AnswerStock),
		mega.Ready("database", (*Store).Ping),
		mega.Views(views),
		mega.Public(public),
	)
}

func routes(r mega.Router, h *Handlers, l *Ledger, b *Sandboxes, p *LockPage) {
	r.Get("/", h.Home)
	r.Get("/products", h.List)
	r.Post("/products", h.Create)
	r.Get("/products/{id}", h.Show)
	r.Put("/products/{id}", h.Update)
	r.Delete("/products/{id}", h.Delete)
	r.Post("/products/{id}/buy", h.Buy)
	r.Get("/products/{id}/stock", h.AskStock)
	r.Get("/ledger", l.List)
	r.Get("/locks", p.List)
	r.Post("/locks/race", p.Race)
	r.Post("/locks/hold", p.Hold)
	r.Post("/locks/try", p.Try)
	r.Post("/locks/force", p.Force)
	r.Get("/sandboxes", b.List)
	r.Post("/sandboxes", b.Start)
	r.Post("/sandboxes/{number}/free", b.Free)
	r.Post("/sandboxes/{number}/heal", b.Heal)

	// The actions of a form without scripts.
	r.Post("/products/{id}", h.Update)
	r.Post("/products/{id}/delete", h.Delete)
}
