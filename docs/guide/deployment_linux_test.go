package guide_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// verified returns what systemd has against a unit.
func verified(t *testing.T, unit string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Programs that this machine has: systemd looks for them.
	unit = strings.NewReplacer("/usr/local/bin/shop", exe, "/bin/kill", exe, "User=shop", "User=root").Replace(unit)
	file := filepath.Join(t.TempDir(), "shop.service")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	var about strings.Builder // it may complain about other units of this machine
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "shop.service") {
			about.WriteString(line)
		}
	}
	return about.String()
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	unit := read(t, "deploy/shop.service")
	if complaint := verified(t, unit); complaint != "" {
		t.Error(complaint)
	}
	if verified(t, strings.Replace(unit, "KillMode=", "KilMode=", 1)) == "" {
		t.Error("an unknown key is accepted")
	}
}
