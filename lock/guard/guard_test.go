package guard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/guard"
)

func newLocker(t *testing.T) *lock.Locker {
	t.Helper()
	l, err := lock.New(memory.NewLock(), lock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func newBus(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func acquire(t *testing.T, l *lock.Locker, ctx context.Context, key string, opts ...lock.Option) *lock.Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	return lease
}

// send makes a guarded call through Transport and Handler and returns its
// status and code.
func send(t *testing.T, url string, ctx context.Context) (status int, code string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: guard.Transport(nil)}).Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Code string }
	if answer.StatusCode != http.StatusNoContent {
		if err := json.Unmarshal(body, &p); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	}
	return answer.StatusCode, p.Code, nil
}

func guarded(t *testing.T, s guard.Store) string {
	t.Helper()
	server := httptest.NewServer(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}), s))
	t.Cleanup(server.Close)
	return server.URL
}

func TestAnOlderFenceIsRefusedAnEqualAndANewerOnePass(t *testing.T) {
	var m guard.Memory
	for i, step := range []struct {
		key   string
		fence uint64
		want  bool
	}{{"a", 5, true}, {"a", 5, true}, {"a", 4, false}, {"b", 1, true}, {"a", 6, true}, {"a", 5, false}} {
		if got, err := m.Advance(t.Context(), step.key, step.fence); err != nil || got != step.want {
			t.Errorf("step %d: fence %d of %q: %v, %v, want %v", i, step.fence, step.key, got, err, step.want)
		}
	}
}

func TestAServiceRefusesTheRequestOfAnEarlierHolder(t *testing.T) {
	l, other := newLocker(t), newLocker(t)
	url := guarded(t, new(guard.Memory))
	early := acquire(t, other, t.Context(), "order/7;a,b:ü") // a holder that does not know of the next one
	late := acquire(t, l, t.Context(), "order/7;a,b:ü")
	if status, code, err := send(t, url, late.Context()); status != http.StatusNoContent || err != nil {
		t.Fatalf("the later holder: %d %s, %v", status, code, err)
	}
	if status, code, err := send(t, url, early.Context()); status != http.StatusConflict || code != "lock.stale" || err != nil {
		t.Errorf("the earlier holder: %d %s, %v; want 409 lock.stale", status, code, err)
	}
	if status, code, err := send(t, url, late.Context()); status != http.StatusNoContent || err != nil {
		t.Errorf("the later holder again: %d %s, %v", status, code, err)
	}
}

func TestNothingIsSentWithoutALiveLease(t *testing.T) {
	l, b := newLocker(t), newBus(t)
	url := guarded(t, new(guard.Memory))
	released := acquire(t, l, t.Context(), "k")
	outer := acquire(t, l, t.Context(), "outer")
	inner := acquire(t, l, outer.Context(), "inner")
	for _, lease := range []*lock.Lease{released, outer} {
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		ctx  context.Context
		want error
	}{
		{"no lease", t.Context(), lock.ErrNoLease},
		{"a released lease", context.WithoutCancel(released.Context()), lock.ErrLost},
		{"an outer lease that was released", context.WithoutCancel(inner.Context()), lock.ErrLost},
		{"work that left its lease", lock.WithoutLease(inner.Context()), lock.ErrNoLease},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := send(t, url, tt.ctx); !errors.Is(err, tt.want) {
				t.Errorf("Transport: %v, want %v", err, tt.want)
			}
			if err := b.Publish(context.Background(), "s", nil, guard.Fenced(tt.ctx)); !errors.Is(err, tt.want) {
				t.Errorf("Fenced: %v, want %v", err, tt.want)
			}
			if _, err := guard.Leases(tt.ctx); !errors.Is(err, tt.want) {
				t.Errorf("Leases: %v, want %v", err, tt.want)
			}
			db := sql.OpenDB(untouched{t})
			defer func() { _ = db.Close() }()
			if err := guard.Tx(tt.ctx, db, guard.SQLite, func(*sql.Tx) error { return nil }); !errors.Is(err, tt.want) {
				t.Errorf("Tx: %v, want %v", err, tt.want)
			}
			if err := guard.SQL(tt.ctx, untouched{t}, guard.SQLite); !errors.Is(err, tt.want) {
				t.Errorf("SQL: %v, want %v", err, tt.want)
			}
		})
	}
}

// untouched is a database, and a transaction, that nothing may use (G3).
type untouched struct{ t *testing.T }

