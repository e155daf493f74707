package limittest_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/megaframework/mega/internal/suite"
	"github.com/megaframework/mega/limit"
	"github.com/megaframework/mega/limit/limittest"
)

// Many grants, to processes that wait, give back and give up: no interval holds
// more than a rate allows, and nearly all of it is used.
func TestManyGrantsKeepTheRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fleet)
		if err := f.begin(); err != nil {
			t.Fatal(err)
		}
		rates := []limit.Rate{{N: 100, Per: 50 * time.Millisecond}, {N: 900, Per: 500 * time.Millisecond}}
		var mu sync.Mutex
		var grants []limittest.Grant
		shares, sum := make([]int, 4), 0
		start, want := time.Now(), max(suite.Scaled(50_000), 5_000)
		var all sync.WaitGroup
		for process := range shares {
			d, err := f.open()
			if err != nil {
				t.Fatal(err)
			}
			l, err := limit.New(d, limit.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close(context.Background()) }()
			for caller := range 4 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(uint64(process), uint64(caller)))
					for {
						cost := 1 + random.IntN(5)
						p, err := l.Wait(t.Context(), "k", limit.Limit{Rates: rates}, limit.Cost(cost), limit.MaxWait(time.Duration(1+random.IntN(400))*time.Millisecond))
						if err != nil {
							time.Sleep(time.Millisecond)
							continue
						}
						if random.IntN(3) == 0 {
							cost = random.IntN(cost + 1)
							if err := p.Settle(t.Context(), cost); err != nil {
								t.Error(err)
							}
						}
						mu.Lock()
						grants = append(grants, limittest.Grant{From: p.At(), To: p.At(), Units: cost})
						shares[process] += cost
						sum += cost
						done := sum >= want
						mu.Unlock()
						if done {
							return
						}
					}
				})
			}
		}
		all.Wait()
		for _, r := range rates {
			if worst, at := limittest.Worst(grants, r.Per); worst > r.N {
				t.Errorf("%d units within %v from %v, want at most %d", worst, r.Per, at, r.N)
			}
		}
		possible := 900 * float64(time.Since(start)) / float64(500*time.Millisecond)
		if use := float64(sum) / possible; use < 0.95 {
			t.Errorf("%.3f of the rate was used", use)
		}
		if fair := suite.Jain(shares); fair < 0.99 {
			t.Errorf("the processes had %v, Jain's index is %.4f", shares, fair)
		}
		t.Logf("%d grants of %d units, shares %v", len(grants), sum, shares)
	})
}
