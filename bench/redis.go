package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// redisAlone takes and releases one free key at a time; the contestants
// alternate operation by operation.
func redisAlone(ctx context.Context, l *lab) ([]claim, error) {
	names := []string{setNX, redisLock, rueidisLock, mega}
	lockers, err := l.lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	acquires, cycles := samples{}, samples{}
	for rep := range l.reps(7) {
		acquire, cycle := make([][]time.Duration, len(names)), make([][]time.Duration, len(names))
		for round := range l.scaled(1000) {
			for _, i := range turn(len(names), round) {
				a, c, err := timed(ctx, lockers[i], key("alone", rep))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				acquire[i], cycle[i] = append(acquire[i], a), append(cycle[i], c)
			}
		}
		for i, name := range names {
			acquires.add(name, micros(median(acquire[i])))
			cycles.add(name, micros(median(cycle[i])))
		}
	}
	return []claim{
		acquires.ratio("acquire, p50", "µs", redisLock, setNX, redisLock, rueidisLock).atMost(1.25),
		cycles.ratio("whole cycle, p50", "µs", redisLock, setNX, redisLock, rueidisLock).atMost(1.25),
	}, nil
}

// timed is one cycle: how long until the key was held, and until it was free.
func timed(ctx context.Context, l locker, key string) (acquire, cycle time.Duration, err error) {
	start := time.Now()
	release, err := l.acquire(ctx, key)
	if err != nil {
		return 0, 0, err
	}
	acquire = time.Since(start)
	err = release()
	return acquire, time.Since(start), err
}

// redisManyKeys runs 32 goroutines, each with its own free key; the contestants
// take turns.
func redisManyKeys(ctx context.Context, l *lab) ([]claim, error) {
	names := []string{redisLock, rueidisLock, mega}
	lockers, err := l.lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	rates := samples{}
	for rep := range l.reps(9) {
		for _, i := range turn(len(names), rep) {
			rate, err := manyKeys(ctx, lockers[i], rep, l.slice(400*time.Millisecond))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", names[i], err)
			}
			rates.add(names[i], rate)
		}
	}
	return []claim{
		rates.ratio("cycles/s", "/s", redisLock, redisLock).atLeast(1.2),
		rates.ratio("cycles/s, beside rueidislock", "/s", rueidisLock, rueidisLock).atLeast(1),
	}, nil
}

func manyKeys(ctx context.Context, l locker, rep int, d time.Duration) (rate float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards rate and err
		done = time.Now()
	)
	for g := range 32 {
		wg.Go(func() {
			n, _, e := cycle(ctx, l, key("many", rep, g))
			mu.Lock()
			defer mu.Unlock()
			rate += n
			if e != nil {
				err = e
			}
		})
	}
	wg.Wait()
	return rate / time.Since(done).Seconds(), err
}

// redisHandover holds a key here while another process waits for it, and
// measures from just before Release here to just after Acquire there. The
// contestants alternate operation by operation. The floor publishes a message
// instead, to which the other process has subscribed.
func redisHandover(ctx context.Context, l *lab) ([]claim, error) {
	names := []string{push, rueidisLock, mega}
	h, err := newHandover(ctx, l, names)
	if err != nil {
		return nil, err
	}
	times := samples{}
	for rep := range l.reps(7) {
		took := make([][]time.Duration, len(names))
		for round := range l.scaled(60) {
			for _, i := range turn(len(names), round) {
				d, err := h.once(ctx, names[i], key("handover", rep))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[i] = append(took[i], d)
			}
		}
		for i, name := range names {
			times.add(name, micros(median(took[i])))
		}
	}
	return []claim{
		times.ratio("Release to Acquire, p50", "µs", push, push, rueidisLock).atMost(1.25),
	}, nil
}

// atRest is how long a process must do nothing to be as cold as a waiter is.
const atRest = 20 * time.Millisecond

// handover is this process, which holds, and another one, which waits.
type handover struct {
	addr  string
	here  map[string]locker
	there *worker
}

