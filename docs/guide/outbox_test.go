package guide_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/megatest"
)

// What 07-locks-in-practice.md shows of an outbox.

type Placed struct {
	Row   int64  `json:"row"`
	Order string `json:"order"`
}

type Shipment struct {
	Number string `json:"number"`
}

const placed = bus.Topic[Placed]("order.placed")

// orders is a store with an outbox. It stands for a database.
type orders struct {
	mu       sync.Mutex
	outbox   []Placed
	more     chan struct{}
	failures int // of the next calls of remove
}

func (s *orders) insert(_ context.Context, order string) error {
	s.mu.Lock()
	s.outbox = append(s.outbox, Placed{int64(len(s.outbox) + 1), order})
	s.mu.Unlock()
	s.more <- struct{}{}
	return nil
}

func (s *orders) oldest(ctx context.Context) (Placed, error) {
	for {
		s.mu.Lock()
		if len(s.outbox) > 0 {
			defer s.mu.Unlock()
			return s.outbox[0], nil
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-ctx.Done():
			return Placed{}, context.Cause(ctx)
		}
	}
}

func (s *orders) remove(_ context.Context, row int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures > 0 {
		s.failures--
		return errors.New("connection reset")
	}
	s.outbox = slices.DeleteFunc(s.outbox, func(p Placed) bool { return p.Row == row })
	return nil
}

func (s *orders) placeByHand(ctx *mega.Ctx, order string) error {
	if err := s.insert(ctx, order); err != nil {
		return err
	}
	return mega.Publish(ctx, placed, Placed{Order: order})
}

// Relay sends the rows of the outbox to the service that ships, oldest first.
func (s *orders) Relay(ctx *mega.Ctx) error {
	for {
		row, err := s.oldest(ctx) // waits for a row
		if err != nil {
			return err // logged; Lead calls Relay again after a pause
		}
		if _, err := mega.Call[Placed, Shipment](ctx, "shipping.ship", row); err != nil {
			return err
		}
		if err := s.remove(ctx, row.Row); err != nil {
			return err
		}
	}
}

func relayed(newOrders func() *orders) mega.Option {
	return mega.App("web",
		mega.Provide(newOrders),
		mega.Lead("outbox", (*orders).Relay),
	)
}

func TestOutboxOfThePageLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &orders{more: make(chan struct{}, 8), failures: 1}
		kit := megatest.New(t, megatest.Config{}, relayed(func() *orders { return s }))
		done, refusals, calls := map[int64]string{}, 2, 0
		shipped := make(chan struct{})
		kit.Bus.Respond("shipping.ship", func(m *bus.Msg) (any, error) {
			var p Placed
			if err := m.Decode(&p); err != nil {
				return nil, err
			}
			if calls++; refusals > 0 {
				refusals--
				return nil, errors.New("the store is down")
			}
			done[p.Row] = p.Order // idempotent
			if len(done) == 2 {
				close(shipped)
			}
			return Shipment{"S-" + p.Order}, nil
		})
		if err := s.placeByHand(kit.Ctx(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := s.insert(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		<-shipped
		synctest.Wait()
		if len(s.outbox) != 0 || done[1] != "a" || done[2] != "b" || calls != 5 {
			t.Errorf("%d rows are left, %v was shipped in %d calls, want 5: two were refused, and one was repeated", len(s.outbox), done, calls)
		}
	})
}
