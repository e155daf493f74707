package megactx_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/testkit/output"
)

// http.TimeoutHandler answers and leaves the handler behind, whose context then has ended.
// The line of the request may not have the error of that handler; the log has it anyway,
// once, with the route.
func TestErrorOfAHandlerThatAMiddlewareHasLeftBehindIsLogged(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func() error
		want map[string]any
	}{
		"error": {func() error { return errors.New("disk full") }, map[string]any{"level": "ERROR", "code": "internal", "error": "disk full"}},
		"panic": {func() error { panic("no idea") }, map[string]any{"level": "ERROR", "code": "internal", "error": "panic: no idea"}},
		"time":  {func() error { return context.DeadlineExceeded }, map[string]any{"level": "WARN", "code": "request.timeout"}},
	} {
		s := newStage()
		out := &output.Buffer{}
		s.host.Log = slog.New(slog.NewJSONHandler(out, nil))
		s.router.UseStd(func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Millisecond, "late") })
		answered, left := make(chan struct{}), make(chan struct{})
		s.router.UseStd(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(left)
				next.ServeHTTP(w, r)
			})
		})
		s.router.Get("/orders/{id}", func(*megactx.Ctx) error {
			<-answered
			return tt.end()
		})
		if w := s.ask("GET", "/orders/7", "", "X-Request-Id: r-1"); w.Code != http.StatusServiceUnavailable || w.Body.String() != "late" {
			t.Errorf("%s: the answer is %d %s", name, w.Code, w.Body)
		}
		close(answered)
		<-left
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Errorf("%s: the log has\n%s", name, out)
			continue
		}
		tt.want["msg"], tt.want["request"], tt.want["path"], tt.want["route"] = "handler failed after its answer", "r-1", "/orders/7", "/orders/{id}"
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[1]), &got); err != nil {
			t.Fatal(err)
		}
		for key, want := range tt.want {
			if got[key] != want {
				t.Errorf("%s: %s is %v, want %v", name, key, got[key], want)
			}
		}
		if stack, _ := got["stack"].(string); (name == "panic") != strings.Contains(stack, "late_test.go") {
			t.Errorf("%s: the stack is %q", name, stack)
		}
	}
}

// The handler fails while its request ends, for -race.
func TestHandlerMayFailWhileItsRequestEnds(t *testing.T) {
	s := newStage()
	s.host.Log = slog.New(slog.NewJSONHandler(&output.Buffer{}, nil))
	s.router.UseStd(func(next http.Handler) http.Handler { return http.TimeoutHandler(next, 0, "late") })
	var left sync.WaitGroup
	s.router.UseStd(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer left.Done()
			next.ServeHTTP(w, r)
		})
	})
	s.router.Get("/orders/{id}", func(*megactx.Ctx) error { return errors.New("disk full") })
	for range 100 {
		left.Add(1)
		s.ask("GET", "/orders/7", "", wantJSON)
	}
	left.Wait()
}

func TestShutdownWaitsForAHandlerThatAMiddlewareHasLeftBehind(t *testing.T) {
	for _, tt := range []struct{ works, budget time.Duration }{{time.Second, time.Minute}, {time.Minute, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.router.UseStd(func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Millisecond, "late") })
			returned := false
			s.router.Get("/orders/{id}", func(*megactx.Ctx) error {
				time.Sleep(tt.works)
				returned = true
				return nil
			})
			s.ask("GET", "/orders/7", "")
			ctx, cancel := context.WithTimeout(t.Context(), tt.budget)
			defer cancel()
			switch err := s.host.Drain(ctx); {
			case tt.works < tt.budget && (err != nil || !returned):
				t.Errorf("returned %v, %v", returned, err)
			case tt.works > tt.budget && (err == nil || !strings.Contains(err.Error(), "handler of GET /orders/7 (1.251s), which does not end")):
				t.Errorf("got %v", err)
			}
			time.Sleep(tt.works) // the bubble ends with its goroutines
		})
	}
}
