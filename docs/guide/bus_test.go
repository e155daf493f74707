package guide_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/drivers/nats"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
)

// What 06-bus.md shows.

type Sale struct {
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
}

const Sold = bus.Topic[Sale]("product.sold")

// sell is a handler that tells what it has done.
func sell(ctx *mega.Ctx) error {
	if err := mega.Publish(ctx, Sold, Sale{Product: ctx.Param("id"), Quantity: 1}); err != nil {
		ctx.Log.Error("sale not published", "error", err)
	}
	return ctx.JSON(http.StatusOK, "sold")
}

type Accounts struct {
	mu   sync.Mutex
	sold map[string]int
}

func (a *Accounts) OnSold(ctx *mega.Ctx, s Sale) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sold[s.Product] += s.Quantity
	return nil
}

type StockOf struct {
	Product string `json:"product"`
}

type Stock struct {
	Left int `json:"left"`
}

func (a *Accounts) Stock(ctx *mega.Ctx, q StockOf) (Stock, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Stock{Left: 50 - a.sold[q.Product]}, nil
}

func NewAccounts() *Accounts { return &Accounts{sold: map[string]int{}} }

// accounts is the module of an app that listens.
func accounts() mega.Option {
	return mega.Module(
		mega.Provide(NewAccounts),
		mega.Subscribe(Sold, (*Accounts).OnSold, bus.Group("accounts")),
		mega.Respond("stock.get", (*Accounts).Stock),
	)
}

// left asks another app, wherever it runs.
func left(ctx *mega.Ctx) error {
	stock, err := mega.Call[StockOf, Stock](ctx, "stock.get", StockOf{Product: ctx.Param("id")})
	if err != nil {
		return err // 502 if nobody responds, 504 if it takes too long
	}
	return ctx.JSON(http.StatusOK, stock)
}

// board streams sales until the browser leaves.
func board(ctx *mega.Ctx) error {
	return ctx.SSE(func(stream *mega.Stream) error {
		sub, err := ctx.Bus.Subscribe("product.*", func(ctx *mega.Ctx, m *bus.Msg) error {
			return stream.Send("sale", string(m.Data))
		}, bus.Buffer(100, 1<<20), bus.OnFull(bus.DropOldest))
		if err != nil {
			return err
		}
		<-sub.Done() // it ends with the request
		return nil
	})
}