var errUsed = errors.New("the database was used")

func (u untouched) Connect(context.Context) (driver.Conn, error) {
	u.t.Error(errUsed)
	return nil, errUsed
}

func (u untouched) Driver() driver.Driver { return nil }

func (u untouched) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	u.t.Error(errUsed)
	return nil, errUsed
}

func (u untouched) QueryRowContext(context.Context, string, ...any) *sql.Row {
	u.t.Error(errUsed)
	return new(sql.Row)
}

// A receiver accepts 64 fences. One call of AcquireAll has no more keys, but a context
// may have further leases.
func TestMoreFencesThanAReceiverAcceptsAreNotSent(t *testing.T) {
	url := guarded(t, new(guard.Memory))
	l, b := newLocker(t), newBus(t)
	var keys []string
	for i := range lock.MaxKeys {
		keys = append(keys, strconv.Itoa(i))
	}
	all, err := l.AcquireAll(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Release() }()
	if status, code, err := send(t, url, all.Context()); err != nil || status != http.StatusNoContent {
		t.Errorf("%d leases: %d %s, %v", len(keys), status, code, err)
	}
	one := acquire(t, l, all.Context(), "another")
	if _, _, err := send(t, url, one.Context()); !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "65 leases") {
		t.Errorf("one more: %v", err)
	}
	if err := b.Publish(t.Context(), "s", nil, guard.Fenced(one.Context())); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("one more, in a message: %v", err)
	}
}

