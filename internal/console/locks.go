package console

import (
	"cmp"
	"context"
	"crypto/hmac"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/megaframework/mega/internal/admin"
	"github.com/megaframework/mega/internal/plan"
	"github.com/megaframework/mega/lock"
)

// locksPage is the content of the list of locks.
type locksPage struct {
	Prefix     string
	Driver     string
	Scope      string
	Tables     []locksOf
	Plots      []plot
	Wait       bars
	Hold       bars
	Counters   lock.Stats // of all processes
	Unanswered []answer[lock.Stats]
}

// locksOf is the locks that one process listed: of the program, or, if locks end
// at the process, of one worker.
type locksOf struct {
	source
	Err       string
	Locks     []lockRow
	Total     int
	Truncated bool
}

// lockRow is one lock.
type lockRow struct {
	Key     string
	Href    string // of the page of the lock
	Size    int
	Free    int
	Holders []holderRow
	Waiters []waiterRow
	Waiting int
	Slots   []slotRow
	More    struct{ Holders, Slots int } // how many are not shown
	Skipped string
	LastRun *lock.Run
}

type holderRow struct {
	lock.Holding
	Full float64 // the part of the TTL that is left, 0 to 100
}

type waiterRow struct {
	lock.Holder
	Place int
}

// slotRow is one slot of a pool.
type slotRow struct {
	Number int
	State  string
	Title  string
}

// The bounds of the lists of locks and limits.
const (
	shownKeys    = "100"
	shownHolders = 20  // of a pool; the page of a lock has all of them
	shownSlots   = 256 // of a pool
)

func loadLocks(c *Console, ctx context.Context, query url.Values) any {
	l := locksPage{Prefix: query.Get("prefix")}
	var info admin.Info
	if err := c.get(ctx, "/ops/process", nil, &info); err != nil {
		l.Tables = []locksOf{{Err: err.Error()}}
		return l
	}
	l.Driver, l.Scope = info.Driver, info.Scope
	ttl := c.ttl(ctx)
	all, err := c.ready(ctx)
	if err != nil {
		l.Tables = []locksOf{{Err: err.Error()}}
		return l
	}
	for _, p := range callAll[admin.Listing](ctx, c, listers(all, l.Scope), "/ops/locks", url.Values{"prefix": {l.Prefix}, "limit": {shownKeys}}) {
		of := locksOf{source: p.source, Err: p.Err, Total: p.Value.Total, Truncated: p.Value.Truncated}
		for _, e := range p.Value.Locks {
			row := newLockRow(e, p.Worker, ttl)
			row.More.Holders = max(len(row.Holders)-shownHolders, 0)
			row.Holders = row.Holders[:len(row.Holders)-row.More.Holders]
			of.Locks = append(of.Locks, row)
		}
		l.Tables = append(l.Tables, of)
	}
	l.Counters, l.Unanswered = total(callAll[lock.Stats](ctx, c, all, "/ops/stats", nil))
	l.Wait, l.Hold = barsOf("Waits of granted calls", l.Counters.Wait), barsOf("Hold times", l.Counters.Hold)
	l.Plots = c.history.lockPlots()
	return l
}

// ttl returns lock.ttl, by which the bars of leases are scaled.
func (c *Console) ttl(ctx context.Context) time.Duration {
	var settings []plan.Setting
	if c.get(ctx, "/ops/config", nil, &settings) == nil {
		for _, s := range settings {
			if s.Key == "lock.ttl" {
				d, _ := time.ParseDuration(s.Value) // 0 leaves the bars full
				return d
			}
		}
	}
	return 0
}

func newLockRow(e admin.Entry, worker int, ttl time.Duration) lockRow {
	q := url.Values{"key": {e.Key}}
	if worker != 0 {
		q.Set("worker", strconv.Itoa(worker))
	}
	r := lockRow{
		Key: e.Key, Href: Root + "/lock?" + q.Encode(), Size: e.Size, Free: e.Free(), Waiting: e.Waiting, Skipped: e.Skipped, LastRun: e.LastRun,
		Slots: slotRows(e.State),
	}
	r.Slots, r.More.Slots = shownSlotRows(r.Slots)
	for _, h := range e.Holders {
		r.Holders = append(r.Holders, holderRow{h, 100 * float64(h.Left) / float64(max(ttl, h.Left, 1))})
	}
	for i, w := range e.Waiters {
		r.Waiters = append(r.Waiters, waiterRow{w, i + 1})
	}
	return r
}

// slotRows returns the slots of a pool, held or not. A lock has none.
func slotRows(s lock.State) (all []slotRow) {
	if s.Size <= 1 && s.Slots == nil {
		return nil
	}
	for _, slot := range s.Slots {
		all = append(all, slotRow{slot.Number, string(slot.Status), slotTitle(slot)})
	}
	if s.Slots != nil {
		return all
	}
	held := map[int]lock.Holding{}
	for _, h := range s.Holders {
		held[h.Slot] = h
	}
	for n := range s.Size {
		row := slotRow{Number: n, State: string(lock.SlotFree)}
		if h, ok := held[n]; ok {
			row.State, row.Title = string(lock.SlotHeld), h.String()
		}
		all = append(all, row)
	}
	return all
}

// shownSlotRows returns at most shownSlots rows, ordered by number, and the number
// of the others. It leaves out free slots first and then held ones: slots in other
// states need an operator.
func shownSlotRows(all []slotRow) (shown []slotRow, more int) {
	if len(all) <= shownSlots {
		return all, 0
	}
	rank := map[string]int{string(lock.SlotHeld): 1, string(lock.SlotFree): 2}
	slices.SortStableFunc(all, func(a, b slotRow) int { return cmp.Compare(rank[a.State], rank[b.State]) })
	shown = all[:shownSlots]
	slices.SortFunc(shown, func(a, b slotRow) int { return cmp.Compare(a.Number, b.Number) })
	return shown, len(all) - shownSlots
}

func slotTitle(s lock.SlotState) string {
	if s.Reason != "" {
		return s.Reason
	}
	if s.LastHolder != (lock.Holder{}) {
		return s.LastHolder.String()
	}
	return ""
}

// lockPage is the content of the page of one lock.
type lockPage struct {
	Key    string
	Worker string
	Err    string
	Lock   lockRow
	// Released is the number of leases that the preceding release has ended, or
	// empty without a release.
	Released string
}

func loadLock(c *Console, ctx context.Context, query url.Values) any {
	l := lockPage{Key: query.Get("key"), Worker: query.Get("worker")}
	q := url.Values{"key": {l.Key}}
	if l.Worker != "" {
		q.Set("worker", l.Worker)
	}
	done := maps.Clone(q)
	done.Set("released", query.Get("released"))
	if hmac.Equal([]byte(query.Get("proof")), []byte(c.proof(done))) {
		l.Released = query.Get("released")
	}
	var e admin.Entry
	if err := c.get(ctx, "/ops/lock", q, &e); err != nil {
		l.Err = err.Error()
		return l
	}
	worker, _ := strconv.Atoi(l.Worker) // the page has accepted it
	l.Lock = newLockRow(e, worker, c.ttl(ctx))
	return l
}
