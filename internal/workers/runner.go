package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// runner runs worker processes. Its methods may be called concurrently.
type runner struct {
	config    Config
	serve     func(*Process, net.Conn) // see newRunner
	listeners []*Listener              // each worker inherits all of them
	slots     []*slot
	turns     turns

	stop     context.CancelFunc
	stopping context.Context // ends when the shutdown of all workers starts
	rolling  chan struct{}   // has room for one restart of workers
	settled  atomic.Bool     // a worker has been ready
	started  chan struct{}   // closed when all workers have been ready once
	all      sync.Once       // closes started
	starting sync.RWMutex    // held for reading by each start of a process
	backoff  func(failures int) time.Duration
	skew     time.Duration // signalSkew

	mu         sync.Mutex // guards the fields below
	generation int        // the newest
	processes  map[*Process]struct{}
	cut        []error // the errors of workers that failed while they were ending
}

// newRunner returns a runner that has not started any process. It calls serve, the
// supervisor's side of the line to a worker, when the process has been started. serve
// owns the connection, closes it, and returns when the line has ended.
func newRunner(c Config, serve func(*Process, net.Conn)) *runner {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	s := &runner{config: c, serve: serve, rolling: make(chan struct{}, 1), started: make(chan struct{}), generation: 1, backoff: backoff, skew: signalSkew, processes: make(map[*Process]struct{})}
	s.turns.all = make(map[turnKey]*turn)
	s.stopping, s.stop = context.WithCancel(context.Background())
	for i := range max(c.Workers, 1) {
		s.slots = append(s.slots, &slot{of: s, id: i + 1, generation: 1, replace: make(chan *replacement), again: make(chan struct{}, 1)})
	}
	return s
}

// Run starts the workers and keeps them running until ctx ends; then it ends
// them. It returns nil if all of them ended without an error. It returns a
// *SpentError if one worker could not become ready at the first start, or while
// no other served. Otherwise it returns an error that lists the workers that
// had to be cut off. No worker is left when Run returns.
func (s *runner) Run(ctx context.Context) error {
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
	for _, p := range s.alive() { // the processes that were ending already
		<-p.over
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(errors.Join(spent...), errors.Join(s.cut...))
}

// Stopping reports whether all workers are ending or have ended.
func (s *runner) Stopping() bool { return s.stopping.Err() != nil }

// ends reports whether the shutdown of all workers has started, or starts within
// signalSkew.
func (s *runner) ends() bool {
	timer := time.NewTimer(s.skew)
	defer timer.Stop()
	select {
	case <-s.stopping.Done():
		return true
	case <-timer.C:
		return false
	}
}

// signalSkew is how much earlier than the supervisor a worker may receive the
// signal that ends all of them.
const signalSkew = 100 * time.Millisecond

// Abort makes all workers write their stacks and end at once. It returns when
// they have ended.
func (s *runner) Abort() {
	s.stop()
	s.starting.Lock() // waits for the processes that are being started
	left := s.alive()
	s.starting.Unlock()
	for _, p := range left {
		p.abort()
	}
	for _, p := range left {
		<-p.over
	}
}

// Workers returns the state of each running process, and of the workers without one.
func (s *runner) Workers() (all []Worker) {
	runs := map[int]bool{}
	for _, p := range s.alive() {
		w := p.Worker()
		w.Restarts, runs[w.ID] = s.slots[w.ID-1].replaced(), true
		all = append(all, w)
	}
	for _, slot := range s.slots {
		if !runs[slot.id] {
			all = append(all, slot.absent())
		}
	}
	slices.SortStableFunc(all, func(a, b Worker) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// complete reports whether all workers have been ready once.
func (s *runner) complete() bool {
	return !slices.ContainsFunc(s.slots, func(w *slot) bool { return !w.wasReady() })
}

// serves reports whether the whole program has started and a worker is ready
// now.
func (s *runner) serves() bool {
	return s.complete() && slices.ContainsFunc(s.alive(), func(p *Process) bool { return p.Worker().State == Ready })
}

// Again makes the supervisor retry now the workers that cannot become ready.
func (s *runner) Again() {
	for _, w := range s.slots {
		if w.absent().State == Failing {
			select {
			case w.again <- struct{}{}:
			default: // a request is pending already
			}
		}
	}
}

// alive returns all running processes in the order of their numbers. Of two
// processes with the same number the older one comes first.
func (s *runner) alive() []*Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.processes), func(a, b *Process) int {
		return cmp.Or(cmp.Compare(a.id, b.id), a.began.Compare(b.began))
	})
}

func (s *runner) enter(p *Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[p] = struct{}{}
}

// leave records that a process has ended with err, and how it ended if Run
// reports that.
func (s *runner) leave(p *Process, err error) {
	s.turns.leave(p)
	stopping := s.Stopping() // once, since the end of all may begin meanwhile
	cut, asked := p.cut(err, stopping)
	switch {
	case asked && cut != nil:
		s.config.Log.Warn("worker exited with work cut off", "worker", p.id, "pid", p.PID(), "ended", cut)
	case !asked && !stopping && p.wasReady(): // its slot logs a death before that
		s.logExit(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.processes, p)
	if cut != nil && stopping {
		s.cut = append(s.cut, fmt.Errorf("worker %d (pid %d): %w", p.id, p.PID(), cut))
	}
}

// logExit logs the end of a process that the supervisor has not asked to end.
func (s *runner) logExit(p *Process) {
	how, status := p.ended()
	level := slog.LevelError
	if status == 0 { // somebody has asked the process to end
		level = slog.LevelInfo
	}
	s.config.Log.Log(context.Background(), level, "worker exited", "worker", p.id, "pid", p.PID(), "ended", how)
}
