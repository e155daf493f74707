package e2e_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A link to the present release is switched, and SIGUSR2 follows. The workers run the
// executable and read the files of one release: of the new one if the supervisor knows
// both by the link, of the old one if it does not know the folder by it.
func TestNewWorkersRunOneReleaseOfALinkThatWasSwitched(t *testing.T) {
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	releases := t.TempDir()
	for release := range 2 {
		dir := filepath.Join(releases, fmt.Sprint(release))
		config := fmt.Sprintf("lock: {ttl: %ds}\n", 20+release)
		if err := errors.Join(
			os.Mkdir(dir, 0o700),
			os.WriteFile(filepath.Join(dir, "program"), text, 0o700),
			os.WriteFile(filepath.Join(dir, "mega.config.yaml"), []byte(config), 0o600),
		); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(releases, "present")
	point := func(release string) {
		t.Helper()
		if err := errors.Join(os.Symlink(release, link+".new"), os.Rename(link+".new", link)); err != nil {
			t.Fatal(err)
		}
	}
	absolute, relative := filepath.Join(link, "program"), "."+string(filepath.Separator)+"program"
	for _, c := range []struct {
		name, path, pwd string
		release         string // after the switch
	}{
		{"by an absolute path", absolute, link, "1"},
		{"by a relative path", relative, link, "1"},
		{"with a folder without a name", absolute, "", "0"},
		{"with a folder under another name", absolute, filepath.Join(releases, "0"), "0"},
		{"with a folder under another name and a slash", absolute, filepath.Join(releases, "0") + "/", "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			point("0")
			t.Chdir(link)
			p := startProgram(t, c.path, "settings", workersEnviron("2", "PWD="+c.pwd)...)
			report := p.await(t, "boot.report", 1)[0]
			defer http.DefaultClient.CloseIdleConnections()
			point("1")
			p.signal(t, syscall.SIGUSR2)
			p.await(t, "worker restart finished", 1)
			ready := p.records("worker ready")
			exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", ready[len(ready)-1].PID))
			if err != nil {
				t.Fatal(err)
			}
			if got := filepath.Base(filepath.Dir(exe)); got != c.release {
				t.Errorf("the new worker runs %s, want release %s", exe, c.release)
			}
			if got := p.setting(t, report, 1)["lock.ttl"]; got != "2"+c.release+"s" {
				t.Errorf("the new worker has lock.ttl %s, want that of release %s", got, c.release)
			}
			p.signal(t, syscall.SIGTERM)
			if status := p.end(t); status != 0 {
				t.Errorf("exit status %d:\n%s", status, p)
			}
		})
	}
}