func newBus(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestHandlersTellAndAskEachOther(t *testing.T) {
	_ = accounts() // a wrong shape of a function would be found at boot
	b := newBus(t)
	a := NewAccounts()
	host := &request.Host{Bus: b}
	told, err := Sold.Subscribe(t.Context(), b, func(ctx context.Context, s Sale) error { return a.OnSold(outside(ctx, host), s) })
	if err != nil {
		t.Fatal(err)
	}
	_, err = bus.Answer(t.Context(), b, "stock.get", func(ctx context.Context, q StockOf) (Stock, error) { return a.Stock(outside(ctx, host), q) })
	if err != nil {
		t.Fatal(err)
	}
	r := router.New(host)
	r.Post("/products/{id}/sell", sell)
	r.Get("/products/{id}/left", left)

	sold := httptest.NewRecorder()
	r.Handler().ServeHTTP(sold, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/products/42/sell", nil))
	if err := told.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := httptest.NewRecorder()
	r.Handler().ServeHTTP(asked, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/products/42/left", nil))
	if sold.Code != http.StatusOK || asked.Body.String() != `{"left":49}` {
		t.Errorf("answered %d, then %q", sold.Code, asked.Body)
	}
}

func TestABoardEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t)
		r := router.New(&request.Host{Bus: b})
		r.Get("/board", board)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		w := httptest.NewRecorder()
		go r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/board", nil))
		synctest.Wait() // until it has subscribed
		if err := Sold.Publish(t.Context(), b, Sale{"42", 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		if n := len(b.Stats().Subs); n != 0 || !strings.Contains(w.Body.String(), "event: sale\n") {
			t.Errorf("%d subscriptions are left, and the browser got %q", n, w.Body)
		}
	})
}

func Example_bus() {
	ctx := context.Background()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Close()

	sub, err := b.Subscribe(ctx, "orders.*.created", func(ctx context.Context, m *bus.Msg) error {
		fmt.Println(m.Subject, string(m.Data))
		return nil
	})
	if err != nil {
		panic(err)
	}
	err = b.Publish(ctx, "orders.eu.created", []byte("42"), bus.Header("Tenant", "acme"), bus.ID("order-42"))
	if err != nil {
		panic(err)
	}
	fmt.Println(sub.Drain(ctx))
	// Output:
	// orders.eu.created 42
	// <nil>
}

// openFleet is how a program without the framework opens the bus on NATS.
func openFleet(ctx context.Context, url string, log *slog.Logger) (*bus.Bus, error) {
	d, err := nats.OpenBus(ctx, nats.Config{URL: url, Name: "reports"}) // nats://localhost:4222
	if err != nil {
		return nil, err
	}
	return bus.New(d, bus.Config{Observer: busWatch{log}, Inject: megactx.Inject, Extract: megactx.Extract})
}

type busWatch struct{ log *slog.Logger }

func (w busWatch) Observe(e bus.Event) {
	switch e := e.(type) {
	case bus.HandlerFailed:
		w.log.Error("handler failed", "subscription", e.Name, "subject", e.Msg.Subject, "err", e.Err)
	case bus.Dropped:
		w.log.Warn("a subscription is too slow", "subscription", e.Name, "dropped", e.Count)
	case bus.Stuck:
		w.log.Warn("handler stuck", "subscription", e.Name, "at", e.Site, "for", e.For)
	}
}

// stock is a request's outcomes.
func stock(ctx context.Context, b *bus.Bus, product string) (int, error) {
	answer, err := bus.Call[StockOf, Stock](ctx, b, "stock.get", StockOf{Product: product})
	if remote, ok := errors.AsType[*bus.RemoteError](err); ok {
		return 0, fmt.Errorf("the shop says %s: %s", remote.Reason, remote.Message)
	}
	switch {
	case errors.Is(err, bus.ErrNoResponders): // nobody responds: at once
	case errors.Is(err, bus.ErrTimeout): // no answer in time; whether it was handled is not known
	case errors.Is(err, bus.ErrDisconnected): // the server cannot be reached; asking again may help
	case errors.Is(err, bus.ErrOverloaded): // there was no room for it
	}
	return answer.Left, err
}

func TestOutcomesOfARequestDiffer(t *testing.T) {
	b := newBus(t)
	if _, err := stock(t.Context(), b, "42"); !errors.Is(err, bus.ErrNoResponders) {
		t.Errorf("nobody there: %v", err)
	}
	_, err := bus.Answer(t.Context(), b, "stock.get", func(_ context.Context, q StockOf) (Stock, error) {
		if q.Product == "" {
			return Stock{}, &bus.RemoteError{Reason: "stock.unknown", Message: "there is no such product"}
		}
		return Stock{Left: 7}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := stock(t.Context(), b, "42"); n != 7 || err != nil {
		t.Errorf("asked for 42: %d, %v", n, err)
	}
	if _, err := stock(t.Context(), b, ""); err == nil || err.Error() != "the shop says stock.unknown: there is no such product" {
		t.Errorf("asked for nothing: %v", err)
	}
}

// answerVersion makes a process answer with its version, beside all others.
func answerVersion(ctx context.Context, b *bus.Bus, version string) (*bus.Sub, error) {
	return b.Respond(ctx, "fleet.version", func(context.Context, *bus.Msg) ([]byte, error) {
		return []byte(version), nil
	}, bus.Group("")) // every one answers
}

// versions asks every process of a fleet which version it is.
func versions(ctx context.Context, b *bus.Bus) (all []string, _ error) {
	for m, err := range b.RequestMany(ctx, "fleet.version", nil, bus.Stall(200*time.Millisecond)) {
		if err != nil {
			return all, err
		}
		all = append(all, string(m.Data))
	}
	return all, nil
}

func TestRequestManyReachesAllRespondersWithoutAGroup(t *testing.T) {
	b := newBus(t)
	for _, v := range []string{"1.0", "1.1"} {
		if _, err := answerVersion(t.Context(), b, v); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := versions(t.Context(), b); len(all) != 2 || err != nil {
		t.Errorf("got %q, %v", all, err)
	}
}

// prices keeps a copy of what others own.
type prices struct {
	fetch func(ctx context.Context) error
	apply bus.Handler
}

func (p *prices) watch(ctx context.Context, b *bus.Bus) (*bus.Sub, error) {
	sub, err := b.Subscribe(ctx, "price.*", p.apply, bus.OnGap(func(ctx context.Context, missed int) error {
		return p.fetch(ctx) // messages were lost here; missed is -1 if their number is unknown
	}))
	if err != nil {
		return nil, err
	}
	return sub, p.fetch(ctx)
}

func TestACopyFetchesWhereMessagesWereLost(t *testing.T) {
	b := newBus(t)
	price := map[string]int{}
	copied := map[string]int{}
	started, goOn := make(chan struct{}, 1), make(chan struct{})
	var mu sync.Mutex // guards price and copied
	p := &prices{
		fetch: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(copied, price)
			return nil
		},
		apply: func(_ context.Context, m *bus.Msg) error {
			select {
			case started <- struct{}{}:
			default:
			}
			<-goOn
			mu.Lock()
			defer mu.Unlock()
			now, err := strconv.Atoi(string(m.Data))
			copied[m.Subject] = now
			return err
		},
	}
	sub, err := p.watch(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	rise := func() {
		mu.Lock()
		price["price.42"]++
		now := strconv.Itoa(price["price.42"])
		mu.Unlock()
		if err := b.Publish(t.Context(), "price.42", []byte(now)); err != nil {
			t.Fatal(err)
		}
	}
	rise()
	<-started
	for range bus.DefaultBuffer + 1 { // one more than there is room for
		rise()
	}
	close(goOn)
	if err := sub.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(copied, price) {
		t.Errorf("the copy is %v, want %v", copied, price)
	}
}

// byAccount handles 16 accounts at once and each account's messages in order.
func byAccount(ctx context.Context, b *bus.Bus, post bus.Handler) (*bus.Sub, error) {
	return b.Subscribe(ctx, "account.*.posted", post,
		bus.Group("ledger"), bus.Concurrency(16), bus.OrderBy(func(m *bus.Msg) string { return m.Subject }))
}

func TestOrderByKeepsTheOrderOfAKey(t *testing.T) {
	b := newBus(t)
	var mu sync.Mutex
	got := map[string]string{}
	sub, err := byAccount(t.Context(), b, func(_ context.Context, m *bus.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		got[m.Subject] += string(m.Data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := b.Publish(t.Context(), fmt.Sprintf("account.%d.posted", i%4), []byte{'a' + byte(i/4)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sub.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if s := got[fmt.Sprintf("account.%d.posted", i)]; s != "abcdefghij" {
			t.Errorf("account %d: %q", i, s)
		}
	}
}

func TestMessagesAsOtherNATSClientsSeeThem(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	b, err := openFleet(t.Context(), s.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Request(t.Context(), "stock.get", nil); !errors.Is(err, bus.ErrNoResponders) {
		t.Errorf("nobody there: %v", err)
	}

	foreign, err := natsgo.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	tap, err := foreign.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(foreign.Flush(), b.Publish(t.Context(), "product.sold", []byte("42"))); err != nil {
		t.Fatal(err)
	}
	if m, err := tap.NextMsg(5 * time.Second); err != nil || m.Subject != "ev.product.sold" {
		t.Errorf("the tap sees %v, %v", m, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Request(ctx, "stock.get", nil); !errors.Is(err, bus.ErrTimeout) {
		t.Errorf("with a tap on everything: %v", err)
	}
}

func TestForeignersTakePart(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	b, err := openFleet(t.Context(), s.URL(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	foreign, err := natsgo.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	heard := make(chan string, 1)
	_, err = b.Subscribe(t.Context(), "product.*", func(_ context.Context, m *bus.Msg) error {
		heard <- m.Subject
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Respond(t.Context(), "stock.get", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("7"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Publish("ev.product.sold", []byte("42")); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != "product.sold" {
		t.Errorf("heard %q", got)
	}
	if m, err := foreign.Request("rpc.stock.get", nil, 5*time.Second); err != nil || string(m.Data) != "7" {
		t.Errorf("the foreigner's request: %v, %v", m, err)
	}
}

func TestRawModeRefusesForeignSubjects(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	d, err := nats.OpenBus(t.Context(), nats.Config{URL: s.URL(), Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bus.New(d, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, pattern := range []string{">", "*.sold", "rpc.stock.get", "rpc.>"} {
		if _, err := b.Subscribe(t.Context(), pattern, func(context.Context, *bus.Msg) error { return nil }); !errors.Is(err, bus.ErrBadSubject) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
