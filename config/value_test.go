package config_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/megaframework/mega/config"
)

// Package fmt calls no method of a value in a field that is not exported.
func TestSecretsInUnexportedFieldsAreMasked(t *testing.T) {
	const password = "s3cret"
	type client struct {
		token  config.Secret
		url    config.URL
		Nested []config.Secret
	}
	var c client
	if err := c.token.UnmarshalText([]byte(password)); err != nil {
		t.Fatal(err)
	}
	if err := c.url.UnmarshalText([]byte("redis://u:" + password + "@host/0")); err != nil {
		t.Fatal(err)
	}
	c.Nested = []config.Secret{c.token}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("open", "client", c)
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", &c), fmt.Sprintf("%#v", c), fmt.Sprintf("%#v", c.token), log.String()} {
		if strings.Contains(text, password) {
			t.Errorf("it has the secret: %s", text)
		}
	}
}
