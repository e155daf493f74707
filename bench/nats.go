package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/megaframework/mega/bus"
	"github.com/megaframework/mega/drivers/nats"
	natstest "github.com/megaframework/mega/internal/testkit/nats"
	redistest "github.com/megaframework/mega/internal/testkit/redis"
)

// brokerArg makes this program a NATS server, which prints its address, and
// ends with its input.
const brokerArg = "broker"

func serveNATS(_ context.Context, in io.Reader, out io.Writer) error {
	s, err := natstest.New(natstest.Options{})
	if err != nil {
		return err
	}
	defer s.Stop()
	if _, err := fmt.Fprintln(out, s.URL()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// broker is a NATS server in a separate process.
type broker struct {
	process *redistest.Process
	stdin   io.Closer
	url     string
}

func startBroker() (*broker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	cmd := exec.Command(self, brokerArg)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		return nil, err
	}
	b := &broker{process: p, stdin: stdin}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start NATS: read its address: %w", err), b.stop())
	}
	b.url = strings.TrimSpace(line)
	return b, nil
}

func (b *broker) stop() error {
	_ = b.stdin.Close() // it ends with the server
	select {
	case <-b.process.Done():
		return b.process.Wait()
	case <-time.After(5 * time.Second):
		return b.process.Kill()
	}
}

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

func openPair(ctx context.Context, l *lab) (p *natsPair, err error) {
	url, err := l.nats()
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

// natsPublish publishes events without a subscriber, so that only the way from
// the caller to the server is measured. Slices alternate; each ends when the
// server has confirmed all of it.
func natsPublish(ctx context.Context, l *lab) (claims []claim, err error) {
	p, err := openPair(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	plain, headed := samples{}, samples{}
	for range l.reps(9) {
		if err := publishRep(l, p.publishers(ctx), plain); err != nil {
			return nil, err
		}
		if err := publishRep(l, p.publishersWithHeader(ctx), headed); err != nil {
			return nil, err
		}
	}
	return []claim{
		plain.ratio("events/s of 128 B", "/s", natsGo, natsGo).atLeast(0.7),
		headed.ratio("the same with a header", "/s", natsGo, natsGo).atLeast(0.5),
	}, nil
}

// publishers are the contestants, in the order of turn.
func (p *natsPair) publishers(ctx context.Context) []contestant {
	return []contestant{
		{mega, p.flushed(ctx, func() error { return p.bus.Publish(ctx, subject, p.data) })},
		{natsGo, p.rawFlushed(func() error {
			return p.plain.PublishMsg(&natsgo.Msg{Subject: p.subject, Data: p.data})
		})},
	}
}

func (p *natsPair) publishersWithHeader(ctx context.Context) []contestant {
	const key, value = "Tenant", "acme"
	return []contestant{
		{mega, p.flushed(ctx, func() error { return p.bus.Publish(ctx, subject, p.data, bus.Header(key, value)) })},
		{natsGo, p.rawFlushed(func() error {
			return p.plain.PublishMsg(&natsgo.Msg{Subject: p.subject, Data: p.data, Header: natsgo.Header{key: {value}}})
		})},
	}
}

func (p *natsPair) flushed(ctx context.Context, op func() error) batch {
	return func(n int) error { return errors.Join(each(op)(n), p.bus.Flush(ctx)) }
}

func (p *natsPair) rawFlushed(op func() error) batch {
	return func(n int) error { return errors.Join(each(op)(n), p.plain.Flush()) }
}

// contestant does something n times.
type contestant struct {
	name string
	do   batch
}

// publishRep adds the publish rate of each contestant: the size of a batch divided
// by the median duration of its batches.
func publishRep(l *lab, who []contestant, rates samples) error {
	const size = 10_000
	slices := make([][]time.Duration, len(who))
	for round := range l.scaled(20) {
		for _, i := range turn(len(who), round) {
			start := time.Now()
			if err := who[i].do(size); err != nil {
				return fmt.Errorf("%s: %w", who[i].name, err)
			}
			slices[i] = append(slices[i], time.Since(start))
		}
	}
	for i, c := range who {
		rates.add(c.name, size/median(slices[i]).Seconds())
	}
	return nil
}

// natsRequest requests and waits for the answer, which another connection of
// this process gives; the contestants alternate request by request.
func natsRequest(ctx context.Context, l *lab) (claims []claim, err error) {
	p, err := openPair(ctx, l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	who, err := p.askers(ctx)
	if err != nil {
		return nil, err
	}
	asked := samples{}
	for range l.reps(9) {
		if err := requestRep(l, who, asked); err != nil {
			return nil, err
		}
	}
	return []claim{asked.ratio("request, p50", "µs", natsGo, natsGo).atMost(1.15)}, nil
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
		{mega, each(func() error {
			_, err := p.bus.Request(ctx, requested, p.data)
			return err
		})},
		{natsGo, each(func() error {
			_, err := p.plain.Request(p.requested, p.data, 5*time.Second)
			return err
		})},
	}, p.replying.Flush()
}

func requestRep(l *lab, who []contestant, asked samples) error {
	took := make([][]time.Duration, len(who))
	for round := range l.scaled(1000) {
		for _, i := range turn(len(who), round) {
			start := time.Now()
			if err := who[i].do(1); err != nil {
				return fmt.Errorf("%s: %w", who[i].name, err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	for i, c := range who {
		asked.add(c.name, micros(median(took[i])))
	}
	return nil
}
