package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/lock/driver"
)

// inboxes is the common prefix of all inbox names. It is not part of the
// template: channels of Redis are independent of databases, and the rest of the
// name is random.
const inboxes = "mega:inbox:"

// inboxLen is the length of the random part of an inbox, 65 bits: each lease and
// each ticket of the process stores it.
const inboxLen = 13

// silence is how long the subscription may be quiet before a ping. Correctness
// does not depend on it: heartbeats find what a dead subscription missed.
const silence = 10 * time.Second

// inbox is the channel on which this process receives its grants.
type inbox struct {
	name    string
	client  goredis.UniversalClient
	feed    *wire.Feed // nil if only the goroutine of the inbox reads
	receive func(message)
	again   func() // subscribed again: earlier pushes are lost
	cut     func() // the connection has ended
	doubt   func() // nothing has arrived for long

	drained chan struct{}        // receives when the server has confirmed an unsubscription
	lost    atomic.Pointer[loss] // nil while the process is subscribed
	ending  context.Context      // ends with close
	end     context.CancelFunc

	mu     sync.Mutex // guards the fields below; not held over I/O
	sub    *goredis.PubSub
	master *goredis.Client // at which sub is; nil without a Cluster
	closed bool

	reader sync.WaitGroup
}

// message is one push.
type message struct {
	kind   string // "g2", "g3": granted; "f2": forced; "w2": free in left
	token  string
	fence  uint64
	slot   int
	name   string // of the lock's holder key
	record string // of the slot, if it has a state
	reason string // JSON
	left   time.Duration
}

func newInbox(c *connection, receive func(message), again, cut, doubt func()) *inbox {
	in := &inbox{name: inboxes + rand.Text()[:inboxLen], client: c.client, feed: c.feed, receive: receive, again: again, cut: cut, doubt: doubt, drained: make(chan struct{}, 1)}
	in.ending, in.end = context.WithCancel(context.Background())
	if in.feed != nil {
		in.feed.Follow(in.name, in.take)
	}
	return in
}

// open subscribes, and returns when the server has confirmed it. It retries while the
// server is unreachable, as a call does.
func (in *inbox) open(ctx context.Context) error {
	start := time.Now()
	for attempt := 0; ; attempt++ {
		err := in.subscribe(ctx)
		if err == nil {
			in.reader.Go(in.read)
			return nil
		}
		if futile(err) || ctx.Err() != nil || time.Since(start) > driver.CallTimeout {
			return err
		}
		group.Sleep(ctx, backOff(attempt))
	}
}

// subscribe is one attempt of open.
func (in *inbox) subscribe(ctx context.Context) error {
	sub, master := in.subscription(ctx, nil)
	_ = sub.Subscribe(ctx, in.name) // the receipt reports its error
	for {
		m, err := sub.ReceiveTimeout(ctx, attemptTimeout)
		if err != nil {
			_ = sub.Close()
			return fmt.Errorf("subscribe: %w", err)
		}
		if _, ok := m.(*goredis.Subscription); ok {
			break
		}
	}
	in.sub, in.master = sub, master
	return nil
}

// subscription returns a new subscription, which has no channel yet. On a Cluster,
// which passes each push to every node, it is at any master but last, if there is
// another: the client would choose the owner of the name's hash slot, which may be
// lost. L21
func (in *inbox) subscription(ctx context.Context, last *goredis.Client) (*goredis.PubSub, *goredis.Client) {
	c, cluster := in.client.(*goredis.ClusterClient)
	if !cluster {
		return in.client.Subscribe(ctx), nil
	}
	_, master, err := another(ctx, c, last)
	if err != nil {
		return c.Subscribe(ctx), nil // it reports why there is none
	}
	return master.Subscribe(ctx), master
}

// another returns a master of a Cluster, which is last only if it draws no other, and a
// key that it serves.
func another(ctx context.Context, c *goredis.ClusterClient, last *goredis.Client) (key string, master *goredis.Client, err error) {
	for range draws {
		key = rand.Text()
		if master, err = c.MasterForKey(ctx, key); err != nil || master != last {
			break
		}
	}
	return key, master, err
}

// apart returns a key that is not at the subscription's master, if a Cluster has another
// one: a removed master still delivers the pushes sent there.
func (in *inbox) apart(ctx context.Context) string {
	c, cluster := in.client.(*goredis.ClusterClient)
	if !cluster {
		return newID()
	}
	in.mu.Lock()
	last := in.master
	in.mu.Unlock()
	key, _, _ := another(ctx, c, last) // a call with key reports the error
	return key
}

// draws is how many masters are drawn to find another one. Among two with as many hash
// slots it fails once in 65536 times.
const draws = 16

// drain unsubscribes, and returns when all earlier messages were received, or
// after a time limit.
func (in *inbox) drain() {
	sub, _ := in.current()
	if err := sub.Unsubscribe(context.Background(), in.name); err != nil {
		return
	}
	t := time.NewTimer(attemptTimeout)
	defer t.Stop()
	select {
	case <-in.drained:
	case <-t.C:
	}
}

func (in *inbox) close() {
	in.mu.Lock()
	sub := in.sub
	in.closed = true
	in.mu.Unlock()
	in.end()
	if sub != nil {
		_ = sub.Close()
	}
}

func (in *inbox) wait() { in.reader.Wait() }

func (in *inbox) current() (sub *goredis.PubSub, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.sub, in.closed
}

