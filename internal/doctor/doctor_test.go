package doctor_test

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/boot"
	"github.com/megaframework/mega/bus"
	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/doctor"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/internal/testkit/certificate"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
	"github.com/megaframework/mega/lock/driver"
)

func process(environ ...string) boot.Process {
	return boot.Process{
		Name: "shop", Stderr: new(strings.Builder),
		Environ: append([]string{"MEGA_APPS_MAIN_ADDR=127.0.0.1:0", "MEGA_OPS_ADDR=127.0.0.1:0"}, environ...),
	}
}

func hello(r megactx.Router) {
	r.Get("/", func(c *megactx.Ctx) error { return c.Text(200, "hello from "+c.App.Name) })
}

func rehearse(t *testing.T, p boot.Process, options ...mega.Option) (plan.Report, *failure.Failure) {
	t.Helper()
	r, err := rehearsed(p, options...)
	var f *failure.Failure
	if err != nil && !errors.As(err, &f) {
		t.Fatalf("%T is no Failure: %v", err, err)
	}
	return r, f
}

func rehearsed(p boot.Process, options ...mega.Option) (plan.Report, error) {
	made, err := boot.Plan(p, options...)
	if err != nil {
		return plan.Report{}, err
	}
	return doctor.Rehearse(made)
}

func examined(t *testing.T, p boot.Process, options ...mega.Option) []doctor.Finding {
	t.Helper()
	made, err := boot.Plan(p, options...)
	return doctor.Examine(t.Context(), p.Environ, made, err)
}

// silent is an address where somebody listens and counts who comes.
func silent(t *testing.T) (addr string, came func() bool) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String(), func() bool {
		if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
}

func TestRehearsalDecidesAndOpensNothing(t *testing.T) {
	addr, came := silent(t)
	p := process("MEGA_CACHE_MAIN_URL=redis://"+addr, "MEGA_APPS_MAIN_ADDR="+addr, "MEGA_APPS_ADMIN_PREFIX=/admin", "MEGA_APPS_MAIN_LOCALES=ko,en")
	made := func() *int { t.Error("a constructor is called"); return nil }
	r, f := rehearse(t, p, mega.App("main", mega.Provide(made), mega.Routes(func(megactx.Router, *int) {})),
		mega.App("admin", mega.Routes(func(megactx.Router) {})))
	if f != nil {
		t.Fatal(f)
	}
	if stderr := p.Stderr.(*strings.Builder); came() || stderr.String() != "" {
		t.Errorf("it connected, or wrote %q", stderr)
	}
	if r.Lock.Chosen != "redis" || r.Bus.Chosen != "memory" || !r.Rehearsed || r.PID == 0 {
		t.Errorf("got %+v", r)
	}
	if len(r.Apps) != 2 || r.Apps[0].URL != "http://"+addr || !slices.Equal(r.Apps[0].Locales, []string{"ko", "en"}) || !strings.HasSuffix(r.Apps[1].URL, "/admin") {
		t.Errorf("the apps are %+v", r.Apps)
	}
	var page strings.Builder
	if err := r.Print(&page); err != nil || strings.Contains(page.String(), "routes") || strings.Contains(page.String(), "ready in") || !strings.Contains(page.String(), "nothing was opened") {
		t.Errorf("the page promises what was not done: %v\n%s", err, &page)
	}
}

func TestRehearsalEndsAsTheBootWould(t *testing.T) {
	main := mega.App("main", mega.Routes(hello))
	client := mega.Routes(func(megactx.Router, goredis.UniversalClient) {})
	for _, x := range []struct {
		name    string
		environ []string
		options []mega.Option
		code    string
	}{
		{"a mistake", []string{"MEGA_LOCK_TTL=5"}, []mega.Option{main}, "config.no_unit"},
		{"no app", nil, nil, "boot.no_app"},
		{"no cache", []string{"MEGA_LOCK_DRIVER=redis"}, []mega.Option{main}, "lock.no_cache"},
		{"a scope", nil, []mega.Option{mega.App("main", mega.RequireScope(driver.Fleet))}, "lock.scope_too_small"},
		{"the cluster is asked for outside one", []string{"MEGA_LOCK_DRIVER=cluster"}, []mega.Option{main}, "lock.no_cluster"},
		{"a page", nil, []mega.Option{mega.App("main", mega.Views(fstest.MapFS{"a.html": {Data: []byte("{{")}}))}, "boot.views"},
		{"a client that nobody configured", nil, []mega.Option{mega.App("main", client)}, "cache.not_configured"},
		{"a client by way of a constructor", nil, []mega.Option{mega.App("main",
			mega.Provide(func(goredis.UniversalClient) *int { return nil }), mega.Routes(func(megactx.Router, *int) {}))}, "cache.not_configured"},
		{"a constructor that nobody needs", nil, []mega.Option{mega.App("main", mega.Provide(func(goredis.UniversalClient) *int { return nil }))}, ""},
		{"a client by way of shared routes", nil, []mega.Option{
			mega.Routes(func(megactx.Router, *int) {}),
			mega.App("main", mega.Provide(func(goredis.UniversalClient) *int { return nil })),
		}, "cache.not_configured"},
		{"a client for a subscription", nil, []mega.Option{mega.App("main",
			mega.Subscribe(bus.Topic[*bus.Msg]("x"), func(goredis.UniversalClient, *megactx.Ctx, *bus.Msg) error { return nil }))}, "cache.not_configured"},
		{"a client that the program makes itself", nil, []mega.Option{mega.Provide(func() goredis.UniversalClient { return nil }), mega.App("main", client)}, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			p := process(x.environ...)
			switch _, f := rehearse(t, p, x.options...); {
			case f == nil && x.code != "":
				t.Errorf("it would start, want %s", x.code)
			case f != nil && f.Code != x.code:
				t.Errorf("got %v, want %s", f, x.code)
			}
		})
	}
}

