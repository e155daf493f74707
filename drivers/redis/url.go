package redis

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/megaframework/mega/drivers/internal/tlsfiles"
	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/lock/driver"
)

// The time limits of the driver's own clients. An attempt takes less than half
// the time of a call, so that a connection that died silently leaves time for a
// second attempt.
const (
	attemptTimeout = driver.CallTimeout * 45 / 100
	// poolSize is larger than needed: each lane and each other user has one
	// connection at most. After as many failed dials the client pauses
	// dialing for a second, which would prolong an outage.
	poolSize = 1 << 16
)

// address is a parsed Config.URL.
type address struct {
	scheme string // redis, sentinel or cluster
	tls    bool
	user   *url.Userinfo
	hosts  []string
	path   []string
	query  url.Values
	files  tlsfiles.Files
}

// parse splits the list of hosts itself: package net/url accepts one host only.
func parse(raw string) (address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return address{}, fmt.Errorf("want a URL such as redis://localhost:6379")
	}
	var a address
	base, kind, _ := strings.Cut(scheme, "-")
	a.tls, a.scheme = base == "rediss", kind
	if kind == "" {
		a.scheme = "redis"
	}
	if base != "redis" && base != "rediss" || a.scheme != "redis" && a.scheme != "sentinel" && a.scheme != "cluster" {
		return address{}, fmt.Errorf("scheme %q: want redis, rediss, redis-sentinel, rediss-sentinel, redis-cluster or rediss-cluster", scheme)
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		u, err := url.Parse("redis://" + authority[:i] + "@host")
		if err != nil || u.Host != "host" { // a "#" begins a fragment
			return address{}, errEncode
		}
		a.user, authority = u.User, authority[i+1:]
	}
	u, err := url.Parse("redis://host" + tail)
	if err != nil {
		return address{}, fmt.Errorf("path and options: %w", trim(err))
	}
	a.query = u.Query()
	if a.files, err = takeFiles(a.query, a.tls); err != nil {
		return address{}, err
	}
	a.path = strings.Split(strings.Trim(u.Path, "/"), "/")
	for h := range strings.SplitSeq(authority, ",") {
		if h = strings.TrimSpace(h); h != "" {
			a.hosts = append(a.hosts, h)
		}
	}
	if len(a.hosts) == 0 && a.scheme != "redis" {
		return address{}, fmt.Errorf("no host")
	}
	return a, nil
}

// dsn is the URL in the form that go-redis parses: one host, one path segment,
// options.
func (a address) dsn(host, path string, query url.Values) string {
	u := url.URL{Scheme: "redis", User: a.user, Host: host, Path: "/" + path, RawQuery: query.Encode()}
	if a.tls {
		u.Scheme = "rediss"
	}
	return u.String()
}

// dialed is the client of a URL, the feed of its subscription, and, except for a
// Cluster, the stream of its calls.
type dialed struct {
	client goredis.UniversalClient
	feed   *wire.Feed
	stream *wire.Stream
}

// dial makes the client for raw, which does not connect yet.
func dial(raw string) (dialed, error) {
	a, err := load(raw)
	if err != nil {
		return dialed{}, harmless(raw, err)
	}
	var d dialed
	switch a.scheme {
	case "sentinel":
		d, err = a.sentinel()
	case "cluster":
		d, err = a.cluster()
	default:
		d, err = a.single()
	}
	return d, harmless(raw, err)
}

