//go:build linux || darwin

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/megaframework/mega/drivers/cluster/internal/hub"
	"github.com/megaframework/mega/drivers/cluster/internal/rendezvous"
	"github.com/megaframework/mega/internal/group"
	"github.com/megaframework/mega/internal/private"
)

// presence is the part of this process in a socket at which unrelated processes
// connect: its name there, and the hub while this process is the hub.
type presence struct {
	config Config
	socket *rendezvous.Socket

	longest   atomic.Int64 // the longest ttl that was passed to bound
	connected atomic.Bool  // this process was at a hub before

	mu   sync.Mutex
	file *rendezvous.ClientFile
	host *hub.Host // nil unless the hub is in this process
	gone bool      // leave was called
}

// CheckSocket returns a [SocketError] if Dial with that Socket would, as far as
// it can be determined without creating a file.
func CheckSocket(socket string) error {
	if err := rendezvous.Check(socket); err != nil {
		return &SocketError{err}
	}
	return nil
}

// AutoSocket returns the default socket for the processes of this user. It is
// mega/cluster.sock in the user's runtime folder ($XDG_RUNTIME_DIR, or else
// /run/user/<uid>), if that folder belongs to the user alone. Otherwise it is
// in the user's own folder in /tmp, which another user could have made first.
func AutoSocket() string {
	uid := strconv.Itoa(os.Geteuid())
	for _, folder := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/run/user/" + uid} {
		if filepath.IsAbs(folder) && private.CheckFolder(folder, os.Geteuid()) == nil {
			return filepath.Join(folder, "mega", "cluster.sock")
		}
	}
	return filepath.Join("/tmp", "mega-"+uid, "cluster.sock")
}

// warnings returns the limitations of a socket, for the boot report.
func warnings(socket string) []string {
	all := []string{"while the process that is the hub is stopped (SIGSTOP, a debugger), no process at " + socket + " can renew: their leases end at their TTL, on all keys"}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err == nil && isPrivate(mounts, socket) {
		all = append(all, "the socket "+socket+" is in a folder that the service manager made for this service alone (PrivateTmp): other processes cannot see it; set cluster.socket to a path outside /tmp and /var/tmp")
	}
	return all
}

// isPrivate reports whether a path is in a folder that systemd has mounted over
// /tmp or /var/tmp for one service. The name of the mounted folder shows that.
func isPrivate(mountinfo []byte, path string) bool {
	longest, private := 0, false
	for line := range bytes.Lines(mountinfo) {
		// id, parent, device, root, mount point, ...
		fields := strings.Fields(string(line))
		if len(fields) < 5 {
			continue
		}
		root, point := fields[3], fields[4]
		if len(point) >= longest && (path == point || strings.HasPrefix(path, strings.TrimSuffix(point, "/")+"/")) {
			longest, private = len(point), strings.Contains(root, "/systemd-private-")
		}
	}
	return private
}

func openPresence(c Config) (*presence, error) {
	socket, err := rendezvous.Open(c.Socket)
	if err != nil {
		return nil, &SocketError{err}
	}
	file, err := socket.NewClient()
	if err != nil {
		return nil, err
	}
	return &presence{config: c, socket: socket, file: file}, nil
}

// enter returns a connection to the hub, and the identity of this process
// there. If there is no hub, this process becomes the hub. The file of this
// process is locked before the hub can grant any lease.
func (p *presence) enter(ctx context.Context) (net.Conn, identity, error) {
	as, err := p.present(ctx)
	if err != nil {
		return nil, identity{}, err
	}
	for {
		if p.config.Recruit != nil {
			conn, err := p.recruit(ctx)
			return conn, as, err
		}
		conn, lock, err := p.socket.Enter(ctx)
		if err != nil || conn != nil {
			return conn, as, err
		}
		if err := p.serve(lock); err != nil {
			return nil, identity{}, err
		}
	}
}

// recruit returns a connection to the hub. While there is none, it has another
// process become the hub.
func (p *presence) recruit(ctx context.Context) (net.Conn, error) {
	for {
		conn, err := p.socket.Find(ctx)
		if conn != nil || err != nil {
			return conn, err
		}
		if err := p.config.Recruit(ctx); err != nil {
			return nil, err
		}
		if !group.Sleep(ctx, time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// clients returns the number of clients of the hub in this process, and whether
// it is in this process.
func (p *presence) clients() (n int, here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host == nil || p.host.Failed() {
		return 0, false
	}
	return p.host.Clients(), true
}

// present makes sure that other processes see this one as living, and that no
// failed hub is left in this process.
func (p *presence) present(ctx context.Context) (identity, error) {
	host := p.hosted()
	if host != nil && host.Failed() {
		err := host.Close(ctx) // without the mutex, for which requests wait
		if err != nil && ctx.Err() != nil {
			return identity{}, err
		}
		if err != nil { // it has given up the hub lock all the same
			p.config.Log.Warn("cluster: hub ended with an error", "socket", p.config.Socket, "err", err)
		}
		host = nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host = host
	err := p.register()
	return identity{p.file.Name(), p.file.Nonce()}, err
}

// hosted returns the hub in this process, or nil.
func (p *presence) hosted() *hub.Host {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.host
}

// register makes sure that the file of this process exists. If the file was
// removed, this process reports its leases to the next hub under another name.
// While it can make no other file, it gets no lease. The caller holds p's lock.
func (p *presence) register() error {
	if p.file.Check() == nil {
		return nil
	}
	p.longest.Store(0) // L1: bound tries again
	next, err := p.socket.NewClient()
	if err != nil {
		return err
	}
	if err := next.Bound(p.file.Longest()); err != nil {
		return errors.Join(err, next.Leave(0)) // L1: with that file this process would have no lease
	}
	_ = p.file.Leave(0) // no file is left to remove
	p.file = next
	return nil
}

// seen is called as long as this process holds a lease. It makes sure that this
// process's file exists: the next hub waits only for the clients whose files it
// finds.
func (p *presence) seen() error {
	if !p.mu.TryLock() {
		return nil // the search for a hub, or bound, is in progress
	}
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	return p.register()
}

// bound records ttl before a lease of that duration is requested. If this
// process is stopped while another one takes over, the next hub waits for this
// process only as long as its leases last.
func (p *presence) bound(ttl time.Duration) error {
	if int64(ttl) <= p.longest.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil // the request fails because the node is closed
	}
	if err := p.register(); err != nil {
		return err
	}
	if err := p.file.Bound(int64(ttl)); err != nil {
		return err
	}
	p.longest.Store(p.file.Longest())
	return nil
}

// serve makes this process the hub.
func (p *presence) serve(lock *rendezvous.HubLock) error {
	h, err := hub.OpenHost(p.config.Socket, p.config.Log, lock, p.connected.Load())
	if err != nil {
		return errors.Join(err, lock.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.host = h
	return nil
}

// leave ends this process's part. Leases that it still holds are valid until
// expiry.
func (p *presence) leave(ctx context.Context, expiry int64) error {
	err := p.quit(expiry)
	if host := p.hosted(); host != nil {
		err = errors.Join(err, host.Close(ctx)) // without the mutex, for which requests wait
	}
	if err != nil {
		return fmt.Errorf("leave %s: %w", p.socket.Path(), err)
	}
	return nil
}

// quit removes the file of this process.
func (p *presence) quit(expiry int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	return p.file.Leave(expiry)
}
