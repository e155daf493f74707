package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/sample/crud/apps/main/handlers"
	"github.com/megaframework/mega/sample/crud/apps/main/services"
	"github.com/megaframework/mega/sample/crud/apps/main/store"
)

// longest is the time of a job that does not end by itself, in seconds.
const longest = 120

// sandboxesPage is what the page of sandboxes shows.
type sandboxesPage struct{ handlers.SandboxesPage }

// sandboxes returns what the page shows, from a worker that answers.
func (s *shop) sandboxes(t *testing.T) (p sandboxesPage) {
	t.Helper()
	a, err := persist(s, "GET", "/sandboxes", "")
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("the sandboxes: %d %s, %v", a.status, a.body, err)
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || len(p.Sandboxes) != services.SandboxCount {
		t.Fatalf("the sandboxes: %v in %s", err, a.body)
	}
	return p
}

// until returns the sandboxes as soon as they are as wanted.
func (s *shop) until(t *testing.T, what string, wanted func(sandboxesPage) bool) sandboxesPage {
	t.Helper()
	var p sandboxesPage
	for began := time.Now(); time.Since(began) < startTime; time.Sleep(10 * time.Millisecond) {
		if p = s.sandboxes(t); wanted(p) {
			return p
		}
	}
	t.Fatalf("it did not happen that %s: %+v\n%s", what, p, s.log)
	return p
}

// job starts a job and returns its number.
func (s *shop) job(t *testing.T, seconds int, end string) int64 {
	t.Helper()
	a, err := s.send("POST", "/sandboxes", fmt.Sprintf(`{"seconds":%d,"end":%q}`, seconds, end), asJSON)
	var in struct{ Job int64 }
	if err != nil || a.status != http.StatusAccepted || json.Unmarshal([]byte(a.body), &in) != nil || in.Job == 0 {
		t.Fatalf("start a job: %d %s, %v", a.status, a.body, err)
	}
	return in.Job
}

// has reports whether the job has an event that begins with text.
func (p sandboxesPage) has(job int64, text string) bool {
	return slices.ContainsFunc(p.Events, func(e store.JobEvent) bool { return e.Job == job && strings.HasPrefix(e.Text, text) })
}

// ended reports whether the job wrote its last event.
func ended(job int64) func(sandboxesPage) bool {
	return func(p sandboxesPage) bool { return p.has(job, "done") || p.has(job, "failed") }
}

// texts are the events of a job, the oldest first.
func (p sandboxesPage) texts(job int64) (all []string) {
	for _, e := range slices.Backward(p.Events) {
		if e.Job == job {
			all = append(all, e.Text)
		}
	}
	return all
}

func TestAJobHasASandboxThatIsPreparedAndCleaned(t *testing.T) {
	s := openShop(t)
	if p := s.sandboxes(t); p.Tally != (lock.Tally{Size: 4, Dirty: 4}) || p.Driver != "memory" {
		t.Errorf("before the first job: %+v in %s", p.Tally, p.Driver)
	}
	const first, begin, end = "Cleanup: finds no job in the folder", "Init: makes the folder", "Cleanup: removes the folder"
	for _, want := range [][]string{
		{"asks for a sandbox", first, begin, "works for 0 s", end, "done"}, // nothing was known of it
		{"asks for a sandbox", begin, "works for 0 s", end, "done"},
	} {
		job := s.job(t, 0, services.EndsWell)
		p := s.until(t, "the job ends", ended(job))
		if got := p.texts(job); !slices.Equal(got, want) {
			t.Errorf("job %d: %q, want %q", job, got, want)
		}
		if p.Sandboxes[0].Status != lock.SlotFree {
			t.Errorf("sandbox 0 is %+v", p.Sandboxes[0])
		}
	}
}

func TestASandboxThatCannotBeCleanedIsWithdrawnUntilItIsHealed(t *testing.T) {
	s := openShop(t)
	job := s.job(t, 0, services.EndsBroken)
	p := s.until(t, "the sandbox is withdrawn", func(p sandboxesPage) bool { return p.Tally.Withdrawn == 1 })
	if !p.has(job, "Cleanup: fails") || p.has(job, "Cleanup: removes") {
		t.Errorf("the events of the job are %q", p.texts(job))
	}
	if is := p.Sandboxes[0]; is.Status != lock.SlotWithdrawn || !strings.Contains(is.Reason, "cannot be removed") {
		t.Errorf("sandbox 0 is %+v", is)
	}
	if page := s.page(t, "/sandboxes"); !strings.Contains(page, `the file &#34;broken&#34; cannot be removed`) || !strings.Contains(page, `action="/sandboxes/0/heal"`) {
		t.Errorf("the page does not show the reason, escaped, and the button:\n%s", page)
	}
	other := s.job(t, 0, services.EndsWell)
	p = s.until(t, "the other job ends", ended(other))
	if i := slices.IndexFunc(p.Events, func(e store.JobEvent) bool { return e.Job == other && e.InSandbox() }); p.Events[i].Sandbox != 1 {
		t.Errorf("the next job has sandbox %d", p.Events[i].Sandbox)
	}
	if a, err := s.send("POST", "/sandboxes/0/heal", "", asForm); err != nil || a.status != http.StatusSeeOther || a.header.Get("Location") != "/sandboxes?done=healed" {
		t.Fatalf("heal: %d %s, %v", a.status, a.body, err)
	}
	if is := s.sandboxes(t).Sandboxes[0]; is.Status != lock.SlotDirty || is.Reason != lock.LeftHealed {
		t.Errorf("the healed sandbox is %+v", is)
	}
}

