package cli

import (
	"context"
	"errors"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/failure"
	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// socketService is the locks of the hub at a socket, which scripts and
// programs share. Each call opens a connection.
type socketService struct {
	process shell.Process
	backend shell.Backend
}

// openSocket returns the source for the locks at a socket.
func (l *locks) openSocket() (_ []source, err error) {
	if l.worker != 0 {
		return nil, wrongSocket("--worker")
	}
	b := shell.Backend{Socket: l.socket}
	if l.atSocket != nil {
		if b.Namespace, err = l.atSocket(); err != nil {
			return nil, err
		}
	}
	if err := b.Resolve(l.environ); err != nil {
		return nil, failureOf(err)
	}
	s := socketService{shell.Process{Name: l.shell.Name, Environ: l.environ}, b}
	return []source{{locks: s, about: about{Driver: "cluster", Scope: driver.Node.String(), Socket: b.Socket}}}, nil
}

// wrongSocket returns the failure for a flag that --socket would ignore.
func wrongSocket(flag string) error {
	return &failure.Failure{Code: "cli.wrong_flag", Exit: failure.ExitUsage, Text: "--socket and " + flag + " exclude each other."}
}

func (s socketService) use(ctx context.Context, do func(lockerService) error) error {
	b := s.backend
	return b.Look(ctx, s.process, func(l *lock.Locker) error { return do(lockerService{l}) })
}

func (s socketService) Locks(ctx context.Context, prefix string, limit int) (listing admin.Listing, err error) {
	err = s.use(ctx, func(l lockerService) (err error) {
		listing, err = l.Locks(ctx, prefix, limit)
		return err
	})
	if errors.Is(err, shell.ErrNoHub) {
		return listing, nil
	}
	return listing, err
}

func (s socketService) Lock(ctx context.Context, key string) (e admin.Entry, err error) {
	err = s.use(ctx, func(l lockerService) (err error) {
		e, err = l.Lock(ctx, key)
		return err
	})
	if errors.Is(err, shell.ErrNoHub) {
		return admin.NewEntry(lock.State{Key: key}, 0), nil
	}
	return e, err
}

func (s socketService) Release(ctx context.Context, key, reason string, only admin.Only) (n int, err error) {
	err = s.use(ctx, func(l lockerService) (err error) {
		n, err = l.Release(ctx, key, reason, only)
		return err
	})
	if errors.Is(err, shell.ErrNoHub) {
		return 0, nil
	}
	return n, err
}

func (s socketService) Heal(ctx context.Context, key string, slot int, reason string) error {
	return s.use(ctx, func(l lockerService) error { return l.Heal(ctx, key, slot, reason) })
}
