//go:build linux || darwin

package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
)

func TestOnlyTheUserAndRootComeIn(t *testing.T) {
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	for _, x := range []struct {
		name   string
		ctx    context.Context
		self   int
		status int
		code   string
	}{
		{"the user", context.WithValue(t.Context(), peerKey{}, Peer{UID: 1000, PID: 7}), 1000, 200, ""},
		{"root", context.WithValue(t.Context(), peerKey{}, Peer{UID: 0, PID: 7}), 1000, 200, ""},
		{"another user", context.WithValue(t.Context(), peerKey{}, Peer{UID: 1001, PID: 7}), 1000, 403, "admin.forbidden"},
		{"another user, of root's process", context.WithValue(t.Context(), peerKey{}, Peer{UID: 1001, PID: 7}), 0, 403, "admin.forbidden"},
		{"somebody whom the system does not know", t.Context(), 1000, 403, "admin.unknown_peer"},
	} {
		t.Run(x.name, func(t *testing.T) {
			d := &admission{idle: make(chan struct{}), writeTimeout: writeTime}
			w := httptest.NewRecorder()
			d.guard(inside, x.self).ServeHTTP(w, httptest.NewRequestWithContext(x.ctx, http.MethodGet, "/", nil))
			if w.Code != x.status || !strings.Contains(w.Body.String(), x.code) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, x.status, x.code)
			}
		})
	}
}

// A client that does not read costs a goroutine and its answer for a bounded time.
func TestAnswerThatIsNotReadIsGivenUp(t *testing.T) {
	wrote := make(chan error, 1)
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 64<<20))
		wrote <- err
	})
	d := &admission{idle: make(chan struct{}), writeTimeout: 10 * time.Millisecond}
	server := httptest.NewUnstartedServer(d.guard(inside, os.Geteuid()))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, peerKey{}, Peer{UID: os.Geteuid()})
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: shop\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-wrote:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it is still being written")
	}
}

// The bound of a tail is that of all that an event has.
func TestBacklogOfATailCountsHeaders(t *testing.T) {
	q := &backlog{more: make(chan struct{}, 1)}
	headers := bus.Headers{"Trail": {strings.Repeat("x", 7<<10)}}
	for range tailEvents {
		if err := q.push(t.Context(), &bus.Msg{Subject: "order.made", Header: headers, Data: make([]byte, 7<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	bytes := 0
	for _, e := range q.popAll() {
		bytes += len(e.Text) + len(e.Headers["Trail"])*7<<10
	}
	if bytes > tailBytes {
		t.Errorf("%d bytes wait for the reader, at most %d may", bytes, tailBytes)
	}
}

func TestOnlyTheSupervisorNamesAnotherPeer(t *testing.T) {
	for _, x := range []struct {
		name   string
		pid    int // of who connects
		header string
		want   Peer
	}{
		{"the supervisor, for somebody", 7, "1000 20880", Peer{UID: 1000, PID: 20880}},
		{"the supervisor, for itself", 7, "", Peer{UID: 1, PID: 7}},
		{"the supervisor, for nobody", 7, "root", Peer{UID: 1, PID: 7}},
		{"another process", 8, "1000 20880", Peer{UID: 1, PID: 8}},
	} {
		t.Run(x.name, func(t *testing.T) {
			var got Peer
			seen := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = peerFrom(r.Context()) })
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, Peer{UID: 1, PID: x.pid}), http.MethodGet, "/", nil)
			r.Header.Set(peerHeader, x.header)
			acceptIdentity(seen, 7).ServeHTTP(httptest.NewRecorder(), r)
			if got != x.want {
				t.Errorf("got %+v, want %+v", got, x.want)
			}
		})
	}
	h := http.Header{peerHeader: {"0 1"}}
	setIdentity(context.WithValue(t.Context(), peerKey{}, Peer{UID: 1000, PID: 20880}), h)
	if h.Get(peerHeader) != "1000 20880" {
		t.Errorf("it is passed on as %q", h.Get(peerHeader))
	}
	if setIdentity(t.Context(), h); h.Get(peerHeader) != "" {
		t.Errorf("what a client has made up is passed on: %q", h.Get(peerHeader))
	}
}

func TestClosedAdmissionAdmitsNobody(t *testing.T) {
	d := &admission{idle: make(chan struct{})}
	d.close()
	<-d.idle
	w := httptest.NewRecorder()
	ctx := context.WithValue(t.Context(), peerKey{}, Peer{UID: 1})
	d.guard(http.NotFoundHandler(), 1).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestFolderOfOneUserIsTrusted(t *testing.T) {
	dir := t.TempDir()
	open, squat, own := filepath.Join(dir, "open"), filepath.Join(dir, tempFolder+"424242"), filepath.Join(dir, "mega")
	for _, folder := range []string{open, squat, own} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o755); err != nil { //nolint:gosec // that is what is refused
		t.Fatal(err)
	}
	if err := trusted(own, 424242); err == nil {
		t.Error("another user's folder is trusted")
	}
	if err := trusted(own, 0); err != nil {
		t.Errorf("root does not trust a user's folder: %v", err)
	}
	for _, folder := range []string{open, squat, filepath.Join(dir, "nothing")} {
		if err := trusted(folder, 0); err == nil {
			t.Errorf("root trusts %s", folder)
		}
	}
}
