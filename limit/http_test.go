package limit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/driver"
	"github.com/megaframework/mega/lock"
)

func byHeader(r *http.Request) string { return r.Header.Get("Client") }

// serve starts a server whose handler is limited.
func serve(t *testing.T, l *limit.Limiter, m limit.Limit) (ask func(client string) *http.Response) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") })
	server := httptest.NewServer(limit.HTTP(l, byHeader, m)(handler))
	t.Cleanup(server.Close)
	return func(client string) *http.Response { return get(t, server.Client(), server.URL, client) }
}

func get(t *testing.T, c *http.Client, url, client string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Client", client)
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestHTTPRefusesWith429(t *testing.T) {
	l := open(t, memory.NewLimit(), limit.Config{})
	ask := serve(t, l, rates(limit.PerHour(2), limit.Rate{N: 1000, Per: 90*time.Minute + time.Millisecond}))
	for i, want := range []int{200, 200, 429, 429} {
		r := ask("a")
		text, err := io.ReadAll(r.Body)
		if r.StatusCode != want || err != nil || strings.Contains(string(text), "served") != (want == 200) {
			t.Errorf("request %d: got %d %q, %v", i, r.StatusCode, text, err)
		}
		if got := r.Header.Get("RateLimit-Policy"); got != `"2-per-1h0m0s";q=2;w=3600, "1000-per-1h30m0.001s";q=1000;w=5401` {
			t.Errorf("got the policy %s", got)
		}
		var left, reset int
		if _, err := fmt.Sscanf(r.Header.Get("RateLimit"), `"2-per-1h0m0s";r=%d;t=%d`, &left, &reset); err != nil || left != max(1-i, 0) || !isHour(reset) {
			t.Errorf("request %d: got %s, %v", i, r.Header.Get("RateLimit"), err)
		}
		after, _ := strconv.Atoi(r.Header.Get("Retry-After"))
		if (want == 429) != isHour(after) {
			t.Errorf("request %d: got Retry-After %q", i, r.Header.Get("Retry-After"))
		}
	}
	if r := ask("b"); r.StatusCode != 200 {
		t.Errorf("another client: got %d", r.StatusCode)
	}
	if r := serve(t, l, rates(limit.PerHour(1)))("c"); r.Header.Get("RateLimit") != `"1-per-1h0m0s";r=0;t=3600` {
		t.Errorf("a rate of 1: got %s", r.Header.Get("RateLimit"))
	}
	for range 5 {
		r := ask("")
		text, err := io.ReadAll(r.Body)
		if r.StatusCode != 200 || string(text) != "served" || r.Header.Get("RateLimit-Policy") != "" || err != nil {
			t.Errorf("without a key: got %d %q, %v", r.StatusCode, text, err)
		}
	}
	if r := ask("a b"); r.StatusCode != 400 {
		t.Errorf("a key that is not valid: got %d", r.StatusCode)
	}
}

// isHour reports whether n is an hour in seconds, less the time of a slow test.
func isHour(n int) bool { return n > 3000 && n <= 3600 }

func TestHTTPFailsWith503(t *testing.T) {
	r := newRemote()
	l := open(t, r, limit.Config{})
	ask := serve(t, l, rates(limit.PerHour(2)))
	r.set(refuse)
	if r := ask("a"); r.StatusCode != 503 || r.Header.Get("Retry-After") != "1" {
		t.Errorf("got %d, %v", r.StatusCode, r.Header)
	}
	if r := serve(t, l, limit.Limit{})("a"); r.StatusCode != 500 {
		t.Errorf("a limit that is not valid: got %d", r.StatusCode)
	}
	if r := serve(t, l, limit.Limit{Rates: []limit.Rate{limit.PerHour(2)}, Concurrent: 1})("a"); r.StatusCode != 500 {
		t.Errorf("a limit with Concurrent: got %d", r.StatusCode)
	}
}

// A client that leaves is no failure of the server, as metrics count them.
func TestHTTPOfAClientThatLeavesIsNoServerError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, away{memory.NewLimit()}, limit.Config{})
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("Client", "a")
		w := httptest.NewRecorder()
		limit.HTTP(l, byHeader, rates(limit.PerHour(2)))(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != 499 {
			t.Errorf("got %d", w.Code)
		}
	})
}

