package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"time"
)

// Worker is one of the processes of a supervisor.
type Worker struct {
	ID         int       `json:"id"` // from 1 on; its replacement has the same number
	PID        int       `json:"pid,omitempty"`
	State      string    `json:"state"`          // starting, ready, stopping, failing or down
	Generation int       `json:"generation"`     // grows with each restart of all workers
	Restarts   int       `json:"restarts"`       // how often a process with this number was replaced
	Since      time.Time `json:"since,omitzero"` // when its state last changed

	// Ended describes how the last process of a failing worker ended.
	Ended string `json:"ended,omitempty"`

	// Next is when a worker without a process gets one, if its supervisor pauses
	// before the next attempt.
	Next time.Time `json:"next,omitzero"`

	// Path is the path of its socket: see OpenWorker. It is empty without one.
	Path string `json:"-"`
}

// ready is the state of a worker that can answer.
const ready = "ready"

func (w Worker) String() string { return fmt.Sprintf("worker %d, pid %d", w.ID, w.PID) }

// Numbers returns the different numbers of workers, which are sorted by number.
func Numbers(workers []Worker) (all []int) {
	for _, w := range workers {
		all = append(all, w.ID)
	}
	return slices.Compact(all) // a replacement has the same number
}

// workerQuery is the query parameter that names the worker for an answer.
const workerQuery = "worker"

// watchPath is the path of a worker's monitoring endpoints on its socket.
const watchPath = "/watch"

// peerHeader names the peer on whose behalf a supervisor calls its worker: uid
// and pid.
const peerHeader = "Mega-Peer"

// operatorHeader describes the user of the console on whose behalf a supervisor
// calls its worker.
const operatorHeader = "Mega-Operator"

// OpenWorker opens the socket by which a supervisor reaches a worker. It serves
// the paths of an admin socket, and watch below /watch. Find does not return it.
// The caller must Close it.
func OpenWorker(p Process, watch http.Handler, folders []string) (*Server, error) {
	serves := func(ending context.Context) http.Handler {
		mux := http.NewServeMux()
		mux.Handle(watchPath+"/", http.StripPrefix(watchPath, watch))
		mux.Handle("/", verbs(ending, p))
		return acceptIdentity(mux, os.Getppid())
	}
	return open(place{folders, p.Info.Name, p.Info.PID, workerSuffix}, serves, p.Log)
}

// acceptIdentity takes the peer and the operator of a request from its headers, if
// the process supervisor sends it. It ignores the headers of any other process.
func acceptIdentity(next http.Handler, supervisor int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var of Peer
		p, _ := peerFrom(r.Context())
		if _, err := fmt.Sscanf(r.Header.Get(peerHeader), "%d %d", &of.UID, &of.PID); err == nil && p.PID == supervisor {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, of))
		}
		if operator := r.Header.Get(operatorHeader); operator != "" && p.PID == supervisor {
			r = r.WithContext(WithOperator(r.Context(), operator))
		}
		next.ServeHTTP(w, r)
	})
}

// setIdentity sets the headers of a request to a worker: the peer and the operator
// in ctx. It removes the headers that the client has sent.
func setIdentity(ctx context.Context, h http.Header) {
	h.Del(peerHeader)
	h.Del(operatorHeader)
	if operator, ok := operatorFrom(ctx); ok {
		h.Set(operatorHeader, operator)
	}
	if p, ok := peerFrom(ctx); ok {
		h.Set(peerHeader, fmt.Sprintf("%d %d", p.UID, p.PID))
	}
}

// ScrapeTransport returns the transport for requests to a worker's socket for its
// metrics.
func (w Worker) ScrapeTransport() http.RoundTripper {
	if w.Path == "" {
		return watchTransport{}
	}
	return watchTransport{transport(w.Path)}
}

// watchTransport sends requests below /watch. A nil transport means that the worker
// has no socket.
type watchTransport struct{ to http.RoundTripper }

// RoundTrip sends one request.
func (t watchTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.to == nil {
		return nil, errNoSocket
	}
	r = r.Clone(r.Context())
	r.URL.Path = watchPath + r.URL.Path
	return t.to.RoundTrip(r)
}

// transport connects to the socket at path, with a new connection for each
// request.
func transport(path string) *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, path) },
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
}
