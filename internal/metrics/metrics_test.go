package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/megaframework/mega/bus"
	busdriver "github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/internal/metrics"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMetrics() *metrics.Metrics {
	return metrics.New(metrics.Build{Program: "shop", Version: "v1", Revision: "abc", Go: "go1"})
}

// scrape returns what Prometheus would read.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// A label that is not UTF-8 panics in the library, at the call or in a scrape.
func TestTextOfOthersIsNoLabelAsItIs(t *testing.T) {
	m := newMetrics()
	m.Observe(lock.Lost{Key: "a:1", Err: &lock.LostError{Key: "a:1", Cause: "gone\xff"}})
	m.Served(metrics.Request{App: "web", Route: "/caf\xe9", Method: http.MethodGet, Status: http.StatusOK})
	want(t, scrape(t, m), `mega_lock_lost_total{cause="unknown",key_class="a:*"} 1`,
		`http_server_request_duration_seconds_count{app="web",method="GET",route="/caf?",status="2xx"} 1`)
}

func want(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in:\n%s", line, ours(text))
		}
	}
}

// ours leaves out the series of the runtime.
func ours(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "mega_") || strings.HasPrefix(line, "http_") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// all tells m everything that there is to tell.
func all(m *metrics.Metrics) {
	for _, e := range []lock.Event{
		lock.Acquired{Key: "order:1", Contended: true, Waited: time.Second},
		lock.Released{Key: "order:1", Held: time.Second},
		lock.NotAcquired{Key: "order:1", Err: lock.ErrNotAcquired},
		lock.Lost{Key: "order:1", Err: &lock.LostError{Cause: lock.Forced}},
		lock.ForcedRelease{Key: "order:1", Released: 3},
		lock.RenewFailed{Key: "order:1"},
		lock.ReleaseFailed{Key: "order:1"},
		lock.Forgotten{Key: "order:1"},
		lock.PoolResized{Key: "order:1"},
		lock.Withdrawn{Key: "order:1"},
		lock.Stale{Key: "order:1"},
		lock.Ran{Key: "order:1"},
		lock.Retrying{Key: "order:1"},
	} {
		m.Observe(e)
	}
	for _, e := range []limit.Event{
		limit.Granted{Key: "partner:1", Cost: 1, Waited: time.Second, Degraded: true},
		limit.Refused{Key: "partner:1", By: limit.PerSecond(5)},
		limit.Paused{Key: "partner:1"},
		limit.Unavailable{},
	} {
		m.ObserveLimit(e)
	}
	m.Served(metrics.Request{App: "web", Route: "/orders/{id}", Method: "GET", Status: 200, Took: time.Second})
	m.App("web", func() int { return 7 })
	m.Boot("lock", 2*time.Second)
}

