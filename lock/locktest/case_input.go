package locktest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/megaframework/mega/lock"
)

var inputCases = []testCase{
	{rule: "L14", claim: "an invalid key is refused before the driver is called", run: illegalKeys},
	{rule: "L14", claim: "an option out of bounds is refused before the driver is called", run: illegalOptions},
	{rule: "L14", claim: "a nil function is refused before the driver is called", run: nilFunctions},
	{rule: "L14", claim: "the bounds themselves are valid", run: legalBounds},
	{rule: "L14", claim: "unusual keys work and stay separate", run: oddKeys},
	{rule: "L14", claim: "the errors have their codes", run: errorCodes},
	{rule: "L14", claim: "data of another kind at the key is an error, at once", needs: []fault{"Corrupt"}, run: corruptKey},
}

// calls returns the error of every call that has a key as an argument.
func (p *process) calls(key string, opts ...lock.Option) map[string]error {
	_, acquire := p.Acquire(p.e.Ctx, key, opts...)
	_, try := p.TryAcquire(p.e.Ctx, key, opts...)
	with := p.With(p.e.Ctx, key, func(context.Context) error { return nil }, opts...)
	return map[string]error{"acquire": acquire, "try": try, "with": with}
}

func illegalKeys(e *env) {
	p := e.process()
	for _, key := range []string{"", " ", "a b", "\x00", "a\nb", "\t", "\u00a0", "\u2028", "a\u200bb", "a\u202eb", "a\ufeff", "a\u2060b", "a\u00adb", "\x7f", "\xff", "a\xc3", strings.Repeat("x", 513), strings.Repeat("x", 10_000)} {
		calls := p.calls(key)
		_, calls["force"] = p.ForceRelease(e.Ctx, key, "reason")
		_, calls["inspect"] = p.Inspect(e.Ctx, key)
		for call, err := range calls {
			e.Is(err, lock.ErrInvalid, "%s %.20q", call, key)
			e.hasCode(err, "lock.invalid_key")
			e.Want(len(err.Error()) < 2000, "%s %.20q: the error has %d bytes", call, key, len(err.Error()))
		}
	}
	e.Want(p.plan.Calls(Any) == 0, "%d calls were made", p.plan.Calls(Any))
}

func illegalOptions(e *env) {
	p := e.process()
	for name, opt := range map[string]lock.Option{
		"TTL 0":             lock.TTL(0),
		"TTL -1s":           lock.TTL(-time.Second),
		"TTL 500µs":         lock.TTL(500 * time.Microsecond),
		"TTL below 100ms":   lock.TTL(100*time.Millisecond - 1),
		"TTL above 24h":     lock.TTL(24*time.Hour + 1),
		"TTL of ever":       lock.TTL(math.MaxInt64),
		"Slots 0":           lock.Slots(0),
		"Slots -1":          lock.Slots(-1),
		"Slots 4097":        lock.Slots(4097),
		"Label of 129":      lock.Label(strings.Repeat("x", 129)),
		"Label not UTF-8":   lock.Label("\xff"),
		"Label with a \\n":  lock.Label("a\nb"),
		"Label with an ESC": lock.Label("\x1b[31m"),
		"Wait -1":           lock.Wait(-1),
		"Wait of past all":  lock.Wait(math.MinInt64),
	} {
		for call, err := range p.calls(e.key("k"), opt) {
			e.Is(err, lock.ErrInvalid, "%s with %s", call, name)
			e.hasCode(err, "lock.invalid_option")
		}
	}
	_, err := p.TryAcquire(e.Ctx, e.key("k"), lock.Wait(time.Second))
	e.Is(err, lock.ErrInvalid, "try with a wait")
	_, err = p.ForceRelease(e.Ctx, e.key("k"), "")
	e.Is(err, lock.ErrInvalid, "force without a reason")
	e.Want(p.plan.Calls(Any) == 0, "%d calls were made", p.plan.Calls(Any))
}

func nilFunctions(e *env) {
	p := e.process()
	for call, f := range map[string]func() error{
		"with":      func() error { return p.With(e.Ctx, e.key("k"), nil) },
		"with all":  func() error { return p.WithAll(e.Ctx, e.keys("a", "b"), nil) },
		"with slot": func() error { return p.WithSlot(e.Ctx, &lock.Pool{Key: e.key("pool"), Size: 1}, nil) },
		"lead":      func() error { return p.Lead(e.Ctx, e.key("k"), nil) },
		"once":      func() error { _, err := p.Once(e.Ctx, e.key("k"), time.Hour, nil); return err },
		"every":     func() error { return p.Every(e.Ctx, e.key("k"), time.Hour, nil) },
	} {
		err := func() error {
			defer func() { e.Want(recover() == nil, "%s called the nil function", call) }()
			return f()
		}()
		e.Is(err, lock.ErrInvalid, "%s with a nil function", call)
		e.hasCode(err, "lock.invalid_option")
	}
	e.Want(p.plan.Calls(Any) == 0, "%d calls were made", p.plan.Calls(Any))
}

