package browser_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
)

// A page that comes back from the cache of the browser works as it did.
func TestBackBringsAPageThatWorks(t *testing.T) {
	const buy = `void document.querySelector('form[action="/products/1/buy"] button').click()`
	base := serve(t, "crud", []string{"main"}).addr["main"]
	send(t, base+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	b := open(t, browser(t), wide)
	for left := 2; left > 0; left-- {
		b.visit(base + "/products")
		b.do("buy", chromedp.Evaluate[chromedp.Void](buy))
		b.arrives(fmt.Sprintf(`document.getElementById("left")?.textContent === "%d"`, left))
		b.do("go back", chromedp.Evaluate[chromedp.Void](`history.back()`))
		b.arrives(`location.pathname === "/products"`)
	}
	b.do("buy", chromedp.Evaluate[chromedp.Void](buy))
	b.arrives(`document.getElementById("left")?.textContent === "0"`)
}
