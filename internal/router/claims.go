package router

import (
	"fmt"
	"strings"
)

// claim is a route, or a group that serves paths without a route, with its place in
// the program.
type claim struct {
	method  string // "*" for every one, "" for a group
	pattern string // as written, with the prefixes of its groups
	site    string // file:line
	isArea  bool   // of a group with middleware of net/http: all paths below its prefix
	shape   string // the pattern without the names of its parameters
}

// claims are all routes and groups of an app.
type claims []claim

// add adds a claim. It panics with a *routeConflict if there is the same one: only
// one of them could answer.
func (all *claims) add(c claim) {
	c.shape = shapeOf(c.pattern)
	for _, first := range *all {
		if first.shape == c.shape && first.method == c.method && first.isArea == c.isArea {
			panic(&routeConflict{first, c})
		}
	}
	*all = append(*all, c)
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

// parameters returns the names of the parameters in a pattern.
func parameters(pattern string) (names []string) {
	depth, from := 0, 0
	for i, r := range pattern {
		switch r {
		case '{':
			if depth++; depth == 1 {
				from = i + 1
			}
		case '}':
			if depth--; depth == 0 {
				name, _, _ := strings.Cut(pattern[from:i], ":")
				names = append(names, name)
			}
		}
	}
	return names
}

// routeConflict is the panic of a route that an app has already.
type routeConflict struct{ first, again claim }

func (e *routeConflict) Error() string {
	if e.again.isArea {
		return fmt.Sprintf("%s and %s both have middleware of net/http, which serves the paths without a route", e.again, e.first)
	}
	return fmt.Sprintf("%s is the same route as %s", e.again, e.first)
}

// Code returns the code of the failed boot.
func (e *routeConflict) Code() string { return "boot.route_conflict" }

// Places returns both routes with their places.
func (e *routeConflict) Places() (first, again string) {
	return e.first.String() + " at " + e.first.site, e.again.String() + " at " + e.again.site
}

func (c claim) String() string {
	if c.isArea {
		return "the group " + strings.TrimSuffix(c.pattern, "/*")
	}
	return c.method + " " + c.pattern
}
