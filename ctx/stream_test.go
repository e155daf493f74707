package megactx_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

func TestEventsAreSentAsTheStandardHasIt(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.SSE(func(s *megactx.Stream) error {
			return errors.Join(
				s.Send("", "plain"),
				s.Send("stock", map[string]int{"left": 3}),
				s.SendID("7", "two", "one\r\ntwo\rthree\nfour"),
				s.Send("bytes", []byte("b")),
				s.Comment("hello"),
				s.Comment("a\nb"),
			)
		})
	})
	w := s.ask("GET", "/", "")
	want := "data: plain\n\n" + "event: stock\ndata: {\"left\":3}\n\n" +
		"id: 7\nevent: two\ndata: one\ndata: two\ndata: three\ndata: four\n\n" +
		"event: bytes\ndata: b\n\n" + ": hello\n\n" + ": a\n: b\n\n"
	if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "text/event-stream" || !w.Flushed {
		t.Errorf("got %d %v\n%s", w.Code, w.Header(), w.Body)
	}
}

func TestInvalidEventsAreRefused(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.SSE(func(s *megactx.Stream) error {
			for name, err := range map[string]error{
				"a name of two lines": s.Send("a\nb", ""), "an id of two lines": s.SendID("1\r2", "", ""),
				"no JSON": s.Send("", func() {}),
			} {
				if err == nil {
					t.Errorf("%s was sent", name)
				}
			}
			return nil
		})
	})
	if w := s.ask("GET", "/", ""); w.Body.Len() != 0 {
		t.Errorf("got %q", w.Body)
	}
}

func TestAStreamKnowsWhereItsClientStopped(t *testing.T) {
	s := newStage()
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.SSE(func(s *megactx.Stream) error { return s.Send("", s.LastEventID()) })
	})
	if w := s.ask("GET", "/", "", "Last-Event-ID: 41"); w.Body.String() != "data: 41\n\n" {
		t.Errorf("got %q", w.Body)
	}
	if w := s.ask("HEAD", "/", ""); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("HEAD: got %d %q", w.Code, w.Body)
	}
}

func TestSilentStreamSendsKeepAlives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error {
				if d, ok := s.Deadline(); ok {
					t.Errorf("it has a deadline, in %v", time.Until(d))
				}
				time.Sleep(40 * time.Second)
				return s.Err()
			})
		})
		if w := s.ask("GET", "/", ""); w.Body.String() != ": \n\n: \n\n" {
			t.Errorf("in 40 s: %q", w.Body)
		}
		if line := s.last(t); line["error"] != nil || line["status"] != 200.0 {
			t.Errorf("the log has %v", line)
		}
	})
}

func TestAStreamKeepsTheDeadlinesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error {
			c, cancel := c.WithTimeout(500 * time.Millisecond)
			defer cancel()
			return c.SSE(func(s *megactx.Stream) error {
				<-s.Done()
				if !errors.Is(s.Err(), context.DeadlineExceeded) {
					t.Errorf("it ended with %v", s.Err())
				}
				return s.Err()
			})
		})
		s.ask("GET", "/", "")
		if line := s.last(t); line["took"] != 0.5e9 || line["error"] != nil {
			t.Errorf("the log has %v", line)
		}
	})
}

// A deadline that is later than the time limit of the request is not lost with it.
func TestAStreamEndsAtALaterDeadlineOfItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error {
			began := time.Now()
			c, cancel := c.WithTimeout(10 * time.Second)
			defer cancel()
			if at, ok := c.Deadline(); !ok || at.Sub(began) != time.Second {
				t.Errorf("before the stream the deadline is %v, %v", at, ok)
			}
			return c.SSE(func(s *megactx.Stream) error {
				if at, ok := s.Deadline(); !ok || at.Sub(began) != 10*time.Second {
					t.Errorf("the deadline is %v, %v", at, ok)
				}
				select {
				case <-s.Done():
				case <-time.After(time.Hour):
					t.Error("the stream does not end")
				}
				return s.Err()
			})
		})
		s.ask("GET", "/", "")
		if line := s.last(t); line["took"] != 10e9 {
			t.Errorf("the log has %v", line)
		}
	})
}

