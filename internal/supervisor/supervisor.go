// Package supervisor runs a program as several processes, its workers: it
// starts them from its own executable, hands them what it has opened once,
// replaces those that die, restarts them one after the other without a gap, and
// ends them when it ends.
//
// A worker inherits a connection to its supervisor, its line, and listeners. It
// is told what they are by variables, which Inherit reads. The line carries what
// the two have to say to each other; what that is, is not the business of this
// package: whoever serves the line calls Process.Ready when the worker says so.
// A worker whose line ends has lost its supervisor, and has to end.
package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config is what a Supervisor runs.
type Config struct {
	Workers int // at least 1

	Path   string   // of the executable
	Args   []string // with the program's name first
	Env    []string // to which the variables of the worker are added
	Stdout io.Writer
	Stderr io.Writer

	Listeners []*Listener // what each worker inherits

	// Grace is what a worker gets to end once it was told to. Then it is killed.
	Grace time.Duration

	// Serve is the supervisor's side of the line to a worker. It is called once
	// the process has been started, and returns when the line has ended. conn is
	// Serve's to close.
	Serve func(p *Process, conn net.Conn)

	// Hopeless reports whether a worker that ended with this status would end so
	// again. It is asked until one has been ready, and may be nil.
	Hopeless func(status int) bool

	Log *slog.Logger // nil is silent
}

// Supervisor runs workers. Its methods may be called concurrently.
type Supervisor struct {
	config Config
	slots  []*slot
	turns  turns

	stop     context.CancelFunc
	stopping context.Context // ends when all workers are to end
	rolling  chan struct{}   // has room for who restarts workers
	settled  atomic.Bool     // a worker has been ready
	pause    time.Duration   // after the first death of a row; tests have less of it
	lull     time.Duration   // between attempts that nothing depends on; the same

	mu         sync.Mutex // guards the fields below
	generation int        // the newest
	processes  map[*Process]struct{}
	cut        []error // how workers ended that did not end well when they were told to
}

// New returns a supervisor that has not started anything.
func New(c Config) *Supervisor {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	s := &Supervisor{config: c, rolling: make(chan struct{}, 1), generation: 1, pause: firstPause, lull: lull, processes: make(map[*Process]struct{})}
	s.turns.all = make(map[turnKey]*turn)
	s.stopping, s.stop = context.WithCancel(context.Background())
	for i := range max(c.Workers, 1) {
		s.slots = append(s.slots, &slot{of: s, id: i + 1, generation: 1, replace: make(chan *replacement), again: make(chan struct{}, 1)})
	}
	return s
}

// Run starts the workers and keeps them running until ctx ends; then it ends
// them. It returns nil if all of them ended well, a *SpentError if one could not
// be made ready at the first start, or when no other served, or else which had to be cut off. No worker is left when it
// returns.
func (s *Supervisor) Run(ctx context.Context) error {
	defer s.stop()
	unhook := context.AfterFunc(ctx, s.stop)
	defer unhook()
	spent := make([]error, len(s.slots))
	var slots sync.WaitGroup
	for i, w := range s.slots {
		slots.Go(func() {
			if spent[i] = w.run(s.stopping); spent[i] != nil {
				s.stop()
			}
		})
	}
	slots.Wait()
	for _, p := range s.alive() { // those that were on their way out
		<-p.over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(errors.Join(spent...), errors.Join(s.cut...))
}

// Stopping reports whether all workers are ending or have ended.
func (s *Supervisor) Stopping() bool { return s.stopping.Err() != nil }

// Ending is closed when all workers are to end.
func (s *Supervisor) Ending() <-chan struct{} { return s.stopping.Done() }

// Abort has all workers write their stacks and end at once, and returns when
// they have.
func (s *Supervisor) Abort() {
	s.stop()
	left := s.alive()
	for _, p := range left {
		p.abort()
	}
	for _, p := range left {
		<-p.over
	}
}

// Process returns the process that serves as the worker with this number, and
// whether there is one.
func (s *Supervisor) Process(id int) (*Process, bool) {
	if id < 1 || id > len(s.slots) {
		return nil, false
	}
	p := s.slots[id-1].now()
	return p, p != nil
}

// Processes returns all that run, in the order of their numbers; of two with the
// same number the older one first.
func (s *Supervisor) Processes() []*Process { return s.alive() }

// Workers tells of each process what Processes returns, and of the workers that
// have none because it cannot be made ready.
func (s *Supervisor) Workers() (all []Worker) {
	runs := map[int]bool{}
	for _, p := range s.alive() {
		w := p.Worker()
		w.Restarts, runs[w.ID] = s.slots[w.ID-1].replaced(), true
		all = append(all, w)
	}
	for _, slot := range s.slots {
		if w, fails := slot.worker(); fails && !runs[w.ID] {
			all = append(all, w)
		}
	}
	slices.SortStableFunc(all, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// serves reports whether the program has started, all of it, and a worker is
// ready now.
func (s *Supervisor) serves() bool {
	return !slices.ContainsFunc(s.slots, func(w *slot) bool { return !w.wasReady() }) &&
		slices.ContainsFunc(s.alive(), func(p *Process) bool { return p.Worker().State == Ready })
}

// Again has the workers tried now that cannot be made ready.
func (s *Supervisor) Again() {
	for _, w := range s.slots {
		if _, fails := w.worker(); fails {
			select {
			case w.again <- struct{}{}:
			default: // it is wished already
			}
		}
	}
}

func (s *Supervisor) alive() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Process, 0, len(s.processes))
	for p := range s.processes {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Process) int {
		return cmp.Or(cmp.Compare(a.id, b.id), a.began.Compare(b.began))
	})
	return all
}

func (s *Supervisor) enter(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[p] = struct{}{}
}

// leave notes that a process is gone, and how it ended if that is worth telling.
func (s *Supervisor) leave(p *Process, cut error) {
	s.turns.leave(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p)
	if cut != nil && s.stopping.Err() != nil {
		s.cut = append(s.cut, fmt.Errorf("worker %d (pid %d): %w", p.id, p.PID(), cut))
	}
}

// Begin asks for the turn of a worker to do something that the workers of a
// generation do once. It returns true when p is to do it and then call Done, and
// false when it has been done. A worker that dies with the turn passes it on.
func (s *Supervisor) Begin(ctx context.Context, p *Process, name string) (bool, error) {
	return s.turns.begin(ctx, p, name)
}

// Done says that p has done what it had the turn for.
func (s *Supervisor) Done(p *Process, name string) { s.turns.done(p, name) }
