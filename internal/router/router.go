// Package router implements the Router of an app: it finds the handler of a request
// behind the app's front door, and refuses routes of which only one could answer.
package router

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
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
	all    *tree
	parent *Router // nil for the router of the app
	prefix string
	wraps  []func(megactx.Handler) megactx.Handler
	std    []func(http.Handler) http.Handler // of this router alone
	enter  http.Handler                      // of a group: std around onward; nil without std, and until the group has a route
	routed bool
}

var _ megactx.Router = (*Router)(nil)

// Route describes one route of an app.
type Route struct {
	Method  string // "*" for every one; a GET answers HEAD, too
	Pattern string
	Handler string // the name of the function, if it has one
	Site    string // file:line
}

// New returns a Router for the app of h. It wraps every Handler with wraps, the
// first one outermost.
func New(h *request.Host, wraps ...func(megactx.Handler) megactx.Handler) *Router {
	return &Router{all: newTree(h), wraps: wraps}
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
// door. The router takes no further middleware.
func (r *Router) Handler() http.Handler {
	r.begin()
	return r.all.door.Handler(http.HandlerFunc(r.all.serve))
}

// Routes lists the routes in the order in which they were added.
func (r *Router) Routes() []Route { return slices.Clone(r.all.routes) }

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
	site := caller(2)
	if !strings.HasPrefix(prefix, "/") {
		panic(fmt.Sprintf("mega: the prefix %q of the group at %s does not begin with /", prefix, site))
	}
	inner := &Router{all: r.all, parent: r, prefix: joined(r.prefix, prefix), wraps: slices.Clone(r.wraps)}
	defer placed(inner.prefix, site)
	checkParameters(prefix)
	r.begin()
	fn(inner)
	inner.begin()
	if inner.enter != nil {
		r.all.addArea(inner, site)
	}
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
	if r.routed {
		panic("mega: UseStd has to come before the routes of its router")
	}
	r.std = append(r.std, wrap)
}

// begin is called before the first route of r. The middleware of the app is around
// mux, which would serve an app without a route without its own.
func (r *Router) begin() {
	if r.routed {
		return
	}
	r.routed = true
	first := &r.all.first
	if r.parent != nil {
		first = &r.enter
		if len(r.std) > 0 {
			*first = http.HandlerFunc(onward)
		}
	}
	for _, wrap := range slices.Backward(r.std) {
		*first = wrapped(wrap, *first)
	}
}

// through returns a handler that serves the middleware of r and of the groups around
// it, and then next.
func (r *Router) through(next http.Handler) http.Handler {
	for g := r; g != nil; g = g.parent {
		if enter, inner := g.enter, next; enter != nil {
			next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				request.ServeCopy(enter, w, r.WithContext(context.WithValue(r.Context(), nextKey{}, inner)))
			})
		}
	}
	return next
}

// nextKey is the key under which a context has the http.Handler behind the middleware
// of a group, which all routes of the group share.
type nextKey struct{}

func next(r *http.Request) http.Handler { return r.Context().Value(nextKey{}).(http.Handler) }

// onward serves the handler behind the middleware of a group.
func onward(w http.ResponseWriter, r *http.Request) { next(r).ServeHTTP(w, r) }

// wrapped returns next in a net/http middleware.
func wrapped(wrap func(http.Handler) http.Handler, next http.Handler) http.Handler {
	h := wrap(routed(next))
	if h == nil {
		panic("mega: a middleware of UseStd returns no handler")
	}
	return h
}

// routed gives next the value of the chi.Router, also if a middleware has put a Ctx
// on the request, which hides it.
func routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(chi.RouteCtxKey) != nil {
			next.ServeHTTP(w, r)
			return
		}
		route := r.Context().Value(request.RouteKey{})
		request.ServeCopy(next, w, r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, route)))
	})
}

// add adds a route for the caller of its caller.
func (r *Router) add(method, pattern string, h megactx.Handler) {
	site := caller(3)
	route := method + " " + joined(r.prefix, pattern)
	if h == nil {
		panic("mega: the route " + route + " has no handler, at " + site)
	}
	if !strings.HasPrefix(pattern, "/") {
		hint := ""
		if strings.Contains(pattern, " /") { // as for net/http
			hint = " (a method is not a part of it: call Get, Post, Put, Patch or Delete)"
		}
		panic(fmt.Sprintf("mega: the pattern %q of the route at %s does not begin with /%s", pattern, site, hint))
	}
	defer placed(route, site)
	checkParameters(pattern)
	r.begin()
	listed := r.all.add(method, r.prefix, pattern, site, r.through(r.handler(h)))
	r.all.routes = append(r.all.routes, Route{method, listed, nameOf(h), site})
}

// placed adds the route and its call site to a panic of chi or of checkParameters. It
// passes other panics on.
func placed(route, site string) {
	refused := recover()
	if text, ok := refused.(string); ok && strings.HasPrefix(text, "chi: ") {
		refused = fmt.Sprintf("%s at %s: %s", route, site, strings.TrimPrefix(text, "chi: "))
	}
	if fault, ok := refused.(invalidParameter); ok {
		refused = fmt.Sprintf("%s at %s: %s", route, site, string(fault))
	}
	if refused != nil {
		panic(refused)
	}
}

// invalidParameter is the panic of a parameter in the notation of another router.
type invalidParameter string

// parameterName matches the names that a parameter may have.
var parameterName = regexp.MustCompile(`^[\pL\pN_]([\pL\pN_.-]*[\pL\pN_])?$`)

// checkParameters panics if a part of a pattern is a parameter in the notation of
// another router: :id, {path...} and {$}. For chi the first one is a literal part, and
// the others are parameters with these names, so that Param returns nothing.
func checkParameters(pattern string) {
	for part := range strings.SplitSeq(shapeOf(pattern), "/") {
		if name, ok := strings.CutPrefix(part, ":"); ok && name != "" {
			panic(invalidParameter(fmt.Sprintf("%q is not a parameter (write {%s})", part, name)))
		}
	}
	for _, name := range parameters(pattern) {
		switch {
		case name == "$":
			panic(invalidParameter("{$} is not a parameter (leave it out: a pattern matches nothing below its path)"))
		case strings.HasSuffix(name, "...") || strings.HasPrefix(name, "*"):
			panic(invalidParameter(fmt.Sprintf(`{%s} does not match the rest of a path (write *, and read Param("*"))`, name)))
		case !parameterName.MatchString(name):
			panic(invalidParameter(fmt.Sprintf("%q is not the name of a parameter (write a word of letters, digits, _, - and .)", name)))
		}
	}
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

func (r *Router) handler(h megactx.Handler) http.Handler {
	own := h
	for _, wrap := range slices.Backward(r.wraps) {
		if h = wrap(speaking(h)); h == nil {
			panic("mega: a middleware of Use returns no handler")
		}
	}
	return r.all.door.Route(run(h), own)
}

// speaking returns the next handler of a middleware: the Ctx that it receives decides the
// locale of the answer to an error, also to one of a middleware that calls no handler.
func speaking(next megactx.Handler) megactx.Handler {
	return func(c *megactx.Ctx) error {
		request.Of(c).Speak()
		return next(c)
	}
}
