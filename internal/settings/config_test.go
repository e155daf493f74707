package settings_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/config"
	"github.com/megaframework/mega/internal/settings"
)

type database struct {
	URL      config.URL    `key:"url" default:"sqlite://shop.db"`
	Replica  config.URL    `key:"replica" schemes:"postgres|mysql"`
	Backup   config.URL    `key:"backup"`
	Password config.Secret `key:"password"`
	Retry    time.Duration `key:"retry" default:"1s" max:"1m"`
	Pool     int           `key:"pool" default:"4" min:"1" max:"64"`
}

func load(t *testing.T, environ ...string) (*settings.Config, error) {
	t.Helper()
	return settings.Load(settings.Source{
		Environ:  environ,
		Apps:     []string{"main", "admin"},
		Sections: []settings.Section{{Name: "database", Type: reflect.TypeFor[database](), Site: "store.go:10"}},
	})
}

func TestNothingSetIsTheDefaults(t *testing.T) {
	c, err := load(t, "PATH=/bin", "MEGA_LOCK_TTL=")
	if err != nil {
		t.Fatal(err)
	}
	if c.Lock.TTL != 10*time.Second || c.Lock.Wait != 5*time.Second || c.Lock.Driver != "auto" || c.Env != "production" {
		t.Errorf("got %+v", c)
	}
	if c.Apps["main"].Addr != "127.0.0.1:8080" || c.Apps["admin"].Addr != "127.0.0.1:8081" {
		t.Errorf("apps listen on %v", c.Apps)
	}
	if !c.Origin("lock.ttl").IsDefault() || !c.Origin("lock.cache").IsDefault() {
		t.Error("a value that nobody set does not say so")
	}
}

func TestVariablesReachTheirKeysAndSayWhere(t *testing.T) {
	c, err := load(t,
		"MEGA_ENV=staging", "MEGA_LOCK_REDIS_KEY=%s", "MEGA_CACHE_MAIN_URL=redis://h:6379/1", "MEGA_APPS_ADMIN_ADDR=:9000",
		"MEGA_DATABASE_URL=sqlite:///data/a.db", "MEGA_DATABASE_POOL=8", "MEGA_LOCK_FIFO=TRUE", "MEGA_BOOT_WAIT_FOR=0",
		"MEGA_LOCK_CACHE=main", "MEGA_SHUTDOWN_DELAY=1m30s")
	if err != nil {
		t.Fatal(err)
	}
	section, _ := c.Section("", "database")
	for _, x := range []struct{ got, want any }{
		{c.Env, "staging"}, {c.Lock.Redis.Key, "%s"}, {c.Cache["main"].URL.Reveal(), "redis://h:6379/1"},
		{c.Apps["admin"].Addr, config.Addr(":9000")}, {c.Lock.FIFO, true}, {c.Boot.WaitFor, time.Duration(0)},
		{c.Shutdown.Delay, 90 * time.Second}, {section.(database).URL.Reveal(), "sqlite:///data/a.db"}, {section.(database).Pool, 8},
		{c.Origin("database.pool").String(), "env MEGA_DATABASE_POOL"}, {c.Origin("database.retry").String(), "default"},
	} {
		if x.got != x.want {
			t.Errorf("got %v, want %v", x.got, x.want)
		}
	}
}

func TestKubernetesVariablesAreNotConfiguration(t *testing.T) {
	c, err := load(t, "KUBERNETES_SERVICE_HOST=10.0.0.1", "MEGA_SERVICE_HOST=10.0.0.2", "MEGA_WEB_SERVICE_PORT=80",
		"MEGA_WEB_SERVICE_PORT_HTTP=80", "MEGA_WEB_PORT=tcp://10.0.0.2:80", "MEGA_WEB_PORT_80_TCP_ADDR=10.0.0.2", "MEGA_TEST_SCALE=2")
	if err != nil {
		t.Fatal(err)
	}
	if c.Shutdown.Delay != 5*time.Second {
		t.Errorf("shutdown.delay is %v in Kubernetes, want 5s", c.Shutdown.Delay)
	}
}

