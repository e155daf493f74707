package secrets

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/config"
)

func TestSecretsAreTakenOutOfWhatOthersSay(t *testing.T) {
	url := func(s string) (u config.URL) {
		if err := u.UnmarshalText([]byte(s)); err != nil {
			t.Fatal(err)
		}
		return u
	}
	secret := func(text string) (s config.Secret) {
		_ = s.UnmarshalText([]byte(text))
		return s
	}
	type inner struct{ Token config.Secret }
	var f finder
	f.collect(reflect.ValueOf(struct {
		URL    config.URL
		Caches map[string]struct{ URL config.URL }
		Inner  *inner
		List   []config.Secret
		None   *inner
		Short  config.Secret
		hidden config.Secret
		At     time.Time
	}{
		URL:    url("postgres://app:p%40ssword@db/shop?sslmode=disable&password=queried"),
		Caches: map[string]struct{ URL config.URL }{"main": {url("redis://:redispass@cache:6379/0")}},
		Inner:  &inner{secret("tokentext")}, List: []config.Secret{secret("listed"), secret(""), secret("listed and more")}, Short: secret("abc"), hidden: secret("unseen"),
	}))
	var v Veil
	v.conceal(f.texts)
	hide := v.Text
	for _, text := range []string{
		`dial "postgres://app:p%40ssword@db/shop?sslmode=disable&password=queried": no`,
		"listed and more", "wrong password p@ssword", "wrong password p%40ssword", "wrong password queried", "AUTH redispass", "bad token tokentext", "listed",
	} {
		got := hide(text)
		for _, leak := range []string{"p%40ssword", "p@ssword", "queried", "redispass", "tokentext", "listed", "more"} {
			if strings.Contains(got, leak) {
				t.Errorf("%q becomes %q", text, got)
			}
		}
	}
	if got := hide("db is down, abc unseen"); got != "db is down, abc unseen" {
		t.Errorf("a harmless text becomes %q", got)
	}
}

// node is a value of an application that refers to itself.
type node struct {
	Next  *node
	All   []any
	Names map[string]any
	Token config.Secret
}

func TestSecretsOfAValueThatRefersToItselfAreFound(t *testing.T) {
	n := &node{Names: map[string]any{}, All: make([]any, 1)}
	n.Next, n.All[0], n.Names["self"] = n, n.All, n.Names
	_ = n.Token.UnmarshalText([]byte("tokentext"))
	var f finder
	f.collect(reflect.ValueOf(n))
	if len(f.texts) != 1 || f.texts[0] != "tokentext" {
		t.Errorf("found %q", f.texts)
	}
}

func TestAttributesThatPrintAreNotCopied(t *testing.T) {
	var v Veil
	for _, a := range []slog.Attr{slog.String(slog.MessageKey, "request served"), slog.String("route", "/products/{id}"), slog.Int("status", 200)} {
		if n := testing.AllocsPerRun(100, func() { v.TextAttr(nil, a) }); n != 0 {
			t.Errorf("%s: %v allocations", a, n)
		}
	}
}
