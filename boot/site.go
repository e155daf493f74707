package boot

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	megactx "github.com/megaframework/mega/ctx"
)

// site is an app with its address, host and prefix.
type site struct {
	app          string
	addr         string // of its listener
	host, prefix string // that requests need to match; "" matches all
	routes       []megactx.Route
	context      *megactx.Host
	handler      http.Handler
}

// mounted reports whether the site serves only some requests of its listener.
func (s site) mounted() bool { return s.host != "" || s.prefix != "" }

// front is one listener and its apps.
type front struct {
	addr  string
	sites []site
}

// fronts groups the sites by address. With port 0 each app gets a port of its
// own, except apps with different hosts or prefixes. Two sites for the same
// requests are an error of the configuration, which has been checked.
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

// has returns the index of the site with the same host and prefix as s, or -1.
func (f front) has(s site) int {
	return slices.IndexFunc(f.sites, func(o site) bool { return o.host == s.host && o.prefix == s.prefix })
}

// names returns the names of the front's apps.
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

// local restricts the sites without a host to requests by local names. The
// handler refusal serves all other requests.
func (f front) local(refusal http.Handler) front {
	f.sites = slices.Clone(f.sites)
	for i, s := range f.sites {
		if s.host == "" {
			f.sites[i].handler = localOnly(s.handler, refusal)
		}
	}
	return f
}

// handler returns the handler of the front. Each request goes to the most
// specific site that matches: the host counts before the prefix, and a longer
// one before a shorter one. Requests without a matching site go to the handler
// nothing.
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

func rest(path, prefix string) (string, bool) {
	after, ok := strings.CutPrefix(path, prefix)
	if !ok || after != "" && after[0] != '/' {
		return "", false
	}
	return cmp.Or(after, "/"), true
}
