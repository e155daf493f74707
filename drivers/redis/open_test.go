package redis_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega/drivers/redis"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

// refused opens what must not open, and returns why.
func refused(t *testing.T, c redis.Config, is error, says ...string) {
	t.Helper()
	start := time.Now()
	d, err := redis.OpenLock(t.Context(), c)
	if err == nil {
		_ = d.Close(t.Context())
		t.Fatalf("%s was opened", c.URL)
	}
	if !errors.Is(err, is) {
		t.Errorf("got %v, want it to be %v", err, is)
	}
	for _, s := range append(says, "open redis lock") {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("the error does not say %q: %v", s, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error tells the password: %v", err)
	}
	if took := time.Since(start); timed && took > 4*time.Second+slack {
		t.Errorf("it took %v", took)
	}
}

func TestConfigurationThatCannotWorkIsInvalid(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: shared.Addr()})
	defer client.Close()
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": shared.Addr()}})
	defer ring.Close()
	for says, c := range map[string]redis.Config{
		"no server":     {},
		"two servers":   {URL: shared.URL(), Client: client},
		"engine":        {URL: shared.URL(), Engine: "x"},
		"key template":  {URL: shared.URL(), Key: "no placeholder"},
		"scheme":        {URL: "http://h"},
		"not a client":  {Client: ring},
		"no master":     {URL: "redis-sentinel://a,b"},
		"unexpected":    {URL: shared.URL() + "?what=1"},
		"redis-cluster": {URL: "redis://a,b"},
	} {
		refused(t, c, driver.ErrInvalid, says)
	}
}

func TestServerThatIsNotThereIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	refused(t, redis.Config{URL: "redis://:secret@" + addr}, driver.ErrUnavailable, "redis://***@"+addr, "connection refused", "check that the server runs")
}

// One lost connection does not fail a start, whichever command it had.
func TestOpenSurvivesALostConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	for _, name := range []string{"INFO", "SUBSCRIBE", "PING", "EVALSHA"} {
		p := redistest.StartProxy(t, s, nil)
		f := p.ResetAfter(redistest.Named(name))
		d, err := redis.OpenLock(t.Context(), redis.Config{URL: p.URL()})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		struck(t, f)
		must(t, d.Close(t.Context()))
	}
}

func TestServerThatNeverAnswersIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	must(t, err)
	defer l.Close()
	refused(t, redis.Config{URL: "redis://" + l.Addr().String()}, driver.ErrUnavailable, "no answer")
	took := least(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err = redis.OpenLock(ctx, redis.Config{URL: "redis://" + l.Addr().String()}); err == nil {
			t.Error("a server that never answers was opened")
		}
	})
	if timed && took > time.Second {
		t.Errorf("with a context of 100ms it took %v and got %v", took, err)
	}
}

func TestWrongPasswordIsUnavailableAndMasked(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Password: "right"})
	refused(t, redis.Config{URL: "redis://:secret@" + s.Addr()}, driver.ErrUnavailable, "WRONGPASS", "check user and password")
	refused(t, redis.Config{URL: "redis://" + s.Addr()}, driver.ErrUnavailable, "NOAUTH", "check user and password")
}

func TestMissingPermissionIsNamed(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Users: []string{
		"deaf on >secret ~* resetchannels +@all",
		"keyless on >secret ~other:* &* +@all",
		"mute on >secret ~* &* +@all -evalsha -eval",
		"silent on >secret ~* &* +@all -publish",
		"enough on >secret ~mega:* &mega:inbox:* +evalsha +eval +publish +subscribe +unsubscribe +ping +info +scan +@read +@write +time",
	}})
	for _, user := range []string{"deaf", "keyless", "mute", "silent"} {
		refused(t, redis.Config{URL: "redis://" + user + ":secret@" + s.Addr()}, driver.ErrUnavailable,
			"NOPERM", "ACL SETUSER", "~mega:{*}*", "&mega:inbox:*", "redis://***@"+s.Addr())
	}
	d := open(t, redis.Config{URL: "redis://enough:secret@" + s.Addr()})
	release(t, d, acquire(t, d, request("k")))
}

