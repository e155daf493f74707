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
	path       string
	remove     func() error // removes path, once: its name may be used again
	http       *http.Server
	admission  admission
	log        *slog.Logger
	serving    sync.WaitGroup // the accepting goroutines
	end        func()         // ends streams
	abandon    func()         // ends maintain
	maintained chan struct{}  // closed when maintain has ended

	// These belong to maintain until it has ended.
	listener *net.UnixListener
	made     os.FileInfo // the file of listener, or nil if it was removed at once
	lost     bool        // the file was removed and cannot be restored, and this was logged
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
	s := &Server{path: path, log: log, end: end, maintained: make(chan struct{})}
	s.remove = sync.OnceValue(s.removeFile)
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
	s.serve(l)
	ctx, abandon := context.WithCancel(ending)
	s.abandon = abandon
	go func() {
		defer close(s.maintained)
		s.maintain(ctx, checkInterval, touchInterval)
	}()
	return s, nil
}

// serve makes l the listener of the socket, and accepts from it.
func (s *Server) serve(l *net.UnixListener) {
	s.listener = l
	s.made, _ = os.Lstat(s.path) // restore restores a file that was removed again
	s.serving.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.Error("admin socket stopped", "error", err)
		}
	})
}

// checkInterval is the time between two checks that the socket still exists,
// touchInterval the time between two updates of its times.
const (
	checkInterval = 5 * time.Second
	touchInterval = time.Hour
)

// maintain restores the socket if it was removed, and updates its times, so that a
// cleaner of temporary folders does not remove it. Such a cleaner does not see that a
// process listens: the kernel lists the socket under its temporary name.
func (s *Server) maintain(ctx context.Context, check, touch time.Duration) {
	checks, touches := time.NewTicker(check), time.NewTicker(touch)
	defer checks.Stop()
	defer touches.Stop()
	for {
		select {
		case <-checks.C:
			s.restore()
		case now := <-touches.C:
			_ = os.Chtimes(s.path, now, now) // restore reports a missing file
		case <-ctx.Done():
			return
		}
	}
}

// restore opens the socket again if its file was removed. The connections of clients
// stay.
func (s *Server) restore() {
	if s.there() {
		return
	}
	l, err := reopen(s.path)
	if err != nil {
		if !s.lost {
			s.lost = true
			s.log.Warn("removed admin socket not restored", "socket", s.path, "error", err)
		}
		return
	}
	s.lost = false
	s.log.Warn("removed admin socket restored", "socket", s.path)
	_ = s.listener.Close() // no client can find it any more
	s.serve(l)
}

// there reports whether the file at the path is the one of the listener.
func (s *Server) there() bool {
	info, err := os.Lstat(s.path)
	return err == nil && os.SameFile(s.made, info)
}

func (s *Server) removeFile() error {
	if !s.there() {
		return nil
	}
	if err := os.Remove(s.path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Close removes the socket, stops accepting and ends streams. It waits for
// requests in flight; when ctx ends, it cuts them off and returns an error. It
// is idempotent.
func (s *Server) Close(ctx context.Context) error {
	s.abandon()
	<-s.maintained
	gone := s.remove()     // first, so that no client finds a socket that refuses it
	_ = s.listener.Close() // fails at a second call of Close
	s.serving.Wait()
	s.end()
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
