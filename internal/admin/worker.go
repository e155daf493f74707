package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Worker is one of the processes of a supervisor.
type Worker struct {
	ID         int       `json:"id"` // from 1 on; whoever replaces it has it next
	PID        int       `json:"pid,omitempty"`
	State      string    `json:"state"`          // starting, ready, stopping, failing or down
	Generation int       `json:"generation"`     // grows with each restart of all workers
	Restarts   int       `json:"restarts"`       // how many processes were replaced that had its number
	Since      time.Time `json:"since,omitzero"` // when it came into its state

	// Ended is of one that is failing, which has no process, how the last one did.
	Ended string `json:"ended,omitempty"`

	// Path is where its socket is: see OpenWorker. It is empty where there is
	// none.
	Path string `json:"-"`
}

// The states that matter here: that of a worker that can be asked, and that of
// one whose process has died and has not been replaced yet.
const (
	ready = "ready"
	Down  = "down"
)

func (w Worker) String() string { return fmt.Sprintf("worker %d, pid %d", w.ID, w.PID) }

// workerQuery says in a request to a supervisor which worker is to answer.
const workerQuery = "worker"

// watchPath is where a worker's socket has what watches it.
const watchPath = "/watch"

// peerHeader says on whose behalf a supervisor asks its worker: uid and pid.
const peerHeader = "Mega-Peer"

// OpenWorker opens the socket by which its supervisor reaches a worker: with the
// paths of an admin socket, and those of watch below /watch. Nobody else looks
// for it. The caller has to Close it.
func OpenWorker(p Process, watch http.Handler, folders []string) (*Server, error) {
	serves := func(ending context.Context) http.Handler {
		mux := http.NewServeMux()
		mux.Handle(watchPath+"/", http.StripPrefix(watchPath, watch))
		mux.Handle("/", verbs(ending, p))
		return onBehalf(mux, os.Getppid())
	}
	return open(place{folders, p.Info.Name, p.Info.PID, workerSuffix}, serves, p.Log)
}

// onBehalf takes the word of one process, the supervisor, for who has asked.
func onBehalf(next http.Handler, supervisor int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var of Peer
		p, _ := PeerFrom(r.Context())
		if _, err := fmt.Sscanf(r.Header.Get(peerHeader), "%d %d", &of.UID, &of.PID); err == nil && p.PID == supervisor {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, of))
		}
		next.ServeHTTP(w, r)
	})
}

// behalf names the peer in a request to a worker.
func behalf(ctx context.Context, h http.Header) {
	h.Del(peerHeader)
	if p, ok := PeerFrom(ctx); ok {
		h.Set(peerHeader, fmt.Sprintf("%d %d", p.UID, p.PID))
	}
}

// Scrapes is the transport for what asks a worker at its socket for its
// metrics.
func (w Worker) Scrapes() http.RoundTripper {
	if w.Path == "" {
		return watcher{}
	}
	return watcher{transport(w.Path)}
}

// watcher asks below /watch.
type watcher struct{ to http.RoundTripper }

// RoundTrip sends one request.
func (t watcher) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.to == nil {
		return nil, errNoSocket
	}
	r = r.Clone(r.Context())
	r.URL.Path = watchPath + r.URL.Path
	return t.to.RoundTrip(r)
}

// transport reaches the socket at path, with a connection for each request.
func transport(path string) *http.Transport {
	return &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, path) },
		DisableKeepAlives:  true,
		DisableCompression: true,
	}
}
