package routes

import (
	"slices"
	"strings"
)

// node is a place in a trie of patterns: what begins with the tokens that lead
// to it. Its lists never change; a change replaces them.
type node[V comparable] struct {
	each   []V                 // whose pattern ends here
	groups map[string][]V      // those of a group, by its name
	next   map[string]*node[V] // by the next token, which may be "*" or ">"
}

// matches is what a subject has found so far.
type matches[V comparable] struct {
	each   []V
	groups [][]V
}

// add puts v where pattern leads.
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
		n.each = append(slices.Clip(n.each), v)
		return
	}
	if n.groups == nil {
		n.groups = make(map[string][]V)
	}
	n.groups[group] = append(slices.Clip(n.groups[group]), v)
}

// remove takes v out from where pattern leads, and the nodes that nothing is
// left of. It says whether v was there.
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
	at := slices.Index(list, v)
	if at < 0 {
		return false
	}
	list = slices.Concat(list[:at], list[at+1:])
	switch {
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

// len counts the nodes below n.
func (n *node[V]) len() (total int) {
	for _, child := range n.next {
		total += 1 + child.len()
	}
	return total
}

// match collects what matches the rest of a subject.
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
		m.groups = append(m.groups, g)
	}
}
