package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"net/http"
	"strings"
	"sync"

	"github.com/megaframework/mega/internal/ops"
)

// Root is the path of the console.
const Root = "/console"

// Config describes the program that a Console shows.
type Config struct {
	On         bool         // false refuses all requests
	Program    string       // its name
	Supervised bool         // Pages belong to a supervisor: they have /ops/workers, and know ?worker=
	Pages      http.Handler // the pages of the ops listener
}

// Console serves the console of a program. Start begins to record the history,
// and Close ends it and all streams.
type Console struct {
	config  Config
	pages   map[string]page // by path
	order   []page          // for the navigation
	history history
	streams streams
	secret  [sha256.Size]byte // of the proofs of releases

	ending context.Context // ends with Close
	end    context.CancelFunc
	work   sync.WaitGroup // the goroutine of the history
}

// New returns a Console. It starts nothing.
func New(config Config) *Console {
	c := &Console{config: config, pages: map[string]page{}}
	_, _ = rand.Read(c.secret[:]) // it never fails
	c.ending, c.end = context.WithCancel(context.Background())
	c.streams.slots = make(chan struct{}, MaxStreams)
	c.streams.renders = make(chan struct{}, maxRenders)
	for _, p := range allPages() {
		if p.supervised && !config.Supervised {
			continue
		}
		c.pages[p.path] = p
		if p.label != "" {
			c.order = append(c.order, p)
		}
	}
	return c
}

// Start begins to record the history of the program.
func (c *Console) Start() {
	if c.config.On {
		c.work.Go(c.record)
	}
}

// Close ends the streams and the history, and waits for the latter. The server
// waits for the streams, which are requests.
func (c *Console) Close() {
	c.end()
	c.work.Wait()
}

// Mount returns a handler that serves the console, and passes all other
// requests to next.
func (c *Console) Mount(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == Root || strings.HasPrefix(r.URL.Path, Root+"/") {
			c.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// policy allows the console's own files and nothing else: no inline script or
// style, no other site, no frame.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves a page, its stream or a file. The ops listener has checked
// the host, the origin and the token.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // no-referrer would replace the origin of a form by null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	p, known := c.pages[r.URL.Path]
	switch {
	case !c.config.On:
		c.problem(w, http.StatusNotFound, "The console is off", "Set ops.console: true, or run the program in env dev.")
	case r.URL.Path == Root+"/":
		http.Redirect(w, r, Root, http.StatusSeeOther)
	case r.URL.Path == ops.Release:
		c.release(w, r)
	case !known:
		c.file(w, r)
	case p.live && isStream(r):
		c.stream(w, r, p)
	default:
		c.show(w, r, p)
	}
}

//go:embed web
var web embed.FS

// files are the types of the files that are no templates.
var files = map[string]string{"style.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}

func (c *Console) file(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Root+"/")
	kind, known := files[name]
	if !known {
		c.problem(w, http.StatusNotFound, "No such page", "The console has no page with this path.")
		return
	}
	body, _ := web.ReadFile("web/" + name) // it is embedded
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(body) // the client disconnected
}
