package browser_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The first press of Tab shows a link to the content. On a narrow screen it lies over the
// name of the program.
func TestTheLinkToTheContentCanBeReadAndLeadsThere(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	b := open(t, browser(t), narrow)
	for _, url := range []string{crud.addr["main"] + "/products", multi.addr["web"], multi.addr["ops"] + "/console/locks"} {
		b.visit(url)
		b.do("press tab", chromedp.KeyEvent(kb.Tab))
		if seen := get(b, chromedp.Evaluate[string](`(() => {
			const link = document.activeElement, { left, top } = link.getBoundingClientRect();
			return [link.className, left >= 0 && top >= 0, getComputedStyle(link).backgroundColor.startsWith("rgb(")].join();
		})()`)); seen != "skip,true,true" {
			t.Errorf("%s: class, on the screen, opaque: %s", url, seen)
		}
		b.do("follow the link", chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
		if !get(b, chromedp.Evaluate[bool](`document.activeElement.closest("main") !== null`)) {
			t.Errorf("%s: the link leads to %s", url, get(b, chromedp.Evaluate[string](`document.activeElement.outerHTML`)))
		}
	}
}

// Shift and Tab lead back through the same elements.
func TestShiftTabLeadsBack(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	send(t, crud.addr["main"]+"/products", `{"name":"Lamp","price":1,"stock":3}`, http.StatusCreated)
	b := open(t, browser(t), wide)
	for _, url := range []string{crud.addr["main"] + "/products/1", crud.addr["main"] + "/locks", multi.addr["admin"], multi.addr["ops"] + "/console/locks"} {
		b.visit(url)
		b.do("name elements", chromedp.Evaluate[chromedp.Void](nameOf+`, undefined`))
		var there, back []string
		for range get(b, chromedp.Evaluate[int](usable+`.length`)) {
			b.do("press tab", chromedp.KeyEvent(kb.Tab))
			there = append(there, get(b, chromedp.Evaluate[string](`nameOf(document.activeElement)`)))
		}
		for range there {
			back = append(back, get(b, chromedp.Evaluate[string](`nameOf(document.activeElement)`)))
			b.do("press shift and tab", chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
		}
		slices.Reverse(back)
		if !slices.Equal(there, back) {
			t.Errorf("%s: there\n%q\nback\n%q", url, there, back)
		}
	}
}

// A mode with forced colors shows every border, also a transparent one.
func TestForcedColorsMarkTheCurrentPageAlone(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"})
	b := open(t, browser(t), wide)
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}},
	}); err != nil {
		t.Fatal(err)
	}
	b.visit(p.addr["ops"] + "/console/locks")
	if marked := get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("nav a")]
		.filter((a) => getComputedStyle(a).borderBottomWidth !== "0px").map((a) => a.textContent)`)); !slices.Equal(marked, []string{"Locks"}) {
		t.Errorf("%q are marked", marked)
	}
}

// The notice of a lost connection stays at the end of the screen.
func TestTheNoticeOfALossDoesNotHideTheFocus(t *testing.T) {
	crud, multi := serve(t, "crud", []string{"main"}), serve(t, "multi", []string{"web", "admin"})
	order(t, multi, "lamp") // a row with buttons
	b := open(t, browser(t), narrow)
	for _, url := range []string{crud.addr["main"] + "/locks", crud.addr["main"] + "/bus", multi.addr["admin"]} {
		b.visit(url)
		b.awaits(`document.getElementById("lost").hidden`)
		for i := range get(b, chromedp.Evaluate[int](usable+`.length`)) {
			if behind := get(b, chromedp.Evaluate[string](fmt.Sprintf(`(() => {
				const lost = document.getElementById("lost"), e = %s[%d], end = e.getBoundingClientRect().bottom - lost.getBoundingClientRect().bottom;
				lost.hidden = false;
				scrollBy(0, end); // behind the notice
				e.focus();
				const { x, y, width, height } = e.getBoundingClientRect();
				return lost.contains(document.elementFromPoint(x + width / 2, y + height / 2)) ? e.outerHTML.slice(0, 120) : "";
			})()`, usable, i))); behind != "" {
				t.Errorf("%s: the focus is behind the notice: %s", url, behind)
			}
		}
	}
}
