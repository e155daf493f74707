package shop

import (
	"net/http"
	"testing"

	"github.com/megaframework/mega"
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
