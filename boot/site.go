package boot

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	megactx "github.com/megaframework/mega/ctx"
)

// site is an app and where it is served.
type site struct {
	app          string
	addr         string // of its listener
	host, prefix string // what requests have to be for; "" for any
	routes       []megactx.Route
	context      *megactx.Host
	handler      http.Handler
}

// mounted reports whether the site takes only some of its listener's requests.
func (s site) mounted() bool { return s.host != "" || s.prefix != "" }

// front is one listener and the apps that are served there.
type front struct {
	addr  string
	sites []site
}

// fronts puts the sites together that have the same address. Port 0 is a
// different port for each app, but for those that take only some requests. Two
// for the same requests were refused with the configuration.
func fronts(sites []site) (all []front) {
	for _, s := range sites {
		at := slices.IndexFunc(all, func(p front) bool { return p.addr == s.addr && p.has(s) < 0 })
		if at < 0 {
			all = append(all, front{s.addr, []site{s}})
			continue
		}
		all[at].sites = append(all[at].sites, s)
	}
	return all
}

// has returns the index of the site that takes the same requests as s, or -1.
func (f front) has(s site) int {
	return slices.IndexFunc(f.sites, func(o site) bool { return o.host == s.host && o.prefix == s.prefix })
}

// names are the apps of the front.
func (f front) names() (all []string) {
	for _, s := range f.sites {
		all = append(all, s.app)
	}
	return all
}

func (f front) contexts() (all []*megactx.Host) {
	for _, s := range f.sites {
		all = append(all, s.context)
	}
	return all
}

// local has the sites that are for no particular host answer local names alone,
// and refusal everything else.
func (f front) local(refusal http.Handler) front {
	f.sites = slices.Clone(f.sites)
	for i, s := range f.sites {
		if s.host == "" {
			f.sites[i].handler = localOnly(s.handler, refusal)
		}
	}
	return f
}

// handler serves all sites of the front. The most specific one that matches
// takes a request: by its host before its prefix, the longer ones first. Where
// none does, nothing is.
func (f front) handler(nothing http.Handler) http.Handler {
	if len(f.sites) == 1 && !f.sites[0].mounted() {
		return f.sites[0].handler
	}
	sites := slices.Clone(f.sites)
	slices.SortStableFunc(sites, func(a, b site) int {
		return cmp.Or(
			cmp.Compare(hostRank(b.host), hostRank(a.host)),
			cmp.Compare(len(b.host), len(a.host)),
			cmp.Compare(len(b.prefix), len(a.prefix)),
		)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostName(r.Host)
		for _, s := range sites {
			if !matchesHost(host, s.host) {
				continue
			}
			if inside, ok := below(r, s.prefix); ok {
				s.handler.ServeHTTP(w, inside)
				return
			}
		}
		nothing.ServeHTTP(w, r)
	})
}

const anySubdomain = "*."

// hostRank is how much a pattern of hosts says.
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

// below returns the request as an app sees it that is mounted at prefix, if it
// is for that app: the path without the prefix, which ends with a part of it.
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

func strip(u *url.URL, prefix string) (path, raw string, ok bool) {
	if u.RawPath == "" {
		path, ok = rest(u.Path, prefix)
		return path, "", ok
	}
	// An escaped slash separates nothing.
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

func rest(path, prefix string) (string, bool) {
	after, ok := strings.CutPrefix(path, prefix)
	if !ok || after != "" && after[0] != '/' {
		return "", false
	}
	return cmp.Or(after, "/"), true
}