func TestTransportWaits(t *testing.T) {
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	defer server.Close()
	l := open(t, memory.NewLimit(), limit.Config{})
	m := rates(limit.Rate{N: 2, Per: 50 * time.Millisecond})
	c := &http.Client{Transport: limit.Transport(l, nil, byHeader, m)}
	start := time.Now()
	for range 5 {
		get(t, c, server.URL, "a")
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("5 requests took %v, want 2 windows", took)
	}
	get(t, c, server.URL, "")
	if n := served.Load(); n != 6 {
		t.Errorf("%d requests were served", n)
	}
}

// body records that it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestTransportRefusesInTime(t *testing.T) {
	l := open(t, memory.NewLimit(), limit.Config{})
	c := limit.Transport(l, nil, byHeader, rates(limit.PerHour(1)), limit.MaxWait(time.Minute))
	if _, err := l.Allow(t.Context(), "a", rates(limit.PerHour(1))); err != nil {
		t.Fatal(err)
	}
	b := &body{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1", b)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Client", "a")
	response, err := c.RoundTrip(r)
	if err == nil {
		_ = response.Body.Close()
	}
	if !errors.Is(err, limit.ErrLimited) || !b.closed {
		t.Errorf("got %v, body closed %v", err, b.closed)
	}
}

func TestTransportLearnsFromRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		header map[string]string
		want   time.Duration // 0 for no pause
	}{
		{"429 with seconds", 429, map[string]string{"Retry-After": "90"}, 90 * time.Second},
		{"503 with a date", 503, map[string]string{"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30 * time.Second},
		{"a long time", 429, map[string]string{"Retry-After": "9999999999999"}, limit.MaxLearned},
		{"no Retry-After", 429, nil, 0},
		{"a date that has passed", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2015 07:27:00 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0},
		{"nonsense", 429, map[string]string{"Retry-After": "-1"}, 0},
		{"another status", 500, map[string]string{"Retry-After": "90"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
			}))
			defer server.Close()
			l := open(t, memory.NewLimit(), limit.Config{})
			c := &http.Client{Transport: limit.Transport(l, server.Client().Transport, byHeader, rates(limit.PerSecond(100)))}
			if r := get(t, c, server.URL, "a"); r.StatusCode != tt.status {
				t.Errorf("got %d", r.StatusCode)
			}
			s, err := l.Inspect(t.Context(), "a")
			switch {
			case err != nil:
				t.Error(err)
			case tt.want == 0:
				if s.Paused != nil {
					t.Errorf("paused: %+v", s.Paused)
				}
			case s.Paused == nil || s.Paused.Left > tt.want || s.Paused.Left < tt.want/2 || !strings.Contains(s.Paused.Reason, fmt.Sprint(tt.status)):
				t.Errorf("got %+v, want a pause of %v", s.Paused, tt.want)
			}
		})
	}
}

// away is a driver whose backend answers nothing.
type away struct{ driver.Driver }

func (away) Info() driver.Info { return driver.Info{Name: "away", Scope: driver.Fleet} }

func (away) Take(ctx context.Context, _ driver.Request) (driver.Answer, error) {
	<-ctx.Done()
	return driver.Answer{}, ctx.Err()
}

func (away) Pause(ctx context.Context, _ string, _ driver.Pause) error {
	<-ctx.Done()
	return ctx.Err()
}

// A pause has no effect in an outage, so that no response waits for it.
func TestTransportDoesNotDelayAResponseInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, away{memory.NewLimit()}, limit.Config{})
		base := tripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"9"}}, Body: http.NoBody}, nil
		})
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(10)}, Outage: limit.Open}
		c := &http.Client{Transport: limit.Transport(l, base, func(*http.Request) string { return "k" }, m)}
		get(t, c, "http://partner/", "a")
		time.Sleep(2 * time.Second) // the outage is known
		began := time.Now()
		get(t, c, "http://partner/", "a")
		if took := time.Since(began); took != 0 || l.Unavailable() == nil {
			t.Errorf("the response came after %v", took)
		}
	})
}

