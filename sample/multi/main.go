// Command multi is two apps in one process: web accepts orders, admin refunds and
// exchanges them, and both change the stock of a product under the same lock.
package main

import (
	"embed"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/sample/multi/admin"
	"github.com/megaframework/mega/sample/multi/shop"
	"github.com/megaframework/mega/sample/multi/web"
)

// The layout and style of both apps.
var (
	//go:embed views
	views embed.FS
	//go:embed public
	public embed.FS
)

func main() { mega.Main(program()) }

// program returns both apps and their shared parts.
func program() mega.Option {
	return mega.Module(
		shop.Module,
		mega.Views(views),
		mega.Public(public),
		mega.App("web", web.Module),
		mega.App("admin", admin.Module),
	)
}
