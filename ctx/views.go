package megactx

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
)

// Views are an app's pages: html/template files that end in .html.
//
// A file in the folder "shared" belongs to all pages; every other one is a
// page, called by its path without the ending. If a shared file defines a
// template "layout", that is what is rendered, with the blocks that the page
// defines; else the page itself is. The page "error", where there is one, shows
// a [Problem].
type Views struct{ pages map[string]*template.Template }

const layout = "layout"

// ParseViews reads the pages of every file system; a later one's replace an
// earlier one's of the same name. A file system that has nothing but one
// folder at its root stands for that folder, as go:embed makes it.
func ParseViews(sources ...fs.FS) (*Views, error) {
	shared := template.New("")
	pages := map[string]string{}
	for _, source := range sources {
		if err := readViews(below(source), shared, pages); err != nil {
			return nil, fmt.Errorf("parse views: %w", err)
		}
	}
	v := &Views{pages: map[string]*template.Template{}}
	for name, text := range pages {
		page, err := template.Must(shared.Clone()).New(name).Parse(text)
		if err != nil {
			return nil, fmt.Errorf("parse views: %w", err)
		}
		v.pages[name] = page
	}
	return v, nil
}

func readViews(source fs.FS, shared *template.Template, pages map[string]string) error {
	return fs.WalkDir(source, ".", func(file string, entry fs.DirEntry, err error) error {
		name, isView := strings.CutSuffix(file, ".html")
		if err != nil || entry.IsDir() || !isView {
			return err
		}
		text, err := fs.ReadFile(source, file)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(file, "shared/") {
			pages[name] = string(text)
			return nil
		}
		_, err = shared.New(name).Parse(string(text))
		return err
	})
}

// below returns the folder that is all there is in source, or source.
func below(source fs.FS) fs.FS {
	entries, err := fs.ReadDir(source, ".")
	if err != nil || len(entries) != 1 || !entries[0].IsDir() {
		return source
	}
	folder, err := fs.Sub(source, entries[0].Name())
	if err != nil {
		return source
	}
	return folder
}

func (v *Views) render(name string, data any) ([]byte, error) {
	if v == nil {
		return nil, fmt.Errorf("render %q: %w", name, ErrNotConfigured)
	}
	page, ok := v.pages[name]
	if !ok {
		return nil, fmt.Errorf("render %q: there is no such view", name)
	}
	if page.Lookup(layout) != nil {
		page = page.Lookup(layout)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("render %q: %w", name, err)
	}
	return out.Bytes(), nil
}

//go:embed problem.html
var problemText string

// errorPage shows a problem on the app's own page for it, or on a plain one.
func (h *Host) errorPage(w http.ResponseWriter, p Problem) {
	const view = "error"
	if h.Views != nil && h.Views.pages[view] != nil {
		body, err := h.Views.render(view, p)
		if err == nil {
			writeBody(w, p.Status, "text/html; charset=utf-8", body)
			return
		}
		h.log().Error("the error page cannot be rendered", "error", err)
	}
	var out bytes.Buffer
	h.plainOnce.Do(func() { h.plain = template.Must(template.New("problem").Parse(problemText)) })
	if err := h.plain.Execute(&out, p); err != nil { // embedded, and tested
		panic(err)
	}
	writeBody(w, p.Status, "text/html; charset=utf-8", out.Bytes())
}
