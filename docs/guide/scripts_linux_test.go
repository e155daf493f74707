package guide_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/internal/testkit/shortdir"
)

// scripts is a folder in which the page's blocks of sh run.
type scripts struct {
	t   *testing.T
	dir string
	env []string
}

func newScripts(t *testing.T) *scripts {
	t.Helper()
	dir := shortdir.New(t)
	s := &scripts{t: t, dir: dir}
	for _, folder := range []string{"bin", "runtime"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.program("bin/mega", "exec env "+toolRole+"=1 "+os.Args[0]+` "$@"`)
	s.env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "XDG_RUNTIME_DIR="+filepath.Join(dir, "runtime"))
	return s
}

func (s *scripts) program(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

// block returns the page's block of sh that contains text.
func block(t *testing.T, text string) string {
	t.Helper()
	for _, rest := range strings.Split(read(t, "07-locks-in-practice.md"), "```sh\n")[1:] {
		if b, _, _ := strings.Cut(rest, "\n```"); strings.Contains(b, text) {
			return b
		}
	}
	t.Fatalf("no block contains %q", text)
	return ""
}

// run runs a script in a folder and returns its output and exit status.
func (s *scripts) run(folder, script string) (string, int) {
	cmd := exec.Command("sh", "-c", script, "script", "argument")
	cmd.Dir, cmd.Env = folder, s.env
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		return err.Error(), -1
	}
	return string(out), 0
}

func (s *scripts) has(name string) bool {
	_, err := os.Stat(filepath.Join(s.dir, name))
	return err == nil
}

// onlyOne is a program that breaks if it runs twice with the same slot.
const onlyOne = `[ "$1" = argument ] || echo "argument: $*" >> broken
mkdir "run-$MEGA_RUN_SLOT" || echo "twice in slot $MEGA_RUN_SLOT" >> broken
echo ran >> "log-$$"
rmdir "run-$MEGA_RUN_SLOT"`

func TestAgentsOfThePageRunThreeAtATime(t *testing.T) {
	for _, marker := range []string{"exec agents", "exec boxes"} {
		s := newScripts(t)
		s.program("agent", onlyOne)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if out, status := s.run(s.dir, block(t, marker)); status != 0 || out != "" {
					t.Errorf("%s: exit status %d: %s", marker, status, out)
				}
			})
		}
		all.Wait()
		if ran, err := filepath.Glob(filepath.Join(s.dir, "log-*")); err != nil || len(ran) != 8 || s.has("broken") {
			t.Errorf("%s: %d agents ran, %v; broken: %v", marker, len(ran), err, s.has("broken"))
		}
		if boxes, _ := filepath.Glob(filepath.Join(s.dir, "box-*")); len(boxes) != 0 {
			t.Errorf("%s: left: %q", marker, boxes)
		}
	}
}

func TestHandBuiltCounterKeepsThePlaceOfAKilledScript(t *testing.T) {
	s := newScripts(t)
	s.program("agent", "kill -9 $PPID")
	for range 3 {
		_, _ = s.run(s.dir, block(t, "touch running")) // it is killed
	}
	if left, err := os.ReadDir(filepath.Join(s.dir, "running")); err != nil || len(left) != 3 {
		t.Errorf("%d places are taken, %v; the page says 3", len(left), err)
	}
}

func TestStepsOfThePageRunUnderOneLease(t *testing.T) {
	s := newScripts(t)
	for _, step := range []string{"build", "copy"} {
		s.program(step, "mega lock ls deploy >> holders")
	}
	if out, status := s.run(s.dir, block(t, "lock acquire deploy")); status != 0 || out != "" {
		t.Errorf("exit status %d: %s", status, out)
	}
	holders, err := os.ReadFile(filepath.Join(s.dir, "holders"))
	if err != nil || bytes.Count(holders, []byte("\n  deploy ")) != 2 {
		t.Errorf("the steps saw %q, %v", holders, err)
	}
	if out, status := s.run(s.dir, "mega lock ls deploy"); status != 0 || !strings.Contains(out, "no lock is held") {
		t.Errorf("left: exit status %d: %s", status, out)
	}
}

func TestReportOfThePageRunsOnOneNode(t *testing.T) {
	s := newScripts(t)
	s.env = append(s.env, "REDIS_URL="+redistest.Start(t, redistest.Options{}).URL())
	// While the report runs, another node begins by each of the two scripts.
	for script, ran := range map[string]bool{"flock -n": true, "exec report": false} {
		other := t.TempDir()
		s.program("report", "cd "+other+" && echo 'touch ran' > report && chmod +x report && "+block(t, script)+" || exit 3")
		// cron would send the output by mail.
		if out, status := s.run(s.dir, block(t, script)); status != 0 || out != "" {
			t.Errorf("%s: exit status %d: %s", script, status, out)
		}
		if _, err := os.Stat(filepath.Join(other, "ran")); (err == nil) != ran {
			t.Errorf("%s: another node ran the report beside this one: %v, want %v", script, err == nil, ran)
		}
	}
}

func TestCallsOfTheScriptWaitForTheirTurn(t *testing.T) {
	s := newScripts(t)
	s.program("call-partner", `[ "$1" = argument ] && echo called`)
	call := block(t, "mega limit partner:acme")
	start := time.Now()
	for range 6 { // the sixth waits until the first is 800 ms old
		if out, status := s.run(s.dir, call); status != 0 || out != "called\n" {
			t.Errorf("exit status %d: %s", status, out)
		}
	}
	if took := time.Since(start); took < 800*time.Millisecond {
		t.Errorf("six calls took %v, want at least 800ms", took)
	}
}
