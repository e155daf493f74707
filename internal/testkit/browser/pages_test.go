package browser_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// maxPages bounds the pages of one address that are looked at.
const maxPages = 40

// everyPage opens the pages of an address, from those that are named on along
// their links, on every screen.
func everyPage(t *testing.T, chromium context.Context, name, base string, known ...string) {
	t.Helper()
	for _, s := range screens {
		t.Run(s.String(), func(t *testing.T) { open(t, chromium, s).everyPage(s, name, base, known...) })
	}
}

// everyPage opens the pages of an address in a tab.
func (b *tab) everyPage(s screen, name, base string, known ...string) {
	pages := slices.Clone(known)
	seen := map[string]bool{} // by shape
	for i := 0; i < len(pages) && len(seen) < maxPages; i++ {
		u, err := url.Parse(pages[i])
		if err != nil {
			b.t.Fatal(err)
		}
		if seen[shapeOf(u)] {
			continue
		}
		seen[shapeOf(u)] = true
		b.t.Run(pages[i], func(t *testing.T) {
			b := b.in(t)
			b.visit(base + pages[i])
			pages = append(pages, b.links()...)
			b.isSound(s, name+pages[i])
		})
	}
}

// isSound reports the faults of the page, and leaves a picture of it.
func (b *tab) isSound(s screen, name string) {
	b.t.Helper()
	for _, fault := range b.faults(s) {
		b.t.Error(fault)
	}
	b.picture(name + "-" + s.String())
}

// shapeOf is the path of a page with a digit for each number in it, and the names
// of its parameters: pages that differ in no more than this are of one kind.
func shapeOf(u *url.URL) string {
	var b strings.Builder
	for part := range strings.SplitSeq(u.Path, "/") {
		if strings.Trim(part, "0123456789") == "" && part != "" {
			part = "0"
		}
		b.WriteString("/" + part)
	}
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		b.WriteString("?" + name)
	}
	return b.String()
}

func TestPagesOfMulti(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"})
	long := strings.Repeat("W", 100)
	send(t, p.addr["admin"]+"/restocks", fmt.Sprintf(`{"product":%q,"quantity":1}`, long), http.StatusOK)
	order(t, p, long)
	order(t, p, "lamp")
	order(t, p, "chair")
	send(t, p.addr["admin"]+"/refunds", `{"order":1}`, http.StatusOK)
	send(t, p.addr["web"]+"/orders", `{"product":"teapot","quantity":3}`, http.StatusCreated) // sold out
	chromium := browser(t)
	for _, app := range []string{"web", "admin"} {
		t.Run(app, func(t *testing.T) { everyPage(t, chromium, "multi-"+app, p.addr[app], "/") })
	}
}

func TestPageOfAdminWithALock(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"}, "MEGA_PICKING_TIME=1m")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go abandon(ctx, p.addr["web"]+"/orders", `{"product":"lamp","quantity":1}`) // holds its lock meanwhile
	chromium := browser(t)
	for _, s := range screens {
		t.Run(s.String(), func(t *testing.T) {
			b := open(t, chromium, s)
			b.visit(p.addr["admin"])
			b.awaits(has("#locks", "product:lamp"))
			b.isSound(s, "multi-admin-held")
		})
	}
}

