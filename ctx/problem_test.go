package megactx_test

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

// A Problem is what the view of errors receives and what a client decodes.
func TestProblemHasTheFieldsOfAnErrorAsAnswered(t *testing.T) {
	s := newStage()
	s.router.Post("/", func(c *megactx.Ctx) error { return c.Bind(&struct{ Age int }{}) })
	w := s.ask("POST", "/", `{"Age": "ten"}`, "Content-Type: application/json", wantJSON)
	sent := map[string]any{}
	if err := json.Unmarshal(w.Body.Bytes(), &sent); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(problemIn(t, w))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]any{}
	if err := json.Unmarshal(again, &known); err != nil {
		t.Fatal(err)
	}
	if len(sent) != 7 || len(known) != len(sent) {
		t.Errorf("the answer has %v, a Problem of it %v", sent, known)
	}
}

func TestViewOfErrorsHasTheFieldsOfAProblem(t *testing.T) {
	s := newStage()
	views, err := request.ParseViews(fstest.MapFS{"error.html": {Data: []byte(
		`{{.Type}} {{.Title}} {{.Status}} {{.Code}} {{.Detail}} {{.Request}} {{len .Errors}} {{.Errors.Error}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	s.host.Views = views
	s.router.Get("/", func(*megactx.Ctx) error { return megactx.Error(http.StatusTeapot, "tea.pot", "Short and stout.") })
	w := s.ask("GET", "/", "", "X-Request-Id: r-1")
	if want := "about:blank I&#39;m a teapot 418 tea.pot Short and stout. r-1 0 "; w.Body.String() != want {
		t.Errorf("got %q, want %q", w.Body, want)
	}
}

// A nil pointer in an error is a frequent mistake of Go programs, and its
// methods panic.
func TestHandlerThatReturnsANilPointerIsAnsweredAndLogged(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(*megactx.Ctx) error { var none *json.SyntaxError; return none })
	if w := s.ask("GET", "/", "", wantJSON); w.Code != http.StatusInternalServerError {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if line := s.last(t); line["level"] != "ERROR" || line["code"] != "internal" {
		t.Errorf("the log has %v", line)
	}
}

// net/http then closes the connection.
func TestHandlerThatCallsGoexitIsLogged(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(*megactx.Ctx) error { runtime.Goexit(); return nil })
	var serving sync.WaitGroup
	serving.Go(func() { s.ask("GET", "/", "") })
	serving.Wait()
	if log := s.log.String(); !strings.Contains(log, `"level":"ERROR"`) || !strings.Contains(log, `"code":"internal","error":"the handler did not return"`) {
		t.Errorf("the log is %s", log)
	}
}
