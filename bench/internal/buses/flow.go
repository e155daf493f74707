package buses

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
)

// flow publishes events to subscriptions of this process that handle them
// meanwhile.
type flow struct {
	publish  func() error
	counters []*counter // of the subscriptions
	close    func() error
}

// counter counts the events that a subscription has handled. Each has its own
// cache line, so that subscriptions are measured and not their counters.
type counter struct {
	handled, target atomic.Int64
	reached         *sync.WaitGroup
	_               [104]byte
}

func (c *counter) add(n int64) {
	if c.handled.Add(n) == c.target.Load() {
		c.reached.Done()
	}
}

func newFlow(subscriptions int) *flow {
	f := &flow{}
	var reached sync.WaitGroup
	for range subscriptions {
		f.counters = append(f.counters, &counter{reached: &reached})
	}
	return f
}

// batch publishes n events, and returns when every subscription has handled
// all of them.
func (f *flow) batch(n int) error {
	reached := f.counters[0].reached
	reached.Add(len(f.counters))
	for _, c := range f.counters {
		c.target.Store(c.handled.Load() + int64(n))
	}
	for range n {
		if err := f.publish(); err != nil {
			return err
		}
	}
	reached.Wait()
	return nil
}

// flowSize is the number of events of a batch. It lasts for milliseconds, and
// leaves room in every buffer, so that nobody waits and nothing is dropped.
const flowSize = 20_000

// Flow publishes events while the subscriptions handle them. Batches of the
// contestants alternate; the time of a batch ends with its last handler.
func Flow(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	for _, subscriptions := range []int{1, 8} {
		more, err := flowClaims(ctx, l, subscriptions)
		if err != nil {
			return nil, err
		}
		claims = append(claims, more...)
	}
	return claims, nil
}

func flowClaims(ctx context.Context, l *lab.Lab, subscriptions int) (claims []measure.Claim, err error) {
	flows, err := openFlows(ctx, subscriptions)
	if err != nil {
		return nil, err
	}
	for _, f := range flows {
		defer func() { err = errors.Join(err, f.close()) }()
	}
	times, allocs := measure.Samples{}, measure.Samples{}
	for range l.Reps(5) {
		if err := flowRep(l, flows, times, allocs); err != nil {
			return nil, err
		}
	}
	bound, objects := 200.0, 2.0
	if subscriptions > 1 {
		bound, objects = 1600, 5
	}
	subscribers := fmt.Sprintf("%d concurrent subscribers", subscriptions)
	if subscriptions == 1 {
		subscribers = "1 concurrent subscriber"
	}
	return []measure.Claim{
		times.Absolute("publish + "+subscribers, "ns", channel, goChannel).AtMost(bound),
		allocs.Absolute("allocations, "+subscribers, "", channel, goChannel).AtMost(objects),
	}, nil
}

// flowRep adds a quiet batch of each contestant, as measure.QuietRep does, and its
// allocations.
func flowRep(l *lab.Lab, flows map[string]*flow, times, allocs measure.Samples) error {
	names := []string{measure.Mega, channel, goChannel}
	took := map[string][]time.Duration{}
	runtime.GC()
	for round := range l.Scaled(20) {
		for _, i := range measure.Turn(len(names), round) {
			size := flowSize
			if names[i] == goChannel {
				size /= 10 // it takes ten times as long
			}
			start := time.Now()
			if err := flows[names[i]].batch(size); err != nil {
				return err
			}
			took[names[i]] = append(took[names[i]], time.Since(start)*flowSize/time.Duration(size))
		}
	}
	for _, name := range names {
		times.Add(name, float64(measure.Quantile(took[name], 0.1))/flowSize)
		n, err := measure.Allocations(l.Scaled(10_000), flows[name].batch)
		if err != nil {
			return err
		}
		allocs.Add(name, n)
	}
	return nil
}

func openFlows(ctx context.Context, subscriptions int) (map[string]*flow, error) {
	flows := map[string]*flow{channel: channelFlow(subscriptions)}
	for name, open := range map[string]func(context.Context, int) (*flow, error){
		measure.Mega: busFlowOf, goChannel: goChannelFlow,
	} {
		f, err := open(ctx, subscriptions)
		if err != nil {
			return nil, err
		}
		flows[name] = f
	}
	return flows, nil
}

func busFlowOf(ctx context.Context, subscriptions int) (*flow, error) {
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		return nil, err
	}
	f := newFlow(subscriptions)
	for _, c := range f.counters {
		_, err := b.Subscribe(ctx, subject, func(context.Context, *bus.Msg) error {
			c.add(1)
			return nil
		})
		if err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	data := make([]byte, eventSize)
	f.publish, f.close = func() error { return b.Publish(ctx, subject, data) }, b.Close
	return f, nil
}

// channelFlow has a channel for each subscription.
func channelFlow(subscriptions int) *flow {
	var (
		f       = newFlow(subscriptions)
		readers sync.WaitGroup
		all     []chan []byte
		data    = make([]byte, eventSize)
	)
	for _, c := range f.counters {
		events := make(chan []byte, room)
		all = append(all, events)
		readers.Go(func() {
			for range events {
				c.add(1)
			}
		})
	}
	f.publish = func() error {
		for _, events := range all {
			events <- data
		}
		return nil
	}
	f.close = func() error {
		for _, events := range all {
			close(events)
		}
		readers.Wait()
		return nil
	}
	return f
}

func goChannelFlow(ctx context.Context, subscriptions int) (*flow, error) {
	g := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: room}, watermill.NopLogger{})
	f := newFlow(subscriptions)
	var readers sync.WaitGroup
	for _, c := range f.counters {
		events, err := g.Subscribe(ctx, subject)
		if err != nil {
			return nil, errors.Join(err, g.Close())
		}
		readers.Go(func() {
			for m := range events {
				m.Ack()
				c.add(1)
			}
		})
	}
	data := make([]byte, eventSize)
	f.publish = func() error { return g.Publish(subject, message.NewMessage(watermill.NewUUID(), data)) }
	f.close = func() error {
		err := g.Close()
		readers.Wait()
		return err
	}
	return f, nil
}
