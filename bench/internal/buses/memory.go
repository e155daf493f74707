// Package buses measures events and requests: in memory, on NATS and on a node.
package buses

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/go-json-experiment/json"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
)

// The contestants of the bus in memory, and mega's topics: the same event with
// its JSON.
const (
	channel   = "channel"
	goChannel = "gochannel"
	megaTopic = "mega, topic"
	// megaTopicV2 is a topic with the code of encoding/json/v2, which the
	// toolchain has as an experiment only.
	megaTopicV2 = "mega, topic, json v2"
)

const (
	eventSize = 128
	// room is what may wait for a subscriber: as much as mega's default.
	room    = bus.DefaultBuffer
	subject = "product.sold"
)

// carrier is a way to get an event to one subscription of this process.
type carrier struct {
	publish func() error
	handled *atomic.Int64 // by the subscription
	close   func() error
}

// batch publishes n events and returns when all were handled.
func (c carrier) batch(n int) error {
	before := c.handled.Load()
	for range n {
		if err := c.publish(); err != nil {
			return err
		}
	}
	for c.handled.Load()-before < int64(n) {
		runtime.Gosched()
	}
	return nil
}

// Memory publishes events to one subscription. Batches of the contestants
// alternate; each batch's time, until its last event was handled, is divided by
// its events.
func Memory(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	carriers, err := openCarriers(ctx)
	if err != nil {
		return nil, err
	}
	batches := map[string]measure.Batch{}
	for name, c := range carriers {
		batches[name] = c.batch
		defer func() { err = errors.Join(err, c.close()) }()
	}
	times, allocs := measure.Samples{}, measure.Samples{}
	for range l.Reps(5) {
		if err := measure.QuietRep(l.Scale, batches, times, allocs); err != nil {
			return nil, err
		}
	}
	return []measure.Claim{
		times.Absolute("publish + 1 subscriber", "ns", channel, goChannel, megaTopic, megaTopicV2).AtMost(200),
		times.Ratio("the same, as a multiple", "ns", goChannel),
		allocs.Absolute("allocations", "", channel, goChannel, megaTopic, megaTopicV2).AtMost(2),
	}, nil
}

func openCarriers(ctx context.Context) (map[string]carrier, error) {
	all := map[string]carrier{channel: openChannel()}
	for name, open := range map[string]func(context.Context) (carrier, error){
		measure.Mega: openBus, megaTopic: openTopic, megaTopicV2: openTopicV2, goChannel: openGoChannel,
	} {
		c, err := open(ctx)
		if err != nil {
			return nil, err
		}
		all[name] = c
	}
	return all, nil
}

// openBus is mega in memory, as its users open it.
func openBus(ctx context.Context) (carrier, error) {
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		return carrier{}, err
	}
	var handled atomic.Int64
	_, err = b.Subscribe(ctx, subject, func(context.Context, *bus.Msg) error {
		handled.Add(1)
		return nil
	})
	data := make([]byte, eventSize)
	return carrier{func() error { return b.Publish(ctx, subject, data) }, &handled, b.Close}, err
}

type sale struct {
	Product  string `json:"product"`
	Quantity int    `json:"quantity"`
}

func openTopic(ctx context.Context) (carrier, error) { return openTopicWith(ctx, bus.Config{}) }

func openTopicV2(ctx context.Context) (carrier, error) {
	return openTopicWith(ctx, bus.Config{Codecs: map[string]bus.Codec{"application/json": jsonV2{}}})
}

type jsonV2 struct{}

func (jsonV2) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonV2) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

func openTopicWith(ctx context.Context, c bus.Config) (carrier, error) {
	b, err := bus.New(memory.NewBus(), c)
	if err != nil {
		return carrier{}, err
	}
	const sold = bus.Topic[sale](subject)
	var handled atomic.Int64
	_, err = sold.Subscribe(ctx, b, func(_ context.Context, s sale) error {
		handled.Add(int64(s.Quantity))
		return nil
	})
	return carrier{func() error { return sold.Publish(ctx, b, sale{"42", 1}) }, &handled, b.Close}, err
}

// openChannel is the floor: no subjects, no copy, and a publisher that waits
// where there is no room.
func openChannel() carrier {
	var (
		handled atomic.Int64
		reader  sync.WaitGroup
		events  = make(chan []byte, room)
		data    = make([]byte, eventSize)
	)
	reader.Go(func() {
		for range events {
			handled.Add(1)
		}
	})
	publish := func() error { events <- data; return nil }
	return carrier{publish, &handled, func() error { close(events); reader.Wait(); return nil }}
}

// openGoChannel is watermill in memory.
func openGoChannel(ctx context.Context) (carrier, error) {
	g := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: room}, watermill.NopLogger{})
	events, err := g.Subscribe(ctx, subject)
	if err != nil {
		return carrier{}, err
	}
	var handled atomic.Int64
	var reader sync.WaitGroup
	reader.Go(func() {
		for m := range events {
			handled.Add(1)
			m.Ack()
		}
	})
	data := make([]byte, eventSize)
	publish := func() error { return g.Publish(subject, message.NewMessage(watermill.NewUUID(), data)) }
	return carrier{publish, &handled, func() error {
		err := g.Close()
		reader.Wait()
		return err
	}}, nil
}
