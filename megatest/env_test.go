package megatest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/megatest"
)

// The env does not follow from the name of the test binary: a debugger gives it
// another one.
func TestEnvIsTestInABinaryOfAnyName(t *testing.T) {
	const renamed = "MEGA_TEST_RENAMED"
	if os.Getenv(renamed) != "" {
		if env := megatest.New(t, megatest.Config{}, mega.App("web")).Ctx().App.Env; env != "test" {
			t.Errorf("env is %q", env)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "__debug_bin.exe") // a suffix that only Windows needs
	if err := os.WriteFile(file, text, 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), file, "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), renamed+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEnvIsTheOneOfTheConfig(t *testing.T) {
	if env := megatest.New(t, megatest.Config{Environ: []string{"MEGA_ENV=staging"}}, mega.App("web")).Ctx().App.Env; env != "staging" {
		t.Errorf("env is %q", env)
	}
}
