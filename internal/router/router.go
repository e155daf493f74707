// Package router implements the Router of an app: it finds the handler of a request
// behind the app's front door, and refuses routes that hide each other.
package router

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

// Router is the router of an app, or of a group of its routes. It implements
// megactx.Router.
type Router struct {
	door   request.Door
	mux    chi.Router
	prefix string
	parent *Router // nil for the router of the app
	wraps  []func(megactx.Handler) megactx.Handler
	routed bool
	own    []entry  // the routes of this router alone
	routes *[]Route // of the whole tree
	claims *claims  // likewise
}

var _ megactx.Router = (*Router)(nil)

// Route describes one route of an app.
type Route struct {
	Method  string // "*" for every one; a GET answers HEAD, too
	Pattern string
	Handler string // the name of the function, if it has one
}

// entry is a route as it was added to a chi.Router.
type entry struct {
	method, pattern string
	handler         http.HandlerFunc
}

// New returns a Router for the app of h. It wraps every Handler with wraps, the
// first one outermost.
func New(h *request.Host, wraps ...func(megactx.Handler) megactx.Handler) *Router {
	mux := chi.NewRouter()
	r := &Router{door: request.Door{Host: h, Bind: bind}, mux: mux, wraps: wraps, routes: &[]Route{}, claims: &claims{}}
	mux.NotFound(r.door.Route(run(func(c *megactx.Ctx) error { return notFound(c, h) }), nil))
	mux.MethodNotAllowed(r.door.Route(run(func(c *megactx.Ctx) error { return methodNotAllowed(c, mux) }), nil))
	return r
}

// bind returns the Ctx of the request that std carries.
func bind(std context.Context) context.Context {
	c, _ := megactx.From(std) // the door has put the request on it
	return c
}

// run returns a handler as the front door calls it, with the result of bind.
func run(h megactx.Handler) func(context.Context) error {
	return func(std context.Context) error {
		c, _ := megactx.From(std)
		return h(c)
	}
}

// Handler returns the handler that serves the routes behind the app's front
// door.
func (r *Router) Handler() http.Handler { return r.door.Handler(anyMethod(r.mux)) }

// methods are those that a route can name.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// anyMethod lets the routes for every method serve methods that chi does not know,
// such as PROPFIND. The router takes them for a method of these routes alone.
func anyMethod(mux chi.Router) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			route := chi.NewRouteContext()
			route.Routes, route.RouteMethod = mux, http.MethodTrace
			r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route))
		}
		mux.ServeHTTP(w, r)
	})
}

// Routes lists the routes in the order in which they were added.
func (r *Router) Routes() []Route { return slices.Clone(*r.routes) }

// Get adds a route for GET and HEAD.
func (r *Router) Get(pattern string, h megactx.Handler) { r.add(http.MethodGet, pattern, h) }

// Post adds a route for POST.
func (r *Router) Post(pattern string, h megactx.Handler) { r.add(http.MethodPost, pattern, h) }

// Put adds a route for PUT.
func (r *Router) Put(pattern string, h megactx.Handler) { r.add(http.MethodPut, pattern, h) }

// Patch adds a route for PATCH.
func (r *Router) Patch(pattern string, h megactx.Handler) { r.add(http.MethodPatch, pattern, h) }

// Delete adds a route for DELETE.
func (r *Router) Delete(pattern string, h megactx.Handler) { r.add(http.MethodDelete, pattern, h) }

// Handle adds a route for every method that has no route of its own at the
// pattern.
func (r *Router) Handle(pattern string, h megactx.Handler) { r.add("*", pattern, h) }

// Route calls fn to add routes below prefix. A wrapper that fn adds with Use
// applies to these routes only.
func (r *Router) Route(prefix string, fn func(megactx.Router)) {
	r.routed = true
	inner := *r
	inner.parent, inner.prefix, inner.routed, inner.own = r, joined(r.prefix, prefix), false, nil
	inner.wraps = slices.Clone(r.wraps)
	site := caller(2)
	defer placed(inner.prefix, site)
	r.claims.add(claim{pattern: joined(inner.prefix, "/*"), site: site, in: r, area: &inner})
	r.mux.Route(prefix, func(sub chi.Router) {
		inner.mux = sub
		fn(&inner)
	})
	r.restore(prefix, joined(prefix, "/"))
}

