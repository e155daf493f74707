package locks

import (
	"context"
	"fmt"
	"time"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bench/internal/peers"
)

// RedisHandover holds a key here while another process waits for it, and
// measures from just before Release here to just after Acquire there. The
// contestants alternate operation by operation. The floor publishes a message
// instead, to which the other process has subscribed.
func RedisHandover(ctx context.Context, l *lab.Lab) ([]measure.Claim, error) {
	names := []string{peers.Push, peers.RueidisLock, measure.Mega}
	h, err := newHandover(ctx, l, names)
	if err != nil {
		return nil, err
	}
	times := measure.Samples{}
	for rep := range l.Reps(7) {
		took := make([][]time.Duration, len(names))
		for round := range l.Scaled(60) {
			for _, i := range measure.Turn(len(names), round) {
				d, err := h.once(ctx, names[i], lab.Key("handover", rep))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", names[i], err)
				}
				took[i] = append(took[i], d)
			}
		}
		for i, name := range names {
			times.Add(name, measure.Micros(measure.Median(took[i])))
		}
	}
	return []measure.Claim{
		times.Ratio("Release to Acquire, p50", "µs", peers.Push, peers.Push, peers.RueidisLock).AtMost(1.25),
	}, nil
}

// atRest is how long a process must do nothing to be as cold as a waiter is.
const atRest = 20 * time.Millisecond

// handover is this process, which holds, and another one, which waits.
type handover struct {
	addr  string
	here  map[string]peers.Locker
	there *lab.Worker
}

func newHandover(ctx context.Context, l *lab.Lab, names []string) (*handover, error) {
	addr, err := l.Addr()
	if err != nil {
		return nil, err
	}
	staff, err := l.Staff(1)
	if err != nil {
		return nil, err
	}
	h := &handover{addr: addr, here: map[string]peers.Locker{}, there: staff[0]}
	for _, name := range names {
		if h.here[name], err = l.Locker(ctx, name); err != nil {
			return nil, err
		}
		if err := h.there.Ask(lab.Order{Do: lab.DoOpen, Contestant: name, Addr: h.addr}); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *handover) once(ctx context.Context, name, key string) (time.Duration, error) {
	release := func() error { return h.here[peers.Push].(*peers.PushLock).Publish(ctx) }
	if name != peers.Push {
		var err error
		if release, err = h.here[name].Acquire(ctx, key); err != nil {
			return 0, err
		}
	}
	if err := h.there.Send(lab.Order{Do: lab.DoTake, Contestant: name, Addr: h.addr, Key: key}); err != nil {
		return 0, err
	}
	time.Sleep(atRest) // the other is queued, and at rest as a waiter is
	start := time.Now()
	if err := release(); err != nil {
		return 0, err
	}
	a, err := h.there.Receive()
	return a.At.Sub(start), err
}
