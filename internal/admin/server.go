package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/private"
)

// place describes the location and the owner of a socket.
type place struct {
	folders []string
	name    string // of the program
	pid     int
	suffix  string // the end of its name
}

// Server is a process's open admin socket.
type Server struct {
	path     string
	remove   func() error // removes path, once: its name may be used again
	listener *net.UnixListener
	http     *http.Server
	door     door
	served   chan struct{} // closed when the accepting goroutine has ended
	touched  chan struct{} // closed when touch has ended
	end      func()        // ends streams, and touch
}

// Open opens the admin socket of a process in the first usable one of folders,
// see [Folders]. The caller must Close it.
func Open(p Process, folders []string) (*Server, error) {
	serves := func(ending context.Context) http.Handler { return alone(verbs(ending, p)) }
	return open(place{folders, p.Info.Name, p.Info.PID, suffix}, serves, p.Log)
}

// alone refuses requests for a worker in a process without workers.
func alone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has(workerQuery) {
			refuse(w, http.StatusNotFound, "worker.none", errors.New("this process has no workers"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// open opens a socket. newHandler returns its handler; ending ends with the
// server, so that streams end too.
func open(at place, newHandler func(ending context.Context) http.Handler, log *slog.Logger) (*Server, error) {
	if !private.Supported {
		return nil, ErrUnsupported
	}
	l, path, err := listen(at)
	if err != nil {
		return nil, err
	}
	ending, end := context.WithCancel(context.Background())
	s := &Server{path: path, listener: l, served: make(chan struct{}), touched: make(chan struct{}), end: end}
	s.remove = sync.OnceValue(func() error { return os.Remove(path) })
	s.door.idle, s.door.patience = make(chan struct{}), writeTime
	s.http = &http.Server{
		Handler:           s.door.guard(newHandler(ending), os.Geteuid()),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ConnContext:       withPeer,
	}
	go func() {
		defer close(s.served)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			log.Error("admin socket stopped", "error", err)
		}
	}()
	go func() {
		defer close(s.touched)
		s.touch(ending, touchInterval)
	}()
	return s, nil
}

// touchInterval is the time between two updates of the times of the socket.
const touchInterval = time.Hour

// touch updates the times of the socket, so that a cleaner of temporary folders
// does not remove it. Such a cleaner does not see that a process listens: the
// kernel lists the socket under its temporary name.
func (s *Server) touch(ending context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			_ = os.Chtimes(s.path, now, now) // Close reports nothing of a missing file either
		case <-ending.Done():
			return
		}
	}
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close removes the socket, stops accepting and ends streams. It waits for
// requests in flight; when ctx ends, it cuts them off and returns an error. It
// is idempotent.
func (s *Server) Close(ctx context.Context) error {
	gone := s.remove() // first, so that no client finds a socket that refuses it
	if errors.Is(gone, os.ErrNotExist) {
		gone = nil
	}
	_ = s.listener.Close() // for the second call of Close
	<-s.served
	s.end()
	<-s.touched
	s.door.shut()
	var cut error
	select {
	case <-s.door.idle:
	case <-ctx.Done():
		cut = fmt.Errorf("admin socket: requests were cut off: %w", ctx.Err())
	}
	return errors.Join(gone, cut, s.http.Close())
}

// withPeer adds the peer of a connection to the context of its requests. An
// unidentified peer is missing there, and the door refuses it.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	p, err := private.PeerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// admits reports whether a user may connect: the process's own user, or root.
func admits(uid, self int) bool { return uid == self || uid == 0 }

// door admits permitted peers, and counts requests in flight.
type door struct {
	patience time.Duration // timeout for a client that does not read

	mu     sync.Mutex // guards the fields below
	inside int
	closed bool
	idle   chan struct{} // closed when the door is shut and no request is in flight
}

func (d *door) guard(next http.Handler, self int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, known := PeerFrom(r.Context())
		switch {
		case !known:
			refuse(w, http.StatusForbidden, "admin.unknown_peer", errors.New("the system did not report the user of the connection"))
		case !admits(p.UID, self):
			refuse(w, http.StatusForbidden, "admin.forbidden", fmt.Errorf("user %q is neither the user of this process nor root", p.User()))
		case !d.enter():
			refuse(w, http.StatusServiceUnavailable, "mega.shutting_down", errors.New("the process is shutting down"))
		default:
			own := patiently(w, d.patience)
			defer d.leave(own)
			next.ServeHTTP(own, r)
		}
	})
}

func (d *door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.inside++
	}
	return !d.closed
}

// leave flushes the answer first, because the server may be closed next.
func (d *door) leave(w *patient) {
	w.renew()
	_ = http.NewResponseController(w).Flush() // the client disconnected
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
	d.settleLocked()
}

func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.settleLocked()
	}
}

func (d *door) settleLocked() {
	if d.closed && d.inside == 0 {
		close(d.idle)
	}
}
