package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis/internal/wire"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/refusal"
	"github.com/megaframework/mega/lock/driver"
)

// look holds the findings about a server, before anything is locked there.
type look struct {
	client   goredis.UniversalClient
	peers    peers
	losses   losses
	layout   *layout // of locks
	strict   bool    // the server refuses keys that a call does not name
	warnings []string
	lacks    []driver.Lack
}

// losses are the consequences of a server that loses data, or does not have the latest, for
// operators.
type losses struct{ full, failover, restart, snapshot, twice string }

func lossesOfLocks() losses {
	return losses{
		full: "a full server deletes held locks", failover: "a failover may lose new locks; guard writes with the fence",
		restart: "a restart frees all locks at once", snapshot: "a restart loses the locks since the last snapshot",
		twice: "both may grant the same lock",
	}
}

func lossesOfLimits() losses {
	return losses{
		full: "a full server forgets grants, and allows their units again", failover: "a failover may forget new grants and allow their units again",
		restart: "a restart allows the units of all windows again", snapshot: "a restart allows the units since the last snapshot again",
		twice: "both may allow the same units",
	}
}

// at reads the server's description. A server that refuses INFO is used anyway.
func (l *look) at(ctx context.Context) error {
	_, cluster := l.client.(*goredis.ClusterClient)
	info, err := l.info(ctx)
	if err != nil {
		if goredis.IsPermissionError(err) || isUnknownCommand(err) {
			l.warn("the server refused INFO (%v): its eviction, persistence and replication are unknown", err)
			return nil
		}
		if errors.Is(err, driver.ErrInvalid) {
			return err
		}
		return explainConnect(err)
	}
	l.strict = info["dragonfly_version"] != ""
	if err := l.fits(info, cluster); err != nil {
		return err
	}
	l.judge(info)
	l.persistence(ctx, info)
	return nil
}

// fits returns an error if the client is not one for a server with that description.
func (l *look) fits(info map[string]string, cluster bool) error {
	mode := cmp.Or(info["redis_mode"], info["server_mode"], info["redict_mode"]) // of Redis, Valkey, Redict
	switch {
	case mode == "sentinel":
		return invalid(errors.New("the server is a Sentinel: use the scheme redis-sentinel://, with the name of the master"))
	case info["cluster_enabled"] == "1" && !cluster:
		return invalid(errors.New("the server is part of a Redis Cluster: use the scheme redis-cluster:// (or a ClusterClient)"))
	case info["cluster_enabled"] == "0" && cluster:
		return invalid(errors.New("the server is not part of a Redis Cluster: use the scheme redis:// (or a Client)"))
	case info["role"] == "slave": // not invalid: a failover may make it the master
		return unavailable(errors.New("the server is a replica and takes no writes: " + l.toMaster()))
	}
	return nil
}

// toMaster returns the way from a replica to its master.
func (l *look) toMaster() string {
	if l.peers.kind == sentinelPeers {
		return "a Sentinel names it as the master; compare SENTINEL GET-MASTER-ADDR-BY-NAME of all sentinels"
	}
	return "connect to its master, or by redis-sentinel://"
}

// info retries while the server is unreachable or loading, as a call does.
func (l *look) info(ctx context.Context) (map[string]string, error) {
	start := time.Now()
	for attempt := 0; ; attempt++ {
		text, err := l.client.Info(ctx).Result()
		if err == nil {
			return parseInfo(text), nil
		}
		if attempt == 0 {
			if mismatch := l.peers.mismatch(ctx, err); mismatch != nil {
				return nil, mismatch
			}
		}
		if futile(err) || ctx.Err() != nil || time.Since(start) > driver.CallTimeout {
			return nil, err
		}
		group.Sleep(ctx, backOff(attempt+1))
	}
}

func parseInfo(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = v
		}
	}
	return fields
}

func (l *look) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// stale adds that the server may come back with old data, in which a slot is
// clean that was given since (P10).
func (l *look) stale(when string) {
	l.lacks = append(l.lacks, driver.Lack{Rule: "P10", Why: when + " may show a slot of a pool as clean that was used since"})
}

