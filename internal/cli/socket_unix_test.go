//go:build linux || darwin

package cli

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

func TestLocksOfASocketAreListedAndForced(t *testing.T) {
	socket := filepath.Join(shortdir.New(t), "s")
	tool := func(line string) (int, string) {
		var out bytes.Buffer
		p := Process{Args: append(strings.Fields("mega "+line), "--socket", socket), Stdout: &out, Stderr: &out}
		return RunTool(p, Tool{}), out.String()
	}
	if status, out := tool("lock ls"); status != failure.ExitOK || out != "socket "+socket+": cluster, scope node\n  no lock is held\n" {
		t.Errorf("without a hub: exit status %d: %s", status, out)
	}
	if status, out := tool("lock release lamp --reason stuck"); status != failure.ExitOK || !strings.Contains(out, "lamp: no holder") {
		t.Errorf("release without a hub: exit status %d: %s", status, out)
	}
	n, err := cluster.Dial(t.Context(), cluster.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	l, err := lock.New(n.Lock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	lease, err := l.Acquire(t.Context(), "lamp")
	if err != nil {
		t.Fatal(err)
	}
	other, err := lock.New(n.Locks("eu"), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	if status, out := tool("lock release lamp --reason stuck --namespace eu"); status != failure.ExitOK || !strings.Contains(out, "lamp: no holder") {
		t.Errorf("release in another namespace: exit status %d: %s", status, out)
	}
	if _, err := other.Acquire(t.Context(), "boat"); err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]string{{"ls", "boat"}, {"show boat", "holds"}, {"release boat --reason stuck", "boat: released from 1 holder  (socket " + socket + ")"}} {
		if status, out := tool("lock " + x[0] + " --namespace eu"); status != failure.ExitOK || !strings.Contains(out, x[1]) {
			t.Errorf("%s: exit status %d: %s", x[0], status, out)
		}
	}
	for flag, value := range map[string]string{"--url": "redis://localhost", "--url-env": "A", "--name": "shop", "--engine": "queue", "--template": "%s", "--worker": "1"} {
		if status, out := tool("lock ls " + flag + " " + value); status != failure.ExitUsage || !strings.Contains(out, "--socket and "+flag+" exclude") {
			t.Errorf("%s: exit status %d: %s", flag, status, out)
		}
	}
	if status, out := tool("lock ls --namespace a,b"); status != failure.ExitUsage || !strings.Contains(out, "is not valid") {
		t.Errorf("exit status %d: %s", status, out)
	}
	for line, says := range map[string]string{"lock ls --json": `"key": "lamp"`, "lock show lamp": "holds"} {
		if status, out := tool(line); status != failure.ExitOK || !strings.Contains(out, says) {
			t.Errorf("%s: exit status %d: %s", line, status, out)
		}
	}
	if status, out := tool("lock release lamp --reason stuck"); status != failure.ExitOK || !strings.Contains(out, "released from 1 holder") {
		t.Errorf("release: exit status %d: %s", status, out)
	}
	<-lease.Context().Done()
}

func TestAutomaticSocketIsShownWithItsPath(t *testing.T) {
	dir := shortdir.New(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	var out bytes.Buffer
	status := RunTool(Process{Args: strings.Fields("mega lock ls --socket auto"), Stdout: &out, Stderr: &out}, Tool{})
	if want := "socket " + filepath.Join(dir, "mega", "cluster.sock"); status != failure.ExitOK || !strings.Contains(out.String(), want) {
		t.Errorf("exit status %d, want %q: %s", status, want, &out)
	}
}
