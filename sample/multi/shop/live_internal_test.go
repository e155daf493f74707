package shop

import (
	"errors"
	"net/http"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/megatest"
)

// A change is valid when it is committed, whether or not its client waits for the answer.
func TestAChangeIsAnnouncedAfterItsClientHasLeft(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, mega.App("shop", mega.Routes(func(r mega.Router) {
		r.Post("/", func(ctx *mega.Ctx) error {
			left, leave := ctx.WithTimeout(0)
			defer leave()
			announce(left, Ordered, Order{ID: 1})
			return nil
		})
	})))
	kit.Post("/", nil).Status(http.StatusNoContent)
	megatest.Published(kit.Bus, Ordered, 1)
}

// The store has checked the locks in the transaction that it has committed.
func TestALockThatIsLostAfterTheCommitChangesNothing(t *testing.T) {
	lost := func(fn func(*mega.Ctx) error) error { return errors.Join(fn(nil), lock.ErrLost) }
	if err := committed(lost, func(*mega.Ctx) error { return nil }); err != nil {
		t.Errorf("after a commit: %v", err)
	}
	if err := committed(lost, func(*mega.Ctx) error { return errRefunded }); !errors.Is(err, errRefunded) || !errors.Is(err, lock.ErrLost) {
		t.Errorf("without a commit: %v", err)
	}
}
