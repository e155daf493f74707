package buses

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/memory"
)

// The same event on a bus with fewer subscriptions.
const (
	onlyOne  = "1 subscription"
	thousand = "1 000 subscriptions"
)

// Subscriptions publishes beside many other subscriptions: to one subject
// again and again, and to the subjects of all in turn, each of which is at rest.
func Subscriptions(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	alone, err := openBus(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, alone.close()) }()
	counts, sizes := []int{1000, 10_000, l.Scaled(100_000)}, measure.Samples{}
	most := counts[len(counts)-1]
	batches := map[string]measure.Batch{onlyOne: alone.batch}
	for _, n := range counts {
		before := measure.InUse()
		one, each, e := openCrowdedBus(ctx, n)
		if e != nil {
			return nil, e
		}
		defer func() { err = errors.Join(err, one.close()) }()
		batches[eachOf(n)] = each.batch
		if n == most {
			sizes.Add(measure.Mega, (measure.InUse()-before)/float64(n))
			batches[measure.Mega] = one.batch
		}
	}
	times := measure.Samples{}
	for range l.Reps(5) {
		if err := measure.QuietBatches(l.Scaled(40), batches, times); err != nil {
			return nil, err
		}
	}
	line := measure.Curve{Name: measure.Mega}
	for _, n := range counts {
		line.Points = append(line.Points, measure.Point{X: float64(n), Y: measure.Median(times[eachOf(n)])})
	}
	inTurn := measure.Samples{measure.Mega: times[eachOf(most)], thousand: times[eachOf(counts[0])]}
	return []measure.Claim{
		times.Ratio("publish beside 100 000 subscriptions", "ns", onlyOne, onlyOne).AtMost(1.5),
		inTurn.Ratio("publish to each of them in turn", "ns", thousand, thousand).AtMost(2).Over("subscriptions", line),
		sizes.Absolute("memory per subscription", "B"),
	}, nil
}

// eachOf names the contestant that publishes to n subscriptions in turn.
func eachOf(n int) string { return fmt.Sprintf("each of %d", n) }

// openCrowdedBus returns a bus with n subscriptions beside the one of openBus,
// half of them on patterns, and two ways to publish: to that one, and to each
// of the others in turn.
func openCrowdedBus(ctx context.Context, n int) (one, each carrier, err error) {
	b, err := bus.New(memory.NewBus(), bus.Config{})
	if err != nil {
		return one, each, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	var handled atomic.Int64
	handle := func(context.Context, *bus.Msg) error { handled.Add(1); return nil }
	subjects := make([]string, n)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("tenant.%d.sold", i)
		pattern := subjects[i]
		if i%2 == 1 {
			pattern = fmt.Sprintf("tenant.%d.*", i)
		}
		if _, err := b.Subscribe(ctx, pattern, handle); err != nil {
			return one, each, err
		}
	}
	if _, err := b.Subscribe(ctx, subject, handle); err != nil {
		return one, each, err
	}
	data, next := make([]byte, eventSize), 0
	one = carrier{func() error { return b.Publish(ctx, subject, data) }, &handled, b.Close}
	each = carrier{func() error {
		next++
		return b.Publish(ctx, subjects[next%n], data)
	}, &handled, b.Close}
	return one, each, nil
}
