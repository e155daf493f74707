package megatest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/megatest"
)

// counter is an application with something to protect.
type counter struct{ n int }

func newCounter() *counter { return &counter{} }

func routes(r mega.Router, c *counter) {
	r.Post("/count", func(ctx *mega.Ctx) error {
		return ctx.Lock.With("count", func(ctx *mega.Ctx) error {
			c.n++
			ctx.Log.Info("counted", "n", c.n)
			return ctx.JSON(http.StatusCreated, map[string]int{"n": c.n})
		})
	})
	r.Post("/work", func(ctx *mega.Ctx) error {
		return ctx.Lock.With("work", func(ctx *mega.Ctx) error {
			<-ctx.Done() // work that ends only when its lock does
			return ctx.Err()
		})
	})
	r.Post("/form", func(ctx *mega.Ctx) error {
		var in struct {
			Name string `json:"name"`
		}
		if err := ctx.Bind(&in); err != nil {
			return err
		}
		return ctx.Text(http.StatusOK, "hello "+in.Name)
	})
}

func module() mega.Option { return mega.Module(mega.Provide(newCounter), mega.Routes(routes)) }

func TestApplicationAnswersWithoutSockets(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	var got struct{ N int }
	kit.Post("/count", nil).Status(http.StatusCreated).JSON(&got)
	kit.Post("/form", url.Values{"name": {"Kim"}}, "Accept: text/plain").Status(http.StatusOK).Contains("hello Kim")
	kit.Get("/nowhere").Status(http.StatusNotFound).Code("request.not_found")
	if got.N != 1 {
		t.Errorf("counted %d, want 1", got.N)
	}
	kit.Log.Expect("counted", "n", 1, "app", "main")
	kit.Log.Never("counted", "n", 2)
	kit.Log.Expect("request", "status", http.StatusNotFound)
}

// The context of a test ends before the functions of its Cleanup: they can wait for a
// request of the test, and make others.
func TestCleanupsUseTheKit(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	kit.Bus.Respond("bank.charge", func(*bus.Msg) (any, error) { return "charged", nil })
	var asking sync.WaitGroup
	asking.Go(func() { kit.Post("/work", nil) }) // works until its context ends
	kit.Lock.AwaitHolder("work")
	t.Cleanup(func() {
		asking.Wait()
		kit.Post("/count", nil).Status(http.StatusCreated)
		kit.Lock.Hold("other")()
		if _, err := kit.Ctx().Bus.Request("bank.charge", 42); err != nil {
			t.Error(err)
		}
	})
}

func TestALeakedLeaseFailsTheTestWithItsCallSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &recorder{TB: t}
		kit := megatest.New(fake, megatest.Config{}, module())
		leaked, err := kit.Locks().Acquire(context.Background(), "leaked")
		if err != nil {
			t.Fatal(err)
		}
		fake.end()
		if !strings.Contains(fake.said, "still locked at the end of the test: leaked\n") || !strings.Contains(fake.said, "megatest_test.go:") {
			t.Errorf("got %q", fake.said)
		}
		_ = leaked.Release()
	})
}

func TestHeldLockIsBusyForTheApplication(t *testing.T) {
	kit := megatest.New(t, megatest.Config{Set: []string{"lock.wait=20ms"}}, module())
	release := kit.Lock.Hold("count")
	kit.Post("/count", nil).Status(http.StatusConflict).Code("lock.not_acquired").Header("Retry-After", "10")
	release()
	kit.Post("/count", nil).Status(http.StatusCreated)
}

// The application may have a page for operators.
func TestHeldLockMayBeForced(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	release := kit.Lock.Hold("count")
	if n, err := kit.Ctx().Lock.ForceRelease("count", "stuck"); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	kit.Post("/count", nil).Status(http.StatusCreated)
	release()
	kit.Lock.Hold("count")
	kit.Lock.Expire("count")
	kit.Post("/count", nil).Status(http.StatusCreated)
}

func TestExpiredLockEndsTheWorkUnderIt(t *testing.T) {
	for name, take := range map[string]func(*megatest.Kit){
		"expired": func(k *megatest.Kit) { k.Lock.Expire("work") },
		"forced":  func(k *megatest.Kit) { k.Lock.Force("work", "a deploy") },
	} {
		t.Run(name, func(t *testing.T) {
			kit := megatest.New(t, megatest.Config{}, module())
			answered := make(chan *megatest.Response)
			go func() { answered <- kit.Post("/work", nil) }()
			kit.Lock.AwaitHolder("work")
			take(kit)
			(<-answered).Status(http.StatusConflict).Code("lock.lost")
			r := kit.Log.Expect("lock lost", "key", "work")
			if !strings.Contains(fmt.Sprint(r["error"]), name) {
				t.Errorf("the loss was logged as %v, want %q in it", r, name)
			}
		})
	}
}

