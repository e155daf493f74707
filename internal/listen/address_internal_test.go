package listen

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

func TestRequestGoesToTheMostSpecificApp(t *testing.T) {
	f := Address{}
	for _, s := range []App{
		{Name: "web"},
		{Name: "admin", Prefix: "/admin"},
		{Name: "audit", Prefix: "/admin/audit"},
		{Name: "shop", Host: "shop.example.org"},
		{Name: "pay", Host: "shop.example.org", Prefix: "/pay"},
		{Name: "tenant", Host: "*.example.org"},
		{Name: "eu", Host: "*.eu.example.org", Prefix: "/eu"},
	} {
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %s", s.Name, r.URL.EscapedPath())
		})
		f.Apps = append(f.Apps, s)
	}
	handler := f.Handler(http.NotFoundHandler())
	for _, x := range []struct{ host, path, want string }{
		{"127.0.0.1:8080", "/", "web /"},
		{"127.0.0.1:8080", "/admin", "admin /"},
		{"127.0.0.1:8080", "/admin/", "admin /"},
		{"127.0.0.1:8080", "/admin/users/7", "admin /users/7"},
		{"127.0.0.1:8080", "/administrator", "web /administrator"},
		{"127.0.0.1:8080", "/Admin", "web /Admin"},
		{"127.0.0.1:8080", "/admin/audit", "audit /"},
		{"127.0.0.1:8080", "/admin/audit/1", "audit /1"},
		{"127.0.0.1:8080", "/admin/auditor", "admin /auditor"},
		{"127.0.0.1:8080", "//admin", "web //admin"},

		{"shop.example.org", "/admin", "shop /admin"}, // the host says more than the prefix
		{"shop.example.org:8443", "/", "shop /"},
		{"SHOP.Example.ORG", "/", "shop /"},
		{"shop.example.org.", "/", "shop /"},
		{"shop.example.org", "/pay/1", "pay /1"},
		{"a.example.org", "/", "tenant /"},
		{"a.b.example.org:80", "/x", "tenant /x"},
		{"a.eu.example.org", "/eu/1", "eu /1"},
		{"a.eu.example.org", "/us/1", "tenant /us/1"},
		{"example.org", "/", "web /"},
		{"xexample.org", "/", "web /"},
		{".example.org", "/", "web /"},

		{"[::1]:8080", "/admin", "admin /"},
		{"[::1]", "/", "web /"},
		{"", "/", "web /"}, // HTTP/1.0

		{"x", "/%61dmin/x", "admin /x"},
		{"x", "/admin/a%2Fb", "admin /a%2Fb"},
		{"x", "/admin%2Fx", "web /admin%2Fx"}, // an escaped slash separates nothing
		{"x", "/admin/a%20b", "admin /a%20b"},
		{"x", "/admin/%ED%95%9C", "admin /%ED%95%9C"},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://x/", nil)
		u, err := url.ParseRequestURI(x.path)
		if err != nil {
			t.Fatal(err)
		}
		if x.path == "//admin" {
			u = &url.URL{Path: "//admin"}
		}
		r.Host, r.URL = x.host, u
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		got := w.Body.String()
		if x.path == "//admin" {
			got = "web " + r.URL.Path
		}
		if got != x.want {
			t.Errorf("%s %s: got %q, want %q", x.host, x.path, got, x.want)
		}
	}
}

func TestRequestIsNotChangedForOthers(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "http://x/admin/a%2Fb", nil)
	if _, ok := below(r, "/admin"); !ok || r.URL.Path != "/admin/a/b" || r.URL.RawPath != "/admin/a%2Fb" {
		t.Errorf("it has become %+v", r.URL)
	}
}

func FuzzPrefixIsStrippedOnlyWhereItStands(f *testing.F) {
	for _, path := range []string{"/admin", "/admin/", "/admin/x", "/%61dmin/x", "/admin%2Fx", "/adm", "/", "//admin", "/admin//x"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		path, rawRest, ok := strip(u, "/admin")
		if !ok {
			return
		}
		if path == "" || path[0] != '/' || "/admin"+path != u.Path && path != "/" {
			t.Errorf("%q: the app sees %q", u.Path, path)
		}
		if plain, err := url.PathUnescape(rawRest); rawRest != "" && (plain != path || err != nil) {
			t.Errorf("%q: the app sees %q beside %q", raw, rawRest, path)
		}
	})
}
