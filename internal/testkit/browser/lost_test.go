package browser_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
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
	if seen := get(pages[3], chromedp.Evaluate[string](`getComputedStyle(document.getElementById("stream-state")).visibility`)); seen != "hidden" {
		t.Error("the page of messages that has lost its stream says that it is live")
	}
	console.awaits(has("#liveness", "Not connected"))
	multi.run(t)
	crud.run(t)
	for _, b := range pages {
		b.awaits(connected)
	}
	console.awaits(has("#liveness", "Live"))
}

// countLosses counts the ends of a page's streams, and the times at which the notice of a
// lost connection disappears.
const countLosses = `
	window.losses = window.recoveries = 0;
	window.EventSource = class extends EventSource {
		constructor(url) {
			super(url);
			this.addEventListener("error", () => window.losses++);
		}
	};
	addEventListener("DOMContentLoaded", () => {
		const lost = document.getElementById("lost");
		new MutationObserver(() => { if (lost.hidden) window.recoveries++ }).observe(lost, { attributes: true });
	});`

// The server of a page can work while the backend of its locks does not. The page then
// connects again and again, and each connection ends.
func TestPagesSayThatTheBackendIsGone(t *testing.T) {
	showLoss(t, startRedis, "MEGA_CACHE_MAIN_URL=redis://", func(multi, crud *program) []string {
		return []string{multi.addr["admin"], crud.addr["main"] + "/locks", crud.addr["main"] + "/windows"}
	})
}

// A server without its bus does not hear of the changes in other processes.
func TestPagesSayThatTheBusIsGone(t *testing.T) {
	showLoss(t, startNATS, "MEGA_NATS_URL=nats://", func(multi, crud *program) []string {
		return []string{multi.addr["web"], multi.addr["admin"], crud.addr["main"] + "/bus"}
	})
}

// showLoss stops and starts the server at the address that variable has. The pages show
// its loss until it is back.
func showLoss(t *testing.T, start func(t *testing.T, addr string) *os.Process, variable string, urls func(multi, crud *program) []string) {
	t.Helper()
	const connected = `document.getElementById("lost").hidden`
	addr := free(t)
	server := start(t, addr)
	t.Cleanup(func() { end(server) })
	chromium := browser(t)
	var pages []*tab
	for _, url := range urls(serve(t, "multi", []string{"web", "admin"}, variable+addr), serve(t, "crud", []string{"main"}, variable+addr)) {
		b := open(t, chromium, narrow)
		b.countsLosses()
		b.visit(url)
		b.awaits(`performance.getEntriesByType("resource").length > 0 && ` + connected)
		pages = append(pages, b)
	}
	end(server)
	staysLost(t, pages)
	server = start(t, addr)
	for _, b := range pages {
		b.awaits(connected)
	}
}

// countsLosses has the next page of the tab count its losses.
func (b *tab) countsLosses() {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: countLosses}); err != nil {
		b.t.Fatal(err)
	}
}

// staysLost waits until pages show that they are lost, and wants them to show it until
// they have connected some times.
func staysLost(t *testing.T, pages []*tab) {
	t.Helper()
	for _, b := range pages {
		b.awaits(`!document.getElementById("lost").hidden`)
		b.do("count from here", chromedp.Evaluate[chromedp.Void](`void (window.losses = window.recoveries = 0)`))
	}
	for _, b := range pages {
		b.awaits(`window.losses > 2`)
		if n := get(b, chromedp.Evaluate[int](`window.recoveries`)); n != 0 {
			t.Errorf("%s: the notice disappears %d times", get(b, chromedp.Evaluate[string](`location.href`)), n)
		}
	}
}

func end(p *os.Process) {
	_ = p.Kill()
	_, _ = p.Wait()
}

// startNATS builds and starts the server that the tests of the framework use.
func startNATS(t *testing.T, addr string) *os.Process {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "nats-server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", exe, "github.com/nats-io/nats-server/v2")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nats-server: %v\n%s", err, out)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return startServer(t, addr, exec.Command(exe, "-a", host, "-p", port))
}

// startRedis starts a server without data.
func startRedis(t *testing.T, addr string) *os.Process {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return startServer(t, addr, exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir()))
}

// startServer starts a server and waits until it accepts connections.
func startServer(t *testing.T, addr string, cmd *exec.Cmd) *os.Process {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
			return cmd.Process
		}
		if time.Since(began) > bound {
			end(cmd.Process)
			t.Fatal(err)
		}
	}
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
