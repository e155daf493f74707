package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/megaframework/mega/bus/driver"
	"github.com/megaframework/mega/drivers/cluster/internal/protocol"
)

// syncs are questions to the hub whether it has handled all frames that were
// sent before. The hub answers them in the order in which they were sent.
type syncs struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]func(error)
}

// wait waits until the hub has handled all frames that were sent on line before
// this call.
func (s *syncs) wait(ctx context.Context, line *protocol.Line) error {
	return s.waitBy(ctx, line.Send)
}

// waitBy is wait with another way to send the question.
func (s *syncs) waitBy(ctx context.Context, send func(*protocol.Frame) error) error {
	done := make(chan error, 1)
	number := s.expect(func(err error) { done <- err })
	if err := send(protocol.Begin(protocol.TypeSync).Uint(number)); err != nil {
		s.end(number)
		return ended(err)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		s.end(number)
		return ctx.Err()
	}
}

// begin sends a question to the hub. It calls done when the hub has answered,
// or with an error when the line has ended.
func (s *syncs) begin(line *protocol.Line, done func(error)) {
	number := s.expect(done)
	if err := line.Send(protocol.Begin(protocol.TypeSync).Uint(number)); err != nil {
		s.answer(number, ended(err))
	}
}

// expect registers done, which is called with the answer to a new question, and
// returns the number of the question.
func (s *syncs) expect(done func(error)) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	if s.waiting == nil {
		s.waiting = make(map[uint64]func(error))
	}
	s.waiting[s.last] = done
	return s.last
}

// answer answers one question.
func (s *syncs) answer(number uint64, err error) {
	if then := s.end(number); then != nil {
		then(err)
	}
}

func (s *syncs) end(number uint64) func(error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	then := s.waiting[number]
	delete(s.waiting, number)
	return then
}

// fail answers all questions with err.
func (s *syncs) fail(err error) {
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, then := range waiting {
		then(err)
	}
}

// ended converts the error of a line that takes no frames to ErrDisconnected.
func ended(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrDisconnected), errors.Is(err, driver.ErrOverloaded), errors.Is(err, driver.ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrDisconnected, err)
}
