package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/megatest"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

func TestLanguageIsTheBrowsersUntilItIsChosen(t *testing.T) {
	kit := offline(t)
	page := []string{"Accept: text/html", "Accept-Language: ko-KR,ko;q=0.9,en;q=0.5"}
	kit.Get("/ledger", page...).Status(http.StatusOK).Contains(`<html lang="ko">`).Contains("<h1>판매 장부</h1>")
	kit.Get("/products/9", page...).Status(http.StatusNotFound).Contains("그런 상품이 없습니다.")

	chosen := kit.Post("/language", strings.NewReader("to=en"), asForm, "Referer: http://shop.example/ledger?page=2").
		Status(http.StatusSeeOther).Header("Location", "/ledger?page=2").Recorded.Header().Get("Set-Cookie")
	cookie, _, _ := strings.Cut(chosen, ";")
	kit.Get("/ledger", append(page, "Cookie: "+cookie)...).Status(http.StatusOK).Contains(`<html lang="en">`)
}

// The answer to an action has no address of its own, and another site is no page
// of the shop.
func TestLanguageReturnsToAPage(t *testing.T) {
	kit := offline(t)
	for referer, want := range map[string]string{
		"":                                       "/",
		"http://shop.example/":                   "/",
		"http://shop.example/products/7":         "/products/7",
		"http://shop.example/products/7/buy?x=1": "/products/7",
		"http://shop.example/locks/race":         "/locks",
		"http://shop.example//evil.example":      "/",
		"%":                                      "/",
	} {
		kit.Post("/language", strings.NewReader("to=tlh"), asForm, "Referer: "+referer).Status(http.StatusSeeOther).Header("Location", want)
	}
}

// Addresses of the shop have its prefix. The kit asks the app itself, which does not see it.
func TestTheShopMayHaveAPrefix(t *testing.T) {
	kit := megatest.New(t, megatest.Config{
		Set: []string{"apps.main.prefix=/shop", "database.url=sqlite://" + filepath.Join(t.TempDir(), "shop.db")},
	}, program(services.UnderLock))
	kit.Post("/products", map[string]any{"name": "Lamp", "price": 1, "stock": 1}).Status(http.StatusCreated).Header("Location", "/shop/products/1")
	for referer, want := range map[string]string{
		"http://shop.example/shop/products/1/edit": "/shop/products/1/edit",
		"http://shop.example/shop/ledger?page=2":   "/shop/ledger?page=2",
		"http://shop.example/products/1":           "/shop/",
	} {
		kit.Post("/language", strings.NewReader("to=ko"), asForm, "Referer: "+referer).Status(http.StatusSeeOther).Header("Location", want)
	}
}

// The boot report is in English, for operators. The pages translate it.
func TestReasonsOfDriversAreInTheLanguageOfThePage(t *testing.T) {
	s := openShop(t)
	for path, want := range map[string]string{
		"/locks":     "<dd>캐시도 클러스터도 설정되지 않았습니다</dd>",
		"/bus":       "<dd>NATS 서버도 클러스터도 설정되지 않았습니다</dd>",
		"/windows":   "<dd>잠금이 이 드라이버를 씁니다</dd>",
		"/sandboxes": "범위 이 프로세스",
	} {
		if a, err := s.send("GET", path, "", "Accept: text/html", "Accept-Language: ko"); err != nil || !strings.Contains(a.body, want) {
			t.Errorf("%s lacks %q: %d %s, %v", path, want, a.status, a.body, err)
		}
	}
}
