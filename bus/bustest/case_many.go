package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/megaframework/mega/bus"
)

var manyCases = []testCase{
	{rule: "S14", claim: "RequestMany ends after Count answers", run: manyByCount},
	{rule: "S14", claim: "RequestMany ends when answers stall, and a slow consumer is no stall", run: manyByStall},
	{rule: "S14", claim: "answers that come one after the other are no stall, however long they take together", run: manyInTurn},
	{rule: "S14", claim: "RequestMany ends at its deadline, without an error if there were answers", run: manyByDeadline},
	{rule: "S14", claim: "RequestMany ends at the end marker", run: manyByEnd},
	{rule: "S14", claim: "RequestMany ends when the consumer breaks, and leaves nothing behind", run: manyByBreak},
	{rule: "S14", claim: "answers that were read do not count as waiting", fake: true, run: manyRead},
	{rule: "S14", claim: "RequestMany ends when too many answers wait for the consumer", run: manyUnread},
	{rule: "S14", claim: "no responder is an error, and so is no answer", run: manyNobody},
	{rule: "S14", claim: "the error of a responder is one of the answers", run: manyFailures},
	{rule: "S14", claim: "every group answers once, and every responder without a group answers", run: manyGroups},
}

// gathered is what a RequestMany of x has yielded.
func (p *process) gathered(ctx context.Context, opts ...bus.ManyOption) (data []string, errs []error) {
	for m, err := range p.RequestMany(ctx, "x", nil, opts...) {
		if err != nil {
			errs = append(errs, err)
		} else {
			data = append(data, string(m.Data))
		}
	}
	slices.Sort(data)
	return data, errs
}

// answerers are n responders of no group, which answer their number.
func (e *env) answerers(b *process, n int) {
	for i := range n {
		b.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { return []byte(fmt.Sprint(i)), nil }, bus.Group(""))
	}
}

func manyByCount(e *env) {
	a, b := e.pair()
	e.answerers(b, 5)
	before := time.Now()
	for range 20 {
		data, errs := a.gathered(e.Ctx, bus.Count(3))
		e.Want(len(data) == 3 && len(errs) == 0, "got %q, %v", data, errs)
	}
	data, errs := a.gathered(e.Ctx, bus.Count(5))
	e.Want(slices.Equal(data, []string{"0", "1", "2", "3", "4"}) && len(errs) == 0, "got %q, %v", data, errs)
	e.took(before, 0, 20, "counting answers")
	e.Want(a.Stats().InFlight == 0, "%d are in flight", a.Stats().InFlight)
}

func manyByStall(e *env) {
	a, b := e.pair()
	e.answerers(b, 3)
	g := e.gate()
	b.respond("x", func(ctx context.Context, _ *bus.Msg) ([]byte, error) { g.pass(ctx); return []byte("slow"), nil }, bus.Group(""))
	before := time.Now()
	data, errs := a.gathered(e.Ctx, bus.Stall(e.Units(2)))
	e.Want(len(data) == 3 && len(errs) == 0, "got %q, %v", data, errs)
	e.took(before, e.Units(2), 10, "to stall")
	n := 0
	for _, err := range a.RequestMany(e.Ctx, "x", nil, bus.Stall(e.Units(1)), bus.Count(3)) {
		e.Must(err, "an answer")
		e.Pass(2)
		n++
	}
	e.Want(n == 3, "a slow consumer got %d of 3", n)
	g.open()
}

func manyInTurn(e *env) {
	a, b := e.pair()
	const n, pause, stall = 6, 5, 20
	b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		for i := range n {
			if err := m.Reply(ctx, []byte(fmt.Sprint(i))); err != nil {
				e.Report("reply: %w", err)
			}
			e.Pass(pause)
		}
		return nil, bus.ErrEnd
	})
	ctx, cancel := e.within(100 * n * pause)
	defer cancel()
	data, errs := a.gathered(ctx, bus.Stall(e.Units(stall)))
	e.Want(len(data) == n && len(errs) == 0, "of %d answers in %v, with a stall of %v, came %q, %v", n, e.Units(n*pause), e.Units(stall), data, errs)
}

// manyRead reads more bytes than may wait, while one answer waits.
func manyRead(e *env) {
	a, b := e.pair()
	const n, size = 80, 1 << 20
	data := make([]byte, size-1<<10)
	read := make(chan struct{}, n+1)
	read <- struct{}{}
	b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		for range n {
			if err := m.Reply(ctx, data); err != nil {
				e.Report("reply: %w", err)
				break
			}
			select {
			case <-read:
			case <-ctx.Done():
			}
		}
		return nil, bus.ErrEnd
	})
	got := 0
	ctx, cancel := e.within(n)
	defer cancel()
	for m, err := range a.RequestMany(ctx, "x", nil) {
		e.Must(err, "answer %d", got)
		e.Want(len(m.Data) == len(data), "answer %d has %d bytes", got, len(m.Data))
		got++
		read <- struct{}{}
		e.Pass(0.1) // the next but one arrives
	}
	e.Want(got == n, "%d of %d answers came", got, n)
}

