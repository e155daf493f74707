package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// changing publishes, requests and answers what change makes of it.
func changing(change func(m *driver.Message)) *broken {
	return &broken{
		publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			change(&m)
			return d.Publish(ctx, m)
		},
		request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			change(&m)
			return d.Request(ctx, m)
		},
		answer: func(d driver.Driver, ctx context.Context, r, a driver.Message) error {
			change(&a)
			return d.Answer(ctx, r, a)
		},
	}
}

// twice is a subscription that is two at the backend.
type twice struct{ driver.Registration }

func (t twice) also(d driver.Driver, ctx context.Context, s driver.Subscription, pattern string) (driver.Registration, error) {
	s.Pattern = pattern
	other, err := d.Subscribe(ctx, s)
	return both{t.Registration, other}, err
}

type both struct{ a, b driver.Registration }

func (b both) End(ctx context.Context) error { return errors.Join(b.a.End(ctx), b.b.End(ctx)) }

// sinkWith is a sink with another Deliver, Gap or Load.
type sinkWith struct {
	driver.Sink
	deliver func(s driver.Sink, m driver.Message) bool
	fail    func(s driver.Sink, err error)
	gap     func(s driver.Sink, n int)
	load    func(s driver.Sink) int
}

func (s sinkWith) Deliver(m driver.Message) bool {
	if s.deliver == nil {
		return s.Sink.Deliver(m)
	}
	return s.deliver(s.Sink, m)
}

func (s sinkWith) Gap(n int) {
	if s.gap == nil {
		s.Sink.Gap(n)
	} else {
		s.gap(s.Sink, n)
	}
}

func (s sinkWith) Fail(err error) {
	if s.fail == nil {
		s.Sink.Fail(err)
	} else {
		s.fail(s.Sink, err)
	}
}

func (s sinkWith) Load() int {
	if s.load == nil {
		return s.Sink.Load()
	}
	return s.load(s.Sink)
}

// delivering is a driver whose sinks take messages otherwise.
func delivering(deliver func(s driver.Sink, m driver.Message) bool) *broken {
	return &broken{sink: func(s driver.Sink) driver.Sink { return sinkWith{Sink: s, deliver: deliver} }}
}

// frontWith is a front that hears other things.
type frontWith struct {
	driver.Front
	fail         func(f driver.Front, id uint64, err error)
	refused      func(f driver.Front, subject string, err error)
	disconnected func(f driver.Front, err error)
}

func (f frontWith) Fail(id uint64, err error) {
	if f.fail == nil {
		f.Front.Fail(id, err)
	} else {
		f.fail(f.Front, id, err)
	}
}

func (f frontWith) Refused(subject string, err error) {
	if f.refused == nil {
		f.Front.Refused(subject, err)
	} else {
		f.refused(f.Front, subject, err)
	}
}

func (f frontWith) Disconnected(err error) {
	if f.disconnected == nil {
		f.Front.Disconnected(err)
	} else {
		f.disconnected(f.Front, err)
	}
}

// every says true each nth time.
func every(n int64) func() bool {
	var count atomic.Int64
	return func() bool { return count.Add(1)%n == 0 }
}

// outbox sends later what is published, in order.
type outbox struct {
	mu      sync.Mutex // guards waiting and sending
	waiting []driver.Message
	sending bool
}

func (o *outbox) publish(d driver.Driver, _ context.Context, m driver.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, m)
	if !o.sending {
		o.sending = true
		time.AfterFunc(time.Millisecond, func() { o.send(d) })
	}
	return nil
}

func (o *outbox) send(d driver.Driver) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.waiting {
		_ = d.Publish(context.Background(), m)
	}
	o.waiting, o.sending = nil, false
}

// endless is a registration that cannot be ended.
type endless struct{ driver.Registration }

func (endless) End(context.Context) error { return nil }

// silent is a registration whose end hides a loss.
type silent struct{ driver.Registration }

func (s silent) End(ctx context.Context) error {
	_ = s.Registration.End(ctx)
	return nil
}

// hasty is a registration that ends before what was routed to it is there.
type hasty struct {
	driver.Registration
	ended *atomic.Bool
}

func (h hasty) End(ctx context.Context) error {
	h.ended.Store(true)
	return h.Registration.End(ctx)
}

