package guide_test

import (
	"net/http"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

// What 08-workers.md shows.

func withWorkers() mega.Option {
	return mega.App("web",
		mega.OnPrimary("migrate", migrate), // in one worker, before any of them serves
		mega.Run("import", importNightly),  // in each of them
		mega.Routes(homes),
	)
}

// importNightly waits for its turn in all workers but one. When that one ends, the
// next goes on.
func importNightly(ctx *mega.Ctx) error {
	err := ctx.Lock.With("import:nightly", importFeed, lock.Wait(lock.Forever))
	if ctx.Err() == nil {
		return err
	}
	return nil // it was told to end
}

func migrate(ctx *mega.Ctx) error {
	ctx.Log.Debug("migrated")
	return nil
}

func importFeed(ctx *mega.Ctx) error {
	<-ctx.Done()
	return ctx.Err()
}

func homes(r mega.Router) {
	r.Get("/", func(ctx *mega.Ctx) error { return ctx.Text(http.StatusOK, "home") })
}