func manyByDeadline(e *env) {
	a, b := e.pair()
	e.answerers(b, 2)
	before := time.Now()
	ctx, cancel := e.within(2)
	defer cancel()
	data, errs := a.gathered(ctx)
	e.Want(len(data) == 2 && len(errs) == 0, "got %q, %v", data, errs)
	e.took(before, e.Units(2), 10, "the deadline")
	cause := errors.New("left")
	left, leave := context.WithCancelCause(e.Ctx)
	time.AfterFunc(e.Units(1), func() { leave(cause) })
	data, errs = a.gathered(left)
	e.Want(len(data) == 2 && len(errs) == 1 && errors.Is(errs[0], cause), "a caller that leaves: %q, %v", data, errs)
}

func manyByEnd(e *env) {
	a, b := e.pair()
	b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
		for i := range 10 {
			if err := m.Reply(ctx, []byte(fmt.Sprint(i))); err != nil {
				e.Report("reply: %w", err)
			}
		}
		return nil, bus.ErrEnd
	})
	before := time.Now()
	data, errs := a.gathered(e.Ctx)
	e.Want(slices.Equal(data, numbers(0, 9)) && len(errs) == 0, "got %q, %v", data, errs)
	e.took(before, 0, 10, "the end marker")
	e.Want(len(eventsOf[bus.HandlerFailed](b)) == 0, "the end marker is reported as a failure")
}

func manyByBreak(e *env) {
	a, b := e.pair()
	e.answerers(b, 5)
	for range 50 {
		for _, err := range a.RequestMany(e.Ctx, "x", nil) {
			e.Must(err, "an answer")
			break
		}
	}
	e.Want(a.Stats().InFlight == 0, "%d are in flight", a.Stats().InFlight)
	data, errs := a.gathered(e.Ctx, bus.Count(5))
	e.Want(slices.Equal(data, []string{"0", "1", "2", "3", "4"}) && len(errs) == 0, "the next one got %q, %v", data, errs)
}

func manyNobody(e *env) {
	a, b := e.pair()
	b.listen(">")
	before := time.Now()
	data, errs := a.gathered(e.Ctx)
	e.Want(len(data) == 0 && len(errs) == 1 && errors.Is(errs[0], bus.ErrNoResponders), "got %q, %v", data, errs)
	e.took(before, 0, 10, "to report a missing responder")
	g := e.gate()
	b.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { <-g.c; return nil, nil })
	ctx, cancel := e.within(1)
	defer cancel()
	data, errs = a.gathered(ctx)
	e.Want(len(data) == 0 && len(errs) == 1 && errors.Is(errs[0], bus.ErrTimeout), "got %q, %v", data, errs)
	g.open()
}

func manyFailures(e *env) {
	a, b := e.pair()
	e.answerers(b, 2)
	b.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { return nil, codedError{} }, bus.Group(""))
	b.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { panic("x") }, bus.Group(""))
	data, errs := a.gathered(e.Ctx, bus.Count(4))
	e.Want(len(data) == 2 && len(errs) == 2, "got %q, %v", data, errs)
	for _, err := range errs {
		e.Want(errors.As(err, new(*bus.RemoteError)), "got %v", err)
	}
}

func manyGroups(e *env) {
	a, b := e.pair()
	for _, p := range []*process{a, b, b} {
		p.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("default"), nil })
		p.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("named"), nil }, bus.Group("g"))
		p.respond("*", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("wide"), nil })
		p.respond("x", func(context.Context, *bus.Msg) ([]byte, error) { return []byte("each"), nil }, bus.Group(""))
	}
	data, errs := a.gathered(e.Ctx, bus.Stall(e.Units(2)))
	e.Want(slices.Equal(data, []string{"default", "each", "each", "each", "named", "wide"}) && len(errs) == 0, "got %q, %v", data, errs)
}

// manyUnread reads one answer, and goes on when all others have been sent.
func manyUnread(e *env) {
	a, b := e.pair()
	for _, c := range []struct {
		name             string
		sent, size, most int
	}{
		{"in number", 65_536 + 10, 0, 65_536}, // S14
		{"in bytes", 70, 1<<20 - 1<<10, 64 << 20 / (1<<20 - 1<<10)},
	} {
		s := b.respond("x", func(ctx context.Context, m *bus.Msg) ([]byte, error) {
			data := make([]byte, c.size)
			for range c.sent {
				if err := m.Reply(ctx, data); err != nil {
					e.Report("reply: %w", err)
					break
				}
			}
			return nil, bus.ErrEnd
		})
		ctx, cancel := context.WithTimeout(e.Ctx, 10*e.Patience())
		n, late := 0, a.Stats().Late
		var last error
		for m, err := range a.RequestMany(ctx, "x", nil) {
			if last = err; err != nil {
				break
			}
			e.Want(len(m.Data) == c.size, "an answer has %d bytes", len(m.Data))
			if n++; n == 1 {
				// 64 MiB take a while under the race detector.
				e.Eventually(8*e.Patience(), "what is too much comes", func() bool { return a.Stats().Late > late })
			}
		}
		cancel()
		e.Is(last, bus.ErrOverloaded, "the end, bounded %s", c.name)
		e.Want(n >= c.most && n <= c.most+1, "bounded %s: got %d answers, want %d", c.name, n, c.most)
		e.Want(a.Stats().InFlight == 0, "%d are in flight", a.Stats().InFlight)
		ctx, cancel = e.Bounded()
		e.Must(s.Drain(ctx), "drain")
		cancel()
	}
}