// Such work finds the loss when the lease is released.
func TestExpiredLockIsReportedAsExpiredToWorkThatDoesNotLook(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	err := kit.Ctx().Lock.With("work", func(*mega.Ctx) error {
		kit.Lock.Expire("work")
		return nil
	})
	if lost, ok := errors.AsType[*lock.LostError](err); !ok || lost.Cause != lock.Expired || lost.Reason != "" {
		t.Errorf("got %v, want a lease that has expired", err)
	}
}

func TestBrokenBackendIsUnavailableUntilItIsMended(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	kit.Lock.Break()
	kit.Post("/count", nil).Status(http.StatusServiceUnavailable).Code("lock.unavailable")
	if _, err := kit.Ctx().Lock.Inspect("count"); !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("Inspect of a broken backend: %v", err)
	}
	kit.Lock.Mend()
	kit.Post("/count", nil).Status(http.StatusCreated)
}

// A waiter gets no lock from a backend that it cannot reach.
func TestBrokenBackendServesNoWaiter(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	release := kit.Lock.Hold("count")
	waited := make(chan error, 1)
	go func() {
		waited <- kit.Ctx().Lock.With("count", func(*mega.Ctx) error { return nil }, lock.Wait(time.Minute))
	}()
	kit.Lock.AwaitWaiters("count", 1)
	kit.Lock.Break()
	release()
	if err := <-waited; !errors.Is(err, lock.ErrUnavailable) {
		t.Errorf("a waiter of a broken backend: %v", err)
	}
	kit.Lock.AwaitWaiters("count", 0)
	kit.Lock.Mend()
	kit.Post("/count", nil).Status(http.StatusCreated)
}

func TestHourPassesInAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := megatest.New(t, megatest.Config{}, module())
		began := time.Now()
		err := kit.Ctx().Lock.With("nightly", func(ctx *mega.Ctx) error {
			time.Sleep(time.Hour)
			return ctx.Err()
		}, lock.TTL(time.Minute))
		if err != nil || time.Since(began) < time.Hour {
			t.Errorf("after %v the lease that renews itself came to %v", time.Since(began), err)
		}
	})
}

func TestWaitersAreServedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := megatest.New(t, megatest.Config{Set: []string{"lock.wait=1m"}}, module())
		release := kit.Lock.Hold("count")
		answered := make(chan *megatest.Response, 2)
		for range 2 {
			go func() { answered <- kit.Post("/count", nil) }()
		}
		kit.Lock.AwaitWaiters("count", 2)
		release()
		for range 2 {
			(<-answered).Status(http.StatusCreated)
		}
	})
}

func TestExclusiveWorkIsAlone(t *testing.T) {
	kit := megatest.New(t, megatest.Config{}, module())
	megatest.Exclusive(t, 50, func(inside func()) error {
		return kit.Ctx().Lock.With("report", func(*mega.Ctx) error {
			inside()
			return nil
		}, lock.Wait(time.Minute))
	})
}

func TestAppsAreAskedByName(t *testing.T) {
	says := func(what string) mega.Option {
		return mega.Routes(func(r mega.Router) {
			r.Get("/", func(ctx *mega.Ctx) error { return ctx.Text(http.StatusOK, what) })
		})
	}
	kit := megatest.New(t, megatest.Config{}, mega.App("web", says("hello")), mega.App("admin", says("yes?")))
	kit.Get("/").Contains("hello")
	kit.App("admin").Get("/").Contains("yes?")
}

