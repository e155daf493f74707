package hub

import (
	"errors"
	"sync"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// hubBus routes messages. The reader of the client that sent a message routes
// it: it copies the message to the lines of the receivers. It reads only the
// subject.
type hubBus struct {
	tables [2]*hubTable // of events, and of requests

	mu     sync.RWMutex
	askers map[uint64]*Client // the clients that have sent a request
}

func newHubBus(*Hub) *hubBus {
	return &hubBus{
		tables: [2]*hubTable{driver.Event: newHubTable(), driver.Request: newHubTable()},
		askers: make(map[uint64]*Client),
	}
}

// handle handles a frame of p, on its reader's goroutine.
func (h *hubBus) handle(p *Client, t protocol.Type, d *protocol.Decoder) error {
	switch t {
	case protocol.TypeEvent:
		return h.event(p, d)
	case protocol.TypeAsk:
		return h.ask(p, d)
	case protocol.TypeAnswer:
		return h.answer(p, d)
	case protocol.TypeSync:
		p.send(protocol.Begin(protocol.TypeSynced).Uint(d.Uint()))
	case protocol.TypeJoin:
		return h.join(p, d)
	case protocol.TypeMembers:
		return p.bus.resize(d)
	case protocol.TypeLeave:
		h.end(p.bus.take(d.Uint()))
	case protocol.TypeReturn:
		return h.returned(p, d)
	case protocol.TypeNobody:
		h.nobody(p, protocol.ReadDemand(d))
	}
	return nil
}

var (
	errKind  = errors.New("there is no such kind of interest")
	errTwice = errors.New("two interests with one number")
	errName  = errors.New("a subject, pattern or group that is too long")
)

// maxName is the maximum length of a subject, a pattern and a group. The front
// enforces it, and it bounds the depth of the table, which has one level for
// each token.
const maxName = 255

func (h *hubBus) join(p *Client, d *protocol.Decoder) error {
	w := &wish{peer: p, number: d.Uint(), kind: driver.Kind(d.Byte())}
	w.members.Store(members(d))
	w.pattern, w.group = d.String(), d.String()
	if err := d.Err(); err != nil {
		return err
	}
	switch {
	case w.kind > driver.Request:
		return errKind
	case len(w.pattern) > maxName || len(w.group) > maxName:
		return errName
	case !p.bus.add(w):
		return errTwice
	}
	h.tables[w.kind].Add(w.pattern, w.group, w)
	return nil
}

// members reads the number of a process's members in a group. The result is at
// least 1, and small enough that sums do not overflow.
func members(d *protocol.Decoder) int64 { return int64(min(max(d.Uint(), 1), 1<<31)) }

// add adds a wish, unless there is one with its number. It reports whether it
// did.
func (b *clientBus) add(w *wish) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wishes[w.number] != nil {
		return false
	}
	if b.wishes == nil {
		b.wishes = make(map[uint64]*wish)
	}
	b.wishes[w.number] = w
	return true
}

