// Command crud is a shop that never oversells: products in a database whose stock
// is read and written under a lock.
package main

import (
	"github.com/megaframework/mega"
	app "github.com/megaframework/mega/sample/crud/apps/main"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

func main() { mega.Main(program(services.UnderLock)) }

// program returns the shop. A test passes another Exclusive to show that the shop
// oversells without the lock.
func program(exclusive func() services.Exclusive) mega.Option {
	return mega.App("main", mega.Provide(exclusive), app.Module)
}