func TestRehearsalTellsWhatItDecidedWhereItFails(t *testing.T) {
	p := process("MEGA_LOCK_REQUIRE=fleet")
	r, f := rehearse(t, p, mega.App("main"))
	if f == nil || f.Code != "lock.scope_too_small" || r.Lock.Chosen != "memory" || len(r.Lock.Candidates) != 3 || len(r.Apps) != 1 {
		t.Errorf("got %+v, %v", r, f)
	}
}

// found returns the finding of that name.
func found(t *testing.T, all []doctor.Finding, name string) doctor.Finding {
	t.Helper()
	i := slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("nothing is found about %q: %+v", name, all)
	}
	return all[i]
}

func TestExaminationFindsAllIsWell(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Persistence: redistest.AOF})
	p := process("MEGA_CACHE_MAIN_URL="+server.URL(), "XDG_RUNTIME_DIR="+t.TempDir(), "MEGA_BUS_DRIVER=memory")
	all := examined(t, p, mega.App("main", mega.Routes(hello)))
	var names []string
	for _, f := range all {
		names = append(names, f.Name)
		if f.Verdict == doctor.Fail || f.Text == "" {
			t.Errorf("got %+v", f)
		}
	}
	want := []string{"configuration", "lock", "bus", "locks in redis", "address of main", "address of ops", "cache main", "open files", "admin socket", "processors"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if f := found(t, all, "cache main"); f.Verdict != doctor.OK || !strings.Contains(f.Text, "its clock is ") || f.Took == 0 {
		t.Errorf("got %+v", f)
	}
	if f := found(t, all, "bus"); f.Verdict != doctor.Warn || !strings.Contains(f.Text, "messages end at this process") {
		t.Errorf("got %+v", f)
	}
}

func TestExaminationFindsEverythingThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	gone := redistest.Start(t, redistest.Options{})
	if err := gone.Kill(); err != nil {
		t.Fatal(err)
	}
	forgetful := redistest.Start(t, redistest.Options{})
	taken, _ := silent(t)
	p := process("MEGA_CACHE_MAIN_URL="+forgetful.URL(), "MEGA_CACHE_OTHER_URL="+gone.URL(), "MEGA_LOCK_CACHE=main",
		"MEGA_APPS_MAIN_ADDR="+taken, "XDG_RUNTIME_DIR="+filepath.Join(t.TempDir(), "gone"), "TMPDIR="+filepath.Join(t.TempDir(), "gone"))
	all := examined(t, p, mega.App("main", mega.Routes(hello)))
	for _, x := range []struct {
		name    string
		verdict doctor.Verdict
		says    string
		action  string
	}{
		{"address of main", doctor.Fail, "address already in use", "MEGA_APPS_MAIN_ADDR="},
		{"cache other", doctor.Fail, "connection refused", "Start it"},
		{"cache main", doctor.OK, "answers in", ""},
		{"locks in redis", doctor.Warn, "no persistence", ""},
		{"admin socket", doctor.Warn, "cannot be operated", "XDG_RUNTIME_DIR"},
	} {
		if f := found(t, all, x.name); f.Verdict != x.verdict || !strings.Contains(f.Text, x.says) || !strings.Contains(f.Action, x.action) {
			t.Errorf("got %+v, want it to %s with %q", f, x.verdict, x.says)
		}
	}
}

// The boot report has the same warnings.
func TestExaminationWarnsOfTheDriversOfLimitsAndMessages(t *testing.T) {
	t.Parallel()
	forgetful := redistest.Start(t, redistest.Options{}).URL()
	s := natstest.Start(t, natstest.Options{Config: `authorization: {users: [{user: u, password: p, permissions: {publish: {deny: "ev.>"}}}]}`})
	p := process("MEGA_CACHE_MAIN_URL="+forgetful, "MEGA_CACHE_COUNTS_URL="+forgetful+"/1", "MEGA_LOCK_CACHE=main", "MEGA_LIMIT_CACHE=counts",
		"MEGA_NATS_URL="+s.URL(), "MEGA_NATS_USER=u", "MEGA_NATS_PASSWORD=p")
	all := examined(t, p, mega.App("main", mega.Routes(hello)))
	for name, says := range map[string]string{"limits in redis": "no persistence", "messages through NATS": "do not include: publish to ev.> (events)"} {
		if f := found(t, all, name); f.Verdict != doctor.Warn || !strings.Contains(f.Text, says) {
			t.Errorf("got %+v, want a warning with %q", f, says)
		}
	}
}

