package main

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/megatest"
	"github.com/megaframework/mega/sample/multi/shop"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// open is the shop as it is, on a database of the test's own.
func open(t *testing.T, set ...string) *megatest.Kit {
	t.Helper()
	return openAt(t, filepath.Join(t.TempDir(), "shop.db"), set...)
}

func openAt(t *testing.T, file string, set ...string) *megatest.Kit {
	t.Helper()
	return megatest.New(t, megatest.Config{Dir: ".", Set: append(set, "database.url=sqlite://"+file)}, program())
}

type quantity map[string]any

func order(product string, n int) quantity { return quantity{"product": product, "quantity": n} }

func stock(kit *megatest.Kit, product string) int64 {
	var all []shop.Product
	kit.Get("/").Status(http.StatusOK).JSON(&all)
	for _, p := range all {
		if p.Name == product {
			return p.Stock
		}
	}
	return -1
}

func TestOrderIsTakenAndTakenBack(t *testing.T) {
	kit := open(t)
	admin := kit.App("admin")

	var o shop.Order
	kit.Post("/orders", order("lamp", 3)).Status(http.StatusCreated).Header("Location", "/orders/1").JSON(&o)
	if o.ID != 1 || stock(kit, "lamp") != 17 {
		t.Errorf("the order is %+v and leaves %d", o, stock(kit, "lamp"))
	}
	kit.Get("/orders/1").Status(http.StatusOK).Contains(`"refunded":false`)

	admin.Post("/refunds", map[string]int64{"order": o.ID}).Status(http.StatusOK).Contains(`"refunded":true`)
	admin.Post("/refunds", map[string]int64{"order": o.ID}).Status(http.StatusConflict).Code("order.refunded")
	if left := stock(kit, "lamp"); left != 20 {
		t.Errorf("after the refund there are %d, want 20", left)
	}
}

func TestOrderIsExchanged(t *testing.T) {
	kit := open(t)
	admin := kit.App("admin")
	kit.Post("/orders", order("lamp", 3)).Status(http.StatusCreated) // order 1
	exchange := func(id int, product string) *megatest.Response {
		return admin.Post("/exchanges", map[string]any{"order": id, "product": product})
	}
	exchange(1, "chair").Status(http.StatusOK).Contains(`"id":2,"product":"chair","quantity":3,"refunded":false`)
	kit.Get("/orders/1").Contains(`"refunded":true`)
	if lamps, chairs := stock(kit, "lamp"), stock(kit, "chair"); lamps != 20 || chairs != 5 {
		t.Errorf("there are %d lamps and %d chairs, want 20 and 5", lamps, chairs)
	}

	exchange(1, "lamp").Status(http.StatusConflict).Code("order.same_product")
	exchange(1, "teapot").Status(http.StatusConflict).Code("order.refunded")
	exchange(2, "nothing").Status(http.StatusNotFound).Code("product.not_found")
	exchange(3, "lamp").Status(http.StatusNotFound).Code("order.not_found")
	exchange(2, "").Status(http.StatusUnprocessableEntity).Contains("product")
	exchange(2, "no such").Status(http.StatusUnprocessableEntity).Contains("product") // no key of a lock has a space
	kit.Post("/orders", order("lamp", 20)).Status(http.StatusCreated)
	exchange(2, "lamp").Status(http.StatusConflict).Code("product.sold_out")
	kit.Get("/orders/2").Contains(`"refunded":false`)
}

// Exchanges in opposite directions need the same two locks. They end all the same, and
// nothing is lost between them.
func TestOppositeExchangesDoNotWaitForEachOther(t *testing.T) {
	const n = 10
	kit := open(t, "lock.wait=1m", "picking.time=1ms")
	admin := kit.App("admin")
	admin.Post("/restocks", order("chair", 2*n)).Status(http.StatusOK) // enough for all orders and all exchanges at once
	var all sync.WaitGroup
	for range n {
		for product, other := range map[string]string{"lamp": "chair", "chair": "lamp"} {
			all.Go(func() {
				var o shop.Order
				kit.Post("/orders", order(product, 1)).Status(http.StatusCreated).JSON(&o)
				admin.Post("/exchanges", map[string]any{"order": o.ID, "product": other}).Status(http.StatusOK)
			})
		}
	}
	all.Wait()
	if lamps, chairs := stock(kit, "lamp"), stock(kit, "chair"); lamps != 20-n || chairs != 8+n {
		t.Errorf("there are %d lamps and %d chairs, want %d and %d", lamps, chairs, 20-n, 8+n)
	}
}

