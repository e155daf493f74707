package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/internal/refusal"
)

// Diagnose returns the cause of failure, the error of a call to a client of
// [NewClient] with that URL, if the error does not show it, and nil if the cause is
// not known:
//
//   - A server uses TLS and the URL does not, or the reverse. The server then waits
//     for more bytes, or ends the connection, as it also does for other reasons. So
//     Diagnose connects once in the other way, and sends nothing but a handshake or a
//     PING.
//   - The deadline of the call has ended the attempts of the client, each of which was
//     refused. So Diagnose calls the servers once, without another attempt.
//
// It takes at most half a second for each server and each of both.
func Diagnose(ctx context.Context, url string, failure error) error {
	a, err := parse(url)
	if err != nil || errors.Is(failure, context.Canceled) {
		return nil // NewClient has returned it
	}
	ctx = context.WithoutCancel(ctx) // the call may have used up ctx
	if err := a.peers().mismatch(ctx, failure); err != nil || !errors.Is(failure, context.DeadlineExceeded) {
		return err
	}
	d, err := dial(url)
	if err != nil {
		return nil // as above
	}
	defer func() { _ = d.client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(a.hosts)+1)*attemptTimeout)
	defer cancel()
	if err := d.client.Ping(ctx).Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
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

// mismatch returns the difference between these servers and their URL in the use of
// TLS, or nil. A sentinel that fits, or that does not
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
