package workers

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// turns are the tasks that the workers of a generation do once.
type turns struct {
	mu  sync.Mutex // guards all fields
	all map[turnKey]*turn
}

type turnKey struct {
	generation int
	name       string
}

// turn is one task that is done once.
type turn struct {
	by      *Process // the process that does it; nil if none does
	over    bool
	changed chan struct{} // closed when by or over changes
}

// errGone is the error for a worker that has ended.
var errGone = errors.New("the worker has ended")

// begin requests the turn of a worker for a task that the workers of a generation do
// once. It returns true when p must do the task and then call done, and false when the
// task is done. A worker that dies during its turn passes the turn on.
func (t *turns) begin(ctx context.Context, p *Process, name string) (bool, error) {
	for {
		mine, over, changed := t.take(p, turnKey{p.generation, name})
		if mine || over {
			return mine, nil
		}
		select {
		case <-changed:
		case <-p.over:
			return false, errGone
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// take gives p the turn if no other process has it.
func (t *turns) take(p *Process, key turnKey) (mine, over bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.all[key]
	if !ok {
		at = &turn{changed: make(chan struct{})}
		t.all[key] = at
	}
	if at.by == nil && !at.over && !p.gone {
		at.by = p
	}
	return at.by == p && !at.over, at.over, at.changed
}

// done records that p has finished the task of its turn.
func (t *turns) done(p *Process, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := t.all[turnKey{p.generation, name}]; at != nil && at.by == p {
		at.over = true
		at.wake()
	}
}

// leave passes on the turns of a process that has ended.
func (t *turns) leave(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.gone = true
	for _, at := range t.all {
		if at.by == p && !at.over {
			at.by = nil
			at.wake()
		}
	}
}

// wake wakes the waiters for the turn.
func (at *turn) wake() {
	close(at.changed)
	at.changed = make(chan struct{})
}

// forget drops the tasks of the generations before that one: no worker starts
// in an older generation.
func (t *turns) forget(before int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.all, func(k turnKey, _ *turn) bool { return k.generation < before })
}
