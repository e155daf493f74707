package buses

import (
	"context"
	"errors"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bench/internal/lab"
	"github.com/megaframework/mega/bench/internal/measure"
	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
)

// natsGo is the client that mega's driver is made of, used directly.
const natsGo = "nats.go"

// natsPair is mega and the client beside it, at one server, each with two
// connections: one that publishes and requests, and one that responds.
type natsPair struct {
	bus, answering     *bus.Bus
	plain, replying    *natsgo.Conn
	closers            []func() error
	data               []byte
	subject, requested string // the client's names for mega's subjects
}

func openPair(ctx context.Context, l *lab.Lab) (p *natsPair, err error) {
	url, err := l.NATS()
	if err != nil {
		return nil, err
	}
	p = &natsPair{data: make([]byte, eventSize), subject: "raw.product.sold", requested: "raw.stock.get"}
	for _, b := range []**bus.Bus{&p.bus, &p.answering} {
		if *b, err = openNATS(ctx, url); err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.closers = append(p.closers, (*b).Close)
	}
	for _, conn := range []**natsgo.Conn{&p.plain, &p.replying} {
		if *conn, err = natsgo.Connect(url); err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.closers = append(p.closers, func() error { (*conn).Close(); return nil })
	}
	return p, nil
}

// openNATS is mega on NATS, as its users open it.
func openNATS(ctx context.Context, url string) (*bus.Bus, error) {
	d, err := nats.OpenBus(ctx, nats.Config{URL: url})
	if err != nil {
		return nil, err
	}
	return bus.New(d, bus.Config{})
}

func (p *natsPair) close() error {
	var errs []error
	for _, c := range p.closers {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// NATSPublish publishes events without a subscriber, so that only the way from
// the caller to the server is measured. Slices alternate; each ends when the
// server has confirmed all of it.
func NATSPublish(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	p, err := openPair(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	plain, headed := measure.Samples{}, measure.Samples{}
	for range l.Reps(9) {
		if err := publishRep(l, p.publishers(ctx), plain); err != nil {
			return nil, err
		}
		if err := publishRep(l, p.publishersWithHeader(ctx), headed); err != nil {
			return nil, err
		}
	}
	return []measure.Claim{
		plain.Ratio("events/s of 128 B", "/s", natsGo, natsGo).AtLeast(0.7),
		headed.Ratio("the same with a header", "/s", natsGo, natsGo).AtLeast(0.5),
	}, nil
}

// publishers are the contestants, in the order of turn.
func (p *natsPair) publishers(ctx context.Context) []contestant {
	return []contestant{
		{measure.Mega, p.flushed(ctx, func() error { return p.bus.Publish(ctx, subject, p.data) })},
		{natsGo, p.rawFlushed(func() error {
			return p.plain.PublishMsg(&natsgo.Msg{Subject: p.subject, Data: p.data})
		})},
	}
}

func (p *natsPair) publishersWithHeader(ctx context.Context) []contestant {
	const key, value = "Tenant", "acme"
	return []contestant{
		{measure.Mega, p.flushed(ctx, func() error { return p.bus.Publish(ctx, subject, p.data, bus.Header(key, value)) })},
		{natsGo, p.rawFlushed(func() error {
			return p.plain.PublishMsg(&natsgo.Msg{Subject: p.subject, Data: p.data, Header: natsgo.Header{key: {value}}})
		})},
	}
}

func (p *natsPair) flushed(ctx context.Context, op func() error) measure.Batch {
	return func(n int) error { return errors.Join(measure.Each(op)(n), p.bus.Flush(ctx)) }
}

func (p *natsPair) rawFlushed(op func() error) measure.Batch {
	return func(n int) error { return errors.Join(measure.Each(op)(n), p.plain.Flush()) }
}

// NATSRequest requests and waits for the answer, which another connection of
// this process gives; the contestants alternate request by request.
func NATSRequest(ctx context.Context, l *lab.Lab) (claims []measure.Claim, err error) {
	p, err := openPair(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	who, err := p.askers(ctx)
	if err != nil {
		return nil, err
	}
	asked := measure.Samples{}
	for range l.Reps(9) {
		if err := requestRep(l, who, asked); err != nil {
			return nil, err
		}
	}
	return []measure.Claim{asked.Ratio("request, p50", "µs", natsGo, natsGo).AtMost(1.15)}, nil
}

func (p *natsPair) askers(ctx context.Context) ([]contestant, error) {
	const requested = "stock.get"
	_, err := p.answering.Respond(ctx, requested, func(_ context.Context, m *bus.Msg) ([]byte, error) { return m.Data, nil })
	if err != nil {
		return nil, err
	}
	_, err = p.replying.Subscribe(p.requested, func(m *natsgo.Msg) { _ = m.Respond(m.Data) }) // the requester receives the error
	if err != nil {
		return nil, err
	}
	return []contestant{
		{measure.Mega, measure.Each(func() error {
			_, err := p.bus.Request(ctx, requested, p.data)
			return err
		})},
		{natsGo, measure.Each(func() error {
			_, err := p.plain.Request(p.requested, p.data, 5*time.Second)
			return err
		})},
	}, p.replying.Flush()
}
