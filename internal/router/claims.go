package router

import (
	"fmt"
	"strings"
)

// claim is a route, or the area of a group, with its place in the program.
type claim struct {
	method  string  // "*" for every one
	pattern string  // as written, with the prefixes of its groups
	site    string  // file:line
	in      *Router // the router that has it
	area    *Router // the group that has the paths below the pattern; nil for a route
	shape   string  // the pattern without the names of its parameters
}

// claims are all routes and groups of an app.
type claims []claim

// add adds a claim. It panics with a *routeConflict if an earlier claim hides
// it, or is hidden by it.
func (all *claims) add(c claim) {
	c.shape = shapeOf(c.pattern)
	for _, first := range *all {
		if first.conflicts(c) {
			panic(&routeConflict{first, c})
		}
	}
	*all = append(*all, c)
}

// conflicts reports whether one of two claims hides the other. Routes of one
// router never do unless they are the same: the static segment wins over the
// parameter, and the named method over "*".
func (c claim) conflicts(d claim) bool {
	sameMethod, anyMethod := c.method == d.method, c.method == "*" || d.method == "*"
	switch {
	case c.area != nil || d.area != nil:
		return c.shape == d.shape && !c.in.isWithin(d.area) && !d.in.isWithin(c.area)
	case c.shape == d.shape:
		return sameMethod || anyMethod && c.in != d.in
	case !sameMethod && !anyMethod:
		return false
	}
	return c.hides(d) || d.hides(c)
}

// hides reports whether c, a route of an outer router, hides d, a route of a
// group in it. The outer router is asked first, and it prefers c to the group
// if c continues the prefix of the group.
func (c claim) hides(d claim) bool {
	g := d.in
	for g != nil && g.parent != c.in {
		g = g.parent
	}
	return g != nil && strings.HasPrefix(c.shape, joined(shapeOf(g.prefix), "/")) && covers(c.shape, d.shape)
}

// isWithin reports whether r is the group area or a group inside it.
func (r *Router) isWithin(area *Router) bool {
	for ; r != nil; r = r.parent {
		if r == area {
			return true
		}
	}
	return false
}

// shapeOf returns a pattern without the names of its parameters. The expression
// of a parameter stays: "/{id:[0-9]{2}}" becomes "/{:[0-9]{2}}".
func shapeOf(pattern string) string {
	var shape strings.Builder
	depth, named := 0, false
	for _, r := range pattern {
		switch r {
		case '{':
			named = depth == 0
			depth++
			shape.WriteRune(r)
			continue
		case '}':
			depth--
			named = false
		case ':':
			named = false
		}
		if !named {
			shape.WriteRune(r)
		}
	}
	return shape.String()
}

// covers reports whether the shape wide matches each path that the shape narrow
// matches, as far as their segments show it.
func covers(wide, narrow string) bool {
	have, want := strings.Split(wide, "/"), strings.Split(narrow, "/")
	for i, segment := range have {
		switch {
		case segment == "*":
			return true
		case i >= len(want), want[i] == "*", segment != want[i] && segment != "{}":
			return false
		}
	}
	return len(have) == len(want)
}

// routeConflict is the panic of a route that an app has already.
type routeConflict struct{ first, again claim }

func (e *routeConflict) Error() string {
	if e.first.area == nil && e.again.area == nil && e.first.shape == e.again.shape && e.first.method == e.again.method {
		return fmt.Sprintf("%s is the same route as %s", e.again, e.first)
	}
	return fmt.Sprintf("%s and %s hide each other", e.again, e.first)
}

// Code returns the code of the failed boot.
func (e *routeConflict) Code() string { return "boot.route_conflict" }

// Places returns both routes with their places.
func (e *routeConflict) Places() (first, again string) {
	return e.first.String() + " at " + e.first.site, e.again.String() + " at " + e.again.site
}

func (c claim) String() string {
	if c.area != nil {
		return "the group " + strings.TrimSuffix(c.pattern, "/*")
	}
	return c.method + " " + c.pattern
}
