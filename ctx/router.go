package megactx

import "net/http"

// Router collects an app's routes. A pattern is a path whose parts in braces
// are parameters: "/products/{id}"; a last part "*" matches the rest, which is
// Param("*").
//
// A path that matches several routes belongs to the most specific one, also of
// different groups: "/p/new" before "/p/{id}", and a method before every method.
// Two routes with the same method and the same pattern, apart from the names of
// parameters, are a conflict. A path in which a parameter would be empty has no
// route.
//
// A Router is complete before the app serves. Its methods panic on an invalid
// pattern or order and on a conflict, and the panic stops the boot.
type Router interface {
	// Get adds a route for GET and HEAD.
	Get(pattern string, h Handler)
	// Post adds a route for POST.
	Post(pattern string, h Handler)
	// Put adds a route for PUT.
	Put(pattern string, h Handler)
	// Patch adds a route for PATCH.
	Patch(pattern string, h Handler)
	// Delete adds a route for DELETE.
	Delete(pattern string, h Handler)
	// Handle adds a route for every method that has no route of its own at the
	// pattern.
	Handle(pattern string, h Handler)

	// Route calls fn to add routes below prefix. A wrapper that fn adds with Use
	// applies to these routes only. Several groups may have one prefix, but only
	// one of them may call UseStd.
	Route(prefix string, fn func(Router))
	// Use wraps every Handler that is added afterwards. It must come before the
	// routes, so that no route lacks the wrapper by mistake.
	Use(wrap func(Handler) Handler)
	// UseStd wraps everything that this router serves with a net/http middleware.
	// It must come before the routes. The middleware also serves paths without a
	// route; the middleware of a group serves them below the prefix of the group.
	// PathValue has no parameters in a middleware of the app, which runs before the
	// route is found. The log and the metrics have no route for an answer of the
	// middleware.
	UseStd(wrap func(http.Handler) http.Handler)
}
