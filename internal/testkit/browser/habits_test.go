package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// A form that is sent before the script of a slow network has arrived shows its result at
// the address of the action, which answers no GET.
func TestThePageOfAnActionIsLive(t *testing.T) {
	base := serve(t, "crud", []string{"main"}).addr["main"]
	b := open(t, browser(t), wide)
	b.visit(base + "/locks")
	b.do("send the form without the script", chromedp.Evaluate[chromedp.Void](`void document.querySelector('form[action="/locks/try"]').submit()`))
	b.arrives(`location.pathname === "/locks/try"`)
	b.awaits(`document.querySelector("[data-open]") !== null`)
	send(t, base+"/locks/hold", `{"seconds":1}`, http.StatusAccepted)
	b.awaits(`document.querySelector("#trail [data-step=acquired]") !== null`)
}

// The page of an error in env dev has nothing but its detail that the page of the action
// could show.
func TestAFailedActionIsShown(t *testing.T) {
	addr := free(t)
	server := startRedis(t, addr)
	t.Cleanup(func() { end(server) })
	b := open(t, browser(t), wide)
	b.visit(serve(t, "crud", []string{"main"}, "MEGA_CACHE_MAIN_URL=redis://"+addr).addr["main"] + "/locks")
	b.awaits(`document.querySelector("[data-open]") !== null`)
	end(server)
	b.press(`form[action="/locks/try"] button`)
	b.awaits(`document.querySelector("#notice .bad")?.textContent === "Locks are not available. Try again in a moment."`)
	server = startRedis(t, addr)
	b.awaits(`document.getElementById("lost").hidden`) // a program ends in order with its backend alone
}

// countSpoken counts the changes of text that a screen reader announces, and all of them.
const countSpoken = `window.changes = 0; window.spoken = [];
	new MutationObserver((all) => all.forEach(({ target }) => {
		window.changes++;
		const region = target.parentElement && (target.closest ?? target.parentElement.closest).call(target.closest ? target : target.parentElement,
			"[aria-live], output, [role=status], [role=alert], [role=log]");
		if (region && region.ariaLive !== "off") window.spoken.push(region.outerHTML.slice(0, 120));
	})).observe(document.body, { subtree: true, childList: true, characterData: true }); undefined`

// The ages of locks and the progress of a race change without end: a screen reader that
// announces them says nothing else.
func TestScreenReadersDoNotCountAlong(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"}, "MEGA_PICKING_TIME=1m")
	chromium := browser(t)
	go abandon(t.Context(), multi.addr["web"]+"/orders", `{"product":"lamp","quantity":1}`) // holds its lock meanwhile
	admin, locks := open(t, chromium, wide), open(t, chromium, wide)
	admin.visit(multi.addr["admin"])
	admin.awaits(`document.querySelector("#locks time") !== null`)
	locks.visit(crud.addr["main"] + "/locks")
	locks.awaits(`document.querySelector("[data-open]") !== null`)
	for _, b := range []*tab{admin, locks} {
		b.do("count", chromedp.Evaluate[chromedp.Void](countSpoken))
	}
	locks.do("race for 1 s", chromedp.Evaluate[chromedp.Void](`void (document.getElementById("buyers").value = 100, document.getElementById("work").value = 10)`))
	locks.press(`button[value=lock]`)
	locks.awaits(`document.querySelector("#result svg") !== null`)
	admin.awaits(`window.changes > 2`)
	if all := get(admin, chromedp.Evaluate[[]string](`window.spoken`)); len(all) > 0 {
		t.Errorf("admin announces %d changes: %s", len(all), all[0])
	}
	if all := get(locks, chromedp.Evaluate[[]string](`window.spoken`)); len(all) > 3 { // the result, and the notice
		t.Errorf("the race announces %d changes: %s", len(all), strings.Join(all[:3], "\n"))
	}
}

// A user of a keyboard or of a screen reader continues at the error.
func TestTheFirstWrongFieldHasTheFocus(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	send(t, crud.addr["main"]+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	b := open(t, browser(t), wide)
	for _, x := range []struct {
		url, form, want string
		values          map[string]string
	}{
		{crud.addr["main"] + "/products/new", "main form", "price", map[string]string{"name": "Lamp", "price": "9,999", "stock": "-1"}},
		{crud.addr["main"] + "/products/1", "section form", "quantity", map[string]string{"quantity": "0"}},
		{crud.addr["main"] + "/sandboxes", `form[action="/sandboxes"]`, "seconds", map[string]string{"seconds": "999"}},
		{multi.addr["web"], `form[action="/orders"]`, "quantity", map[string]string{"quantity": "0"}},
		{multi.addr["admin"], `form[action="/restocks"]`, "product", map[string]string{"product": "a b", "quantity": "0"}},
	} {
		b.visit(x.url)
		b.send(x.form, x.values)
		if on := get(b, chromedp.Evaluate[string](`document.activeElement.name ?? document.activeElement.tagName`)); on != x.want {
			t.Errorf("%s: the focus is on %s, want %s", x.url, on, x.want)
		}
	}
}

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

// A reader who needs large text has raised the size of text in the browser. A narrow screen
// then has 12 em, in which a page is not wider than the screen.
func TestTextHasTheSizeThatItsReaderChose(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	send(t, crud.addr["main"]+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	send(t, crud.addr["main"]+"/products/1/buy", `{"quantity":1}`, http.StatusOK)
	order(t, multi, "lamp")
	b := open(t, browser(t), narrow)
	urls := []string{multi.addr["web"], multi.addr["admin"], multi.addr["ops"] + "/console/locks"}
	for _, page := range []string{"/products", "/products/1", "/products/new", "/ledger", "/locks", "/bus", "/windows", "/sandboxes"} {
		urls = append(urls, crud.addr["main"]+page)
	}
	for _, url := range urls {
		if before, after := b.heading(url, 16), b.heading(url, 32); after != 2*before {
			t.Errorf("%s: the heading has %v pixels, and %v with text of twice the size", url, before, after)
		}
		for _, fault := range b.overflow(narrow) {
			t.Errorf("%s: %s", url, fault)
		}
	}
}

// heading returns the size of the heading of a page in a browser with a size of text.
func (b *tab) heading(url string, size int64) float64 {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, page.SetFontSizes, page.SetFontSizesParams{FontSizes: &page.FontSizes{Standard: size}}); err != nil {
		b.t.Fatal(err)
	}
	b.visit(url)
	return get(b, chromedp.Evaluate[float64](`parseFloat(getComputedStyle(document.querySelector("h1")).fontSize)`))
}
