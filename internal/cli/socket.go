package cli

import (
	"context"
	"errors"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// socketKeeper answers with the locks of the processes that share a socket,
// scripts and their keeper among them. Each question connects anew.
type socketKeeper struct {
	process shell.Process
	socket  string
}

// openSocket returns the source for the locks at a socket.
func (l *locks) openSocket() []source {
	k := socketKeeper{shell.Process{Name: l.shell.Name, Environ: l.environ}, l.socket}
	b := shell.Backend{Socket: l.socket}
	_ = b.Resolve(l.environ) // the first question reports the error
	return []source{{keeper: k, about: about{Socket: b.Socket}}}
}

func (k socketKeeper) use(ctx context.Context, do func(lockerKeeper) error) error {
	b := shell.Backend{Socket: k.socket}
	return b.Look(ctx, k.process, func(l *lock.Locker) error { return do(lockerKeeper{l}) })
}

func (k socketKeeper) Locks(ctx context.Context, prefix string, limit int) (listing admin.Listing, err error) {
	err = k.use(ctx, func(l lockerKeeper) (err error) {
		listing, err = l.Locks(ctx, prefix, limit)
		return err
	})
	if errors.Is(err, shell.ErrNoHub) {
		return listing, nil
	}
	return listing, err
}

func (k socketKeeper) Lock(ctx context.Context, key string) (e admin.Entry, err error) {
	err = k.use(ctx, func(l lockerKeeper) (err error) {
		e, err = l.Lock(ctx, key)
		return err
	})
	if errors.Is(err, shell.ErrNoHub) {
		return admin.NewEntry(lock.State{Key: key}, 0), nil
	}
	return e, err
}

func (k socketKeeper) Release(ctx context.Context, key, reason string, only admin.Only) (n int, err error) {
	err = k.use(ctx, func(l lockerKeeper) (err error) {
		n, err = l.Release(ctx, key, reason, only)
		return err
	})
	return n, err
}

func (k socketKeeper) Heal(ctx context.Context, key string, slot int, reason string) error {
	return k.use(ctx, func(l lockerKeeper) error { return l.Heal(ctx, key, slot, reason) })
}
