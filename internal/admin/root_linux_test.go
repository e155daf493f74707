package admin_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/testkit/otheruser"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

const nobody = otheruser.Nobody

// listenAs listens at path as another user, whose the file and the peer then are.
func listenAs(t *testing.T, path string, uid int) (l net.Listener) {
	t.Helper()
	var err error
	otheruser.Do(t, uid, func() { l, err = new(net.ListenConfig).Listen(context.Background(), "unix", path) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Root asks the processes of other users, too, but none of them can have root
// believe that its socket belongs to the process of somebody else.
func TestRootTrustsOnlySocketsOfOneUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can make what this test refuses
	}
	for _, x := range []struct {
		name              string
		folder            string
		owner, file, peer int
		mode              os.FileMode
		found             bool
		says              string
	}{
		{"root's own", "mega", 0, 0, 0, 0o700, true, ""},
		{"another user's", "mega", nobody, nobody, nobody, 0o700, true, ""},
		{"root's process in another user's folder", "mega", nobody, nobody, 0, 0o700, true, "served by another user (uid 0)"},
		{"another user's process in root's folder", "mega", 0, 0, nobody, 0o700, true, "served by another user (uid 65534)"},
		{"another user's file in root's folder", "mega", 0, nobody, nobody, 0o700, true, "belongs to another user"},
		{"root's file in another user's folder", "mega", nobody, 0, 0, 0o700, true, "belongs to another user"},
		{"another user's folder in the place of root's", "mega-0", nobody, nobody, nobody, 0o700, false, ""},
		{"a folder that others can enter", "mega", nobody, nobody, nobody, 0o755, false, "can be entered"},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := shortdir.New(t)
			if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // the other user has to get through
				t.Fatal(err)
			}
			folder := filepath.Join(dir, x.folder)
			path := filepath.Join(folder, "shop.7.sock")
			if err := os.Mkdir(folder, 0o777); err != nil { //nolint:gosec // until the socket is there
				t.Fatal(err)
			}
			if err := os.Chmod(folder, 0o777); err != nil { //nolint:gosec // see above
				t.Fatal(err)
			}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"name":"shop","pid":7}`)) })}
			l := listenAs(t, path, x.peer)
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			for _, err := range []error{os.Chown(path, x.file, -1), os.Chown(folder, x.owner, -1), os.Chmod(folder, x.mode)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			found, err := admin.Find(t.Context(), []string{folder}, "")
			if err != nil || (len(found) == 1) != x.found {
				t.Fatalf("found %v, %v", found, err)
			}
			_, err = admin.Dial(path).Process(t.Context())
			if x.says == "" && x.found && err != nil || x.says != "" && (err == nil || !strings.Contains(err.Error(), x.says)) {
				t.Errorf("asked: %v, want %q", err, x.says)
			}
			if x.found && x.says != "" && found[0].Err == nil {
				t.Errorf("it is believed: %+v", found[0])
			}
		})
	}
}