func legalBounds(e *env) {
	p := e.process()
	key := e.key("k")
	for _, opt := range []lock.Option{
		lock.TTL(lock.MinTTL), lock.Wait(0), lock.Wait(lock.Forever), lock.Label(strings.Repeat("x", 128)),
	} {
		e.Must(p.With(e.Ctx, key, func(context.Context) error { return nil }, opt), "with")
	}
	long := e.prefix + strings.Repeat("k", 512-len(e.prefix))
	e.Must(p.With(e.Ctx, long, func(context.Context) error { return nil }), "with a key of 512 bytes")
	longest := p.heldWith("longest", lock.TTL(lock.MaxTTL))
	e.Want(len(longest.Holders) == 1 && longest.Holders[0].Left > lock.MaxTTL*99/100, "a lease of %v is shown as %+v", lock.MaxTTL, longest)
	if e.keeps("L15") {
		largest := p.heldWith("largest", lock.Slots(4096))
		e.Want(largest.Size == 4096, "a pool of 4096 has %d slots", largest.Size)
	}
}

// heldWith returns the state of a key while p holds it with an option.
func (p *process) heldWith(name string, opt lock.Option) (s lock.State) {
	key := p.e.key(name)
	p.e.Must(p.With(p.e.Ctx, key, func(ctx context.Context) (err error) {
		s, err = p.Inspect(ctx, key)
		return err
	}, opt), "with the %s", name)
	return s
}

func oddKeys(e *env) {
	a, b := e.process(), e.process()
	var keys []string
	for _, odd := range []string{
		":", "::", "{}", "}", "{", "}x", "x}", "a}{b", "a{b}", "{a}b", "{a}", "a", "a:", ":a", "%", "%7B", "%7b", "%257B", "%%", "*", "?", "[a]", "a*", "\\", `"`, "'",
		"ключ", "鍵", "🔑", "e\u0301", "é", "A", "mega:a", "mega:{a}", "../a", "-", "--", "0", "{{a}}", "a:fence", "a:queue", "a:q", "a:f",
	} {
		keys = append(keys, odd+e.prefix, e.prefix+odd)
	}
	long := e.prefix + strings.Repeat("k", 511-len(e.prefix))
	keys = append(keys, long+"1", long+"2")
	leases := make(map[string]*lock.Lease)
	for _, key := range keys {
		lease, err := a.try(key)
		e.Must(err, "take %q while %d others are held", key, len(leases))
		e.Want(lease.Key() == key, "the key %q became %q", key, lease.Key())
		leases[key] = lease
	}
	for _, key := range keys {
		b.busy(key)
		s, err := b.Inspect(e.Ctx, key)
		e.Must(err, "inspect")
		e.Want(s.Key == key && len(s.Holders) == 1 && s.Holders[0].Fence == leases[key].Fence(), "%q is held by %+v, want fence %d", key, s.Holders, leases[key].Fence())
	}
	e.listed(b, e.prefix, keys)
	e.listed(b, e.prefix+"*", keys)
	e.listed(b, e.prefix+"[a", keys)
	for key, lease := range leases {
		e.releases(lease)
		b.free(key)
	}
}

// listed fails the case unless List returns exactly the keys that begin with
// prefix.
func (e *env) listed(p *process, prefix string, keys []string) {
	states, err := p.List(e.Ctx, prefix)
	e.Must(err, "list %q", prefix)
	want := make(map[string]bool)
	for _, key := range keys {
		if strings.HasPrefix(key, prefix) {
			want[key] = true
		}
	}
	last := ""
	for _, s := range states {
		e.Want(want[s.Key], "list %q has %q", prefix, s.Key)
		e.Want(s.Key > last, "list %q is not in order: %q after %q", prefix, s.Key, last)
		last = s.Key
	}
	e.Want(len(states) == len(want), "list %q has %d keys, want %d", prefix, len(states), len(want))
}

func (e *env) hasCode(err error, code string) {
	var coded interface{ Code() string }
	e.Want(errors.As(err, &coded) && coded.Code() == code, "%v: want the code %s", err, code)
}

func errorCodes(e *env) {
	a, b := e.process(), e.process()
	lease := a.acquire(e.key("k"))
	_, err := b.try(e.key("k"))
	e.hasCode(err, "lock.not_acquired")
	_, err = a.Acquire(lease.Context(), e.key("k"))
	e.hasCode(err, "lock.deadlock")
	_, err = b.ForceRelease(e.Ctx, e.key("k"), "test")
	e.Must(err, "force")
	e.ended(lease, e.Patience())
	e.hasCode(lease.Release(), "lock.lost")
	b.plan.Add(Step{Op: Acquire, Err: errUnreachable, Times: 1})
	_, err = b.Acquire(e.Ctx, e.key("k"))
	e.hasCode(err, "lock.unavailable")
	e.Must(b.Close(e.Ctx), "close")
	_, err = b.Acquire(e.Ctx, e.key("k"))
	e.hasCode(err, "lock.closed")
	for _, s := range []string{"acquire", fmt.Sprintf("%q", e.key("k"))} {
		e.Want(strings.Contains(err.Error(), s), "the text %q lacks %s", err, s)
	}
}

func corruptKey(e *env) {
	p := e.process()
	e.Must(e.h.Faults.Corrupt(e.key("k")), "corrupt")
	before := time.Now()
	for call, err := range p.calls(e.key("k"), lock.Wait(0)) {
		if call == "try" {
			continue // the call refuses the option
		}
		e.Want(isUnavailable(err), "%s: got %v, want ErrUnavailable", call, err)
	}
	_, err := p.try(e.key("k"))
	e.Want(isUnavailable(err), "try: got %v, want ErrUnavailable", err)
	e.Want(time.Since(before) < e.Patience(), "it took %v", time.Since(before))
	p.free(e.key("other"))
}