// Use wraps every Handler that is added afterwards. It must come before the
// routes, so that no route lacks the wrapper by mistake.
func (r *Router) Use(wrap func(megactx.Handler) megactx.Handler) {
	if r.routed {
		panic("mega: Use has to come before the routes of its router")
	}
	r.wraps = append(r.wraps, wrap)
}

// UseStd wraps everything that this router serves with a net/http middleware.
// It must come before the routes.
func (r *Router) UseStd(wrap func(http.Handler) http.Handler) {
	r.mux.Use(func(next http.Handler) http.Handler { return wrap(routed(next)) })
}

// routed gives next the value of the chi.Router, also if a middleware has put a Ctx
// on the request, which hides it.
func routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(chi.RouteCtxKey) == nil {
			route := r.Context().Value(request.RouteKey{})
			r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route))
		}
		next.ServeHTTP(w, r)
	})
}

// add adds a route for the caller of its caller.
func (r *Router) add(method, pattern string, h megactx.Handler) {
	site := caller(3)
	if h == nil {
		panic("mega: the route " + method + " " + joined(r.prefix, pattern) + " has no handler, at " + site)
	}
	defer placed(method+" "+joined(r.prefix, pattern), site)
	e := entry{method, pattern, r.handler(h)}
	r.note(method, pattern, site, h)
	e.addTo(r.mux)
	r.own = append(r.own, e)
	if method == "*" {
		r.restore(pattern)
	}
}

// placed adds the route and its call site to a panic of chi. It passes other panics on.
func placed(route, site string) {
	refused := recover()
	if text, ok := refused.(string); ok && strings.HasPrefix(text, "chi: ") {
		refused = fmt.Sprintf("%s at %s: %s", route, site, strings.TrimPrefix(text, "chi: "))
	}
	if refused != nil {
		panic(refused)
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
func (r *Router) restore(patterns ...string) {
	for _, every := range []bool{true, false} {
		for _, e := range r.own {
			has := func(pattern string) bool { return shapeOf(pattern) == shapeOf(e.pattern) }
			if (e.method == "*") == every && slices.ContainsFunc(patterns, has) {
				e.addTo(r.mux)
			}
		}
	}
}

// note lists a route. The root of a group is at the prefix with and without a
// slash.
func (r *Router) note(method, pattern, site string, h megactx.Handler) {
	isRoot := pattern == "/"
	pattern = joined(r.prefix, pattern)
	c := claim{method: method, pattern: pattern, site: site, in: r}
	r.claims.add(c)
	if isRoot && len(pattern) > 1 {
		pattern = strings.TrimSuffix(pattern, "/")
		c.pattern = pattern
		r.claims.add(c)
	}
	*r.routes = append(*r.routes, Route{method, pattern, nameOf(h)})
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
func nameOf(h megactx.Handler) string {
	name, _, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(h).Pointer()).Name(), "[")
	name = strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], "-fm")
	if strings.HasPrefix(name, "ctx.WrapHandler.") {
		return "http.Handler"
	}
	return name
}

func (r *Router) handler(h megactx.Handler) http.HandlerFunc {
	r.routed = true
	own := h
	for _, wrap := range slices.Backward(r.wraps) {
		h = wrap(h)
	}
	return r.door.Route(run(h), own)
}

func notFound(c *megactx.Ctx, h *request.Host) error {
	if h.Files().Public.Serve(c.Writer(), c.Request()) {
		return nil
	}
	return request.Refuse(http.StatusNotFound, "request.not_found", nil, "problem.request.not_found")
}

func methodNotAllowed(c *megactx.Ctx, routes chi.Routes) error {
	path := c.Request().URL.Path
	if raw := c.Request().URL.RawPath; raw != "" {
		path = raw
	}
	var allowed []string
	for _, method := range methods {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	c.Writer().Header().Set("Allow", strings.Join(allowed, ", "))
	return request.Refuse(http.StatusMethodNotAllowed, "request.method_not_allowed", nil, "problem.request.method_not_allowed", "method", c.Request().Method)
}
