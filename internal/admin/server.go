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
	path      string
	remove    func() error // removes path, once: its name may be used again
	listener  *net.UnixListener
	http      *http.Server
	admission admission
	served    chan struct{} // closed when the accepting goroutine has ended
	touched   chan struct{} // closed when touch has ended
	end       func()        // ends streams, and touch
}

// Open opens the admin socket of a process in the first usable one of folders,
// see [Folders]. The caller must Close it.
func Open(p Process, folders []string) (*Server, error) {
	serves := func(ending context.Context) http.Handler { return refuseWorkerQuery(verbs(ending, p)) }
	return open(place{folders, p.Info.Name, p.Info.PID, suffix}, serves, p.Log)
}

// refuseWorkerQuery refuses requests that name a worker, for a process without
// workers.
func refuseWorkerQuery(next http.Handler) http.Handler {
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
	s.admission.idle, s.admission.writeTimeout = make(chan struct{}), writeTime
	s.http = &http.Server{
		Handler:           s.admission.guard(newHandler(ending), os.Geteuid()),
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
			_ = os.Chtimes(s.path, now, now) // a missing file is no error for Close either
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
	_ = s.listener.Close() // fails at a second call of Close
	<-s.served
	s.end()
	<-s.touched
	s.admission.close()
	var cut error
	select {
	case <-s.admission.idle:
	case <-ctx.Done():
		cut = fmt.Errorf("admin socket: requests were cut off: %w", ctx.Err())
	}
	return errors.Join(gone, cut, s.http.Close())
}

// withPeer adds the peer of a connection to the context of its requests. An
// unidentified peer is missing there, and the requests are refused.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	p, err := private.PeerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// admits reports whether a user may connect: the process's own user, or root.
func admits(uid, self int) bool { return uid == self || uid == 0 }

// admission admits the requests of permitted peers, and counts the requests in
// flight.
type admission struct {
	writeTimeout time.Duration // for a client that does not read

	mu       sync.Mutex // guards the fields below
	inFlight int
	closed   bool
	idle     chan struct{} // closed when closed is set and no request is in flight
}

// guard returns a handler that refuses peers other than the user self and root,
// and all requests after close.
func (d *admission) guard(next http.Handler, self int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, known := peerFrom(r.Context())
		switch {
		case !known:
			refuse(w, http.StatusForbidden, "admin.unknown_peer", errors.New("the system did not report the user of the connection"))
		case !admits(p.UID, self):
			refuse(w, http.StatusForbidden, "admin.forbidden", fmt.Errorf("user %q is neither the user of this process nor root", p.User()))
		case !d.begin():
			refuse(w, http.StatusServiceUnavailable, "mega.shutting_down", errors.New("the process is shutting down"))
		default:
			own := withWriteDeadline(w, d.writeTimeout)
			defer d.end(own)
			next.ServeHTTP(own, r)
		}
	})
}

// begin counts a request, and reports whether it is admitted.
func (d *admission) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.inFlight++
	}
	return !d.closed
}

// end ends a request. It flushes the answer first, because the server may be closed
// next.
func (d *admission) end(w *deadlineWriter) {
	w.extend()
	_ = http.NewResponseController(w).Flush() // the client disconnected
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight--
	d.closeIdleLocked()
}

// close refuses further requests. idle is closed when the last one has ended.
func (d *admission) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.closeIdleLocked()
	}
}

func (d *admission) closeIdleLocked() {
	if d.closed && d.inFlight == 0 {
		close(d.idle)
	}
}
