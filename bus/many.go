package bus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/megaframework/mega/bus/driver"
)

// The bounds of the answers that wait for the consumer of a RequestMany, in
// number and in bytes of data and headers (S14).
const (
	maxAnswers     = DefaultBuffer
	maxAnswerBytes = DefaultBufferBytes
)

// many holds the options of a RequestMany.
type many struct {
	publish []PubOption
	count   int
	stall   time.Duration
	err     error
}

type manyOption func(*many)

func (o manyOption) applyMany(m *many) { o(m) }

func (o PubOption) applyMany(m *many) { m.publish = append(m.publish, o) }

// Count ends a RequestMany after n answers.
func Count(n int) ManyOption {
	return manyOption(func(m *many) {
		m.count = n
		if n < 1 {
			m.err = invalid("Count is %d, want at least 1", n)
		}
	})
}

// Stall ends a RequestMany if, after the first answer, no further one arrives
// for d. The consumer's own time does not count.
func Stall(d time.Duration) ManyOption {
	return manyOption(func(m *many) {
		m.stall = d
		if d <= 0 {
			m.err = invalid("Stall is %v, want more than 0", d)
		}
	})
}

// RequestMany sends a request to the responders of subject and yields every
// answer: one of each group, and one of each responder without a group (see
// [Group]). A responder that fails yields a *RemoteError, and further answers
// may follow.
//
// The iteration ends after [Count] answers, when answers [Stall], when a
// responder returns ErrEnd, when the consumer breaks, and at the deadline,
// which is ctx's or Config.Timeout from now. A slow consumer gets all answers from
// before the deadline. None of these is an error, except that the deadline yields
// ErrTimeout if no answer came. Any other error ends the iteration: for example,
// if 65 536 answers or 64 MiB of them wait for the consumer, it gets these and then
// ErrOverloaded. The request is sent when the iteration begins.
func (b *Bus) RequestMany(ctx context.Context, subject string, data []byte, opts ...ManyOption) iter.Seq2[*Msg, error] {
	return func(yield func(*Msg, error) bool) {
		if err := b.requestMany(ctx, subject, data, opts, yield); err != nil {
			yield(nil, fmt.Errorf("request %s: %w", shorten(subject), err))
		}
	}
}

func (b *Bus) requestMany(ctx context.Context, subject string, data []byte, opts []ManyOption, yield func(*Msg, error) bool) error {
	var o many
	for _, opt := range opts {
		if opt != nil {
			opt.applyMany(&o)
		}
	}
	if o.err != nil {
		return o.err
	}
	m := driver.Message{Kind: driver.Request, Subject: subject}
	if err := b.composeRequest(ctx, &m, data, o.publish); err != nil {
		return err
	}
	c, err := b.calls.open(o.count, &m)
	if err != nil {
		return err
	}
	defer b.calls.end(c)
	if s := b.beginAsking(ctx, subject); s != nil {
		defer s.endAsking(ctx)
	}
	m.ID = c.id
	b.counters.requested.Add(1)
	if err := b.driver.Request(ctx, m); err != nil {
		return b.failed(ctx, err)
	}
	return b.gather(ctx, c, &o, m.Deadline, yield)
}

// gather yields the answers of a call until it ends. Answers from before the
// deadline are yielded after it, too, if the consumer is slow.
func (b *Bus) gather(ctx context.Context, c *call, o *many, deadline time.Time, yield func(*Msg, error) bool) error {
	ending := time.AfterFunc(time.Until(deadline), func() { c.fail(errDeadline) })
	defer ending.Stop()
	var stall *time.Timer
	if o.stall > 0 {
		stall = time.NewTimer(o.stall)
		defer stall.Stop()
	}
	for n := 0; o.count == 0 || n < o.count; {
		var stalled <-chan time.Time
		if n > 0 && stall != nil {
			stall.Reset(o.stall)
			stalled = stall.C
		}
		select {
		case <-c.news:
		case <-stalled:
			return b.endedByTime(ctx, n)
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return b.endedByTime(ctx, n)
			}
			c.fail(errDeadline)
		}
		m, err := c.take()
		switch {
		case errors.Is(err, errDeadline):
			return b.endedByTime(ctx, n)
		case err != nil:
			return b.failed(ctx, err)
		case m.End:
			return nil
		}
		n++
		if !yield(b.received(c, &m)) {
			return nil
		}
	}
	return nil
}

// endedByTime returns the result of a call that ended by time. After an answer, the end of
// the time is neither an error nor a request that has timed out.
func (b *Bus) endedByTime(ctx context.Context, answers int) error {
	canceled := ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
	if answers > 0 && !canceled && !b.isClosed() {
		return nil
	}
	return b.timedOut(ctx)
}
