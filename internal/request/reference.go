package request

import (
	"errors"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"text/template/parse"

	"github.com/megaframework/mega/internal/spelling"
	"github.com/megaframework/mega/internal/stack"
)

// complete returns an error for each template that a page calls and that does
// not exist. Package html/template returns the same error, at the first use of
// the page.
func (v *Views) complete() error {
	var missing []error
	seen := map[string]bool{} // a shared template is a part of many pages
	for _, name := range slices.Sorted(maps.Keys(v.pages)) {
		c := calls{page: v.pages[name], walked: map[string]bool{}}
		if c.page.Lookup(layout) != nil {
			name = layout
		}
		c.walk(name)
		for _, err := range c.missing {
			if !seen[err.Error()] {
				seen[err.Error()] = true
				missing = append(missing, err)
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("parse views: %w", errors.Join(missing...))
	}
	return nil
}

// calls finds the templates that a page calls, directly or through others.
type calls struct {
	page    *template.Template
	walked  map[string]bool
	missing []error
}

func (c *calls) walk(name string) {
	t := c.page.Lookup(name)
	if c.walked[name] || t == nil || t.Tree == nil {
		return
	}
	c.walked[name] = true
	c.list(t.Tree, t.Tree.Root)
}

func (c *calls) list(tree *parse.Tree, list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TemplateNode:
			c.call(tree, n)
		case *parse.IfNode:
			c.branch(tree, &n.BranchNode)
		case *parse.RangeNode:
			c.branch(tree, &n.BranchNode)
		case *parse.WithNode:
			c.branch(tree, &n.BranchNode)
		}
	}
}

func (c *calls) branch(tree *parse.Tree, n *parse.BranchNode) {
	c.list(tree, n.List)
	c.list(tree, n.ElseList)
}

func (c *calls) call(tree *parse.Tree, n *parse.TemplateNode) {
	if called := c.page.Lookup(n.Name); called != nil && called.Tree != nil {
		c.walk(n.Name)
		return
	}
	var names []string
	for _, t := range c.page.Templates() {
		if t.Tree != nil {
			names = append(names, t.Name())
		}
	}
	slices.Sort(names)
	c.missing = append(c.missing, fmt.Errorf("%s.html:%d: there is no template %q%s", tree.ParseName, n.Line, n.Name, meant(n.Name, names)))
}

// meant returns the most similar of names as a part of an error, or "" if none is
// similar.
func meant(name string, names []string) string {
	if best := spelling.Nearest(name, names); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// viewPlace is the place that an error of package html/template begins with.
var viewPlace = regexp.MustCompile(`^(?:html/)?template: ?([^:]+):(\d+)(?::\d+)?: `)

// inFile returns an error of package html/template that begins with the file and
// the line of the view: "home.html:2: unclosed action".
func inFile(err error) error {
	if err == nil {
		return nil
	}
	m := viewPlace.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	return placedError{m[1] + ".html:" + m[2] + ": " + err.Error()[len(m[0]):], err}
}

type placedError struct {
	text string
	err  error
}

func (e placedError) Error() string { return e.text }
func (e placedError) Unwrap() error { return e.err }

// source returns the line of a view in which an error occurred.
func (v *Views) source(err error) (source, bool) {
	for ; err != nil && v != nil; err = errors.Unwrap(err) {
		m := viewPlace.FindStringSubmatch(err.Error())
		if m == nil {
			continue
		}
		line, _ := strconv.Atoi(m[2]) // the pattern matches digits
		text, ok := v.texts[m[1]]
		return source{What: "the error in a view", Func: m[1], Place: m[1] + ".html:" + m[2], Lines: stack.Excerpt(text, line)}, ok
	}
	return source{}, false
}