// waitFor waits until the sink has nothing to do, for a while. A case publishes
// to a stuck sink a thousand times.
func waitFor(s driver.Sink) {
	for range 5 {
		if s.Load() == 0 {
			return
		}
		time.Sleep(time.Second)
	}
}

// defect is a driver that breaks a rule.
type defect struct {
	rule   string
	is     string
	broken func() *broken
}

// defects are drivers that break a rule, each as somebody might write it.
var defects = []defect{
	{"S1", "cuts long subjects", func() *broken {
		return changing(func(m *driver.Message) { m.Subject = m.Subject[:min(len(m.Subject), 128)] })
	}},
	{"S1", "escapes what it need not", func() *broken {
		return changing(func(m *driver.Message) { m.Subject = strings.ReplaceAll(m.Subject, "%", "%25") })
	}},
	{"S2", "takes upper and lower case for the same", func() *broken {
		b := changing(func(m *driver.Message) { m.Subject = strings.ToLower(m.Subject) })
		b.subscribe = func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			s.Pattern = strings.ToLower(s.Pattern)
			return d.Subscribe(ctx, s)
		}
		return b
	}},
	{"S2", "lets > stand for nothing too", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			if prefix, ok := strings.CutSuffix(s.Pattern, ".>"); ok && err == nil {
				return twice{i}.also(d, ctx, s, prefix)
			}
			return i, err
		}}
	}},
	{"S2", "lets * stand for several tokens", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			if prefix, ok := strings.CutSuffix(s.Pattern, "*"); ok {
				s.Pattern = prefix + ">"
			}
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S2", "begins matching in the middle", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			if err != nil {
				return nil, err
			}
			return twice{i}.also(d, ctx, s, "*."+s.Pattern)
		}}
	}},
	{"S3", "shows requests to subscriptions", func() *broken {
		return &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			event := m
			event.Kind = driver.Event
			return errors.Join(d.Publish(ctx, event), d.Request(ctx, m))
		}}
	}},
	{"S3", "takes a tap for a responder", func() *broken {
		return &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			_ = d.Request(ctx, m)
			return nil
		}}
	}},
	{"S4", "delivers now and then twice", func() *broken {
		now := every(50)
		return delivering(func(s driver.Sink, m driver.Message) bool {
			if now() {
				s.Deliver(m)
			}
			return s.Deliver(m)
		})
	}},
	{"S4", "loses a message now and then", func() *broken {
		now := every(50)
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if now() {
				return nil
			}
			return d.Publish(ctx, m)
		}}
	}},
	{"S4", "delivers once for all patterns of a process", func() *broken {
		seen := map[string]bool{}
		var mu sync.Mutex
		return delivering(func(s driver.Sink, m driver.Message) bool {
			mu.Lock()
			defer mu.Unlock()
			if seen[string(m.Data)] && m.Kind == driver.Event {
				return true
			}
			seen[string(m.Data)] = true
			return s.Deliver(m)
		})
	}},
	{"S4", "forgets what it has dropped for a subscription that ends", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			ended := new(atomic.Bool)
			s.Sink = sinkWith{Sink: s.Sink, gap: func(s driver.Sink, n int) {
				if !ended.Load() {
					s.Gap(n)
				}
			}}
			i, err := d.Subscribe(ctx, s)
			return hasty{i, ended}, err
		}}
	}},
	{"S4", "discards what comes for a subscription that ends", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			ended := new(atomic.Bool)
			s.Sink = sinkWith{Sink: s.Sink, deliver: func(s driver.Sink, m driver.Message) bool { return ended.Load() || s.Deliver(m) }}
			i, err := d.Subscribe(ctx, s)
			return hasty{i, ended}, err
		}}
	}},
	{"S5", "lets a message overtake another", func() *broken {
		var mu sync.Mutex
		var held *driver.Message
		now := every(10)
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if held == nil && now() {
				held = &m
				return nil
			}
			err := d.Publish(ctx, m)
			if held != nil {
				err = errors.Join(err, d.Publish(ctx, *held))
				held = nil
			}
			return err
		}}
	}},
	{"S5", "has a queue for each subject", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool {
			if m.Kind == driver.Event && strings.HasSuffix(m.Subject, "3.z") {
				time.AfterFunc(time.Microsecond, func() { s.Deliver(m) })
				return true
			}
			return s.Deliver(m)
		})
	}},
	{"S6", "waits for the handler", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool {
			waitFor(s)
			return s.Deliver(m)
		})
	}},
	{"S6", "claims to copy data, and does not", func() *broken {
		return &broken{info: func(i driver.Info) driver.Info { i.Copies = true; return i }}
	}},
	{"S7", "subscribes a moment later", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			l := &lateInterest{made: make(chan struct{})}
			time.AfterFunc(time.Millisecond, func() {
				defer close(l.made)
				l.registration, _ = d.Subscribe(context.Background(), s)
			})
			return l, nil
		}}
	}},
	{"S8", "cannot end a registration", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			return endless{i}, err
		}}
	}},
	{"S8", "loses what is on its way when a registration ends", func() *broken { return losingAtTheEnd() }},
	{"S9", "uses the memory of messages again", func() *broken {
		var mu sync.Mutex
		buffer := make([]byte, 1<<20)
		return delivering(func(s driver.Sink, m driver.Message) bool {
			mu.Lock()
			defer mu.Unlock()
			m.Data = buffer[:copy(buffer, m.Data)]
			return s.Deliver(m)
		})
	}},
	{"S10", "waits for a sink that is behind", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool {
			if s.Load() > 5 {
				time.Sleep(time.Minute)
			}
			return s.Deliver(m)
		})
	}},
	{"S10", "drops what a slow sink could still take", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool { return s.Load() > 5 || s.Deliver(m) })
	}},
	{"S11", "knows a group by its name alone", func() *broken { return groupsByName() }},
	{"S11", "takes upper and lower case in the name of a group for the same", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			s.Group = strings.ToLower(s.Group)
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S11", "joins the name and the pattern of a group by a colon", func() *broken { return groupsByText() }},
	{"S11", "escapes a colon in the name of a group, and no percent sign", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			s.Group = strings.ReplaceAll(s.Group, ":", "%3A")
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S11", "cuts the names of groups at 32 bytes", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			s.Group = s.Group[:min(len(s.Group), 32)]
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S11", "gives a message to every member", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			s.Group = ""
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S11", "prefers old members", func() *broken {
		return &broken{sink: func(s driver.Sink) driver.Sink {
			age := int(members.Add(1))
			return sinkWith{Sink: s, load: func(driver.Sink) int { return age }}
		}}
	}},
	{"S12", "takes another Bus", func() *broken {
		return &broken{again: true}
	}},
	{"S12", "does not report a missing responder", func() *broken {
		return &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if err := d.Request(ctx, m); !errors.Is(err, driver.ErrNoResponders) {
				return err
			}
			return nil
		}}
	}},
	{"S12", "sends a request whose caller has left", func() *broken {
		return &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			_ = d.Request(context.WithoutCancel(ctx), m) // no goroutine: it would outlive its case
			return nil
		}}
	}},
	{"S12", "passes no deadline on", func() *broken {
		return changing(func(m *driver.Message) { m.Deadline = time.Time{} })
	}},
	{"S12", "gives an answer to the latest request", func() *broken {
		var last atomic.Uint64
		b := &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			last.Store(m.ID)
			return d.Request(ctx, m)
		}}
		b.attach = func(f driver.Front) driver.Front { return lastFront{f, &last} }
		return b
	}},
	{"S12", "answers twice", func() *broken {
		return &broken{answer: func(d driver.Driver, ctx context.Context, r, a driver.Message) error {
			return errors.Join(d.Answer(ctx, r, a), d.Answer(ctx, r, a))
		}}
	}},
	{"S12", "makes data of an error", func() *broken {
		return changing(func(m *driver.Message) { m.Err = nil })
	}},
	{"S12", "does not report the death of a responder", func() *broken {
		return &broken{attach: func(f driver.Front) driver.Front {
			return frontWith{Front: f, fail: func(driver.Front, uint64, error) {}}
		}}
	}},
	{"S12", "does not report the death of a responder that has a request for two groups", func() func() *broken {
		const mask = 1<<idBits - 1
		had := new(sync.Map) // counts of deliveries by the number of a request
		count := func(id uint64) *atomic.Int64 {
			n, _ := had.LoadOrStore(id&mask, new(atomic.Int64))
			return n.(*atomic.Int64)
		}
		return func() *broken {
			return &broken{sink: func(s driver.Sink) driver.Sink {
				return sinkWith{Sink: s, deliver: func(s driver.Sink, m driver.Message) bool {
					if m.Kind == driver.Request {
						count(m.ID).Add(1)
					}
					return s.Deliver(m)
				}}
			}, attach: func(f driver.Front) driver.Front {
				had.Clear() // a new process
				return frontWith{Front: f, fail: func(f driver.Front, id uint64, err error) {
					if count(id).Load() < 2 {
						f.Fail(id, err)
					}
				}}
			}}
		}
	}()},
	{"S12", "drops the answer of a process that was asked for two groups", func() *broken {
		had := new(sync.Map)
		return &broken{sink: func(s driver.Sink) driver.Sink {
			return sinkWith{Sink: s, deliver: func(s driver.Sink, m driver.Message) bool {
				if _, again := had.LoadOrStore(m.ID, true); again && m.Kind == driver.Request {
					return true // it is counted, and nobody handles it
				}
				return s.Deliver(m)
			}}
		}}
	}},
	{"S13", "asks every responder", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			if s.Kind == driver.Request {
				s.Group = ""
			}
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S13", "makes a group of those that have none", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			if s.Group == "" {
				s.Group = "default"
			}
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S14", "loses the end marker", func() *broken { return changing(func(m *driver.Message) { m.End = false }) }},
	{"S14", "passes one answer on", func() *broken {
		var mu sync.Mutex
		answered := map[uint64]bool{}
		return &broken{answer: func(d driver.Driver, ctx context.Context, r, a driver.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if answered[r.ID] {
				return nil
			}
			answered[r.ID] = true
			return d.Answer(ctx, r, a)
		}}
	}},
	{"S15", "ends a subscription whose handler is behind", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool {
			if s.Load() > 100 {
				s.Fail(driver.ErrTerminated)
			}
			return s.Deliver(m)
		})
	}},
	{"S16", "loses headers", func() *broken { return changing(func(m *driver.Message) { m.Header = nil }) }},
	{"S16", "loses a header without a text", func() *broken {
		return changing(func(m *driver.Message) {
			m.Header = maps.Clone(m.Header)
			maps.DeleteFunc(m.Header, func(_ string, values []string) bool { return strings.Join(values, "") == "" })
		})
	}},
	{"S16", "loses the baggage of requests", func() *broken {
		return changing(func(m *driver.Message) {
			if m.Kind == driver.Request {
				m.Header = maps.Clone(m.Header)
				delete(m.Header, "baggage")
			}
		})
	}},
	{"S16", "writes headers as HTTP does", func() *broken {
		return changing(func(m *driver.Message) {
			h := driver.Header{}
			for key, values := range m.Header {
				for _, v := range values {
					h.Add(textproto.CanonicalMIMEHeaderKey(key), v)
				}
			}
			m.Header = h
		})
	}},
	{"S16", "keeps the last value of a header", func() *broken {
		return changing(func(m *driver.Message) {
			h := driver.Header{}
			for key, values := range m.Header {
				h.Set(key, values[len(values)-1])
			}
			m.Header = h
		})
	}},
	{"S17", "takes less than all others", func() *broken {
		return &broken{info: func(i driver.Info) driver.Info { i.MaxPayload = 1 << 19; return i }}
	}},
	{"S17", "drops what is large", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool { return len(m.Data) > 1<<19 || s.Deliver(m) })
	}},
	{"S18", "makes nil of what is empty", func() *broken {
		return changing(func(m *driver.Message) {
			if len(m.Data) == 0 {
				m.Data = nil
			}
		})
	}},
	{"S18", "ends data at a zero", func() *broken {
		return changing(func(m *driver.Message) { m.Data = []byte(strings.SplitN(string(m.Data)+"\x00", "\x00", 2)[0]) })
	}},
	{"S19", "keeps from a publisher what it has published", func() *broken { return deaf() }},
	{"S20", "gives a message a deadline that nobody has asked for", func() *broken {
		return changing(func(m *driver.Message) {
			if m.Kind == driver.Event {
				m.Deadline = time.Now().Add(100 * time.Millisecond)
			}
		})
	}},
	{"S21", "ends a subscription where its registration is to be ended", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			return failing{i, s.Sink}, err
		}}
	}},
	{"S21", "loses what is on its way when it is drained", func() *broken {
		o := &outbox{}
		return &broken{publish: o.publish}
	}},
	{"S22", "leaves something running when it is closed", func() *broken {
		return &broken{close: func(d driver.Driver, ctx context.Context) error {
			go time.Sleep(time.Hour)
			return d.Close(ctx)
		}}
	}},
	{"S22", "fails to close again", func() *broken {
		var closed atomic.Bool
		return &broken{close: func(d driver.Driver, ctx context.Context) error {
			if closed.Swap(true) {
				return driver.ErrClosed
			}
			return d.Close(ctx)
		}}
	}},
	{"S22", "takes its time to close", func() *broken {
		return &broken{close: func(d driver.Driver, ctx context.Context) error {
			time.Sleep(4 * time.Second)
			return d.Close(ctx)
		}}
	}},
	{"S22", "lets a Flush wait although it is closed", func() *broken {
		return &broken{flush: func(d driver.Driver, ctx context.Context) error {
			err := d.Flush(ctx)
			if errors.Is(err, driver.ErrClosed) {
				<-ctx.Done()
			}
			return err
		}}
	}},
	{"S22", "lets a Publish wait although it is closed", func() *broken {
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			err := d.Publish(ctx, m)
			if errors.Is(err, driver.ErrClosed) {
				<-ctx.Done()
			}
			return err
		}}
	}},
	{"S23", "reports no gap", func() *broken {
		return &broken{sink: func(s driver.Sink) driver.Sink { return sinkWith{Sink: s, gap: func(driver.Sink, int) {}} }}
	}},
	{"S21", "does not report how much it has not sent", func() *broken {
		return &broken{flush: func(d driver.Driver, ctx context.Context) error {
			err := d.Flush(ctx)
			if ctx.Err() != nil {
				return errors.Join(driver.ErrDisconnected, ctx.Err())
			}
			return err
		}}
	}},
	{"S21", "reports that it has not sent 0 messages", func() *broken {
		return &broken{flush: func(d driver.Driver, ctx context.Context) error {
			err := d.Flush(ctx)
			if err == nil && ctx.Err() != nil {
				return fmt.Errorf("0 accepted messages not confirmed: %w", ctx.Err())
			}
			return err
		}}
	}},
	{"S21", "waits for a backend that is away, with nothing left to send", func() *broken {
		away := new(atomic.Bool)
		b := &broken{flush: func(d driver.Driver, ctx context.Context) error {
			if away.Load() {
				<-ctx.Done()
				return driver.ErrDisconnected
			}
			return d.Flush(ctx)
		}}
		b.attach = func(f driver.Front) driver.Front {
			return frontWith{Front: f, disconnected: func(f driver.Front, err error) { away.Store(true); f.Disconnected(err) }}
		}
		return b
	}},
	{"S23", "reports no gap to a subscription that ends meanwhile", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			i, err := d.Subscribe(ctx, s)
			return silent{i}, err
		}}
	}},
	{"S23", "reports no gap to a responder", func() *broken {
		return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
			if s.Kind == driver.Request {
				s.Sink = sinkWith{Sink: s.Sink, gap: func(driver.Sink, int) {}}
			}
			return d.Subscribe(ctx, s)
		}}
	}},
	{"S23", "reports each gap twice", func() *broken {
		return &broken{sink: func(s driver.Sink) driver.Sink {
			return sinkWith{Sink: s, gap: func(s driver.Sink, n int) { s.Gap(n); s.Gap(n) }}
		}}
	}},
	{"S23", "reports a gap after the first message", func() *broken {
		return &broken{sink: func(s driver.Sink) driver.Sink {
			var owed atomic.Bool
			return sinkWith{Sink: s, gap: func(driver.Sink, int) { owed.Store(true) }, deliver: func(s driver.Sink, m driver.Message) bool {
				defer func() {
					if owed.Swap(false) {
						s.Gap(-1)
					}
				}()
				return s.Deliver(m)
			}}
		}}
	}},
	{"S23", "does not report a disconnect", func() *broken {
		return &broken{attach: func(f driver.Front) driver.Front {
			return frontWith{Front: f, disconnected: func(driver.Front, error) {}}
		}}
	}},
	{"S23", "waits with requests until it is connected", func() *broken {
		return &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			for err := d.Request(ctx, m); ; err = d.Request(ctx, m) {
				if !errors.Is(err, driver.ErrDisconnected) || time.Now().After(m.Deadline) {
					return err
				}
				time.Sleep(time.Second)
			}
		}}
	}},
	{"S23", "drops what is published meanwhile", func() *broken {
		return &broken{publish: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if d.(*node).away.Load() {
				return nil
			}
			return d.Publish(ctx, m)
		}}
	}},
	{"S24", "forgets when a message expires", func() *broken {
		return changing(func(m *driver.Message) {
			if m.Kind == driver.Event {
				m.Deadline = time.Time{}
			}
		})
	}},
	{"S24", "lets a message expire a second late", func() *broken {
		return changing(func(m *driver.Message) {
			if m.Kind == driver.Event && !m.Deadline.IsZero() {
				m.Deadline = m.Deadline.Add(time.Second)
			}
		})
	}},
	{"S25", "does not count hops", func() *broken {
		return changing(func(m *driver.Message) { m.Hops = 0 })
	}},
	{"S25", "has words of its own", func() *broken {
		return &broken{request: func(d driver.Driver, ctx context.Context, m driver.Message) error {
			if err := d.Request(ctx, m); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}}
	}},
	{"S26", "waits until a sink that is behind has room", func() *broken {
		return delivering(func(s driver.Sink, m driver.Message) bool {
			if s.Load() > 10 {
				time.Sleep(time.Minute)
			}
			return s.Deliver(m)
		})
	}},
}