// A wrong expectation fails its test.
func TestExpectationsFail(t *testing.T) {
	for name, wrong := range map[string]func(t testing.TB){
		"status":   func(t testing.TB) { kit(t).Get("/nowhere").Status(http.StatusOK) },
		"code":     func(t testing.TB) { kit(t).Get("/nowhere").Code("lock.lost") },
		"header":   func(t testing.TB) { kit(t).Get("/nowhere").Header("Retry-After", "1") },
		"contains": func(t testing.TB) { kit(t).Get("/nowhere").Contains("everything") },
		"json": func(t testing.TB) {
			var v struct{ N int }
			kit(t).Get("/nowhere").JSON(&v)
		},
		"app":     func(t testing.TB) { kit(t).App("elsewhere") },
		"expire":  func(t testing.TB) { kit(t).Lock.Expire("nobody's") },
		"boot":    func(t testing.TB) { megatest.New(t, megatest.Config{Set: []string{"lock.wait=soon"}}, module()) },
		"overlap": func(t testing.TB) { megatest.Exclusive(t, 2, func(inside func()) error { inside(); return nil }) },
		"outside": func(t testing.TB) { megatest.Exclusive(t, 2, func(func()) error { return nil }) },
		"one outside": func(t testing.TB) {
			var once sync.Once
			megatest.Exclusive(t, 2, func(inside func()) error { once.Do(func() { inside(); inside() }); return nil })
		},
		"attribute without a value": func(t testing.TB) { kit(t).Log.Never("counted", "n") },
		"error": func(t testing.TB) {
			megatest.Exclusive(t, 1, func(inside func()) error { inside(); return errors.New("no") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &recorder{TB: t}
			func() {
				defer func() { _ = recover() }() // of Fatalf
				for range 1000 {                 // what depends on chance gets many
					if wrong(fake); fake.failed > 0 {
						break
					}
					fake.end()
				}
			}()
			fake.end()
			if fake.failed == 0 {
				t.Error("nothing was noticed")
			}
		})
	}
}

func TestFailedExpectationReportsWhatItFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, wrong := range map[string]func(k *megatest.Kit){
			`the application runs no app "adm", only main`:                     func(k *megatest.Kit) { k.App("adm") },
			"0 events match till.*, want 1; the application published nothing": func(k *megatest.Kit) { k.Bus.Expect("till.*", 1) },
			`lock "count": waited 5s for a holder; it has 0 holders`:           func(k *megatest.Kit) { k.Lock.AwaitHolder("count") },
		} {
			fake := &recorder{TB: t}
			func() {
				defer func() { _ = recover() }() // of Fatalf
				wrong(kit(fake))
			}()
			fake.end()
			if !strings.HasPrefix(fake.said, want) {
				t.Errorf("got %q, want %q", fake.said, want)
			}
		}
	})
}

// A program that does not boot is explained as by its panel: with the places in its
// source, and with what to do.
func TestABootThatFailsNamesThePlaceAndTheRemedy(t *testing.T) {
	for _, x := range []struct {
		option mega.Option
		set    string
		says   []string
	}{
		{mega.Run("x", func(*strings.Builder, *mega.Ctx) error { return nil }), "", []string{
			"boot: Nothing provides *strings.Builder.  (boot.not_provided)\n", "    needed by  mega.Run", "megatest_test.go:", "    • Add its constructor: mega.Provide(…)\n",
		}},
		{mega.OnStart("warm", func(*mega.Ctx) error { panic("cold") }), "", []string{"(boot.hook_failed)", "    given at  mega.OnStart, ", "    cause  panic: cold", "    stack  "}},
		{mega.OnStart("warm", func(*mega.Ctx) error { return nil }), "lock.wait=soon", []string{"    config.invalid  --set lock.wait: "}},
	} {
		fake := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }() // of Fatalf
			megatest.New(fake, megatest.Config{Set: append([]string{"lock.ttl=5s"}, strings.Fields(x.set)...)}, x.option)
		}()
		fake.end()
		for _, want := range x.says {
			if !strings.Contains(fake.said, want) {
				t.Errorf("got\n%swant %q", fake.said, want)
			}
		}
	}
}

// A mistyped Dir would leave the test with the defaults.
func TestAFolderThatDoesNotExistFailsTheTest(t *testing.T) {
	fake := &recorder{TB: t}
	func() {
		defer func() { _ = recover() }() // of Fatalf
		megatest.New(fake, megatest.Config{Dir: "nowhere"}, mega.App("web"))
	}()
	fake.end()
	if !strings.Contains(fake.said, "Config.Dir: ") || !strings.Contains(fake.said, "nowhere") {
		t.Errorf("got %q", fake.said)
	}
}

func TestRequestThatIsNotAnsweredFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &recorder{TB: t}
		release := make(chan struct{})
		kit := megatest.New(fake, megatest.Config{}, mega.Routes(func(r mega.Router) {
			r.Get("/", func(*mega.Ctx) error {
				<-release
				return nil
			})
		}))
		go kit.Get("/")
		synctest.Wait()
		fake.end()
		if want := "a request has no answer 5s after its context has ended"; !strings.Contains(fake.said, want) {
			t.Errorf("got %q, want %q", fake.said, want)
		}
		close(release)
	})
}

