package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// shopkeeper starts the shop with so many products and sales that both have two
// pages.
func shopkeeper(t *testing.T) (base string) {
	t.Helper()
	base = serve(t, "crud", []string{"main"}).addr["main"]
	send(t, base+"/products", `{"name":"A lamp with a rather long name, as shops have them, and a word of `+strings.Repeat("W", 100)+`","price":49.5,"stock":30}`, http.StatusCreated)
	send(t, base+"/products", `{"name":"책상","price":120,"stock":1}`, http.StatusCreated)
	for i := range 20 {
		send(t, base+"/products", fmt.Sprintf(`{"name":"Chair %d","price":20,"stock":%d}`, i, i%3), http.StatusCreated)
		send(t, base+"/products/1/buy", `{"quantity":1}`, http.StatusOK)
	}
	send(t, base+"/products/2/buy", `{"quantity":1}`, http.StatusOK)
	return base
}

// speaks has the shop answer a tab in a language, by the button in its navigation.
func (b *tab) speaks(base, language string) {
	b.t.Helper()
	b.visit(base)
	if get(b, chromedp.Evaluate[string](`document.documentElement.lang`)) == language {
		return
	}
	b.do("choose the language", chromedp.Click(chromedp.CSS(".language button")))
	b.arrives(fmt.Sprintf("document.documentElement.lang === %q", language))
}

