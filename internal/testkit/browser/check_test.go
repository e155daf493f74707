package browser_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// faults returns what is wrong with the page of a tab.
func (b *tab) faults(s screen) []string {
	b.t.Helper()
	return slices.Concat(b.overflow(s), b.between(s), b.violations(), b.unlabelled(), b.nameless(), b.illegible(), b.outOfReach(), b.problems.take())
}

// overflow finds a page that is wider than the screen.
func (b *tab) overflow(s screen) []string {
	b.t.Helper()
	width := get(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
	if width <= s.width {
		return nil
	}
	beyond := get(b, chromedp.Evaluate[[]string](fmt.Sprintf(`[...document.querySelectorAll("body *")]
		.filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > %d + 1).map((e) => e.outerHTML.slice(0, 120))`, s.width)))
	return []string{fmt.Sprintf("too wide: %d pixels on a screen of %d: %s", width, s.width, strings.Join(beyond, "\n"))}
}

// between finds a page that fits the wide and the narrow screen, and is wider than one
// between them.
func (b *tab) between(s screen) (all []string) {
	b.t.Helper()
	if s != wide {
		return nil
	}
	for width := wide.width - 100; width > narrow.width; width -= 100 {
		b.do("set the width", chromedp.EmulateViewport(width, s.height))
		all = append(all, b.overflow(screen{width: width})...)
	}
	b.do("set the width back", chromedp.EmulateViewport(s.width, s.height))
	return all
}

// unlabelled finds numbers of a table that does not show its headings.
func (b *tab) unlabelled() (all []string) {
	b.t.Helper()
	for _, cell := range get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("tbody th, tbody td")]
		.filter((e) => e.checkVisibility() && /^\d+$/.test(e.textContent.trim()))
		.filter((e) => { const h = e.closest("table").tHead; return !h || !h.checkVisibility() || getComputedStyle(h).clipPath !== "none" })
		.filter((e) => ["none", "normal", '""'].includes(getComputedStyle(e, "::before").content))
		.map((e) => e.outerHTML.slice(0, 120))`)) {
		all = append(all, "a number without a label: "+cell)
	}
	return all
}

// nameless finds meters that a screen reader reads as a number of nothing. axe-core
// looks at elements with the role alone.
func (b *tab) nameless() (all []string) {
	b.t.Helper()
	for _, meter := range get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("meter")]
		.filter((e) => e.checkVisibility() && !e.labels.length && !e.ariaLabel && !e.ariaHidden).map((e) => e.outerHTML.slice(0, 120))`)) {
		all = append(all, "a meter without a name: "+meter)
	}
	return all
}

// illegible finds disabled buttons whose text has almost the color of the button.
// axe-core exempts disabled elements.
func (b *tab) illegible() (all []string) {
	b.t.Helper()
	for _, button := range get(b, chromedp.Evaluate[[]string](`(() => {
		const least = 2; // of the contrast
		const light = (color) => color.match(/[\d.]+/g).slice(0, 3).map((c) => c / 255)
			.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
			.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0.05);
		const filled = (style) => !/, 0\)$/.test(style.backgroundColor);
		return [...document.querySelectorAll("button:disabled")].filter((e) => {
			const style = getComputedStyle(e), text = light(style.color), ground = light(style.backgroundColor);
			return e.checkVisibility() && filled(style) && Math.max(text, ground) < least * Math.min(text, ground);
		}).map((e) => e.outerHTML.slice(0, 120));
	})()`)) {
		all = append(all, "a disabled button cannot be read: "+button)
	}
	return all
}

// violation is what axe-core has against a page.
type violation struct {
	ID, Help string
	Nodes    []struct {
		HTML           string `json:"html"`
		FailureSummary string `json:"failureSummary"`
	}
}

// violations returns what axe-core finds.
func (b *tab) violations() (all []string) {
	b.t.Helper()
	b.do("load axe-core", chromedp.Evaluate[chromedp.Void](axe(b.t)))
	for _, v := range get(b, chromedp.Evaluate[[]violation](
		`axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }).then((r) => r.violations)`, chromedp.EvalAwaitPromise)) {
		for _, n := range v.Nodes {
			all = append(all, fmt.Sprintf("%s: %s\n%s\n%s", v.ID, v.Help, n.HTML, n.FailureSummary))
		}
	}
	return all
}

func axe(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile("../../../bin/axe.min.js")
	if err != nil {
		t.Fatalf("%v; make e2e downloads it", err)
	}
	return string(script)
}

// usable are the elements that can be used, without those that are hidden.
const usable = `[...document.querySelectorAll("a[href], button:not(:disabled), input:not([type=hidden]):not(:disabled), select:not(:disabled), textarea:not(:disabled), summary")]
	.filter((e) => e.checkVisibility())`

// nameOf names an element, also after a live page has made it anew.
const nameOf = `(window.nameOf = (e) => [e.tagName, e.id, e.name, e.value, e.href, e.textContent.trim()].join("|"))`

// focused is the element that has the focus, if it does not show it.
const focused = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return "";
	window.reached.add(window.nameOf(e));
	const s = getComputedStyle(e);
	return (s.outlineStyle !== "none" && s.outlineWidth !== "0px") || s.boxShadow !== "none" ? "" : e.outerHTML.slice(0, 120);
})()`

// outOfReach finds what the tab key does not reach, and what does not show that
// it has the focus.
func (b *tab) outOfReach() (all []string) {
	b.t.Helper()
	n := get(b, chromedp.Evaluate[int](`document.activeElement?.blur(), window.reached = new Set(), `+nameOf+`, `+usable+`.length`))
	for range n + 5 { // more than once through the page hurts nobody
		b.do("press tab", chromedp.KeyEvent(kb.Tab))
		if unmarked := get(b, chromedp.Evaluate[string](focused)); unmarked != "" {
			all = append(all, "the focus does not show on "+unmarked)
		}
	}
	for _, missed := range get(b, chromedp.Evaluate[[]string](usable+`
		.filter((e) => !window.reached.has(window.nameOf(e)) && e.type !== "radio") // of radio buttons one is reached
		.map((e) => e.outerHTML.slice(0, 120))`)) {
		all = append(all, "the tab key does not reach "+missed)
	}
	return all
}

// links returns the pages that a page links to, at the same address.
func (b *tab) links() []string {
	b.t.Helper()
	return get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("a[href]")]
		.filter((a) => a.origin === location.origin && !a.hasAttribute("download")).map((a) => a.pathname + a.search)`))
}