// newBus has a subscription, on which each of the messages "x" fails.
func newBus(t testing.TB, use ...bus.Middleware) *bus.Bus {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{Use: use})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	_, err = b.Subscribe(context.Background(), "order.*", func(_ context.Context, m *bus.Msg) error {
		switch string(m.Data) {
		case "x":
			return errors.New("broken")
		case "panic":
			panic("no idea")
		}
		return nil
	}, bus.Name("ledger"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newLocker(t testing.TB, o lock.Observer) *lock.Locker {
	t.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{Observer: o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func TestCatalogueIsAllThatIsCounted(t *testing.T) {
	m := newMetrics()
	all(m)
	l := newLocker(t, m)
	m.Locker(l)
	useSlot(t, l, "sandbox", nil)
	limits, err := limit.New(memory.NewLimit(), limit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = limits.Close(context.Background()) }()
	m.Limiter(limits)
	b := newBus(t, m.Timed)
	m.Bus(b)
	m.ObserveBus(bus.Dropped{SubID: bus.SubID{Name: "ledger"}, Count: 1})
	if err := b.Publish(t.Context(), "order.made", nil); err != nil {
		t.Fatal(err)
	}
	for b.Stats().Total.Handled < 1 {
		time.Sleep(time.Millisecond)
	}
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, catalogue []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		got = append(got, fmt.Sprint(f.GetName(), strings.ToLower(f.GetType().String()), labels, f.GetHelp()))
	}
	for _, s := range metrics.Catalogue() {
		labels := slices.Sorted(slices.Values(s.Labels)) // as Prometheus has them
		catalogue = append(catalogue, fmt.Sprint(s.Name, s.Kind, labels, s.Help))
	}
	if !slices.Equal(got, catalogue) {
		t.Errorf("counted:\n%s\nin the catalogue:\n%s", strings.Join(got, "\n"), strings.Join(catalogue, "\n"))
	}
}

// useSlot uses a slot of a pool of three, whose Init returns failed.
func useSlot(t *testing.T, l *lock.Locker, key string, failed error) {
	t.Helper()
	pool := &lock.Pool{Key: key, Size: 3, Strikes: 1, Init: func(context.Context, *lock.Slot) error { return failed }}
	err := l.WithSlot(t.Context(), pool, func(context.Context, *lock.Slot) error { return nil })
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
}

func TestSlotsAreCountedByState(t *testing.T) {
	m := newMetrics()
	l := newLocker(t, m)
	m.Locker(l)
	useSlot(t, l, "repo:1", nil)
	useSlot(t, l, "repo:2", errors.New("no disk"))
	slot, err := l.AcquireSlot(t.Context(), &lock.Pool{Key: "sandbox", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.With(t.Context(), "lamp", func(context.Context) error { return nil }, lock.Slots(2)); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	want(t, text,
		`mega_lock_slots{key_class="repo:*",state="dirty"} 4`,
		`mega_lock_slots{key_class="repo:*",state="free"} 1`,
		`mega_lock_slots{key_class="repo:*",state="held"} 0`,
		`mega_lock_slots{key_class="repo:*",state="resting"} 0`,
		`mega_lock_slots{key_class="repo:*",state="withdrawn"} 1`,
		`mega_lock_slots{key_class="sandbox",state="held"} 1`,
	)
	if strings.Contains(text, `mega_lock_slots{key_class="lamp"`) {
		t.Error("a pool without states is counted")
	}
	if err := slot.Release(); err != nil {
		t.Fatal(err)
	}
	want(t, scrape(t, m), `mega_lock_slots{key_class="sandbox",state="free"} 1`)
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(scrape(t, m), "mega_lock_slots{") {
		t.Error("a closed Locker still has slots")
	}
}

func TestEventsAreCountedByClassOfKey(t *testing.T) {
	m := newMetrics()
	all(m)
	want(t, scrape(t, m),
		`mega_lock_acquired_total{key_class="order:*"} 1`,
		`mega_lock_contended_total{key_class="order:*"} 2`,
		`mega_lock_not_acquired_total{key_class="order:*",reason="busy"} 1`,
		`mega_lock_lost_total{cause="forced",key_class="order:*"} 1`,
		`mega_lock_forced_total{key_class="order:*"} 3`,
		`mega_lock_forgotten_total{key_class="order:*"} 1`,
		`mega_lock_renew_failures_total{key_class="order:*"} 1`,
		`mega_lock_release_failures_total{key_class="order:*"} 1`,
		`mega_lock_wait_seconds_bucket{key_class="order:*",le="0.5"} 0`,
		`mega_lock_wait_seconds_bucket{key_class="order:*",le="1"} 1`,
		`mega_lock_held_seconds_count{key_class="order:*"} 2`,
		`http_server_request_duration_seconds_count{app="web",method="GET",route="/orders/{id}",status="2xx"} 1`,
		`http_server_active_requests{app="web"} 7`,
		`mega_boot_seconds{phase="lock"} 2`,
		`mega_build_info{go="go1",program="shop",revision="abc",version="v1"} 1`,
	)
}

func TestEachEndWithoutALeaseHasItsReason(t *testing.T) {
	cancelled := &lock.NotAcquiredError{Err: context.Canceled}
	for _, x := range []struct {
		err    error
		reason string
	}{
		{&lock.NotAcquiredError{Key: "k"}, "busy"},
		{fmt.Errorf("acquire: %w", cancelled), "cancelled"},
		{&lock.NotAcquiredError{Err: context.DeadlineExceeded}, "cancelled"},
		{fmt.Errorf("%w: no route", lock.ErrUnavailable), "unavailable"},
		{fmt.Errorf("%w: %w", lock.ErrUnavailable, context.Canceled), "unavailable"},
		{lock.ErrClosed, "closed"},
		{lock.ErrUnsupported, "unsupported"},
		{lock.ErrDeadlock, "deadlock"},
		{errors.New("odd"), "other"},
		{nil, "other"},
	} {
		m := newMetrics()
		m.Observe(lock.NotAcquired{Key: "k", Err: x.err})
		want(t, scrape(t, m), fmt.Sprintf(`mega_lock_not_acquired_total{key_class="k",reason=%q} 1`, x.reason))
	}
}

func TestLossWithoutACauseIsUnknown(t *testing.T) {
	m := newMetrics()
	m.Observe(lock.Lost{Key: "k", Err: errors.New("odd")})
	want(t, scrape(t, m), `mega_lock_lost_total{cause="unknown",key_class="k"} 1`)
}

func TestLockerIsCountedAndReadWithEachScrape(t *testing.T) {
	synctest.Test(t, testLockerIsCounted)
}

func testLockerIsCounted(t *testing.T) {
	m := newMetrics()
	l := newLocker(t, m)
	m.Locker(l)
	lease, err := l.Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	want(t, scrape(t, m), `mega_lock_active 1`, `mega_lock_waiting 0`, `mega_lock_scope{driver="memory"} 0`)
	if _, err := l.ForceRelease(t.Context(), "order:1", "a test"); err != nil {
		t.Fatal(err)
	}
	<-lease.Context().Done()
	_ = lease.Release()
	synctest.Wait() // the context ends before the observer gets the event
	want(t, scrape(t, m), `mega_lock_active 0`, `mega_lock_forced_total{key_class="order:*"} 1`,
		`mega_lock_lost_total{cause="forced",key_class="order:*"} 1`, `mega_lock_held_seconds_count{key_class="order:*"} 1`)
}

func TestBusIsReadWithEachScrape(t *testing.T) {
	m, b := newMetrics(), newBus(t)
	m.Bus(b)
	for _, data := range []string{"ok", "x", "panic", "ok"} {
		if err := b.Publish(t.Context(), "order.made", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Request(t.Context(), "nobody.there", nil); !errors.Is(err, bus.ErrNoResponders) {
		t.Fatal(err)
	}
	for b.Stats().Total.Handled < 4 {
		time.Sleep(time.Millisecond)
	}
	want(t, scrape(t, m), `mega_bus_published_total 4`, `mega_bus_requests_total 1`, `mega_bus_requests_unanswered_total{reason="no_responders"} 1`,
		`mega_bus_messages_total{outcome="handled"} 4`, `mega_bus_handler_failures_total{kind="error"} 1`, `mega_bus_handler_failures_total{kind="panic"} 1`,
		`mega_bus_connected 1`, `mega_bus_pending{subscription="ledger"} 0`, `mega_bus_scope{driver="memory"} 0`)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, scrape(t, m), `mega_bus_connected 0`, `mega_bus_published_total 4`, `mega_bus_messages_total{outcome="handled"} 4`)
}

// cutBus is a driver whose connection is cut after each Subscribe.
type cutBus struct{ busdriver.Driver }

func (c cutBus) Subscribe(ctx context.Context, s busdriver.Subscription) (busdriver.Registration, error) {
	r, err := c.Driver.Subscribe(ctx, s)
	s.Sink.Gap(2)
	s.Sink.Gap(-1)
	return r, err
}

func TestGapsOfAnUnknownSizeAreCounted(t *testing.T) {
	m := newMetrics()
	b, err := bus.New(cutBus{memory.NewBus()}, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	m.Bus(b)
	for range 3 {
		if _, err := b.Subscribe(t.Context(), "a", func(context.Context, *bus.Msg) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want(t, scrape(t, m), `mega_bus_missed_total 6`, `mega_bus_gaps_total 3`)
}

// lateBus is a driver whose messages expire in its queue.
type lateBus struct {
	busdriver.Driver
	front busdriver.Front
}

func (l *lateBus) Attach(f busdriver.Front) error {
	l.front = f
	return l.Driver.Attach(f)
}

func (l *lateBus) Publish(context.Context, busdriver.Message) error {
	l.front.Expired(1)
	return nil
}

func TestEventsThatExpireBeforeTheyAreSentAreCounted(t *testing.T) {
	m := newMetrics()
	b, err := bus.New(&lateBus{Driver: memory.NewBus()}, bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	m.Bus(b)
	for range 3 {
		if err := b.Publish(t.Context(), "order.made", nil); err != nil {
			t.Fatal(err)
		}
	}
	want(t, scrape(t, m), `mega_bus_published_total 3`, `mega_bus_published_expired_total 3`)
}

func TestRefusedCallsOfALimitHaveTheirReason(t *testing.T) {
	m := newMetrics()
	for _, err := range []error{
		nil, fmt.Errorf("%w: no route", limit.ErrUnavailable), &limit.LimitedError{Full: true}, &limit.LimitedError{Paused: &limit.Pause{}}, errors.New("broken"),
	} {
		m.ObserveLimit(limit.Refused{Key: "partner:1", By: limit.PerSecond(5), Err: err})
	}
	for _, reason := range []string{"limited", "unavailable", "full", "paused", "other"} {
		want(t, scrape(t, m), `mega_limit_refused_total{key_class="partner:*",reason="`+reason+`"} 1`)
	}
}

func TestSubscriptionsAreBounded(t *testing.T) {
	m, b := newMetrics(), newBus(t)
	m.Bus(b)
	for i := range 300 {
		for range 2 { // several of one name are one
			if _, err := b.Subscribe(t.Context(), "a", func(context.Context, *bus.Msg) error { return nil }, bus.Name(fmt.Sprint("live ", i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := strings.Count(scrape(t, m), "\nmega_bus_pending{"); n != 201 {
		t.Errorf("%d series for 301 subscriptions, want 201", n)
	}
}

// What was dropped stays counted when the subscription has ended.
func TestDropsAreCountedByTheNameOfTheirSubscription(t *testing.T) {
	m := newMetrics()
	for i := range 300 {
		for range 2 {
			m.ObserveBus(bus.Dropped{SubID: bus.SubID{Name: fmt.Sprint("slow ", i)}, Count: 3})
		}
	}
	m.ObserveBus(bus.Missed{SubID: bus.SubID{Name: "slow 1"}, Count: 5})
	text := scrape(t, m)
	if n := strings.Count(text, "\nmega_bus_dropped_total{"); n != 201 {
		t.Errorf("%d series for 300 subscriptions, want 201", n)
	}
	want(t, text, `mega_bus_dropped_total{subscription="slow 1"} 6`, `mega_bus_dropped_total{subscription="other"} 600`)
}

func TestHandlersAreTimedByTheNameOfTheirSubscription(t *testing.T) {
	m := newMetrics()
	b := newBus(t, m.Timed)
	for i := range 300 {
		name := bus.Name(fmt.Sprint("asked ", i))
		if _, err := b.Respond(t.Context(), fmt.Sprint("ask.", i), func(context.Context, *bus.Msg) ([]byte, error) { return nil, nil }, name); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Request(t.Context(), fmt.Sprint("ask.", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := b.Publish(t.Context(), "order.made", []byte("panic")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	if n := strings.Count(text, "\nmega_bus_handler_seconds_count{"); n != 201 {
		t.Errorf("%d series for 301 subscriptions, want 201", n)
	}
	want(t, text, `mega_bus_handler_seconds_count{subscription="asked 7"} 1`, `mega_bus_handler_seconds_count{subscription="other"} 102`)
}

func TestTwoInOneProcessCountApart(t *testing.T) {
	a, b := newMetrics(), newMetrics()
	a.Observe(lock.Forgotten{Key: "k"})
	if text := scrape(t, b); strings.Contains(text, "mega_lock_forgotten_total{") {
		t.Errorf("b has counted what a was told:\n%s", ours(text))
	}
	want(t, scrape(t, a), `mega_lock_forgotten_total{key_class="k"} 1`)
}

func TestRuntimeAndProcessMetricsExist(t *testing.T) {
	text := scrape(t, newMetrics())
	for _, name := range []string{"\ngo_goroutines ", "\nprocess_start_time_seconds "} {
		if !strings.Contains(text, name) {
			t.Errorf("no series%q", name)
		}
	}
}

func TestClassesAreBounded(t *testing.T) {
	m := newMetrics()
	for i := range 1000 {
		m.Observe(lock.Released{Key: fmt.Sprintf("key-%d", i)})
		m.Observe(lock.Forgotten{Key: fmt.Sprintf("kind-%d:1", i)})
	}
	m.Observe(lock.Released{Key: "key-0"}) // it came early, and is still told apart
	text := scrape(t, m)
	for _, series := range []string{"mega_lock_held_seconds_count{", "mega_lock_forgotten_total{"} {
		if n := strings.Count(text, series); n > 201 {
			t.Errorf("%d series of %s for 2000 classes", n, series)
		}
	}
	want(t, text, `mega_lock_held_seconds_count{key_class="key-0"} 2`, `mega_lock_forgotten_total{key_class="other"} 900`)
}

func TestArbitraryClientTextIsNoLabel(t *testing.T) {
	m := newMetrics()
	for i := range 100 {
		m.Served(metrics.Request{App: "web", Method: fmt.Sprint("M", i), Status: 600 + i})
	}
	want(t, scrape(t, m), `http_server_request_duration_seconds_count{app="web",method="other",route="none",status="none"} 100`)
}

func TestKeysMayBeOfAnyShape(t *testing.T) {
	m := newMetrics()
	for key, class := range map[string]string{
		"order:1:2": "order:*", "order": "order", ":": ":*", "::": ":*", "{a}": "{a}", "a\"b": `a\"b`, "주문:1": "주문:*", strings.Repeat("x", 512): strings.Repeat("x", 512),
	} {
		m.Observe(lock.Acquired{Key: key})
		if text := scrape(t, m); !strings.Contains(text, `mega_lock_acquired_total{key_class="`+class+`"}`) {
			t.Errorf("%q is not of the class %q:\n%s", key, class, ours(text))
		}
	}
}

func TestCountingAndReadingAtOnce(t *testing.T) {
	m := newMetrics()
	var wg sync.WaitGroup
	const each = 500
	for g := range 8 {
		wg.Go(func() {
			for i := range each {
				m.Observe(lock.Acquired{Key: fmt.Sprintf("kind-%d:%d", i%20, g)})
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			scrape(t, m)
		}
	})
	wg.Wait()
	want(t, scrape(t, m), fmt.Sprintf(`mega_lock_acquired_total{key_class="kind-0:*"} %d`, 8*each/20))
}

// What is counted with every lease allocates nothing.
func TestCountingALeaseAllocatesNothing(t *testing.T) {
	m := newMetrics()
	var acquired, released lock.Event = lock.Acquired{Key: "order:1", Waited: time.Millisecond}, lock.Released{Key: "order:1", Held: time.Millisecond}
	if n := testing.AllocsPerRun(100, func() { m.Observe(acquired); m.Observe(released) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// nobody is an observer that costs nothing by itself.
type nobody struct{}

func (nobody) Observe(lock.Event) {}

// BenchmarkLock says what being observed adds to a lease in memory.
func BenchmarkLock(b *testing.B) {
	for _, x := range []struct {
		name     string
		observer lock.Observer
	}{{"unobserved", nil}, {"observed by nobody", nobody{}}, {"counted", newMetrics()}} {
		b.Run(x.name, func(b *testing.B) {
			l := newLocker(b, x.observer)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				lease, err := l.Acquire(ctx, "product:42")
				if err != nil {
					b.Fatal(err)
				}
				_ = lease.Release()
			}
		})
	}
}

func BenchmarkServed(b *testing.B) {
	m := newMetrics()
	b.ReportAllocs()
	for b.Loop() {
		m.Served(metrics.Request{App: "web", Route: "/orders/{id}", Method: "GET", Status: 200, Took: time.Millisecond})
	}
}

// What it costs to time a handler.
func BenchmarkBus(b *testing.B) {
	h := newMetrics().Timed(func(context.Context, *bus.Msg) error { return nil })
	ctx, msg := b.Context(), &bus.Msg{}
	for b.Loop() {
		_ = h(ctx, msg)
	}
}
