package boot_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/natstest"
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

func subscribed(l *ledger, more ...boot.Option) boot.Option {
	return boot.App("web", append(more,
		boot.Provide(func() *ledger { return l }),
		boot.Subscribe("product.sold", reflect.TypeFor[sold](), (*ledger).OnSold),
		boot.Respond("stock.get", (*ledger).Stock),
	)...)
}

func offline(t *testing.T, environ []string, options ...boot.Option) *boot.Running {
	t.Helper()
	var log strings.Builder
	r, err := boot.Start(t.Context(), boot.Process{
		Name: "test", Environ: append(environ, "MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"), Stderr: &log,
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
	r := offline(t, nil, boot.App("web", boot.Subscribe("product.sold", reflect.TypeFor[sold](), slow)))
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

func TestFunctionsForMessagesHaveTheirShape(t *testing.T) {
	payload := reflect.TypeFor[sold]()
	for says, o := range map[string]boot.Option{
		"not a *mega.Ctx and":      boot.Subscribe("x", payload, func(sold) error { return nil }),
		"its topic carries a":      boot.Subscribe("x", payload, func(*megactx.Ctx, int) error { return nil }),
		"does not return an error": boot.Subscribe("x", payload, func(*megactx.Ctx, sold) {}),
		"is not a provided value":  boot.Subscribe("x", payload, func(context.Context, *megactx.Ctx, sold) error { return nil }),
		"an answer and an error":   boot.Respond("x", func(*megactx.Ctx, sold) error { return nil }),
		"not a function":           boot.Respond("x", 7),
		"Nothing provides int":     boot.Subscribe("x", payload, func(int, *megactx.Ctx, *bus.Msg) error { return nil }),
		"bad subject":              boot.Subscribe("no spaces", payload, func(*megactx.Ctx, *bus.Msg) error { return nil }),
	} {
		var log strings.Builder
		_, err := boot.Start(t.Context(), boot.Process{Name: "test", Stderr: &log, Environ: []string{"MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"}}, boot.App("web", o))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestScopeIsRequiredOfTheBusWhereAnAppListens(t *testing.T) {
	var log strings.Builder
	start := func(options ...boot.Option) error {
		_, err := boot.Start(t.Context(), boot.Process{
			Name: "test", Stderr: &log, Environ: []string{"MEGA_APPS_WEB_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_CACHE_MAIN_URL=redis://127.0.0.1:1", "MEGA_BOOT_WAIT_FOR=0"},
		}, boot.App("web", append(options, boot.RequireScope(boot.Fleet))...))
		return err
	}
	var f *boot.Failure
	if err := start(boot.Respond("x", two)); !errors.As(err, &f) || f.Code != "bus.scope_too_small" {
		t.Errorf("an app that responds: %v", err)
	}
	if err := start(); !errors.As(err, &f) || f.Code != "lock.driver_unavailable" { // its locks would do, if the server were there
		t.Errorf("an app that does not: %v", err)
	}
}

func two(*megactx.Ctx, sold) (int, error) { return 2, nil }
