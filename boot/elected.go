package boot

import (
	"context"
	"net/url"
	"strings"

	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock"
)

// elected returns the background function of a Lead or Every: it campaigns for
// the lock of h until the program stops, and then hands over at once (E3). A
// panic of the function counts as an error, so that it does not end the program.
func (b *booting) elected(h plan.Hook, does hook, app string) hook {
	key := electedKey(h.Kind, b.plan.Config.Lock.Namespace, b.plan.Config.Name, app, h.Name)
	b.report.Elected = append(b.report.Elected, plan.Elected{
		Name: h.Name, Every: h.Every, Scope: b.locker.Info().Scope.String(), Lock: key,
	})
	work := contain(does.run)
	does.run = func(ctx context.Context) error {
		if h.Kind == plan.KindEvery {
			var opts []lock.Option
			if h.AtLeastOnce {
				opts = append(opts, lock.AtLeastOnce()) // O3
			}
			return b.locker.Every(ctx, key, h.Every, work, opts...)
		}
		return b.locker.Lead(ctx, key, work)
	}
	return does
}

// electedKey returns the lock key of a Lead or Every function, for all processes
// that run the program. Names are escaped: a key has no white space (L14).
func electedKey(kind plan.Kind, namespace, program, app, name string) string {
	parts := []string{"mega", strings.ToLower(string(kind)), namespace, url.PathEscape(program), url.PathEscape(app), url.PathEscape(name)}
	return strings.Join(parts, ":")
}
