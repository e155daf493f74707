package console

import (
	"context"
	"net/url"

	"github.com/megaframework/mega/internal/logging"
)

// errorsPage is the content of the page of the last warnings and errors.
type errorsPage struct {
	Err       string
	Processes []answer[logging.Recent]
}

func loadErrors(c *Console, ctx context.Context, _ url.Values) any {
	var p errorsPage
	sources, err := c.sources(ctx)
	if err != nil {
		p.Err = err.Error()
	}
	if c.config.Supervised { // its own log
		sources = append([]source{{}}, sources...)
	}
	p.Processes = callAll[logging.Recent](ctx, c, sources, "/ops/errors", nil)
	return p
}