// A section may have a key called port, although Kubernetes sets a variable of
// that name, too, for a service of the section's name.
func TestKeyPortDiffersFromTheKubernetesVariable(t *testing.T) {
	type mail struct {
		Port int `key:"port" default:"25"`
	}
	for _, x := range []struct {
		environ []string
		port    int
	}{
		{[]string{"MEGA_MAIL_PORT=2525"}, 2525},
		{[]string{"MEGA_MAIL_SERVICE_HOST=10.0.0.2", "MEGA_MAIL_PORT=tcp://10.0.0.2:25", "MEGA_MAIL_PORT_25_TCP=tcp://10.0.0.2:25"}, 25},
		{[]string{"MEGA_MAIL_SERVICE_HOST=10.0.0.2", "MEGA_MAIL_PORT=2525"}, 2525},
	} {
		c, err := settings.Load(settings.Source{Environ: x.environ, Sections: []settings.Section{{Name: "mail", Type: reflect.TypeFor[mail]()}}})
		if err != nil {
			t.Errorf("%v: %v", x.environ, err)
			continue
		}
		if got, _ := c.Section("", "mail"); got.(mail).Port != x.port {
			t.Errorf("%v: got %v, want %d", x.environ, got, x.port)
		}
	}
	_, err := settings.Load(settings.Source{Environ: []string{"MEGA_MAIL_PORT=tcp://10.0.0.2:25"}, Sections: []settings.Section{{Name: "mail", Type: reflect.TypeFor[mail]()}}})
	if err == nil {
		t.Error("outside of Kubernetes the same value is taken for a port")
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, x := range []struct{ variable, code, says string }{
		{"MEGA_LOCK_TTL=5", "config.no_unit", "write 5s"},
		{"MEGA_LOCK_TTL=50ms", "config.invalid", "less than 100ms"},
		{"MEGA_LOCK_TTL=25h", "config.invalid", "more than 24h"},
		{"MEGA_LOCK_TTL=soon", "config.invalid", "not a duration"},
		{"MEGA_LOCK_WAIT=-1s", "config.invalid", "less than 0s"},
		{"MEGA_LOCK_DRIVER=reddis", "config.invalid", "did you mean redis?"},
		{"MEGA_LOG_LEVEL=INFO", "config.invalid", "did you mean info?"},
		{"MEGA_LOCK_FIFO=yes", "config.invalid", "not true or false"},
		{"MEGA_LOCK_REQUIRE=cluster", "config.invalid", "not one of process, node, fleet"},
		{"MEGA_LOCK_REDIS_KEY=locks", "config.invalid", "%s once"},
		{"MEGA_LOCK_REDIS_KEY=%s%d", "config.invalid", "%s once"},
		{"MEGA_LOCK_CACHE=main", "config.unknown_cache", "set MEGA_CACHE_MAIN_URL"},
		{"MEGA_LOK_TTL=5s", "config.unknown_key", "did you mean MEGA_LOCK_TTL?"},
		{"MEGA_LOCK_REDIS_PASWORD=x", "config.unknown_key", "no key has this variable"},
		{"MEGA_CACHE_MAIL_URLL=redis://h", "config.unknown_key", "did you mean MEGA_CACHE_MAIL_URL?"},
		{"MEGA_CACHE_URL=redis://h", "config.unknown_key", "did you mean MEGA_CACHE_MAIN_URL?"},
		{"MEGA_REDIS_URL=redis://h", "config.unknown_key", "did you mean MEGA_CACHE_MAIN_URL?"},
		{"MEGA_REDIS_ADDR=h:6379", "config.unknown_key", "did you mean MEGA_CACHE_MAIN_URL?"},
		{"MEGA_NATS_PASWORD=x", "config.unknown_key", "did you mean MEGA_NATS_PASSWORD?"},
		{"mega_lock_ttl=5s", "config.unknown_key", "mega_lock_ttl: variables of keys are in upper case (write MEGA_LOCK_TTL)"},
		{"Mega_Cache_Main_Url=redis://h", "config.unknown_key", "write MEGA_CACHE_MAIN_URL"},
		{"mega_home=/opt/megacmd", "", ""},
		{"MEGA_CACHE_main_URL=redis://h", "config.unknown_key", "did you mean MEGA_CACHE_MAIN_URL?"},
		{"MEGA_APPS_WEB_ADDR=:1", "config.unknown_app", "its apps: main, admin"},
		{"MEGA_APPS_MAIN_ADDR=8080", "config.invalid", `"8080" is a port, not an address (write 127.0.0.1:8080, or :8080 for every address of the machine)`},
		{"MEGA_APPS_MAIN_ADDR=127.0.0.1:080", "config.invalid", `"127.0.0.1:080": the port "080" begins with 0; remove the 0`},
		{"MEGA_OPS_ADDR=:00", "config.invalid", `":00": the port "00" begins with 0`},
		{"MEGA_APPS_MAIN_PREFIX=/a/../b", "config.invalid", `"/a/../b" is not like /admin`},
		{"MEGA_APPS_MAIN_PREFIX=/.", "config.invalid", `"/." is not like /admin`},
		{"MEGA_APPS_MAIN_ADDR=localhost", "config.invalid", `"localhost" is not an address such as 127.0.0.1:8080`},
		{"MEGA_APPS_MAIN_ADDR=:+8080", "config.invalid", `the port "+8080" is not a number`},
		{"MEGA_APPS_MAIN_ADDR=:99999", "config.invalid", "not a number from 0 to 65535"},
		{"MEGA_CACHE_MAIN_URL=localhost:6379", "config.invalid", `"localhost:6379" is not a URL such as redis://localhost:6379/0`},
		{"MEGA_LOCK_WAIT=-1", "config.no_unit", `MEGA_LOCK_WAIT: "-1" has no unit`},
		{"MEGA_LOCK_TTL=200", "config.no_unit", `MEGA_LOCK_TTL: "200" has no unit (write 200s or 200ms)`},
		{"MEGA_ADMIN_ADDR=:1", "config.unknown_key", "did you mean MEGA_APPS_ADMIN_ADDR?"},
		{"MEGA_APPS_TLS_CERT=c.pem", "config.unknown_key", "did you mean MEGA_APPS_MAIN_TLS_CERT?"},
		{"MEGA_OPS_PORT=9091", "config.unknown_key", "MEGA_OPS_PORT: no key has this variable (did you mean MEGA_OPS_ADDR?)"},
		{"MEGA_APPS_ADMIN_PORT=9000", "config.unknown_key", "MEGA_APPS_ADMIN_PORT: no key has this variable (did you mean MEGA_APPS_ADMIN_ADDR?)"},
		{"MEGA_PORT=80", "config.unknown_key", "MEGA_PORT: no key has this variable"},
		{"MEGA_CACHE_MAIN_URL=redis-cluster://", "config.invalid", `"redis-cluster://" is not a URL such as redis-cluster://host1:6379,host2:6379`},
		{"MEGA_DATABASE_URL=shop.db", "config.invalid", `"shop.db" is not a URL such as sqlite://shop.db`},
		{"MEGA_DATABASE_URL=sqlite://", "config.invalid", `"sqlite://" is not a URL such as sqlite://shop.db`},
		{"MEGA_DATABASE_REPLICA=db", "config.invalid", `"db" is not a URL such as postgres://user:password@host/name`},
		{"MEGA_DATABASE_REPLICA=mysql://", "config.invalid", `"mysql://" is not a URL such as mysql://host`},
		{"MEGA_DATABASE_BACKUP=s3", "config.invalid", `"s3" is not a URL such as https://host/path`},
		{"MEGA_NATS_URL=localhost:4222", "config.invalid", "is not a URL such as nats://localhost:4222"},
		{"MEGA_CACHE_MAIN_URL=http://localhost", "config.invalid", `scheme "http"`},
		{"MEGA_CACHE_MAIN_URL=redis://", "config.invalid", "is not a URL"},
		{"MEGA_CACHE_MAIN_URL=redis://:6379", "config.invalid", "is not a host"},
		{"MEGA_CACHE_MAIN_URL=redis://h:port", "config.invalid", "is not a host"},
		{"MEGA_CACHE_MAIN_URL=redis://h:70000", "config.invalid", "not a number from 1 to 65535"},
		{"MEGA_CACHE_MAIN_URL=redis-sentinel://a,b:26379,/x", "config.invalid", "is not a host"},
		{"MEGA_CACHE_MAIN_URL=redis-sentinel://a,b:26379,[::1]:1/x", "", ""},
		{"MEGA_DATABASE_POOL=0", "config.invalid", "less than 1"},
		{"MEGA_DATABASE_POOL=65", "config.invalid", "more than 64"},
		{"MEGA_DATABASE_POOL=4.5", "config.invalid", "not a whole number"},
		{"MEGA_DATABASE_RETRY=2m", "config.invalid", "more than 1m"},
	} {
		_, err := load(t, x.variable)
		if x.code == "" {
			if err != nil {
				t.Errorf("%s: %v", x.variable, err)
			}
			continue
		}
		var problems settings.Problems
		if !errors.As(err, &problems) || len(problems) != 1 {
			t.Errorf("%s: got %v, want one problem", x.variable, err)
			continue
		}
		name, _, _ := strings.Cut(x.variable, "=")
		if problems[0].Code != x.code || !strings.Contains(problems[0].String(), x.says) || !strings.Contains(problems[0].String(), name) && problems[0].Key == "" {
			t.Errorf("%s: got %s %q, want %s with %q", x.variable, problems[0].Code, problems[0], x.code, x.says)
		}
	}
}

func TestErrorMentionsAProgramWithoutApps(t *testing.T) {
	for _, s := range []settings.Source{{Environ: []string{"MEGA_APPS_WEB_ADDR=:1"}}, {Set: []string{"apps.web.addr=:1"}}, {Dir: folder(t, map[string]string{yamlFile: "apps: {web: {addr: ':1'}}\n"})}} {
		if p := problems(t, s); len(p) != 1 || !strings.Contains(p.Error(), `no app "web" (the program has no apps)`) {
			t.Errorf("got %v", p)
		}
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	_, err := load(t, "MEGA_LOCK_TTL=5", "MEGA_LOK_WAIT=1s", "MEGA_CACHE_MAIN_URL=nonsense", "MEGA_LOCK_CACHE=other")
	var problems settings.Problems
	if !errors.As(err, &problems) || len(problems) != 4 {
		t.Fatalf("got %v, want four problems", err)
	}
	for _, name := range []string{"MEGA_LOCK_TTL", "MEGA_LOK_WAIT", "MEGA_CACHE_MAIN_URL", "MEGA_LOCK_CACHE"} {
		if !strings.Contains(err.Error(), name+": ") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
}

func TestPasswordsAreNeverPrinted(t *testing.T) {
	const password = "hunter2"
	c, err := load(t, "MEGA_CACHE_MAIN_URL=redis://app:hunter2@h:6379?password=hunter2", "MEGA_DATABASE_PASSWORD=hunter2")
	if err != nil {
		t.Fatal(err)
	}
	section, _ := c.Section("", "database")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "url", c.Cache["main"].URL, "secret", section.(database).Password, "all", section)
	_, refused := load(t, "MEGA_CACHE_MAIN_URL=redis://app:hunter2@h:port")
	for _, printed := range []string{
		fmt.Sprintf("%v %+v %#v", c.Cache, section, c.Cache["main"].URL), fmt.Sprint(c.Values()), log.String(), refused.Error(),
	} {
		if strings.Contains(printed, password) {
			t.Errorf("the password is in %s", printed)
		}
	}
	if section.(database).Password.Reveal() != password || !strings.Contains(c.Cache["main"].URL.Reveal(), password) {
		t.Error("whoever asks for the secret does not get it")
	}
}

func TestSectionsThatCannotBeAreRefused(t *testing.T) {
	type empty struct{}
	for _, x := range []struct {
		name string
		typ  reflect.Type
		says string
	}{
		{"Data", reflect.TypeFor[database](), "lower-case word"},
		{"data", reflect.TypeFor[string](), "want a struct"},
		{"data", nil, "want a struct"},
		{"lock", reflect.TypeFor[database](), "reserved"},
		{"addr", reflect.TypeFor[database](), "reserved"},
		{"worker", reflect.TypeFor[database](), "reserved"},
		{"service", reflect.TypeFor[database](), "reserved"},
		{"data", reflect.TypeFor[empty](), "has no field with a key tag"},
		{"data", reflect.TypeFor[struct {
			F map[string]string `key:"f"`
		}](), "f: a field cannot be a map[string]string; use text, a number, "},
		{"data", reflect.TypeFor[struct {
			F empty `key:"f"`
		}](), "data.f: settings_test.empty has no field"},
		{"data", reflect.TypeFor[struct {
			f string `key:"f"`
		}](), "not exported"},
		{"data", reflect.TypeFor[struct {
			F string `key:"a.b"`
		}](), "data.a.b: a key is a lower-case word"},
		{"data", reflect.TypeFor[struct {
			F string `key:"f"`
			G string `key:"f"`
		}](), "two fields have this key"},
		{"data", reflect.TypeFor[struct {
			F string `key:"service_host"`
		}](), "has the variable MEGA_DATA_SERVICE_HOST, which Kubernetes sets for a service"},
		{"data", reflect.TypeFor[struct {
			F int `key:"f" default:"a"`
		}](), `data.f: its default: "a" is not a whole number`},
		{"data", reflect.TypeFor[struct {
			F int `key:"f" default:"1" min:"2"`
		}](), `data.f: its default: 1 is less than 2`},
		{"data", reflect.TypeFor[struct {
			F time.Duration `key:"f" min:"2"`
		}](), `data.f: its bound: "2" has no unit`},
		{"data", reflect.TypeFor[struct {
			F time.Duration `key:"f" enum:"1s|2s"`
		}](), "the tag enum has no effect for time.Duration"},
		{"data", reflect.TypeFor[struct {
			F string `key:"f" max:"3"`
		}](), "the tag min or max has no effect for string"},
		{"data", reflect.TypeFor[struct {
			F string `key:"f" schemes:"http"`
		}](), "the tag schemes has no effect for string"},
		{"data", reflect.TypeFor[struct {
			F config.URL `key:"f" schemes:"http,https"`
		}](), `data.f: the tag schemes: "http,https" is not a scheme; several have | between them`},
		{"data", reflect.TypeFor[struct {
			F string `key:"f" pattern:"("`
		}](), "data.f: its pattern"},
		{"data", reflect.TypeFor[struct {
			F string `key:"f" reload:"live"`
		}](), "promises too much"},
		{"data", reflect.TypeFor[struct {
			F int `key:"f" defaul:"4"`
		}](), "data.f: the tag defaul has no effect; did you mean default?"},
		{"data", reflect.TypeFor[struct {
			F string `json:"f" key:"f" doc:"a \"b:\"" Required:"true"`
		}](), "data.f: the tag Required has no effect; did you mean required?"},
		{"data", reflect.TypeFor[struct {
			F string `key:"f" required:"yes"`
		}](), `data.f: the tag required is "yes", want "true"`},
	} {
		_, err := settings.Load(settings.Source{Sections: []settings.Section{{Name: x.name, Type: x.typ, Site: "a.go:1"}}})
		if p, ok := errors.AsType[settings.Problems](err); !ok || p[0].Code != "config.section" || !strings.Contains(err.Error(), x.says) || !strings.Contains(err.Error(), "declared at a.go:1") || strings.Contains(err.Error(), x.name+": "+x.name+": ") {
			t.Errorf("%s %v: got %v, want %q", x.name, x.typ, err, x.says)
		}
	}
	_, err := settings.Load(settings.Source{Apps: []string{"web"}, Sections: []settings.Section{{App: "admin", Name: "data", Type: reflect.TypeFor[database]()}}})
	if err == nil || !strings.Contains(err.Error(), `unknown app "admin"`) {
		t.Errorf("of an app that is not there: %v", err)
	}
}

func TestForeignTypesReadThemselves(t *testing.T) {
	type net struct {
		IP    netip.Addr  `key:"ip" default:"127.0.0.1"`
		Since time.Time   `key:"since"`
		Paid  config.URL  `key:"paid" pattern:"/v2$"`
		Max   config.Size `key:"max" default:"1.5KiB"`
		Ratio float32     `key:"ratio" json:"ratio" yaml:"ratio" toml:"r" env:"R" form:"r" db:"r" desc:"d" validate:"gt=0"`
		Modes []mode      `key:"modes" enum:"fast|safe"`
		Level slog.Level  `key:"level" default:"WARN"`
	}
	s := settings.Source{Sections: []settings.Section{{Name: "net", Type: reflect.TypeFor[net]()}}}
	s.Environ = []string{"MEGA_NET_SINCE=2026-01-02T03:04:05Z", "MEGA_NET_MODES=safe,fast", "MEGA_NET_RATIO=0.5"}
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := c.Section("", "net")
	if n := got.(net); n.IP != netip.MustParseAddr("127.0.0.1") || n.Since.Year() != 2026 || n.Max != 1536 || n.Modes[1] != "fast" || n.Level != slog.LevelWarn {
		t.Errorf("got %+v", n)
	}
	s.Environ = []string{"MEGA_NET_IP=1.2.3", "MEGA_NET_PAID=http://u:hunter2@h/v1", "MEGA_NET_MODES=sfe", "MEGA_NET_LEVEL=loud"}
	_, err = settings.Load(s)
	p, _ := errors.AsType[settings.Problems](err)
	if len(p) != 4 || strings.Contains(p.Error(), "hunter2") || !strings.Contains(p.Error(), "did you mean safe?") {
		t.Errorf("got %v, want four problems without a password", err)
	}
}

type mode string

func TestOneSectionMayBeAskedForTwiceButNotAsTwoTypes(t *testing.T) {
	type other struct{}
	same := settings.Section{Name: "database", Type: reflect.TypeFor[database](), Site: "a.go:1"}
	again := same
	again.App = "web"
	if _, err := settings.Load(settings.Source{Apps: []string{"web"}, Sections: []settings.Section{same, again}}); err != nil {
		t.Errorf("the same section twice: %v", err)
	}
	differs := settings.Section{Name: "database", Type: reflect.TypeFor[other](), Site: "b.go:2"}
	_, err := settings.Load(settings.Source{Sections: []settings.Section{same, differs}})
	if err == nil || !strings.Contains(err.Error(), "a.go:1") {
		t.Errorf("got %v, want an error that names a.go:1", err)
	}
}

func TestRequiredKeysAreAskedFor(t *testing.T) {
	type mail struct {
		Host string `key:"host" required:"true" pattern:"^[a-z]+$"`
	}
	s := settings.Source{Apps: []string{"web", "admin"}, Sections: []settings.Section{{Name: "mail", App: "web", Type: reflect.TypeFor[mail]()}}}
	for _, x := range []struct {
		only, environ []string
		says          string
	}{
		{nil, nil, "apps.web.mail.host: is required (set MEGA_MAIL_HOST)"},
		{[]string{"web"}, nil, "is required"},
		{[]string{"admin"}, nil, ""},
		{nil, []string{"MEGA_MAIL_HOST=h"}, ""},
		{nil, []string{"MEGA_APPS_WEB_MAIL_HOST=h"}, ""},
		{nil, []string{"MEGA_MAIL_HOST=?"}, `MEGA_MAIL_HOST: "?" does not match`},
	} {
		s.Only, s.Environ = x.only, x.environ
		_, err := settings.Load(s)
		if (err == nil) != (x.says == "") || err != nil && (!strings.Contains(err.Error(), x.says) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v %v: got %v, want %q", x.only, x.environ, err, x.says)
		}
	}
}

func TestAnAppSeesItsOwnValueOfASharedKey(t *testing.T) {
	c, err := settings.Load(settings.Source{
		Apps: []string{"web", "admin"},
		Sections: []settings.Section{
			{App: "web", Name: "database", Type: reflect.TypeFor[database]()},
			{App: "admin", Name: "database", Type: reflect.TypeFor[database]()},
		},
		Environ: []string{"MEGA_DATABASE_URL=sqlite://all.db", "MEGA_DATABASE_POOL=8", "MEGA_APPS_WEB_DATABASE_URL=sqlite://web.db"},
	})
	if err != nil {
		t.Fatal(err)
	}
	web, _ := c.Section("web", "database")
	admin, _ := c.Section("admin", "database")
	if web.(database).URL.Reveal() != "sqlite://web.db" || admin.(database).URL.Reveal() != "sqlite://all.db" {
		t.Errorf("web has %v, admin %v", web, admin)
	}
	if web.(database).Pool != 8 || web.(database).Retry != time.Second {
		t.Errorf("web inherits %+v", web)
	}
	if c.Apps["web"].LogLevel != "info" {
		t.Errorf("the log level of web is %q", c.Apps["web"].LogLevel)
	}
}

func TestTheCommandLineIsTheStrongestLayer(t *testing.T) {
	c, err := settings.Load(settings.Source{
		Environ: []string{"MEGA_LOCK_TTL=1m", "MEGA_CACHE_MAIN_URL=redis://h"},
		Set:     []string{"lock.ttl=2m", "cache.main.url=", "lock.ttl=3m"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Lock.TTL != 3*time.Minute || c.Origin("lock.ttl").String() != "--set lock.ttl" {
		t.Errorf("lock.ttl is %v from %v", c.Lock.TTL, c.Origin("lock.ttl"))
	}
	if len(c.Cache) != 0 {
		t.Errorf("a cache that was taken back is still there: %v", c.Cache)
	}
}

// A password is hidden wherever in an address it stands, also where it was not
// escaped, and whatever is wrong with it.
func TestPasswordsInAddressesAreHidden(t *testing.T) {
	const password = "hunter2"
	for _, x := range []struct{ key, url, shown string }{
		{"MEGA_CACHE_MAIN_URL", "redis-sentinel://:hunter2@a:1/m?sentinel_password=hunter2&db=1", "redis-sentinel://***@a:1/m?sentinel_password=***&db=***"},
		{"MEGA_NATS_URL", "nats://u:hunter2@a:1,nats://v:hunter2@b:2", "nats://***@a:1,nats://***@b:2"},
		{"MEGA_CACHE_MAIN_URL", "redis://:hunter2/x@h:1", ""},
		{"MEGA_CACHE_MAIN_URL", "redis://:hunter2?x@h:1", ""},
		{"MEGA_NATS_URL", "nats://u:hunter2/et@h:1", ""},
	} {
		c, err := load(t, x.key+"="+x.url)
		if x.shown == "" {
			if err == nil || strings.Contains(err.Error(), password) || !strings.Contains(err.Error(), "%2F") {
				t.Errorf("%s: %v", x.url, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", x.url, err)
			continue
		}
		if printed := fmt.Sprint(c.Values()); strings.Contains(printed, password) || !strings.Contains(printed, x.shown) {
			t.Errorf("%s is shown as %s", x.url, printed)
		}
	}
	_, err := settings.Load(settings.Source{Set: []string{"cache.main.url=redis-sentinel://a:1/m?sentinel_password=hunter2"}})
	if err == nil || !strings.Contains(err.Error(), "command line") {
		t.Errorf("a secret in a parameter is taken from the command line: %v", err)
	}
}

// A key that takes text may hold a URL with a password all the same.
func TestURLsInTextKeysAreMasked(t *testing.T) {
	type mailer struct {
		Relay  string   `key:"relay" enum:"smtp://localhost"`
		DSN    string   `key:"dsn" default:"postgres://ann:hunter2@localhost/shop?sslmode=disable"`
		Mirror []string `key:"mirrors"`
	}
	s := settings.Source{
		Sections: []settings.Section{{Name: "mailer", Type: reflect.TypeFor[mailer]()}},
		Environ:  []string{"MEGA_MAILER_MIRRORS=https://ann:hunter2@a,https://b?key=hunter2"},
	}
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	e, err := c.Explain("mailer.dsn")
	if err != nil || e.Value != "postgres://***@localhost/shop?sslmode=***" || e.Default != e.Value {
		t.Errorf("explained as %+v, %v", e, err)
	}
	next, changes, err := settings.Reload(c, settings.Source{Sections: s.Sections, Environ: []string{"MEGA_MAILER_DSN=postgres://bob:hunter2@localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprint(c.Values(), next.Values(), changes)
	s.Set = []string{"mailer.dsn=postgres://bob:hunter2@localhost"}
	_, onCommandLine := settings.Load(s)
	s.Set, s.Environ = nil, []string{"MEGA_MAILER_RELAY=smtp://ann:hunter2@mail"}
	_, illegal := settings.Load(s)
	for _, said := range []string{shown, fmt.Sprint(onCommandLine), fmt.Sprint(illegal)} {
		if strings.Contains(said, "hunter2") || strings.Contains(said, "ann") {
			t.Errorf("a credential is shown: %s", said)
		}
	}
	if onCommandLine == nil || illegal == nil {
		t.Errorf("accepted: %v, %v", onCommandLine, illegal)
	}
}

// The name of the program and the name of a section are two keys, and each of two
// caches is its own.
func TestIllegalValueHidesItsConsequencesAlone(t *testing.T) {
	type owner struct {
		Name string `key:"name" required:"true"`
	}
	for _, x := range []struct {
		environ []string
		keys    string
	}{
		{[]string{"MEGA_NAME=-"}, "name owner.name"},
		{[]string{"MEGA_OWNER_NAME=x", "MEGA_LIMIT_CACHE=b", "MEGA_LOCK_CACHE=a", "MEGA_CACHE_A_URL=redis://h", "MEGA_CACHE_B_URL=x"}, "cache.b.url"},
		{[]string{"MEGA_OWNER_NAME=x", "MEGA_LIMIT_CACHE=b", "MEGA_LOCK_CACHE=a", "MEGA_CACHE_A_URL=x", "MEGA_CACHE_C_URL=redis://h"}, "cache.a.url limit.cache"},
	} {
		_, err := settings.Load(settings.Source{Environ: x.environ, Sections: []settings.Section{{Name: "owner", Type: reflect.TypeFor[owner]()}}})
		var problems settings.Problems
		if !errors.As(err, &problems) {
			t.Fatalf("%v: got %v, want problems", x.environ, err)
		}
		var keys []string
		for _, p := range problems {
			keys = append(keys, p.Key)
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != x.keys {
			t.Errorf("%v: problems of %s, want %s", x.environ, got, x.keys)
		}
	}
}

type lower string

func (l *lower) UnmarshalText(text []byte) error {
	*l = lower(strings.ToLower(string(text)))
	return nil
}

func TestItemsOfAListReadThemselves(t *testing.T) {
	type peers struct {
		Addrs []config.Addr `key:"addrs"`
		Names []lower       `key:"names" default:"ANN"`
	}
	s := settings.Source{Sections: []settings.Section{{Name: "peers", Type: reflect.TypeFor[peers]()}}, Environ: []string{"MEGA_PEERS_ADDRS=:1,h:2"}}
	c, err := settings.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := c.Section("", "peers")
	if p := v.(peers); !slices.Equal(p.Names, []lower{"ann"}) || !slices.Equal(p.Addrs, []config.Addr{":1", "h:2"}) {
		t.Errorf("got %+v", p)
	}
	s.Environ = []string{"MEGA_PEERS_ADDRS=:1,h"}
	if _, err := settings.Load(s); err == nil || !strings.Contains(err.Error(), `"h" is not an address`) {
		t.Errorf("got %v", err)
	}
}

// unruly does what its text says.
type unruly struct{}

func (u *unruly) UnmarshalText(text []byte) error {
	switch string(text) {
	case "panic":
		panic("no such level")
	case "leave":
		runtime.Goexit()
	case "hang":
		<-release
	}
	return nil
}

var release chan struct{}

func TestUnmarshalTextThatDoesNotReturnIsTheErrorOfItsKey(t *testing.T) {
	type levels struct {
		One unruly `key:"one"`
	}
	for text, want := range map[string]string{"panic": "panicked: no such level", "leave": "ended its goroutine", "hang": "did not return within 5s"} {
		synctest.Test(t, func(t *testing.T) {
			release = make(chan struct{})
			defer close(release)
			s := settings.Source{Sections: []settings.Section{{Name: "levels", Type: reflect.TypeFor[levels]()}}, Environ: []string{"MEGA_LEVELS_ONE=" + text}}
			_, err := settings.Load(s)
			if got := fmt.Sprint(err); got != "MEGA_LEVELS_ONE: UnmarshalText of settings_test.unruly "+want {
				t.Errorf("%s: got %s", text, got)
			}
		})
	}
}

func TestSeveralUnmarshalTextThatHangDoNotTakeTheTimeOfEach(t *testing.T) {
	type levels struct {
		One   unruly `key:"one"`
		Two   unruly `key:"two"`
		Three unruly `key:"three"`
		Four  unruly `key:"four"`
	}
	synctest.Test(t, func(t *testing.T) {
		release = make(chan struct{})
		defer close(release)
		s := settings.Source{Sections: []settings.Section{{Name: "levels", Type: reflect.TypeFor[levels]()}}}
		s.Environ = []string{"MEGA_LEVELS_ONE=hang", "MEGA_LEVELS_TWO=hang", "MEGA_LEVELS_THREE=fine", "MEGA_LEVELS_FOUR=hang"}
		began := time.Now()
		_, err := settings.Load(s)
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("took %v", took)
		}
		if got := fmt.Sprint(err); strings.Count(got, "did not return within") != 3 || strings.Contains(got, "THREE") {
			t.Errorf("got %s", got)
		}
		if _, err := settings.Load(s); !strings.Contains(fmt.Sprint(err), "within 5s") {
			t.Errorf("the next load: got %v", err)
		}
	})
}