func (l *look) judge(info map[string]string) {
	if v := info["redis_version"]; v != "" && older(v, 6, 2) {
		l.warn("Redis %s is older than 6.2: it receives no fixes and is not tested", v)
	}
	if p := info["maxmemory_policy"]; strings.HasPrefix(p, "allkeys-") || strings.HasPrefix(p, "volatile-") {
		if info["maxmemory"] != "0" {
			l.warn("maxmemory-policy is %s: %s; use noeviction", p, l.losses.full)
		}
	}
	if info["role"] == "active-replica" { // of KeyDB
		l.warn("the server is an active replica: another server takes writes, too, so %s; have all programs use one of the two", l.losses.twice)
	}
	if n := info["connected_slaves"]; n != "" && n != "0" {
		l.warn("the server has replicas (%s): replication is asynchronous, so %s", n, l.losses.failover)
		l.stale("a replica that was behind")
	}
}

// persistence warns of a server without persistence. INFO does not show whether
// snapshots are configured; if CONFIG is refused, there is no warning.
func (l *look) persistence(ctx context.Context, info map[string]string) {
	if info["aof_enabled"] != "0" {
		return
	}
	save, err := l.client.ConfigGet(ctx, "save").Result()
	switch {
	case err != nil:
	case save["save"] == "":
		l.warn("the server has no persistence: %s; use appendonly yes", l.losses.restart)
	default:
		l.warn("the server has snapshots only: %s; use appendonly yes", l.losses.snapshot)
		l.stale("a snapshot")
	}
}

func older(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 == nil && err2 == nil && (x < major || x == major && y < minor)
}

func isUnknownCommand(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "ERR unknown command")
}

// rehearsal is the time limit for the push of the rehearsal.
const rehearsal = time.Second

// rehearse runs each script on a scratch key, with a push that must arrive: a
// missing permission or feature shows at boot and not at the first contention.
func (q *queue) rehearse(ctx context.Context) error {
	key := "rehearsal:" + newID()
	defer q.sweepUp(key)
	if err := q.mayLoad(ctx, q.layout.holder(key), q.scripts.all()...); err != nil {
		return err
	}
	r := driver.Request{Key: key, TTL: rehearsal, Wait: rehearsal, Slots: 1, Fences: 1}
	first, second := r, r
	first.Token, second.Token = newID(), newID()
	g, err := q.Acquire(ctx, first)
	if err != nil {
		return err
	}
	pushed := make(chan error, 1)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, err := q.Acquire(ctx, second)
		if err != nil {
			cancel() // it may never have been queued
		}
		pushed <- err
	}()
	err = errors.Join(q.untilQueued(waiting, key), q.Renew(ctx, []driver.Grant{g})[0].Err)
	switch {
	case waiting.Err() != nil:
		return cmp.Or(<-pushed, err)
	case err != nil:
		return errors.Join(err, <-pushed)
	}
	if err := q.Release(ctx, g); err != nil {
		return errors.Join(err, <-pushed)
	}
	if err := <-pushed; err != nil {
		return err
	}
	if err := q.untilPushed(ctx); err != nil {
		return err
	}
	q.sendAll(ctx)
	if _, err := q.ForceRelease(ctx, key, driver.Force{Reason: "rehearsal"}); err != nil {
		return err
	}
	if err := q.Release(ctx, driver.Grant{Key: key, Token: second.Token}); !errors.Is(err, driver.ErrLost) {
		return fmt.Errorf("a forced grant still existed: %w", unavailable(err))
	}
	return nil
}

// untilPushed sends a push to the own inbox and waits for it. The grant of the rehearsal
// proves nothing: a heartbeat finds it without a push, and scripts ignore a refusal of
// PUBLISH.
func (q *queue) untilPushed(ctx context.Context) error {
	q.checking.Lock() // else another check may take the push
	defer q.checking.Unlock()
	if _, err := q.pushSelf(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, rehearsal)
	defer cancel()
	select {
	case <-q.heard:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a push did not arrive; check whether a proxy blocks pub/sub: %w", ctx.Err())
	}
}

// self is in the place of a ticket in a push of pushSelf.
const self = "self"