// The first tick of the hour is used as soon as the shop starts.
func TestLowStockIsReported(t *testing.T) {
	kit := open(t)
	kit.Log.Expect("stock low", "product", "teapot", "stock", int64(3))
}

// No event announces an order that stays in its work, so the leader has to look.
func TestProductThatIsLockedForLongIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := open(t, "picking.time=30s", "lock.wait=1m", "apps.web.timeout=0s")
		var orders sync.WaitGroup
		defer orders.Wait()
		for range 2 { // the second one waits for the first
			orders.Go(func() { kit.Post("/orders", order("lamp", 1)).Status(http.StatusCreated) })
		}
		kit.Lock.AwaitWaiters("product:lamp", 1)
		time.Sleep(9 * time.Second)
		kit.Log.Never("product locked for long")
		time.Sleep(20 * time.Second)
		kit.Log.Expect("product locked for long", "key", "product:lamp", "waiters", 1)
		if n := len(kit.Log.Records("product locked for long")); n != 1 {
			t.Errorf("it is reported %d times", n)
		}
	})
}

func TestRestockAddsToTheStock(t *testing.T) {
	kit := open(t)
	admin := kit.App("admin")
	admin.Post("/restocks", order("lamp", 5)).Status(http.StatusOK).Contains(`"stock":25`)
	admin.Post("/restocks", order("kettle", 2)).Status(http.StatusOK).Contains(`"stock":2`)
	kit.Post("/orders", order("kettle", 2)).Status(http.StatusCreated)
	kit.Post("/orders", order("kettle", 1)).Status(http.StatusConflict).Code("product.sold_out")
}

// The command works in a process of its own, on the database of the shop. A wrong
// command line changes nothing.
func TestRestockFromAShellAddsToTheStock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	kit := openAt(t, file)
	restock := func(words ...string) (status int) {
		return boot.Main(t.Context(), boot.Process{
			Name: "multi", Set: []string{"database.url=sqlite://" + file}, Command: "restock", Words: words,
		}, program())
	}
	if status := restock("lamp", "5"); status != 0 || stock(kit, "lamp") != 25 {
		t.Errorf("exit status %d, a stock of %d, want 0 and 25", status, stock(kit, "lamp"))
	}
	for _, wrong := range [][]string{nil, {"lamp"}, {"lamp", "many"}, {"lamp", "0"}, {"a/b", "1"}, {"lamp", "1", "2"}} {
		if status := restock(wrong...); status != 1 || stock(kit, "lamp") != 25 {
			t.Errorf("%q: exit status %d, a stock of %d, want 1 and 25", wrong, status, stock(kit, "lamp"))
		}
	}
}

// A restock whose lease is over, and which a later holder has overtaken, writes
// nothing at all.
func TestStaleRestockAddsNoProduct(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	kit := openAt(t, file)
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO mega_fences (lock_key, slot, fence) VALUES ('product:kettle', -1, ?)", int64(1)<<52); err != nil {
		t.Fatal(err)
	}
	kit.App("admin").Post("/restocks", order("kettle", 2)).Status(http.StatusConflict).Code("lock.stale")
	if left := stock(kit, "kettle"); left != -1 {
		t.Errorf("there is a kettle, with a stock of %d", left)
	}
}

// The commit of a holder whose lease has ended may still be under way when the next
// one has the lock.
func TestAnOrderWaitsForTheCommitOfAnEarlierHolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	kit := openAt(t, file)
	db, err := sql.Open("sqlite", file+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	earlier, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = earlier.Rollback() }() // has no effect after a commit
	if _, err := earlier.ExecContext(t.Context(), "UPDATE products SET stock = 1 WHERE name = 'lamp'"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan *megatest.Response, 1)
	go func() { answered <- kit.Post("/orders", order("lamp", 2)) }()
	kit.Lock.AwaitHolder("product:lamp")
	select {
	case a := <-answered:
		t.Fatalf("the order did not wait: %d %s", a.Recorded.Code, a.Body())
	case <-time.After(50 * time.Millisecond): // an order that does not wait reads the old stock by then
	}
	if err := earlier.Commit(); err != nil {
		t.Fatal(err)
	}
	(<-answered).Status(http.StatusConflict).Code("product.sold_out")
}

