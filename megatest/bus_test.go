package megatest_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/megatest"
)

type sale struct {
	Product string `json:"product"`
}

const sold = bus.Topic[sale]("product.sold")

// till sells, tells it a moment later, and asks another service for prices.
func till() mega.Option {
	return mega.Module(
		mega.OnStart("hello", func(ctx *mega.Ctx) error { return ctx.Bus.Publish("till.open", nil) }),
		mega.Routes(func(r mega.Router) {
			r.Post("/sell/{product}", func(ctx *mega.Ctx) error {
				product := ctx.Param("product")
				ctx.Go("tell", func(ctx *mega.Ctx) error { return mega.Publish(ctx, sold, sale{product}) })
				return ctx.Text(http.StatusOK, "sold")
			})
			r.Get("/price/{product}", func(ctx *mega.Ctx) error {
				price, err := mega.Call[sale, int](ctx, "price.of", sale{ctx.Param("product")})
				if err != nil {
					return err
				}
				return ctx.JSON(http.StatusOK, price)
			})
		}),
		mega.Subscribe(bus.Topic[sale]("order.made"), func(ctx *mega.Ctx, s sale) error {
			time.Sleep(time.Millisecond)
			return mega.Publish(ctx, "order.taken", s)
		}),
		mega.Subscribe(bus.Topic[sale]("order.taken"), func(ctx *mega.Ctx, s sale) error {
			ctx.Log.Info("taken", "product", s.Product)
			return nil
		}),
		mega.Respond("stock.of", func(_ *mega.Ctx, s sale) (int, error) { return len(s.Product), nil }),
	)
}

func TestPublishedEventsAreExpected(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, till())
	kit.Bus.Expect("till.open", 1) // at the boot
	kit.Bus.Forget()
	kit.Bus.Never("till.>")
	for _, product := range []string{"lamp", "chair"} {
		kit.Post("/sell/"+product, nil).Status(http.StatusOK)
		megatest.Published(kit.Bus, sold, 1)
		kit.Bus.Forget()
	}
	kit.Post("/sell/table", nil)
	if all := megatest.Published(kit.Bus, sold, 1); !slices.Equal(all, []sale{{"table"}}) {
		t.Errorf("published was %v", all)
	}
	e := kit.Bus.Expect("*.sold", 1)[0]
	var got sale
	if e.Decode(&got); got.Product != "table" || e.Subject != "product.sold" {
		t.Errorf("got %+v of %s", got, e.Subject)
	}
}

// What the test publishes reaches the application and is not the application's.
func TestTestIsAnotherService(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, till())
	kit.Bus.Publish("order.made", sale{"lamp"})
	kit.Bus.Settle() // also what the handler has published
	kit.Log.Expect("taken", "product", "lamp")
	kit.Bus.Never("order.made")
	kit.Bus.Expect("order.taken", 1)

	answer, err := kit.Bus.Request("stock.of", sale{"lamp"})
	if err != nil || string(answer.Data) != "4" {
		t.Errorf("the answer is %v, %v", answer, err)
	}
	kit.Get("/price/lamp").Status(http.StatusBadGateway).Code("bus.no_responders")
	kit.Bus.Respond("price.*", func(m *bus.Msg) (any, error) {
		if strings.Contains(string(m.Data), "chair") {
			return nil, &bus.RemoteError{Reason: "price.unknown", Message: "not for sale"}
		}
		return 7, nil
	})
	kit.Get("/price/lamp").Status(http.StatusOK).Contains("7")
	kit.Get("/price/chair").Contains("price.unknown")
}

func TestMessagesTakeNoTimeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := megatest.New(t, megatest.Config{}, till(), mega.Run("daily", func(ctx *mega.Ctx) error {
			select {
			case <-time.After(3 * time.Second):
				return ctx.Bus.Publish("till.closed", nil)
			case <-ctx.Done():
				return nil
			}
		}))
		kit.Bus.Never("till.closed")
		kit.Bus.Expect("till.closed", 1)
		kit.Bus.Publish("order.made", sale{"lamp"})
		kit.Bus.Settle()
		kit.Bus.Expect("order.taken", 1)
	})
}

// No configuration makes the kit connect to anything.
func TestKitHasNoServer(t *testing.T) {
	kit := megatest.New(t, megatest.Config{Set: []string{"nats.url=nats://127.0.0.1:1", "bus.require=fleet"}}, till())
	kit.Bus.Expect("till.open", 1)
}

func TestWrongExpectationsOfMessagesFail(t *testing.T) {
	for name, wrong := range map[string]func(b *megatest.Bus){
		"more": func(b *megatest.Bus) {
			b.Publish("order.made", sale{})
			b.Publish("order.made", sale{})
			b.Settle()
			b.Expect("order.*", 1)
		},
		"never":    func(b *megatest.Bus) { b.Never("till.*") },
		"none":     func(b *megatest.Bus) { b.Expect("till.open", 0) },
		"pattern":  func(b *megatest.Bus) { b.Expect("till..open", 1) },
		"subject":  func(b *megatest.Bus) { b.Publish("till.*", nil) },
		"encode":   func(b *megatest.Bus) { b.Publish("till.open", func() {}) },
		"decode":   func(b *megatest.Bus) { b.Publish("order.made", sale{}); b.Expect("order.taken", 1)[0].Decode(new(int)) },
		"answered": func(b *megatest.Bus) { b.Respond("stock.of", func(*bus.Msg) (any, error) { return nil, nil }) },
		"fewer":    func(b *megatest.Bus) { b.Expect("till.open", 2) },
		"busy": func(b *megatest.Bus) {
			b.Respond("slow", func(*bus.Msg) (any, error) { time.Sleep(7 * time.Second); return nil, errors.New("too late") })
			go func() { _, _ = b.Request("slow", nil) }()
			for range 1000 {
				b.Settle()
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &recorder{TB: t}
				b := megatest.New(fake, megatest.Config{}, till()).Bus
				func() {
					defer func() { _ = recover() }() // of Fatalf
					wrong(b)
				}()
				if fake.failed == 0 {
					t.Error("nothing was noticed")
				}
				fake.end()
			})
		})
	}
}

func TestSecondResponderOfATestIsRefusedWithTheLineOfTheFirst(t *testing.T) {
	fake := &recorder{TB: t}
	b := megatest.New(fake, megatest.Config{}, till()).Bus
	answer := func(*bus.Msg) (any, error) { return nil, nil }
	b.Respond("price.of", answer)
	func() {
		defer func() { _ = recover() }() // of Fatalf
		b.Respond("price.of", answer)
	}()
	if !strings.Contains(fake.said, "the test does so already, at ") || !strings.Contains(fake.said, "bus_test.go:") {
		t.Errorf("the failure is %q", fake.said)
	}
	fake.end()
}