// The time limit of the request applies to nothing that its handler does in a stream,
// also on the Ctx that the stream was made of.
func TestTheHandlerOfAStreamHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.host.Bus = newBus(t)
		ended := make(chan struct{})
		_, err := s.host.Bus.Respond(t.Context(), "stock.get", func(context.Context, *bus.Msg) ([]byte, error) { <-ended; return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		s.router.Get("/", func(c *megactx.Ctx) error {
			defer close(ended)
			inside, cancel := context.WithCancel(c)
			defer cancel()
			return c.SSE(func(s *megactx.Stream) error {
				time.Sleep(time.Minute)
				for _, ctx := range []context.Context{s, c, inside} {
					if at, ok := ctx.Deadline(); ok || ctx.Err() != nil {
						t.Errorf("it has the deadline %v, %v", at, ctx.Err())
					}
				}
				asked := time.Now()
				if _, err := c.Bus.Request("stock.get", nil); !errors.Is(err, bus.ErrTimeout) || time.Since(asked) != 5*time.Second {
					t.Errorf("a request without an answer: %v after %v", err, time.Since(asked))
				}
				return nil
			})
		})
		s.ask("GET", "/", "")
	})
}

func TestAStreamThatIsRefusedLeavesTheTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error {
			if err := c.Text(http.StatusOK, "x"); err != nil {
				return err
			}
			if err := c.SSE(func(*megactx.Stream) error { return nil }); !errors.Is(err, megactx.ErrAnswered) {
				t.Errorf("got %v", err)
			}
			time.Sleep(time.Minute)
			if !errors.Is(c.Err(), context.DeadlineExceeded) {
				t.Errorf("after the time limit: %v", c.Err())
			}
			return nil
		})
		s.ask("GET", "/", "")
	})
}

// A browser would take an empty stream for one that has ended, and connect again.
func TestAStreamThatAMiddlewareHoldsBackIsAnError(t *testing.T) {
	s := newStage()
	s.router.UseStd(func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Hour, "") })
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.SSE(func(*megactx.Stream) error { t.Error("it began"); return nil })
	})
	w := s.ask("GET", "/", "", wantJSON)
	if p := problemIn(t, w); w.Code != 500 || p.Code != "internal" || !strings.Contains(str(s.last(t)["error"]), "in pieces") {
		t.Errorf("got %d %s\n%s", w.Code, w.Body, s.log)
	}
}

func TestAStreamThatComesTooLateIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(t, request.Limits{Timeout: time.Second})
		s.router.Get("/", func(c *megactx.Ctx) error {
			time.Sleep(time.Minute)
			return c.SSE(func(*megactx.Stream) error { t.Error("it began"); return nil })
		})
		if w := s.ask("GET", "/", ""); w.Code != 504 {
			t.Errorf("got %d", w.Code)
		}
	})
}

func TestAStreamEndsWithItsClient(t *testing.T) {
	for name, wait := range map[string]func(outer *megactx.Ctx, s *megactx.Stream) error{
		"waiting":                  func(_ *megactx.Ctx, s *megactx.Stream) error { <-s.Done(); return s.Err() },
		"waiting on the handler's": func(outer *megactx.Ctx, _ *megactx.Stream) error { <-outer.Done(); return nil },
		"sending": func(_ *megactx.Ctx, s *megactx.Stream) error {
			for {
				if err := s.Send("", "x"); err != nil {
					return err
				}
				time.Sleep(time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			over := make(chan error, 1)
			s.router.Get("/", func(c *megactx.Ctx) error {
				err := c.SSE(func(s *megactx.Stream) error {
					if err := s.Send("", "hello"); err != nil {
						return err
					}
					return wait(c, s)
				})
				over <- err
				return err
			})
			server := httptest.NewServer(s.router.Handler())
			defer server.Close()
			leave := subscribe(t, server.URL)
			leave()
			if err := <-over; err != nil {
				t.Errorf("a client that leaves is an error: %v", err)
			}
		})
	}
}

// subscribe opens a stream, waits for its first line, and returns what leaves
// it.
func subscribe(t *testing.T, url string) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(answer.Body).ReadString('\n'); err != nil || line != "data: hello\n" {
		t.Fatalf("its first line is %q, %v", line, err)
	}
	return func() {
		cancel()
		answer.Body.Close()
	}
}

