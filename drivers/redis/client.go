package redis

import (
	"fmt"

	goredis "github.com/redis/go-redis/v9"
)

// NewClient returns a client of the server that url names, in the forms of
// [Config].URL, with go-redis's own defaults: pool, timeouts, retries. It is
// for all that is not a lock, and has nothing in common with the driver's
// connections. It does not connect yet; the caller closes it.
func NewClient(url string) (goredis.UniversalClient, error) {
	c, err := newClient(url)
	if err != nil {
		return nil, invalid(fmt.Errorf("redis client at %s: %w", masked(url), harmless(url, err)))
	}
	return c, nil
}

func newClient(url string) (goredis.UniversalClient, error) {
	a, err := load(url)
	if err != nil {
		return nil, err
	}
	switch a.scheme {
	case "sentinel":
		o, err := a.failoverOptions()
		if err != nil {
			return nil, err
		}
		o.Dialer = a.plainDialer(o.DialTimeout, o.TLSConfig)
		return goredis.NewFailoverClient(o), nil
	case "cluster":
		o, err := a.clusterOptions()
		if err != nil {
			return nil, err
		}
		o.Dialer = a.plainDialer(o.DialTimeout, o.TLSConfig)
		return goredis.NewClusterClient(o), nil
	}
	o, err := a.options()
	if err != nil {
		return nil, err
	}
	o.Dialer = a.plainDialer(o.DialTimeout, o.TLSConfig)
	return goredis.NewClient(o), nil
}