func (b *clientBus) resize(d *protocol.Decoder) error {
	number, n := d.Uint(), members(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.wishes[number]; w != nil && d.Err() == nil {
		w.members.Store(n)
	}
	return nil
}

// take removes a wish and returns it, or returns nil if there is none. The
// client receives no further message for it.
func (b *clientBus) take(number uint64) *wish {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.wishes[number]
	if w != nil {
		w.ended.Store(true)
		delete(b.wishes, number)
		delete(b.lost, w)
	}
	return w
}

func (h *hubBus) end(w *wish) {
	if w != nil {
		h.tables[w.kind].Remove(w.pattern, w.group, w)
	}
}

// errNoSubject is the error for a message that cannot be routed.
var errNoSubject = errors.New("a message without a subject")

// find returns the receivers of the message.
func (h *hubBus) find(k driver.Kind, tail []byte) (*route, error) {
	d := protocol.NewDecoder(tail)
	subject := d.Bytes()
	if d.Err() != nil || len(subject) == 0 {
		return nil, errNoSubject
	}
	if len(subject) > maxName {
		return nil, errName
	}
	return h.tables[k].FindBytes(subject), nil
}

// event routes an event. The sending process has served its own subscriptions
// without a group.
func (h *hubBus) event(p *Client, d *protocol.Decoder) error {
	tail := d.Rest()
	r, err := h.find(driver.Event, tail)
	if err != nil {
		return err
	}
	if len(r.groups) == 0 {
		for _, t := range r.plain {
			if t.peer != p {
				p.batch.deliver(t.peer, &parcel{plain: t.wishes, tail: tail})
			}
		}
		return nil
	}
	for _, x := range p.parcels(r, p) {
		x.tail = tail
		_, again := p.batch.deliver(x.to, &x.parcel)
		h.others(p, again, tail)
	}
	return nil
}

// addressed is a parcel and its receiver.
type addressed struct {
	parcel
	to *Client
}

// parcels makes one parcel for each client that receives a message. It leaves
// out the client not, for subscriptions without a group. The parcels are valid
// until the next call.
func (p *Client) parcels(r *route, not *Client) []addressed {
	all := p.batch.parcels[:0]
	for _, t := range r.plain {
		if t.peer != not {
			all = append(all, addressed{parcel{plain: t.wishes}, t.peer})
		}
	}
	for _, c := range r.groups {
		if one := c.choose(nil); one != nil {
			all = add(all, one)
		}
	}
	p.batch.parcels = all
	return all
}

func add(all []addressed, one crowd) []addressed {
	to := one[0].peer
	for i := range all {
		if all[i].to == to {
			all[i].groups = append(all[i].groups, one...)
			return all
		}
	}
	return append(all, addressed{parcel{groups: one}, to})
}

// others gives an event to other members of the groups whose chosen members had
// just left.
func (h *hubBus) others(p *Client, again []*wish, tail []byte) {
	for _, w := range again {
		h.rehand(p, w.kind, w.pattern, w.group, w.peer, tail, nil, nil)
	}
}

// rehand gives a message to a member of a group in another client than not, and
// returns the outcome: refused if no such member is left.
func (h *hubBus) rehand(p *Client, k driver.Kind, pattern, group string, not *Client, tail []byte, a *protocol.Demand, x *debt) outcome {
	for {
		r, err := h.find(k, tail)
		if err != nil {
			return refused
		}
		one := r.of(pattern, group).choose(not)
		if one == nil {
			return refused
		}
		if o, _ := p.batch.deliver(one[0].peer, &parcel{groups: one, tail: tail, demand: a, debt: x}); o != refused {
			return o
		}
	}
}

// returned gives a message that no member in the process of p takes to another
// process: the members in p's process have just been stopped.
func (h *hubBus) returned(p *Client, d *protocol.Decoder) error {
	a := protocol.ReadDemand(d)
	done, k := d.Bool(), driver.Kind(d.Byte())
	pattern, group := d.String(), d.String()
	tail := d.Rest()
	if err := d.Err(); err != nil {
		return err
	}
	switch {
	case k > driver.Request:
		return errKind
	case k == driver.Request:
		h.askOthers(p, a, done, pattern, group, tail)
	default:
		h.rehand(p, k, pattern, group, p, tail, nil, nil)
	}
	return nil
}

// leave handles the end of p, on its reader's goroutine.
func (h *hubBus) leave(p *Client) {
	wishes, owed := p.bus.close()
	for _, w := range wishes {
		h.end(w)
	}
	for a, x := range owed {
		h.settle(p, a.ID, x, protocol.FailGone)
	}
	h.mu.Lock()
	delete(h.askers, p.number)
	h.mu.Unlock()
	p.bus.filling.Wait()
}

// close stops all messages to the client, and returns its wishes and debts.
func (b *clientBus) close() (map[uint64]*wish, map[protocol.Demand]*debt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	wishes, owed := b.wishes, b.owed
	if b.writer != nil {
		b.writer.Stop()
	}
	for _, w := range wishes {
		w.ended.Store(true)
	}
	b.gone, b.wishes, b.owed, b.lost, b.failed = true, nil, nil, nil, nil
	return wishes, owed
}
