//go:build linux || darwin

package guide_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/megaframework/mega/drivers/cluster"
	"github.com/megaframework/mega/internal/testkit/shortdir"
	"github.com/megaframework/mega/lock"
)

// together is how unrelated processes of one machine share locks.
func together(ctx context.Context, path string, use func(*lock.Locker) error) error {
	node, err := cluster.Dial(ctx, cluster.Config{Socket: path}) // the first to come is the hub
	if err != nil {
		return err
	}
	defer node.Close(ctx)
	locks, err := lock.New(node.Lock(), lock.Config{})
	if err != nil {
		return err
	}
	defer locks.Close(ctx)
	return use(locks)
}

func TestThoseAtOneSocketExcludeEachOther(t *testing.T) {
	path := filepath.Join(shortdir.New(t), "s")
	err := together(t.Context(), path, func(first *lock.Locker) error {
		return first.With(t.Context(), "nightly-report", func(ctx context.Context) error {
			return together(ctx, path, func(second *lock.Locker) error {
				_, err := second.TryAcquire(ctx, "nightly-report")
				return err
			})
		})
	})
	if !errors.Is(err, lock.ErrNotAcquired) {
		t.Errorf("a second process was told %v, want that the lock is not free", err)
	}
}
