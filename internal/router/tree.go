package router

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
)

// tree has all routes of an app, also the routes of groups, by their whole patterns. So
// the most specific route answers, whatever group has added it.
type tree struct {
	door    request.Door
	mux     chi.Router
	first   http.Handler // the middleware of the app around mux
	areas   chi.Router   // the groups with middleware of net/http, for paths without a route
	entries []entry
	claims  claims
	routes  []Route

	missing http.HandlerFunc // answers requests without a route
}

// entry is a route as it was added to mux.
type entry struct {
	method, pattern string // "*" for every method
	shape           string
	isRest          bool // the route "/*" of a group, at the prefix of the group
	handler         http.Handler
}

func newTree(h *request.Host) *tree {
	t := &tree{door: request.Door{Host: h, Bind: bind}, mux: chi.NewRouter(), areas: chi.NewRouter()}
	t.first = http.HandlerFunc(t.find)
	t.missing = t.unmatched(orFile(h, notFound))
	t.mux.NotFound(t.missing)
	t.mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		path := chi.RouteContext(r.Context()).RoutePath // a middleware of a group may change it
		t.unmatched(orFile(h, func(c *megactx.Ctx) error { return methodNotAllowed(c, t.mux, path) }))(w, r)
	})
	t.areas.NotFound(onward)
	t.areas.MethodNotAllowed(onward)
	return t
}

// add adds a route below the prefix of its group, and returns its whole pattern. The root
// of a group is at the prefix with and without a slash, and its rest, "/*", at the prefix,
// too, if the group has no root for the method.
func (t *tree) add(method, prefix, pattern, site string, h http.Handler) (listed string) {
	h = t.filled(h)
	whole := joined(prefix, pattern)
	above := strings.TrimSuffix(prefix, "/")
	t.claims.add(claim{method: method, pattern: whole, site: site})
	t.insert(entry{method: method, pattern: whole, handler: h})
	switch {
	case above != "" && pattern == "/":
		t.claims.add(claim{method: method, pattern: above, site: site})
		t.insert(entry{method: method, pattern: above, handler: h})
		return above
	case above != "" && pattern == "/*":
		t.insert(entry{method: method, pattern: above, isRest: true, handler: h})
	}
	return whole
}

// insert adds an entry to mux. An entry for every method replaces the others at its
// pattern, so it adds them again, the ones with precedence last.
func (t *tree) insert(e entry) {
	e.shape = shapeOf(e.pattern)
	t.entries = append(t.entries, e)
	for _, isRest := range []bool{true, false} {
		for _, every := range []bool{true, false} {
			for _, at := range t.entries {
				if at.shape == e.shape && at.isRest == isRest && (at.method == "*") == every {
					at.addTo(t.mux)
				}
			}
		}
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

// addArea makes a group with middleware of net/http serve the paths below its prefix
// that have no route.
func (t *tree) addArea(group *Router, site string) {
	prefix := strings.TrimSuffix(group.prefix, "/")
	t.claims.add(claim{pattern: prefix + "/*", site: site, isArea: true})
	defer placed("the group "+group.prefix, site)
	serve := func(w http.ResponseWriter, r *http.Request) {
		r.Pattern = "" // it is not a route
		group.through(next(r)).ServeHTTP(w, r)
	}
	if prefix != "" {
		t.areas.HandleFunc(prefix, serve)
	}
	t.areas.HandleFunc(prefix+"/*", serve)
}

// methods are those that a route can name.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// serve serves a request behind the front door.
//
// Each request has a separate value for the router. chi's pooled value serves the next
// request when this one has an answer, although a middleware such as http.TimeoutHandler
// may have left handlers behind that still look for their route.
func (t *tree) serve(w http.ResponseWriter, r *http.Request) {
	route := chi.NewRouteContext()
	route.Routes = t.mux
	ctx := context.WithValue(r.Context(), chi.RouteCtxKey, route)
	if r.URL.RawPath != "" { // else mux takes the decoded path
		route.RoutePath = routePath(r.URL)
		ctx = context.WithValue(ctx, givenKey{}, route.RoutePath)
	}
	request.ServeCopy(t.first, w, r.WithContext(ctx))
}

// givenKey is the key under which a context has the path by which the route of a request
// with an escaped path is found, if no middleware of the app changes it.
type givenKey struct{}

// find serves the route of a request behind the middleware of the app, which may have
// changed the method and the path: of the request, or, as middleware of chi, of the value
// for the router. The routes for every method serve methods that chi does not know, too,
// such as PROPFIND: mux takes them for a method of these routes alone.
func (t *tree) find(w http.ResponseWriter, r *http.Request) {
	route := chi.RouteContext(r.Context())
	if route == nil {
		panic("a middleware has replaced the context of the request: derive its context from r.Context()")
	}
	path, method := route.RoutePath, route.RouteMethod
	defer func() { route.RoutePath, route.RouteMethod = path, method }() // a middleware may serve again
	*route = chi.Context{Routes: t.mux, RoutePath: path, RouteMethod: method}
	if given, _ := r.Context().Value(givenKey{}).(string); path == given || path == "" {
		route.RoutePath = cmp.Or(routePath(r.URL), "/") // as mux does
	}
	if !slices.Contains(methods, r.Method) {
		route.RouteMethod = http.MethodTrace
	}
	t.mux.ServeHTTP(w, r)
}

// routePath returns the path by which a route is found: decoded, except for the escapes
// of slashes, which separate no parts, and of percent signs.
func routePath(u *url.URL) string {
	if u.RawPath == "" {
		return u.Path
	}
	parts := strings.Split(u.EscapedPath(), "/")
	for i, part := range parts {
		if plain, err := url.PathUnescape(part); err == nil {
			parts[i] = escapes.Replace(plain)
		}
	}
	return strings.Join(parts, "/")
}

var escapes = strings.NewReplacer("%", "%25", "/", "%2F")

// filled returns a handler that passes requests on to next if no parameter of their route
// is empty. In chi, a parameter matches the empty text between two slashes, even if its
// expression does not.
func (t *tree) filled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := chi.RouteContext(r.Context())
		for i, name := range route.URLParams.Keys {
			if name != "*" && route.URLParams.Values[i] == "" {
				route.URLParams, r.Pattern = chi.RouteParams{}, ""
				t.missing.ServeHTTP(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// unmatched returns a handler for requests without a route, which answers in the
// middleware of the groups around their path.
func (t *tree) unmatched(answer megactx.Handler) http.HandlerFunc {
	h := t.door.Route(run(answer), nil)
	return func(w http.ResponseWriter, r *http.Request) {
		t.areas.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), nextKey{}, h)))
	}
}

// orFile returns a handler that answers with the public file of a path, or calls refuse.
func orFile(h *request.Host, refuse megactx.Handler) megactx.Handler {
	return func(c *megactx.Ctx) error {
		if h.Files().Public.Serve(c.Writer(), c.Request()) {
			return nil
		}
		return refuse(c)
	}
}

func notFound(*megactx.Ctx) error {
	return request.Refuse(http.StatusNotFound, "request.not_found", nil, "problem.request.not_found")
}

func methodNotAllowed(c *megactx.Ctx, routes chi.Routes, path string) error {
	var allowed []string
	for _, method := range methods {
		if routes.Match(chi.NewRouteContext(), method, path) {
			allowed = append(allowed, method)
		}
	}
	c.Writer().Header().Set("Allow", strings.Join(allowed, ", "))
	return request.Refuse(http.StatusMethodNotAllowed, "request.method_not_allowed", nil, "problem.request.method_not_allowed", "method", c.Request().Method)
}
