package guard

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/megaframework/mega/lock"
	"github.com/megaframework/mega/lock/driver"
)

// plain is the slot of a lease that is not of a pool.
const plain = -1 // G6

// claim is a right to write that a store can check: the fence of a lease.
type claim struct {
	key   string
	slot  int // plain, or the number of a pool's slot
	fence uint64
	lease *lock.Lease // nil if the claim came with a request or a message
}

// Leases returns the leases on ctx in the order in which a store checks them:
// in byte order of their keys, then by slot, then by fence. It does no I/O. It
// returns lock.ErrNoLease without a lease, and lock.ErrLost if one of them has
// ended. It is for guards of further stores.
func Leases(ctx context.Context) ([]*lock.Lease, error) {
	all := lock.LeasesFrom(ctx)
	if len(all) == 0 { // G3
		return nil, fmt.Errorf("guard: %w", lock.ErrNoLease)
	}
	for _, l := range all {
		if err := l.Err(); err != nil {
			return nil, fmt.Errorf("guard %q: %w", l.Key(), err)
		}
	}
	// One order for all writers, so that two transactions with common keys do
	// not wait for each other in a circle. With fences ascending, a key that is
	// there twice passes.
	slices.SortFunc(all, func(a, b *lock.Lease) int {
		return cmp.Or(strings.Compare(a.Key(), b.Key()), cmp.Compare(a.Slot(), b.Slot()), cmp.Compare(a.Fence(), b.Fence()))
	})
	return all, nil
}

// ID returns the name under which a [Store] keeps the fences of the lease.
func ID(l *lock.Lease) string { return claimOf(l).id() }

// claims returns the claims of all leases on ctx, in their order.
func claims(ctx context.Context) ([]claim, error) {
	leases, err := Leases(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]claim, len(leases))
	for i, l := range leases {
		all[i] = claimOf(l)
	}
	return all, nil
}

func claimOf(l *lock.Lease) claim {
	c := claim{key: l.Key(), slot: plain, fence: l.Fence(), lease: l}
	if l.IsSlot() { // G6
		c.slot = l.Slot()
	}
	return c
}

// stale returns the error of a refused claim. It counts the refusal at the
// lease's Locker.
func (c claim) stale() error {
	if c.lease != nil {
		return c.lease.Stale()
	}
	return &lock.StaleError{Key: c.key, Fence: c.fence, Slot: c.slot}
}

// id returns what identifies the protected key: the percent-encoded key, for a
// slot of a pool followed by a slash and its number. A slash in a key is
// encoded, so no two claims share an id by accident.
func (c claim) id() string {
	if c.slot == plain {
		return url.PathEscape(c.key)
	}
	return url.PathEscape(c.key) + "/" + strconv.Itoa(c.slot)
}

// parseID returns the key and the slot of an id.
func parseID(id string) (key string, slot int, err error) {
	encoded, number, ofPool := strings.Cut(id, "/")
	slot = plain
	if ofPool {
		if slot, err = strconv.Atoi(number); err != nil || slot < 0 || slot >= lock.MaxSlots {
			return "", 0, fmt.Errorf("guard: %.80q is not the number of a slot: %w", number, lock.ErrInvalid)
		}
	}
	// A database may refuse a key that no lease can have (L14), which would make a
	// malformed header look like a failed database.
	key, err = url.PathUnescape(encoded)
	if err != nil || driver.KeyFault(key) != "" {
		return "", 0, fmt.Errorf("guard: %.80q is not a percent-encoded key: %w", encoded, lock.ErrInvalid)
	}
	return key, slot, nil
}

// Header is the name of the header that carries fences, in HTTP and in
// messages: <percent-encoded key>;<fence>, several of them separated by
// commas, at most 64. The key of a pool is followed by a slash and the number of
// the slot.
const Header = "Mega-Fence"

// maxClaims is the maximum number of claims in a header.
const maxClaims = 64

// header returns the header with the claims of all leases on ctx. It returns
// lock.ErrInvalid for more of them than a receiver accepts.
func header(ctx context.Context) (string, error) {
	all, err := claims(ctx)
	if err != nil {
		return "", err
	}
	if len(all) > maxClaims {
		return "", fmt.Errorf("guard: the context has %d leases, the header %s at most %d fences: %w", len(all), Header, maxClaims, lock.ErrInvalid)
	}
	return format(all), nil
}

// format returns the header that carries the claims.
func format(all []claim) string {
	var b strings.Builder
	for i, c := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.id())
		b.WriteByte(';')
		b.WriteString(strconv.FormatUint(c.fence, 10))
	}
	return b.String()
}

// parse returns the claims in the values of a header, and ErrNoLease if there
// are none.
func parse(values []string) (all []claim, err error) {
	for _, value := range values {
		for text := range strings.SplitSeq(value, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			c, err := parseClaim(text)
			if err != nil {
				return nil, err
			}
			if all = append(all, c); len(all) > maxClaims {
				return nil, fmt.Errorf("guard: the header %s has more than %d fences: %w", Header, maxClaims, lock.ErrInvalid)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("guard: the header %s is missing: %w", Header, lock.ErrNoLease)
	}
	return all, nil
}

func parseClaim(text string) (c claim, err error) {
	id, number, found := strings.Cut(text, ";")
	if !found {
		return c, fmt.Errorf("guard: %.80q in the header %s is not <key>;<fence>: %w", text, Header, lock.ErrInvalid)
	}
	if c.key, c.slot, err = parseID(id); err != nil {
		return c, fmt.Errorf("decode the header %s: %w", Header, err)
	}
	if c.fence, err = strconv.ParseUint(number, 10, 53); err != nil { // L2: below 2^53
		return c, fmt.Errorf("guard: %.80q in the header %s is not a fence: %w", number, Header, lock.ErrInvalid)
	}
	return c, nil
}
