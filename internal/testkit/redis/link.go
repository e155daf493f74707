package redistest

import (
	"net"
	"strings"
	"sync"
	"time"
)

// link is one client's connection through the proxy: a reader and a writer for
// each direction, with a queue between them, so that a delay shifts traffic
// instead of slowing it down.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	queues         [2]chan item
	clientGone     chan struct{} // closed when the client has closed the connection
	done           chan struct{} // closed by reset
	once           sync.Once

	mu         sync.Mutex // guards the fields below
	pending    []*pending // the commands without a reply so far, in order
	subscribed bool
}

// item is a frame on its way, or the end of the stream if the frame is nil.
type item struct {
	frame []byte
	due   time.Time
	hold  <-chan struct{} // the item passes when this is closed; nil: at once
}

// pending is a command that waits for its reply.
type pending struct {
	command Command
	fault   *Fault // nil: none that concerns the reply
	// confirmations is the number of pushes that replace the reply of a
	// subscription.
	confirmations int
}

func newLink(p *Proxy, client, server net.Conn) *link {
	return &link{
		proxy: p, client: client, server: server,
		queues:     [2]chan item{make(chan item, 4096), make(chan item, 4096)},
		clientGone: make(chan struct{}), done: make(chan struct{}),
	}
}

// run moves frames until both directions have ended.
func (l *link) run() {
	var ways sync.WaitGroup
	ways.Go(l.readRequests)
	ways.Go(l.readReplies)
	ways.Go(func() { l.write(Requests, l.server) })
	ways.Go(func() { l.write(Replies, l.client) })
	ways.Wait()
	l.client.Close()
	l.server.Close()
	l.proxy.leave(l)
}

func (l *link) readRequests() {
	defer close(l.clientGone)
	in := newSplitter(l.client)
	for {
		frame, err := in.next()
		if err != nil {
			l.enqueue(Requests, item{})
			return
		}
		l.enqueue(Requests, item{frame: frame, hold: l.request(frame)})
	}
}

func (l *link) readReplies() {
	in := newSplitter(l.server)
	var end item
	for {
		frame, err := in.next()
		if err != nil {
			l.enqueue(Replies, end)
			return
		}
		if end.hold != nil {
			continue // the replies are dropped
		}
		next := item{frame: frame}
		switch f := l.reply(frame); {
		case f == nil:
		case f.effect == dropReply:
			end.hold = l.clientGone
			continue
		case f.effect == resetAfter:
			l.reset()
			return
		case f.effect == delayReply:
			next.due = time.Now().Add(f.delay)
		case f.effect == holdReply:
			next.hold = f.released
		}
		l.enqueue(Replies, next)
	}
}

// enqueue passes an item to the writer of a direction, after its delay.
func (l *link) enqueue(d Direction, it item) {
	way, _ := l.proxy.way(d)
	if way.delay > 0 {
		it.due = latest(it.due, time.Now().Add(way.delay))
	}
	select {
	case l.queues[d] <- it:
	case <-l.done:
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// write delivers the queue of one direction until its end.
func (l *link) write(d Direction, to net.Conn) {
	for {
		select {
		case <-l.done:
			return
		case it := <-l.queues[d]:
			if !l.passes(d, it) {
				return
			}
			if it.frame == nil {
				l.end(d)
				return
			}
			_, _ = to.Write(it.frame) // fails if the receiver has disconnected
		}
	}
}

// end closes the receiver's side, since the sender has closed the connection. Redis
// does not close a single direction.
func (l *link) end(d Direction) {
	if d == Requests {
		_ = l.server.(*net.TCPConn).CloseWrite()
		return
	}
	_ = l.client.Close()
}

// passes waits until data may pass, and returns false if the link was reset.
func (l *link) passes(d Direction, it item) bool {
	if !l.wait(it.hold) || !l.waitUntil(it.due) {
		return false
	}
	for {
		way, changed := l.proxy.way(d)
		if !way.held {
			return true
		}
		if !l.wait(changed) {
			return false
		}
	}
}

// wait waits for c, which may be nil, and returns false if the link was reset.
func (l *link) wait(c <-chan struct{}) bool {
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	case <-l.done:
		return false
	}
}

func (l *link) waitUntil(due time.Time) bool {
	left := time.Until(due)
	if due.IsZero() || left <= 0 {
		return true
	}
	if left < time.Millisecond {
		nap(left) // too short to watch for a reset
		return true
	}
	select {
	case <-time.After(left):
		return true
	case <-l.done:
		return false
	}
}

// reset closes both connections at once, the client's with RST.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.done)
		abort(l.client)
		abort(l.server)
	})
}

func abort(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// request records a command, and returns the channel that its frame has to wait for.
func (l *link) request(frame []byte) (hold <-chan struct{}) {
	c := l.proxy.command(frame)
	p := &pending{command: c, fault: l.proxy.take(c)}
	if f := p.fault; f != nil && (f.effect == holdRequest || f.effect == record) {
		p.fault = nil
		hold = f.released
		if f.effect == record {
			hold = nil
		}
		f.strike(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if subscribes(c) {
		l.subscribed = true
		p.confirmations = max(1, len(c.Args)-1)
	}
	l.pending = append(l.pending, p)
	return hold
}

// command parses a request. Other data has no name.
func (p *Proxy) command(frame []byte) Command {
	words, _ := decodeList(frame)
	return Command{Name: p.name(words), Args: words}
}

func decodeList(frame []byte) ([]string, bool) {
	v, err := decode(frame)
	list, ok := v.([]any)
	if err != nil || !ok {
		return nil, false
	}
	words := make([]string, 0, len(list))
	for _, e := range list {
		word, _ := e.(string)
		words = append(words, word)
	}
	return words, true
}

func subscribes(c Command) bool { return subscribing(FirstWord(c.Args)) }

// subscribing reports whether a command of that name is confirmed by pushes.
func subscribing(word string) bool {
	switch word {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		return true
	}
	return false
}

// reply finds the command of a reply, and returns the fault of the reply, if any.
func (l *link) reply(frame []byte) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) == 0 {
		return nil
	}
	head := l.pending[0]
	if kind := l.push(frame); kind != "" && !head.takes(kind) {
		return nil
	}
	fault := head.fault
	head.fault = nil
	head.confirmations--
	if head.confirmations <= 0 || frame[0] == '-' {
		l.pending = l.pending[1:]
	}
	if fault != nil {
		fault.strike(head.command)
	}
	return fault
}

// takes reports whether a push of that kind confirms the command.
func (p *pending) takes(kind string) bool {
	return p.confirmations > 0 && strings.EqualFold(kind, FirstWord(p.command.Args))
}

// push returns the first word of a frame that is not the reply of a command:
// of RESP 3's push type, or, once the client has subscribed, of the arrays
// that RESP 2 uses for it.
func (l *link) push(frame []byte) string {
	if frame[0] != '>' && (frame[0] != '*' || !l.subscribed) {
		return ""
	}
	words, ok := decodeList(frame)
	if !ok || len(words) == 0 {
		return ""
	}
	kind := words[0]
	if frame[0] == '>' || isPush(kind) {
		return kind
	}
	return ""
}

func isPush(kind string) bool {
	return strings.HasSuffix(kind, "message") || subscribing(strings.ToUpper(kind))
}
