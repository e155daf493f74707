package mask_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/mask"
)

func TestUserInfoAndQueryValuesOfAURLAreMasked(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "",
		"redis://h:6379/0":                 "redis://h:6379/0",
		"redis://:hunter2@h:1":             "redis://***@h:1",
		"redis://hunter2@h:1":              "redis://***@h:1",
		"redis://alice:hunter2@h:1/2?db=3": "redis://***@h:1/2?db=***",
		"redis://alice:hun/ter2@h:1":       "redis://***@h:1",
		"redis://alice:hun?ter2@h:1":       "redis://***@h:1",
		"redis://alice:hun#ter2@h:1":       "redis://***@h:1",
		"redis://alice:hun@ter2@h:1":       "redis://***@h:1",
		"redis://alice:hun ter\"2@h:1":     "redis://***@h:1",
		"redis://u:hunter2,x://hunter2@h":  "redis://***@h",
		"alice:hunter2@h:1":                "***@h:1",
		"redis-sentinel://:hunter2@a,b/m?sentinel_password=hunter2&db=1": "redis-sentinel://***@a,b/m?sentinel_password=***&db=***",
		"nats://u:hunter2@a:1,nats://hunter2@b:2":                        "nats://***@a:1,nats://***@b:2",
		"nats://u:hunter2@a:1, tls://hunter2@b:2":                        "nats://***@a:1, tls://***@b:2",
		"postgres://h/db?user=ann@x.org&password=hunter2":                "postgres://***@x.org&password=***",
		"postgres://h/db?hunter2":                                        "postgres://h/db?***",
		"postgres://h/db?sslmode=&x":                                     "postgres://h/db?sslmode=&***",
		"postgres://h/db?a=b;c=hunter2":                                  "postgres://h/db?a=***;c=***",
		"https://h/x?a=hunter2#hunter2":                                  "https://h/x?a=***",
		"sqlite://shop.db":                                               "sqlite://shop.db",
	} {
		if got := mask.URL(in); got != want {
			t.Errorf("URL(%q) = %q, want %q", in, got, want)
		}
		if strings.Contains(mask.Text(in), "hunter2") && strings.Contains(in, "://") {
			t.Errorf("Text(%q) = %q", in, mask.Text(in))
		}
	}
}

func TestURLsInsideATextAreMasked(t *testing.T) {
	for in, want := range map[string]string{
		"nothing to hide":                                 "nothing to hide",
		`parse "redis://u:hunter2@h:1": bad port`:         `parse "redis://***@h:1": bad port`,
		`Get "https://h/x?key=hunter2": EOF`:              `Get "https://h/x?key=***": EOF`,
		"open https://h/x?key=hunter2: EOF":               "open https://h/x?key=***: EOF",
		"dial redis://u:hunter2@h, then nats://hunter2@b": "dial redis://***@h, then nats://***@b",
		"a\nredis://u:hunter2@h\nb":                       "a\nredis://***@h\nb",
		`postgres://u:hun"ter2@h/db`:                      `postgres://***@h/db`,
	} {
		if got := mask.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMaskingTwiceChangesNothing(t *testing.T) {
	for _, s := range []string{"redis://u:p@h?a=b&c", "x@y", "nats://t@a,nats://b", "see http://u@h/?q now"} {
		if once := mask.Text(mask.URL(s)); once != mask.Text(mask.URL(once)) {
			t.Errorf("%q became %q, then %q", s, once, mask.Text(mask.URL(once)))
		}
	}
}

func TestCredentialsOfAURLAreFound(t *testing.T) {
	for in, want := range map[string][]string{
		"redis://h":                              nil,
		"redis://alice@h":                        nil,
		"text: not a URL":                        nil,
		"redis://alice:hunter2@h?db=1":           {"hunter2"},
		"redis://:hun%2Fter@h":                   {"hun%2Fter", "hun/ter"},
		"nats://token1@a,nats://u:hunter2@b":     {"token1", "hunter2"},
		"redis://h?sentinel_password=a%2Bb&db=1": {"a%2Bb", "a+b"},
		"redis://h?api_key=a+b":                  {"a+b", "a b"},
		"https://h/p?token=t0ken&from=ann@h":     {"t0ken"},
		"smtp://u:hunter2@h?from=ann@shop":       {"hunter2", "hunter2@h?from=ann"},
		"postgres://u:hunt/er@h/db":              {"hunt/er"},
	} {
		if got := mask.Credentials(in); !slices.Equal(got, want) {
			t.Errorf("Credentials(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzNoCredentialSurvives(f *testing.F) {
	f.Add("alice", "hunter2", "h:1/0", "password", "hunter2")
	f.Add("a/b", "c@d?e", "h", "x", "y")
	f.Fuzz(func(t *testing.T, user, password, host, name, value string) {
		password, value = "P"+password+"Q", "V"+value+"W"
		if strings.ContainsAny(name, "=&;?@") || strings.ContainsAny(value, "&;@") || strings.ContainsAny(host, "@?&;,") || strings.Contains(name+host, "W") {
			return
		}
		in := fmt.Sprintf("redis://%s:%s@%s?%s=%s", user, password, host, name, value)
		shown := mask.URL(in)
		if strings.Contains(shown, value) && !strings.Contains(host+name, value) || strings.Contains(shown, password) && !strings.Contains(host+name, password) {
			t.Errorf("%q became %q", in, shown)
		}
	})
}

func TestPlaceOfAURLHasNoCredential(t *testing.T) {
	for in, want := range map[string]string{
		"redis://alice:old@h/1?db=2&sentinel_password=old": "redis://alice@h/1?db=2&sentinel_password=***",
		"redis://:old@h":                  "redis://@h",
		"nats://token@a,nats://ann:old@b": "nats://***@a,nats://ann@b",
	} {
		if got := mask.Place(in); got != want {
			t.Errorf("Place(%q) = %q, want %q", in, got, want)
		}
	}
}