func TestInvalidOrdersAreRefused(t *testing.T) {
	kit := open(t)
	admin := kit.App("admin")
	kit.Post("/orders", order("lamp", 0)).Status(http.StatusUnprocessableEntity).Code("request.invalid").Contains("quantity")
	kit.Post("/orders", order("", 1)).Status(http.StatusUnprocessableEntity).Contains("product")
	kit.Post("/orders", order("a/b", 1)).Status(http.StatusUnprocessableEntity)
	kit.Post("/orders", order("nothing", 1)).Status(http.StatusNotFound).Code("product.not_found")
	kit.Post("/orders", strings.NewReader("{"), "Content-Type: application/json").Status(http.StatusBadRequest).Code("request.bad_body")
	kit.Get("/orders/none").Status(http.StatusNotFound).Code("order.not_found")
	admin.Post("/refunds", map[string]int64{"order": 99}).Status(http.StatusNotFound).Code("order.not_found")
	admin.Post("/refunds", map[string]int64{}).Status(http.StatusUnprocessableEntity)
	admin.Post("/locks/release", map[string]string{"key": "product:lamp"}).Status(http.StatusUnprocessableEntity).Contains("reason")
	admin.Post("/orders", order("lamp", 1)).Status(http.StatusNotFound) // the other app's
}

// The form is shown again with the typed values.
func TestErrorsAreBesideTheirFields(t *testing.T) {
	kit := open(t)
	send := func(app, path, form string) *megatest.Response {
		return kit.App(app).Post(path, strings.NewReader(form), "Content-Type: application/x-www-form-urlencoded", "Accept: text/html").Status(http.StatusUnprocessableEntity)
	}
	send("web", "/orders", "product=lamp&quantity=1e9").Contains(`value="1e9" required aria-invalid="true"`).Contains(`role="alert">Quantity must be a whole number</p>`)
	send("web", "/orders", "product=lamp&quantity=0").Contains(`value="0" required aria-invalid="true"`)
	send("web", "/orders", "product=a/b&quantity=0").Contains("request.invalid")
	send("web", "/orders", "product=none&quantity=0").Contains("request.invalid")
	send("admin", "/restocks", "product=a/b&quantity=0").Contains(`value="a/b"`).Contains(`id="product-error">Product must be`).Contains(`value="0"`).Contains(`id="quantity-error">Quantity must be 1 to 1000000<`)
}

// A refused order counts no unit, and while the limit is paused nothing is sold.
func TestOrdersAreLimitedToWhatIsPacked(t *testing.T) {
	kit := open(t)
	kit.Post("/orders", order("lamp", 1)).Status(http.StatusCreated)
	kit.Post("/orders", order("lamp", 100)).Status(http.StatusConflict).Code("product.sold_out")
	s, err := kit.Limits().Inspect(t.Context(), "packing")
	if err != nil || len(s.Rates) != 1 || s.Rates[0].N != 300 || s.Rates[0].Used != 1 {
		t.Errorf("the limit is %+v, %v, want 1 order of 300", s, err)
	}
	if err := kit.Limits().Pause(t.Context(), "packing", time.Hour, "stocktaking"); err != nil {
		t.Fatal(err)
	}
	kit.Post("/orders", order("lamp", 1)).Status(http.StatusTooManyRequests).Code("limit.limited")
	if left := stock(kit, "lamp"); left != 19 {
		t.Errorf("there are %d lamps, want 19", left)
	}
}

// A kit counts in memory, which has no outage. The locks are elsewhere, and exclude
// also while nobody counts.
func TestOrdersGoOnWithoutTheirLimit(t *testing.T) {
	counters := redistest.Start(t, redistest.Options{})
	running, err := boot.Start(t.Context(), boot.Process{Name: "multi", Set: []string{
		"database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db"),
		"lock.driver=memory", "limit.cache=limits", "cache.limits.url=" + counters.URL(),
		"apps.web.addr=127.0.0.1:0", "apps.admin.addr=127.0.0.1:0", "ops.addr=127.0.0.1:0",
	}}, program())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Stop() }()
	web, _ := running.Handler("web")
	order := func() {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"product":"lamp","quantity":1}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		web.ServeHTTP(w, r)
		if w.Code != http.StatusCreated {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	order()
	before := running.Limits().Stats()
	if err := counters.Kill(); err != nil {
		t.Fatal(err)
	}
	order()
	if after := running.Limits().Stats(); after.Driver != "redis" || after.Degraded != before.Degraded+1 {
		t.Errorf("the limits are %+v, and were %+v", after, before)
	}
}