// members counts sinks, so that each is older than the next.
var members atomic.Int64

// lateInterest is one that is still to be made.
type lateInterest struct {
	made         chan struct{}
	registration driver.Registration
}

func (l *lateInterest) End(ctx context.Context) error {
	<-l.made
	if l.registration == nil {
		return nil
	}
	return l.registration.End(ctx)
}

// losingAtTheEnd delivers a moment later, and not what is on its way when the
// registration ends.
func losingAtTheEnd() *broken {
	return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
		ended := new(atomic.Bool)
		s.Sink = sinkWith{Sink: s.Sink, deliver: func(s driver.Sink, m driver.Message) bool {
			time.AfterFunc(time.Millisecond, func() {
				if !ended.Load() {
					s.Deliver(m)
				}
			})
			return true
		}}
		i, err := d.Subscribe(ctx, s)
		return hasty{i, ended}, err
	}}
}

// groupsByName has every message for one member of all patterns of a name.
func groupsByName() *broken {
	var mu sync.Mutex
	seen := map[string]int{}
	return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
		if s.Group == "" {
			return d.Subscribe(ctx, s)
		}
		s.Sink = sinkWith{Sink: s.Sink, deliver: func(sink driver.Sink, m driver.Message) bool {
			mu.Lock()
			defer mu.Unlock()
			if seen[s.Group]++; seen[s.Group]%2 == 0 {
				return true
			}
			return sink.Deliver(m)
		}}
		return d.Subscribe(ctx, s)
	}}
}

