package guide_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/lock"
)

// What 03-context.md shows.

type Order struct {
	ID       string `json:"id"`
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
	paid     chan struct{}
}

type NewOrder struct {
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
}

func (o *NewOrder) Validate() error {
	wrong := mega.FieldErrors{}
	if o.Product == "" {
		wrong["product"] = "is missing"
	}
	if o.Quantity < 1 {
		wrong["quantity"] = "must be at least 1"
	}
	return wrong.Or()
}

type NewPriceList struct {
	Supplier string `form:"supplier"`
}

func (l *NewPriceList) Validate(ctx *mega.Ctx) error {
	wrong := mega.FieldErrors{}
	if l.Supplier == "" {
		wrong["supplier"] = "is missing"
	}
	if parts := ctx.Request().MultipartForm; parts == nil || len(parts.File["prices"]) == 0 {
		wrong["prices"] = "is missing"
	}
	return wrong.Or()
}

type Shop struct {
	orders map[string]*Order
	mails  []string
}

func (s *Shop) Routes(r mega.Router) {
	r.Get("/orders/{id}", s.Show)
	r.Post("/orders", s.Create)
	r.Route("/admin", func(r mega.Router) {
		r.Use(staffOnly) // for the routes of this group
		r.Delete("/orders/{id}", s.Cancel)
	})
	r.Handle("/old/*", mega.WrapHandler(http.HandlerFunc(legacy)))
}

func (s *Shop) Show(ctx *mega.Ctx) error {
	order, ok := s.orders[ctx.Param("id")]
	if !ok {
		return mega.Error(http.StatusNotFound, "order.unknown", "There is no such order.")
	}
	if ctx.WantsJSON() {
		return ctx.JSON(http.StatusOK, order)
	}
	return ctx.HTML(http.StatusOK, "order", order)
}

func (s *Shop) Create(ctx *mega.Ctx) error {
	var input NewOrder
	if err := ctx.Bind(&input); err != nil {
		return err
	}
	order := &Order{ID: "7", Product: input.Product, Quantity: input.Quantity}
	err := ctx.Lock.With("product:"+input.Product, func(ctx *mega.Ctx) error { // this ctx ends if the lock is lost
		return s.save(ctx, order)
	})
	if err != nil {
		return err
	}
	ctx.Go("confirm", func(ctx *mega.Ctx) error { // this ctx outlives the request
		return s.mail(ctx, order)
	})
	return ctx.JSON(http.StatusCreated, order)
}

func (s *Shop) Upload(ctx *mega.Ctx) error {
	var input NewPriceList
	if err := ctx.Bind(&input); err != nil {
		return err
	}
	prices, _, err := ctx.Request().FormFile("prices")
	if err != nil {
		return err
	}
	defer prices.Close()
	return s.read(ctx, prices)
}

// read answers with the text of a price list.
func (s *Shop) read(ctx *mega.Ctx, prices io.Reader) error {
	all, err := io.ReadAll(prices)
	if err != nil {
		return err
	}
	return ctx.Text(http.StatusOK, string(all))
}

func (s *Shop) Cancel(ctx *mega.Ctx) error {
	delete(s.orders, ctx.Param("id"))
	return nil // 204
}

func staffOnly(next mega.Handler) mega.Handler {
	return func(ctx *mega.Ctx) error {
		if ctx.Request().Header.Get("Authorization") == "" {
			return mega.Error(http.StatusUnauthorized, "auth.missing", "Who are you?")
		}
		return next(ctx)
	}
}

func legacy(w http.ResponseWriter, r *http.Request) {
	ctx, _ := mega.From(r.Context())
	ctx.Log.Info("still in use")
	w.WriteHeader(http.StatusGone)
}

func (s *Shop) save(ctx context.Context, order *Order) error {
	if ctx.Err() == nil {
		s.orders[order.ID] = order
	}
	return ctx.Err()
}

