package request

import (
	"net/http"
	"strings"
	"sync"
)

func wantedLocales(r *http.Request) []string {
	wanted := []string{r.URL.Query().Get("lang")}
	if cookie, err := r.Cookie("lang"); err == nil {
		wanted = append(wanted, cookie.Value)
	}
	return append(wanted, strings.Join(r.Header.Values("Accept-Language"), ","))
}

// Translate returns the text of a key in a locale. It logs a missing one once.
func (h *Host) Translate(locale, key string, kv []any) string {
	text, err := h.Files().Locales.Text(locale, key, kv)
	if err != nil && h.complaints.first(locale+" "+key) {
		h.Logger().Warn("text not translated", "locale", locale, "key", key, "error", err)
	}
	return text
}

// complaints remembers the logged keys. Keys may contain client input, so their
// number is bounded.
type complaints struct {
	mu   sync.Mutex // guards made
	made map[string]struct{}
}

const maxComplaints = 1000

// first reports whether a complaint is new.
func (c *complaints) first(about string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.made[about]; known || len(c.made) >= maxComplaints {
		return false
	}
	if c.made == nil {
		c.made = map[string]struct{}{}
	}
	c.made[about] = struct{}{}
	return true
}
