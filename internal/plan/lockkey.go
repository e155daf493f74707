package plan

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/megaframework/mega/internal/settings"
	"github.com/megaframework/mega/lock/driver"
)

// LockKey returns the lock key of a function of OnPrimary, or of Lead or Every of an
// app, for all processes that run the program. Names are escaped: a key has no white
// space (L14).
func (h Hook) LockKey(c *settings.Config, app string) string {
	parts := []string{"mega", strings.ToLower(string(h.Kind)), c.Lock.Namespace, url.PathEscape(c.Name), url.PathEscape(app), url.PathEscape(h.Name)}
	if h.Kind == KindPrimary { // E5
		parts = []string{"mega", "primary", c.Lock.Namespace, url.PathEscape(c.Name), url.PathEscape(h.Name)}
	}
	return strings.Join(parts, ":")
}

// CheckLockKeys returns an error for a function of OnPrimary, Lead or Every whose lock
// key is out of bounds: it has the names of the program, the app and the function. It
// does not depend on the driver, so that another one can be configured later.
func (p *Program) CheckLockKeys(c *settings.Config) error {
	for _, part := range p.parts() {
		for _, h := range part.Hooks {
			if h.Kind != KindPrimary && h.Kind != KindLead && h.Kind != KindEvery {
				continue
			}
			if key := h.LockKey(c, part.Name); driver.KeyFault(key) != "" {
				return h.Fn.wrong(fmt.Sprintf("the key of its lock has %d bytes", len(key)),
					fmt.Sprintf("a shorter name: at most %d bytes for the key %.60s…", driver.MaxKey, key))
			}
		}
	}
	return nil
}