func TestStreamsDoNotHoldUpTheShutdown(t *testing.T) {
	s := newStage()
	causes := make(chan error, 3)
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.SSE(func(s *megactx.Stream) error {
			if err := s.Send("", "hello"); err != nil {
				causes <- err
				return err
			}
			<-s.Done()
			causes <- s.Send("", "x")
			return context.Cause(s)
		})
	})
	server := httptest.NewServer(s.router.Handler())
	defer server.Close()
	for range 2 {
		defer subscribe(t, server.URL)()
	}
	s.host.EndStreams()
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := s.ask("GET", "/", ""); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("a stream that begins now: got %d %q", w.Code, w.Body)
	}
	for range 3 {
		if err := <-causes; !errors.Is(err, megactx.ErrShuttingDown) {
			t.Errorf("it ended because of %v", err)
		}
	}
	if strings.Contains(s.log.String(), `"error"`) {
		t.Errorf("an ended stream is logged as an error:\n%s", s.log)
	}
}

// stalled is a writer whose client takes nothing: each write ends with its
// deadline.
type stalled struct {
	http.ResponseWriter
	deadline time.Time
	first    func() // called before the first deadline is set
}

func (s *stalled) Flush() {}

func (s *stalled) SetWriteDeadline(t time.Time) error {
	if first := s.first; first != nil && !t.IsZero() {
		s.first = nil
		first()
	}
	s.deadline = t
	return nil
}

func (s *stalled) Write([]byte) (int, error) {
	time.Sleep(time.Until(s.deadline))
	return 0, context.DeadlineExceeded
}

func TestAClientThatTakesNothingIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.router.Get("/", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error {
				<-c.Done() // of the handler, by the failed heartbeat
				return context.Cause(s)
			})
		})
		began := time.Now()
		s.router.Handler().ServeHTTP(&stalled{ResponseWriter: httptest.NewRecorder()}, httptest.NewRequest("GET", "/", nil))
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("it was given up after %v, want a heartbeat and 10 s", took)
		}
	})
}

// The end of a stream sets a deadline, too, which the one of an event must not replace.
func TestAStreamThatEndsAsItSendsDoesNotHoldUpTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.router.Get("/", func(c *megactx.Ctx) error {
			return c.SSE(func(s *megactx.Stream) error { return s.Send("", "x") })
		})
		began := time.Now()
		w := &stalled{ResponseWriter: httptest.NewRecorder(), first: func() { s.host.EndStreams(); synctest.Wait() }}
		s.router.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if took := time.Since(began); took > time.Second {
			t.Errorf("it ended after %v", took)
		}
		if line := s.last(t); line["error"] != nil {
			t.Errorf("the log has %v", line)
		}
	})
}

// The context of the request ends before the write returns its error, as in
// net/http and in a shutdown.
func TestSendThatFailsAtTheEndOfItsStreamIsNoError(t *testing.T) {
	for name, cause := range map[string]error{"client": context.Canceled, "shutdown": megactx.ErrShuttingDown} {
		s := newStage()
		s.router.Get("/", func(c *megactx.Ctx) error {
			err := c.SSE(func(s *megactx.Stream) error {
				err := s.Send("", "x")
				if !errors.Is(err, cause) || !errors.Is(err, errReset) {
					t.Errorf("%s: Send returns %v", name, err)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: SSE returns %v", name, err)
			}
			return err
		})
		ctx, end := context.WithCancelCause(t.Context())
		w := &cutOff{httptest.NewRecorder(), func() { end(cause) }}
		s.router.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		if line := s.last(t); line["level"] != "INFO" || line["error"] != nil {
			t.Errorf("%s: the log has %v", name, line)
		}
	}
}

func TestAStalledClientDoesNotHoldUpTheShutdown(t *testing.T) {
	s := newStage()
	stuck := make(chan struct{})
	s.router.Get("/", func(c *megactx.Ctx) error {
		return c.SSE(func(s *megactx.Stream) error {
			event := strings.Repeat("x", 1<<20)
			time.AfterFunc(50*time.Millisecond, func() { close(stuck) })
			for {
				if err := s.Send("", event); err != nil {
					return err
				}
			}
		})
	})
	server, _ := s.request(t) // and nobody reads the answer
	<-stuck
	began := time.Now()
	s.host.EndStreams()
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
}
