package bustest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// faultDefects are drivers that break a rule when the backend refuses, is slow,
// or breaks a connection.
var faultDefects = []defect{
	{"S4", "reports no gap to a subscription that ends in a cut", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			return silent{i}, err
		}}
	}},
	{"S7", "takes a subscription for made that it cannot make in an outage", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			if errors.Is(err, driver.ErrDisconnected) {
				return endless{}, nil
			}
			return i, err
		}}
	}},
	{"S10", "reports no gap to a subscription that is being made", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			made, swallowed := new(atomic.Bool), make(chan struct{}, 1)
			s.Sink = sinkWith{Sink: s.Sink, gap: func(s driver.Sink, n int) {
				if made.Load() {
					s.Gap(n)
					return
				}
				select {
				case swallowed <- struct{}{}:
				default:
				}
			}}
			i, err := d.Subscribe(ctx, s)
			select { // the backend confirms it late
			case <-swallowed:
			case <-time.After(100 * time.Millisecond):
			}
			made.Store(true)
			return i, err
		}}
	}},
	{"S17", "gives up for good when the connection is closed for good", func() *broken {
		over := new(atomic.Bool)
		b := &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if over.Load() {
				return driver.ErrClosed
			}
			return d.Publish(ctx, m)
		}}
		b.attach = func(f driver.Front) driver.Front {
			return frontWith{Front: f, disconnected: func(f driver.Front, err error) { over.Store(true); f.Disconnected(err) }}
		}
		return b
	}},
	{"S17", "does not learn the limit", func() *broken {
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if err := d.Publish(ctx, m); !errors.Is(err, driver.ErrTooLarge) {
				return err
			}
			return nil
		}}
	}},
	{"S23", "does not report a cut of one process", func() *broken {
		return &broken{sink: func(s driver.Sink) driver.Sink { return sinkWith{Sink: s, gap: func(driver.Sink, int) {}} }}
	}},
	{"S27", "takes a refused subscription for a good one", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			if errors.Is(err, driver.ErrRefused) {
				return endless{}, nil
			}
			return i, err
		}}
	}},
	{"S27", "reports the first of many refusals alone", func() *broken {
		refused := new(atomic.Bool)
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			if errors.Is(err, driver.ErrRefused) && refused.Swap(true) {
				return endless{}, nil
			}
			return i, err
		}}
	}},
	{"S27", "refuses every subscription that is made beside a denied one", func() *broken {
		refused := new(atomic.Bool)
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			refused.Store(false)
			i, err := d.Subscribe(ctx, s)
			if errors.Is(err, driver.ErrRefused) {
				refused.Store(true)
			}
			time.Sleep(time.Millisecond)
			if err == nil && refused.Load() {
				_ = i.End(ctx)
				return nil, driver.ErrRefused
			}
			return i, err
		}}
	}},
	{"S27", "refuses for ever", func() *broken {
		var mu sync.Mutex
		refused := map[string]bool{}
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			mu.Lock()
			defer mu.Unlock()
			if refused[s.Pattern] {
				return nil, driver.ErrRefused
			}
			i, err := d.Subscribe(ctx, s)
			refused[s.Pattern] = errors.Is(err, driver.ErrRefused)
			return i, err
		}}
	}},
	{"S27", "does not report a revoked subscription", func() *broken {
		return &broken{sink: func(s driver.Sink) driver.Sink { return sinkWith{Sink: s, fail: func(driver.Sink, error) {}} }}
	}},
	{"S27", "does not report a denied event", func() *broken {
		return &broken{attach: func(f driver.Front) driver.Front {
			return frontWith{Front: f, refused: func(driver.Front, string, error) {}}
		}}
	}},
	{"S27", "flushes what was denied", func() *broken {
		return &broken{flush: func(d driver.Driver, ctx context.Context) error {
			if err := d.Flush(ctx); !errors.Is(err, driver.ErrRefused) {
				return err
			}
			return nil
		}}
	}},
	{"S27", "lets a denied request wait for its deadline", func() *broken {
		return &broken{attach: func(f driver.Front) driver.Front {
			return frontWith{Front: f, fail: func(f driver.Front, id uint64, err error) {
				if !errors.Is(err, driver.ErrRefused) {
					f.Fail(id, err)
				}
			}}
		}}
	}},
	{"S28", "loses some without a word", func() *broken {
		tenth := every(10)
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if tenth() {
				return nil
			}
			return d.Publish(ctx, m)
		}}
	}},
	{"S28", "counts losses, and flushes with nil", func() *broken {
		var front driver.Front
		tenth := every(10)
		return &broken{
			attach: func(f driver.Front) driver.Front { front = f; return f },
			publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
				if tenth() {
					front.Lost(1, m.Size(), driver.ErrDisconnected)
					return nil
				}
				return d.Publish(ctx, m)
			},
		}
	}},
	{"S28", "sends again what it has sent before a cut", func() *broken {
		var last atomic.Pointer[driver.Message]
		again := new(atomic.Bool)
		return &broken{
			attach: func(f driver.Front) driver.Front {
				return frontWith{Front: f, disconnected: func(f driver.Front, err error) { again.Store(true); f.Disconnected(err) }}
			},
			publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
				if before := last.Load(); before != nil && again.Swap(false) {
					_ = d.Publish(ctx, *before)
				}
				last.Store(&m)
				return d.Publish(ctx, m)
			},
		}
	}},
	{"S29", "cuts a slow link", func() *broken {
		var front driver.Front
		twentieth := every(20)
		return &broken{
			attach: func(f driver.Front) driver.Front { front = f; return f },
			publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
				if twentieth() {
					front.Disconnected(driver.ErrDisconnected)
					front.Connected()
				}
				return d.Publish(ctx, m)
			},
		}
	}},
	{"S29", "drops what a slow link does not take", func() *broken {
		twentieth := every(20)
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if twentieth() {
				return nil
			}
			return d.Publish(ctx, m)
		}}
	}},
}
