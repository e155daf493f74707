package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/lock/driver"
)

// openTimeout bounds OpenLock whatever its context says.
const openTimeout = 10 * time.Second

// OpenLock connects to Redis, looks at it, and returns the driver of the engine
// asked for. It fails within a few seconds, and says what to do, if the server
// cannot be reached or will not do what locks need; what only weakens their
// promise is in Info().Warnings. The caller closes the driver.
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
	if err := c.check(); err != nil {
		return nil, invalid(err)
	}
	t, err := newTemplate(c.Key, c.Namespace)
	if err != nil {
		return nil, invalid(err)
	}
	client, alone := c.Client, (*solo)(nil)
	if client == nil {
		if client, alone, err = dial(c.URL); err != nil {
			return nil, invalid(err)
		}
	}
	b, err := newBackend(client, alone, t)
	if err != nil {
		return nil, errors.Join(err, closeOwned(c, client))
	}
	o := opening{config: c, template: t, client: client, backend: b}
	d, err := o.open(ctx)
	if err != nil {
		b.close()
		err = errors.Join(err, closeOwned(c, client))
		b.wait()
		return nil, err
	}
	return d, nil
}

func closeOwned(c Config, client goredis.UniversalClient) error {
	if c.Client != nil {
		return nil
	}
	return client.Close()
}

// invalid makes an error of the configuration one of the vocabulary.
func invalid(err error) error { return fmt.Errorf("%w: %w", driver.ErrInvalid, err) }

func newBackend(client goredis.UniversalClient, alone *solo, t template) (backend, error) {
	switch c := client.(type) {
	case *goredis.Client:
		return &server{wire: newWire(c, alone), persistent: c.Options().MaxRetries > 0}, nil
	case *goredis.ClusterClient:
		if !t.tagged {
			return nil, invalid(fmt.Errorf("key template %q: a Cluster needs a hash tag in it, as in %q", t.holder("%s"), DefaultKey))
		}
		return newCluster(c), nil
	}
	return nil, invalid(fmt.Errorf("client %T: %w", client, errNotRedis))
}

// opening is what the engines are made of.
type opening struct {
	config   Config
	template template
	client   goredis.UniversalClient
	backend  backend
}

func (o opening) open(ctx context.Context) (driver.Driver, error) {
	l := look{client: o.client, template: o.template}
	if err := l.at(ctx); err != nil {
		return nil, err
	}
	l.layout.edit = o.config.edit
	if o.backend.repeats() {
		l.warn("the client sends commands again by itself: each release leaves an entry for %v; set MaxRetries to -1, the driver sends again by itself", barring)
	}
	if o.config.Engine == EngineRedislock {
		return o.openPolling(ctx, l)
	}
	return o.openQueue(ctx, l)
}

func (o opening) openQueue(ctx context.Context, l look) (driver.Driver, error) {
	q := &queue{engine: o.engine(l, EngineQueue), refusing: make(chan struct{}, maxRefusals)}
	q.inbox = newInbox(o.client, q.received, q.subscribed, q.claims.disconnected)
	q.beater = newBeater(q.beatAll)
	if err := q.inbox.open(ctx); err != nil {
		return nil, explain(err, o)
	}
	var beating context.Context
	beating, q.cancel = context.WithCancel(context.Background())
	q.beater.start(beating)
	if err := q.rehearse(ctx); err != nil {
		q.cancel()
		q.beater.wait()
		q.inbox.close()
		q.inbox.wait()
		return nil, explain(err, o)
	}
	return q, nil
}

// newID is random, for what needs a name of its own.
func newID() string { return rand.Text()[:tokenLen] }