// pushSelf sends a push to the own inbox, which leads to a heartbeat. It returns the
// number of subscriptions that the server of the calls has. On a Cluster the push goes to
// another master than the subscription's: the loss of one does not prevent the check.
func (q *queue) pushSelf(ctx context.Context) (receivers int64, err error) {
	o, err := q.send(ctx, "publish", q.inbox.apart(ctx), func(bool) []string {
		return []string{"publish", q.inbox.name, "w2 " + self + " 0"}
	})
	if err != nil {
		return 0, err
	}
	receivers, _ = o.reply.(int64)
	return receivers, nil
}

func (q *queue) untilQueued(ctx context.Context, key string) error {
	for {
		s, err := q.Inspect(ctx, key)
		if err != nil || len(s.Waiters) > 0 {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// sweepUp removes the data of the rehearsal; if that fails, the data expires.
func (e *engine) sweepUp(key string) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	_ = e.client.Del(ctx, e.layout.names(e.layout.holder(key))...).Err()
}

// explain adds the correction to an error of the rehearsal.
func explain(err error, o opening) error {
	if refusal.Of(err) == refusal.Login {
		return unavailable(fmt.Errorf("the user lacks a permission: %w; grant it with ACL SETUSER <user> ~%s &%s* %s",
			err, strings.ReplaceAll(o.template.holder("\x00"), "\x00", "*")+"*", inboxes, o.permissions()))
	}
	return explainConnect(err)
}

// permissions returns the rules for the commands that the user needs.
func (o opening) permissions() string {
	rules := "+evalsha +eval +publish +subscribe +unsubscribe +ping +info +scan +@read +@write +time"
	if _, cluster := o.connection.client.(*goredis.ClusterClient); cluster {
		return rules + " +cluster|slots +command +asking +client|setname"
	}
	return rules + " +select +client|setname" // of the URL's database and client_name
}

func explainConnect(err error) error {
	var hint string
	switch text := err.Error(); {
	case strings.Contains(text, "all sentinels") && (strings.Contains(text, "WRONGPASS") || strings.Contains(text, "NOAUTH")):
		hint = "check the options sentinel_username and sentinel_password of the URL"
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "invalid password"), strings.Contains(text, "AUTH"):
		hint = "check user and password"
	case strings.Contains(text, "cluster support disabled"):
		hint = "this is a single server: use the scheme redis:// (or a Client)"
	case strings.Contains(text, "SELECT is not allowed in cluster mode"):
		hint = "the server is part of a Redis Cluster: use the scheme redis-cluster://, without a database"
	case strings.Contains(text, "unknown command 'sentinel'"):
		hint = "a server is not a Sentinel: use the sentinels' addresses, or the scheme redis://"
	case refusal.Of(err) == refusal.Disabled:
		hint = "the server has disabled a command: check rename-command in redis.conf, and that it is Redis 6.2 or later"
	case refusal.Of(err) == refusal.Foreign:
		hint = "check the address: the server there does not have the commands of Redis"
	case strings.Contains(text, "connection refused"):
		hint = "check that the server runs"
	case strings.Contains(text, "no such host"):
		hint = "check the host name"
	case strings.HasSuffix(text, "EOF"), strings.Contains(text, "connection reset"):
		hint = "the server ended the connection: check its maxclients, and that both sides use TLS (rediss://) or neither (redis://)"
	case refusal.Of(err) == refusal.Encryption:
		hint = "the server does not use TLS at this port: use redis://, or its port for TLS"
	case refusal.OfClient(err):
		hint = "the server requires a client certificate that it accepts: set the options tls_cert and tls_key of the URL, or its tls-auth-clients to no"
	case strings.Contains(text, "certificate"), strings.Contains(text, "tls:"):
		hint = "check the server's certificate: its authority, its names and its dates"
	case strings.Contains(text, "all sentinels"):
		hint = "check the sentinels' addresses and the master's name"
	case wire.IsTimeout(err):
		hint = "no answer: check address, firewall, and that both sides use TLS (rediss://) or neither (redis://)"
	}
	if hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	return unavailable(err)
}
