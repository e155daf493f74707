package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/lock/driver"
)

// openTimeout bounds OpenLock, independent of its context.
const openTimeout = 10 * time.Second

// OpenLock connects to Redis, checks it, and returns the driver of the
// configured engine. It fails within a few seconds, with the correction, if the
// server cannot be reached or lacks what locks need. Info().Warnings lists what
// only weakens the promises. The caller closes the driver.
func OpenLock(ctx context.Context, c Config) (driver.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	c = c.withDefaults()
	d, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open redis lock%s: %w", where(c), err)
	}
	return d, nil
}

func where(c Config) string {
	if c.URL != "" {
		return " at " + masked(c.URL)
	}
	return ""
}

func open(ctx context.Context, c Config) (driver.Driver, error) {
	o, err := prepare(c)
	if err != nil {
		return nil, err
	}
	d, err := o.open(ctx)
	if err != nil {
		o.connection.close()
		return nil, err
	}
	return d, nil
}

// prepare checks c and makes its client, which does not connect yet.
func prepare(c Config) (opening, error) {
	if err := c.check(); err != nil {
		return opening{}, invalid(err)
	}
	t, err := newTemplate(c.Key, c.Namespace)
	if err != nil {
		return opening{}, invalid(err)
	}
	d, of := dialed{client: c.Client}, peersOf(c.Client)
	if d.client == nil {
		if d, err = dial(c.URL); err != nil {
			return opening{}, invalid(err)
		}
		a, _ := parse(c.URL) // dial has parsed it
		of = a.peers()
	}
	b, err := newBackend(d.client, d.stream, t)
	if err != nil {
		if c.Client == nil {
			_ = d.client.Close()
		}
		return opening{}, err
	}
	return opening{c, t, &connection{client: d.client, feed: d.feed, backend: b, owned: c.Client == nil}, of}, nil
}

// invalid wraps an error of the configuration in the boundary's error.
func invalid(err error) error { return fmt.Errorf("%w: %w", driver.ErrInvalid, err) }

func newBackend(client goredis.UniversalClient, stream *wire.Stream, t template) (backend, error) {
	switch c := client.(type) {
	case *goredis.Client:
		if o := c.Options(); min(o.ReadTimeout, o.WriteTimeout) <= 0 {
			return nil, invalid(errNoTimeouts)
		}
		return &server{wire: wire.New(c, stream), persistent: c.Options().MaxRetries > 0}, nil
	case *goredis.ClusterClient:
		if o := c.Options(); min(o.ReadTimeout, o.WriteTimeout) <= 0 {
			return nil, invalid(errNoTimeouts)
		}
		if !t.tagged {
			return nil, invalid(fmt.Errorf("key template %q: a Cluster needs a hash tag in it, as in %q", t.holder("%s"), DefaultKey))
		}
		return newCluster(c), nil
	}
	return nil, invalid(fmt.Errorf("client %T: %w", client, errNotRedis))
}

var errNoTimeouts = errors.New("the client has no timeout of reads or of writes, and would wait without end for a server that stands still: set ReadTimeout and WriteTimeout")

// opening holds the parts of which an engine is made.
type opening struct {
	config     Config
	template   template
	connection *connection
	peers      peers
}

func (o opening) open(ctx context.Context) (driver.Driver, error) {
	l := look{client: o.connection.client, peers: o.peers, losses: lossesOfLocks()}
	if err := l.at(ctx); err != nil {
		return nil, err
	}
	_, cluster := o.connection.client.(*goredis.ClusterClient)
	l.layout = newLayout(o.template, cluster, l.strict)
	l.layout.edit = o.config.edit
	if o.connection.backend.repeats() {
		l.warn("the client retries commands: each release and each refused attempt leaves an entry for %v, and the latter takes another call; set MaxRetries to -1, because the driver retries", barring)
	}
	if o.config.Engine == EngineRedislock {
		return o.openPolling(ctx, l)
	}
	return o.openQueue(ctx, l)
}

func (o opening) openQueue(ctx context.Context, l look) (driver.Driver, error) {
	q := &queue{
		engine: o.engine(l, EngineQueue), heard: make(chan struct{}, 1),
		refusing: make(chan struct{}, maxRefusals), requeuing: make(chan struct{}, maxKeys),
	}
	q.unpushed = q.check
	q.inbox = newInbox(o.connection, q.received, q.subscribed, q.claims.disconnected, q.check)
	q.claims.interrupt = q.inbox.interrupt
	q.heartbeater = newHeartbeater(q.sendAll)
	o.connection.backend.onReconnect(q.reconnected, q.claims.disconnected)
	if err := q.inbox.open(ctx); err != nil {
		return nil, explain(err, o)
	}
	var beating context.Context
	beating, q.cancel = context.WithCancel(context.Background())
	q.heartbeater.start(beating)
	if err := q.rehearse(ctx); err != nil {
		q.cancel()
		q.heartbeater.wait()
		q.inbox.close()
		q.inbox.wait()
		return nil, explain(err, o)
	}
	return q, nil
}

// newID returns a random id.
func newID() string { return rand.Text()[:tokenLen] }
