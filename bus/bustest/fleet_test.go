package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/bustest"
	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
)

// fleet is a backend of several processes, on fake time: routes that they
// share, which can go away. What breaks it is put around the driver of each
// process.
type fleet struct {
	broken func(driver.Driver) driver.Driver

	routes    *memory.Bus // of the case
	obstacles obstacles

	mu    sync.Mutex // guards the fields below
	nodes []*node
}

func (f *fleet) harness() bustest.Harness {
	return bustest.Harness{
		Begin: f.begin, Open: f.open, FakeTime: true,
		Faults: bustest.Faults{
			Down: f.down, Up: f.up, Drop: f.drop, Crash: f.crash, Cut: f.cut, Deafen: f.deafen,
			Slow: f.slow, Shrink: f.shrink, Refuse: f.refuse, Allow: f.allow, Registrations: f.registrations,
		},
	}
}

func (f *fleet) begin() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.routes, f.nodes = memory.NewBus(), nil
	f.obstacles.reset()
	return f.routes.Attach((*hub)(f))
}

func (f *fleet) open() (driver.Driver, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := &node{fleet: f, index: uint64(len(f.nodes)), out: make(turnstile, 1), shuts: make(chan struct{}), registrations: map[*subscribed]bool{}, asked: map[uint64]bool{}}
	f.nodes = append(f.nodes, n)
	if f.broken != nil {
		return f.broken(n), nil
	}
	return n, nil
}

func (f *fleet) all() []*node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*node(nil), f.nodes...)
}

func (f *fleet) registrations() (n int, err error) {
	for _, node := range f.all() {
		n += len(node.standing())
	}
	return n, nil
}

var errAway = fmt.Errorf("%w: the backend is away", driver.ErrDisconnected)

func (f *fleet) down() error {
	for _, n := range f.all() {
		n.leave()
		n.front.Disconnected(errAway)
	}
	return nil
}

// leave lets what is being published get through first.
func (n *node) leave() {
	n.out.Lock()
	defer n.out.Unlock()
	n.away.Store(true)
}

// up reports the gap to every subscription before anything is sent, and after a
// while that the backend is there.
func (f *fleet) up() error {
	for _, n := range f.all() {
		if !n.away.Load() {
			return nil
		}
		for _, m := range n.standing() {
			m.sub.Sink.Gap(-1)
		}
	}
	time.Sleep(time.Millisecond)
	for _, n := range f.all() {
		n.front.Connected()
	}
	for _, n := range f.all() {
		n.out.Lock()
		n.away.Store(false)
	}
	for _, n := range f.all() {
		n.send()
		n.out.Unlock()
	}
	return nil
}

func (f *fleet) drop() error { return errors.Join(f.down(), f.up()) }

// crash cuts a process off, and tells those whose requests it had.
func (f *fleet) crash(d driver.Driver) error {
	n := nodeOf(d)
	n.away.Store(true)
	n.end()
	n.mu.Lock()
	defer n.mu.Unlock()
	for id := range n.asked {
		(*hub)(f).Fail(id, driver.ErrDisconnected)
	}
	return nil
}

// hub is the fleet as its routes see it. The number of the process stands
// before that of the request.
type hub fleet

const idBits = 48

func (h *hub) asker(id uint64) (driver.Front, uint64) {
	return (*fleet)(h).all()[id>>idBits].front, id & (1<<idBits - 1)
}

func (h *hub) Answer(m driver.Message) {
	front, id := h.asker(m.ID)
	m.ID = id
	front.Answer(m)
}

func (h *hub) Fail(id uint64, err error) {
	front, id := h.asker(id)
	front.Fail(id, err)
}

func (h *hub) Disconnected(error)    {}
func (h *hub) Connected()            {}
func (h *hub) Expired(int)           {}
func (h *hub) Lost(int, int, error)  {}
func (h *hub) Refused(string, error) {}

// turnstile is a mutex that fake time does not wait for.
type turnstile chan struct{}

func (t turnstile) Lock()   { t <- struct{}{} }
func (t turnstile) Unlock() { <-t }

// node is the driver of one process.
type node struct {
	fleet *fleet
	index uint64
	front driver.Front
	away  atomic.Bool
	shut  atomic.Bool
	isCut atomic.Bool   // events for it are lost
	shuts chan struct{} // closed by Close

	out      turnstile // guards the fields below; held while events are sent, to keep their order
	waiting  []driver.Message
	buffered int
	limit    int   // of a message, as far as it is known
	trouble  error // that no Flush has returned

	mu            sync.Mutex // guards the fields below
	registrations map[*subscribed]bool
	asked         map[uint64]bool // requests that it has to answer
	deaf          []*carrier      // have something for a process that takes nothing
	isDeaf        bool
}

func (n *node) Info() driver.Info { return driver.Info{Name: "fleet", Scope: driver.Fleet} }

func (n *node) Attach(f driver.Front) error {
	if n.front != nil {
		return driver.ErrInvalid
	}
	n.front = f
	return nil
}

