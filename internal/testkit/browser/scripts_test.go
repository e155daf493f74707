package browser_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// withoutScripts has the pages of the tab run no scripts of their own.
func (b *tab) withoutScripts() {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		b.t.Fatal(err)
	}
}

// A visitor without scripts sees the result of each form on the page that answers it.
func TestFormsOfCrudNeedNoScript(t *testing.T) {
	base := serve(t, "crud", []string{"main"}).addr["main"]
	send(t, base+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	b := open(t, browser(t), wide)
	b.withoutScripts()
	for _, x := range []struct{ page, button string }{
		{"/products", "td button"},
		{"/products/1", "section button.main"},
		{"/locks", "button[value=lock]"},
		{"/locks", `form[action="/locks/hold"] button`},
		{"/locks", `form[action="/locks/try"] button`},
		{"/locks", `form[action="/locks/extend"] button`},
		{"/locks", `form[action="/locks/release"] button`},
		{"/locks", `form[action="/locks/force"] button`},
		{"/bus", `form[action="/bus/publish"] button`},
		{"/bus", `form[action="/bus/jobs"] button`},
		{"/bus", `button[value="demo.nobody"]`},
		{"/bus", `form[action="/bus/slow"] button`},
		{"/windows", "button[value=wait]"},
		{"/sandboxes", "section button.main"},
	} {
		b.visit(base + x.page)
		b.do("mark the page", chromedp.Evaluate[chromedp.Void](`void (window.before = true)`))
		b.press(x.button)
		b.arrives(`window.before === undefined`)
		if shown := get(b, chromedp.Evaluate[bool](`[...document.querySelectorAll("main .notice")].some((p) => p.checkVisibility())`)); !shown {
			t.Errorf("%s: nothing is shown after %s", x.page, x.button)
		}
	}
}

// The script counts the seconds. Without it the page has the time.
func TestAdminShowsWithoutScriptsSinceWhenALockIsHeld(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"}, "MEGA_PICKING_TIME=1m")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go abandon(ctx, p.addr["web"]+"/orders", `{"product":"lamp","quantity":1}`) // holds its lock meanwhile
	b, plain := open(t, browser(t), wide), open(t, browser(t), wide)
	b.visit(p.addr["admin"])
	b.awaits(`/^for \d+ s$/.test(document.querySelector("#locks time")?.textContent)`)
	plain.withoutScripts()
	plain.visit(p.addr["admin"])
	if text := get(plain, chromedp.Evaluate[string](`document.querySelector("#locks time").textContent.replace(/\d+/g, "0")`)); text != "since 0:0:0 UTC" {
		t.Errorf("the page has %q", text)
	}
}