// Commands that only rare cases need would otherwise be missed at the first of these: PING
// at a new connection, ZMSCORE with waiters, PERSIST with a withdrawn slot.
func TestDisabledCommandIsNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		command       string
		locks, limits bool // that need it
	}{{"ping", true, true}, {"zmscore", true, true}, {"persist", true, false}} {
		s := redistest.Start(t, redistest.Options{Config: []string{"rename-command " + test.command + ` ""`}})
		c := redis.Config{URL: s.URL()}
		_, locks := redis.OpenLock(t.Context(), c)
		l, limits := redis.OpenLimit(t.Context(), c)
		for what, err := range map[string]error{"locks": locks, "limits": limits} {
			if what == "limits" && !test.limits {
				continue
			}
			if err == nil || !contains(err, "backend unavailable") || !contains(err, "'"+test.command+"'") || !contains(err, "the server has disabled a command") {
				t.Errorf("%s without %s: %v", what, test.command, err)
			}
		}
		if l != nil {
			must(t, l.Close(t.Context()))
		}
	}
}

// The command in the error is enough for all that the URL asks for.
func TestTheRulesOfARefusedUserAreEnough(t *testing.T) {
	t.Parallel()
	o := redistest.Options{Users: []string{"new on >secret"}}
	single, cluster := redistest.Start(t, o), redistest.StartCluster(t, 3, o)
	for url, servers := range map[string][]*redistest.Server{
		single.URL() + "/3?client_name=web": {single},
		cluster.URL() + "?client_name=web":  cluster.Servers(),
	} {
		c := redis.Config{URL: strings.Replace(url, "://", "://new:secret@", 1)}
		_, err := redis.OpenLock(t.Context(), c)
		if err == nil {
			t.Fatalf("%s: a user without permissions is not refused", url)
		}
		_, rules, found := strings.Cut(err.Error(), "grant it with ACL SETUSER <user> ")
		if !found {
			t.Fatalf("%s: got %v, want the command", url, err)
		}
		command := []any{"ACL", "SETUSER", "new"}
		for rule := range strings.FieldsSeq(rules) {
			command = append(command, rule)
		}
		for _, s := range servers {
			_, err := s.Do(command...)
			must(t, err)
		}
		d := open(t, c)
		release(t, d, acquire(t, d, request("k")))
		_, err = d.List(t.Context(), "")
		must(t, err)
		openLimit(t, c)
	}
}

func TestClusterBehindAPlainURLIsAnErrorWithAHint(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Config: []string{"cluster-enabled yes"}})
	refused(t, redis.Config{URL: s.URL()}, driver.ErrInvalid, "redis-cluster://")
	refused(t, redis.Config{URL: strings.Replace(shared.URL(), "redis://", "redis-cluster://", 1)}, driver.ErrUnavailable, "redis://")
}

func TestReplicaIsRefused(t *testing.T) {
	master := redistest.Start(t, redistest.Options{})
	replica := redistest.Start(t, redistest.Options{Config: []string{"replicaof " + strings.ReplaceAll(master.Addr(), ":", " ")}})
	soon(t, "the replica to be one", func() bool {
		info, err := replica.Info("replication")
		return err == nil && info["role"] == "slave" && info["master_link_status"] == "up"
	})
	refused(t, redis.Config{URL: replica.URL()}, driver.ErrUnavailable, "replica", "redis-sentinel://")
	d := open(t, redis.Config{URL: master.URL()})
	warned(t, d, "replicas")
	lacks(t, d, "a replica that was behind")
}

// The correction for sentinels is not to use sentinels, nor the servers' password.
func TestWrongAnswersOfSentinelsAreExplained(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, 1, redistest.Options{})
	must(t, set.Forget())
	must(t, set.Recall(set.Servers()[1]))
	refused(t, redis.Config{URL: set.URL()}, driver.ErrUnavailable, "a Sentinel names it as the master")
	must(t, set.Require("secret"))
	refused(t, redis.Config{URL: set.URL()}, driver.ErrUnavailable, "NOAUTH", "sentinel_password")
}

// A server that may come back with old data says that it does not keep P10.
func TestSnapshotsMayShowAUsedSlotAsClean(t *testing.T) {
	s := redistest.Start(t, redistest.Options{Config: []string{"save 3600 1"}})
	d := open(t, redis.Config{URL: s.URL()})
	warned(t, d, "snapshots only")
	lacks(t, d, "a snapshot")
}

