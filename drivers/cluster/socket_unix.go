//go:build linux || darwin

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/rendezvous"
)

// meeting is this process's part in a socket at which unrelated processes meet:
// its name there, and the hub while that is here.
type meeting struct {
	config Config
	place  *rendezvous.Place

	longest atomic.Int64 // of bound

	mu     sync.Mutex
	member *rendezvous.Member
	host   *host // nil unless the hub is in this process
	gone   bool  // leave was called
}

// CheckPlace returns a [PlaceError] if Dial would with that Socket, as far as that
// can be told without making anything.
func CheckPlace(socket string) error {
	if err := rendezvous.Check(socket); err != nil {
		return &PlaceError{err}
	}
	return nil
}

func openMeeting(c Config) (*meeting, error) {
	p, err := rendezvous.Open(c.Socket)
	if err != nil {
		return nil, &PlaceError{err}
	}
	m, err := p.Join()
	if err != nil {
		return nil, err
	}
	return &meeting{config: c, place: p, member: m}, nil
}

// enter returns a connection to the hub, which this process becomes if there is
// none, and the name under which it comes. Whatever the hub may give, the file
// of that name is locked before.
func (m *meeting) enter(ctx context.Context) (net.Conn, string, error) {
	name, err := m.present(ctx)
	if err != nil {
		return nil, "", err
	}
	for {
		conn, seat, err := m.place.Enter(ctx)
		if err != nil || conn != nil {
			return conn, name, err
		}
		if err := m.serve(seat); err != nil {
			return nil, "", err
		}
	}
}

// present makes sure that this process is seen to live, and that no hub of it is
// left that serves nobody any more.
func (m *meeting) present(ctx context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host != nil && m.host.failed() {
		if err := m.host.close(ctx); err != nil {
			return "", err
		}
		m.host = nil
	}
	err := m.register()
	return m.member.Name(), err
}

// register makes sure that the file of this process is there. If somebody has
// removed it, what this process holds is told to the next hub under another
// name. It expects m locked.
func (m *meeting) register() error {
	if m.member.Check() == nil {
		return nil
	}
	next, err := m.place.Join()
	if err != nil {
		return err
	}
	err = next.Bound(m.member.Longest())
	_ = m.member.Leave(0) // there is nothing left to remove
	m.member = next
	return err
}

// seen is called as long as something is held: a hub that comes next waits only
// for those whose files it finds.
func (m *meeting) seen() error {
	if !m.mu.TryLock() {
		return nil // a hub is just being looked for, or bound
	}
	defer m.mu.Unlock()
	if m.gone {
		return nil
	}
	return m.register()
}

// bound says, before a lease of ttl is asked for, that there may be one: should
// this process be stopped while another one takes over, it is waited for no
// longer than its leases last.
func (m *meeting) bound(ttl time.Duration) error {
	if int64(ttl) <= m.longest.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.member.Bound(int64(ttl)); err != nil {
		return err
	}
	m.longest.Store(m.member.Longest())
	return nil
}

// serve makes this process the hub.
func (m *meeting) serve(seat *rendezvous.Seat) error {
	h, err := openHost(m.config, seat)
	if err != nil {
		return errors.Join(err, seat.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.host = h
	return nil
}

// leave ends this process's part. What it still holds is good until expiry.
func (m *meeting) leave(ctx context.Context, expiry int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
	err := m.member.Leave(expiry)
	if m.host != nil {
		err = errors.Join(err, m.host.close(ctx))
	}
	if err != nil {
		return fmt.Errorf("leave %s: %w", m.place.Path(), err)
	}
	return nil
}
