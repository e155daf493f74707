package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/megaframework/mega/drivers/internal/tlsfiles"
	"github.com/megaframework/mega/drivers/redis/internal/wire"
)

// load is parse for a client: the files of the URL are readable.
func load(raw string) (address, error) {
	a, err := parse(raw)
	if err != nil {
		return address{}, err
	}
	if _, err := a.files.Config(&tls.Config{MinVersion: tls.VersionTLS12}); err != nil {
		return address{}, fmt.Errorf("the options tls_ca, tls_cert and tls_key: %w", err)
	}
	return a, nil
}

// takeFiles removes the options tls_ca, tls_cert and tls_key from query, which
// go-redis does not know.
func takeFiles(query url.Values, secure bool) (f tlsfiles.Files, err error) {
	for name, file := range map[string]*string{"tls_ca": &f.CA, "tls_cert": &f.Cert, "tls_key": &f.Key} {
		*file = query.Get(name)
		query.Del(name)
	}
	switch {
	case f != (tlsfiles.Files{}) && !secure:
		return f, fmt.Errorf("the options tls_ca, tls_cert and tls_key need TLS: use the scheme rediss, rediss-sentinel or rediss-cluster")
	case (f.Cert == "") != (f.Key == ""):
		return f, fmt.Errorf("the options tls_cert and tls_key need each other")
	}
	return f, nil
}

// dialer returns the dialer for a client of the driver. Each connection reads the
// files again: new ones need no restart.
func (a address) dialer(timeout time.Duration, config *tls.Config) wire.DialFunc {
	if a.files == (tlsfiles.Files{}) {
		return wire.Dialer(timeout, config)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		current, err := a.files.Config(config)
		if err != nil {
			return nil, err
		}
		return wire.Dialer(timeout, current)(ctx, network, addr)
	}
}

// plainDialer is dialer for a client with go-redis's defaults. It is nil without
// files: go-redis then connects by itself.
func (a address) plainDialer(timeout time.Duration, config *tls.Config) wire.DialFunc {
	if a.files == (tlsfiles.Files{}) {
		return nil
	}
	const defaultTimeout = 5 * time.Second // as in go-redis
	return a.dialer(cmp.Or(timeout, defaultTimeout), config)
}

// anyHost checks each certificate against the dialed host, not against the
// first of the list.
func anyHost(c *tls.Config) {
	if c != nil {
		c.ServerName = ""
	}
}
