package boot

import (
	"context"
	"log/slog"

	"github.com/megaframework/mega/config"
)

// Open opens what was decided on and closes it again, for tests that go from a
// decision to its exit status.
func Open(ctx context.Context, c *config.Config, d Decision) error {
	if d.Component == "bus" {
		opened, err := openBus(ctx, c, d, "test", slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return opened.Close(ctx)
	}
	opened, err := openLock(ctx, c, d, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return opened.Close(ctx)
}
