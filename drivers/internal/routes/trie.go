package routes

import (
	"slices"
	"strings"
)

// node is a node of a trie of patterns. It holds the patterns that begin with
// the tokens on the path to it. Its lists change in place: a match copies them, because
// plans keep what they get.
type node[V comparable] struct {
	each   []V                 // values whose pattern ends here
	groups map[string][]V      // values in groups, by the name of the group
	next   map[string]*node[V] // by the next token, which may be "*" or ">"
}

// matches holds the values that were found so far.
type matches[V comparable] struct {
	each   []V
	groups [][]V
}

// add adds v at the node of pattern.
func (n *node[V]) add(pattern, group string, v V) {
	for token := range strings.SplitSeq(pattern, ".") {
		child := n.next[token]
		if child == nil {
			child = &node[V]{}
			if n.next == nil {
				n.next = make(map[string]*node[V])
			}
			n.next[strings.Clone(token)] = child
		}
		n = child
	}
	if group == "" {
		n.each = append(n.each, v)
		return
	}
	if n.groups == nil {
		n.groups = make(map[string][]V)
	}
	n.groups[group] = append(n.groups[group], v)
}

// remove removes v from the node of pattern, and the nodes that are then empty.
// It reports whether v was there.
func (n *node[V]) remove(pattern, group string, v V) bool {
	token, rest, more := strings.Cut(pattern, ".")
	child := n.next[token]
	if child == nil {
		return false
	}
	var removed bool
	if more {
		removed = child.remove(rest, group, v)
	} else {
		removed = child.drop(group, v)
	}
	if child.isEmpty() {
		delete(n.next, token)
	}
	return removed
}

func (n *node[V]) drop(group string, v V) bool {
	list := n.each
	if group != "" {
		list = n.groups[group]
	}
	list, had := without(list, v)
	switch {
	case !had:
		return false
	case group == "":
		n.each = list
	case len(list) == 0:
		delete(n.groups, group)
	default:
		n.groups[group] = list
	}
	return true
}

func (n *node[V]) isEmpty() bool { return len(n.each)+len(n.groups)+len(n.next) == 0 }

// len returns the number of nodes below n.
func (n *node[V]) len() (total int) {
	for _, child := range n.next {
		total += 1 + child.len()
	}
	return total
}

// match adds the values that match the rest of a subject to m.
func (n *node[V]) match(rest string, m *matches[V]) {
	token, rest, more := strings.Cut(rest, ".")
	if tail := n.next[">"]; tail != nil {
		tail.collect(m)
	}
	for _, child := range [...]*node[V]{n.next["*"], n.next[token]} { // S2
		switch {
		case child == nil:
		case more:
			child.match(rest, m)
		default:
			child.collect(m)
		}
	}
}

func (n *node[V]) collect(m *matches[V]) {
	m.each = append(m.each, n.each...)
	for _, g := range n.groups {
		m.groups = append(m.groups, slices.Clone(g))
	}
}
