package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// named is a server of a list, or one whose address another server has named. The zero
// value stands for the address in the configuration.
type named struct {
	url     string
	tlsName string // that TLS verifies in place of an IP address; "" for the address itself
}

// resolved returns the server at each address of its name, if it has several.
func (s named) resolved(ctx context.Context) []named {
	u, err := url.Parse(s.url)
	if err != nil || net.ParseIP(u.Hostname()) != nil {
		return []named{s}
	}
	addrs, _ := net.DefaultResolver.LookupHost(ctx, u.Hostname()) // the client reports the error
	if len(addrs) < 2 {
		return []named{s}
	}
	var all []named
	for _, addr := range addrs {
		at := *u
		at.Host = net.JoinHostPort(addr, cmp.Or(u.Port(), strconv.Itoa(nats.DefaultPort)))
		all = append(all, named{at.String(), u.Hostname()})
	}
	return all
}

// only is an option of the client: it connects to this server alone. A client that
// knew several of them could not verify a name for some of them alone, and would no
// longer name those that it knows.
func (s named) only(o *nats.Options) error {
	if s.url == "" {
		return nil
	}
	o.Url, o.Servers = "", []string{s.url}
	if s.tlsName == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLSConfig != nil {
		config = o.TLSConfig.Clone()
	}
	config.ServerName = cmp.Or(config.ServerName, s.tlsName)
	o.TLSConfig = config
	return nil
}

// lookupBound bounds the lookup of all names together: a DNS server that does not answer
// delays the attempts at other servers by this time only. The client of a name without
// an answer looks it up by itself.
const lookupBound = time.Second

// servers returns the configured servers, in the order of the attempts. Each server of
// a list gets a client of its own: a client that knew all of them would return the error
// of the last one, and none if that one does not run. So does each address of a name,
// because a client tries only the first one that accepts connections.
func (c Config) servers(ctx context.Context, options []nats.Option) []named {
	o := nats.GetDefaultOptions()
	for _, option := range options {
		if option != nil {
			_ = option(&o) // the client reports the error
		}
	}
	if c.Connect != nil || o.Servers != nil { // these servers replace URL
		return []named{{}}
	}
	resolves := o.CustomDialer == nil && o.Dialer == nil && o.InProcessServer == nil && !o.SkipHostLookup
	ctx, cancel := context.WithTimeout(ctx, lookupBound)
	defer cancel()
	list := strings.Split(c.URL, ",")
	secure := slices.ContainsFunc(list, func(server string) bool { // one of them requires TLS for all
		scheme, _, _ := strings.Cut(strings.TrimSpace(server), "://")
		return strings.EqualFold(scheme, "tls")
	})
	var servers []named
	for _, server := range list {
		server = strings.TrimSpace(server)
		if _, rest, ok := strings.Cut(server, "://"); ok && secure {
			server = "tls://" + rest
		}
		own := []named{{url: server}}
		if resolves {
			own = own[0].resolved(ctx)
		}
		servers = append(servers, own...)
	}
	if len(servers) == 1 {
		return []named{{}}
	}
	if !o.NoRandomize {
		rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	}
	return servers
}

// names reports whether addr is one of the configured addresses.
func (c Config) names(addr string) bool {
	return slices.ContainsFunc(strings.Split(c.URL, ","), func(server string) bool {
		u, err := url.Parse(strings.TrimSpace(server))
		return err == nil && (u.Host == addr || u.Port() == "" && net.JoinHostPort(u.Hostname(), strconv.Itoa(nats.DefaultPort)) == addr)
	})
}

// learnServers stores the servers that the server of a link has named, for later
// connections: each client starts with configured addresses only. They get the
// credentials in the URL of that server, and an IP address gets its name for TLS, as
// the client's own reconnect does it. The present ones come first, because the others
// have left the cluster, and their addresses may belong to other servers.
func (b *Bus) learnServers(l *link) {
	const most = 64 // the addresses of servers may change with each of their starts
	if l.server == nil {
		return
	}
	var all []named
	add := func(s named) {
		if len(all) < most && !slices.ContainsFunc(all, func(known named) bool { return known.url == s.url }) {
			all = append(all, s)
		}
	}
	for _, server := range l.conn.DiscoveredServers() {
		u, err := url.Parse(server)
		if err != nil {
			continue
		}
		if name := l.nameFor(u); name != "" || !b.config.names(u.Host) {
			u.User = l.server.User
			add(named{u.String(), name})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	own := slices.IndexFunc(b.known, func(s named) bool { return s.url == l.server.String() })
	if own >= 0 {
		add(b.known[own])
	}
	b.present = len(all)
	for _, s := range b.known {
		add(s)
	}
	b.known = all
}

// nameFor returns the name that TLS verifies for the address of another server of
// the cluster: the name of this link's server, if the other one has only an IP address.
func (l *link) nameFor(u *url.URL) string {
	switch {
	case net.ParseIP(u.Hostname()) == nil:
		return ""
	case net.ParseIP(l.server.Hostname()) == nil:
		return l.server.Hostname()
	}
	return l.tlsName
}

// candidates returns the servers for a link, in the order of the attempts. Half
// of the time the latest named server comes before the configured ones: these may be
// out of service for long. Of the servers that have left the cluster, each link tries
// another one: an address that leads nowhere takes the timeout of an attempt.
func (b *Bus) candidates(ctx context.Context, link uint64, options []nats.Option) []named {
	configured := b.config.servers(ctx, options)
	b.mu.Lock()
	defer b.mu.Unlock()
	all := append(configured, b.known[:b.present]...)
	if first := len(all) - b.present; b.present > 0 && rand.N(2) == 0 {
		all = slices.Insert(slices.Delete(all, first, first+1), 0, b.known[0])
	}
	if left := b.known[b.present:]; len(left) > 0 {
		all = append(all, left[link%uint64(len(left))])
	}
	return all
}
