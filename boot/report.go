package boot

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/plan"
)

// report writes the report: as text if people read the log, otherwise as one
// record. The warnings are separate records then, so that a search finds them.
func (p Process) report(r *Report, c *config.Config, log *slog.Logger) {
	if logging.Readable(p.Stderr, c) {
		_, _ = io.WriteString(p.Stderr, "\n"+r.Text(p.paint(), p.Verbose)+"\n") // the program runs without a report, too
		return
	}
	for _, d := range []Decision{r.Lock, r.Bus} {
		for _, warning := range d.Warnings {
			log.Warn(d.Component+": "+warning, "driver", d.Chosen)
		}
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "boot.report", slog.Any("report", r))
}

// paint returns a paint with colours for a terminal, unless its user has
// disabled them.
func (p Process) paint() plan.Paint {
	unwanted := slices.ContainsFunc(p.Environ, func(kv string) bool {
		return strings.HasPrefix(kv, "NO_COLOR=") && kv != "NO_COLOR=" || kv == "TERM=dumb"
	})
	return plan.Paint{Colours: logging.IsTerminal(p.Stderr) && !unwanted}
}
