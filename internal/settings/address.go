package settings

import (
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/megaframework/mega/config"
)

// assignAddresses assigns an address to each app without one: port 8080 to the first
// app, the next port to each further app, and to an app with a host or a prefix
// the address of the first app that has neither.
func (c *Config) assignAddresses() {
	var mounted []string
	first := ""
	for i, app := range c.schema.apps {
		key := "apps." + app + "."
		if c.values[key+"host"].Text != "" || c.values[key+"prefix"].Text != "" {
			mounted = append(mounted, key)
			continue
		}
		c.defaultAddr(key, config.Addr(fmt.Sprintf("127.0.0.1:%d", 8080+i)), "")
		if first == "" {
			first = key
		}
	}
	for _, key := range mounted {
		if first == "" {
			c.defaultAddr(key, "127.0.0.1:8080", "")
			continue
		}
		c.defaultAddr(key, config.Addr(c.values[first+"addr"].Text), "(address of "+strings.TrimSuffix(first, ".")+")")
	}
}

func (c *Config) defaultAddr(key string, addr config.Addr, why string) {
	key += "addr"
	c.defaults[key] = string(addr)
	if c.values[key].Text == "" {
		c.values[key] = Value{Key: key, Text: string(addr), parsed: reflect.ValueOf(addr), Origin: Origin{Layer: LayerDefault, Name: why}}
	}
}

// listener is one listener of the configuration.
type listener struct {
	key, addr  string
	host, port string
	mount      string // the host and the prefix of its requests
}

// listeners returns the listeners whose address is certain. An app with an illegal
// address, host or prefix has none, and may decide the default addresses of others.
func (c *Config) listeners(illegal map[string]bool) (all []listener) {
	unknown := func(app string) bool {
		key := "apps." + app + "."
		return illegal[key+"addr"] || illegal[key+"host"] || illegal[key+"prefix"]
	}
	anyUnknown := slices.ContainsFunc(c.schema.apps, unknown)
	add := func(key string, addr config.Addr, mount string) {
		host, port, err := net.SplitHostPort(string(addr))
		if err == nil {
			all = append(all, listener{key, string(addr), strings.ToLower(host), port, mount})
		}
	}
	for _, app := range c.schema.apps {
		key := "apps." + app + ".addr"
		if a := c.Apps[app]; c.runs(app) && !unknown(app) && (!anyUnknown || !c.Origin(key).IsDefault()) {
			add(key, a.Addr, a.Host+a.Prefix)
		}
	}
	if !c.Origin("ops.addr").IsDefault() { // a default address yields to the app's
		add("ops.addr", c.Ops.Addr, "")
	}
	return all
}

// addressTwice finds addresses that two listeners need and cannot share. Apps
// share an address, written alike, if their hosts or prefixes distinguish their
// requests.
func (c *Config) addressTwice(illegal map[string]bool) (p Problems) {
	all := c.listeners(illegal)
	for i, b := range all {
		for _, a := range all[:i] {
			if a.conflicts(b) {
				p = append(p, c.conflict(a, b))
				break
			}
		}
	}
	return p
}

// conflicts reports whether a and b cannot both listen.
func (a listener) conflicts(b listener) bool {
	switch {
	case a.port != b.port:
		return false
	case b.key == "ops.addr":
		return a.port != "0" && a.overlaps(b)
	case a.addr == b.addr:
		return a.mount == b.mount && (a.port != "0" || a.mount != "")
	}
	return a.port != "0" && a.overlaps(b)
}

// overlaps reports whether listening on one of two hosts also occupies the
// other.
func (a listener) overlaps(b listener) bool {
	loopback := func(host string) string {
		if host == "localhost" {
			return "127.0.0.1"
		}
		return host
	}
	every := func(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }
	return every(a.host) || every(b.host) || loopback(a.host) == loopback(b.host)
}

func (c *Config) conflict(a, b listener) Problem {
	at, other := c.Origin(b.key), c.Origin(a.key)
	p := Problem{
		Code: "config.address_twice", Key: b.key, Origin: at,
		Text: fmt.Sprintf("%s (%v) and %s = %s (%v) use the same address", b.addr, at, a.key, a.addr, other),
		Hint: "give one of them another address",
	}
	if at.IsDefault() { // an error at a default would have no place to correct
		p.Key, p.Origin = a.key, other
		p.Text = fmt.Sprintf("%s (%v) and %s = %s (%v) use the same address", a.addr, other, b.key, b.addr, at)
	}
	if b.key != "ops.addr" {
		p.Hint += "; or give both the same address, and one of them a host or a prefix"
	}
	return p
}