func TestASandboxIsTakenFromItsJob(t *testing.T) {
	s := openShop(t)
	job := s.job(t, longest, services.EndsWell)
	s.until(t, "the job works", func(p sandboxesPage) bool { return p.has(job, "works") })
	if page := s.page(t, "/sandboxes"); !strings.Contains(page, `action="/sandboxes/0/free"`) || !strings.Contains(page, "(job 1)") {
		t.Errorf("the page does not show the holder and the button:\n%s", page)
	}
	if a, err := s.send("POST", "/sandboxes/0/free", `{"fence":1}`, asJSON); err != nil || a.status != http.StatusNoContent {
		t.Fatalf("free for an old page: %d %s, %v", a.status, a.body, err)
	}
	var fence uint64
	s.until(t, "the page has the fence", func(p sandboxesPage) bool { fence = p.Sandboxes[0].Fence; return fence != 0 })
	if a, err := s.send("POST", "/sandboxes/1/free", fmt.Sprintf(`{"fence":%d}`, fence), asJSON); err != nil || a.status != http.StatusNoContent {
		t.Fatalf("free another sandbox: %d %s, %v", a.status, a.body, err)
	}
	if page := s.page(t, "/sandboxes"); !strings.Contains(page, "(job 1)") {
		t.Fatalf("the sandbox of another job was freed:\n%s", page)
	}
	if a, err := s.send("POST", "/sandboxes/0/free", "{}", asJSON); err != nil || a.status != http.StatusNoContent {
		t.Fatalf("free: %d %s, %v", a.status, a.body, err)
	}
	p := s.until(t, "the job ends", ended(job))
	if got := p.texts(job); !strings.Contains(got[len(got)-1], "freed on the page of sandboxes") {
		t.Errorf("the events of the job are %q", got)
	}
	if is := p.Sandboxes[0]; is.Status != lock.SlotResting && is.Status != lock.SlotDirty || is.Reason != lock.LeftForced {
		t.Errorf("the sandbox is %+v", is)
	}
}

func TestAShopWithoutWorkersIsNotKilled(t *testing.T) {
	executable, err := build()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, executable, 1, "MEGA_ENV=dev")[0]
	job := s.job(t, 0, services.EndsKilled)
	p := s.until(t, "the job ends", ended(job))
	if got := p.texts(job); !strings.Contains(got[len(got)-1], "only a worker is killed") {
		t.Errorf("the events of the job are %q", got)
	}
}

func TestWrongRequestsOfSandboxes(t *testing.T) {
	s := openShop(t)
	for _, x := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/sandboxes", `{"seconds":-1}`, 422, "request.invalid"},
		{"/sandboxes", `{"end":"never"}`, 422, "request.invalid"},
		{"/sandboxes/4/heal", `{}`, 404, "sandbox.not_found"},
		{"/sandboxes/x/free", `{}`, 404, "sandbox.not_found"},
	} {
		if a, err := s.send("POST", x.path, x.body, asJSON); err != nil || a.status != x.status || a.code() != x.code {
			t.Errorf("%s %s: %d %s, %v; want %d %s", x.path, x.body, a.status, a.body, err, x.status, x.code)
		}
	}
	a, err := s.send("POST", "/sandboxes", "seconds=1e3&end=broken", asForm, "Accept: text/html")
	if err != nil || a.status != http.StatusUnprocessableEntity {
		t.Fatalf("%d %s, %v", a.status, a.body, err)
	}
	for _, want := range []string{`value="1e3" required aria-invalid="true" aria-describedby="seconds-error"`, `id="seconds-error">must be a whole number</p>`, `value="broken" selected`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page lacks %s:\n%s", want, a.body)
		}
	}
	if page := s.page(t, "/sandboxes?started=call+us"); strings.Contains(page, "call us") {
		t.Errorf("the page shows the text of a link as its own:\n%s", page)
	}
	if page := s.page(t, "/sandboxes?started=7"); !strings.Contains(page, "7") || !strings.Contains(page, `role="status"`) {
		t.Errorf("the page does not show the job:\n%s", page)
	}
}

// openShop starts one shop, with the locks in its memory.
func openShop(t *testing.T) *shop {
	t.Helper()
	executable, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return open(t, executable, 1)[0]
}

// page returns a page as a browser gets it.
func (s *shop) page(t *testing.T, path string) string {
	t.Helper()
	a, err := s.send("GET", path, "", "Accept: text/html")
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, a.status, a.body, err)
	}
	return a.body
}
