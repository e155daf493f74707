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

// Named matches the commands with a name.
func Named(name string) Match { return func(c Command) bool { return c.Name == name } }

// FirstWord names a command by its first word, in upper case.
func FirstWord(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return strings.ToUpper(args[0])
}

// effect is the effect of a fault on its command.
type effect int

const (
	record effect = iota
	dropReply
	resetAfter
	delayReply
	holdReply
	holdRequest
)

// Fault affects the next command that matches, once.
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

// DropReply lets the server execute the next command that matches, and drops its
// reply and all later data on that connection. The connection stays open. (TCP
// never loses one reply and delivers the next.)
func (p *Proxy) DropReply(m Match) *Fault { return p.add(&Fault{match: m, effect: dropReply}) }

// ResetAfter lets the server execute the next command that matches and resets
// the connection in place of the reply.
func (p *Proxy) ResetAfter(m Match) *Fault { return p.add(&Fault{match: m, effect: resetAfter}) }

// DelayReply delays the reply of the next command that matches by d.
func (p *Proxy) DelayReply(m Match, d time.Duration) *Fault {
	return p.add(&Fault{match: m, effect: delayReply, delay: d})
}

// HoldReply holds the reply of the next command that matches, and all later data on
// that connection, until Release.
func (p *Proxy) HoldReply(m Match) *Fault { return p.add(&Fault{match: m, effect: holdReply}) }

// HoldRequest holds the next command that matches, and all later requests on that
// connection, until Release. The command then reaches the server even if the client
// has closed the connection.
func (p *Proxy) HoldRequest(m Match) *Fault { return p.add(&Fault{match: m, effect: holdRequest}) }

// Record changes nothing; it keeps the next command that matches, for
// Redeliver.
func (p *Proxy) Record(m Match) *Fault { return p.add(&Fault{match: m, effect: record}) }

// Hit returns a channel that is closed when the fault has taken effect. For a fault
// of a reply, the server has then executed the command.
func (f *Fault) Hit() <-chan struct{} { return f.hit }

// Command waits for the hit and returns the affected command.
func (f *Fault) Command() Command {
	<-f.hit
	return f.command
}

// Release ends HoldReply and HoldRequest. It is idempotent.
func (f *Fault) Release() { f.once.Do(func() { close(f.released) }) }

// Cancel removes the fault if no command has matched yet. Otherwise it is Release.
func (f *Fault) Cancel() {
	f.proxy.remove(f)
	f.Release()
}

// Redeliver sends the affected command to the server a second time, on a new
// connection, as a network that delivers twice does. It returns the answer.
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

// take counts c and returns its fault, if any. A fault affects one command.
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
