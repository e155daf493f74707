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

// A handler may describe its answer before it fails.
func TestAnswerToAnErrorHasNoHeadersOfTheAnswerThatFailed(t *testing.T) {
	s := newStage()
	describe := func(w http.ResponseWriter) {
		for _, name := range []string{"Content-Disposition", "Content-Encoding", "Content-Range", "ETag", "Last-Modified"} {
			w.Header().Set(name, "x")
		}
		w.Header().Set("Set-Cookie", "a=b")
	}
	broken := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { describe(w); panic("broken") })
	}
	fails := func(c *megactx.Ctx) error { describe(c.Writer()); return megactx.Error(409, "a.b", "c") }
	s.router.Get("/", fails)
	s.router.Route("/broken", func(r megactx.Router) { r.UseStd(broken); r.Get("/", fails) })
	s.router.Route("/encoded", func(r megactx.Router) {
		r.UseStd(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Encoding", "gzip") // it encodes each answer
				next.ServeHTTP(w, r)
			})
		})
		r.Get("/", fails)
	})
	for path, encoding := range map[string]string{"/": "", "/broken": "", "/encoded": "x"} {
		h := s.ask("GET", path, "", wantJSON).Header()
		if h.Get("Content-Encoding") != encoding || h.Get("Set-Cookie") == "" || h.Get("Content-Disposition")+h.Get("Content-Range")+h.Get("ETag")+h.Get("Last-Modified") != "" {
			t.Errorf("%s: %v", path, h)
		}
	}
}
