//go:build linux || darwin

package workers

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// A function that one worker runs is not begun by another one because a third one ends.
func TestATurnIsPassedOnByItsOwnWorkerOnly(t *testing.T) {
	all := turns{all: map[turnKey]*turn{}}
	key := turnKey{1, "migrate"}
	runs, ends, waits := &Process{generation: 1}, &Process{generation: 1}, &Process{generation: 1}
	if mine, over, _ := all.take(runs, key); !mine || over {
		t.Fatalf("the first worker: %v, %v", mine, over)
	}
	all.leave(ends)
	if mine, over, _ := all.take(waits, key); mine || over {
		t.Fatalf("beside the first worker: %v, %v", mine, over)
	}
	all.leave(runs)
	for _, gone := range []*Process{ends, runs} {
		if mine, _, _ := all.take(gone, key); mine {
			t.Error("a worker that has ended has the turn")
		}
	}
	if mine, _, _ := all.take(waits, key); !mine {
		t.Error("nobody has the turn of the worker that has ended")
	}
	all.forget(1)
	if len(all.all) != 1 {
		t.Error("a turn of the oldest generation is forgotten")
	}
	all.forget(2)
	if len(all.all) != 0 {
		t.Error("a turn of an earlier generation is kept")
	}
}

func TestTheOldestGenerationIsThatOfAnyWorker(t *testing.T) {
	s := newRunner(Config{Workers: 3}, nil)
	for i, generation := range []int{3, 2, 4} {
		s.slots[i].generation = generation
	}
	if got := s.Oldest(); got != 2 {
		t.Errorf("it is %d", got)
	}
}

// A program that has started can start: a later failure may pass.
func TestNoExitStatusEndsTheProgramAtOnceOnceAWorkerWasReady(t *testing.T) {
	s := newRunner(Config{Workers: 1, Permanent: func(status int) bool { return status == 78 }}, nil)
	if !s.slots[0].givesUp(&SpentError{Deaths: 1, Status: 78}) || s.slots[0].givesUp(&SpentError{Deaths: 1, Status: 1}) {
		t.Error("before")
	}
	s.settled.Store(true)
	if s.slots[0].givesUp(&SpentError{Deaths: 1, Status: 78}) {
		t.Error("after")
	}
}

func TestTheFirstReadyOfAWorkerCounts(t *testing.T) {
	p := &Process{of: newRunner(Config{}, nil), state: Starting, ready: make(chan struct{}), cmd: &exec.Cmd{Process: &os.Process{Pid: 1}}}
	p.Ready()
	p.Ready() // closes nothing twice
	if w := p.Worker(); w.State != Ready || !p.wasReady() {
		t.Errorf("got %+v", w)
	}
}

func TestWorkerThatCannotBeStartedIsReportedWithItsCause(t *testing.T) {
	s := newRunner(Config{Workers: 1, Path: "/nowhere/program", Args: []string{"program"}}, func(_ *Process, conn net.Conn) { _ = conn.Close() })
	s.backoff = func(int) time.Duration { return time.Millisecond }
	err := s.Run(t.Context())
	if spent, ok := errors.AsType[*SpentError](err); !ok || spent.Deaths != maxDeaths || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
