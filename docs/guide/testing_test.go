package guide_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/megatest"
)

// What 11-testing.md shows.

// ticketSold is the topic of sales.
const ticketSold = bus.Topic[TicketSale]("ticket.sold")

type TicketSale struct {
	Left int64 `json:"left"`
}

// BoxOffice sells tickets.
type BoxOffice struct{ tickets atomic.Int64 }

func NewBoxOffice() *BoxOffice {
	o := &BoxOffice{}
	o.tickets.Store(3)
	return o
}

// Sell asks the bank, takes a ticket and tells of it.
func (o *BoxOffice) Sell(ctx *mega.Ctx) error {
	err := ctx.Lock.With("tickets", func(ctx *mega.Ctx) error {
		if o.tickets.Load() == 0 {
			return mega.Error(http.StatusConflict, "ticket.sold_out", "There is none left.")
		}
		if _, err := ctx.Bus.Request("bank.charge", 42); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil { // the lock was lost meanwhile
			return err
		}
		o.tickets.Add(-1)
		return nil
	})
	if err != nil {
		return err
	}
	sale := TicketSale{o.tickets.Load()}
	if err := mega.Publish(ctx, ticketSold, sale); err != nil {
		return err
	}
	return ctx.JSON(http.StatusOK, sale)
}

// Board streams the number of tickets.
func (o *BoxOffice) Board(ctx *mega.Ctx) error {
	return ctx.SSE(func(s *mega.Stream) error {
		if err := s.Send("left", o.tickets.Load()); err != nil {
			return err
		}
		<-s.Done()
		return s.Err()
	})
}

var boxOffice = mega.Module(
	mega.Provide(NewBoxOffice),
	mega.Routes(func(r mega.Router, o *BoxOffice) {
		r.Post("/sell", o.Sell)
		r.Get("/board", o.Board)
	}),
)

// openOffice boots the program beside a bank that accepts every charge.
func openOffice(t *testing.T, set ...string) *megatest.Kit {
	t.Helper()
	kit := megatest.New(t, megatest.Config{Set: set}, boxOffice)
	kit.Bus.Respond("bank.charge", func(*bus.Msg) (any, error) { return "charged", nil })
	return kit
}

func TestATicketIsSold(t *testing.T) {
	kit := openOffice(t)
	var sale TicketSale
	kit.Post("/sell", nil).Status(http.StatusOK).JSON(&sale)
	if sale.Left != 2 {
		t.Errorf("%d tickets are left, want 2", sale.Left)
	}
	megatest.Published(kit.Bus, ticketSold, 1)
}

func TestABusyOfficeAsksToComeBack(t *testing.T) {
	kit := openOffice(t, "lock.wait=10ms")
	release := kit.Lock.Hold("tickets") // as another process would
	kit.Post("/sell", nil).Status(http.StatusConflict).Code("lock.not_acquired")
	release()
	kit.Post("/sell", nil).Status(http.StatusOK)
}

func TestASaleWithoutItsLockSellsNothing(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, boxOffice)
	kit.Bus.Respond("bank.charge", func(*bus.Msg) (any, error) {
		kit.Lock.Expire("tickets") // the bank takes longer than the lease lives
		return "charged", nil
	})
	kit.Post("/sell", nil).Status(http.StatusConflict).Code("lock.lost")
	kit.Bus.Never("ticket.sold")
}

func TestTheBackendOfTheLocksIsGone(t *testing.T) {
	kit := openOffice(t)
	kit.Lock.Break()
	kit.Post("/sell", nil).Status(http.StatusServiceUnavailable).Code("lock.unavailable")
	kit.Lock.Mend()
	kit.Post("/sell", nil).Status(http.StatusOK)
}

func TestTheBankSaysNo(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, boxOffice)
	kit.Bus.Respond("bank.charge", func(*bus.Msg) (any, error) {
		return nil, errors.New("the card was refused")
	})
	kit.Post("/sell", nil).Status(http.StatusBadGateway)
	kit.Bus.Never("ticket.sold")
	if left := kit.Lock.State("tickets"); len(left.Holders) != 0 {
		t.Errorf("the lock is still held: %+v", left)
	}
}

func TestSalesExcludeEachOther(t *testing.T) {
	kit := openOffice(t)
	megatest.Exclusive(t, 20, func(inside func()) error {
		return kit.Ctx().Lock.With("tickets", func(*mega.Ctx) error {
			inside()
			return nil
		}, lock.Wait(time.Minute))
	})
}

func TestAnHourOfTimeTakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := openOffice(t)
		time.AfterFunc(time.Hour, kit.Lock.Hold("tickets"))
		began := time.Now()
		err := kit.Ctx().Lock.With("tickets", func(*mega.Ctx) error { return nil }, lock.Wait(2*time.Hour))
		if waited := time.Since(began); err != nil || waited != time.Hour {
			t.Errorf("waited %v for a holder of an hour: %v", waited, err)
		}
	})
}

func TestTheBoardShowsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := openOffice(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		kit.Serve(w, kit.Request(http.MethodGet, "/board", nil).WithContext(ctx))
		if events := w.Body.String(); events != "event: left\ndata: 3\n\n" {
			t.Errorf("the stream is %q", events)
		}
	})
}

func TestWhatIsLogged(t *testing.T) {
	kit := openOffice(t)
	kit.Post("/sell", nil).Status(http.StatusOK)
	kit.Log.Expect("request", "method", "POST", "route", "/sell", "status", 200)
	kit.Log.Never("lock lost")
}

func TestAKitIsForAnyCode(t *testing.T) {
	kit := openOffice(t)
	err := kit.Ctx().Lock.With("report", func(ctx *mega.Ctx) error { return errNoPaper })
	if !errors.Is(err, errNoPaper) {
		t.Errorf("the error is %v", err)
	}
}

var errNoPaper = errors.New("the printer has no paper")
