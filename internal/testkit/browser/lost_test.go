package browser_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// A page that shows old values says so, and recovers by itself.
func TestPagesSayThatTheServerIsGone(t *testing.T) {
	const connected = `document.getElementById("lost").hidden`
	multi := serve(t, "multi", []string{"web", "admin"})
	crud := serve(t, "crud", []string{"main"})
	chromium := browser(t)
	var pages []*tab
	for _, url := range []string{multi.addr["web"], multi.addr["admin"], crud.addr["main"] + "/locks", crud.addr["main"] + "/bus", crud.addr["main"] + "/windows"} {
		b := open(t, chromium, narrow)
		b.visit(url)
		b.awaits(connected)
		pages = append(pages, b)
	}
	console := open(t, chromium, wide)
	console.visit(multi.addr["ops"] + "/console/locks")
	console.awaits(has("#liveness", "Live"))

	if err := multi.running.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	console.awaits(has("#liveness", "No answer"))
	console.picture("console-stopped")
	for _, b := range pages[:2] {
		b.awaits("!" + connected)
	}
	if err := multi.running.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	console.awaits(has("#liveness", "Live"))
	for _, b := range pages[:2] {
		b.awaits(connected)
	}

	multi.end()
	crud.end()
	for _, b := range pages {
		b.awaits("!" + connected)
	}
	pages[1].picture("multi-lost")
	pages[2].picture("crud-lost")
	console.awaits(has("#liveness", "Not connected"))
	multi.run(t)
	crud.run(t)
	for _, b := range pages {
		b.awaits(connected)
	}
	console.awaits(has("#liveness", "Live"))
}

// A page that nobody sees leaves its connection to others: a browser has six to one
// server, for all of its tabs. Without a screen, Chromium shows every tab: the test
// hides them.
func TestEightTabsOfOneServer(t *testing.T) {
	const live = `document.getElementById("lost")?.hidden || document.getElementById("liveness")?.textContent === "Live"`
	p := serve(t, "multi", []string{"web", "admin"})
	chromium := browser(t)
	for _, url := range []string{p.addr["web"], p.addr["ops"] + "/console/bus"} {
		var first *tab
		for range 8 {
			b := open(t, chromium, wide)
			b.visit(url)
			b.awaits(live)
			b.hide(true)
			if first == nil {
				first = b
			}
		}
		first.hide(false)
		first.awaits(live)
	}
}

// hide tells a page that its tab is hidden, or is seen again.
func (b *tab) hide(hidden bool) {
	b.t.Helper()
	b.do("hide the tab", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
		`Object.defineProperty(document, "hidden", { value: %t, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); undefined`, hidden)))
}
