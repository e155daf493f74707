package boot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/failure"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	"github.com/megaframework/mega/internal/testkit/output"
)

type sold struct {
	Product string `json:"product"`
}

// ledger is a value that the program provides.
type ledger struct{ seen chan string }

func (l *ledger) OnSold(c *megactx.Ctx, s sold) error {
	l.seen <- c.App.Name + ": " + s.Product
	return nil
}

func (l *ledger) Stock(_ *megactx.Ctx, s sold) (map[string]int, error) {
	if s.Product == "nothing" {
		return nil, megactx.Error(http.StatusNotFound, "product.not_found", "There is no such product.")
	}
	return map[string]int{s.Product: 3}, nil
}

func subscribed(l *ledger, more ...mega.Option) mega.Option {
	return mega.App("web", append(more,
		mega.Provide(func() *ledger { return l }),
		mega.Subscribe(bus.Topic[sold]("product.sold"), (*ledger).OnSold),
		mega.Respond("stock.get", (*ledger).Stock),
	)...)
}

func offline(t *testing.T, environ []string, options ...mega.Option) *boot.Running {
	t.Helper()
	return logging(t, io.Discard, environ, options...)
}

func logging(t *testing.T, log io.Writer, environ []string, options ...mega.Option) *boot.Running {
	t.Helper()
	r, err := boot.Start(t.Context(), boot.Process{
		Name: "test", Environ: append(environ, "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"), Stderr: log,
	}, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return r
}

func TestSubscribersAndRespondersBelongToTheirApp(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	for name, environ := range map[string][]string{"memory": nil, "nats": {"MEGA_NATS_URL=" + server.URL()}} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{make(chan string, 1)}
			r := offline(t, environ, subscribed(l))
			if got := r.Report().Bus.Chosen; got != name {
				t.Fatalf("the bus is on %s", got)
			}
			c, _ := r.Ctx(t.Context(), "web")
			if err := c.Bus.Publish("product.sold", sold{"lamp"}); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-l.seen:
				if got != "web: lamp" {
					t.Errorf("the subscriber saw %q", got)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the subscriber saw nothing")
			}
			stock, err := megactx.Call[sold, map[string]int](c, "stock.get", sold{"lamp"})
			if err != nil || stock["lamp"] != 3 {
				t.Errorf("the answer is %v, %v", stock, err)
			}
			var remote *bus.RemoteError
			if _, err = megactx.Call[sold, map[string]int](c, "stock.get", sold{"nothing"}); !errors.As(err, &remote) || remote.Code() != "product.not_found" {
				t.Errorf("the responder's error came as %v", err)
			}
		})
	}
}

