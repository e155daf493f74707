package listen

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/megaframework/mega/internal/request"
	"github.com/megaframework/mega/internal/router"
)

// App is an app at its address.
type App struct {
	Name         string
	Addr         string // of its listener
	Host, Prefix string // that requests need to match; "" matches all
	Routes       []router.Route
	Context      *request.Host
	Handler      http.Handler
}

// Address is a listen address and its apps.
type Address struct {
	Addr string
	Apps []App
}

// Addresses groups the apps by address. With port 0 each app gets a port of its
// own, except apps with different hosts or prefixes. Two apps for the same
// requests are an error of the configuration, which has been checked.
func Addresses(apps []App) (all []Address) {
	for _, a := range apps {
		at := slices.IndexFunc(all, func(o Address) bool { return o.Addr == a.Addr && o.has(a) < 0 })
		if at < 0 {
			all = append(all, Address{a.Addr, []App{a}})
			continue
		}
		all[at].Apps = append(all[at].Apps, a)
	}
	return all
}

// has returns the index of the app with the same host and prefix as app, or -1.
func (a Address) has(app App) int {
	return slices.IndexFunc(a.Apps, func(o App) bool { return o.Host == app.Host && o.Prefix == app.Prefix })
}

// Names returns the names of the apps.
func (a Address) Names() (all []string) {
	for _, app := range a.Apps {
		all = append(all, app.Name)
	}
	return all
}

// Hosts returns the hosts of the apps.
func (a Address) Hosts() (all []*request.Host) {
	for _, app := range a.Apps {
		all = append(all, app.Context)
	}
	return all
}

// LocalOnly restricts the apps without a host to requests by local names. The
// handler refusal serves all other requests.
func (a Address) LocalOnly(refusal http.Handler) Address {
	a.Apps = slices.Clone(a.Apps)
	for i, app := range a.Apps {
		if app.Host == "" {
			a.Apps[i].Handler = localOnly(app.Handler, refusal)
		}
	}
	return a
}

// Handler returns the handler of the address. Each request goes to the most
// specific app that matches: the host counts before the prefix, and a longer one
// before a shorter one. Requests without a matching app go to notFound.
func (a Address) Handler(notFound http.Handler) http.Handler {
	if len(a.Apps) == 1 && a.Apps[0].Host == "" && a.Apps[0].Prefix == "" {
		return a.Apps[0].Handler
	}
	apps := slices.Clone(a.Apps)
	slices.SortStableFunc(apps, func(a, b App) int {
		return cmp.Or(
			cmp.Compare(hostRank(b.Host), hostRank(a.Host)),
			cmp.Compare(len(b.Host), len(a.Host)),
			cmp.Compare(len(b.Prefix), len(a.Prefix)),
		)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := request.HostName(r.Host)
		for _, app := range apps {
			if !matchesHost(host, app.Host) {
				continue
			}
			if inside, ok := below(r, app.Prefix); ok {
				app.Handler.ServeHTTP(w, inside)
				return
			}
		}
		notFound.ServeHTTP(w, r)
	})
}

const anySubdomain = "*."

// hostRank returns the rank of a host pattern: a more specific pattern has a
// higher rank.
func hostRank(pattern string) int {
	switch {
	case pattern == "":
		return 0
	case strings.HasPrefix(pattern, anySubdomain):
		return 1
	}
	return 2
}

func matchesHost(host, pattern string) bool {
	if domain, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(domain) && strings.HasSuffix(host, domain)
	}
	return pattern == "" || host == pattern
}

// below returns the request for an app that is mounted at prefix, without the
// prefix in its path, and reports whether the request is for that app. The
// prefix has to end at a path separator or at the end of the path.
func below(r *http.Request, prefix string) (*http.Request, bool) {
	if prefix == "" {
		return r, true
	}
	path, raw, ok := strip(r.URL, prefix)
	if !ok {
		return nil, false
	}
	inside, to := *r, *r.URL
	to.Path, to.RawPath = path, raw
	inside.URL = &to
	return &inside, true
}

// strip returns the decoded and the escaped path of u below prefix, and reports
// whether prefix matches. raw is "" if the path needs no escapes beyond the usual
// ones, as in url.URL.
func strip(u *url.URL, prefix string) (path, raw string, ok bool) {
	if u.RawPath == "" {
		path, ok = rest(u.Path, prefix)
		return path, "", ok
	}
	// An escaped slash is not a separator.
	parts := strings.SplitN(u.RawPath, "/", strings.Count(prefix, "/")+2)
	for i, want := range strings.Split(prefix, "/") {
		if i >= len(parts) {
			return "", "", false
		}
		if part, err := url.PathUnescape(parts[i]); err != nil || part != want {
			return "", "", false
		}
	}
	raw = "/" + strings.Join(parts[strings.Count(prefix, "/")+1:], "/")
	path, err := url.PathUnescape(raw)
	return path, raw, err == nil
}

// rest returns the path below prefix, at least "/".
func rest(path, prefix string) (string, bool) {
	after, ok := strings.CutPrefix(path, prefix)
	if !ok || after != "" && after[0] != '/' {
		return "", false
	}
	return cmp.Or(after, "/"), true
}
