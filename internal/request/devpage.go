package request

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/megaframework/mega/internal/mask"
	"github.com/megaframework/mega/internal/stack"
)

//go:embed devpage.html
var devPageText string

//go:embed devpage.css
var devPageStyle string

// devPage is the page of an error in env dev.
type devPage struct {
	problem
	Style   template.CSS
	Chain   []cause
	Sources []source // of an error that is no panic
	Frames  []frames
	Method  string
	Path    string
	Route   string
	Took    string
	Params  []pair
	Query   []pair
	Header  []pair
	Locks   []usedLock
}

type (
	// cause is one error of a chain.
	cause struct {
		Depth      int
		Type, Text string
	}
	// source is a place in a file, with the lines around it if they can be read.
	source struct {
		What, Func, Place string
		Lines             []stack.Line
	}
	// frames are consecutive frames of a stack.
	frames struct {
		Own   bool
		Title string // of frames that are not the program's own
		Calls []source
	}
	pair     struct{ Name, Value string }
	usedLock struct{ Keys, State, Waited, Fence, Place string }
)

// showsDevPage reports whether an error is answered with the page for
// developers: in env dev, to a browser on this machine. Errors of clients have
// the app's own page, if there is one.
func (h *Host) showsDevPage(r *http.Request, p problem) bool {
	if h.App.Env != "dev" || !isLocal(r) || !acceptsHTML(r) {
		return false
	}
	return p.Status >= 500 || !h.Files().Views.has(errorView)
}

func acceptsHTML(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept") {
		for item := range strings.SplitSeq(header, ",") {
			if t, q := weighted(item); t == "text/html" && q > 0 {
				return true
			}
		}
	}
	return false
}

// writeDevPage answers with the page. It has no script, and its style alone is
// allowed.
func (h *Host) writeDevPage(w http.ResponseWriter, r *http.Request, rec *record, p problem) {
	d := h.newDevPage(r, rec, p)
	page := template.Must(template.New("dev").Parse(devPageText)) // embedded, and tested
	var out bytes.Buffer
	if err := page.Execute(&out, d); err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(devPageStyle))
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	writeBody(w, p.Status, pageType, out.Bytes())
}

func (h *Host) newDevPage(r *http.Request, rec *record, p problem) devPage {
	o := rec.outcome()
	d := devPage{
		problem: p, Style: template.CSS(devPageStyle), Method: r.Method, Route: o.route,
		Path: r.URL.Path, Took: time.Since(rec.began).Round(time.Microsecond).String(),
	}
	d.Chain = appendCauses(nil, o.err, 0)
	if p, ok := errors.AsType[*panicError](o.err); ok {
		for _, part := range stack.Fold(stack.Parse(p.stack)) {
			d.Frames = append(d.Frames, newFrames(part))
		}
	} else {
		d.Sources = h.sources(rec, o)
	}
	for _, param := range o.params {
		d.Params = append(d.Params, pair{param.name, param.value})
	}
	d.Query, d.Header = shownQuery(r), shownHeader(r)
	d.Locks = rec.usedLocks(o.err)
	return d
}

// appendCauses adds an error and the errors that it wraps, masked.
func appendCauses(all []cause, err error, depth int) []cause {
	const most = 50
	if err == nil || len(all) == most {
		return all
	}
	all = append(all, cause{depth, fmt.Sprintf("%T", err), mask.Text(err.Error())})
	switch wraps := err.(type) { //nolint:errorlint // it walks over the wrapped errors itself
	case interface{ Unwrap() error }:
		return appendCauses(all, wraps.Unwrap(), depth+1)
	case interface{ Unwrap() []error }:
		for _, inner := range wraps.Unwrap() {
			all = appendCauses(all, inner, depth+1)
		}
	}
	return all
}

// sources returns the places to look at: of the error, or of the line of the
// view, and the handler.
func (h *Host) sources(rec *record, o outcome) (all []source) {
	if f, ok := rec.where(o.err); ok {
		all = append(all, newSource("the error", f))
	}
	if s, ok := h.Files().Views.source(o.err); ok {
		all = append(all, s)
	}
	if len(all) == 0 && o.handler != nil {
		if f, ok := stack.Declared(o.handler); ok {
			all = append(all, newSource("the handler that returned the error", f))
		}
	}
	return all
}

func newSource(what string, f stack.Frame) source {
	return source{What: what, Func: f.Func, Place: f.File + ":" + strconv.Itoa(f.Line), Lines: stack.Source(f.File, f.Line)}
}

func newFrames(part []stack.Frame) frames {
	out := frames{Own: part[0].Own, Title: stack.Folded(len(part))}
	for _, f := range part {
		s := newSource("", f)
		if !f.Own {
			s.Lines = nil
		}
		out.Calls = append(out.Calls, s)
	}
	return out
}

// openHeaders are the headers whose values contain no secrets. Others are
// masked: a list of those with secrets would never be complete.
var openHeaders = []string{
	"Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Length", "Content-Type",
	"Priority", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Sec-Fetch-User", "Upgrade-Insecure-Requests", "User-Agent",
}

func shownHeader(r *http.Request) (all []pair) {
	all = append(all, pair{"Host", r.Host})
	for name, values := range r.Header {
		value := mask.Mark
		if slices.Contains(openHeaders, name) {
			value = strings.Join(values, ", ")
		}
		all = append(all, pair{name, value})
	}
	slices.SortFunc(all[1:], func(a, b pair) int { return strings.Compare(a.Name, b.Name) })
	return all
}

var secretName = regexp.MustCompile(`(?i)pass|pwd|secret|token|credential|key|auth|code|session|sig|state`)

// shownQuery returns the parameters of the query. The browser shows them too,
// but a picture of the page may travel.
func shownQuery(r *http.Request) (all []pair) {
	for name, values := range r.URL.Query() {
		value := strings.Join(values, ", ")
		if secretName.MatchString(name) {
			value = mask.Mark
		}
		all = append(all, pair{name, value})
	}
	slices.SortFunc(all, func(a, b pair) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (rec *record) usedLocks(err error) (all []usedLock) {
	if rec.inspection == nil {
		return nil
	}
	rec.inspection.mu.Lock()
	defer rec.inspection.mu.Unlock()
	for _, u := range rec.inspection.locks {
		used := usedLock{Keys: strings.Join(u.keys, ", "), State: u.stateLocked(err), Waited: u.waited.Round(time.Microsecond).String(), Fence: "-"}
		if u.lease != nil {
			used.Fence = strconv.FormatUint(u.lease.Fence(), 10)
		}
		if at, ok := stack.FirstOwn(u.calls); ok {
			used.Place = at.File + ":" + strconv.Itoa(at.Line)
		}
		all = append(all, used)
	}
	return all
}
