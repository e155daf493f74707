package main

import (
	"context"
	"fmt"
	"time"
)

// roundTrip is the floor of an operation over a network: a PING, measured
// through the same network as the contestants.
const roundTrip = "a round trip"

// distance is the round trip that the network adds.
const distance = time.Millisecond

// redisDistant runs a cycle and a hand-over over a network with a round trip of
// 1 ms, and counts them in round trips.
func redisDistant(ctx context.Context, l *lab) ([]claim, error) {
	if err := l.distant(distance); err != nil {
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
	return []claim{
		cycles.ratio("whole cycle over 1 ms, p50", "µs", roundTrip, roundTrip, redisLock, rueidisLock).atMost(2.05),
		handovers.ratio("Release to Acquire over 1 ms, p50", "µs", roundTrip, roundTrip, push, rueidisLock).atMost(1.1),
	}, nil
}

// distantCycles takes and releases a free key, operation by operation.
func distantCycles(ctx context.Context, l *lab) (samples, error) {
	names := []string{redisLock, rueidisLock, mega}
	lockers, err := l.lockers(ctx, names...)
	if err != nil {
		return nil, err
	}
	ping, hangUp := pinger(ctx, l)
	defer hangUp()
	ops := map[string]func() error{roundTrip: ping}
	for i, name := range names {
		ops[name] = func() error { _, _, err := timed(ctx, lockers[i], key("distant")); return err }
	}
	return inTurn(l, l.scaled(100), ops, append(names, roundTrip)...)
}

// distantHandovers measures a hand-over to another process at rest, and a round
// trip of this process at rest.
func distantHandovers(ctx context.Context, l *lab) (samples, error) {
	names := []string{push, rueidisLock, mega}
	h, err := newHandover(ctx, l, names)
	if err != nil {
		return nil, err
	}
	ping, hangUp := pinger(ctx, l)
	defer hangUp()
	times := samples{}
	for rep := range l.reps(5) {
		took := map[string][]time.Duration{}
		for round := range l.scaled(24) {
			for _, i := range turn(len(names), round) {
				d, err := h.once(ctx, names[i], key("distant", rep))
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
			times.add(name, micros(median(all)))
		}
	}
	return times, nil
}

// pinger returns a round trip on a connection of its own, and what closes it.
func pinger(ctx context.Context, l *lab) (ping func() error, hangUp func()) {
	client := dial(l.network.Addr())
	return func() error { return client.Ping(ctx).Err() }, func() { _ = client.Close() }
}
