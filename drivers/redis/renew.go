package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/megaframework/mega/lock/driver"
)

// renew renews plain grants by key, many in one call. Then it renews, lock by
// lock, the grants of pools, because their size must be kept too (L15), and the
// grants that were not found.
func (e *engine) renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	var plain, rest []int
	for i, g := range grants {
		if g.Slot == 0 && !e.claims.pooled(g.Token) {
			plain = append(plain, i)
		} else {
			rest = append(rest, i)
		}
	}
	var mu sync.Mutex // guards rest
	keyOf := func(part []int) string { return e.layout.holder(grants[part[0]].Key) }
	each(ctx, e.backend, slices.Collect(slices.Chunk(plain, e.backend.together())), keyOf, func(bundle []int) {
		gone := e.renewPlain(ctx, grants, bundle, out)
		mu.Lock()
		defer mu.Unlock()
		rest = append(rest, gone...)
	})
	each(ctx, e.backend, byKey(grants, rest), keyOf, func(same []int) { e.renewLock(ctx, grants, same, out) })
	for i, r := range out {
		if r.Err == nil {
			e.claims.renewed(grants[i].Token, r.Deadline)
		}
	}
	return out
}

func byKey(grants []driver.Grant, indices []int) [][]int {
	var out [][]int
	at := map[string]int{}
	for _, i := range indices {
		n, ok := at[grants[i].Key]
		if !ok || len(out[n]) == maxKeys {
			n = len(out)
			at[grants[i].Key] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}

// renewPlain renews the grants with these indices, and returns the indices of
// those that it did not find.
func (e *engine) renewPlain(ctx context.Context, grants []driver.Grant, indices []int, out []driver.Renewal) (gone []int) {
	keys := make([]string, len(indices))
	argv := make([]string, 0, 3*len(indices))
	for n, i := range indices {
		keys[n] = e.layout.holder(grants[i].Key)
		argv = append(argv, grants[i].Token, extension(grants[i]), digits(grants[i].Rev))
	}
	o, err := e.run(ctx, e.scripts.renew.over(keys, argv...))
	if err == nil {
		_, err = check(o.reply, len(indices))
	}
	for n, i := range indices {
		switch {
		case err != nil:
			out[i].Err = err
		case answer(o.reply.([]any)).num(n) == 1: //nolint:forcetypeassert // checked
			out[i].Deadline = extended(grants[i], o)
		default:
			gone = append(gone, i)
		}
	}
	return gone
}

// renewLock renews the grants with these indices, all of one lock, in any slot.
func (e *engine) renewLock(ctx context.Context, grants []driver.Grant, indices []int, out []driver.Renewal) {
	argv := make([]string, 0, 4*len(indices))
	for _, i := range indices {
		argv = append(argv, grants[i].Token, extension(grants[i]), digits(grants[i].Rev), no)
	}
	o, err := e.run(ctx, e.scripts.confirm.on(e.layout.holder(grants[indices[0]].Key), argv...))
	var a answer
	if err == nil {
		a, err = check(o.reply, len(indices))
	}
	for n, i := range indices {
		switch {
		case err != nil:
			out[i].Err = err
		case a.sub(n).num(0) == 1:
			out[i].Deadline = confirmed(grants[i], a.sub(n), o)
		default:
			out[i].Err = lostBy(grants[i].Key, a.sub(n).text(1))
			e.claims.remove(grants[i].Token)
		}
	}
}

// confirmed returns until when a grant that confirm has found is surely live.
func confirmed(g driver.Grant, found answer, o outcome) time.Time {
	if len(found) > 3 { // not where the value has lost its fence
		if left, late := found[3].(int64); late { // L12: a later call has set another TTL
			return driver.Deadline(o.sent, time.Duration(left)*time.Millisecond)
		}
	}
	return extended(g, o)
}

// extension returns the TTL to renew to, or 0 to check only.
func extension(g driver.Grant) string {
	if g.NoRenew {
		return "0"
	}
	return digits(millis(g.TTL))
}

// extended returns until when a found grant is surely live.
func extended(g driver.Grant, o outcome) time.Time {
	if g.NoRenew {
		return g.Deadline
	}
	return driver.Deadline(o.sent, g.TTL)
}
