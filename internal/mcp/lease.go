package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// held is a lease of the client.
type held struct {
	handle string
	lease  *lock.Lease
	end    context.CancelFunc // of the context on which the lease lives
	order  shell.Order
	max    time.Duration // it ends after this time without a renewal; 0 for no bound
	due    time.Time     // when max ends it; the server's mutex guards it
}

// lease describes a lease in an answer.
type lease struct {
	Handle string `json:"handle"`
	Key    string `json:"key"`
	Fence  uint64 `json:"fence"`
	Slot   int    `json:"slot"`
	Token  string `json:"token"`
}

func (h *held) describe() lease {
	l := h.lease
	return lease{h.handle, l.Key(), l.Fence(), l.Slot(), l.Token()}
}

// acquireArgs are the arguments of lock_acquire.
type acquireArgs struct {
	lockArgs
	Max string `json:"max,omitempty" jsonschema:"give the lock back after this time without a lock_renew, such as 10m; default: with the end of the connection"`
}

func (s *server) acquire(ctx context.Context, in acquireArgs) (any, error) {
	o, err := in.order(s.config.Backend)
	if err != nil {
		return nil, err
	}
	longest, err := duration("max", in.Max, 0)
	if err != nil {
		return nil, err
	}
	if err := o.Check(s.config.Process.Environ); err != nil {
		return nil, err
	}
	c, err := s.open(ctx, &o.Backend)
	if err != nil {
		return nil, shell.Explain(&o.Backend, err)
	}
	if o.Label == "" {
		o.Label = "mcp"
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // the lease ends with it, not with the call
	stop := context.AfterFunc(ctx, end)
	l, err := c.Lease(life, &o)
	if err != nil {
		end()
		return nil, shell.Explain(&o.Backend, err)
	}
	h := &held{handle: "lease-" + strings.ToLower(rand.Text()[:16]), lease: l, end: end, order: o, max: longest, due: time.Now().Add(longest)}
	if !stop() || !s.keep(h) { // nobody receives the answer
		_ = h.giveBack()
		return nil, context.Canceled
	}
	return h.describe(), nil
}

// giveBack releases the lease.
func (h *held) giveBack() error {
	defer h.end()
	return h.lease.Release() // it has a timeout, is retried, and the TTL ends the lease
}

// open connects to the backend, once. Calls that come meanwhile wait for that, each
// until its ctx ends.
func (s *server) open(ctx context.Context, b *shell.Backend) (*shell.Connection, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.backend == nil {
		c, err := b.Open(ctx, s.config.Process, os.Getpid())
		if err != nil {
			return nil, err
		}
		s.backend = c
	}
	return s.backend, nil
}

// keep remembers a lease and watches it. It returns false when the server ends.
func (s *server) keep(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.group.Go(func(ctx context.Context) { s.watch(ctx, h) }) {
		return false
	}
	s.leases[h.handle] = h
	return true
}

// drop forgets a lease. It returns false if that has happened before.
func (s *server) drop(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.leases[h.handle]
	delete(s.leases, h.handle)
	return known
}

// dropDue is drop for a lease that its max ends. If a renewal came before, it
// returns the time that is left.
func (s *server) dropDue(h *held) (dropped bool, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(h.due); left > 0 {
		return false, left
	}
	_, known := s.leases[h.handle]
	delete(s.leases, h.handle)
	return known, 0
}

// watch waits for the end of a lease.
func (s *server) watch(ctx context.Context, h *held) {
	var late <-chan time.Time
	if h.max > 0 {
		late = time.After(h.max)
	}
	for {
		select {
		case <-late:
			dropped, left := s.dropDue(h)
			if left > 0 {
				late = time.After(left)
				continue
			}
			if dropped {
				_ = h.giveBack()
			}
			return
		case <-h.lease.Context().Done():
			if s.drop(h) {
				s.lose(ctx, h)
				h.end()
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// lose reports to the client that a lease was lost: at once if it has asked for
// messages, and with the next answer.
func (s *server) lose(ctx context.Context, h *held) {
	text := fmt.Sprintf("The lease %s of %s was lost: %v. (lock.lost)", h.handle, h.lease.Key(), h.lease.Err())
	s.mu.Lock()
	s.lost = append(s.lost, text)
	s.mu.Unlock()
	for session := range s.sdk.Sessions() {
		_ = session.Log(ctx, &sdk.LoggingMessageParams{Level: "error", Logger: "mega", Data: map[string]any{ //nolint:staticcheck // clients of the protocol before 2026-07-28 learn of it in no other way
			"code": "lock.lost", "handle": h.handle, "key": h.lease.Key(), "text": text,
		}})
	}
}

// losses returns the reports that the client has not received yet.
func (s *server) losses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.lost
	s.lost = nil
	return all
}

// handleArgs are the arguments of lock_renew and lock_release.
type handleArgs struct {
	Handle string `json:"handle" jsonschema:"the handle that lock_acquire has returned"`
}

// find returns a lease of the client.
func (s *server) find(handle string) (*held, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.leases[handle]
	switch {
	case known:
		return h, nil
	case !shell.IsHandle(handle):
		return nil, &shell.Error{Code: "cli.invalid_argument", Exit: shell.ExitUsage, Text: fmt.Sprintf("%q is not a handle, which lock_acquire returns.", handle)}
	}
	return nil, over(handle)
}

// over is the error of a call for a lease that the client no longer has.
func over(handle string) error {
	return &shell.Error{Code: "lock.lost", Exit: shell.ExitLost, Text: fmt.Sprintf("The lease %s is over: it was given back or lost.", handle)}
}

func (s *server) renew(ctx context.Context, in handleArgs) (any, error) {
	h, err := s.find(in.Handle)
	if err != nil {
		return nil, err
	}
	if err := h.lease.Extend(ctx, h.order.TTL); err != nil {
		return nil, shell.Explain(&h.order.Backend, err)
	}
	if !s.prolong(h) { // its max may have passed during the call
		return nil, over(h.handle)
	}
	return h.describe(), nil
}

// prolong begins the max of a lease anew. It returns false if the lease is over.
func (s *server) prolong(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.due = time.Now().Add(h.max)
	_, known := s.leases[h.handle]
	return known
}

func (s *server) release(_ context.Context, in handleArgs) (any, error) {
	h, err := s.find(in.Handle)
	if err != nil {
		return nil, err
	}
	if !s.drop(h) {
		return nil, over(h.handle)
	}
	if err := h.giveBack(); errors.Is(err, lock.ErrLost) { // another error is retried
		return nil, shell.Explain(&h.order.Backend, err)
	}
	return h.describe(), nil
}

// releaseAll gives all leases back.
func (s *server) releaseAll() {
	s.mu.Lock()
	s.closed = true
	all := s.leases
	s.leases = nil
	s.mu.Unlock()
	var releasing sync.WaitGroup
	for _, h := range all {
		releasing.Go(func() { _ = h.giveBack() })
	}
	releasing.Wait()
}
