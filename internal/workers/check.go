package workers

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Answer is the answer of a worker to Check.
type Answer struct {
	Worker int
	Took   time.Duration
	Body   []byte // JSON, as from Handlers.Check
	Err    error  // why the worker did not answer
}

// Check asks all ready workers concurrently whether they are ready for traffic,
// and returns the answers ordered by number. If enough reports true for one of the
// answers, Check stops waiting for the others, and returns that answer alone.
func (s *Supervisor) Check(ctx context.Context, enough func(Answer) bool) []Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := s.readyLines()
	all, is := make([]Answer, len(lines)), make([]bool, len(lines))
	var asking sync.WaitGroup
	for i, l := range lines {
		asking.Go(func() {
			all[i] = l.check(ctx)
			if is[i] = enough(all[i]); is[i] {
				cancel()
			}
		})
	}
	asking.Wait()
	for i := range all {
		if is[i] {
			return all[i : i+1]
		}
	}
	return all
}

func (l *workerLine) check(ctx context.Context) Answer {
	a := Answer{Worker: l.process.id}
	began := time.Now()
	a.Body, a.Err = l.peer.Call(ctx, callCheck, nil)
	a.Took = time.Since(began)
	if a.Err != nil && ctx.Err() != nil {
		a.Err = fmt.Errorf("no answer within %v", a.Took.Round(time.Millisecond))
	}
	return a
}

// readyLines returns the lines of the ready workers, ordered by number. Of two
// workers with the same number it returns the newer one's.
func (s *Supervisor) readyLines() (all []*workerLine) {
	for _, p := range s.runner.alive() {
		if p.Worker().State != Ready {
			continue
		}
		if n := len(all); n > 0 && all[n-1].process.id == p.id {
			all = all[:n-1]
		}
		if l := s.lineTo(p); l != nil {
			all = append(all, l)
		}
	}
	return all
}

func (s *Supervisor) lineTo(p *Process) *workerLine {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if l.process == p {
			return l
		}
	}
	return nil
}
