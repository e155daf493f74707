//go:build linux || darwin

package admin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
			d := &door{idle: make(chan struct{})}
			w := httptest.NewRecorder()
			d.guard(inside, x.self).ServeHTTP(w, httptest.NewRequestWithContext(x.ctx, http.MethodGet, "/", nil))
			if w.Code != x.status || !strings.Contains(w.Body.String(), x.code) {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, x.status, x.code)
			}
		})
	}
}

func TestClosedDoorLetsNobodyIn(t *testing.T) {
	d := &door{idle: make(chan struct{})}
	d.shut()
	<-d.idle
	w := httptest.NewRecorder()
	ctx := context.WithValue(t.Context(), peerKey{}, Peer{UID: 1})
	d.guard(http.NotFoundHandler(), 1).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestWhoLooksTrustsHisOwnFoldersAlone(t *testing.T) {
	dir := t.TempDir()
	if err := trusted(dir, 424242); err == nil {
		t.Error("another user's folder is trusted")
	}
	if err := trusted(dir, 0); err != nil {
		t.Errorf("root may not look: %v", err)
	}
}
