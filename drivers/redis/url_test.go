package redis

import (
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

func TestURLOfOneServer(t *testing.T) {
	for raw, want := range map[string]goredis.Options{
		"redis://localhost":                      {Addr: "localhost:6379"},
		"redis://":                               {Addr: "localhost:6379"},
		"redis://h:1/3":                          {Addr: "h:1", DB: 3},
		"redis://:secret@h:1":                    {Addr: "h:1", Password: "secret"},
		"redis://alice:p%40ss%2Fword@h:1":        {Addr: "h:1", Username: "alice", Password: "p@ss/word"},
		"redis://[::1]:7000/1":                   {Addr: "[::1]:7000", DB: 1},
		"redis://h:1?read_timeout=2s&protocol=3": {Addr: "h:1", ReadTimeout: 2 * time.Second, Protocol: 3},
		"redis://h:1?read_timeout=0":             {Addr: "h:1"}, // in go-redis: none
	} {
		d, err := dial(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		client, alone := d.client, d.stream
		for _, c := range []goredis.UniversalClient{client, alone.Client} {
			o := c.(*goredis.Client).Options()
			if o.Addr != want.Addr || o.DB != want.DB || o.Username != want.Username || o.Password != want.Password {
				t.Errorf("%s: %s db %d user %q password %q", raw, o.Addr, o.DB, o.Username, o.Password)
			}
			if o.MaxRetries != 0 || o.PipelinePoolSize != -1 { // 0 is what -1 becomes
				t.Errorf("%s: the client sends again by itself: %d retries", raw, o.MaxRetries)
			}
			protocol := max(2, want.Protocol)
			if c == goredis.UniversalClient(alone.Client) {
				protocol = 2 // a stream gets no pushes
			}
			if wantRead := max(want.ReadTimeout, attemptTimeout); o.ReadTimeout != wantRead || o.Protocol != protocol {
				t.Errorf("%s: read timeout %v, protocol %d", raw, o.ReadTimeout, o.Protocol)
			}
			_ = c.Close()
		}
	}
}

func TestURLOfManyHosts(t *testing.T) {
	for raw, hosts := range map[string][]string{
		"redis-cluster://a:1,b:2,c":                     {"a:1", "b:2", "c:6379"},
		"rediss-cluster://u:p@a:1, b:2":                 {"a:1", "b:2"},
		"redis-cluster://[::1]:1,[::2]?max_redirects=5": {"[::1]:1", "[::2]:6379"},
	} {
		d, err := dial(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		client := d.client
		o := client.(*goredis.ClusterClient).Options()
		slices.Sort(o.Addrs)
		slices.Sort(hosts)
		if !slices.Equal(o.Addrs, hosts) || (o.TLSConfig != nil) != strings.HasPrefix(raw, "rediss") {
			t.Errorf("%s: hosts %q, TLS %v", raw, o.Addrs, o.TLSConfig != nil)
		}
		_ = client.Close()
	}
	for _, raw := range []string{"redis-sentinel://a,b:2/master", "redis-sentinel://u:p@a/master/3", "rediss-sentinel://a/master?sentinel_password=x"} {
		d, err := dial(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		client, alone := d.client, d.stream
		_, _ = client.Close(), alone.Client.Close()
	}
}

func TestURLsThatCannotWorkAreRefused(t *testing.T) {
	for _, raw := range []string{
		"", "localhost:6379", "http://h", "redis-x://h", "redis://a,b", "redis://h/notanumber", "redis://h/0/cache", "redis-sentinel://h/m/0/cache", "redis://h?what=1",
		"redis-sentinel://a,b", "redis-sentinel:///master", "redis-cluster://", "redis-cluster://a/1", "redis://u:p%zz@h", "redis://h:port",
	} {
		if d, err := dial(raw); err == nil {
			t.Errorf("%q was taken", raw)
			_ = d.client.Close()
		} else if strings.HasPrefix(err.Error(), "redis:") || strings.Contains(err.Error(), "p%zz") {
			t.Errorf("%q: the error is %q", raw, err)
		}
	}
}

func TestMaskedURLHasNoCredential(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://localhost:6379/1":                   "redis://localhost:6379/1",
		"redis://alice:secret@h:1/2?read_timeout=1s": "redis://***@h:1/2?read_timeout=***",
		"secret": "the URL given",
	} {
		if got := masked(raw); got != want {
			t.Errorf("%s is shown as %s, want %s", raw, got, want)
		}
	}
}

func TestAnErrorOfAURLHasNoPassword(t *testing.T) {
	for _, raw := range []string{
		"redis://:hunter2@h:port", "redis://:hunter2@h o:1", "redis://u:hunter2@[::1:1", "redis://u:pa/hunter2@h:1", "redis://u:p/a/hunter2@h:1",
		"redis://u:pa?hunter2@h:1", "redis://u:hunter2/pa@h:1", "redis://:12/hunter2@h", "redis://:12#hunter2@h", "redis://h/%zz?password=hunter2",
		"redis-sentinel://h/ma%zz?sentinel_password=hunter2", "redis-sentinel://u:hunter2@h:port/m", "redis-sentinel://u:pa/hunter2@h/m",
		"redis-cluster://u:hunter2@h:port", "redis-cluster://u:hunter2@a b", "redis-cluster://u:pa/hunter2@h",
		"redis://h?read_timeout=hunter2", "redis://h?db=hunter2", "redis://h?protocol=%68unter2", "redis://h?dial_timeout=1s&dial_timeout=hunter2",
		"redis://h?read_timeout=7hunter2", "redis://h?db=hunter2#x", "redis://h?read_timeout=hunter2é", "redis://h?skip_verify=hunter2", "redis-sentinel://h/m?pool_size=hunter2", "redis-cluster://h?read_timeout=hunter2",
	} {
		_, locks := OpenLock(t.Context(), Config{URL: raw})
		_, limits := OpenLimit(t.Context(), Config{URL: raw})
		_, client := NewClient(raw)
		for _, err := range []error{locks, limits, client} {
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the error is %v", raw, err)
			}
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, raw := range []string{"redis://u:p@h:1/2?db=3", "redis-sentinel://a,b/m/1", "redis-cluster://a,[::1]:2", "rediss://", "redis://%zz@"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		_ = masked(raw)
		d, err := dial(raw)
		if err != nil {
			return
		}
		_ = d.client.Close()
		if d.stream != nil {
			_ = d.stream.Client.Close()
		}
	})
}
