package megactx_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/ctx/locale"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
	"github.com/megaframework/mega/internal/suite"
)

// nowhere takes a log, which is made in full.
type nowhere struct{}

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// leaky is an app whose handlers leave their Ctx to goroutines that go on
// using it.
type leaky struct {
	t       *testing.T
	leaked  sync.WaitGroup
	refused atomic.Int64 // answers after the end
}

func (l *leaky) answer(c *megactx.Ctx) error {
	id, q := c.Param("id"), c.Query("q")
	var input struct {
		Name string `json:"name"`
	}
	if err := c.Bind(&input); err != nil {
		return err
	}
	l.leaked.Go(func() { l.use(c, id, q) })
	l.leaked.Go(func() {
		<-c.Done()
		l.use(c, id, q)
		l.useUp(c)
	})
	if id[len(id)-1] == '3' {
		return errors.New("no")
	}
	return c.JSON(200, map[string]string{"id": id, "q": q, "name": input.Name})
}

// use does what may be done at any time, also beside the handler.
func (l *leaky) use(c *megactx.Ctx, id, q string) {
	if c.Param("id") != id || c.Query("q") != q {
		l.t.Errorf("the Ctx of %s %s is that of %s %s", id, q, c.Param("id"), c.Query("q"))
	}
	c.Log.Info("leaked", "id", id)
	bounded, cancel := c.WithTimeout(time.Minute)
	defer cancel()
	_, _ = bounded.Value(word{}), bounded.Err()
	if found, ok := megactx.From(bounded); !ok || found.Param("id") != id {
		l.t.Error("the Ctx is not found")
	}
	detached := c.Detach()
	if err := detached.Lock.With("leak:"+id, func(c *megactx.Ctx) error { return c.Err() }); err != nil {
		l.t.Errorf("a lock on the detached Ctx: %v", err)
	}
	_ = c.Lock.With("leak:"+q, func(*megactx.Ctx) error { return nil }) // ends with c
	_, _ = c.Lease()
	if got := c.T("hello", "name", id); got != "Hello, "+id+"." || c.Locale() != "en" || c.WantsJSON() != true {
		l.t.Errorf("it says %s in %s", got, c.Locale())
	}
	_, _ = c.Deadline()
	_ = c.Request().Header.Get("Accept")
}

// useUp answers, when that must no longer have an effect.
func (l *leaky) useUp(c *megactx.Ctx) {
	w := c.Writer()
	w.Header().Set("X-Leaked", "yes")
	w.WriteHeader(500)
	_, write := w.Write([]byte("leaked"))
	_, copied := io.Copy(w, strings.NewReader("leaked"))
	control := http.NewResponseController(w)
	_, _, hijack := control.Hijack()
	_, read := c.Request().Body.Read(make([]byte, 1))
	if read == nil {
		l.t.Error("the body is read after the end")
	}
	for name, err := range map[string]error{
		"Write": write, "Copy": copied, "Flush": control.Flush(), "deadline": control.SetWriteDeadline(time.Now()),
		"read deadline": control.SetReadDeadline(time.Now()), "full duplex": control.EnableFullDuplex(), "Hijack": hijack,
		"Bind": c.Bind(&struct{}{}), "JSON": c.JSON(500, "leaked"), "Text": c.Text(500, "leaked"), "Redirect": c.Redirect(302, "/leaked"), "HTML": c.HTML(500, "page", "leaked"),
	} {
		if !errors.Is(err, megactx.ErrHandlerReturned) {
			l.t.Errorf("%s after the handler has returned: %v", name, err)
		}
		l.refused.Add(1)
	}
	if err := c.SSE(func(*megactx.Stream) error { l.t.Error("a stream after the end"); return nil }); err == nil {
		l.t.Error("a stream could begin after the end")
	}
	c.Go("late", func(c *megactx.Ctx) error { return c.Err() })
}

func TestACtxThatLeaksIsHarmless(t *testing.T) {
	l := &leaky{t: t}
	locker, _ := newLocker(t)
	locales, err := locale.Parse([]string{"en"}, texts)
	if err != nil {
		t.Fatal(err)
	}
	views, err := request.ParseViews(files("page.html", `{{t "hello" "name" .}}`))
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	h := &request.Host{
		Log: slog.New(slog.NewJSONHandler(nowhere{}, nil)), Locker: locker, Locales: locales, Views: views,
		Served: func(request.Finished) { served.Add(1) },
	}
	if err := h.SetLimits(request.Limits{Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	router := router.New(h)
	router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outer, _ := megactx.From(r.Context())
			l.leaked.Go(func() {
				<-outer.Done()
				l.useUp(outer)
			})
			next.ServeHTTP(w, r)
		})
	})
	router.Post("/things/{id}", l.answer)
	router.Get("/things/{id}", l.answer)
	server := httptest.NewServer(router.Handler())
	defer server.Close()
	server.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 8

	n := suite.Scaled(20_000)
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for i := client; i < n; i += 8 {
				askLeaky(t, server, i)
			}
		})
	}
	clients.Wait()
	l.leaked.Wait()
	if err := h.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := served.Load(); got != int64(n) {
		t.Errorf("%d requests were counted of %d", got, n)
	}
	if l.refused.Load() == 0 || len(h.Active()) != 0 || locker.Stats().Active != 0 {
		t.Errorf("%d answers refused, %d requests and %d leases are left", l.refused.Load(), len(h.Active()), locker.Stats().Active)
	}
}

// askLeaky sends one request and looks for what belongs to another.
func askLeaky(t *testing.T, server *httptest.Server, i int) {
	t.Helper()
	method, body, name := "GET", "", ""
	if i%2 == 0 {
		name = strconv.Itoa(i)
		method, body = "POST", `{"name":"`+name+`"}`
	}
	r, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("%s/things/%d?q=%d", server.URL, i, i+1), strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	if body == "" {
		r.Header.Set("Accept", "application/json")
		r.Header.Del("Content-Type")
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	want := fmt.Sprintf(`{"id":"%d","name":"%s","q":"%d"}`, i, name, i+1)
	if i%10 == 3 {
		want = `"code":"internal"`
	}
	if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "leaked") || answer.Header.Get("X-Leaked") != "" {
		t.Errorf("request %d: got %d %s, %v", i, answer.StatusCode, text, err)
	}
}
