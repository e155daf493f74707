// Package subprocess runs a test binary as a child of itself, in a process that
// the test can stop and kill. The child carries out orders and reports.
package subprocess

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// env makes a test binary a child of itself: it holds the orders.
const env = "MEGA_TEST_CHILD"

// Report is a message of a child to its parent, a line of JSON.
type Report struct {
	What  string
	Fence uint64 `json:",omitempty"`
	PID   int    `json:",omitempty"`
	Slot  int    `json:",omitempty"`
	Text  string `json:",omitempty"`
}

// The reports of a child.
const (
	Ready    = "ready" // it is connected, or can be connected to
	Holding  = "holding"
	Forked   = "forked"
	Lost     = "lost"
	Released = "released"
	Broken   = "broken"   // a promise was broken
	Failed   = "failed"   // Main: with the error
	Finished = "finished" // Main: without one
)

// Main is the main function of a child: it carries out the orders and exits. In
// the test binary itself it returns at once.
func Main[Orders any](carryOut func(Orders) error) {
	text, isChild := os.LookupEnv(env)
	if !isChild {
		return
	}
	var o Orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = carryOut(o)
	}
	if err != nil {
		Tell(Report{What: Failed, Text: err.Error()})
		os.Exit(1)
	}
	Tell(Report{What: Finished})
	os.Exit(0)
}

// Tell sends a report to the parent.
func Tell(r Report) {
	text, _ := json.Marshal(r) // it has nothing that could fail
	_, _ = os.Stdout.Write(append(text, '\n'))
}

// Process is a child that carries out orders.
type Process struct {
	*redistest.Process
	T     *testing.T
	Name  string
	Stdin *os.File // its end makes the child finish

	reports chan Report // closed when the process has closed its output
}

// Start starts a child that does not outlive the test. It inherits files from
// the descriptor 3 on.
func Start(t *testing.T, name string, orders any, files ...*os.File) *Process {
	t.Helper()
	text, err := json.Marshal(orders)
	must(t, err)
	in, stdin, err := os.Pipe()
	must(t, err)
	stdout, out, err := os.Pipe()
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = in, out, os.Stderr, files
	p, err := redistest.StartProcess(cmd)
	_, _ = in.Close(), out.Close() // the child has them
	must(t, err)
	c := &Process{Process: p, T: t, Name: name, Stdin: stdin, reports: make(chan Report, 1000)}
	go c.listen(stdout)
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = p.Kill()
		c.Ended()
	})
	return c
}

func (p *Process) listen(stdout *os.File) {
	defer close(p.reports)
	defer func() { _ = stdout.Close() }()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var r Report
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			p.reports <- r
		}
	}
}

// Ended waits until the child has closed its output, and drops its reports.
func (p *Process) Ended() {
	for range p.reports {
	}
}

// Expect waits for the child's next report, which must be what.
func (p *Process) Expect(what string, within time.Duration) Report {
	p.T.Helper()
	select {
	case r, ok := <-p.reports:
		if !ok || r.What != what {
			p.T.Fatalf("child %s reports %+v, want %q", p.Name, r, what)
		}
		return r
	case <-time.After(within):
		p.T.Fatalf("child %s did not report %q within %v", p.Name, what, within)
	}
	panic("unreachable")
}

// Silent checks that the child has reported nothing so far.
func (p *Process) Silent() {
	p.T.Helper()
	select {
	case r := <-p.reports:
		p.T.Errorf("child %s reports %+v, want nothing yet", p.Name, r)
	default:
	}
}

// Arrived makes a child a victim of boxes.Storm: it reports whether the child
// has reported that it holds a slot since the last call, and which.
func (p *Process) Arrived() (slot int, ok bool) {
	select {
	case r := <-p.reports:
		if r.What != Holding {
			p.T.Errorf("child %s reports %+v", p.Name, r)
		}
		return r.Slot, r.What == Holding
	default:
		return 0, false
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
