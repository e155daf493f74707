package guide_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/megatest"
)

// What 04-services.md shows, beside sample/multi.

// openPostgres opens a server, and does not connect to it yet.
func openPostgres(d Database) (*sql.DB, error) {
	db, err := sql.Open("pgx", d.URL.Reveal())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(d.Pool)
	db.SetMaxIdleConns(d.Pool) // opening one costs more than keeping it
	db.SetConnMaxLifetime(time.Hour)
	return db, nil
}

var _ = openPostgres // a driver of PostgreSQL is not among the dependencies of mega

// Card is what a checkout needs of a payment service.
type Card interface {
	Charge(ctx context.Context, order string, cents int64) error
}

// Checkout charges orders.
type Checkout struct {
	card Card
	paid sync.Map // in place of a store
}

func NewCheckout(card Card) *Checkout { return &Checkout{card: card} }

// Pay charges an order, once. Two calls for one order exclude each other in all
// processes that share the locks.
func (c *Checkout) Pay(ctx *mega.Ctx, order string, cents int64) error {
	return ctx.Lock.With("order:"+order, func(ctx *mega.Ctx) error {
		if _, paid := c.paid.Load(order); paid {
			return mega.Error(http.StatusConflict, "order.paid", "The order is paid.")
		}
		if err := c.card.Charge(ctx, order, cents); err != nil {
			return err
		}
		c.paid.Store(order, true)
		return nil
	}, lock.Label("pay"))
}

// checkout is the app, on a payment service of the program's choice.
func checkout(card func() Card) mega.Option {
	return mega.App("web",
		mega.Provide(card, NewCheckout),
		mega.Routes(func(r mega.Router, c *Checkout) {
			r.Post("/orders/{id}/pay", func(ctx *mega.Ctx) error { return c.Pay(ctx, ctx.Param("id"), 4200) })
		}),
	)
}

// purse is a payment service that refuses charges while it has an error.
type purse struct {
	refusal error
	charged int64
}

func (p *purse) Charge(_ context.Context, _ string, cents int64) error {
	if p.refusal == nil {
		p.charged += cents
	}
	return p.refusal
}

func TestAnOrderIsChargedOnce(t *testing.T) {
	card := &purse{refusal: mega.Error(http.StatusPaymentRequired, "card.refused", "The card was refused.")}
	kit := megatest.New(t, megatest.Config{Set: []string{"lock.wait=10ms"}}, checkout(func() Card { return card }))

	kit.Post("/orders/7/pay", nil).Status(http.StatusPaymentRequired).Code("card.refused")
	card.refusal = nil
	release := kit.Lock.Hold("order:7") // another process charges it
	kit.Post("/orders/7/pay", nil).Status(http.StatusConflict).Code("lock.not_acquired")
	release()
	kit.Post("/orders/7/pay", nil).Status(http.StatusNoContent)
	kit.Post("/orders/7/pay", nil).Status(http.StatusConflict).Code("order.paid")
	if card.charged != 4200 {
		t.Errorf("%d cents were charged", card.charged)
	}
}

func TestAServiceNeedsNoRequest(t *testing.T) {
	card := &purse{}
	kit := megatest.New(t, megatest.Config{}, checkout(func() Card { return card }))
	if err := NewCheckout(card).Pay(kit.Ctx(), "7", 100); err != nil || card.charged != 100 {
		t.Errorf("%d cents were charged, %v", card.charged, err)
	}
}

// Tariffs is a copy of a partner's prices.
type Tariffs struct {
	fetch func(context.Context) error
	every time.Duration
	at    atomic.Int64 // time of the last copy, in seconds
}

// Load fetches the first copy, before the program serves.
func (s *Tariffs) Load(ctx context.Context) error {
	if err := s.fetch(ctx); err != nil {
		return err
	}
	s.at.Store(time.Now().Unix())
	return nil
}

// Refresh fetches further copies until the program ends.
func (s *Tariffs) Refresh(ctx *mega.Ctx) error {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := s.Load(ctx); err != nil {
				ctx.Log.Warn("tariffs not fetched", "error", err) // the old ones stay
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// Fresh returns an error if the copy is older than an hour.
func (s *Tariffs) Fresh(context.Context) error {
	if age := time.Since(time.Unix(s.at.Load(), 0)); age > time.Hour {
		return fmt.Errorf("the tariffs are %v old", age.Round(time.Minute))
	}
	return nil
}

func withTariffs(newTariffs func() *Tariffs) mega.Option {
	return mega.Module(
		mega.Provide(newTariffs),
		mega.OnStart("tariffs", (*Tariffs).Load, mega.Budget(5*time.Second)),
		mega.Run("tariffs", (*Tariffs).Refresh),
		mega.Ready("tariffs", (*Tariffs).Fresh),
	)
}

func TestTariffsAreFetchedBeforeTheProgramServes(t *testing.T) {
	var fetched atomic.Int64
	tariffs := &Tariffs{every: time.Millisecond, fetch: func(context.Context) error { fetched.Add(1); return nil }}
	megatest.New(t, megatest.Config{}, withTariffs(func() *Tariffs { return tariffs }), mega.App("web", mega.Routes(homes)))
	if fetched.Load() == 0 || tariffs.Fresh(t.Context()) != nil {
		t.Error("the program serves without tariffs")
	}
	for fetched.Load() < 3 {
		time.Sleep(time.Millisecond)
	}
	if (&Tariffs{}).Fresh(t.Context()) == nil {
		t.Error("tariffs of 1970 are fresh")
	}
}

func TestAProgramWithoutTariffsDoesNotStart(t *testing.T) {
	tariffs := &Tariffs{every: time.Hour, fetch: func(context.Context) error { return errors.New("the partner is closed") }}
	var panel strings.Builder
	p := boot.Process{Name: "shop", Stderr: &panel, Environ: []string{"MEGA_OPS_ADDR=127.0.0.1:0", "MEGA_APPS_WEB_ADDR=127.0.0.1:0"}}
	status := boot.Main(t.Context(), p, withTariffs(func() *Tariffs { return tariffs }), mega.App("web", mega.Routes(homes)))
	if status == 0 || !strings.Contains(panel.String(), "the partner is closed") {
		t.Errorf("exit status %d\n%s", status, &panel)
	}
}