// The two apps do not know of each other. That an order and a refund of one
// product never work at once is the key of their lock.
func TestOrderAndRefundExcludeEachOther(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	openAt(t, file).Post("/orders", order("lamp", 2)).Status(http.StatusCreated) // order 1
	kit := openAt(t, file, "lock.wait=20ms", "picking.time=10s")
	admin := kit.App("admin")
	answered := make(chan *megatest.Response)
	go func() { answered <- kit.Post("/orders", order("lamp", 1)) }()
	kit.Lock.AwaitHolder("product:lamp")

	admin.Post("/refunds", map[string]int{"order": 1}).Status(http.StatusConflict).Code("lock.not_acquired")
	admin.Post("/restocks", order("lamp", 1)).Status(http.StatusConflict).Code("lock.not_acquired")
	admin.Get("/locks").Status(http.StatusOK).Contains("product:lamp").Contains(`"app":"web"`).Contains(`"label":"order"`)

	admin.Post("/locks/release", map[string]any{"key": "product:lamp", "fence": 1, "reason": "an old page"}).Status(http.StatusOK).Contains(`"released":0`)
	admin.Post("/locks/release", map[string]string{"key": "product:lamp", "reason": "stuck"}).Status(http.StatusOK).Contains(`"released":1`)
	(<-answered).Status(http.StatusConflict).Code("lock.lost")
	kit.Log.Expect("lock released by force", "key", "product:lamp", "reason", "stuck")
	if left := stock(kit, "lamp"); left != 18 {
		t.Errorf("an order that lost its lock left %d of 18", left)
	}
}

// The holder of a lock with a long queue stays in sight, beside its button.
func TestPageShowsTheFirstWaitersOfALongQueue(t *testing.T) {
	const waiters = 40
	kit := open(t, "picking.time=1m", "lock.wait=1m")
	admin := kit.App("admin")
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { kit.Post("/orders", order("lamp", 1)) })
	kit.Lock.AwaitHolder("product:lamp")
	for range waiters {
		all.Go(func() { admin.Post("/restocks", order("lamp", 1)) })
	}
	kit.Lock.AwaitWaiters("product:lamp", waiters)
	defer admin.Post("/locks/release", map[string]string{"key": "product:lamp", "reason": "the end of the test"})
	page := admin.Get("/", "Accept: text/html").Status(http.StatusOK).Contains("40 in all")
	if n := strings.Count(page.Body(), "restock (pid"); n != 5 {
		t.Errorf("the page shows %d waiters, want the first 5", n)
	}
}

// Orders, refunds and restocks of one product at once leave what they should:
// each reads the stock, works and writes it back.
func TestStockAddsUp(t *testing.T) {
	const n = 20
	kit := open(t, "lock.wait=1m", "picking.time=1ms")
	admin := kit.App("admin")
	admin.Post("/restocks", order("chair", n)).Status(http.StatusOK) // 8 and n

	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			var o shop.Order
			kit.Post("/orders", order("chair", 1)).Status(http.StatusCreated).JSON(&o)
			admin.Post("/refunds", map[string]int64{"order": o.ID}).Status(http.StatusOK)
		})
		all.Go(func() { admin.Post("/restocks", order("chair", 1)).Status(http.StatusOK) })
	}
	all.Wait()
	if left, want := stock(kit, "chair"), int64(8+n+n); left != want {
		t.Errorf("the stock is %d, want %d", left, want)
	}
}

// What is done in one app is on the page of the other at once: the page listens
// to a stream, and the stream to the bus.
func TestWhatOneAppDoesReachesThePageOfTheOther(t *testing.T) {
	kit := open(t)
	admin := kit.App("admin")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ofAdmin, ofWeb := watch(ctx, t, admin), watch(ctx, t, kit.App("web"))

	kit.Post("/orders", order("lamp", 2)).Status(http.StatusCreated)
	ofAdmin.awaits(t, `"product":"lamp","quantity":2,"refunded":false`)
	admin.Post("/refunds", map[string]int64{"order": 1}).Status(http.StatusOK)
	ofWeb.awaits(t, `"product":"lamp","quantity":2,"refunded":true`)
	admin.Post("/restocks", order("lamp", 5)).Status(http.StatusOK)
	ofWeb.awaits(t, `"product":"lamp","stock":25`)
}

func TestLocksAreOnTheAdminsPageAtOnce(t *testing.T) {
	kit := open(t, "picking.time=10s")
	admin := kit.App("admin")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	locks := watch(ctx, t, admin)
	var ordering sync.WaitGroup
	ordering.Go(func() { kit.Post("/orders", order("lamp", 1)).Status(http.StatusConflict) })
	defer ordering.Wait()
	locks.awaits(t, "event: locks\ndata: 1\n")
	admin.Get("/", "Accept: text/html").Contains("web: order").Contains("Release")
	admin.Post("/locks/release", map[string]string{"key": "product:lamp", "reason": "test"}).Status(http.StatusOK)
	locks.awaits(t, "event: locks\ndata: 0\n")
}

