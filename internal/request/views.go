package request

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/megaframework/mega/internal/embedded"
)

// Views are an app's pages: html/template files that end in .html.
//
// A file in the folder "shared" belongs to all pages. Every other file is a
// page, named by its path without the ending. If a shared file defines a
// template "layout", the layout is rendered, with the blocks that the page
// defines; otherwise the page itself is rendered. The page "error", if it
// exists, shows a [Problem].
type Views struct {
	pages map[string]*template.Template
	texts map[string]string // of every file by its name, for excerpts
}

const (
	layout    = "layout"
	errorView = "error"
)

// ParseViews parses the pages of every file system. A later page replaces an
// earlier page of the same name. A file system that has only one folder at its
// root stands for that folder, as go:embed makes it.
func ParseViews(sources ...fs.FS) (*Views, error) {
	shared := template.New("").Funcs((&Host{}).functions(""))
	pages := map[string]string{}
	v := &Views{pages: map[string]*template.Template{}, texts: map[string]string{}}
	for _, source := range sources {
		if err := v.read(embedded.Root(source), shared, pages); err != nil {
			return nil, fmt.Errorf("parse views: %w", err)
		}
	}
	for name, text := range pages {
		page, err := template.Must(shared.Clone()).New(name).Parse(text)
		if err != nil {
			return nil, fmt.Errorf("parse views: %w", inFile(err))
		}
		v.pages[name] = page
	}
	return v, v.complete()
}

func (v *Views) read(source fs.FS, shared *template.Template, pages map[string]string) error {
	return fs.WalkDir(source, ".", func(file string, entry fs.DirEntry, err error) error {
		name, isView := strings.CutSuffix(file, ".html")
		if err != nil || entry.IsDir() || !isView {
			return err
		}
		text, err := fs.ReadFile(source, file)
		if err != nil {
			return err
		}
		v.texts[name] = string(text)
		if !strings.HasPrefix(file, "shared/") {
			pages[name] = string(text)
			return nil
		}
		_, err = shared.New(name).Parse(string(text))
		return inFile(err)
	})
}

// pages are an app's views in its locales, built at their first use.
type pages struct {
	mu   sync.Mutex // guards made
	made map[pageKey]*template.Template
}

type pageKey struct {
	locale string
	master *template.Template // of the page
}

// forget removes what was built from files that have changed.
func (ps *pages) forget() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	clear(ps.made)
}

// has reports whether there is a page of that name.
func (v *Views) has(name string) bool { return v != nil && v.pages[name] != nil }

// Check returns an error that names the most similar view and all others, if there
// is no view of that name.
func (v *Views) Check(name string) error {
	if v.has(name) {
		return nil
	}
	if v == nil || len(v.pages) == 0 {
		return fmt.Errorf("%w: the app has none; add its folder with mega.Views", errUnknownView)
	}
	names := slices.Sorted(maps.Keys(v.pages))
	return fmt.Errorf("%w%s The views: %s", errUnknownView, cmp.Or(meant(name, names), "."), strings.Join(names, ", "))
}

// functions returns the functions of a page in a locale.
func (h *Host) functions(locale string) template.FuncMap {
	return template.FuncMap{
		"t":      func(key string, kv ...any) string { return h.Translate(locale, key, kv) },
		"url":    h.App.URL,
		"locale": func() string { return locale },
	}
}

// page returns the template to execute for a view.
func (h *Host) page(locale, name string) (*template.Template, error) {
	v := h.Files().Views
	switch {
	case v == nil:
		return nil, fmt.Errorf("%w: the app has no views, see mega.Views", ErrNotConfigured)
	case !v.has(name):
		return nil, v.Check(name)
	}
	master := v.pages[name]
	h.pages.mu.Lock()
	defer h.pages.mu.Unlock()
	key := pageKey{locale, master}
	if made := h.pages.made[key]; made != nil {
		return made, nil
	}
	page, err := master.Clone()
	if err != nil {
		return nil, err
	}
	page.Funcs(h.functions(locale))
	if page.Lookup(layout) != nil {
		page = page.Lookup(layout)
	}
	if h.pages.made == nil {
		h.pages.made = map[pageKey]*template.Template{}
	}
	h.pages.made[key] = page
	return page, nil
}

// Render returns a view in a locale.
func (h *Host) Render(locale, name string, data any) ([]byte, error) {
	page, err := h.page(locale, name)
	var out bytes.Buffer
	if err == nil {
		err = page.Execute(&out, data)
	}
	if err != nil {
		return nil, fmt.Errorf("render %q: %w", name, err)
	}
	return out.Bytes(), nil
}

const pageType = "text/html; charset=utf-8"

//go:embed problem.html
var problemText string

// errorPage renders a problem on the app's own error page, or on the plain
// page.
func (h *Host) errorPage(r *http.Request, p problem) []byte {
	if h.Files().Views.has(errorView) {
		body, err := h.Render(Of(r.Context()).Locale(), errorView, p)
		if err == nil {
			return body
		}
		h.Logger().Error("the error page cannot be rendered", "error", err)
	}
	h.plainOnce.Do(func() { h.plain = template.Must(template.New("problem").Parse(problemText)) })
	var out bytes.Buffer
	page := struct {
		problem
		Lang string
	}{p, p.lang}
	if err := h.plain.Execute(&out, page); err != nil { // embedded, and tested
		panic(err)
	}
	return out.Bytes()
}
