package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
)

// roundTrip is the floor of an operation over a network: a PING, measured
// through the same network as the contestants.
const roundTrip = "a round trip"

// distance is the round trip that the network adds.
const distance = time.Millisecond

// RedisDistant runs a cycle and a hand-over over a network with a round trip of
// 1 ms, and counts them in round trips.
func RedisDistant(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	if err := l.Distant(distance); err != nil {
		return nil, err
	}
	cycles, err := distantCycles(ctx, l)
	if err != nil {
		return nil, err
	}
	handovers, err := distantHandovers(ctx, l)
	if err != nil {
		return nil, err
	}
	return []measure.Claim{
		cycles.Ratio("whole cycle over 1 ms, p50", "µs", roundTrip, roundTrip, peers.RedisLock, peers.RueidisLock).AtMost(2.05),
		handovers.Ratio("Release to Acquire over 1 ms, p50", "µs", roundTrip, roundTrip, peers.Push, peers.RueidisLock).AtMost(1.1),
	}, nil
}

// distantCycles takes and releases a free key, operation by operation.
func distantCycles(ctx context.Context, l *lab.Lab) (measure.Samples, error) {
	names := []string{peers.RedisLock, peers.RueidisLock, measure.Mega}
	lockers, err := l.Lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	ping, hangUp, err := pinger(ctx, l)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	ops := map[string]func() error{roundTrip: ping}
	for i, name := range names {
		ops[name] = func() error { _, _, err := peers.Timed(ctx, lockers[i], lab.Key("distant")); return err }
	}
	return measure.InTurn(l.Scale, l.Scaled(100), ops, append(names, roundTrip)...)
}

// distantHandovers measures a hand-over to another process at rest, and a round
// trip of this process at rest.
func distantHandovers(ctx context.Context, l *lab.Lab) (measure.Samples, error) {
	names := []string{peers.Push, peers.RueidisLock, measure.Mega}
	h, err := newHandover(ctx, l, names)
	if err != nil {
		return nil, err
	}
	ping, hangUp, err := pinger(ctx, l)
	if err != nil {
		return nil, err
	}
	defer hangUp()
	times := measure.Samples{}
	for rep := range l.Reps(5) {
		took := map[string][]time.Duration{}
		for round := range l.Scaled(24) {
			for _, i := range measure.Turn(len(names), round) {
				d, err := h.once(ctx, names[i], lab.Key("distant", rep))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[names[i]] = append(took[names[i]], d)
			}
			time.Sleep(atRest)
			start := time.Now()
			if err := ping(); err != nil {
				return nil, err
			}
			took[roundTrip] = append(took[roundTrip], time.Since(start))
		}
		for name, all := range took {
			times.Add(name, measure.Micros(measure.Median(all)))
		}
	}
	return times, nil
}

// pinger returns a round trip on a connection of its own, and what closes it.
func pinger(ctx context.Context, l *lab.Lab) (ping func() error, hangUp func(), err error) {
	addr, err := l.Addr()
	if err != nil {
		return nil, nil, err
	}
	client := peers.Dial(addr)
	return func() error { return client.Ping(ctx).Err() }, func() { _ = client.Close() }, nil
}
