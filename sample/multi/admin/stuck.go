package admin

import (
	"time"

	"github.com/megaframework/mega"
	"github.com/megaframework/mega/lock"
)

const (
	productLocks = "product:"       // the prefix of the locks of products
	stuckLook    = time.Second      // between two looks
	tolerated    = 10 * time.Second // for which a holder may keep others waiting
)

// watchStuck logs each holder of a product that keeps others waiting for too long. No
// event announces that. It runs in one process, because one look shows the locks of
// all, and it remembers the holders between two looks. Its successor begins anew.
func watchStuck(ctx *mega.Ctx) error {
	tick := time.NewTicker(stuckLook)
	defer tick.Stop()
	var seen map[who]hold
	for {
		states, err := ctx.Lock.List(productLocks)
		if err != nil {
			return err // logged; Lead calls watchStuck again after a pause
		}
		seen = reportStuck(ctx, states, seen)
		select {
		case <-tick.C:
		case <-ctx.Done(): // the program ends, or the lock of the leader is lost
			return nil
		}
	}
}

// A hold is the leader's record of a holder.
type hold struct {
	since    time.Time // of the first look that showed it
	reported bool
}

// reportStuck logs each holder that keeps others waiting for too long, once, and
// returns the holders of this look. before has the holders of the last look.
func reportStuck(ctx *mega.Ctx, states []lock.State, before map[who]hold) map[who]hold {
	seen := map[who]hold{}
	for _, s := range states {
		for _, h := range s.Holders {
			w := who{key: s.Key, fence: h.Fence}
			known, ok := before[w]
			if !ok {
				known.since = time.Now()
			}
			held := time.Since(known.since)
			if held > tolerated && len(s.Waiters) > 0 && !known.reported {
				ctx.Log.Warn("product locked for long", "key", s.Key, "holder", h.String(), "request", h.Request, "for", held, "waiters", len(s.Waiters))
				known.reported = true
			}
			seen[w] = known
		}
	}
	return seen
}
