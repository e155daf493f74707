package browser_test

import (
	"syscall"
	"testing"
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
	if err := multi.running.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	console.awaits(has("#liveness", "Live"))

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
