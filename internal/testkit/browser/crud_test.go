package browser_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// The pages of locks, messages and limits show the result of every button, in both
// languages and on every screen.
func TestPromisesOfCrudAreShown(t *testing.T) {
	p := serve(t, "crud", []string{"main"}, "MEGA_CLUSTER_WORKERS=3")
	chromium := browser(t)
	for _, language := range []string{"en", "ko"} {
		t.Run(language, func(t *testing.T) {
			speak(t, chromium, p.addr["main"], language)
			for _, s := range []screen{wide, narrow} {
				t.Run(s.String(), func(t *testing.T) {
					b := open(t, chromium, s)
					locksOfCrud(b, p.addr["main"]+"/locks", language)
					b.settle(s, "crud-locks-results-"+language+"-"+s.String())
					messagesOfCrud(b, p.addr["main"]+"/bus", language)
					b.settle(s, "crud-bus-results-"+language+"-"+s.String())
					windowsOfCrud(b, p.addr["main"]+"/windows")
					b.settle(s, "crud-windows-results-"+language+"-"+s.String())
				})
			}
		})
	}
}

// speak chooses the language of the shop for all tabs.
func speak(t *testing.T, chromium context.Context, base, language string) {
	t.Helper()
	b := open(t, chromium, wide)
	b.visit(base + "/products")
	b.do("choose the language", chromedp.Evaluate[chromedp.Void](
		`fetch("/language", { method: "POST", body: new URLSearchParams({ to: "`+language+`" }) }).then(() => {})`, chromedp.EvalAwaitPromise))
}

// press clicks a button.
func (b *tab) press(button string) {
	b.t.Helper()
	b.do("press "+button, chromedp.Click(chromedp.CSS(button)))
}

// settle looks for faults and leaves a picture. A worker that was killed, and an
// answer that is an error, are in the log of the browser.
func (b *tab) settle(s screen, picture string) {
	b.t.Helper()
	b.problems.take()
	for _, fault := range b.faults(s) {
		b.t.Error(fault)
	}
	b.picture(picture)
}

func locksOfCrud(b *tab, url, language string) {
	b.t.Helper()
	b.visit(url)
	b.awaits(`document.documentElement.lang === "` + language + `"`)
	b.awaits(`document.querySelector("[data-open]") !== null`)
	for _, way := range []string{"none", "fifo", "lock"} {
		b.do("forget the result", chromedp.Evaluate[chromedp.Void](`void document.getElementById("result").replaceChildren()`))
		b.press(`button[value=` + way + `]`)
		b.awaits(`document.querySelector("#result svg") !== null && document.getElementById("running").hidden`)
	}
	b.do("race for 2 s", chromedp.Evaluate[chromedp.Void](`void (document.getElementById("buyers").value = 100, document.getElementById("work").value = 20)`))
	b.press(`button[value=lock]`)
	b.awaits(`!document.getElementById("running").hidden && document.getElementById("m-sold").value > 10`)
	b.awaits(`document.getElementById("running").hidden`)
	for strike, step := range map[string]string{"kill": "next", "freeze": "refused"} {
		newest := `Number(document.querySelector("#trail [data-step=` + step + `]")?.dataset.id ?? 0)`
		before := get(b, chromedp.Evaluate[int](newest))
		b.press(`form[action="/locks/hold"] button`)
		b.awaits(`document.querySelector("#holders meter") !== null`)
		b.press(`form[action="/locks/` + strike + `"] button`)
		b.awaits(fmt.Sprintf("%s > %d", newest, before))
		b.awaits(`document.querySelector("#holders meter") === null`)
	}
}

func messagesOfCrud(b *tab, url, language string) {
	b.t.Helper()
	b.visit(url)
	b.awaits(`document.documentElement.lang === "` + language + `"`)
	b.awaits(`document.getElementById("stream-state").textContent.includes(document.getElementById("stream-state").dataset.liveText)`)
	b.press(`form[action="/bus/publish"] button`)
	b.awaits(`document.querySelector("#notes li") !== null`)
	b.press(`form[action="/bus/jobs"] button`)
	b.awaits(`document.querySelectorAll("#batch tbody tr").length > 1`)
	b.press(`button[value="demo.echo"]`)
	b.awaits(`document.querySelector("#answer .notice:not(.bad)") !== null`)
	b.press(`button[value="demo.nobody"]`)
	b.awaits(`document.querySelector("#answer .bad")?.textContent.includes("bus.no_responders")`)
	b.press(`form[action="/bus/slow"] button`)
	b.awaits(`document.querySelector("#gaps .gap") !== null`)
}

func windowsOfCrud(b *tab, url string) {
	b.t.Helper()
	b.visit(url)
	b.awaits(`document.querySelector("[data-open]") !== null`)
	b.press(`button[value=ask]`)
	b.awaits(`document.querySelector("#outcome .notice") !== null`)
	b.press(`button[value=wait]`)
	b.awaits(`document.querySelectorAll("#outcome p").length === 2`) // with the times of the grants
}

// The notice of an action stays at the top of the screen.
func TestTheNoticeDoesNotHideTheFocus(t *testing.T) {
	b := open(t, browser(t), narrow)
	b.visit(serve(t, "crud", []string{"main"}).addr["main"] + "/locks")
	b.awaits(`document.querySelector("[data-open]") !== null`)
	b.press(`form[action="/locks/try"] button`)
	b.awaits(`document.querySelector("#notice p") !== null`)
	if at := get(b, chromedp.Evaluate[string](`(() => {
		const button = document.querySelector('form[action="/locks/release"] button');
		scrollBy(0, button.getBoundingClientRect().top - 10); // behind the notice
		button.focus();
		const { x, y, width, height } = button.getBoundingClientRect();
		return document.elementFromPoint(x + width / 2, y + height / 2).outerHTML;
	})()`)); at != "<button>Release it</button>" {
		t.Errorf("the focus is behind %s", at)
	}
}
