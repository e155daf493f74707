package console

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/megaframework/mega/internal/ops"
	"github.com/megaframework/mega/internal/plain"
)

// page is one page of the console. Its template defines "lead", the part above the
// part that streams replace, "live", that part, and "still", the part below it.
type page struct {
	path       string
	file       string // of its template
	title      string
	label      string // in the navigation; empty leaves it out
	under      string // the path whose entry is current for a page that has none
	live       bool   // it has a stream
	supervised bool   // only a supervisor has it
	load       func(c *Console, ctx context.Context, query url.Values) any
}

func allPages() []page {
	return []page{
		{path: Root, file: "overview", title: "Overview", label: "Overview", live: true, load: loadOverview},
		{path: Root + "/locks", file: "locks", title: "Locks", label: "Locks", live: true, load: loadLocks},
		{path: Root + "/limits", file: "limits", title: "Limits", label: "Limits", live: true, load: loadLimits},
		{path: Root + "/bus", file: "bus", title: "Messages", label: "Messages", live: true, load: loadBus},
		{path: Root + "/workers", file: "workers", title: "Workers", label: "Workers", live: true, supervised: true, load: loadWorkers},
		{path: Root + "/errors", file: "errors", title: "Errors and lost leases", label: "Errors", live: true, load: loadErrors},
		{path: Root + "/boot", file: "boot", title: "Boot decisions", label: "Boot", load: loadBoot},
		{path: Root + "/config", file: "config", title: "Configuration", label: "Configuration", load: loadConfig},
		{path: Root + "/lock", file: "lock", title: "Lock", under: Root + "/locks", live: true, load: loadLock},
	}
}

// frame is the data of the layout.
type frame struct {
	Program string
	Title   string
	Path    string // of the current entry of the navigation
	Live    bool
	Acts    bool // the listener accepts actions
	Nav     []page
	Page    any
}

// Path and Label are for the navigation in the layout.
func (p page) Path() string  { return p.path }
func (p page) Label() string { return p.label }

// templates returns the templates by the name of their page. They are parsed at
// the first request.
var templates = sync.OnceValue(func() map[string]*template.Template {
	base := template.Must(template.New("layout.html").Funcs(functions()).ParseFS(web, "web/layout.html", "web/parts.html", "web/lockparts.html"))
	all := map[string]*template.Template{}
	for _, p := range append(allPages(), page{file: "problem"}) {
		all[p.file] = template.Must(template.Must(base.Clone()).ParseFS(web, "web/"+p.file+".html"))
	}
	return all
})

func functions() template.FuncMap {
	return template.FuncMap{
		"dur": short, "exact": plain.Exact, "ago": ago, "at": func(t time.Time) string { return t.Format("2006-01-02 15:04:05") },
		"plain": plain.Line, "lines": plain.Text, "count": count, "rate": rateText, "add": func(a, b int) int { return a + b },
	}
}

// show writes a whole page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, p page) {
	c.write(w, http.StatusOK, p.file, "layout.html", frame{
		Program: c.config.Program, Title: p.title, Path: cmp.Or(p.under, p.path), Live: p.live, Acts: ops.MayAct(r), Nav: c.order,
		Page: p.load(c, r.Context(), r.URL.Query()),
	})
}

// problem writes a page that has only a message.
func (c *Console) problem(w http.ResponseWriter, status int, title, text string) {
	c.write(w, status, "problem", "layout.html", frame{Program: c.config.Program, Title: title, Nav: c.order, Page: text})
}

func (c *Console) write(w http.ResponseWriter, status int, file, name string, data any) {
	var out bytes.Buffer
	if err := templates()[file].ExecuteTemplate(&out, name, data); err != nil {
		http.Error(w, "render the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(out.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the client disconnected
}

// render returns the live part of a page.
func (c *Console) render(ctx context.Context, p page, query url.Values) ([]byte, error) {
	var out bytes.Buffer
	err := templates()[p.file].ExecuteTemplate(&out, "live", frame{Program: c.config.Program, Path: p.path, Page: p.load(c, ctx, query)})
	return out.Bytes(), err
}

// short returns a duration with two or three digits.
func short(d time.Duration) string {
	unit := time.Duration(1)
	switch a := d.Abs(); {
	case a == math.MaxInt64:
		return "∞"
	case a >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case a >= 10*time.Second:
		unit = time.Second
	case a >= time.Second:
		unit = 100 * time.Millisecond
	case a >= time.Millisecond:
		unit = time.Millisecond
	case a >= time.Microsecond:
		unit = time.Microsecond
	}
	return plain.Exact(d.Round(unit))
}

// ago returns the time since t, or a dash for the zero time.
func ago(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return short(max(time.Since(t), 0).Round(time.Second))
}

// count returns a number with its thousands apart.
func count(n any) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "\u202f" + text[at:]
	}
	return text
}

// rateText returns a rate with one digit below ten.
func rateText(perSecond float64) string {
	if perSecond == 0 || perSecond >= 10 {
		return count(int64(math.Round(perSecond)))
	}
	return strconv.FormatFloat(perSecond, 'f', 1, 64)
}