// arrives waits until the next page is there, of which an expression is true. On
// the way from one page to the next the browser has none to ask.
func (b *tab) arrives(expression string) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, bound)
	defer end()
	for {
		there, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression+` && document.readyState === "complete"`))
		switch {
		case err == nil && there:
			return
		case ctx.Err() != nil:
			b.t.Fatalf("no page with %s arrives: %v", expression, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestPagesOfCrud(t *testing.T) {
	base, chromium := shopkeeper(t), browser(t)
	for _, language := range []string{"en", "ko"} {
		for _, s := range screens {
			t.Run(language+"-"+s.String(), func(t *testing.T) {
				b := open(t, chromium, s)
				b.speaks(base, language)
				b.everyPage(s, "crud-"+language, base, "/", "/products?q=lamp", "/products?q=sofa")
			})
		}
	}
}

// send sends the form of the page's content with other values, which the browser
// itself does not check.
func (b *tab) send(form string, values map[string]string) {
	b.t.Helper()
	fill := fmt.Sprintf("window.form = document.querySelector(%q); form.noValidate = true;", form)
	for name, value := range values {
		fill += fmt.Sprintf("form.elements[%q].value = %q;", name, value)
	}
	b.do("fill "+form, chromedp.Evaluate[chromedp.Void](fill+"undefined"))
	b.do("send "+form, chromedp.Evaluate[chromedp.Void]("window.sent = true; form.requestSubmit(); undefined"))
	b.arrives("window.sent === undefined") // which the next page does not have
}

// The pages that only an action shows.
func TestFormsOfCrud(t *testing.T) {
	base, chromium := shopkeeper(t), browser(t)
	for _, language := range []string{"en", "ko"} {
		for _, s := range []screen{wide, narrow} {
			t.Run(language+"-"+s.String(), func(t *testing.T) {
				b := open(t, chromium, s)
				b.speaks(base, language)
				shot := func(page string) { b.isAnswer(s, "crud-"+language+"-"+page) }

				b.visit(base + "/products/99")
				shot("not-found")
				b.visit(base + "/products/new")
				b.send("main form", map[string]string{"name": "", "price": "9,999", "stock": "-1"})
				shot("new-refused")
				b.send("main form", map[string]string{"name": "램프", "price": "9.99", "stock": "2"})
				shot("created")

				b.send("section form", map[string]string{"quantity": "3"})
				shot("sold-out")
				b.send("section form", map[string]string{"quantity": "0"})
				shot("order-refused")
				b.do("edit", chromedp.Evaluate[chromedp.Void](`window.product = location.pathname.replace("/buy", ""); location = product + "/edit"; undefined`))
				b.arrives(`location.pathname.endsWith("/edit")`)
				b.send("main form", map[string]string{"name": "", "version": "1"})
				shot("edit-refused")
				b.send("main form", map[string]string{"name": "Lantern", "version": "0"})
				shot("conflict")
				b.send("main form", nil)
				shot("saved")
				b.send("section form", nil)
				shot("bought")
				b.send("details form", nil)
				shot("removed")
			})
		}
	}
}

// isAnswer reports the faults of a page, whose status may be that of an error.
func (b *tab) isAnswer(s screen, name string) {
	b.t.Helper()
	for _, fault := range b.faults(s) {
		if !strings.Contains(fault, "the server responded with a status of 4") {
			b.t.Errorf("%s: %s", name, fault)
		}
	}
	b.picture(name + "-" + s.String())
}

// Each form of a double click reaches the server, and the sale of the first one may be
// committed by then. So does the form of an impatient visitor, until the visitor stops the
// browser. A form on its way is pale.
func TestADoubleClickBuysOnce(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	send(t, crud.addr["main"]+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	b := open(t, browser(t), wide)
	for _, x := range []struct{ url, form string }{
		{crud.addr["main"] + "/products/1", `form[action$="/buy"]`},
		{multi.addr["web"], `form[action$="/orders"]`},
	} {
		b.visit(x.url)
		if sent := get(b, chromedp.Evaluate[string](fmt.Sprintf(`(() => new Promise((done) => {
			const form = document.querySelector(%q), sent = [];
			addEventListener("submit", (event) => {
				sent.push(!event.defaultPrevented);
				event.preventDefault(); // the page does not leave for the answer
			});
			form.requestSubmit();
			form.requestSubmit();
			setTimeout(() => {
				form.requestSubmit();
				const pale = getComputedStyle(form).opacity < 1;
				navigation.dispatchEvent(new Event("navigateerror"));
				const again = getComputedStyle(form).opacity < 1;
				form.requestSubmit();
				done([...sent, pale, again].join());
			}, 2000);
		}))()`, x.form), chromedp.EvalAwaitPromise)); sent != "true,false,false,true,true,false" {
			t.Errorf("%s: sent: %s, want the first form alone, and pale, until the browser is stopped", x.url, sent)
		}
	}
}

// A browser without the Navigation API does not report that the visitor has stopped it.
func TestAFormIsSentAgainInABrowserThatReportsNoStop(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	send(t, crud.addr["main"]+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	b := open(t, browser(t), wide)
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `Object.defineProperty(window, "navigation", { value: undefined })`,
	}); err != nil {
		t.Fatal(err)
	}
	b.visit(multi.addr["ops"] + "/console/locks")
	b.awaits(`document.querySelector("#live a.key")`) // of the leader of an app
	for _, x := range []struct{ url, form string }{
		{crud.addr["main"] + "/products/1", `form[action$="/buy"]`},
		{multi.addr["web"], `form[action$="/orders"]`},
		{get(b, chromedp.Evaluate[string](`document.querySelector("#live a.key").href`)), `form[method="post"]`},
	} {
		b.visit(x.url)
		b.do("send the form", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`window.tries = []; window.form = document.querySelector(%q);
			if (form.elements.reason) form.elements.reason.value = "stuck";
			addEventListener("submit", (event) => {
				tries.push(!event.defaultPrevented);
				event.preventDefault(); // as after a stop
			});
			form.requestSubmit(); form.requestSubmit(); setInterval(() => form.requestSubmit(), 500); undefined`, x.form)))
		b.awaits(`tries.lastIndexOf(true) > 10`) // not within 4 s
		if at := get(b, chromedp.Evaluate[int](`tries.indexOf(true, 1)`)); at < 10 {
			t.Errorf("%s: the form was sent again after %d other attempts", x.url, at-1)
		}
	}
}

// A race that has not ended is not run a second time beside it.
func TestADoubleClickRacesOnce(t *testing.T) {
	b := open(t, browser(t), wide)
	b.visit(serve(t, "crud", []string{"main"}).addr["main"] + "/locks")
	b.awaits(`document.querySelector("[data-open]") !== null`)
	b.do("press twice", chromedp.Evaluate[chromedp.Void](`(() => {
		const button = document.querySelector("button[value=lock]"), { fetch } = window;
		window.races = 0;
		window.fetch = (to, how) => {
			if (how.method === "POST") window.races++;
			return fetch(to, how);
		};
		button.click();
		button.click();
		navigation.dispatchEvent(new Event("navigateerror")); // of a link that the visitor has stopped
		button.click();
	})()`))
	b.awaits(`document.querySelector("#result svg") !== null`)
	if sent := get(b, chromedp.Evaluate[int](`window.races`)); sent != 1 {
		t.Errorf("%d races were run, want 1", sent)
	}
}