// watch opens the stream of an app's page, and returns when it is subscribed.
func watch(ctx context.Context, t *testing.T, app megatest.Client) *page {
	t.Helper()
	p := &page{ResponseRecorder: httptest.NewRecorder(), flushed: make(chan string, 1000)}
	ctx, leave := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { app.Serve(p, app.Request(http.MethodGet, "/live", nil).WithContext(ctx)) })
	t.Cleanup(watching.Wait)
	t.Cleanup(leave)
	p.awaits(t, "event: ready")
	return p
}

// page is a browser that reads a stream.
type page struct {
	*httptest.ResponseRecorder
	flushed chan string
}

func (p *page) Write(b []byte) (int, error) {
	p.flushed <- string(b)
	return len(b), nil
}

func (p *page) Flush() { p.flushed <- "" }

func (p *page) SetWriteDeadline(time.Time) error { return nil }

// awaits reads the stream until text has arrived.
func (p *page) awaits(t *testing.T, text string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for got := ""; !strings.Contains(got, text); {
		select {
		case part := <-p.flushed:
			got += part
		case <-late:
			t.Fatalf("the stream has no %s:\n%s", text, got)
		}
	}
}

func TestPagesShowAndDo(t *testing.T) {
	const page = "Accept: text/html"
	kit := open(t)
	admin := kit.App("admin")
	kit.Get("/", page).Status(http.StatusOK).Contains("<h1>Products</h1>").Contains("teapot")
	kit.Post("/orders", url.Values{"product": {"lamp"}, "quantity": {"2"}}, page).Status(http.StatusSeeOther).Header("Location", "/?ordered=1")
	kit.Get("/?ordered=1", page).Contains("Your order has the number 1")
	kit.Post("/orders", url.Values{"product": {"lamp"}, "quantity": {"2000"}}, page).Status(http.StatusConflict).Contains("There is not enough of it")

	admin.Get("/", page).Status(http.StatusOK).Contains("Refund").Contains("No lock is held").Contains("memory")
	admin.Post("/exchanges", url.Values{"order": {"1"}, "product": {"chair"}}, page).Status(http.StatusSeeOther).Header("Location", "/?done=exchanged")
	admin.Post("/refunds", url.Values{"order": {"2"}}, page).Status(http.StatusSeeOther)
	admin.Get("/", page).Contains("refunded")
	for name, page := range map[string]string{"web": kit.Get("/?ordered=call+us", page).Body(), "admin": admin.Get("/?done=call+us", page).Body()} {
		if strings.Contains(page, "call us") {
			t.Errorf("%s shows the text of a link as its own:\n%s", name, page)
		}
	}
	admin.Post("/locks/release", url.Values{"key": {"product:lamp"}, "reason": {"test"}}, page).Status(http.StatusSeeOther).Header("Location", "/?done=over")
	admin.Get("/?done=over", page).Contains("Nothing was released")
	admin.Post("/locks/release", url.Values{"key": {"product:lamp"}, "reason": {" "}}, page).Status(http.StatusUnprocessableEntity)
	admin.Get("/style.css").Status(http.StatusOK)
	admin.Get("/live.js").Status(http.StatusOK).Header("Content-Type", "text/javascript; charset=utf-8")
	kit.Get("/", page).Contains(`<a href="http://localhost:8082/">Admin</a>`)
	admin.Get("/", page).Contains(`<a href="http://127.0.0.1:8081/">Shop</a>`)
}

// Addresses of an app have its prefix. The kit asks the app itself, which does not see
// it.
func TestAnAppMayHaveAPrefix(t *testing.T) {
	kit := open(t, "apps.web.prefix=/shop", "apps.admin.prefix=/office")
	const page = "Accept: text/html"
	kit.Post("/orders", order("lamp", 1)).Status(http.StatusCreated).Header("Location", "/shop/orders/1")
	for app, prefix := range map[string]string{"web": "/shop/", "admin": "/office/"} {
		for _, path := range []string{"/", "/nowhere"} {
			body := kit.App(app).Get(path, page).Body()
			for _, m := range regexp.MustCompile(`(?:href|src|action|data-stream)="(/[^"]*)"`).FindAllStringSubmatch(body, -1) {
				if !strings.HasPrefix(m[1], prefix) {
					t.Errorf("%s%s has the address %s", app, path, m[0])
				}
			}
		}
	}
}
