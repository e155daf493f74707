package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/admin"
)

// callTime is the timeout of one call. A worker that is stopped takes 1 s.
const callTime = 3 * time.Second

// get decodes the JSON of a page of the ops listener. A refusal is an error
// with its text.
func (c *Console) get(ctx context.Context, path string, query url.Values, v any) error {
	own, cancel := callContext(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(own, http.MethodGet, address(path, query), nil)
	if err != nil {
		return err
	}
	status, body, err := c.call(r)
	if err != nil {
		return err
	}
	return decode(path, status, body, v)
}

// decode decodes a response. A refusal is an error with its text.
func decode(path string, status int, body []byte, v any) error {
	if status != http.StatusOK {
		var no struct {
			Text string `json:"error"`
		}
		_ = json.Unmarshal(body, &no) // else the status is the text
		return fmt.Errorf("%s: %s", path, cmp.Or(no.Text, fmt.Sprintf("status %d", status)))
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: decode: %w", path, err)
	}
	return nil
}

func address(path string, query url.Values) string {
	return "http://localhost" + path + "?" + query.Encode()
}

// callContext returns the context of a call, which ends with ctx or after callTime.
// It has no values of ctx, so that no handler treats the call as the request of the
// browser.
func callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithTimeout(context.Background(), callTime)
	stop := context.AfterFunc(ctx, cancel)
	return own, func() {
		stop()
		cancel()
	}
}

// call calls a page of the ops listener.
func (c *Console) call(r *http.Request) (status int, body []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // such as http.ErrAbortHandler of a proxy
			err = fmt.Errorf("%s: %v", r.URL.Path, p)
		}
	}()
	w := &response{header: http.Header{}, status: http.StatusOK}
	c.config.Pages.ServeHTTP(w, r)
	return w.status, w.body.Bytes(), nil
}

// response is the response to a call inside the process.
type response struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if !w.wrote && status >= 200 {
		w.status, w.wrote = status, true
	}
}

// Write implements [http.ResponseWriter].
func (w *response) Write(b []byte) (int, error) {
	w.wrote = true
	return w.body.Write(b)
}

// Flush implements [http.Flusher]. A proxy flushes after each write.
func (w *response) Flush() {}

// source is a process that answers for itself: the program, or one worker of a
// supervisor.
type source struct {
	Worker int // 0 without a supervisor
	PID    int
}

// query returns the query that selects the process.
func (s source) query() url.Values {
	if s.Worker == 0 {
		return url.Values{}
	}
	return url.Values{"worker": {strconv.Itoa(s.Worker)}}
}

// sources returns the processes that can answer.
func (c *Console) sources(ctx context.Context) ([]source, error) {
	if !c.config.Supervised {
		return []source{{}}, nil
	}
	workers, err := c.workers(ctx)
	if err != nil {
		return nil, err
	}
	var all []source
	for _, w := range admin.Serving(workers) {
		all = append(all, source{w.ID, w.PID})
	}
	return all, nil
}

// ready returns the processes that can answer, at least one.
func (c *Console) ready(ctx context.Context) ([]source, error) {
	all, err := c.sources(ctx)
	if err == nil && len(all) == 0 {
		err = errNoWorker
	}
	return all, err
}

// listers returns the processes whose listings together are complete: any one if all
// share the locks or limits, and each of all if the scope of these is the process.
func listers(all []source, scope string) []source {
	if scope == "process" {
		return all
	}
	return []source{{}}
}

var errNoWorker = errors.New("no worker is ready")

// workers returns the workers of the supervisor.
func (c *Console) workers(ctx context.Context) (all []admin.Worker, err error) {
	err = c.get(ctx, "/ops/workers", nil, &all)
	return all, err
}

// answer is the answer of one process.
type answer[T any] struct {
	source
	Value T
	Err   string // why it did not answer
}

// callAll calls a page of all sources concurrently, and returns the answers in the
// order of sources.
func callAll[T any](ctx context.Context, c *Console, sources []source, path string, query url.Values) []answer[T] {
	parts := make([]answer[T], len(sources))
	var calls sync.WaitGroup
	for i, s := range sources {
		calls.Go(func() {
			parts[i].source = s
			q := s.query()
			maps.Copy(q, query)
			if err := c.get(ctx, path, q, &parts[i].Value); err != nil {
				parts[i].Err = err.Error()
			}
		})
	}
	calls.Wait()
	return parts
}
