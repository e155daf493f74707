package memory

import (
	"slices"
	"strings"
)

// node is a place in a trie of patterns: what begins with the tokens that lead
// to it. Its lists never change; a change replaces them.
type node struct {
	each   []*interest      // whose pattern ends here
	groups map[string]group // those of a group, by its name
	next   map[string]*node // by the next token, which may be "*" or ">"
}

// add puts i where pattern leads.
func (n *node) add(pattern string, i *interest) {
	for token := range strings.SplitSeq(pattern, ".") {
		child := n.next[token]
		if child == nil {
			child = &node{}
			if n.next == nil {
				n.next = make(map[string]*node)
			}
			n.next[strings.Clone(token)] = child
		}
		n = child
	}
	if i.Group == "" {
		n.each = append(slices.Clip(n.each), i)
		return
	}
	if n.groups == nil {
		n.groups = make(map[string]group)
	}
	n.groups[i.Group] = append(slices.Clip(n.groups[i.Group]), i)
}

// remove takes i out from where pattern leads, and the nodes that nothing is
// left of. It says whether i was there.
func (n *node) remove(pattern string, i *interest) bool {
	token, rest, more := strings.Cut(pattern, ".")
	child := n.next[token]
	if child == nil {
		return false
	}
	var removed bool
	if more {
		removed = child.remove(rest, i)
	} else {
		removed = child.drop(i)
	}
	if child.isEmpty() {
		delete(n.next, token)
	}
	return removed
}

func (n *node) drop(i *interest) bool {
	list := n.each
	if i.Group != "" {
		list = n.groups[i.Group]
	}
	at := slices.Index(list, i)
	if at < 0 {
		return false
	}
	list = slices.Concat(list[:at], list[at+1:])
	switch {
	case i.Group == "":
		n.each = list
	case len(list) == 0:
		delete(n.groups, i.Group)
	default:
		n.groups[i.Group] = list
	}
	return true
}

func (n *node) isEmpty() bool { return len(n.each)+len(n.groups)+len(n.next) == 0 }

// match collects what matches the rest of a subject.
func (n *node) match(rest string, found *match) {
	token, rest, more := strings.Cut(rest, ".")
	if tail := n.next[">"]; tail != nil {
		tail.collect(found)
	}
	for _, child := range [...]*node{n.next["*"], n.next[token]} {
		switch {
		case child == nil:
		case more:
			child.match(rest, found)
		default:
			child.collect(found)
		}
	}
}

func (n *node) collect(found *match) {
	found.each = append(found.each, n.each...)
	for _, g := range n.groups {
		found.groups = append(found.groups, g)
	}
}