// read delivers messages until close. When the connection ends, the client reconnects
// and subscribes again by itself; a Subscription message reports it. On a Cluster, fail
// replaces the subscription before that.
func (in *inbox) read() {
	ctx := context.Background()
	asked, failed := false, 0
	for {
		sub, closed := in.current()
		if closed {
			return
		}
		m, err := sub.ReceiveTimeout(ctx, silence)
		switch {
		case err == nil:
			asked, failed = false, 0
			in.handle(m)
		case wire.IsTimeout(err) && !asked:
			asked = true
			_ = sub.Ping(ctx)
			if in.onCluster() { // a master that was removed answers. L4
				in.doubt()
			}
		case wire.IsTimeout(err):
			asked = false
			in.replace(sub)
		case asked && refusesPing(err): // and so it is alive
			asked = false
		default:
			asked = false
			failed++
			in.fail(sub, err, failed)
		}
	}
}

// fail records that the subscription is lost because of err, which is the error of
// that number in a row, and pauses before the next attempt.
func (in *inbox) fail(sub *goredis.PubSub, err error, number int) {
	if number == 1 {
		in.cut()
	}
	if refusal.Of(err) != refusal.None { // it does not pass by itself
		in.lost.Store(&loss{err: err})
		group.Sleep(in.ending, attemptTimeout)
		in.replace(sub) // the client keeps the connection, and does not repeat the subscription
		return
	}
	since := time.Now()
	if l := in.lost.Load(); l != nil {
		since = l.since
	}
	in.lost.Store(&loss{since, err})
	group.Sleep(in.ending, backOff(number))
	if in.onCluster() {
		in.replace(sub) // at another master: the client would return to this one (L21)
	}
}

func (in *inbox) onCluster() bool {
	_, cluster := in.client.(*goredis.ClusterClient)
	return cluster
}

// refusesPing reports whether err is the answer to a ping by a user that may not, or
// of a server that has disabled PING.
func refusesPing(err error) bool {
	text := err.Error()
	return (goredis.IsPermissionError(err) || isUnknownCommand(err)) &&
		(strings.Contains(text, "'ping'") || strings.Contains(text, "`ping`")) // Redis before 7.0 has the second quotes
}

// loss is the loss of the subscription.
type loss struct {
	since time.Time
	err   error // of the last attempt to subscribe again
}

// unheard is how long the subscription may be lost before calls fail, although
// they are answered.
const unheard = 2 * time.Second

// refusal returns the error of calls while there is no subscription, or nil.
// Without pushes other processes overtake the waiters of this one. L21
func (in *inbox) refusal() error {
	if l := in.lost.Load(); l != nil && time.Since(l.since) >= unheard {
		return unavailable(fmt.Errorf("subscribe: %w", l.err))
	}
	return nil
}

// handle passes a message to its receiver, and takes note of subscriptions.
func (in *inbox) handle(m any) {
	switch m := m.(type) {
	case *goredis.Message:
		in.take(m.Payload)
	case *goredis.Subscription:
		if m.Kind == "subscribe" {
			in.lost.Store(nil)
			in.again()
			return
		}
		select {
		case in.drained <- struct{}{}:
		default: // once is enough
		}
	}
}

// take passes a push to its receiver.
func (in *inbox) take(payload string) {
	if m, ok := decodeMessage(payload); ok {
		in.receive(m)
	}
}

// lead reads pushes on the goroutine of a waiter until its claim is woken, ctx has
// ended or until has passed, which is unlimited if zero. It returns false if that is
// not possible now.
func (in *inbox) lead(ctx context.Context, until time.Time, c *claim) bool {
	return in.feed != nil && in.feed.Lead(ctx, until, func() bool { return len(c.wake) > 0 })
}

// interrupt lets a waiter that reads look at its claim.
func (in *inbox) interrupt() {
	if in.feed != nil {
		in.feed.Interrupt()
	}
}

// replace replaces a subscription that no longer receives. If Subscribe fails,
// the next Receive repeats it.
func (in *inbox) replace(old *goredis.PubSub) {
	in.mu.Lock()
	last := in.master
	in.mu.Unlock()
	sub, master := in.subscription(context.Background(), last)
	in.mu.Lock()
	current := !in.closed && in.sub == old
	if current {
		in.sub, in.master = sub, master
	}
	in.mu.Unlock()
	if !current { // closed, or replaced by another caller meanwhile
		_ = sub.Close()
		return
	}
	_ = old.Close()
	_ = sub.Subscribe(context.Background(), in.name)
}

// deaf handles a report that no subscriber has this inbox.
func (in *inbox) deaf() {
	if sub, closed := in.current(); !closed {
		in.replace(sub)
	}
}

// decodeMessage reads "g2 <ticket> <fence> <slot> <holder key>", "g3" with the
// slot's record after that, "f2 <token> <JSON>" and "w2 <ticket> <ms>". 2 is the
// version of the format; messages of another version are ignored. L24
func decodeMessage(s string) (message, bool) {
	kind, rest, _ := strings.Cut(s, " ")
	token, rest, ok := strings.Cut(rest, " ")
	m := message{kind: kind, token: token}
	switch {
	case !ok || token == "":
		return message{}, false
	case kind == "f2":
		m.reason = rest
		return m, true
	case kind == "w2":
		ms, err := strconv.ParseInt(rest, 10, 32)
		m.left = time.Duration(ms) * time.Millisecond
		return m, err == nil
	case kind != "g2" && kind != "g3":
		return message{}, false
	}
	parts := 3
	if kind == "g3" {
		parts = 4
	}
	f := strings.SplitN(rest, " ", parts)
	if len(f) != parts {
		return message{}, false
	}
	var err1, err2 error
	m.fence, err1 = strconv.ParseUint(f[0], 10, 53)
	m.slot, err2 = strconv.Atoi(f[1])
	m.name, m.record = f[2], strings.Join(f[3:], "")
	return m, err1 == nil && err2 == nil && m.slot >= 0
}