func TestTransportHoldsTheSlotUntilTheBodyIsClosed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
	defer server.Close()
	l, locker := openWithSlots(t)
	m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(100)}, Concurrent: 1}
	c := &http.Client{Transport: limit.Transport(l, server.Client().Transport, byHeader, m)}
	r := get(t, c, server.URL, "a")
	if held := locker.Held(); len(held) != 1 {
		t.Errorf("%q are held", held)
	}
	if text, err := io.ReadAll(r.Body); err != nil || string(text) != "served" {
		t.Errorf("got %q, %v", text, err)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	if held := locker.Held(); len(held) != 0 {
		t.Errorf("%q are held", held)
	}
	server.Close()
	if r, err := c.Get(server.URL); err == nil {
		_ = r.Body.Close()
		t.Error("the server is closed")
	}
	if held := locker.Held(); len(held) != 0 {
		t.Errorf("%q are held after an error", held)
	}
}

// conn is the body of a connection that has switched protocols. Its Close fails.
type conn struct{ strings.Builder }

func (*conn) Read([]byte) (int, error) { return 0, io.EOF }
func (*conn) Close() error             { return io.ErrClosedPipe }

func TestTransportKeepsTheBodyOfASwitchedProtocolWritable(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		c := new(conn)
		base := tripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 101, Body: c}, nil })
		transport := limit.Transport(l, base, func(*http.Request) string { return "k" }, limit.Limit{Rates: []limit.Rate{limit.PerSecond(10)}, Concurrent: 1})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://partner/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := response.Body.(io.Writer); !ok {
			t.Error("the body is not writable")
		} else if _, err := io.WriteString(w, "text"); err != nil || c.String() != "text" {
			t.Errorf("wrote %q, %v", c.String(), err)
		}
		if err := response.Body.Close(); err != io.ErrClosedPipe || len(locker.Held()) != 0 {
			t.Errorf("closed with %v, and %q are held", err, locker.Held())
		}
	})
}

// http.Client accepts such a response, as stand-ins in tests return it.
func TestTransportHoldsNoSlotForAResponseWithoutABody(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		base := tripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 204}, nil })
		m := limit.Limit{Rates: []limit.Rate{limit.PerSecond(10)}, Concurrent: 1}
		c := &http.Client{Transport: limit.Transport(l, base, func(*http.Request) string { return "k" }, m)}
		r, err := c.Get("http://partner/")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(r.Body); err != nil || len(locker.Held()) != 0 {
			t.Errorf("read %v, and %q are held", err, locker.Held())
		}
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A request whose slot is lost ends, because somebody else may have its slot now.
func TestTransportEndsARequestThatHasLostItsSlot(t *testing.T) {
	withSlots(t, func(t *testing.T, l *limit.Limiter, locker *lock.Locker) {
		base := tripper(func(r *http.Request) (*http.Response, error) {
			held := locker.Held()
			if _, err := locker.ForceRelease(t.Context(), held[0], "the test"); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		})
		transport := limit.Transport(l, base, func(*http.Request) string { return "k" }, limit.Limit{Rates: []limit.Rate{limit.PerSecond(10)}, Concurrent: 1})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://partner/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		if lost, ok := errors.AsType[*lock.LostError](err); !ok || lost.Cause != lock.Forced {
			t.Errorf("got %v", err)
		}
	})
}

// idle is a RoundTripper that counts how often its idle connections are closed.
type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestTransportClosesIdleConnectionsOfItsBase(t *testing.T) {
	l, base := open(t, memory.NewLimit(), limit.Config{}), new(idle)
	c := &http.Client{Transport: limit.Transport(l, base, byHeader, rates(limit.PerSecond(1)))}
	c.CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("closed %d times, want once", base.closed)
	}
}
