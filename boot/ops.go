package boot

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// probes answers whether the process lives and whether it wants traffic. That
// something it depends on is down makes it unready, never dead: restarting it
// would not help.
type probes struct {
	serving atomic.Bool
	checks  []check
}

// check is one reason to be unready.
type check struct {
	name   string
	budget time.Duration
	run    func(context.Context) error
}

const checkTime = 2 * time.Second

func (p *probes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, map[string]any{"status": "ok"}) })
	mux.HandleFunc("GET /readyz", p.readyz)
	return mux
}

func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	if !p.serving.Load() {
		answer(w, http.StatusServiceUnavailable, map[string]any{"status": "starting or stopping"})
		return
	}
	if reasons := p.reasons(r.Context()); len(reasons) > 0 {
		answer(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "reasons": reasons})
		return
	}
	answer(w, http.StatusOK, map[string]any{"status": "ok"})
}

// reasons runs the checks side by side and returns those that failed.
func (p *probes) reasons(ctx context.Context) map[string]string {
	var mu sync.Mutex
	var wg sync.WaitGroup
	failed := map[string]string{}
	for _, c := range p.checks {
		wg.Go(func() {
			err := checked(ctx, c)
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			failed[c.name] = err.Error()
		})
	}
	wg.Wait()
	return failed
}

func checked(ctx context.Context, c check) error {
	ctx, cancel := context.WithTimeout(ctx, c.budget)
	defer cancel()
	return await(ctx, c.run)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client went away
}
