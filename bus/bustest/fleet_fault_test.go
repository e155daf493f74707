package bustest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// obstacles are what the backend of a fleet does not carry, or not at once.
type obstacles struct {
	mu     sync.Mutex // guards the fields below
	denied map[string]bool
	rate   int // bytes per second
	limit  int // bytes of a message
}

func (o *obstacles) reset() { o.denied, o.rate, o.limit = map[string]bool{}, 0, 0 }

func (o *obstacles) now() (rate, limit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rate, o.limit
}

// refusal returns why a subject is denied, or nil.
func (o *obstacles) refusal(subject string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.denied[subject] {
		return nil
	}
	return fmt.Errorf("%w: %s is denied", driver.ErrRefused, subject)
}

func (f *fleet) slow(rate int) error {
	f.obstacles.mu.Lock()
	defer f.obstacles.mu.Unlock()
	f.obstacles.rate = rate
	return nil
}

func (f *fleet) shrink(limit int) error {
	f.obstacles.mu.Lock()
	defer f.obstacles.mu.Unlock()
	f.obstacles.limit = limit
	return nil
}

func (f *fleet) allow() error {
	f.obstacles.mu.Lock()
	defer f.obstacles.mu.Unlock()
	clear(f.obstacles.denied)
	return nil
}

func (f *fleet) refuse(subjects ...string) error {
	f.obstacles.mu.Lock()
	for _, s := range subjects {
		f.obstacles.denied[s] = true
	}
	f.obstacles.mu.Unlock()
	for _, n := range f.all() {
		for _, m := range n.standing() {
			if err := f.obstacles.refusal(m.sub.Pattern); err != nil {
				m.sub.Sink.Fail(fmt.Errorf("%w: %w", driver.ErrTerminated, err))
				_ = m.End(context.Background())
			}
		}
	}
	return nil
}

// cut breaks the connection of one process for a moment.
func (f *fleet) cut(d driver.Driver) error {
	n := nodeOf(d)
	n.out.Lock()
	defer n.out.Unlock()
	n.interrupt(errAway)
	return nil
}

// deafen keeps what comes for a process, up to a bound, until it hears again.
func (f *fleet) deafen(d driver.Driver) (undo func() error, err error) {
	n := nodeOf(d)
	n.setDeaf(true)
	return func() error {
		for _, c := range n.setDeaf(false) {
			c.catchUp()
		}
		return nil
	}, nil
}

// setDeaf begins or ends the time in which the node takes nothing, and returns what has
// something for it.
func (n *node) setDeaf(deaf bool) (have []*carrier) {
	n.mu.Lock()
	n.isDeaf = deaf
	n.mu.Unlock()
	return n.takeDeaf()
}

// keep keeps an event for a process that is deaf, and reports whether it did.
func (c *carrier) keep(m driver.Message) bool {
	if m.Kind != driver.Event {
		return false
	}
	c.moving.Lock()
	defer c.moving.Unlock()
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	if !c.node.isDeaf {
		return false
	}
	if len(c.kept) == 0 {
		c.node.deaf = append(c.node.deaf, c)
	}
	const room = 100
	if len(c.kept) < room {
		c.kept = append(c.kept, m)
	} else {
		c.lost++
	}
	return true
}

// catchUp delivers what was kept.
func (c *carrier) catchUp() {
	c.moving.Lock()
	defer c.moving.Unlock()
	for _, m := range c.kept {
		if !c.Sink.Deliver(m) && c.group {
			c.lost++
		}
	}
	if c.lost > 0 {
		c.Sink.Gap(c.lost)
	}
	c.kept, c.lost = nil, 0
}

// await waits until nothing is kept. It returns an error for a loss in a cut that nobody
// has reported.
func (c *carrier) await(ctx context.Context) error {
	for {
		c.moving.Lock()
		left, owes := len(c.kept), c.owes
		c.moving.Unlock()
		switch {
		case owes:
			return errAway
		case left == 0:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func nodeOf(d driver.Driver) *node {
	if b, ok := d.(*broken); ok {
		d = b.Driver
	}
	return d.(*node)
}

// interrupt is an outage of this node alone. Events on their way to it are lost. The
// caller holds n.out.
func (n *node) interrupt(why error) {
	n.front.Disconnected(why)
	n.isCut.Store(true)
	for _, c := range n.takeDeaf() {
		c.lose()
	}
	time.Sleep(time.Millisecond) // the length of the cut
	for _, m := range n.standing() {
		m.sub.Sink.Gap(-1)
		m.way.reported()
	}
	n.isCut.Store(false)
	n.front.Connected()
}

// takeDeaf returns what has something for the node.
func (n *node) takeDeaf() (have []*carrier) {
	n.mu.Lock()
	defer n.mu.Unlock()
	have, n.deaf = n.deaf, nil
	return have
}

// lose drops what was kept.
func (c *carrier) lose() {
	c.moving.Lock()
	defer c.moving.Unlock()
	c.kept, c.lost, c.owes = nil, 0, true
}

// reported records that the loss in a cut was reported.
func (c *carrier) reported() {
	c.moving.Lock()
	defer c.moving.Unlock()
	c.owes = false
}

// transmit hands an event to the routes, as far as nothing is in its way. The
// caller holds n.out.
func (n *node) transmit(ctx context.Context, m driver.Message) error {
	rate, limit := n.fleet.obstacles.now()
	if limit > 0 && m.Size() > limit {
		n.limit = limit
		n.trouble = errAway
		n.front.Lost(1, m.Size(), errAway)
		n.interrupt(errAway)
		return nil
	}
	if err := n.fleet.obstacles.refusal(m.Subject); err != nil {
		n.trouble = err
		n.front.Refused(m.Subject, err)
		return nil
	}
	if rate > 0 {
		time.Sleep(time.Duration(m.Size()) * time.Second / time.Duration(rate))
	}
	return n.fleet.routes.Publish(ctx, m)
}

// report returns what Flush has to tell, once. The caller holds n.out.
func (n *node) report() error {
	err := n.trouble
	n.trouble = nil
	return err
}

// awaitSpeed waits until the link is not slow, and reports whether that came
// before the end of ctx.
func (n *node) awaitSpeed(ctx context.Context) bool {
	for {
		if rate, _ := n.fleet.obstacles.now(); rate == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Millisecond):
		}
	}
}
