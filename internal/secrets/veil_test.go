package secrets_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/internal/logging"
	"github.com/megaframework/mega/internal/secrets"
	"github.com/megaframework/mega/internal/settings"
)

// unexported has a field that JSON leaves out.
type unexported struct{ password string }

// brief has less text than JSON.
type brief struct{ Password string }

func (brief) String() string { return "brief" }

// formal has less JSON than text.
type formal struct{ Password string }

func (formal) MarshalJSON() ([]byte, error) { return []byte(`"formal"`), nil }

// The two formats of the log write the same value differently: only one of them may
// show a secret.
func TestNoFormOfALoggedValueShowsASecret(t *testing.T) {
	const password = "hunter2-hunter2"
	values := map[string]any{
		"options": &goredis.Options{Password: password}, "unexported": unexported{password}, "pointer": &unexported{password},
		"brief": brief{password}, "formal": formal{password}, "bytes": []byte("password " + password), "list": []any{unexported{password}},
	}
	for _, format := range []string{"text", "json"} {
		c, err := settings.Load(settings.Source{Environ: []string{"MEGA_NATS_USER=shop", "MEGA_NATS_PASSWORD=" + password, "MEGA_LOG_FORMAT=" + format}})
		if err != nil {
			t.Fatal(err)
		}
		var veil secrets.Veil
		veil.Add(c, nil)
		for name, value := range values {
			var out bytes.Buffer
			log := logging.New(&out, c, 0, &veil).Process().With("with", value)
			log.Error("failed", "value", value, slog.Group("group", "inner", value))
			if strings.Contains(out.String(), password) {
				t.Errorf("%s: %s is logged as %s", format, name, out.String())
			}
		}
	}
}
