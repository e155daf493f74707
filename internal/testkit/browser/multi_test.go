package browser_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// What is done in one app is on the open page of the other, and a row in which
// somebody writes stays as it is meanwhile.
func TestPagesOfMultiAreLive(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"}, "MEGA_PICKING_TIME=3s")
	chromium := browser(t)
	web, admin := open(t, chromium, wide), open(t, chromium, narrow)
	web.visit(p.addr["web"])
	admin.visit(p.addr["admin"])

	// An order holds its lock while it picks: admin begins to write why it should
	// be released.
	go order(t, p, "lamp")
	admin.awaits(has("#locks", "product:lamp"))
	admin.do("write", chromedp.SendKeys(chromedp.CSS(`#locks [name=reason]`), "slow"))
	admin.awaits(`document.querySelector("#locks [name=reason]")?.value === "slow"`)
	go order(t, p, "chair")
	admin.awaits(has("#locks", "product:chair"))
	admin.awaits(`document.activeElement.value === "slow"`)
	admin.picture("multi-admin-locks-390")

	// Both orders end; admin refunds one of them, and exchanges the other.
	admin.awaits(has("#orders", "lamp") + " && " + has("#orders", "chair"))
	web.awaits(has("#orders", "lamp") + " && " + has("#products", "19"))
	admin.do("refund", chromedp.Click(chromedp.CSS(`#orders button`)))
	web.awaits(has("#orders", "refunded"))
	admin.do("exchange", chromedp.Click(chromedp.CSS(`#orders [action$="/exchanges"] button`)))
	web.awaits(`document.querySelector("#orders [data-key='3']")`)
	for _, problem := range append(web.problems.take(), admin.problems.take()...) {
		t.Error(problem)
	}
}

// has is true when an element has a text.
func has(element, text string) string {
	return fmt.Sprintf("document.querySelector(%q).textContent.includes(%q)", element, text)
}

func order(t *testing.T, p *program, product string) {
	t.Helper()
	send(t, p.addr["web"]+"/orders", fmt.Sprintf(`{"product":%q,"quantity":1}`, product), http.StatusCreated)
}

// send posts JSON and wants a status.
func send(t *testing.T, url, body string, status int) {
	t.Helper()
	answer, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	_ = answer.Body.Close()
	if answer.StatusCode != status {
		t.Errorf("%s answers %s, want %d", url, answer.Status, status)
	}
}

// A row that stayed as it was while somebody wrote in it shows what has changed when
// they leave it.
func TestARowOfMultiIsCurrentWhenItIsLeft(t *testing.T) {
	p := serve(t, "multi", []string{"web", "admin"})
	web := open(t, browser(t), wide)
	web.visit(p.addr["web"])
	web.do("enter", chromedp.Focus(chromedp.CSS(`[id="q-lamp"]`)))
	order(t, p, "lamp")
	web.awaits(has("#orders", "lamp"))
	web.awaits(`document.activeElement.id === "q-lamp" && ` + has("#products", "20"))
	web.do("leave", chromedp.Blur(chromedp.CSS(`[id="q-lamp"]`)))
	web.awaits(has("#products", "19"))
}
