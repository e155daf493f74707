//go:build linux || darwin

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAutoIsTheRuntimeFolderWhereItIsTheUsersAlone(t *testing.T) {
	runtime := filepath.Dir(socketPath(t)) // 0700
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	if got := AutoSocket(); got != runtime+"/mega/cluster.sock" {
		t.Errorf("in the runtime folder: %s", got)
	}
	for name, change := range map[string]func(){
		"a folder that others can enter": func() { must(t, os.Chmod(runtime, 0o755)) },
		"a folder that is missing":       func() { t.Setenv("XDG_RUNTIME_DIR", runtime+"/missing") },
		"a relative path":                func() { t.Setenv("XDG_RUNTIME_DIR", "run") },
		"no variable":                    func() { t.Setenv("XDG_RUNTIME_DIR", "") },
	} {
		change()
		if got := AutoSocket(); strings.HasPrefix(got, runtime) || !filepath.IsAbs(got) || !strings.HasSuffix(got, "/cluster.sock") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAPrivateTmpIsReported(t *testing.T) {
	const plain = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:26 / /run rw,nosuid shared:5 - tmpfs tmpfs rw
31 22 0:27 / /t rw,nosuid shared:6 - tmpfs tmpfs rw
`
	const service = plain + `90 31 0:27 /systemd-private-0a1b-shop.service-Xyz/tmp /t rw,nosuid shared:7 - tmpfs tmpfs rw
`
	for _, x := range []struct {
		mounts, path string
		want         bool
	}{
		{plain, "/t/m/cluster.sock", false},
		{service, "/t/m/cluster.sock", true},
		{service, "/run/m/cluster.sock", false},
		{service, "/tfoo/cluster.sock", false},
	} {
		if got := isPrivate([]byte(x.mounts), x.path); got != x.want {
			t.Errorf("%s: %v, want %v", x.path, got, x.want)
		}
	}
	n := meetAt(t, socketPath(t))
	if w := n.Lock().Info().Warnings; len(w) != 1 || !strings.Contains(w[0], "leases end at their TTL") {
		t.Errorf("warnings: %q", w)
	}
	inherited, _ := join(t, newHub(t, HubConfig{}), Config{})
	if w := inherited.Lock().Info().Warnings; len(w) != 0 {
		t.Errorf("without a socket: %q", w)
	}
}