func newHandover(ctx context.Context, l *lab, names []string) (*handover, error) {
	addr, err := l.addr()
	if err != nil {
		return nil, err
	}
	staff, err := l.staff(1)
	if err != nil {
		return nil, err
	}
	h := &handover{addr: addr, here: map[string]locker{}, there: staff[0]}
	for _, name := range names {
		if h.here[name], err = l.locker(ctx, name); err != nil {
			return nil, err
		}
		if err := h.there.ask(order{Do: doOpen, Contestant: name, Addr: h.addr}); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *handover) once(ctx context.Context, name, key string) (time.Duration, error) {
	release := func() error { return h.here[push].(*pushLock).publish(ctx) }
	if name != push {
		var err error
		if release, err = h.here[name].acquire(ctx, key); err != nil {
			return 0, err
		}
	}
	if err := h.there.send(order{Do: doTake, Contestant: name, Addr: h.addr, Key: key}); err != nil {
		return 0, err
	}
	time.Sleep(atRest) // the other is queued, and at rest as a waiter is
	start := time.Now()
	if err := release(); err != nil {
		return 0, err
	}
	a, err := h.there.receive()
	return a.At.Sub(start), err
}

// redisContended has 4 processes of 8 goroutines each acquire and release one
// key as fast as they get it; the contestants take turns.
func redisContended(_ context.Context, l *lab) ([]claim, error) {
	c := contest{processes: 4, goroutines: 8, reps: l.reps(5), slice: l.slice(2 * time.Second)}
	found, err := c.run(l, redisLock, rueidisLock, mega, megaFIFO)
	if err != nil {
		return nil, err
	}
	rates, fairness, worst := found.rates, found.fairness, found.worst
	strict := func(s samples) samples {
		return samples{mega: s[megaFIFO], redisLock: s[redisLock], rueidisLock: s[rueidisLock]}
	}
	return []claim{
		rates.ratio("cycles/s", "/s", redisLock, redisLock, rueidisLock).atLeast(8),
		fairness.absolute("Jain's index of 32 goroutines", "", redisLock, rueidisLock).atLeast(0.99),
		worst.ratio("worst wait", "ms", redisLock, redisLock, rueidisLock).atMost(0.1).noisy(1), // of extremes
		strict(rates).ratio("FIFO: cycles/s", "/s", redisLock, redisLock, rueidisLock).atLeast(1.3),
		strict(fairness).absolute("FIFO: Jain's index", "", redisLock, rueidisLock).atLeast(0.999),
		strict(worst).ratio("FIFO: worst wait", "ms", redisLock, redisLock, rueidisLock).noisy(1),
	}, nil
}

// redisProcesses is redisContended with 2, 8 and 32 processes of 1 and of 4
// goroutines. With one goroutine in each every cycle is a hand-over to another
// process.
func redisProcesses(_ context.Context, l *lab) ([]claim, error) {
	var claims []claim
	for _, c := range []struct {
		contest
		least float64 // of redislock's cycles
	}{
		{contest{processes: 2, goroutines: 1}, 0.7}, {contest{processes: 8, goroutines: 1}, 1}, {contest{processes: 32, goroutines: 1}, 1.5},
		{contest{processes: 2, goroutines: 4}, 5}, {contest{processes: 8, goroutines: 4}, 8}, {contest{processes: 32, goroutines: 4}, 20},
	} {
		c.reps, c.slice = l.reps(5), l.slice(400*time.Millisecond)
		found, err := c.run(l, redisLock, mega)
		if err != nil {
			return nil, err
		}
		who := fmt.Sprintf("%d × %d: ", c.processes, c.goroutines)
		claims = append(claims, found.rates.ratio(who+"cycles/s", "/s", redisLock, redisLock).atLeast(c.least))
		if c.goroutines == 1 {
			claims = append(claims, found.fairness.absolute(who+"Jain's index", "", redisLock).atLeast(0.99))
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
type contested struct{ rates, fairness, worst samples }

// run has the contestants take turns.
func (c contest) run(l *lab, names ...string) (contested, error) {
	found := contested{samples{}, samples{}, samples{}}
	server, err := l.redis()
	if err != nil {
		return found, err
	}
	staff, err := l.staff(c.processes)
	if err != nil {
		return found, err
	}
	for rep := range c.reps + 1 {
		for _, i := range turn(len(names), rep) {
			t, err := together(staff, order{
				Do: doContend, Contestant: names[i], Addr: server.Addr(), Key: key("contended", c.processes, c.goroutines, rep),
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
			found.rates.add(names[i], cycles/c.slice.Seconds())
			found.fairness.add(names[i], jain(t.Cycles))
			found.worst.add(names[i], micros(t.Worst)/1000)
		}
	}
	return found, nil
}

// together gives all workers the same order and adds up their answers.
func together(staff []*worker, o order) (sum tally, err error) {
	for _, w := range staff {
		if err := w.send(o); err != nil {
			return sum, err
		}
	}
	for _, w := range staff {
		a, e := w.receive()
		if e != nil {
			err = e
		}
		sum.Cycles = append(sum.Cycles, a.Tally.Cycles...)
		sum.Worst = max(sum.Worst, a.Tally.Worst)
	}
	return sum, err
}
