package megactx

import (
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Router collects an app's routes. A pattern is a path whose parts in braces
// are parameters: "/products/{id}"; a last part "*" matches the rest.
//
// A Router is complete before the app serves. Its methods panic on an invalid
// pattern or order, and the panic stops the boot.
type Router struct{ group *group }

// Route describes one route of an app.
type Route struct {
	Method  string // "*" for every one; a GET answers HEAD, too
	Pattern string
	Handler string // the name of the function, if it has one
}

// group is a router and the wrappers of every Handler added to it.
type group struct {
	host   *Host
	mux    chi.Router
	prefix string
	wraps  []func(Handler) Handler
	routed bool
	routes *[]Route // of the whole tree
}

// NewRouter returns a Router for the app of h. It wraps every Handler with
// wraps, the first one outermost.
func NewRouter(h *Host, wraps ...func(Handler) Handler) Router {
	mux := chi.NewRouter()
	g := &group{host: h, mux: mux, wraps: wraps, routes: &[]Route{}}
	mux.NotFound(h.adapt(h.notFound))
	mux.MethodNotAllowed(h.adapt(func(c *Ctx) error { return methodNotAllowed(c, mux) }))
	return Router{g}
}

// Handler returns the handler that serves the routes behind the app's front
// door.
func (r Router) Handler() http.Handler { return r.group.host.serve(r.group.mux) }

// Routes lists the routes in the order in which they were added.
func (r Router) Routes() []Route { return slices.Clone(*r.group.routes) }

// Get adds a route for GET and HEAD.
func (r Router) Get(pattern string, h Handler) {
	r.add(http.MethodGet, pattern, h)
	r.group.mux.Method(http.MethodHead, pattern, r.group.handler(h))
}

// Post adds a route for POST.
func (r Router) Post(pattern string, h Handler) { r.add(http.MethodPost, pattern, h) }

// Put adds a route for PUT.
func (r Router) Put(pattern string, h Handler) { r.add(http.MethodPut, pattern, h) }

// Patch adds a route for PATCH.
func (r Router) Patch(pattern string, h Handler) { r.add(http.MethodPatch, pattern, h) }

// Delete adds a route for DELETE.
func (r Router) Delete(pattern string, h Handler) { r.add(http.MethodDelete, pattern, h) }

// Handle adds a route for every method.
func (r Router) Handle(pattern string, h Handler) {
	r.group.mux.Handle(pattern, r.group.handler(h))
	r.group.note("*", pattern, h)
}

// Route calls fn to add routes below prefix. A wrapper that fn adds with Use
// applies to these routes only.
func (r Router) Route(prefix string, fn func(Router)) {
	r.group.routed = true
	r.group.mux.Route(prefix, func(sub chi.Router) {
		inner := *r.group
		inner.mux, inner.prefix, inner.routed = sub, r.group.prefix+prefix, false
		inner.wraps = slices.Clone(r.group.wraps)
		fn(Router{&inner})
	})
}

// Use wraps every Handler that is added afterwards. It must come before the
// routes, so that no route lacks the wrapper by mistake.
func (r Router) Use(wrap func(Handler) Handler) {
	if r.group.routed {
		panic("mega: Use has to come before the routes of its router")
	}
	r.group.wraps = append(r.group.wraps, wrap)
}

// UseStd wraps everything that this router serves with a net/http middleware.
// It must come before the routes.
func (r Router) UseStd(wrap func(http.Handler) http.Handler) { r.group.mux.Use(wrap) }

func (r Router) add(method, pattern string, h Handler) {
	r.group.mux.Method(method, pattern, r.group.handler(h))
	r.group.note(method, pattern, h)
}

func (g *group) note(method, pattern string, h Handler) {
	pattern = g.prefix + pattern
	if g.prefix != "" {
		pattern = strings.TrimSuffix(pattern, "/") // of a group's root
	}
	*g.routes = append(*g.routes, Route{method, pattern, nameOf(h)})
}

// nameOf returns the name of a function without the path of its package:
// "shop.(*Handlers).Buy".
func nameOf(h Handler) string {
	name, _, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(h).Pointer()).Name(), "[")
	name = strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], "-fm")
	if strings.HasPrefix(name, "ctx.WrapHandler.") {
		return "http.Handler"
	}
	return name
}

func (g *group) handler(h Handler) http.HandlerFunc {
	if h == nil {
		panic("mega: a route without a handler")
	}
	g.routed = true
	for _, wrap := range slices.Backward(g.wraps) {
		h = wrap(h)
	}
	return g.host.adapt(h)
}

func (h *Host) notFound(c *Ctx) error {
	if h.Public.serve(c.Writer(), c.Request()) {
		return nil
	}
	return Error(http.StatusNotFound, "request.not_found", "There is nothing at this address.")
}

func methodNotAllowed(c *Ctx, routes chi.Routes) error {
	path := c.Request().URL.Path
	if raw := c.Request().URL.RawPath; raw != "" {
		path = raw
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	c.Writer().Header().Set("Allow", strings.Join(allowed, ", "))
	return Error(http.StatusMethodNotAllowed, "request.method_not_allowed", "This address does not know the method "+c.Request().Method+".")
}