func (n *node) Publish(ctx context.Context, m driver.Message) error {
	if done, err := n.tryPublish(ctx, m); done {
		return err
	}
	ctx, cancel := driver.RoomContext(ctx, &m)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrOverloaded, ctx.Err())
		case <-time.After(time.Millisecond):
		}
		if done, err := n.tryPublish(ctx, m); done {
			return err
		}
	}
}

func (n *node) tryPublish(ctx context.Context, m driver.Message) (done bool, err error) {
	n.out.Lock()
	defer n.out.Unlock()
	const room = 4 << 20
	switch {
	case n.shut.Load():
		return true, driver.ErrClosed
	case n.limit > 0 && m.Size() > n.limit:
		return true, m.CheckSize(n.limit)
	case !n.away.Load():
		return true, n.transmit(ctx, m)
	case n.buffered+m.Size() > room:
		return false, nil
	}
	n.buffered += m.Size()
	n.waiting = append(n.waiting, m)
	return true, nil
}

// send sends what has waited. The caller holds n.out.
func (n *node) send() {
	for _, m := range n.waiting {
		if !m.Deadline.IsZero() && !time.Now().Before(m.Deadline) {
			n.front.Expired(1)
			continue
		}
		_ = n.fleet.routes.Publish(context.Background(), m)
	}
	n.waiting, n.buffered = nil, 0
}

func (n *node) Request(ctx context.Context, m driver.Message) error {
	if err := n.reach(); err != nil {
		return err
	}
	if !n.awaitSpeed(ctx) {
		return nil // its caller has left, and it is not sent
	}
	if err := n.fleet.obstacles.refusal(m.Subject); err != nil {
		n.front.Fail(m.ID, err)
		return nil
	}
	m.ID |= n.index << idBits
	return n.fleet.routes.Request(ctx, m)
}

func (n *node) reach() error {
	if n.shut.Load() {
		return driver.ErrClosed
	}
	if n.away.Load() {
		return errAway
	}
	return nil
}

func (n *node) Answer(ctx context.Context, request, answer driver.Message) error {
	n.mu.Lock()
	delete(n.asked, request.ID)
	n.mu.Unlock()
	if err := n.reach(); err != nil {
		return err
	}
	return n.fleet.routes.Answer(ctx, request, answer)
}

func (n *node) Subscribe(ctx context.Context, s driver.Subscription) (driver.Registration, error) {
	if err := n.reach(); err != nil {
		return nil, err
	}
	if err := n.fleet.obstacles.refusal(s.Pattern); err != nil {
		return nil, err
	}
	m := &subscribed{node: n, sub: s, way: &carrier{Sink: s.Sink, node: n, group: s.Group != "", moving: make(turnstile, 1)}}
	s.Sink = m.way
	var err error
	if m.Registration, err = n.fleet.routes.Subscribe(ctx, s); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.registrations[m] = true
	return m, nil
}

func (n *node) Flush(ctx context.Context) error {
	if n.shut.Load() {
		return driver.ErrClosed
	}
	n.out.Lock()
	unsent := len(n.waiting)
	n.out.Unlock()
	if unsent > 0 && n.away.Load() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %d accepted messages not confirmed: %w", errAway, unsent, ctx.Err())
		case <-n.shuts:
			return driver.ErrClosed
		}
	}
	n.out.Lock()
	defer n.out.Unlock()
	return n.report()
}

func (n *node) Close(context.Context) (err error) {
	if !n.shut.Swap(true) {
		close(n.shuts)
		n.out.Lock()
		if unsent := len(n.waiting); unsent > 0 {
			err = fmt.Errorf("%w: %d accepted messages not confirmed", errAway, unsent)
		}
		n.out.Unlock()
	}
	n.end()
	return err
}

func (n *node) standing() (all []*subscribed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for m := range n.registrations {
		all = append(all, m)
	}
	return all
}

func (n *node) end() {
	for _, m := range n.standing() {
		_ = m.End(context.Background())
	}
}

// subscribed is a subscription of a process.
type subscribed struct {
	driver.Registration
	node *node
	sub  driver.Subscription
	way  *carrier
}

func (m *subscribed) End(ctx context.Context) error {
	m.node.mu.Lock()
	delete(m.node.registrations, m)
	m.node.mu.Unlock()
	err := m.Registration.End(ctx)
	if err == nil && m.node.away.Load() {
		return errAway
	}
	return errors.Join(err, m.way.await(ctx))
}

// carrier is the way of a message to its process.
type carrier struct {
	driver.Sink
	node  *node
	group bool

	moving turnstile // guards the fields below; held while messages are delivered, to keep their order
	kept   []driver.Message
	lost   int  // messages behind those that are kept
	owes   bool // a cut has lost messages, and nobody has reported it
}

func (c *carrier) Deliver(m driver.Message) bool {
	if m.Kind == driver.Request {
		c.node.mu.Lock()
		c.node.asked[m.ID] = true
		c.node.mu.Unlock()
	}
	if c.node.isCut.Load() && m.Kind == driver.Event || c.keep(m) {
		return true
	}
	return c.Sink.Deliver(m)
}
