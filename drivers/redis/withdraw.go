package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// withdraw leaves the queue at the end of the wait, and returns the holders.
func (q *queue) withdraw(c *claim) error {
	a, err := q.leave(context.Background(), c, q.claims.remove(c.r.Token), driver.CallTimeout)
	if err != nil {
		return err
	}
	return &driver.NotAcquiredError{Key: c.r.Key, Position: int(a.num(1)), Holders: holdings(a.sub(2))}
}

// leave withdraws the request of c and returns the answer. The caller has removed the
// claim c; leave adds it again as abandoned if the call fails.
func (q *queue) leave(ctx context.Context, c *claim, loose bool, limit time.Duration) (answer, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o, err := q.run(bounded, q.leaving(c.name, c.r.Token, loose, yes, handback(untouched(c), 0)...))
	if err != nil {
		q.claims.add(c)
		q.claims.abandon(c)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("leave the queue: %w", unavailable(err))
	}
	return check(o.reply, 2)
}

// withdrawClosed leaves the queue because the driver is closed.
func (q *queue) withdrawClosed(c *claim) error {
	loose := q.claims.remove(c.r.Token)
	ctx, cancel := context.WithTimeout(context.Background(), driver.CallTimeout)
	defer cancel()
	_, _ = q.run(ctx, q.leaving(c.name, c.r.Token, loose, no, handback(untouched(c), 0)...))
	return driver.ErrClosed
}

// maxRefusals bounds the concurrent releases of grants without a waiter. L10
const maxRefusals = 64

// refusing is the notice of refuse, besides no and yes.
const refusing = "2"

// refuse releases a grant that has no waiter any more, unless it cools down. The result is not
// needed: if it fails, the grant ends with its window. L22
func (q *queue) refuse(holder, token string) {
	select {
	case q.refusing <- struct{}{}:
	default:
		return
	}
	back := handback(q.claims.unused(token), 0)
	q.refusals.Go(func() {
		_, _ = q.run(context.Background(), q.leaving(holder, token, true, refusing, back...))
		<-q.refusing
	})
}
