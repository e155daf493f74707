package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
)

// RedisContended has 4 processes of 8 goroutines each acquire and release one
// key as fast as they get it; the contestants take turns.
func RedisContended(_ context.Context, l *lab.Lab) ([]measure.Claim, error) {
	c := contest{processes: 4, goroutines: 8, reps: l.Reps(5), slice: l.Slice(2 * time.Second)}
	found, err := c.run(l, peers.RedisLock, peers.RueidisLock, measure.Mega, peers.MegaFIFO)
	if err != nil {
		return nil, err
	}
	rates, fairness, worst := found.rates, found.fairness, found.worst
	strict := func(s measure.Samples) measure.Samples {
		return measure.Samples{measure.Mega: s[peers.MegaFIFO], peers.RedisLock: s[peers.RedisLock], peers.RueidisLock: s[peers.RueidisLock]}
	}
	return []measure.Claim{
		rates.Ratio("cycles/s", "/s", peers.RedisLock, peers.RedisLock, peers.RueidisLock).AtLeast(8),
		fairness.Absolute("Jain's index of 32 goroutines", "", peers.RedisLock, peers.RueidisLock).AtLeast(0.99),
		worst.Ratio("worst wait", "ms", peers.RedisLock, peers.RedisLock, peers.RueidisLock).AtMost(0.1).Noisy(1), // of extremes
		strict(rates).Ratio("FIFO: cycles/s", "/s", peers.RedisLock, peers.RedisLock, peers.RueidisLock).AtLeast(1.3),
		strict(fairness).Absolute("FIFO: Jain's index", "", peers.RedisLock, peers.RueidisLock).AtLeast(0.999),
		strict(worst).Ratio("FIFO: worst wait", "ms", peers.RedisLock, peers.RedisLock, peers.RueidisLock).Noisy(1),
	}, nil
}

// RedisProcesses is RedisContended with 2, 8 and 32 processes of 1 and of 4
// goroutines. With one goroutine in each every cycle is a hand-over to another
// process.
func RedisProcesses(_ context.Context, l *lab.Lab) ([]measure.Claim, error) {
	var claims []measure.Claim
	for _, c := range []struct {
		contest
		least float64 // of redislock's cycles
	}{
		{contest{processes: 2, goroutines: 1}, 0.7}, {contest{processes: 8, goroutines: 1}, 1}, {contest{processes: 32, goroutines: 1}, 1.5},
		{contest{processes: 2, goroutines: 4}, 5}, {contest{processes: 8, goroutines: 4}, 8}, {contest{processes: 32, goroutines: 4}, 20},
	} {
		c.reps, c.slice = l.Reps(5), l.Slice(400*time.Millisecond)
		found, err := c.run(l, peers.RedisLock, measure.Mega)
		if err != nil {
			return nil, err
		}
		who := fmt.Sprintf("%d × %d: ", c.processes, c.goroutines)
		claims = append(claims, found.rates.Ratio(who+"cycles/s", "/s", peers.RedisLock, peers.RedisLock).AtLeast(c.least))
		if c.goroutines == 1 {
			claims = append(claims, found.fairness.Absolute(who+"Jain's index", "", peers.RedisLock).AtLeast(0.99))
		}
	}
	return claims, nil
}

// contest is a number of goroutines in several processes that want one key.
type contest struct {
	processes, goroutines int
	reps                  int
	slice                 time.Duration // how long each contestant runs at a time
}

// contested are the results of a contest.
type contested struct{ rates, fairness, worst measure.Samples }

// run has the contestants take turns.
func (c contest) run(l *lab.Lab, names ...string) (contested, error) {
	found := contested{measure.Samples{}, measure.Samples{}, measure.Samples{}}
	server, err := l.Redis()
	if err != nil {
		return found, err
	}
	staff, err := l.Staff(c.processes)
	if err != nil {
		return found, err
	}
	for rep := range c.reps + 1 {
		for _, i := range measure.Turn(len(names), rep) {
			t, err := together(staff, lab.Order{
				Do: lab.DoContend, Contestant: names[i], Addr: server.Addr(), Key: lab.Key("contended", c.processes, c.goroutines, rep),
				Goroutines: c.goroutines, Start: time.Now().Add(50 * time.Millisecond), For: c.slice,
			})
			if err != nil {
				return found, fmt.Errorf("%s: %w", names[i], err)
			}
			if rep == 0 {
				continue // connections and scripts are new
			}
			var cycles float64
			for _, n := range t.Cycles {
				cycles += n
			}
			found.rates.Add(names[i], cycles/c.slice.Seconds())
			found.fairness.Add(names[i], measure.Jain(t.Cycles))
			found.worst.Add(names[i], measure.Micros(t.Worst)/1000)
		}
	}
	return found, nil
}

// together gives all workers the same order and adds up their answers.
func together(staff []*lab.Worker, o lab.Order) (sum lab.Tally, err error) {
	for _, w := range staff {
		if err := w.Send(o); err != nil {
			return sum, err
		}
	}
	for _, w := range staff {
		a, e := w.Receive()
		if e != nil {
			err = e
		}
		sum.Cycles = append(sum.Cycles, a.Tally.Cycles...)
		sum.Worst = max(sum.Worst, a.Tally.Worst)
	}
	return sum, err
}
