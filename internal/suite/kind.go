package suite

import (
	"context"
	"testing"
)

// Kind is a kind of driver with its contract: H is its harness, I the info that
// a driver gives about itself. All fields are required.
type Kind[H, I any] struct {
	Defaults func(H) (H, error)
	FakeTime func(H) bool
	Info     func(H) (I, error)
	Suite    func(H, I) Suite
}

// Run is [Suite.Run] of the suite over h.
func (k Kind[H, I]) Run(t *testing.T, h H) {
	t.Helper()
	h, info := k.Prepare(t, h)
	k.Suite(h, info).Run(t)
}

// RunParallel is [Suite.RunParallel]. Each case runs over a harness of its own,
// which start returns.
func (k Kind[H, I]) RunParallel(t *testing.T, start func(t *testing.T) H) {
	t.Helper()
	first, info := k.Prepare(t, start(t))
	k.Suite(first, info).RunParallel(t, func(t *testing.T) Suite {
		h, err := k.Defaults(start(t))
		if err != nil {
			t.Fatal(err)
		}
		return k.Suite(h, info)
	})
}

// Check is [Suite.Check] of the suite over h. Under fake time the caller provides
// the bubble.
func (k Kind[H, I]) Check(ctx context.Context, h H, names ...string) error {
	h, err := k.Defaults(h)
	if err != nil {
		return err
	}
	info, err := k.Info(h)
	if err != nil {
		return err
	}
	return k.Suite(h, info).Check(ctx, names...)
}

// Prepare returns h with its defaults, and the info of its driver.
func (k Kind[H, I]) Prepare(t *testing.T, h H) (H, I) {
	t.Helper()
	h, err := k.Defaults(h)
	if err != nil {
		t.Fatal(err)
	}
	var info I
	InTime(t, k.FakeTime(h), func(*testing.T) { info, err = k.Info(h) })
	if err != nil {
		t.Fatal(err)
	}
	return h, info
}