// groupsByText has every message for the first of the groups whose names and patterns
// make up the same text.
func groupsByText() *broken {
	var mu sync.Mutex
	first := map[string]string{}
	return &broken{subscribe: func(d driver.Driver, ctx context.Context, s driver.Subscription) (driver.Registration, error) {
		mu.Lock()
		defer mu.Unlock()
		text := s.Group + ":" + s.Pattern
		if _, known := first[text]; !known {
			first[text] = s.Pattern
		}
		if s.Group != "" && first[text] != s.Pattern {
			s.Sink = sinkWith{Sink: s.Sink, deliver: func(driver.Sink, driver.Message) bool { return true }}
		}
		return d.Subscribe(ctx, s)
	}}
}

// lastFront takes every answer for one to the last request.
type lastFront struct {
	driver.Front
	last *atomic.Uint64
}

func (f lastFront) Answer(m driver.Message) {
	m.ID = f.last.Load()
	f.Front.Answer(m)
}

// deaf does not hear itself.
func deaf() *broken {
	var speaking atomic.Bool
	b := delivering(func(s driver.Sink, m driver.Message) bool { return speaking.Load() || s.Deliver(m) })
	b.publish = func(d driver.Driver, ctx context.Context, m driver.Message) error {
		speaking.Store(true)
		defer speaking.Store(false)
		return d.Publish(ctx, m)
	}
	return b
}

// failing is a registration whose end is an end of the subscription.
type failing struct {
	driver.Registration
	sink driver.Sink
}

func (f failing) End(ctx context.Context) error {
	f.sink.Fail(driver.ErrTerminated)
	return f.Registration.End(ctx)
}
