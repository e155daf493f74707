// Shop is the program that the tests of package boot break in every way there
// is. What is wrong with it is what MEGA_TEST_SHOP says.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/bus"
)

// Store is a value of the shop.
type Store struct{}

// Ledger is another one.
type Ledger struct{}

// NewStore makes a Store.
func NewStore() *Store { return &Store{} }

// NewStoreToo makes one, too.
func NewStoreToo() *Store { return &Store{} }

// NewLedger needs a Store.
func NewLedger(*Store) *Ledger { return &Ledger{} }

// NewStoreOf needs a Ledger.
func NewStoreOf(*Ledger) *Store { return &Store{} }

// OpenStore fails.
func OpenStore() (*Store, error) {
	return nil, errors.New("open /data/shop.db: no such file or directory")
}

// MapStore panics.
func MapStore() *Store {
	var products map[string]int
	products["apple"]++
	return &Store{}
}

// load is a command that fails.
func load(_ context.Context, files []string) error {
	return fmt.Errorf("open %s: no such file or directory", files[0])
}

// Database is a section of the configuration.
type Database struct {
	URL      mega.URL    `key:"url" default:"sqlite://shop.db" doc:"where it is"`
	Password mega.Secret `key:"password" doc:"of its user"`
	Pool     int         `key:"pool" default:"4" min:"1" max:"64" doc:"how many connections"`
}

// Mail is a section that cannot do without being set.
type Mail struct {
	Host string `key:"host" required:"true" doc:"where mail is sent"`
}

// Unfit is no section.
type Unfit struct {
	Ports map[string]int `key:"ports"`
}

func home(ctx *mega.Ctx) error { return ctx.Text(200, "hello") }

func sold(*mega.Ctx, string) error { return nil }

func routes(r mega.Router) { r.Get("/", home) }

func storeRoutes(r mega.Router, _ *Store) { r.Get("/", home) }

func main() {
	web := func(options ...mega.Option) mega.Option {
		return mega.App("web", append([]mega.Option{mega.Config[Database]("database"), mega.Routes(routes)}, options...)...)
	}
	admin := mega.App("admin", mega.Routes(routes))
	switch what := os.Getenv("MEGA_TEST_SHOP"); what {
	case "":
		mega.Main(web(), admin)
	case "without an app":
		mega.Main(mega.Provide(NewStore))
	case "with an app that cannot be called that":
		mega.Main(mega.App("Web Shop", mega.Routes(routes)))
	case "with a function of the wrong shape":
		mega.Main(web(mega.Routes(home)))
	case "with a value that nobody provides":
		mega.Main(web(mega.Routes(storeRoutes)))
	case "with a value that is provided twice":
		mega.Main(web(mega.Provide(NewStore), mega.Provide(NewStoreToo)))
	case "with constructors that need each other":
		mega.Main(web(mega.Provide(NewLedger, NewStoreOf), mega.Routes(storeRoutes)))
	case "with a constructor that fails":
		mega.Main(web(mega.Provide(OpenStore), mega.Routes(storeRoutes)))
	case "with a constructor that panics":
		mega.Main(web(mega.Provide(MapStore), mega.Routes(storeRoutes)))
	case "with a hook that fails":
		mega.Main(web(mega.OnStart("migrate", func(context.Context) error { return errors.New("table products exists already") })))
	case "with a hook that takes too long":
		mega.Main(web(mega.OnStart("migrate", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, mega.Budget(budget))))
	case "with routes that cannot be":
		mega.Main(web(mega.Routes(func(r mega.Router) { r.Get("products", home) })))
	case "with two routes of which one cannot be reached":
		mega.Main(web(mega.Routes(func(r mega.Router) { r.Get("/{page}", home) }), mega.Routes(func(r mega.Router) { r.Get("/{name}", home) })))
	case "with a command that is a verb":
		mega.Main(web(mega.Command("routes", load)))
	case "with a command":
		mega.Main(web(mega.Provide(NewStore), mega.Command("import", load)))
	case "with a page that does not parse":
		mega.Main(web(mega.Views(pages)))
	case "with texts in too few languages":
		mega.Main(web(mega.Locales(texts)))
	case "with a file that cannot be read":
		mega.Main(web(mega.Public(unreadable{})))
	case "with a section that must be set":
		mega.Main(web(mega.Config[Mail]("mail")))
	case "with a settings service that is down":
		mega.Main(web(), mega.ConfigFrom("settings service", down{}, nil))
	case "with a section that cannot be":
		mega.Main(web(mega.Config[Unfit]("unfit")))
	case "with a client of redis":
		mega.Main(web(mega.Routes(func(r mega.Router, _ redis.UniversalClient) { r.Get("/", home) })))
	case "with an option of the injector that fails":
		mega.Main(web(boot.Fx(fx.Invoke(func() error { return errors.New("no route to the broker") }))))
	case "with an app that needs the whole fleet":
		mega.Main(web(), mega.App("admin", mega.RequireScope(mega.Fleet), mega.Routes(routes)))
	case "with a hook that takes no context":
		mega.Main(web(mega.OnStart("migrate", func() error { return nil })))
	case "with a hook that takes two contexts":
		mega.Main(web(mega.OnStart("migrate", func(context.Context, *mega.Ctx) error { return nil })))
	case "with a report every minute":
		mega.Main(web(mega.Every("report", 60e9, func(context.Context) error { return nil })))
	case "with a subscription":
		mega.Main(web(mega.Subscribe(bus.Topic[string]("product.sold"), sold)))
	case "with a route below another app":
		mega.Main(web(mega.Routes(func(r mega.Router) { r.Get("/admin/users", home) })), admin)
	default:
		panic("there is no shop " + what)
	}
}

// down is a provider of configuration whose service refuses connections.
type down struct{}

func (down) Read() (map[string]any, error) {
	return nil, errors.New("get http://shop:hunter2@settings.internal/shop: connection refused")
}

func (down) ReadBytes() ([]byte, error) { return nil, errors.New("a map only") }
