package redistest

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Command is one request on its way through a [Proxy].
type Command struct {
	Name string // the name from the proxy's namer
	Args []string
}

// Match chooses commands.
type Match func(Command) bool

// Named matches the commands of that name.
func Named(name string) Match { return func(c Command) bool { return c.Name == name } }

// FirstWord names a command by its first word, in upper case.
func FirstWord(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.ToUpper(args[0])
}

// effect is what a fault does to the command it strikes.
type effect int

const (
	record effect = iota
	dropReply
	resetAfter
	delayReply
	holdReply
	holdRequest
)

// Fault is something that happens to the next command that matches, once.
type Fault struct {
	proxy  *Proxy
	match  Match
	effect effect
	delay  time.Duration

	command  Command       // set before hit is closed
	hit      chan struct{} // closed when it has happened
	released chan struct{} // closed by Release
	once     sync.Once
}

// DropReply lets the server execute the next command that matches and loses
// its reply, with all that follows on that connection, which stays open: a way
// back that went dead. TCP never loses one reply and delivers the next.
func (p *Proxy) DropReply(m Match) *Fault { return p.add(&Fault{match: m, effect: dropReply}) }

// ResetAfter lets the server execute the next command that matches and resets
// the connection in place of the reply.
func (p *Proxy) ResetAfter(m Match) *Fault { return p.add(&Fault{match: m, effect: resetAfter}) }

// DelayReply brings the reply of the next command that matches d later.
func (p *Proxy) DelayReply(m Match, d time.Duration) *Fault {
	return p.add(&Fault{match: m, effect: delayReply, delay: d})
}

// HoldReply keeps the reply of the next command that matches, with all that
// follows on that connection, until Release.
func (p *Proxy) HoldReply(m Match) *Fault { return p.add(&Fault{match: m, effect: holdReply}) }

// HoldRequest keeps the next command that matches from the server, with all
// that follows on that connection, until Release. It is delivered then even if
// the client has given up and closed the connection.
func (p *Proxy) HoldRequest(m Match) *Fault { return p.add(&Fault{match: m, effect: holdRequest}) }

// Record changes nothing; it keeps the next command that matches, for
// Redeliver.
func (p *Proxy) Record(m Match) *Fault { return p.add(&Fault{match: m, effect: record}) }

// Hit is closed when the fault has happened: for one of a reply, when the
// server has executed the command.
func (f *Fault) Hit() <-chan struct{} { return f.hit }

// Command is the command that was struck. It waits for the hit.
func (f *Fault) Command() Command {
	<-f.hit
	return f.command
}

// Release ends HoldReply and HoldRequest. It is idempotent.
func (f *Fault) Release() { f.once.Do(func() { close(f.released) }) }

// Cancel takes the fault back if nothing has matched yet, and is Release if
// something has.
func (f *Fault) Cancel() {
	f.proxy.remove(f)
	f.Release()
}

// Redeliver sends the command that was struck to the server once more, on a
// connection of its own, as a network that delivers twice would, and returns
// the answer.
func (f *Fault) Redeliver() (any, error) {
	args := make([]any, 0, len(f.Command().Args))
	for _, a := range f.command.Args {
		args = append(args, a)
	}
	return f.proxy.server.Do(args...)
}

// strike reports that the fault has affected c.
func (f *Fault) strike(c Command) {
	f.command = c
	close(f.hit)
}

func (p *Proxy) add(f *Fault) *Fault {
	f.proxy = p
	f.hit, f.released = make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(slices.Clip(p.faults), f)
	return f
}

// remove takes f off the list and reports whether it was there.
func (p *Proxy) remove(f *Fault) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.faults, f)
	if i < 0 {
		return false
	}
	p.faults = slices.Delete(slices.Clone(p.faults), i, i+1) // take reads the old list without the mutex
	return true
}

// take counts c and returns the fault that it meets, if any. A fault meets one
// command.
func (p *Proxy) take(c Command) *Fault {
	p.mu.Lock()
	p.counts[c.Name]++
	faults := p.faults
	p.mu.Unlock()
	for _, f := range faults {
		if f.match(c) && p.remove(f) {
			return f
		}
	}
	return nil
}
