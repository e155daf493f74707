package router_test

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"

	megactx "github.com/megaframework/mega/ctx"
	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

// wanted is a route as a path reaches it.
type wanted struct {
	method string
	parts  []string // of its pattern
	isRest bool     // of a group, at the prefix of the group
	name   string
}

// match returns how specific each part of the pattern is, 0 at best, if it matches.
func (w wanted) match(path []string) (ranks []int, ok bool) {
	for i, part := range w.parts {
		switch {
		case part == "*":
			return append(ranks, 3), i < len(path)
		case i >= len(path):
			return nil, false
		case part == "{n:[0-9]+}" && strings.Trim(path[i], "0123456789") == "":
			ranks = append(ranks, 1)
		case part == path[i]:
			ranks = append(ranks, 0)
		case strings.HasPrefix(part, "{") && !strings.Contains(part, ":"):
			ranks = append(ranks, 2)
		default:
			return nil, false
		}
	}
	return ranks, len(path) == len(w.parts)
}

// precedes reports whether w, which matches with ranks, is more specific than other.
func (w wanted) precedes(ranks []int, other wanted, others []int) bool {
	for i := range min(len(ranks), len(others)) {
		if ranks[i] != others[i] {
			return ranks[i] < others[i]
		}
	}
	if w.isRest != other.isRest {
		return other.isRest
	}
	return other.method == "*" && w.method != "*"
}

// answering returns the name of the route for a request, or "".
func answering(all []wanted, method, path string) string {
	var best wanted
	var ranks []int
	for _, w := range all {
		its, ok := w.match(strings.Split(path[1:], "/"))
		if ok && (w.method == "*" || w.method == method) && (best.name == "" || w.precedes(its, best, ranks)) {
			best, ranks = w, its
		}
	}
	return best.name
}

// maker adds random routes to a router and remembers them.
type maker struct {
	random *rand.Rand
	all    []wanted
}

func (m *maker) parts(n int) (pattern string) {
	for range n {
		pattern += "/" + []string{"a", "b", fmt.Sprintf("{p%d}", m.random.IntN(1e9)), "{n:[0-9]+}"}[m.random.IntN(4)]
	}
	return pattern
}

func (m *maker) add(r megactx.Router, prefix string, depth int) {
	for range 1 + m.random.IntN(4) {
		if depth < 2 && m.random.IntN(4) == 0 {
			group := m.parts(1 + m.random.IntN(2))
			r.Route(group, func(r megactx.Router) { m.add(r, prefix+group, depth+1) })
			continue
		}
		pattern := m.parts(m.random.IntN(3))
		if pattern == "" {
			pattern = []string{"/", "/*"}[m.random.IntN(2)]
		} else if m.random.IntN(8) == 0 {
			pattern += "/*"
		}
		m.route(r, prefix, pattern)
	}
}

func (m *maker) route(r megactx.Router, prefix, pattern string) {
	w := wanted{name: fmt.Sprint("route ", len(m.all)), parts: strings.Split((prefix + pattern)[1:], "/")}
	answer := func(c *megactx.Ctx) error { return c.Text(200, w.name) }
	switch m.random.IntN(3) {
	case 0:
		w.method = "GET"
		r.Get(pattern, answer)
	case 1:
		w.method = "POST"
		r.Post(pattern, answer)
	default:
		w.method = "*"
		r.Handle(pattern, answer)
	}
	m.all = append(m.all, w)
	if prefix != "" && (pattern == "/" || pattern == "/*") {
		w.parts, w.isRest = strings.Split(prefix[1:], "/"), pattern == "/*"
		m.all = append(m.all, w)
	}
}

// program returns random routes and their router, or nil for routes that are refused.
func program(seed uint64) (m *maker, r *router.Router) {
	defer func() {
		if recover() != nil {
			r = nil
		}
	}()
	m = &maker{random: rand.New(rand.NewPCG(seed, 0))}
	r = router.New(&request.Host{})
	m.add(r, "", 0)
	return m, r
}

// A path belongs to its most specific route, whatever group has added it, and whatever
// other routes match. Each part is compared from the left: text, an expression, a
// parameter, the rest.
func TestMostSpecificRouteAnswersInAnyGroups(t *testing.T) {
	tried := 0
	for seed := range uint64(2000) {
		m, r := program(seed)
		if r == nil {
			continue
		}
		h := r.Handler()
		for range 10 {
			tried++
			path := ""
			for range 1 + m.random.IntN(6) {
				path += "/" + []string{"a", "b", "c", "7"}[m.random.IntN(4)]
			}
			method := []string{"GET", "POST", "DELETE"}[m.random.IntN(3)]
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			got := w.Body.String()
			if w.Code != 200 {
				got = ""
			}
			if want := answering(m.all, method, path); got != want {
				t.Fatalf("seed %d: %s %s: got %q, want %q of\n%+v", seed, method, path, got, want, m.all)
			}
		}
	}
	if tried < 5000 {
		t.Errorf("only %d requests were tried", tried)
	}
}