func (s *Shop) mail(ctx *mega.Ctx, order *Order) error {
	text := ctx.T("order.thanks", "product", order.Product, "count", order.Quantity)
	s.mails = append(s.mails, text)
	return ctx.Err()
}

// Watch streams what becomes of an order.
func (s *Shop) Watch(ctx *mega.Ctx) error {
	order := s.orders[ctx.Param("id")]
	return ctx.SSE(func(stream *mega.Stream) error {
		if err := stream.Send("order", order); err != nil {
			return err
		}
		select {
		case <-order.paid:
			return stream.SendID("2", "paid", order)
		case <-stream.Done(): // the client has left, or the service is shutting down
			return stream.Err()
		}
	})
}

// Report has half a minute for the slow part, whatever the request has.
func (s *Shop) Report(ctx *mega.Ctx) error {
	bounded, cancel := ctx.WithTimeout(30 * time.Second)
	defer cancel()
	return bounded.Lock.With("report", func(ctx *mega.Ctx) error {
		return s.count(ctx)
	})
}

func (s *Shop) count(ctx context.Context) error { return ctx.Err() }

// SetLanguage remembers a choice.
func SetLanguage(ctx *mega.Ctx) error {
	http.SetCookie(ctx.Writer(), &http.Cookie{Name: "lang", Value: ctx.Query("to"), Path: "/", MaxAge: 365 * 24 * 3600})
	return ctx.Redirect(http.StatusSeeOther, "/")
}

var locales fs.FS = fstest.MapFS{
	"locales/ko.yaml": {Data: []byte(`
order:
  thanks: "{product|을/를} {count}개 주문해 주셔서 고맙습니다."
  moved: "‘{product}’{|은/는} {place|으로/로} 옮겼습니다."
`)},
	"locales/en.yaml": {Data: []byte(`
order:
  thanks:
    one: "Thank you for ordering one {product}."
    other: "Thank you for ordering {count} {product}s."
  moved: "{product} has moved to {place}."
`)},
}

func TestCatalogsAgree(t *testing.T) {
	if err := mega.CheckLocales(locales); err != nil {
		t.Fatal(err)
	}
}