func TestExaminationNamesWhatACertificateIsFor(t *testing.T) {
	for host, c := range map[string]certificate.Certificate{"127.0.0.1": {}, "shop.example": {Host: "shop.example"}} {
		cert, key := c.Write(t)
		all := examined(t, process("MEGA_APPS_MAIN_TLS_CERT="+cert, "MEGA_APPS_MAIN_TLS_KEY="+key), mega.App("main", mega.Routes(hello)))
		if f := found(t, all, "certificate of main"); !strings.HasPrefix(f.Text, "for "+host+", until ") {
			t.Errorf("%s: %q", host, f.Text)
		}
	}
}

func TestExaminationOfAConfigurationThatIsWrongTellsEachMistake(t *testing.T) {
	t.Parallel()
	p := process("MEGA_LOCK_TTL=5", "MEGA_LOK_WAIT=1s")
	all := examined(t, p, mega.App("main"))
	var wrong []string
	for _, f := range all {
		if f.Name == "configuration" && f.Verdict == doctor.Fail {
			wrong = append(wrong, f.Text)
		}
	}
	if len(wrong) != 2 || !strings.Contains(wrong[0], "MEGA_LOCK_TTL") || !strings.Contains(wrong[1], "MEGA_LOK_WAIT") {
		t.Errorf("got %q", wrong)
	}
	found(t, all, "open files") // the machine is looked at all the same
	p = process("MEGA_LOCK_DRIVER=redis")
	all = examined(t, p, mega.App("main"))
	if f := found(t, all, "lock"); f.Verdict != doctor.Fail || !strings.Contains(f.Action, "MEGA_CACHE_MAIN_URL") {
		t.Errorf("got %+v", f)
	}
	if f := found(t, examined(t, p), "program"); f.Verdict != doctor.Fail || !strings.Contains(f.Text, "no app") {
		t.Errorf("got %+v", f)
	}
}

// A server that accepts and says nothing is the worst to wait for.
func TestExaminationDoesNotWaitForLong(t *testing.T) {
	t.Parallel()
	redis, _ := silent(t)
	queue, _ := silent(t)
	p := process("MEGA_CACHE_MAIN_URL=redis://"+redis, "MEGA_LOCK_DRIVER=memory", "MEGA_NATS_URL=nats://"+queue, "MEGA_BUS_DRIVER=memory")
	began := time.Now()
	all := examined(t, p, mega.App("main"))
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, name := range []string{"cache main", "nats"} {
		if f := found(t, all, name); f.Verdict != doctor.Fail {
			t.Errorf("got %+v", f)
		}
	}
}

// The driver accepts white space after a comma, too.
func TestEachServerOfAListIsTried(t *testing.T) {
	s := natstest.Start(t, natstest.Options{})
	gone, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	p := process("MEGA_NATS_URL=nats://"+gone.Addr().String()+", "+s.URL(), "MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=nats")
	all := examined(t, p, mega.App("main"))
	for _, name := range []string{"nats", "messages through NATS"} {
		if f := found(t, all, name); f.Verdict == doctor.Fail {
			t.Errorf("got %+v", f)
		}
	}
}

// A server that does not answer takes no time from the others of its list.
func TestSilentServerOfAListIsNoFailure(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.Options{})
	silent, _ := silent(t)
	p := process("MEGA_NATS_URL=nats://"+silent+","+s.URL(), "MEGA_LOCK_DRIVER=memory", "MEGA_BUS_DRIVER=memory")
	if f := found(t, examined(t, p, mega.App("main")), "nats"); f.Verdict != doctor.OK {
		t.Errorf("got %+v", f)
	}
}

// Findings about one server name the same cause, as the boot does.
func TestExaminationNamesTheMistakeInAnAddress(t *testing.T) {
	t.Parallel()
	plain := redistest.Start(t, redistest.Options{}).Addr()
	for _, x := range []struct{ name, environ, says, action string }{
		{"cache main", "MEGA_CACHE_MAIN_URL=rediss://" + plain, "use the scheme redis://", "Correct the address: MEGA_CACHE_MAIN_URL=redis://"},
		{"cache main", "MEGA_CACHE_MAIN_URL=redis://" + plain + "/99", "DB index", "; or Raise their number: databases in redis.conf"},
		{"nats", "MEGA_NATS_URL=nats://127.0.0.1:1,nats://" + plain, "; " + plain + " does not speak NATS: ", "MEGA_NATS_URL="},
	} {
		all := examined(t, process(x.environ, "MEGA_LOCK_DRIVER=memory"), mega.App("main"))
		if f := found(t, all, x.name); f.Verdict != doctor.Fail || !strings.Contains(f.Text, x.says) || strings.Contains(f.Text, "\n") || !strings.Contains(f.Action, x.action) {
			t.Errorf("%s: got %+v, want %q with the action %q", x.environ, f, x.says, x.action)
		}
	}
}