func TestARedirectCarriesTheFencesAndTheClientsOwnHeaderDoesNot(t *testing.T) {
	l := newLocker(t)
	service := guarded(t, storeFunc(func(_ context.Context, key string, _ uint64) (bool, error) {
		if key != "k" {
			t.Errorf("checked %q", key)
		}
		return true, nil
	}))
	moved := httptest.NewServer(http.RedirectHandler(service, http.StatusTemporaryRedirect))
	t.Cleanup(moved.Close)
	lease := acquire(t, l, t.Context(), "k")
	r, err := http.NewRequestWithContext(lease.Context(), http.MethodPost, moved.URL, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(guard.Header, "forged;9") // as a proxy that copies the header of its caller
	answer, err := (&http.Client{Transport: guard.Transport(nil)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusNoContent || r.Header.Get(guard.Header) != "forged;9" {
		t.Errorf("status %d, and the caller's request has the header %q", answer.StatusCode, r.Header.Get(guard.Header))
	}
}

func TestARequestWithoutAHeaderMapIsSent(t *testing.T) {
	lease := acquire(t, newLocker(t), t.Context(), "k")
	sent := ""
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r.Header.Get(guard.Header)
		return nil, errors.New("not sent")
	})
	if answer, err := guard.Transport(base).RoundTrip((&http.Request{}).WithContext(lease.Context())); err == nil {
		_ = answer.Body.Close()
		t.Fatal("want the error of the base")
	}
	if !strings.HasPrefix(sent, "k;") {
		t.Errorf("the header is %q", sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAHandlerAnswersWhatItCannotPass(t *testing.T) {
	failing := storeFunc(func(context.Context, string, uint64) (bool, error) { return false, errors.New("disk full") })
	for _, tt := range []struct {
		name, header string
		store        guard.Store
		status       int
		code         string
	}{
		{"no header", "", new(guard.Memory), http.StatusPreconditionRequired, "lock.no_lease"},
		{"no fence", "key", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a fence that is not a number", "key;x", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a fence of 2^53", "key;9007199254740992", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a slot that is not a number", "key/x;1", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a key that is not encoded", "k%zz;1", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a key that is not valid UTF-8", "%ff;1", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a key that no lease can have", "k%00;1", new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"too many fences", strings.Repeat("k;1,", 65), new(guard.Memory), http.StatusBadRequest, "lock.invalid"},
		{"a store that fails", "key;1", failing, http.StatusServiceUnavailable, "lock.unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, guarded(t, tt.store), nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != "" {
				r.Header.Set(guard.Header, tt.header)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			var p struct{ Code string }
			if err := json.NewDecoder(answer.Body).Decode(&p); err != nil || answer.StatusCode != tt.status || p.Code != tt.code {
				t.Errorf("%d %s, %v; want %d %s", answer.StatusCode, p.Code, err, tt.status, tt.code)
			}
		})
	}
}

// A fence is below 2^53 (L2): the greatest one passes.
func TestTheGreatestFencePasses(t *testing.T) {
	seen := uint64(0)
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		storeFunc(func(_ context.Context, _ string, fence uint64) (bool, error) { seen = fence; return true, nil }))
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set(guard.Header, "k;9007199254740991")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusNoContent || seen != 9007199254740991 {
		t.Errorf("status %d, and the store has seen %d", w.Code, seen)
	}
}

type storeFunc func(context.Context, string, uint64) (bool, error)

func (f storeFunc) Advance(ctx context.Context, key string, fence uint64) (bool, error) {
	return f(ctx, key, fence)
}

func TestSlotsOfAPoolHaveFencesOfTheirOwn(t *testing.T) {
	l := newLocker(t)
	var seen []string
	url := guarded(t, storeFunc(func(_ context.Context, key string, _ uint64) (bool, error) {
		seen = append(seen, key)
		return true, nil
	}))
	first := acquire(t, l, t.Context(), "judge:a/b", lock.Slots(3))
	second := acquire(t, l, first.Context(), "judge:a/b", lock.Slots(3))
	inner := acquire(t, l, second.Context(), "account")
	if status, _, err := send(t, url, inner.Context()); status != http.StatusNoContent || err != nil {
		t.Fatal(status, err)
	}
	if got := strings.Join(seen, " "); got != "account judge:a%2Fb/0 judge:a%2Fb/1" {
		t.Errorf("checked %s", got)
	}
}

func TestASlotOfAPoolOfOneIsNoPlainKey(t *testing.T) {
	l := newLocker(t)
	slot, err := l.AcquireSlot(t.Context(), &lock.Pool{Key: "pool", Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slot.Release() })
	for want, lease := range map[string]*lock.Lease{
		"pool/0":  slot.Lease,
		"one/0":   acquire(t, l, t.Context(), "one", lock.Slots(1)),
		"fixed/0": acquire(t, l, t.Context(), "fixed", lock.FixedSlots(1)),
		"plain":   acquire(t, l, t.Context(), "plain"),
	} {
		if got := guard.ID(lease); got != want {
			t.Errorf("the fence of %s is kept as %q", want, got)
		}
		if slot := lease.Stale().Slot; (slot == 0) != lease.IsSlot() || lease.IsSlot() != strings.HasSuffix(want, "/0") {
			t.Errorf("%s is stale as slot %d", want, slot)
		}
	}
}

func TestAConsumerRefusesTheMessageOfAnEarlierHolder(t *testing.T) {
	l, other, b := newLocker(t), newLocker(t), newBus(t)
	if _, err := b.Respond(t.Context(), "pay", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("paid"), nil },
		bus.Use(guard.Middleware(new(guard.Memory)))); err != nil {
		t.Fatal(err)
	}
	early := acquire(t, other, t.Context(), "k")
	late := acquire(t, l, t.Context(), "k")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := b.Request(ctx, "pay", nil, guard.Fenced(late.Context())); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]bus.PubOption{
		"lock.stale":    {guard.Fenced(early.Context())},
		"lock.no_lease": nil,
		"lock.invalid":  {bus.Header(guard.Header, "k;x")},
	} {
		_, err := b.Request(ctx, "pay", nil, opts...)
		if remote, ok := errors.AsType[*bus.RemoteError](err); !ok || remote.Code() != name {
			t.Errorf("got %v, want a remote error with the code %s", err, name)
		}
	}
}

func FuzzHeaderIsDecodedOrRefused(f *testing.F) {
	for _, s := range []string{"k;1", "a%2Fb/3;17, c;18", ";", "k;9007199254740991", "%ff;0", "k/0/1;2", "k,;1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		store := storeFunc(func(_ context.Context, key string, fence uint64) (bool, error) {
			for _, c := range []byte(key) {
				if c <= ' ' || c > '~' {
					t.Errorf("the key %q of %q is not printable", key, header)
				}
			}
			if fence >= 1<<53 {
				t.Errorf("the fence of %q is %s", header, strconv.FormatUint(fence, 10))
			}
			return true, nil
		})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header[guard.Header] = []string{header}
		w := httptest.NewRecorder()
		guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), store).ServeHTTP(w, r)
		switch w.Code {
		case http.StatusNoContent, http.StatusBadRequest, http.StatusPreconditionRequired:
		default:
			t.Errorf("%q is answered with %d", header, w.Code)
		}
	})
}
