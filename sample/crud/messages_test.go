package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/megatest"
	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
)

const asPage = "Accept: text/html"

func TestPublishedNoteIsOnThePage(t *testing.T) {
	kit := offline(t)
	kit.Post("/bus/publish", strings.NewReader("text=to+all+%3Cb%3E"), asForm, asPage).Status(http.StatusSeeOther).Header("Location", "/bus?done=published")
	megatest.Published(kit.Bus, services.Notes, 1)
	kit.Bus.Settle()
	kit.Get("/bus?done=published", asPage).Contains("The event was published.").Contains("to all &lt;b&gt;")
	kit.Post("/bus/publish", map[string]string{"text": " "}).Status(http.StatusUnprocessableEntity).Code("request.invalid")
}

func TestPageOfMessagesIsLive(t *testing.T) {
	s := openShop(t)
	events := s.events(t, "/bus/live")
	events.await(t, "ready", fmt.Sprint(s.cmd.Process.Pid))
	for _, x := range []struct{ path, body, event, text string }{
		{"/bus/publish", `{"text":"to all"}`, "note", `"text":"to all"`},
		{"/bus/jobs", `{"jobs":2}`, "job", `"number":2`},
	} {
		if a, err := s.send("POST", x.path, x.body, asJSON); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%s: %d %s, %v", x.path, a.status, a.body, err)
		}
		events.await(t, x.event, x.text)
	}
}

func TestGroupReceivesEachJobOnce(t *testing.T) {
	kit := offline(t)
	kit.Post("/bus/jobs", map[string]int{"jobs": 5}).Status(http.StatusAccepted)
	kit.Bus.Settle()
	var p handlers.MessagesPage
	kit.Get("/bus").JSON(&p)
	if w := p.Batch.Workers; len(w) != 1 || w[0].PID != os.Getpid() || !slices.Equal(w[0].Jobs, []int{1, 2, 3, 4, 5}) {
		t.Errorf("the batch is %+v", p.Batch)
	}
	kit.Post("/bus/jobs", map[string]int{"jobs": 101}).Status(http.StatusUnprocessableEntity)
}

func TestRequestWithoutAResponderFailsAtOnce(t *testing.T) {
	kit := offline(t)
	var p handlers.MessagesPage
	kit.Post("/bus/request", map[string]string{}).Status(http.StatusOK).JSON(&p)
	if p.Answer == nil || p.Answer.PID != os.Getpid() || p.Answer.Status != http.StatusOK {
		t.Errorf("the answer is %+v", p.Answer)
	}
	nobody := kit.Post("/bus/request", map[string]string{"subject": services.NobodyOf}).Status(http.StatusBadGateway).Code("bus.no_responders")
	if timing := nobody.Recorded.Header().Get("Server-Timing"); !strings.HasPrefix(timing, "bus;dur=") {
		t.Errorf("the time is %q", timing)
	}
	kit.Post("/bus/request", strings.NewReader("subject="+services.NobodyOf), asForm, asPage).
		Status(http.StatusBadGateway).Contains("502 bus.no_responders after ")
	kit.Post("/bus/request", map[string]string{"subject": "product.stock"}).Status(http.StatusUnprocessableEntity)
}

func TestRequestWithoutAnAnswerIsATimeoutOnThePageToo(t *testing.T) {
	kit := offline(t)
	kit.Bus.Respond(services.NobodyOf, func(*bus.Msg) (any, error) {
		<-t.Context().Done()
		return nil, t.Context().Err()
	})
	for _, accept := range []string{asPage, "Accept: application/json"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		w := httptest.NewRecorder()
		kit.Serve(w, kit.Request("POST", "/bus/request", strings.NewReader("subject="+services.NobodyOf), asForm, accept).WithContext(ctx))
		cancel()
		if w.Code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d %s", accept, w.Code, w.Body)
		}
	}
}

func TestSlowSubscriberKnowsWhatItMissed(t *testing.T) {
	kit := offline(t)
	for _, messages := range []int{1, 300} {
		var p handlers.MessagesPage
		kit.Post("/bus/slow", map[string]int{"messages": messages}).Status(http.StatusOK).JSON(&p)
		r, missed := p.Slow, 0
		for _, g := range r.Gaps {
			missed += g.Missed
		}
		if r.Sent != messages || r.Handled+r.Missed != r.Sent || missed != r.Missed || messages == 1 && missed != 0 {
			t.Errorf("%d messages: %+v", messages, r)
		}
	}
	kit.Post("/bus/slow", strings.NewReader("messages=200"), asForm, asPage).Status(http.StatusOK).Contains("200 were published, ")
}

func TestPagesOfPromisesAreInTwoLanguages(t *testing.T) {
	kit := offline(t)
	korean := []string{asPage, "Accept-Language: ko"}
	kit.Get("/locks", korean...).Contains("<h1>잠금</h1>").Contains("이 프로세스")
	kit.Get("/bus", korean...).Contains("<h1>메시지</h1>")
	for _, path := range []string{"/locks", "/bus"} {
		kit.Get(path, asPage).Contains(`<dd lang="en">it was given to the boot</dd>`)
	}
}

// events are the events of a stream.
type events struct{ lines *bufio.Scanner }

// events opens a stream until the test ends.
func (s *shop) events(t *testing.T, path string) *events {
	t.Helper()
	ctx, leave := context.WithTimeout(context.Background(), startTime)
	t.Cleanup(leave)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := http.DefaultClient.Do(r)
	if err != nil || w.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", path, w, err)
	}
	t.Cleanup(func() { _ = w.Body.Close() })
	return &events{bufio.NewScanner(w.Body)}
}

// await returns when an event has come whose data contain a text.
func (e *events) await(t *testing.T, event, text string) {
	t.Helper()
	name := ""
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch {
		case field == "event":
			name = value
		case field == "data" && name == event && strings.Contains(value, text):
			return
		}
	}
	t.Fatalf("no event %s with %q came: %v", event, text, e.lines.Err())
}

// batch returns the newest batch of jobs as a worker has received it.
func (s *shop) batch(t *testing.T) services.Batch {
	t.Helper()
	var p handlers.MessagesPage
	a, err := persist(s, "GET", "/bus", "")
	if err != nil || a.status != http.StatusOK || json.Unmarshal([]byte(a.body), &p) != nil {
		t.Fatalf("the messages: %d %s, %v", a.status, a.body, err)
	}
	return p.Batch
}

// The server does not know the time zone of a visitor.
func TestTimesOfPagesNameTheirZone(t *testing.T) {
	kit := offline(t)
	kit.Post("/bus/publish", map[string]string{"text": "hello"}).Status(http.StatusAccepted)
	kit.Post("/locks/hold", map[string]int{"seconds": 1}).Status(http.StatusAccepted)
	kit.Post("/sandboxes", map[string]int{"seconds": 0}).Status(http.StatusAccepted)
	kit.Bus.Settle()
	at := regexp.MustCompile(`<time [^>]*>([^<]*)</time>`)
	for _, path := range []string{"/bus", "/locks", "/sandboxes"} {
		var times [][]string
		for began := time.Now(); len(times) == 0 && time.Since(began) < startTime; time.Sleep(time.Millisecond) {
			times = at.FindAllStringSubmatch(kit.Get(path, asPage).Body(), -1)
		}
		if len(times) == 0 || slices.ContainsFunc(times, func(m []string) bool { return !strings.HasSuffix(m[1], " UTC") }) {
			t.Errorf("%s shows the times %q", path, times)
		}
	}
}
