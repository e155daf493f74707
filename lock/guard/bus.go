package guard

import (
	"context"

	"github.com/megaframework/mega/bus"
)

// Fenced adds the fences of the leases on ctx to a message, in the header
// [Header]. Without a lease the message is not sent: the call returns
// lock.ErrNoLease, or lock.ErrLost if a lease has ended. It returns lock.ErrInvalid
// for more than 64 leases, and bus.ErrBadHeader if their keys are longer together than
// the headers of a message may be.
func Fenced(ctx context.Context) bus.PubOption {
	fences, err := header(ctx)
	if err != nil {
		return bus.Fail(err)
	}
	return bus.Header(Header, fences)
}

// Middleware passes messages with current fences to the handler. For others the
// handler's result is lock.ErrStale, lock.ErrNoLease for a message without a
// fence, lock.ErrInvalid for a header that cannot be decoded, or the error of
// s; the requester of a request receives its code. The check is on arrival
// only: the write in the handler still needs [Tx].
func Middleware(s Store) bus.Middleware {
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Msg) error {
			all, err := parse(m.Header[Header])
			if err != nil {
				return err
			}
			if err := admit(ctx, s, all); err != nil {
				return err
			}
			return next(ctx, m)
		}
	}
}
