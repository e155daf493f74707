package megactx

import (
	"fmt"
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
// A path that matches several routes belongs to the most specific one:
// "/p/new" before "/p/{id}", and a method before every method. Two routes with
// the same method and the same pattern, apart from the names of parameters, are
// a conflict.
//
// A Router is complete before the app serves. Its methods panic on an invalid
// pattern or order and on a conflict, and the panic stops the boot.
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
	parent *group // nil for the router of the app
	wraps  []func(Handler) Handler
	routed bool
	own    []entry  // the routes of this router alone
	routes *[]Route // of the whole tree
	claims *claims  // likewise
}

// entry is a route as it was added to a chi.Router.
type entry struct {
	method, pattern string
	handler         http.HandlerFunc
}

// NewRouter returns a Router for the app of h. It wraps every Handler with
// wraps, the first one outermost.
func NewRouter(h *Host, wraps ...func(Handler) Handler) Router {
	mux := chi.NewRouter()
	g := &group{host: h, mux: mux, wraps: wraps, routes: &[]Route{}, claims: &claims{}}
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
func (r Router) Get(pattern string, h Handler) { r.add(http.MethodGet, pattern, h) }

// Post adds a route for POST.
func (r Router) Post(pattern string, h Handler) { r.add(http.MethodPost, pattern, h) }

// Put adds a route for PUT.
func (r Router) Put(pattern string, h Handler) { r.add(http.MethodPut, pattern, h) }

// Patch adds a route for PATCH.
func (r Router) Patch(pattern string, h Handler) { r.add(http.MethodPatch, pattern, h) }

// Delete adds a route for DELETE.
func (r Router) Delete(pattern string, h Handler) { r.add(http.MethodDelete, pattern, h) }

// Handle adds a route for every method that has no route of its own at the
// pattern.
func (r Router) Handle(pattern string, h Handler) { r.add("*", pattern, h) }

// Route calls fn to add routes below prefix. A wrapper that fn adds with Use
// applies to these routes only.
func (r Router) Route(prefix string, fn func(Router)) {
	g := r.group
	g.routed = true
	inner := *g
	inner.parent, inner.prefix, inner.routed, inner.own = g, joined(g.prefix, prefix), false, nil
	inner.wraps = slices.Clone(g.wraps)
	g.claims.add(claim{pattern: joined(inner.prefix, "/*"), site: caller(2), in: g, area: &inner})
	g.mux.Route(prefix, func(sub chi.Router) {
		inner.mux = sub
		fn(Router{&inner})
	})
	g.restore(prefix, joined(prefix, "/"))
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

// add adds a route for the caller of its caller.
func (r Router) add(method, pattern string, h Handler) {
	g := r.group
	e := entry{method, pattern, g.handler(h)}
	g.note(method, pattern, caller(3), h)
	e.addTo(g.mux)
	g.own = append(g.own, e)
	if method == "*" {
		g.restore(pattern)
	}
}

func (e entry) addTo(mux chi.Router) {
	if e.method == "*" {
		mux.Handle(e.pattern, e.handler)
		return
	}
	mux.Method(e.method, e.pattern, e.handler)
	if e.method == http.MethodGet {
		mux.Method(http.MethodHead, e.pattern, e.handler)
	}
}

// restore adds the routes at these patterns again: a route for every method and
// a group replace the routes that the chi.Router has at their pattern.
func (g *group) restore(patterns ...string) {
	for _, every := range []bool{true, false} {
		for _, e := range g.own {
			has := func(pattern string) bool { return shapeOf(pattern) == shapeOf(e.pattern) }
			if (e.method == "*") == every && slices.ContainsFunc(patterns, has) {
				e.addTo(g.mux)
			}
		}
	}
}

// note lists a route. The root of a group is at the prefix with and without a
// slash.
func (g *group) note(method, pattern, site string, h Handler) {
	isRoot := pattern == "/"
	pattern = joined(g.prefix, pattern)
	c := claim{method: method, pattern: pattern, site: site, in: g}
	g.claims.add(c)
	if isRoot && len(pattern) > 1 {
		pattern = strings.TrimSuffix(pattern, "/")
		c.pattern = pattern
		g.claims.add(c)
	}
	*g.routes = append(*g.routes, Route{method, pattern, nameOf(h)})
}

// joined returns a pattern below a prefix.
func joined(prefix, pattern string) string { return strings.TrimSuffix(prefix, "/") + pattern }

// caller returns the place of a call, as runtime.Caller counts from here.
func caller(skip int) string {
	_, file, line, _ := runtime.Caller(skip)
	return fmt.Sprintf("%s:%d", file, line)
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
	own := h
	for _, wrap := range slices.Backward(g.wraps) {
		h = wrap(h)
	}
	return g.host.adaptRoute(h, own)
}

func (h *Host) notFound(c *Ctx) error {
	if h.files().Public.serve(c.Writer(), c.Request()) {
		return nil
	}
	return refuse(http.StatusNotFound, "request.not_found", nil, "problem.request.not_found")
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
	return refuse(http.StatusMethodNotAllowed, "request.method_not_allowed", nil, "problem.request.method_not_allowed", "method", c.Request().Method)
}