// What was published before the end is handled before the end, while locks
// still work.
func TestMessagesAreHandledBeforeTheProgramEnds(t *testing.T) {
	handled := 0
	slow := func(c *megactx.Ctx, _ sold) error {
		return c.Lock.With("ledger", func(*megactx.Ctx) error {
			time.Sleep(time.Millisecond)
			handled++ // one at a time
			return nil
		})
	}
	r := offline(t, nil, mega.App("web", mega.Subscribe(bus.Topic[sold]("product.sold"), slow)))
	c, _ := r.Ctx(context.Background(), "web")
	const n = 100
	for range n {
		if err := c.Bus.Publish("product.sold", sold{"lamp"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	if handled != n {
		t.Errorf("%d of %d were handled", handled, n)
	}
	if err := c.Bus.Publish("product.sold", sold{"lamp"}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

// A middleware of bus.Use is around the function of the app, and has its log and locks.
func TestAMiddlewareOfASubscriptionHasACtxOfItsApp(t *testing.T) {
	seen := make(chan string, 2)
	observed := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Msg) error {
			c, ok := mega.From(ctx)
			if !ok {
				seen <- "no Ctx"
				return next(ctx, m)
			}
			return c.Lock.With("m", func(c *megactx.Ctx) error {
				seen <- c.App.Name + " " + m.Subject
				return next(c, m)
			})
		}
	}
	r := offline(t, nil, mega.App("web",
		mega.Subscribe(bus.Topic[sold]("product.sold"), func(*megactx.Ctx, sold) error { return nil }, bus.Use(observed)),
		mega.Respond("stock.get", two, bus.Use(observed)),
	))
	c, _ := r.Ctx(t.Context(), "web")
	if err := c.Bus.Publish("product.sold", sold{"lamp"}); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "web product.sold" {
		t.Errorf("around a subscription: %s", got)
	}
	if _, err := c.Bus.Request("stock.get", sold{"lamp"}); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; got != "web stock.get" {
		t.Errorf("around a responder: %s", got)
	}
}

func TestFunctionsForMessagesHaveTheirShape(t *testing.T) {
	const soldAt = bus.Topic[sold]("x")
	for says, o := range map[string]mega.Option{
		"not a *mega.Ctx and":      mega.Subscribe(soldAt, func(sold) error { return nil }),
		"its topic carries a":      mega.Subscribe(soldAt, func(*megactx.Ctx, int) error { return nil }),
		"carries no type of its":   mega.Subscribe[any]("x.*", func(*megactx.Ctx, sold) error { return nil }),
		"does not return an error": mega.Subscribe(soldAt, func(*megactx.Ctx, sold) {}),
		"is not a provided value":  mega.Subscribe(soldAt, func(context.Context, *megactx.Ctx, sold) error { return nil }),
		"the number of lost":       mega.Subscribe(soldAt, func(*megactx.Ctx, sold) error { return nil }, mega.OnGap(func(*megactx.Ctx, string) error { return nil })),
		"mega.OnGap cannot use":    mega.Subscribe(soldAt, func(*megactx.Ctx, sold) error { return nil }, mega.OnGap(func(*megactx.Ctx, int) {})),
		"Nothing provides string":  mega.Subscribe(soldAt, func(*megactx.Ctx, sold) error { return nil }, mega.OnGap(func(string, *megactx.Ctx, int) error { return nil })),
		"an answer and an error":   mega.Respond("x", func(*megactx.Ctx, sold) error { return nil }),
		"not a function":           mega.Respond("x", 7),
		"Nothing provides int":     mega.Subscribe(soldAt, func(int, *megactx.Ctx, *bus.Msg) error { return nil }),
		"bad group \"no":           mega.Respond("x", two, bus.Group("no spaces")),
		"Concurrency is 0":         mega.Subscribe(soldAt, func(*megactx.Ctx, sold) error { return nil }, bus.Concurrency(0)),
		"bad subject":              mega.Subscribe(bus.Topic[sold]("no spaces"), func(*megactx.Ctx, *bus.Msg) error { return nil }),
	} {
		var log strings.Builder
		_, err := boot.Start(t.Context(), boot.Process{Name: "test", Stderr: &log, Environ: []string{"MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"}}, mega.App("web", o))
		var f *boot.Failure
		if !errors.As(err, &f) || !strings.Contains(err.Error(), says) || f.Code != "boot.wrong_shape" && f.Code != "boot.not_provided" {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestScopeIsRequiredOfTheBusWhereAnAppListens(t *testing.T) {
	var log strings.Builder
	start := func(options ...mega.Option) error {
		_, err := boot.Start(t.Context(), boot.Process{
			Name: "test", Stderr: &log, Environ: []string{"MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_CACHE_MAIN_URL=redis://127.0.0.1:1", "MEGA_BOOT_WAIT_FOR=0"},
		}, mega.App("web", append(options, mega.RequireScope(mega.Fleet))...))
		return err
	}
	var f *boot.Failure
	if err := start(mega.Respond("x", two)); !errors.As(err, &f) || f.Code != "bus.scope_too_small" {
		t.Errorf("an app that responds: %v", err)
	}
	if err := start(); !errors.As(err, &f) || f.Code != "lock.driver_unavailable" { // its locks would do, if the server were there
		t.Errorf("an app that does not: %v", err)
	}
}

func two(*megactx.Ctx, sold) (int, error) { return 2, nil }

// prices is a copy that a declared subscription keeps.
type prices struct {
	mu    sync.Mutex // guards the fields below
	now   map[string]int
	store map[string]int
	gaps  []int
	last  context.Context // of a gap
	turn  chan struct{}
}

type priced struct {
	Product string `json:"product"`
	Price   int    `json:"price"`
}

func (p *prices) Apply(_ *megactx.Ctx, e priced) error {
	<-p.turn
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now[e.Product] = e.Price
	return nil
}

func (p *prices) Fetch(c *megactx.Ctx, missed int) error {
	if c.App.Name != "web" {
		return errors.New("the Ctx is not the app's")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gaps, p.last = append(p.gaps, missed), c
	p.now = maps.Clone(p.store)
	return nil
}

func (p *prices) isRight() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Equal(p.now, p.store)
}

// A declared subscription whose policy has ended it comes back with a gap, and
// the copy that it keeps is right (S10, S23).
func TestADeclaredSubscriptionIsMadeAgain(t *testing.T) {
	p := &prices{now: map[string]int{}, store: map[string]int{}, turn: make(chan struct{})}
	r := offline(t, nil, mega.App("web",
		mega.Provide(func() *prices { return p }),
		mega.Subscribe(bus.Topic[priced]("priced"), (*prices).Apply, bus.Buffer(3, 1<<20), bus.OnFull(bus.Terminate), mega.OnGap((*prices).Fetch)),
	))
	c, _ := r.Ctx(t.Context(), "web")
	set := func(i int) {
		p.mu.Lock()
		p.store["lamp"] = i
		p.mu.Unlock()
		if err := c.Bus.Publish("priced", priced{"lamp", i}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		set(i)
	}
	close(p.turn)
	until(t, "the copy is right", p.isRight)
	p.mu.Lock()
	gaps, last := slices.Clone(p.gaps), p.last
	p.mu.Unlock()
	<-last.Done()
	if cause := context.Cause(last); !errors.Is(cause, mega.ErrHandlerReturned) {
		t.Errorf("the Ctx of OnGap ended because of %v", cause)
	}
	if !slices.Equal(gaps, []int{-1}) {
		t.Errorf("OnGap was called with %v, want -1 once", gaps)
	}
	set(100)
	until(t, "the new subscription gets events", p.isRight)
	if subs := c.Bus.Stats().Subs; len(subs) != 1 || subs[0].Handled == 0 {
		t.Errorf("the subscriptions are %+v", subs)
	}
}

// A declared subscription that the server has ended, and refuses for a while, is
// tried again until the server permits it (S23, S27). The copy that it keeps is
// right then (S10).
func TestADeclaredSubscriptionIsMadeAgainAfterRefusals(t *testing.T) {
	server := natstest.Start(t, natstest.Options{Deny: []string{}})
	deny := func(subjects ...string) {
		if err := server.Reload(func(o *natstest.Options) { o.Deny = append([]string{}, subjects...) }); err != nil {
			t.Fatal(err)
		}
	}
	p := &prices{now: map[string]int{}, store: map[string]int{}, turn: make(chan struct{})}
	close(p.turn)
	log := &output.Buffer{}
	r := logging(t, log, []string{"MEGA_NATS_URL=" + server.URL()}, mega.App("web",
		mega.Provide(func() *prices { return p }),
		mega.Subscribe(bus.Topic[priced]("priced"), (*prices).Apply, mega.OnGap((*prices).Fetch)),
	))
	c, _ := r.Ctx(t.Context(), "web")
	set := func(i int) {
		p.mu.Lock()
		p.store["lamp"] = i
		p.mu.Unlock()
		if err := c.Bus.Publish("priced", priced{"lamp", i}); err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	until(t, "the copy is right", p.isRight)
	deny("ev.priced")
	until(t, "it is tried in vain", func() bool { return strings.Contains(log.String(), "subscription not restored") })
	set(2)
	deny()
	until(t, "the copy is right again", p.isRight)
	set(3)
	until(t, "the new subscription gets events", p.isRight)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.gaps, []int{-1}) {
		t.Errorf("OnGap was called with %v, want -1 once", p.gaps)
	}
}

// Messages and subscriptions that the server refuses since a change of permissions
// degrade the process. It stays ready, also with bus.require: the refusal of one
// subject would otherwise take every process of the fleet out of service.
func TestRefusalsOfTheBusDegradeTheProcess(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{Deny: []string{}})
	deny := func(subjects ...string) {
		if err := server.Reload(func(o *natstest.Options) {
			o.Deny, o.DenyPublish = append([]string{}, subjects...), append([]string{}, subjects...)
		}); err != nil {
			t.Fatal(err)
		}
	}
	l := &ledger{make(chan string, 1)}
	r := start(t, boot.Process{ // its Stop reports the refused message, too
		Name: "test", Stderr: io.Discard,
		Environ: []string{"MEGA_NATS_URL=" + server.URL(), "MEGA_BUS_REQUIRE=fleet", "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"},
	}, subscribed(l))
	c, _ := r.Ctx(t.Context(), "web")
	ready := r.Report().Ops + "/readyz"
	eventually(t, ready, http.StatusOK, "refuse", false)
	deny("ev.product.sold")
	const inactive = `subscription boot_test.(*ledger).OnSold is not active: `
	eventually(t, ready, http.StatusOK, inactive, true)
	if err := c.Bus.Publish("product.sold", sold{"lamp"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, ready, http.StatusOK, `bus backend refuses messages: product.sold: `, true)
	if _, body := get(t, ready); !strings.Contains(body, `Permissions Violation for Publish to \"ev.product.sold\"`) {
		t.Errorf("the server's words are missing: %s", body)
	}
	deny()
	eventually(t, ready, http.StatusOK, inactive, false)
}

// A subscription that the server refuses at the boot needs a permission, which the
// panel requests.
func TestARefusedSubscriptionNamesItsRemedy(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{Deny: []string{"ev.product.sold"}})
	p := boot.Process{Name: "test", Stderr: io.Discard, Environ: []string{"MEGA_NATS_URL=" + server.URL(), "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"}}
	f := fail(t, p, subscribed(&ledger{make(chan string, 1)}))
	if f.Code != "bus.refused" || f.Exit != 78 || !strings.Contains(f.Error(), `"ev.product.sold"`) || !strings.Contains(strings.Join(f.Actions, ""), "Grant the permission") {
		t.Errorf("%s, %d: %v\n%q", f.Code, f.Exit, f, f.Actions)
	}
}

// A limit of the server may have room again when another process has left, so that a
// service manager has to try again.
func TestASubscriptionBeyondTheLimitOfTheServerIsTriedAgain(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{MaxSubs: 1})
	p := boot.Process{Name: "test", Stderr: io.Discard, Environ: []string{"MEGA_NATS_URL=" + server.URL(), "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"}}
	f := fail(t, p, subscribed(&ledger{make(chan string, 1)}))
	if f.Code != "boot.hook_failed" || f.Exit != 70 || !strings.Contains(strings.Join(f.Actions, ""), "raise the limit") {
		t.Errorf("%s, %d: %v\n%q", f.Code, f.Exit, f, f.Actions)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// Each message would reach only one of two functions with one pattern and one group.
func TestFunctionsOfAnAppWithOnePatternHaveDifferentGroups(t *testing.T) {
	const sold = bus.Topic[int]("product.sold")
	on := func(*mega.Ctx, int) error { return nil }
	answer := func(*mega.Ctx, int) (int, error) { return 0, nil }
	ledger := bus.Group("ledger")
	for name, x := range map[string]struct {
		options []mega.Option
		refused bool
	}{
		"one group":              {[]mega.Option{mega.Subscribe(sold, on, ledger), mega.Subscribe(sold, on, ledger)}, true},
		"responders":             {[]mega.Option{mega.Respond("stock.get", answer), mega.Respond("stock.get", answer)}, true},
		"no group":               {[]mega.Option{mega.Subscribe(sold, on), mega.Subscribe(sold, on)}, false},
		"different groups":       {[]mega.Option{mega.Subscribe(sold, on, ledger), mega.Subscribe(sold, on, bus.Group("mail"))}, false},
		"different patterns":     {[]mega.Option{mega.Subscribe(sold, on, ledger), mega.Subscribe(bus.Topic[int]("product.*"), on, ledger)}, false},
		"every one answers":      {[]mega.Option{mega.Respond("stock.get", answer, bus.Group("")), mega.Respond("stock.get", answer, bus.Group(""))}, false},
		"an event and a request": {[]mega.Option{mega.Subscribe(sold, on, ledger), mega.Respond(string(sold), answer, ledger)}, false},
	} {
		p, _ := process()
		_, err := boot.Plan(p, mega.App("main", x.options...), mega.App("other", x.options[0]))
		f, ok := errors.AsType[*failure.Failure](err)
		if ok != x.refused || ok && (f.Code != "boot.wrong_shape" || !strings.Contains(fmt.Sprint(f.Facts), "messages_test.go:")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
