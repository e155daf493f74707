package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/internal/refusal"
)

// CheckTLS returns an error if a server of the URL uses TLS and the URL does not, or
// the reverse. failure is the error of a call to a client with that URL, which does
// not show it: the server waits for more bytes, or ends the connection, as it also
// does for other reasons. So CheckTLS connects once in the other way, and sends
// nothing but a handshake or a PING. It takes at most half a second for each server.
func CheckTLS(ctx context.Context, url string, failure error) error {
	a, err := parse(url)
	if err != nil {
		return nil //nolint:nilerr // NewClient has returned it
	}
	return a.peers().mismatch(ctx, failure)
}

// peers are the configured servers of a client.
type peers struct {
	addrs  []string
	secure bool // the client uses TLS
	kind   string
}

// The kinds of peers, as parts of a scheme.
const (
	onePeer       = ""
	sentinelPeers = "-sentinel"
	clusterPeers  = "-cluster"
)

// peers returns the servers of a URL.
func (a address) peers() peers {
	p := peers{secure: a.tls, kind: map[string]string{"sentinel": sentinelPeers, "cluster": clusterPeers}[a.scheme]}
	port := "6379"
	if p.kind == sentinelPeers {
		port = "26379"
	}
	for _, host := range a.hosts {
		p.addrs = append(p.addrs, withPort(host, port))
	}
	return p
}

// peersOf returns the servers of a client that has no URL. The sentinels of a client
// are unknown.
func peersOf(client goredis.UniversalClient) peers {
	switch client := client.(type) {
	case *goredis.Client:
		return peers{addrs: []string{client.Options().Addr}, secure: client.Options().TLSConfig != nil}
	case *goredis.ClusterClient:
		return peers{addrs: client.Options().Addrs, secure: client.Options().TLSConfig != nil, kind: clusterPeers}
	}
	return peers{}
}

// mismatch is CheckTLS for these servers. A sentinel that fits, or that does not
// answer, may know the master later.
func (p peers) mismatch(ctx context.Context, failure error) error {
	if _, answered := errors.AsType[goredis.Error](failure); answered || refusal.Of(failure) != refusal.None {
		return nil
	}
	var found error
	for _, addr := range p.addrs {
		err := p.mismatchAt(ctx, addr)
		switch {
		case err != nil && p.kind != sentinelPeers:
			return err
		case err == nil && p.kind == sentinelPeers:
			return nil
		}
		found = err
	}
	return found
}

// mismatchAt is mismatch for the server at addr.
func (p peers) mismatchAt(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr) // fails for the client of a Sentinel set
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	if !p.secure {
		err := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
		if err == nil || strings.Contains(err.Error(), "remote error: tls: ") {
			return invalid(fmt.Errorf("the server uses TLS: use the scheme rediss%s://", p.kind))
		}
		return nil
	}
	end, _ := ctx.Deadline()
	answer := make([]byte, 1)
	_ = conn.SetDeadline(end)
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return nil
	}
	if _, err := conn.Read(answer); err == nil && strings.Contains("+-", string(answer)) {
		return invalid(fmt.Errorf("the server does not use TLS at this port: use the scheme redis%s://, or its port for TLS", p.kind))
	}
	return nil
}
