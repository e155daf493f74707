package nats

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// errLameDuck is the reason for the end of a link whose server will end.
var errLameDuck = errors.New("the server has announced its end (lame duck mode)")

// A server that will end announces it to its clients, accepts no connection any more,
// and some seconds later closes its connections one after the other. Messages that it
// has not read by then are lost. So the driver leaves it earlier: connected to another
// server, and with everything confirmed.

// successor waits for the end of the link and returns nil, or for the end that its server
// announces, and returns a link to another server. Then the server of the first one has
// confirmed everything that was handed over, and nothing more is handed over to it (S28).
func (b *Bus) successor(l *link) *link {
	if !l.wait(l.lame, nil) {
		return nil
	}
	ctx, cancel := l.lifetime()
	defer cancel()
	for l.pause(rand.N(b.config.ping)) { // not all processes at once
		b.learnServers(l) // those that have joined meanwhile
		next, err := b.connect(ctx)
		if err != nil {
			continue // the link serves for as long as its server does
		}
		if b.ledger.confirmed(ctx, b.ledger.hold(), b.kickFlusher, b.life.Done()) == nil {
			l.left = true
		}
		return next
	}
	return nil
}

// lifetime returns a context that ends with the link, also if the server ends it.
func (l *link) lifetime() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(l.ctx)
	l.bus.running.Go(func() {
		l.wait(ctx.Done(), nil)
		cancel()
	})
	return ctx, cancel
}

// pause waits for d, and returns false if the link has ended.
func (l *link) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	return l.wait(nil, timer.C)
}
