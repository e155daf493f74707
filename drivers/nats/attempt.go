package nats

import "sync"

// attempt is one to connect, or several in a row. The client holds its lock
// meanwhile, so that who calls it waits, whatever their context says.
type attempt struct {
	mu    sync.Mutex // guards the fields below
	done  chan struct{}
	never bool
}

// ended is the end of what is not under way.
var ended = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (a *attempt) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil && !a.never {
		a.done = make(chan struct{})
	}
}

func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done != nil {
		close(a.done)
		a.done = nil
	}
}

// forget ends it, and there will be no other.
func (a *attempt) forget() {
	a.mu.Lock()
	a.never = true
	a.mu.Unlock()
	a.end()
}

// over is closed when none is under way.
func (a *attempt) over() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		return ended
	}
	return a.done
}

func (a *attempt) underWay() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.done != nil
}