// A page that is wrong in every way is found to be.
func TestFaultsAreFound(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>x</title><style>a { outline: none }</style><main><h1>x</h1>
			<div style="width: 2000px">wide</div> <img src="/none.png"> <p style="color: #bbb; background: #fff">pale</p>
			<a href="/">home</a> <button tabindex="-1">out of reach</button> <button disabled style="color: #555; background: #444">dark</button> <script>console.error("broken")</script>
			<table><tbody><tr><td>2</td></tr></tbody></table><meter value="0.5"></meter></main>`)
	}))
	defer server.Close()
	b := open(t, browser(t), wide)
	b.visit(server.URL)
	found := strings.Join(b.faults(wide), "\n")
	for _, want := range []string{
		"too wide: 2", "image-alt", "color-contrast", "the focus does not show on <a", "the tab key does not reach <button", "error: broken", "404", "a number without a label: <td>2", "a meter without a name",
		"a disabled button cannot be read: <button",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("%q is not among the faults:\n%s", want, found)
		}
	}
}

func TestPagesOfTheConsole(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"}, "MEGA_PICKING_TIME=1m")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go abandon(ctx, p.addr["web"]+"/orders", `{"product":"lamp","quantity":1}`) // holds its lock meanwhile
	everyPage(t, browser(t), "console", p.addr["ops"], "/console")
}

// A stream replaces the content of a page about once a second. A user of the keyboard keeps
// the place.
func TestFocusStaysOnALinkOfTheConsole(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"})
	b := open(t, browser(t), wide)
	for _, page := range []string{"/console", "/console/locks"} { // the leader of an app holds a lock
		b.visit(p.addr["ops"] + page)
		b.awaits(`document.querySelector("#live a")`)
		b.do("focus a link", chromedp.Evaluate[chromedp.Void](`void (window.before = document.querySelector("#live a")).focus()`))
		b.awaits(`!window.before.isConnected`)
		if on := get(b, chromedp.Evaluate[string](`document.activeElement.href ?? document.activeElement.tagName`)); on != get(b, chromedp.Evaluate[string](`window.before.href`)) {
			t.Errorf("%s: the focus is on %s", page, on)
		}
	}
}

// The second form of a double click would find that the lease has ended, or, for
// every slot of a pool, end the next holders'.
func TestADoubleClickReleasesOnce(t *testing.T) {
	const notice = "main p.note[role=status]"
	p := serve(t, "multi", []string{"web", "admin"}, "MEGA_PICKING_TIME=1m")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go abandon(ctx, p.addr["web"]+"/orders", `{"product":"lamp","quantity":1}`) // holds its lock meanwhile
	b := open(t, browser(t), wide)
	b.visit(p.addr["ops"] + "/console/locks")
	b.awaits(`document.querySelector("#live a.key[href*=product]")`)
	b.visit(get(b, chromedp.Evaluate[string](`document.querySelector("#live a.key[href*=product]").href`)))
	b.do("enter the reason", chromedp.SendKeys(chromedp.CSS("#reason"), "stuck"))
	if sent := get(b, chromedp.Evaluate[string](`(() => {
		const form = document.querySelector('form[method="post"]'), sent = [];
		form.addEventListener("submit", (event) => sent.push(!event.defaultPrevented));
		form.requestSubmit();
		form.requestSubmit();
		return [...sent, getComputedStyle(form).opacity < 1].join();
	})()`)); sent != "true,false,true" {
		t.Errorf("sent: %s, want the first form alone, and pale", sent)
	}
	b.do("wait for the notice", chromedp.WaitVisible(chromedp.CSS(notice)))
	if text := get(b, chromedp.Evaluate[string](`document.querySelector("`+notice+`").textContent`)); text != "Released by force: 1 lease." {
		t.Errorf("the notice is %q", text)
	}
}

// A user who has stopped the browser, because nothing answered, sends the form again.
func TestAFormOfTheConsoleIsSentAgainAfterStop(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"})
	b := open(t, browser(t), wide)
	b.visit(p.addr["ops"] + "/console/locks")
	b.awaits(`document.querySelector("#live a.key")`) // of the leader of an app
	b.visit(get(b, chromedp.Evaluate[string](`document.querySelector("#live a.key").href`)))
	b.do("enter the reason", chromedp.SendKeys(chromedp.CSS("#reason"), "stuck"))
	if sent := get(b, chromedp.Evaluate[string](`(() => {
		const form = document.querySelector('form[method="post"]'), sent = [];
		addEventListener("submit", (event) => {
			sent.push(!event.defaultPrevented);
			event.preventDefault(); // the page does not leave for the answer
		});
		form.requestSubmit();
		navigation.dispatchEvent(new Event("navigateerror"));
		form.requestSubmit();
		return sent.join();
	})()`)); sent != "true,true" {
		t.Errorf("sent: %s, want both forms", sent)
	}
}

// abandon posts JSON, and leaves with ctx.
func abandon(ctx context.Context, url, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	if answer, err := http.DefaultClient.Do(request); err == nil {
		_ = answer.Body.Close()
	}
}
