package mcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/megaframework/mega/internal/shell"
	"github.com/megaframework/mega/lock"
)

// clientLease is a lease that the client has from lock_acquire.
type clientLease struct {
	handle string
	lease  *lock.Lease
	end    context.CancelFunc // ends the context of the lease
	order  shell.Order
	max    time.Duration // the lease ends after this time without a lock_renew; 0 for no bound
	due    time.Time     // when max ends the lease; guarded by server.mu
}

// lease describes a lease in an answer.
type lease struct {
	Handle string `json:"handle"`
	Key    string `json:"key"`
	Fence  uint64 `json:"fence"`
	Slot   int    `json:"slot"`
	Token  string `json:"token"`
}

func (h *clientLease) describe() lease {
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
	longest, err := parseDuration("max", in.Max, 0)
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
	h := &clientLease{handle: shell.NewHandle(), lease: l, end: end, order: o, max: longest, due: time.Now().Add(longest)}
	if !stop() || !s.add(h) { // nobody receives the answer
		_ = h.release()
		return nil, context.Canceled
	}
	return h.describe(), nil
}

// release releases the lease and ends its context.
func (h *clientLease) release() error {
	defer h.end()
	return h.lease.Release() // Release is bounded and retried; at worst the TTL ends the lease
}

// open returns the connection to the backend, which the first call opens. Concurrent
// calls wait for it, each until its ctx ends.
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

// add stores a lease and starts its watch. It returns false if the server is ending;
// the caller then releases the lease.
func (s *server) add(h *clientLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.group.Go(func(ctx context.Context) { s.watch(ctx, h) }) {
		return false
	}
	s.leases[h.handle] = h
	return true
}

// remove removes a lease, and reports whether it was still stored. The caller to
// which it returns true ends the lease.
func (s *server) remove(h *clientLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.leases[h.handle]
	delete(s.leases, h.handle)
	return known
}

// removeDue removes a lease whose max has passed, as remove does. If the lease was
// renewed meanwhile, it returns the remaining time instead.
func (s *server) removeDue(h *clientLease) (dropped bool, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := time.Until(h.due); left > 0 {
		return false, left
	}
	_, known := s.leases[h.handle]
	delete(s.leases, h.handle)
	return known, 0
}

// watch waits for the end of a lease: it releases the lease after max, and reports a
// loss to the client. It returns when the lease or ctx ends.
func (s *server) watch(ctx context.Context, h *clientLease) {
	var late <-chan time.Time
	if h.max > 0 {
		late = time.After(h.max)
	}
	for {
		select {
		case <-late:
			dropped, left := s.removeDue(h)
			if left > 0 {
				late = time.After(left)
				continue
			}
			if dropped {
				_ = h.release()
			}
			return
		case <-h.lease.Context().Done():
			if s.remove(h) {
				s.reportLoss(ctx, h)
				h.end()
			}
			return
		case <-ctx.Done():
			return
		}
	}
}

// reportLoss reports to the client that a lease was lost: at once if it has asked for
// messages, and with the next answer.
func (s *server) reportLoss(ctx context.Context, h *clientLease) {
	text := fmt.Sprintf("The lease %s of %s was lost: %v. (lock.lost)", h.handle, h.lease.Key(), h.lease.Err())
	s.mu.Lock()
	s.losses = append(s.losses, text)
	s.mu.Unlock()
	for session := range s.sdk.Sessions() {
		_ = session.Log(ctx, &sdk.LoggingMessageParams{Level: "error", Logger: "mega", Data: map[string]any{ //nolint:staticcheck // clients of the protocol before 2026-07-28 learn of it in no other way
			"code": "lock.lost", "handle": h.handle, "key": h.lease.Key(), "text": text,
		}})
	}
}

// takeLosses returns the reports that the client has not received yet, once.
func (s *server) takeLosses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.losses
	s.losses = nil
	return all
}

// handleArgs are the arguments of lock_renew and lock_release.
type handleArgs struct {
	Handle string `json:"handle" jsonschema:"the handle that lock_acquire has returned"`
}

// find returns a lease of the client.
func (s *server) find(handle string) (*clientLease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.leases[handle]
	switch {
	case known:
		return h, nil
	case !shell.IsHandle(handle):
		return nil, &shell.Error{Code: "cli.invalid_argument", Exit: shell.ExitUsage, Text: fmt.Sprintf("%q is not a handle, which lock_acquire returns.", handle)}
	}
	return nil, endedError(handle)
}

// endedError returns the error of a call for a lease that the client no longer has.
func endedError(handle string) error {
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
	if !s.restartMax(h) { // its max may have passed during the call
		return nil, endedError(h.handle)
	}
	return h.describe(), nil
}

// restartMax starts the max of a lease anew. It returns false if the lease has ended.
func (s *server) restartMax(h *clientLease) bool {
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
	if !s.remove(h) {
		return nil, endedError(h.handle)
	}
	if err := h.release(); errors.Is(err, lock.ErrLost) { // another error is retried
		return nil, shell.Explain(&h.order.Backend, err)
	}
	return h.describe(), nil
}

// releaseAll releases all leases, and makes add refuse further ones.
func (s *server) releaseAll() {
	s.mu.Lock()
	s.closed = true
	all := s.leases
	s.leases = nil
	s.mu.Unlock()
	var releasing sync.WaitGroup
	for _, h := range all {
		releasing.Go(func() { _ = h.release() })
	}
	releasing.Wait()
}