func (a address) single() (dialed, error) {
	o, err := a.options()
	if err != nil {
		return dialed{}, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.MaxRetries, o.DialerRetries = -1, 1
	o.PoolSize, o.PipelinePoolSize, o.ConnMaxIdleTime = poolSize, -1, -1
	o.Dialer = a.dialer(o.DialTimeout, o.TLSConfig)
	feed, stream := wire.NewFeed(o.Dialer), wire.NewStream(*o)
	o.Dialer = feed.Dialer
	return dialed{goredis.NewClient(o), feed, stream}, nil
}

// options returns the options of a URL with one server.
func (a address) options() (*goredis.Options, error) {
	if len(a.hosts) > 1 {
		return nil, fmt.Errorf("%d hosts: a list of them needs the scheme redis-sentinel or redis-cluster", len(a.hosts))
	}
	if len(a.path) > 1 { // other clients take a namespace there
		return nil, fmt.Errorf("the path has more than the number of the database, such as /0")
	}
	host := "localhost:6379"
	if len(a.hosts) == 1 {
		host = a.hosts[0]
	}
	o, err := goredis.ParseURL(a.dsn(host, a.path[0], a.query))
	if err != nil {
		return nil, trim(err)
	}
	o.Protocol = a.protocol(o.Protocol)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

func (a address) sentinel() (dialed, error) {
	o, err := a.failoverOptions()
	if err != nil {
		return dialed{}, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.MaxRetries, o.DialerRetries = -1, 1
	o.PoolSize, o.PipelinePoolSize, o.ConnMaxIdleTime = poolSize, -1, -1
	o.Dialer = a.dialer(o.DialTimeout, o.TLSConfig)
	feed, stream := wire.NewFeed(o.Dialer), wire.NewFailoverStream(*o)
	o.Dialer = feed.Dialer
	return dialed{goredis.NewFailoverClient(o), feed, stream}, nil
}

// failoverOptions returns the options of a URL with a Sentinel set.
func (a address) failoverOptions() (*goredis.FailoverOptions, error) {
	if a.path[0] == "" {
		return nil, fmt.Errorf("no master: want redis-sentinel://host1,host2/master")
	}
	if len(a.path) > 2 {
		return nil, fmt.Errorf("the path has more than the master and the number of the database, such as /master/0")
	}
	query := a.others("26379")
	query.Set("master_name", a.path[0])
	user, password := query.Get("sentinel_username"), query.Get("sentinel_password")
	query.Del("sentinel_username")
	query.Del("sentinel_password")
	database := ""
	if len(a.path) > 1 {
		database = a.path[1]
	}
	o, err := goredis.ParseFailoverURL(a.dsn(withPort(a.hosts[0], "26379"), database, query))
	if err != nil {
		return nil, trim(err)
	}
	// The user that go-redis takes for the sentinels is the server's user
	// here, as in every other URL.
	o.Username, o.Password = o.SentinelUsername, o.SentinelPassword
	o.SentinelUsername, o.SentinelPassword = user, password
	anyHost(o.TLSConfig)
	o.Protocol = a.protocol(o.Protocol)
	return o, nil
}

func (a address) cluster() (dialed, error) {
	o, err := a.clusterOptions()
	if err != nil {
		return dialed{}, err
	}
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	o.MaxRetries, o.DialerRetries = -1, 1
	o.PoolSize, o.PipelinePoolSize, o.ConnMaxIdleTime = poolSize, -1, -1
	feed := wire.NewFeed(a.dialer(o.DialTimeout, o.TLSConfig))
	o.Dialer = feed.Dialer
	return dialed{client: goredis.NewClusterClient(o), feed: feed}, nil
}

// clusterOptions returns the options of a URL with a Cluster.
func (a address) clusterOptions() (*goredis.ClusterOptions, error) {
	if len(a.path) > 1 || a.path[0] != "" {
		return nil, fmt.Errorf("path %q: a Cluster has no databases", strings.Join(a.path, "/"))
	}
	o, err := goredis.ParseClusterURL(a.dsn(withPort(a.hosts[0], "6379"), "", a.others("6379")))
	if err != nil {
		return nil, trim(err)
	}
	anyHost(o.TLSConfig)
	o.Protocol = a.protocol(o.Protocol)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// others returns the options, with the hosts after the first.
func (a address) others(port string) url.Values {
	query := url.Values{}
	maps.Copy(query, a.query)
	for _, h := range a.hosts[1:] {
		query.Add("addr", withPort(h, port))
	}
	return query
}

// protocol is RESP2 by default: its handshake is shorter, and nothing of RESP3
// is needed.
func (a address) protocol(parsed int) int {
	if a.query.Has("protocol") {
		return parsed
	}
	return 2
}

func withPort(host, port string) string {
	if i := strings.LastIndex(host, ":"); i > strings.LastIndex(host, "]") {
		return host
	}
	return host + ":" + port
}

// bound sets the timeouts that a URL leaves open, or disables: without one, a connection
// that died silently would take the calls of all.
func bound(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		if *t <= 0 {
			*t = attemptTimeout
		}
	}
}

var errEncode = errors.New("user and password: percent-encode special characters")

// wrongOption is the beginning of an error of go-redis for the value of an option.
// (A database in the path is in quotes.)
var wrongOption = regexp.MustCompile(`^(?:redis: )?invalid (\w+) (number|duration|boolean): [^"]`)

// harmless returns err, the error of the URL raw. Behind the host an "@" shows that
// a "/" or "?" is in the password, the rest of which would be in the error. The
// value of an option is left out: it may be a credential at the wrong place.
func harmless(raw string, err error) error {
	if err == nil {
		return nil
	}
	_, rest, _ := strings.Cut(raw, "://")
	if i := strings.IndexAny(rest, "/?"); i >= 0 && strings.Contains(rest[i:], "@") {
		return errEncode
	}
	if m := wrongOption.FindStringSubmatch(err.Error()); m != nil {
		name := strings.Replace(m[1], "database", "db", 1)
		want := map[string]string{"number": "a number", "duration": "a time such as 500ms", "boolean": "true or false"}[m[2]]
		return fmt.Errorf("the value of the option %s is not %s", name, want)
	}
	return err
}

// trim removes the package name at the start of an error, and the URL of an error
// of package net/url, which has a password in it.
func trim(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}

// masked returns raw in the form for errors.
func masked(raw string) string {
	if !strings.Contains(raw, "://") {
		return "the URL given" // it may be a bare password
	}
	return mask.URL(raw)
}