func lacks(t *testing.T, d driver.Driver, why string) {
	t.Helper()
	if got := d.Info().Lacks; len(got) != 1 || got[0].Rule != "P10" || !strings.Contains(got[0].Why, why) {
		t.Errorf("the driver lacks %+v, want P10 because of %s", got, why)
	}
}

func warned(t *testing.T, d driver.Driver, of string) {
	t.Helper()
	for _, w := range d.Info().Warnings {
		if strings.Contains(w, of) {
			return
		}
	}
	t.Errorf("the warnings %q do not mention %s", d.Info().Warnings, of)
}

func TestWeakenedPromisesAreWarnedOf(t *testing.T) {
	s := redistest.Start(t, redistest.Options{MaxMemory: "64mb", MaxMemoryPolicy: "allkeys-lru"})
	for _, engine := range []string{redis.EngineQueue, redis.EngineRedislock} {
		d := open(t, redis.Config{URL: s.URL(), Engine: engine})
		warned(t, d, "allkeys-lru")
		warned(t, d, "no persistence")
	}
	good := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	if w := open(t, redis.Config{URL: good.URL()}).Info().Warnings; len(w) != 0 {
		t.Errorf("nothing is wrong, and it warns of %q", w)
	}
}

func TestRehearsalLeavesNothingBehind(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	for _, engine := range []string{redis.EngineQueue, redis.EngineRedislock} {
		open(t, redis.Config{URL: s.URL(), Engine: engine})
		keys, err := s.Do("KEYS", "*")
		must(t, err)
		if left := keys.([]any); len(left) != 1 || left[0] != mark {
			t.Errorf("%s leaves %v, want the clock mark alone", engine, left)
		}
	}
}

func TestInfoDescribesTheEngines(t *testing.T) {
	queue, polling := openShared(t).Info(), open(t, redis.Config{URL: shared.URL(), Engine: redis.EngineRedislock}).Info()
	if queue.Name != "redis" || queue.Engine != "queue" || queue.Scope != driver.Fleet || len(queue.Lacks) != 0 {
		t.Errorf("got %+v", queue)
	}
	if polling.Name != "redis" || polling.Engine != "redislock" || polling.Scope != driver.Fleet || len(polling.Lacks) != 5 {
		t.Errorf("got %+v", polling)
	}
}

func TestClientThatWasGivenStaysOpen(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: shared.Addr()}) // it sends again by itself
	defer client.Close()
	for _, engine := range []string{redis.EngineQueue, redis.EngineRedislock} {
		d, err := redis.OpenLock(t.Context(), redis.Config{Client: client, Engine: engine})
		must(t, err)
		held := acquire(t, d, request(t.Name()))
		release(t, d, held)
		must(t, d.Close(t.Context()))
		must(t, client.Ping(t.Context()).Err())
	}
}

func TestPlainTemplateLocksTheNamesOfOthers(t *testing.T) {
	d := open(t, redis.Config{URL: shared.URL(), Key: "%s"})
	key := "plain:" + t.Name()
	g := acquire(t, d, request(key))
	if v := do(t, "GET", key); v == nil || !strings.HasPrefix(v.(string), g.Token) {
		t.Errorf("%s holds %v", key, v)
	}
	next := queueUp(t, d, request(key))
	states, err := d.List(t.Context(), "plain:")
	if err != nil || len(states) != 1 || states[0].Key != key || len(states[0].Waiters) != 1 {
		t.Errorf("listed %+v, %v", states, err)
	}
	release(t, d, g)
	release(t, d, next.granted(t, slack))
}

func TestListFindsLocksInUseByPrefix(t *testing.T) {
	d := openShared(t)
	for _, key := range []string{"list:b", "list:a*", "list:a{}", "list:a%7B", "lost:x"} {
		acquire(t, d, request(key))
	}
	release(t, d, acquire(t, d, request("list:free")))
	for prefix, want := range map[string]string{
		"list:":      "list:a%7B list:a* list:a{} list:b",
		"list:a":     "list:a%7B list:a* list:a{}",
		"list:a*":    "list:a*",
		"list:a{":    "list:a{}",
		"list:a%":    "list:a%7B",
		"list:[a-b]": "",
	} {
		states, err := d.List(t.Context(), prefix)
		must(t, err)
		var got []string
		for _, s := range states {
			got = append(got, s.Key)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("prefix %q: got %q, want %q", prefix, got, want)
		}
	}
}
