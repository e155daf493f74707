package plan_test

import (
	"testing"

	"github.com/megaframework/mega/internal/plan"
)

func TestLinkOfAnAppHasItsHost(t *testing.T) {
	const url = "http://127.0.0.1:8082/docs"
	for host, want := range map[string]string{
		"":              url,
		"localhost":     "http://localhost:8082/docs",
		"*.example.org": url,
	} {
		if got := (plan.Served{URL: url, Host: host}).Link(); got != want {
			t.Errorf("%q: got %s, want %s", host, got, want)
		}
	}
}