// The end of the kit cuts the answer. A failure would come from a goroutine of a test
// that has ended.
func TestAnswerThatTheEndCutsFailsNoTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &recorder{TB: t}
		kit := megatest.New(fake, megatest.Config{}, mega.Routes(func(r mega.Router) {
			r.Get("/", func(ctx *mega.Ctx) error {
				if _, err := fmt.Fprint(ctx.Writer(), "begun"); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}))
		go kit.Get("/")
		synctest.Wait()
		fake.end()
		synctest.Wait()
		if fake.failed > 0 {
			t.Errorf("got %q", fake.said)
		}
	})
}

func TestRunThatDoesNotReturnIsNamedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &recorder{TB: t}
		release := make(chan struct{})
		defer close(release)
		megatest.New(fake, megatest.Config{}, mega.Run("import", func(*mega.Ctx) error {
			<-release
			return nil
		}))
		fake.end()
		if want := `stop "import": the function has not returned`; !strings.Contains(fake.said, want) {
			t.Errorf("got %q, want %q", fake.said, want)
		}
	})
}

func TestSetMayContainSecrets(t *testing.T) {
	type account struct {
		Password mega.Secret `key:"password"`
		URL      mega.URL    `key:"url"`
	}
	var got account
	megatest.New(t, megatest.Config{Set: []string{"account.password=hunter2", "account.url=https://u:hunter2@h/"}},
		mega.Config[account]("account"), mega.OnStart("read", func(a account, _ *mega.Ctx) error { got = a; return nil }))
	if got.Password.Reveal() != "hunter2" || got.URL.Reveal() != "https://u:hunter2@h/" {
		t.Errorf("got the password %q and the URL %q", got.Password.Reveal(), got.URL.Reveal())
	}
}

func TestLeaseThatIsStillHeldFailsTheTest(t *testing.T) {
	fake := &recorder{TB: t}
	k := kit(fake)
	if _, err := k.Locks().Acquire(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	fake.end()
	if fake.failed == 0 || !strings.Contains(fake.said, "kept") {
		t.Errorf("a lease was left behind, and the kit said %q", fake.said)
	}
}

// A leader, and a Run under a lock, keep their leases until the program stops.
func TestLeasesOfBackgroundWorkDoNotFailTheTest(t *testing.T) {
	fake := &recorder{TB: t}
	until := func(ctx *mega.Ctx) error {
		<-ctx.Done()
		return nil
	}
	k := megatest.New(fake, megatest.Config{},
		mega.Lead("leader", until),
		mega.Run("keeper", func(ctx *mega.Ctx) error { return ctx.Lock.With("kept", until) }),
	)
	k.Lock.AwaitHolder("kept")
	k.Lock.AwaitHolder("mega:lead::test:main:leader")
	fake.end()
	if fake.failed != 0 {
		t.Errorf("the leases ended with the program, and the kit said %q", fake.said)
	}
}

func TestLimitsOfTheKitAreThoseOfTheApplication(t *testing.T) {
	k, once := kit(t), limit.Limit{Rates: []limit.Rate{limit.PerHour(1)}}
	if r, err := k.Ctx().Limit.Allow("partner", once); err != nil || !r.Allowed {
		t.Fatalf("got %+v, %v", r, err)
	}
	if s, err := k.Limits().Inspect(t.Context(), "partner"); err != nil || len(s.Rates) != 1 || s.Rates[0].Used != 1 {
		t.Errorf("got %+v, %v, want one unit used", s, err)
	}
	if err := k.Limits().Reset(t.Context(), "partner"); err != nil {
		t.Fatal(err)
	}
	if r, err := k.Ctx().Limit.Allow("partner", once); err != nil || !r.Allowed {
		t.Errorf("after Reset: got %+v, %v", r, err)
	}
}

func kit(t testing.TB) *megatest.Kit { return megatest.New(t, megatest.Config{}, module()) }

// recorder is a test that is expected to fail.
type recorder struct {
	testing.TB
	failed   int
	said     string
	cleanups []func()
	ctx      context.Context
	stop     context.CancelFunc
}

// Context returns a context that ends before the cleanups, as that of a test does.
// New calls it first.
func (r *recorder) Context() context.Context {
	if r.ctx == nil {
		r.ctx, r.stop = context.WithCancel(r.TB.Context())
	}
	return r.ctx
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed++
	r.said += fmt.Sprintf(format, args...) + "\n"
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// end runs the cleanups, the last one first.
func (r *recorder) end() {
	if r.stop != nil {
		r.stop()
	}
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}