// shop is the app of the page, without sockets.
func shop(t *testing.T) (*Shop, *request.Host, http.Handler, *bytes.Buffer) {
	t.Helper()
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	spoken, err := locale.Parse(nil, locales)
	if err != nil {
		t.Fatal(err)
	}
	views, err := request.ParseViews(fstest.MapFS{"order.html": {Data: []byte(
		`<html lang="{{locale}}"><a href="{{url "/orders"}}">{{t "order.thanks" "product" .Product "count" .Quantity}}</a></html>`)}})
	if err != nil {
		t.Fatal(err)
	}
	log := &bytes.Buffer{}
	host := &request.Host{
		App: request.App{Name: "web"}, Locker: locks, Locales: spoken, Views: views, Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	s := &Shop{orders: map[string]*Order{"1": {ID: "1", Product: "의자", Quantity: 2, paid: make(chan struct{})}}}
	r := router.New(host)
	s.Routes(r)
	r.Get("/orders/{id}/events", s.Watch)
	r.Get("/report", s.Report)
	r.Post("/prices", s.Upload)
	r.Post("/language", SetLanguage)
	return s, host, r.Handler(), log
}

func ask(app http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	app.ServeHTTP(w, r)
	return w
}

func TestHandlersOfTheContextPage(t *testing.T) {
	s, host, app, log := shop(t)
	const json, parts = "Content-Type: application/json", "Content-Type: multipart/form-data; boundary=b"
	const supplier = "--b\r\nContent-Disposition: form-data; name=\"supplier\"\r\n\r\nacme\r\n"
	const prices = "--b\r\nContent-Disposition: form-data; name=\"prices\"; filename=\"p.csv\"\r\n\r\nlamp,20\r\n"
	for _, x := range []struct {
		method, target, body string
		headers              []string
		status               int
		says                 string
	}{
		{"GET", "/orders/1", "", []string{"Accept: application/json"}, 200, `{"id":"1","product":"의자","quantity":2}`},
		{"GET", "/orders/1?lang=ko", "", nil, 200, `<html lang="ko"><a href="/orders">의자를 2개 주문해 주셔서 고맙습니다.</a></html>`},
		{"GET", "/orders/9", "", []string{"Accept: application/json"}, 404, `"code":"order.unknown"`},
		{"POST", "/orders", `{"product":"lamp","quantity":1}`, []string{json}, 201, `{"id":"7","product":"lamp","quantity":1}`},
		{"POST", "/orders", `{"quantity":0}`, []string{json}, 422, `"errors":{"product":"is missing","quantity":"must be at least 1"}`},
		{"POST", "/prices", supplier + prices + "--b--\r\n", []string{parts}, 200, "lamp,20"},
		{"POST", "/prices", supplier + "--b--\r\n", []string{parts, "Accept: application/json"}, 422, `"errors":{"prices":"is missing"}`},
		{"DELETE", "/admin/orders/9", "", nil, 401, "auth.missing"},
		{"DELETE", "/admin/orders/9", "", []string{"Authorization: x"}, 204, ""},
		{"GET", "/old/page", "", nil, 410, ""},
		{"GET", "/report", "", nil, 204, ""},
		{"POST", "/language?to=ko", "", nil, 303, ""},
	} {
		w := ask(app, x.method, x.target, x.body, x.headers...)
		if w.Code != x.status || !strings.Contains(w.Body.String(), x.says) {
			t.Errorf("%s %s: got %d %s, want %d %s", x.method, x.target, w.Code, w.Body, x.status, x.says)
		}
	}
	if err := host.Drain(t.Context()); err != nil || len(s.mails) != 1 || s.mails[0] != "Thank you for ordering one lamp." {
		t.Errorf("mailed %q, %v", s.mails, err)
	}
	if !strings.Contains(log.String(), `msg="still in use"`) {
		t.Errorf("the log has %s", log)
	}
	if got := outside(t.Context(), host).WithLocale("ko").T("order.moved", "product", "책", "place", "서울"); got != "‘책’은 서울로 옮겼습니다." {
		t.Errorf("got %s", got)
	}
}

func TestStreamOfTheContextPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, host, app, _ := shop(t)
		time.AfterFunc(20*time.Second, func() { close(s.orders["1"].paid) })
		w := ask(app, "GET", "/orders/1/events", "")
		const data = "data: {\"id\":\"1\",\"product\":\"의자\",\"quantity\":2}\n\n"
		if want := "event: order\n" + data + ": \n\n" + "id: 2\nevent: paid\n" + data; w.Body.String() != want {
			t.Errorf("got %q, want %q", w.Body, want)
		}
		s.orders["1"].paid = make(chan struct{})
		host.EndStreams()
		if w := ask(app, "GET", "/orders/1/events", ""); w.Code != 200 {
			t.Errorf("at the shutdown: got %d", w.Code)
		}
	})
}

func TestLeakedCtxOfTheContextPage(t *testing.T) {
	locks, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	r := router.New(&request.Host{Locker: locks})
	late := make(chan error, 1)
	r.Get("/{id}", func(ctx *mega.Ctx) error {
		go func() {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), mega.ErrHandlerReturned) && ctx.Param("id") == "7" {
				late <- ctx.Text(http.StatusOK, "too late")
			}
		}()
		return nil
	})
	ask(r.Handler(), "GET", "/7", "")
	if err := <-late; !errors.Is(err, mega.ErrHandlerReturned) {
		t.Errorf("got %v", err)
	}
}

// outside returns a Ctx of an app for work outside a request.
func outside(ctx context.Context, h *request.Host) *megactx.Ctx {
	c, _ := megactx.From(h.Context(ctx))
	return c
}
